"""Hooks by which arrays reach the rooms above this one; `compiler.frontends` fills them.

Arrays are printed as formulas, take NumPy's functions and mix with SymPy's expressions. All of that
is written in terms of arrays, and so stands above them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

if TYPE_CHECKING:
    from derivatrix.compiler.ir.arrays import Array
    from derivatrix.compiler.ir.nodes import Node


class Hooks:
    """The functions that arrays call.

    formula, latex: print a node
    function: look up a public function by name; None if there is none
    call_ufunc, call_function: NumPy's dispatch
    refuse_conversion: the error for a conversion to a NumPy array
    lower, embed: convert from and to SymPy's expressions
    """

    formula: Callable[[Node], str]
    latex: Callable[[Node], str]
    function: Callable[[str], Callable[..., Any] | None]
    call_ufunc: Callable[[np.ufunc, str, Any, dict[str, Any]], Any]
    call_function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    refuse_conversion: Callable[[], Exception]
    lower: Callable[[sympy.Basic | sympy.MatrixBase], Node]
    embed: Callable[[Array], sympy.Basic]


hooks = Hooks()
