"""The functions of generated modules as one primitive of JAX.

A call has a kind, "value", "vjp", "jvp", "value_and_gradient" or "hvp", and the arguments of the
module's function of that name, as arrays of one float type."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache, cached_property, partial
from math import prod
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from derivatrix.runtime.adapters.contractions import tangential
from derivatrix.runtime.adapters.jax_rules import batch, is_zero, jvp, transpose
from derivatrix.runtime.adapters.jax_shards import (
    by_shards,
    require_devices,
    result_type,
    varying_alike,
)
from derivatrix.runtime.adapters.second import second_of
from derivatrix.runtime.adapters.sizes import batch_axes, sizes_of
from derivatrix.runtime.adapters.xla_handlers import UnknownVersionError, register
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

Arrays = Sequence[Any]


class Calls:
    """Calls of a module's functions by JAX. batched: those of the module with a batch axis.
    native: XLA calls kernels itself, not through Python."""

    def __init__(self, interface: ModuleInterface, batched: Calls | None, native: bool) -> None:
        self.interface, self.batched, self.native = interface, batched, native

    def __call__(self, kind: str, *arrays: Any) -> list[Any]:
        """Call the module's function of a kind, and return its arrays in the order of
        `all_results`. The primitive has one batch axis, into which all are merged."""
        self.interface.require(kind)
        if kind not in self.interface.module.FUNCTIONS:
            raise UnsupportedError(
                f"{self.interface.name}: the module has no function {kind}, which this derivative "
                "needs; build it again"
            )
        entries = self.interface.arguments(kind)
        shapes = {name: a.shape for name, a in zip(entries, arrays, strict=True)}
        axes = batch_axes(self.interface, entries, shapes)
        merged = [
            _merged(array, axes, len(entry.shape)) if entry.batched else array
            for entry, array in zip(entries.values(), arrays, strict=True)
        ]
        results = _call.bind(*varying_alike(merged), calls=self, kind=kind)
        return [
            result.reshape((*axes, *result.shape[1:])) if interface.has_batch(kind, key) else result
            for (interface, key), result in zip(
                self.interface.all_results(kind), results, strict=True
            )
        ]

    def along_directions(
        self, kind: str, inputs: Arrays, directions: Arrays, linear: Arrays
    ) -> list[Any]:
        """Call `vjp` or `jvp` of the module with second derivatives."""
        return self(kind, *inputs, *tangential(self.interface, inputs, directions), *linear)

    @cached_property
    def second(self) -> Calls:
        """Calls of the module with the second derivatives of an array-valued function: its `vjp`
        and `jvp` are those of `vjp` and `jvp` along directions, which come after the inputs."""
        return Calls(second_of(self.interface), self.batched and self.batched.second, self.native)

    def split(self, arrays: Arrays) -> tuple[list[Any], list[Any]]:
        """Split arguments into the inputs and the cotangent or tangents after them."""
        count = len(self.interface.inputs)
        return list(arrays[:count]), list(arrays[count:])

    def wrt_tangents(self, tangents: Arrays) -> list[Any]:
        """Select the tangents of the inputs in `wrt`, in its order. Raises UnsupportedError if
        another tangent is not zero."""
        inputs = self.interface.inputs
        tangent_of = {entry.name: t for entry, t in zip(inputs, tangents, strict=True)}
        for entry in inputs:
            if not entry.wrt and not is_zero(tangent_of[entry.name]):
                names = ", ".join(wrt.name for wrt in self.interface.wrt)
                raise UnsupportedError(
                    f"{self.interface.name}: a derivative by {entry.name} is asked for, but the "
                    f"module has those by {names} only; declare the function with {entry.name} in "
                    f"wrt, or pass jax.lax.stop_gradient({entry.name})"
                )
        return [ad.instantiate_zeros(tangent_of[entry.name]) for entry in self.interface.wrt]

    def shapes(self, kind: str, arrays: Arrays) -> list[tuple[int, ...]]:
        """Compute the shapes of the results."""
        entries = self.interface.inputs
        shapes = {entry.name: a.shape for entry, a in zip(entries, arrays, strict=False)}
        sizes = sizes_of(self.interface, shapes)
        return [
            interface.shape(kind, key, sizes) for interface, key in self.interface.all_results(kind)
        ]

    def have_batch(self, kind: str) -> tuple[list[bool], list[bool]]:
        """Return for each argument and each result of a function whether it has the batch axis."""
        results = self.interface.all_results(kind)
        return (
            [entry.batched for entry in self.interface.arguments(kind).values()],
            [interface.has_batch(kind, key) for interface, key in results],
        )


def _merged(array: Any, axes: tuple[int, ...], rank: int) -> Any:
    """Merge the batch axes of an array, broadcast to `axes`, into one; `rank`: of a sample."""
    core = array.shape[array.ndim - rank :]
    return jnp.broadcast_to(array, axes + core).reshape((prod(axes), *core))


_call = Primitive("derivatrix")
_call.multiple_results = True
require_devices(_call)


# Values


@_call.def_abstract_eval
def _types(*arrays: Any, calls: Calls, kind: str) -> list[Any]:
    of_arguments, of_results = calls.have_batch(kind)
    return [
        result_type(shape, arrays, of_arguments, has_batch)
        for shape, has_batch in zip(calls.shapes(kind, arrays), of_results, strict=True)
    ]


@_call.def_impl
def _at_once(*arrays: Any, calls: Calls, kind: str) -> Any:
    """Compute a call outside of `jit` by the lowering rules, also where JAX has disabled `jit`."""
    with jax.disable_jit(False):
        return _compiled(*arrays, calls=calls, kind=kind)


@partial(jax.jit, static_argnames=("calls", "kind"))
def _compiled(*arrays: Any, calls: Calls, kind: str) -> Any:
    return _call.bind(*arrays, calls=calls, kind=kind)


def _on_cpu(*arrays: Any, calls: Calls, kind: str) -> Any:
    """Lower a call to one of the kernel by XLA on each device for its samples, or of the function
    by Python if XLA cannot."""
    real = arrays[0].dtype

    def results(arrays: Arrays) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(shape, real) for shape in calls.shapes(kind, arrays)]

    module = calls.interface.module
    # a function that the user has replaced does not call the kernel
    calls_kernel = getattr(module, kind) is module.generated.data.get(kind)
    target = ""
    if calls.native and calls_kernel:
        ranks = [tuple(len(a.shape) for a in part) for part in (arrays, results(arrays))]
        target = _ffi_target(module, kind, real, *ranks)
    if not target:
        in_python = partial(_call_in_python, calls, kind)
        return jax.pure_callback(in_python, results(arrays), *arrays)

    def call(*arrays: Any) -> Any:
        return jax.ffi.ffi_call(target, results(arrays))(*arrays)

    return by_shards(call, *calls.have_batch(kind))(*arrays)


@cache
def _ffi_target(
    module: ModuleType,
    kind: str,
    real: np.dtype[Any],
    argument_ranks: tuple[int, ...],
    result_ranks: tuple[int, ...],
) -> str:
    """Register a kernel with XLA, and return its name; "" if the layout of this XLA's call frame is
    unknown. It is registered once, as XLA keeps it until the process ends."""
    try:
        return register(module, kind, real, argument_ranks, result_ranks)
    except UnknownVersionError as error:
        warnings.warn(
            f"{module.__name__}: {kind} is called through Python, which takes longer, as "
            f"derivatrix does not know this version of jaxlib: {error}",
            stacklevel=2,
        )
        return ""


def _call_in_python(calls: Calls, kind: str, *arrays: Any) -> list[np.ndarray]:
    arguments = list(map(np.asarray, arrays))
    result = getattr(calls.interface.module, kind)(*calls.interface.grouped(kind, arguments))
    return [np.asarray(array, arguments[0].dtype) for array in jax.tree.leaves(result)]


def _on_other_device(*arrays: Any, calls: Calls, kind: str) -> Any:
    raise UnsupportedError(
        f"{calls.interface.name}: the module is for the CPU, and is called on another device; put "
        'its arguments on the CPU, or set jax.default_device(jax.devices("cpu")[0])'
    )


mlir.register_lowering(_call, mlir.lower_fun(_on_other_device, multiple_results=True))
mlir.register_lowering(_call, mlir.lower_fun(_on_cpu, multiple_results=True), platform="cpu")
ad.primitive_jvps[_call] = jvp
ad.primitive_transposes[_call] = transpose
batching.primitive_batchers[_call] = batch
