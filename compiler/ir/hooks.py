"""What arrays need of the rooms above this one, handed in when `compiler.frontends` is imported.

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
    """formula: a node as text; latex: the same in LaTeX. function: the public function of a name,
    None if there is none. call_ufunc, call_function: NumPy's dispatch. refuse_conversion: the error
    for who asks for an array's numbers. lower, embed: from SymPy's expressions and to them."""

    formula: Callable[[Node], str]
    latex: Callable[[Node], str]
    function: Callable[[str], Callable[..., Any] | None]
    call_ufunc: Callable[[np.ufunc, str, Any, dict[str, Any]], Any]
    call_function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    refuse_conversion: Callable[[], Exception]
    lower: Callable[[sympy.Basic | sympy.MatrixBase], Node]
    embed: Callable[[Array], sympy.Basic]


hooks = Hooks()
