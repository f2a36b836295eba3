"""The public functions of symbolic arrays in one namespace: all functions of the modules below
whose names have no leading underscore."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from derivatrix.compiler.frontends import (
    declare,
    differentiation,
    elementwise,
    factorisations,
    implicit,
    linear,
    loops,
    matrices,
    norms,
    products,
    rearrange,
    reductions,
)
from derivatrix.compiler.frontends import reshape as reshaping  # `reshape` is the function here
from derivatrix.compiler.ir.arrays import Array as Array
from derivatrix.compiler.ir.arrays import asarray as asarray
from derivatrix.compiler.ir.arrays import where as where
from derivatrix.compiler.ir.dimensions import dims as dims

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.declare import *
    from derivatrix.compiler.frontends.differentiation import *
    from derivatrix.compiler.frontends.elementwise import *
    from derivatrix.compiler.frontends.factorisations import *
    from derivatrix.compiler.frontends.implicit import *
    from derivatrix.compiler.frontends.linear import *
    from derivatrix.compiler.frontends.loops import *
    from derivatrix.compiler.frontends.matrices import *
    from derivatrix.compiler.frontends.norms import *
    from derivatrix.compiler.frontends.products import *
    from derivatrix.compiler.frontends.rearrange import *
    from derivatrix.compiler.frontends.reductions import *
    from derivatrix.compiler.frontends.reshape import *

_MODULES = (
    *(declare, differentiation, elementwise, factorisations, implicit, linear, loops, matrices),
    *(norms, products, rearrange, reductions, reshaping),
)

FUNCTIONS: dict[str, Callable[..., Any]] = {"where": where} | {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if inspect.isfunction(value)
    and value.__module__ == module.__name__
    and not name.startswith("_")
}
"""Name -> public function, for NumPy's dispatch and the text notation."""

globals().update(FUNCTIONS)

NAMES = ("Array", "asarray", "dims", *FUNCTIONS)
"""The names that `derivatrix` exports from here."""
