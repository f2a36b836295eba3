"""What users write: symbolic inputs and NumPy's, SciPy's names for functions of them.

The functions themselves are in `declare`, `elementwise`, `reductions`, `rearrange`, `reshape`,
`products`, `linear`, `matrices`, `factorisations`, `norms` and `implicit`; here they are one
namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from derivatrix.compiler.frontends import (
    reshape as reshaping,
)
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
from derivatrix.compiler.ir.arrays import Array, asarray

__all__ = ["Array", "asarray"]
__all__ += declare.__all__
__all__ += elementwise.__all__
__all__ += factorisations.__all__
__all__ += implicit.__all__
__all__ += linear.__all__
__all__ += matrices.__all__
__all__ += norms.__all__
__all__ += products.__all__
__all__ += rearrange.__all__
__all__ += reductions.__all__
__all__ += reshaping.__all__

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: globals()[name] for name in __all__ if name not in ("Array", "asarray", "dims")
}
"""Every public function by its name, for NumPy's dispatch and for the text notation."""
