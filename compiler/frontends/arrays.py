"""What users write: symbolic inputs and NumPy's, SciPy's names for functions of them.

The functions are in the modules listed here, where every function whose name does not begin with
an underscore is public; here they are one namespace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from derivatrix.compiler.frontends import (
    declare,
    elementwise,
    factorisations,
    implicit,
    linear,
    matrices,
    norms,
    products,
    rearrange,
    reductions,
)
from derivatrix.compiler.frontends import reshape as reshaping
from derivatrix.compiler.ir.arrays import Array as Array
from derivatrix.compiler.ir.arrays import asarray as asarray
from derivatrix.compiler.ir.arrays import where as where
from derivatrix.compiler.ir.dimensions import dims as dims

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.declare import *
    from derivatrix.compiler.frontends.elementwise import *
    from derivatrix.compiler.frontends.factorisations import *
    from derivatrix.compiler.frontends.implicit import *
    from derivatrix.compiler.frontends.linear import *
    from derivatrix.compiler.frontends.matrices import *
    from derivatrix.compiler.frontends.norms import *
    from derivatrix.compiler.frontends.products import *
    from derivatrix.compiler.frontends.rearrange import *
    from derivatrix.compiler.frontends.reductions import *
    from derivatrix.compiler.frontends.reshape import *

_MODULES = (
    *(declare, elementwise, factorisations, implicit, linear, matrices, norms, products),
    *(rearrange, reductions, reshaping),
)

FUNCTIONS: dict[str, Callable[..., Any]] = {"where": where} | {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if inspect.isfunction(value)
    and value.__module__ == module.__name__
    and not name.startswith("_")
}
"""Every public function by its name, for NumPy's dispatch and for the text notation."""

globals().update(FUNCTIONS)

NAMES = ("Array", "asarray", "dims", *FUNCTIONS)
"""What is public in `derivatrix`."""
