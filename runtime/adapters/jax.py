"""A generated module as a function of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any

from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.adapters.stacks import require_same
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import Input, ModuleInterface


def function(
    module: ModuleType, *, batched: ModuleType | None = None, native: bool = True
) -> Callable[..., Any]:
    """A generated module's value, as a function of JAX of the module's inputs, in their order or by
    name; under `jit`, `grad`, `jvp`, `vjp`, `vmap`, `jacrev`, `jacfwd`, `hessian`, `lax.scan`.

    Arguments are real arrays of the inputs' shapes; the result has the type that JAX gives their
    sum, float32 or float64. A structured input is replaced by the nearest array of its structure,
    as (S + Sᵀ)/2 where S is declared symmetric, so that derivatives along all directions are right.

    batched: a module of the same function with a batch axis, `dx.function(..., batch=[x])`, which
    `vmap` over these inputs calls once; without it, samples are computed one after the other.
    native: False has kernels called through `jax.pure_callback`, instead of by XLA itself.

    Raises ShapeError, while JAX traces, for other shapes; UnsupportedError for arguments that are
    no real numbers of 32 or 64 bits, for derivatives by inputs that are not in `wrt`, second ones
    of other than scalar functions, and third ones. What a kernel raises, as for a matrix that is
    not positive definite, JAX raises as an error of its own, with the text. Raises
    MissingPackageError where there is no JAX, or one too old.
    """
    require_package("jax", "0.5")
    from derivatrix.runtime.adapters.jax_calls import Calls

    interface = _interface(module)
    many = None
    if batched is not None:
        many = Calls(_interface(batched), None, native)
        require_same(interface, many.interface)
    return _traced(interface, Calls(interface, many, native))


def _interface(module: ModuleType) -> ModuleInterface:
    interface = ModuleInterface(module)
    if interface.target != "cpu":
        raise UnsupportedError(
            f"{interface.name}: the module is for {interface.target}; derivatrix.jax takes modules "
            "for the CPU: build it with --target cpu"
        )
    return interface


def _traced(interface: ModuleInterface, calls: Any) -> Callable[..., Any]:
    import jax

    names = [entry.name for entry in interface.inputs]
    signature = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    @jax.jit
    def traced(*arguments: Any) -> Any:
        arrays = _arrays(interface, arguments)
        sizes_of(interface, {n: each.shape for n, each in zip(names, arrays, strict=True)})
        inputs = [
            _structured(entry, each) for entry, each in zip(interface.inputs, arrays, strict=True)
        ]
        return calls("value", *inputs)[0]

    def called(*arguments: Any, **named: Any) -> Any:
        if len(arguments) == len(names) and not named:
            return traced(*arguments)
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            raise UnsupportedError(
                f"{interface.name}: {error}; it takes {', '.join(names)}"
            ) from error
        return traced(*bound.args)

    called.__name__ = called.__qualname__ = interface.name
    called.__doc__ = interface.module.__doc__
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def _arrays(interface: ModuleInterface, arguments: Sequence[Any]) -> list[Any]:
    """The arguments as arrays of one type of float. Plain numbers of Python have no type of their
    own."""
    import jax.numpy as jnp

    arrays = [jnp.asarray(each) for each in arguments]
    typed = [each for each in arrays if not each.weak_type]
    real = jnp.result_type(*typed) if typed else jnp.result_type(float)
    for entry, each in zip(interface.inputs, arrays, strict=True):
        plain = each.weak_type and each.ndim == 0 and each.dtype.kind != "c"
        if not plain and each.dtype not in ("float32", "float64"):
            raise UnsupportedError(
                f"{interface.name}: argument {entry.name} has dtype {each.dtype}; expected float32 "
                "or float64, as of jnp.asarray(x, float)"
            )
        if not all(isinstance(length, int) for length in each.shape):
            raise ShapeError(
                f"{interface.name}: argument {entry.name} has shape {each.shape}, which is not "
                "known while JAX traces; kernels need shapes of numbers"
            )
    return [each.astype(real) for each in arrays]


def _structured(entry: Input, array: Any) -> Any:
    """The nearest array of an input's structure, in the last two axes."""
    import jax.numpy as jnp

    if entry.structure in ("symmetric", "spd"):
        return (array + jnp.swapaxes(array, -1, -2)) / 2
    if entry.structure == "lower":
        return jnp.tril(array)
    if entry.structure == "upper":
        return jnp.triu(array)
    if entry.structure == "diagonal":
        return array * jnp.eye(array.shape[-1], dtype=array.dtype)
    return array
