"""Points that random ones never are: sizes of 1, zeros, ones, equal rows, large and negative
entries, as far as the inputs' structures and domains have them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.reference import OutOfDomain, Text
from derivatrix.runtime.surface import Input, Point, Sizes, Surface

Random = np.random.Generator


DRAWN = 20
"""The most points drawn until the declaration has a value at one: enough to try every place."""


def points(
    surface: Surface, declared: Text, given: Mapping[str, int], seed: int
) -> Iterator[Point]:
    """Special points with small sizes; `given` fixes some. The same seed gives the same points."""
    random = np.random.default_rng([seed, 7])
    for sizes in sampling.ones(surface, given):
        point = usual(surface, declared, sizes, random)
        yield replace(point, label=f"random, {point.label}")
        yield from _filled(surface, point, "zeros")
    for sizes in sampling.assignments(surface, given)[:1]:
        point = usual(surface, declared, sizes, random)
        for name in FILLS:
            yield from _filled(surface, point, name)


def usual(surface: Surface, declared: Text, sizes: Sizes, random: Random) -> Point:
    """The first point drawn where the declaration has a value; the first of all if there is none
    soon."""
    found = list(itertools.islice(sampling.draws(surface, sizes, random), DRAWN))
    shape = surface.shape("value", "", sizes)
    for point in found:
        with suppress(OutOfDomain):
            declared({**sizes, **point.values}, shape)
            return point
    return found[0]


def _filled(surface: Surface, point: Point, name: str) -> Iterator[Point]:
    """Points where one input is special, and one where all are that can be."""
    special = {}
    for entry in surface.inputs:
        array = sampling.project(entry.structure, FILLS[name](point.values[entry.name]))
        if _inside(entry, array):
            special[entry.name] = array
    choices = [{key: array} for key, array in special.items()]
    for values in (choices if len(choices) == 1 else [special, *choices]) if special else []:
        where = "" if len(surface.inputs) == 1 else f" in {', '.join(values)}"
        label = f"{name}{where}, {point.label}"
        yield replace(point, label=label, values={**point.values, **values})


def _constant(number: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.full(array.shape, number)


def _one(number: float) -> Callable[[np.ndarray], np.ndarray]:
    """One entry of that size, in the diagonal of matrices."""

    def fill(array: np.ndarray) -> np.ndarray:
        filled = array.copy()
        if filled.size:
            filled[(0,) * array.ndim] = number
        return filled

    return fill


def _equal(array: np.ndarray) -> np.ndarray:
    """Equal rows, or equal entries of a vector."""
    axis = max(array.ndim - 2, 0)
    if array.ndim == 0 or array.shape[axis] == 0:
        return array
    return np.broadcast_to(array.take([0], axis), array.shape).copy()


def _unit(array: np.ndarray) -> np.ndarray:
    """The identity, or ones."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        return np.ones(array.shape)
    return np.broadcast_to(np.eye(array.shape[-1]), array.shape).copy()


FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeros": _constant(0.0),
    "ones": _constant(1.0),
    "identity": _unit,
    "equal rows": _equal,
    "negative": lambda array: -np.abs(array),
    **{f"an entry {number:g}": _one(number) for number in (2e3, -2e3, 1e6, -1e6, 30, -30)},
}


def _inside(entry: Input, array: np.ndarray) -> bool:
    return all(INSIDE[name](array) for name in (entry.structure, entry.domain) if name in INSIDE)


def _spd(array: np.ndarray) -> bool:
    return bool((np.linalg.eigvalsh(array) > 1e-6 * np.abs(array).max(initial=0.0)).all())


def _orthogonal(array: np.ndarray) -> bool:
    product = array @ np.swapaxes(array, -1, -2)
    return bool(np.allclose(product, np.eye(array.shape[-1])))


def _invertible(array: np.ndarray) -> bool:
    return bool((np.linalg.cond(array) < 1e6).all())


def _nonzero_diagonal(array: np.ndarray) -> bool:
    return bool((np.diagonal(array, axis1=-2, axis2=-1) != 0).all())


def _simplex(array: np.ndarray) -> bool:
    return bool((array >= 0).all() and math.isclose(array.sum(), array[..., 0].size))


INSIDE: dict[str, Callable[[np.ndarray], bool]] = {
    "positive": lambda array: bool((array > 0).all()),
    "nonneg": lambda array: bool((array >= 0).all()),
    "small": lambda array: bool((np.abs(array) < 0.5).all()),
    "fraction": lambda array: bool(((array > 0) & (array < 1)).all()),
    "above one": lambda array: bool((array > 1).all()),
    "spd": _spd,
    "dominant": _invertible,
    "lower": _nonzero_diagonal,
    "upper": _nonzero_diagonal,
    "diagonal": _nonzero_diagonal,
    "orthogonal": _orthogonal,
    "invertible": _invertible,
    "real spectrum": lambda array: False,
    "simplex": _simplex,
}
"""Whether an array lies where an input is declared to be."""
