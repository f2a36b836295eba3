"""Generated modules, and declared functions, for SciPy's optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters.scipy import Objective

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function

__all__ = ["Objective", "objective"]


def objective(
    module: ModuleType | Function, /, wrt: Sequence[str] | None = None, **fixed: Any
) -> Objective:
    """Make a function of a flat vector, for `scipy.optimize`, of a generated module, or of a
    declared function, which is compiled.

    wrt: the names of the free inputs, in their order in the vector; by default the inputs that the
    module differentiates by and that are not fixed. fixed: the values of the other inputs;
    structured ones are replaced by their projection on the structure. `hess` of a declared array
    function compiles the weighted sum of its entries at its first call; a module has none.

    Raises DeclarationError for unknown and missing inputs, UnsupportedError for free inputs that
    the module does not differentiate by, ShapeError for wrong shapes.
    """
    weighted = None if isinstance(module, ModuleType) else partial(_weighted, module)
    return Objective(module_of(module), wrt, fixed, weighted)


@lru_cache(maxsize=16)
def _weighted(function: Function) -> ModuleType:
    """Compile Σ wᵢ fᵢ for a function f, with the weights w of each output as its last inputs."""
    import derivatrix as dx
    from derivatrix.compiler.ir.arrays import Array

    inputs = list[Any](leaf.name for leaf in function.inputs)
    terms = []
    for output, node in function.outputs:
        name = "_".join(filter(None, ("weights", output)))
        while name in function.derivatives.inputs:
            name += "_"
        weights = dx.tensor(name, *node.shape)
        inputs.append(weights)
        terms.append(dx.sum(weights * Array(node)))
    total = sum(terms[1:], terms[0])
    # SciPy's constraints give the weights as data: one module serves all of them
    return dx.compile(dx.function(f"{function.name}_weighted", inputs, total, function.wrt))
