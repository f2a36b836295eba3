"""Samples on several devices: each device computes those that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import prod
from typing import Any

import jax
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.sharding import NamedSharding, PartitionSpec

HasBatch = Sequence[bool]
"""For each array, whether it has the batch axis, which is its first."""


def require_devices(primitive: Primitive) -> None:
    """Tell JAX to lower programs with a primitive for given devices, for which
    `custom_partitioning` asks."""
    prim_requires_devices_during_lowering.add(primitive)


def by_shards(
    call: Callable[..., Sequence[Any]], argument_has_batch: HasBatch, result_has_batch: HasBatch
) -> Callable[..., Any]:
    """Make a function that computes `call` on each device for its shard of the samples. Results
    without the batch axis are sums over the samples, and added up over the devices."""

    def shardings(mesh: Any, axes: Any, shapes: Sequence[Any], has_batch: HasBatch) -> list[Any]:
        specs = [
            PartitionSpec(*[axes] * batched, *[None] * (len(shape.shape) - batched))
            for shape, batched in zip(shapes, has_batch, strict=True)
        ]
        return [NamedSharding(mesh, spec) for spec in specs]

    def infer_results(mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        axes = _batch_axes(mesh, arguments, argument_has_batch)
        return shardings(mesh, axes, results, result_has_batch)

    def partition(mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
        axes = _batch_axes(mesh, arguments, argument_has_batch)

        def call_on_device(*arrays: Any) -> list[Any]:
            return [
                result if batched or axes is None else jax.lax.psum(result, axes)
                for result, batched in zip(call(*arrays), result_has_batch, strict=True)
            ]

        return (
            mesh,
            call_on_device,
            shardings(mesh, axes, results, result_has_batch),
            tuple(shardings(mesh, axes, arguments, argument_has_batch)),
        )

    def rule(mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
        """Write the rule for Shardy: "batch a, b c -> batch" divides the batch axis alone."""
        numbers = count()

        def mapping(array: Any, batched: bool) -> str:
            names = [f"axis{next(numbers)}" for _ in range(len(array.shape) - batched)]
            return " ".join(["batch"] * batched + names)

        sides = [
            ", ".join(map(mapping, arrays, has_batch))
            for arrays, has_batch in ((arguments, argument_has_batch), (results, result_has_batch))
        ]
        undivided = tuple(f"axis{number}" for number in range(next(numbers)))
        return " -> ".join(sides), {"need_replication_factors": undivided}

    if not any(argument_has_batch):
        return call
    sharded = custom_partitioning(call)
    sharded.def_partition(partition, infer_results, sharding_rule=rule)
    return sharded


def _batch_axes(mesh: Any, shapes: Sequence[Any], has_batch: HasBatch) -> Any:
    """Return the axes of the mesh over which the samples are divided into equal shards, None if
    there are none."""
    for shape, batched in zip(shapes, has_batch, strict=True):
        spec = getattr(shape.sharding, "spec", ()) if batched else ()
        if spec and spec[0] is not None:
            names = spec[0] if isinstance(spec[0], tuple) else (spec[0],)
            if shape.shape[0] % prod(mesh.shape[name] for name in names) == 0:
                return names
    return None


def result_type(
    shape: Sequence[int], arguments: Sequence[Any], argument_has_batch: HasBatch, has_batch: bool
) -> Any:
    """Make the type of a result from those of the arguments: samples are divided over a mesh in it
    if they are in theirs."""
    like = arguments[0]
    if not hasattr(like, "sharding"):  # JAX 0.5.0
        return ShapedArray(shape, like.dtype)
    axes = None
    for argument, batched in zip(arguments, argument_has_batch, strict=True):
        if has_batch and batched and axes is None:
            axes = argument.sharding.spec[0]
    spec = PartitionSpec(*[axes] * has_batch, *[None] * (len(shape) - has_batch))
    sharding = NamedSharding(like.sharding.mesh, spec)
    return like.update(shape=shape, weak_type=False, sharding=sharding)


def varying_alike(arrays: Sequence[Any]) -> Sequence[Any]:
    """Mark arrays within `shard_map` as different on devices where one of them is: cotangents of
    those that are not are then added up over the devices."""
    all_axes = frozenset[Any]().union(*(_varying_axes(array.aval) for array in arrays))
    missing = [tuple(all_axes - _varying_axes(array.aval)) for array in arrays]
    return [_varying(*pair) if pair[1] else pair[0] for pair in zip(arrays, missing, strict=True)]


def _varying_axes(kind: Any) -> frozenset[Any]:
    """Return the axes of a mesh over which arrays of a type vary within `shard_map`."""
    if hasattr(kind, "manual_axis_type"):  # from JAX 0.10
        return kind.manual_axis_type.varying
    return getattr(kind, "vma", frozenset())


def _varying(array: Any, axes: tuple[Any, ...]) -> Any:
    if hasattr(jax.lax, "pcast"):  # from JAX 0.9
        return jax.lax.pcast(array, axes, to="varying")
    return jax.lax.pvary(array, axes)
