"""The rules of the primitive of `jax_calls`: JVP, transpose and batching.

The derivative of a scalar value is the gradient, and that of the gradient `hvp`; the derivative of
any other value is `jvp`. `jvp` and `vjp` are linear in the arguments after the inputs, and each
other's transpose; `hvp` is its own. Their derivatives by the inputs are `hvp`, for an array-valued
function `jvp` and `vjp` of its second module. These are linear in their directions, too, and
symmetric: f''[V, W] = f''[W, V].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from derivatrix.runtime.adapters.contractions import along, weighted
from derivatrix.runtime.adapters.stacks import equals_calls_by_sample
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.jax_calls import Calls

Arrays = Sequence[Any]


# Derivatives


def is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero)


def jvp(primals: Arrays, tangents: Arrays, *, calls: Calls, kind: str) -> Any:
    """Compute the results of a call and their tangents."""
    inputs, linear = calls.split(primals)
    input_tangents, linear_tangents = calls.split(tangents)
    if kind == "value" and not calls.interface.is_scalar:
        return calls(kind, *inputs), calls("jvp", *inputs, *calls.wrt_tangents(input_tangents))
    if kind in ("value", "value_and_gradient"):
        value, *gradient = calls("value_and_gradient", *inputs)
        directions = calls.wrt_tangents(input_tangents)
        tangent = along(calls.interface, gradient, directions)
        if kind == "value":
            return [value], [tangent]
        return [value, *gradient], [tangent, *calls("hvp", *inputs, *directions)]
    terms = []
    if not all(map(is_zero, linear_tangents)):
        terms.append(calls(kind, *inputs, *map(ad.instantiate_zeros, linear_tangents)))
    if not all(map(is_zero, input_tangents)):
        terms.append(_jvp_by_inputs(inputs, linear, input_tangents, calls, kind))
    sums = [sum(parts[1:], parts[0]) for parts in zip(*terms, strict=True)]
    return calls(kind, *inputs, *linear), sums


def _jvp_by_inputs(
    inputs: Arrays, linear: Arrays, tangents: Arrays, calls: Calls, kind: str
) -> list[Any]:
    """Differentiate the results of `jvp` or `vjp` along tangents of the inputs."""
    start = len(inputs) - len(calls.interface.directions)
    is_second = start < len(inputs)
    if kind == "hvp" or (is_second and not all(map(is_zero, tangents[:start]))):
        raise UnsupportedError(
            f"{calls.interface.name}: a third derivative is asked for; modules have first and "
            "second ones"
        )
    if is_second:
        tangents = list(map(ad.instantiate_zeros, tangents[start:]))
        return calls.along_directions(kind, inputs[:start], tangents, linear)
    tangents = calls.wrt_tangents(tangents)
    if not calls.interface.has_gradient:
        return calls.second.along_directions(kind, inputs, tangents, linear)
    products = calls("hvp", *inputs, *tangents)
    if kind == "jvp":
        return [along(calls.interface, products, linear)]
    return weighted(calls.interface, products, linear[0])


def transpose(cotangents: Arrays, *arrays: Any, calls: Calls, kind: str) -> list[Any]:
    """Compute the cotangents of the arguments in which a call is linear: those after the inputs, or
    the directions among the inputs."""
    inputs, linear = calls.split(arrays)
    cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    start = len(inputs)
    if any(map(ad.is_undefined_primal, inputs)):
        start -= len(calls.interface.directions)
        pair = (cotangents, linear) if kind == "vjp" else (linear, cotangents)
        results = calls.along_directions("vjp", inputs[:start], *pair)
    elif kind == "hvp":
        results = _transpose_hvp(inputs, cotangents, calls)
    else:
        results = calls({"jvp": "vjp", "vjp": "jvp"}[kind], *inputs, *cotangents)
    results = [
        result if ad.is_undefined_primal(argument) else None
        for argument, result in zip(arrays[start:], results, strict=False)
    ]
    return [None] * start + results + [None] * (len(arrays) - start - len(results))


def _transpose_hvp(inputs: Arrays, cotangents: Arrays, calls: Calls) -> list[Any]:
    """Sum the Hessians' products with cotangents over the samples: Hessians are symmetric. An input
    that samples share has one tangent, but a cotangent for each sample: then these are computed one
    after the other."""
    interface = calls.interface
    if not interface.batched or all(entry.batched for entry in interface.wrt):
        return calls("hvp", *inputs, *cotangents)

    def hvp_of_sample(sample: tuple[list[Any], list[Any]]) -> list[Any]:
        batches, directions = ([jnp.expand_dims(a, 0) for a in arrays] for arrays in sample)
        batched_inputs = iter(batches)
        point = [
            next(batched_inputs) if entry.batched else array
            for entry, array in zip(interface.inputs, inputs, strict=True)
        ]
        tangents = [
            direction if entry.batched else direction[0]
            for entry, direction in zip(interface.wrt, directions, strict=True)
        ]
        return [product[0] for product in calls("hvp", *point, *tangents)]

    entries = zip(interface.inputs, inputs, strict=True)
    samples = [array for entry, array in entries if entry.batched]
    products = jax.lax.map(hvp_of_sample, (samples, list(cotangents)))
    return [
        product if entry.batched else jnp.sum(product, axis=0)
        for entry, product in zip(interface.wrt, products, strict=True)
    ]


# Samples


def batch(arrays: Arrays, axes: Sequence[int | None], *, calls: Calls, kind: str) -> Any:
    """Compute a call for each sample, by one call of the module with batch axes if that is the
    same. axes: the axis of samples in each array, None if all samples share it."""
    is_stacked = [axis is not None for axis in axes]
    arrays = [
        array if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]
    stacks = [array for array, stacked in zip(arrays, is_stacked, strict=True) if stacked]
    batched = calls if calls.interface.batched else calls.batched
    if batched is not None and equals_calls_by_sample(batched.interface, kind, is_stacked):
        results = batched(kind, *arrays)
    else:

        def call_for_sample(sample: list[Any]) -> list[Any]:
            slices = iter(sample)
            pairs = zip(arrays, is_stacked, strict=True)
            return calls(kind, *(next(slices) if stacked else array for array, stacked in pairs))

        results = jax.lax.map(call_for_sample, stacks)
    return results, [0] * len(results)
