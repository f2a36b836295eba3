"""Declarations of functions, by NumPy's and SymPy's names, text, and equations.

Printing arrays and applying NumPy's functions to them is written with arrays, which `ir` must not
import: `ir.hooks` is filled here.
"""

from functools import partial

from derivatrix.compiler.formulas import render
from derivatrix.compiler.frontends import numpy, sympy
from derivatrix.compiler.ir.hooks import hooks

hooks.formula = partial(render, style="unicode")
hooks.latex = partial(render, style="latex")
hooks.function = numpy.find_public
hooks.call_ufunc = numpy.call_ufunc
hooks.call_function = numpy.call_function
hooks.refuse_conversion = numpy.refuse_conversion
hooks.lower = sympy.lower
hooks.embed = sympy.embed
