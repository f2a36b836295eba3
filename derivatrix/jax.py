"""Generated modules, and declared functions, as functions of JAX."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters.jax import JaxFunction
from derivatrix.runtime.adapters.packages import require_package

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function

__all__ = ["JaxFunction", "function"]


def function(
    module: ModuleType | Function,
    *,
    batched: ModuleType | Function | None = None,
    native: bool = True,
) -> JaxFunction:
    """Make a function of JAX that returns the value of a generated module, or of a declared
    function, which is compiled, for its inputs, by position or name: an array, or a named tuple of
    the arrays of several outputs. It works with `jit`, `grad`, `jvp`, `vjp`, `vmap`, `jacrev`,
    `jacfwd`, `hessian` and `lax.scan`.

    Arguments are real arrays of the inputs' shapes; the result has the type that JAX gives their
    sum, float32 or float64. A structured input is replaced by its projection on the structure, as
    (S + Sᵀ)/2 if S is declared symmetric, so that derivatives along all directions are right.

    Inputs in `batch` take any number of leading axes, which broadcast. `vmap` over these inputs is
    one call. batched: a module of the same function with batch axes, `dx.function(..., batch=[x])`,
    which `vmap` over these inputs calls once; without it, samples are computed one after the other.
    native: False calls kernels through `jax.pure_callback`, instead of from XLA itself.

    Raises ShapeError, while JAX traces, for wrong shapes; UnsupportedError for arguments that are
    not real numbers of 32 or 64 bits, for derivatives by inputs that are not in `wrt`, second ones
    of arrays if the package was built without second=True, and third ones. An error of a kernel, as
    for a matrix that is not positive definite, becomes an error of JAX with its text. Raises
    MissingPackageError if JAX is not installed or too old.
    """
    require_package("jax", "0.5")
    batched_module = None if batched is None else module_of(batched)
    return JaxFunction(module_of(module), batched_module, native)
