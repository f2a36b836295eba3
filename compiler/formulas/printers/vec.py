"""Jacobians and Hessians as matrices, ∂vec Y/∂(vec X)ᵀ; all else as in the style of the printer."""

from derivatrix.compiler.formulas.printers import latex, numpy, unicode
from derivatrix.compiler.formulas.printers.base import Style

STYLE = Style("vec", unicode.UNICODE, vec=True)
LATEX = Style("vec-latex", latex.STYLE.printer, vec=True)
NUMPY = Style("vec-numpy", numpy.STYLE.printer, vec=True)
