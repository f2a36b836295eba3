"""The rules of the primitive of `jax_calls`: derivatives, and calls for many samples.

By the inputs, the value of a scalar function moves by its gradient, and that by `hvp`; the value of
another, and of one for a batch, moves by `jvp`. `jvp` and `vjp` are linear in what they take after
the inputs, each the other's transpose, as `hvp` is its own; by the inputs they move by `hvp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from derivatrix.runtime.adapters.contractions import along, weighted
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.jax_calls import Calls

Arrays = Sequence[Any]


# Derivatives


def is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero)


def moved(primals: Arrays, tangents: Arrays, *, calls: Calls, kind: str) -> Any:
    """The results of a call and their tangents."""
    inputs, more = calls.split(primals)
    by_inputs, by_more = calls.split(tangents)
    if kind == "value" and not (calls.scalar and not calls.interface.batched):
        tangent = calls("jvp", *inputs, *calls.by_wrt(by_inputs))
        return calls(kind, *inputs), tangent
    if kind in ("value", "value_and_gradient"):
        value, *gradient = calls("value_and_gradient", *inputs)
        directions = calls.by_wrt(by_inputs)
        first = [along(calls.interface, gradient, directions)]
        if kind == "value":
            return [value], first
        return [value, *gradient], [*first, *calls("hvp", *inputs, *directions)]
    results = calls(kind, *inputs, *more)
    tangents = []
    if not all(map(is_zero, by_more)):
        tangents.append(calls(kind, *inputs, *map(ad.instantiate_zeros, by_more)))
    if not all(map(is_zero, by_inputs)):
        tangents.append(_second(inputs, more, by_inputs, calls, kind))
    return results, [sum(each[1:], each[0]) for each in zip(*tangents, strict=True)]


def _second(inputs: Arrays, more: Arrays, by_inputs: Arrays, calls: Calls, kind: str) -> list[Any]:
    """How the results of `jvp` or `vjp` move with the inputs."""
    if kind == "hvp" or not calls.scalar:
        order = "third" if calls.scalar else "second"
        raise UnsupportedError(
            f"{calls.name}: its {order} derivative is asked for; a module has second derivatives "
            "of scalar functions only, and no third ones"
        )
    curved = calls("hvp", *inputs, *calls.by_wrt(by_inputs))
    if kind == "jvp":
        return [along(calls.interface, curved, more)]
    return weighted(calls.interface, curved, more[0])


def transposed(cotangents: Arrays, *arrays: Any, calls: Calls, kind: str) -> list[Any]:
    """The cotangents of what a call takes after the inputs, in which it is linear."""
    inputs, more = calls.split(arrays)
    given = [ad.instantiate_zeros(each) for each in cotangents]
    other = {"jvp": "vjp", "vjp": "jvp"}.get(kind)
    found = calls(other, *inputs, *given) if other else _hvp_transposed(inputs, given, calls)
    wanted = [
        each if ad.is_undefined_primal(place) else None
        for place, each in zip(more, found, strict=True)
    ]
    return [None] * len(inputs) + wanted


def _hvp_transposed(inputs: Arrays, given: Arrays, calls: Calls) -> list[Any]:
    """The sums over samples of what each of them makes of cotangents: a Hessian is symmetric. Where
    samples share an input, which has one tangent for all of them but a cotangent for each, they are
    done one after the other."""
    interface = calls.interface
    if not interface.batched or all(entry.batched for entry in interface.wrt):
        return calls("hvp", *inputs, *given)

    def of_one(sample: tuple[list[Any], list[Any]]) -> list[Any]:
        samples, cotangents = ([jnp.expand_dims(each, 0) for each in some] for some in sample)
        own = iter(samples)
        point = [
            next(own) if entry.batched else shared
            for entry, shared in zip(interface.inputs, inputs, strict=True)
        ]
        tangents = [
            each if entry.batched else each[0]
            for entry, each in zip(interface.wrt, cotangents, strict=True)
        ]
        return [each[0] for each in calls("hvp", *point, *tangents)]

    of_samples = [
        each for entry, each in zip(interface.inputs, inputs, strict=True) if entry.batched
    ]
    found = jax.lax.map(of_one, (of_samples, list(given)))
    return [
        each if entry.batched else jnp.sum(each, axis=0)
        for entry, each in zip(interface.wrt, found, strict=True)
    ]


# Samples


def mapped(arrays: Arrays, axes: Sequence[int | None], *, calls: Calls, kind: str) -> Any:
    """A call for each sample: of the module that takes a batch, where it does the same, else of
    this one, sample by sample. axes: of the samples, None for what all of them share."""
    first = [
        each if axis is None else jnp.moveaxis(each, axis, 0)
        for each, axis in zip(arrays, axes, strict=True)
    ]
    isin = [axis is not None for axis in axes]
    many = calls.batched
    if many is not None and _does_the_same(many, kind, isin):
        results = many(kind, *_for_batch(many, kind, first, isin))
    else:
        results = _one_by_one(calls, kind, first, isin)
    return results, [0] * len(results)


def _one_by_one(calls: Calls, kind: str, arrays: Arrays, isin: Sequence[bool]) -> Any:
    def of_one(sample: list[Any]) -> list[Any]:
        own = iter(sample)
        return calls(
            kind,
            *(next(own) if mapped else each for each, mapped in zip(arrays, isin, strict=True)),
        )

    samples = [each for each, mapped in zip(arrays, isin, strict=True) if mapped]
    return jax.lax.map(of_one, samples)


def _does_the_same(many: Calls, kind: str, isin: Sequence[bool]) -> bool:
    """Whether a function that takes a batch does for these samples what calls for each of them do.
    Its `vjp` adds up what they make of inputs that they share."""
    sums = kind == "vjp" and not all(entry.batched for entry in many.interface.wrt)
    return not sums and all(
        entry.batched or not mapped
        for entry, mapped in zip(many.interface.arguments(kind).values(), isin, strict=True)
    )


def _for_batch(many: Calls, kind: str, arrays: Arrays, isin: Sequence[bool]) -> list[Any]:
    """The arguments of a function that takes a batch: what samples share is repeated where it does
    not expect that."""
    length = next(each.shape[0] for each, mapped in zip(arrays, isin, strict=True) if mapped)
    return [
        jnp.broadcast_to(each, (length, *each.shape)) if entry.batched and not mapped else each
        for each, entry, mapped in zip(
            arrays, many.interface.arguments(kind).values(), isin, strict=True
        )
    ]
