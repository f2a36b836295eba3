"""The functions of generated modules as one primitive of JAX.

A call is of a kind: "value", "vjp", "jvp", "value_and_gradient" or "hvp", and takes what the
module's function of that name takes, as arrays of one type of float."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from derivatrix.runtime.adapters.jax_rules import is_zero, mapped, moved, transposed
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.adapters.xla_handlers import UnknownVersionError, register
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

Arrays = Sequence[Any]


class Calls:
    """A module as JAX calls it. batched: the same for the module that takes a batch of samples;
    native: whether XLA calls kernels itself, else they are called through Python."""

    def __init__(self, interface: ModuleInterface, batched: Calls | None, native: bool) -> None:
        self.interface, self.batched, self.native = interface, batched, native

    def __call__(self, kind: str, *arrays: Any) -> list[Any]:
        """What the module's function of this kind returns, in the order of `keys`."""
        self.interface.require(kind)
        if kind not in self.interface.module.FUNCTIONS:
            raise UnsupportedError(
                f"{self.name}: the module has no function {kind}, which this derivative needs; "
                "build it again"
            )
        return list(_call.bind(*arrays, calls=self, kind=kind))

    @property
    def name(self) -> str:
        return self.interface.name

    @property
    def scalar(self) -> bool:
        """Whether the output is a number, or one for each sample."""
        return not self.interface.output

    def split(self, arrays: Arrays) -> tuple[list[Any], list[Any]]:
        """The inputs, and what comes after them."""
        count = len(self.interface.inputs)
        return list(arrays[:count]), list(arrays[count:])

    def by_wrt(self, arrays: Arrays) -> list[Any]:
        """Those of the inputs' tangents that belong to `wrt`, in its order. Raises
        UnsupportedError where another is not zero."""
        given = {
            entry.name: each for entry, each in zip(self.interface.inputs, arrays, strict=True)
        }
        for entry in self.interface.inputs:
            if not entry.wrt and not is_zero(given[entry.name]):
                names = ", ".join(each.name for each in self.interface.wrt)
                raise UnsupportedError(
                    f"{self.name}: a derivative by {entry.name} is asked for, but the module has "
                    f"those by {names} only; declare the function with {entry.name} in wrt, or "
                    f"pass jax.lax.stop_gradient({entry.name})"
                )
        return [ad.instantiate_zeros(given[entry.name]) for entry in self.interface.wrt]

    def shapes(self, kind: str, arrays: Arrays) -> list[tuple[int, ...]]:
        """The shapes of the results."""
        inputs, _ = self.split(arrays)
        names = [entry.name for entry in self.interface.inputs]
        sizes = sizes_of(
            self.interface, {name: each.shape for name, each in zip(names, inputs, strict=True)}
        )
        return [self.interface.shape(kind, key, sizes) for key in self.interface.keys(kind)]


_call = Primitive("derivatrix")
_call.multiple_results = True


# Values


@_call.def_abstract_eval
def _shapes(*arrays: Any, calls: Calls, kind: str) -> list[ShapedArray]:
    return [ShapedArray(shape, arrays[0].dtype) for shape in calls.shapes(kind, arrays)]


@_call.def_impl
def _at_once(*arrays: Any, calls: Calls, kind: str) -> Any:
    with jax.disable_jit(False):
        return _compiled(*arrays, calls=calls, kind=kind)


@partial(jax.jit, static_argnames=("calls", "kind"))
def _compiled(*arrays: Any, calls: Calls, kind: str) -> Any:
    return _call.bind(*arrays, calls=calls, kind=kind)


def _on_cpu(*arrays: Any, calls: Calls, kind: str) -> Any:
    """The call of a kernel by XLA, or by Python where XLA cannot."""
    shapes, real = calls.shapes(kind, arrays), arrays[0].dtype
    results = [jax.ShapeDtypeStruct(shape, real) for shape in shapes]
    if calls.native and _is_generated(calls.interface.module, kind):
        given, filled = tuple(each.ndim for each in arrays), tuple(map(len, shapes))
        target = _target(calls.interface.module, kind, real, given, filled)
        if target:
            return jax.ffi.ffi_call(target, results)(*arrays)
    return jax.pure_callback(partial(_in_python, calls, kind), results, *arrays)


def _is_generated(module: ModuleType, kind: str) -> bool:
    """Whether a module's function calls its kernel, as it does where nobody has replaced it."""
    return "_kernel" in getattr(getattr(module, kind), "__globals__", ())


@cache
def _target(
    module: ModuleType,
    kind: str,
    real: np.dtype[Any],
    given: tuple[int, ...],
    filled: tuple[int, ...],
) -> str:
    """The name under which XLA calls a kernel; "" where its call frame is not known."""
    try:
        return register(module, kind, real, given, filled)
    except UnknownVersionError as error:
        warnings.warn(
            f"{module.__name__}: {kind} is called through Python, which takes longer, as "
            f"derivatrix does not know this version of jaxlib: {error}",
            stacklevel=2,
        )
        return ""


def _in_python(calls: Calls, kind: str, *arrays: Any) -> list[np.ndarray]:
    given = list(map(np.asarray, arrays))
    result = getattr(calls.interface.module, kind)(*given)
    return [np.asarray(each, given[0].dtype) for each in jax.tree.leaves(result)]


def _elsewhere(*arrays: Any, calls: Calls, kind: str) -> Any:
    raise UnsupportedError(
        f"{calls.name}: the module is for the CPU, and is called on another device; put its "
        'arguments on the CPU, or set jax.default_device(jax.devices("cpu")[0])'
    )


mlir.register_lowering(_call, mlir.lower_fun(_elsewhere, multiple_results=True))
mlir.register_lowering(_call, mlir.lower_fun(_on_cpu, multiple_results=True), platform="cpu")
ad.primitive_jvps[_call] = moved
ad.primitive_transposes[_call] = transposed
batching.primitive_batchers[_call] = mapped
