"""A generated module as a function of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from derivatrix.runtime.adapters.arguments import in_order, signature_of
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.adapters.stacks import require_same
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface, interface_of


def _interface(module: ModuleType) -> ModuleInterface:
    interface = interface_of(module)
    if interface.target != "cpu":
        raise UnsupportedError(
            f"{interface.name}: the module is for {interface.target}; derivatrix.jax takes modules "
            "for the CPU: build it with --target cpu"
        )
    return interface


class JaxFunction:
    """A module's value as a function of JAX, made by `derivatrix.jax.function`.

    Its pickle holds the modules."""

    def __init__(self, module: ModuleType, batched: ModuleType | None, native: bool) -> None:
        import jax

        from derivatrix.runtime.adapters.jax_calls import Calls

        self._arguments = module, batched, native
        self._interface = interface = _interface(module)
        batched_calls = None
        if batched is not None:
            batched_calls = Calls(_interface(batched), None, native)
            require_same(interface, batched_calls.interface)
        self._calls = Calls(interface, batched_calls, native)
        self._names = [entry.name for entry in interface.inputs]
        self._traced = jax.jit(self._value)
        self.__name__ = self.__qualname__ = interface.name
        self.__doc__ = module.__doc__
        self.__signature__ = signature_of(self._names)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != len(self._names):
            arguments = in_order(self.__name__, self._names, arguments, named)
        return self._traced(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxFunction, self._arguments

    def _value(self, *arguments: Any) -> Any:
        arrays = _arrays(self._interface, arguments)
        shapes = [array.shape for array in arrays]
        sizes_of(self._interface, dict(zip(self._names, shapes, strict=True)))
        results = self._calls("value", *arrays)
        return self._interface.packed_value(results)


def _arrays(interface: ModuleInterface, arguments: Sequence[Any]) -> list[Any]:
    """Convert arguments to arrays of one float type, which Python's numbers and integers do not
    influence."""
    import jax.numpy as jnp

    arrays = [jnp.asarray(argument) for argument in arguments]
    is_untyped = [
        array.ndim == 0
        and (array.dtype.kind in "iub" or (array.weak_type and array.dtype.kind != "c"))
        for array in arrays
    ]
    typed = [array for array, untyped in zip(arrays, is_untyped, strict=True) if not untyped]
    real = jnp.result_type(*typed) if typed else jnp.result_type(float)
    for entry, array, untyped in zip(interface.inputs, arrays, is_untyped, strict=True):
        if not untyped and array.dtype not in ("float32", "float64"):
            raise UnsupportedError(
                f"{interface.name}: argument {entry.name} has dtype {array.dtype}; expected "
                "float32 or float64, as of jnp.asarray(x, float)"
            )
        if not all(isinstance(length, int) for length in array.shape):
            raise ShapeError(
                f"{interface.name}: argument {entry.name} has shape {array.shape}, which is not "
                "known while JAX traces; kernels need shapes of numbers"
            )
    return [array.astype(real) for array in arrays]
