"""Points that random ones never are: sizes of 1, zeros, ones, equal rows, large and negative
entries, as far as the inputs' structures and domains have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.domains import Random, contains
from derivatrix.runtime.interface import ModuleInterface, Point, Sizes
from derivatrix.runtime.reference import OutOfDomain

DRAWN = 20
"""The most points drawn until the declaration has a value at one: enough to try every place."""


def points(interface: ModuleInterface, given: Mapping[str, int], seed: int) -> Iterator[Point]:
    """Special points with small sizes; `given` fixes some. The same seed gives the same points."""
    random = np.random.default_rng([seed, 7])
    for sizes in sampling.ones(interface, given):
        point = usual(interface, sizes, random)
        yield replace(point, label=f"random, {point.label}")
        yield from _filled(interface, point, "zeros")
    for sizes in sampling.assignments(interface, given)[:1]:
        point = usual(interface, sizes, random)
        for name in FILLS:
            yield from _filled(interface, point, name)


def usual(interface: ModuleInterface, sizes: Sizes, random: Random) -> Point:
    """The first point drawn where the declaration has a value; the first of all if there is none
    soon."""
    found = list(itertools.islice(sampling.draws(interface, sizes, random), DRAWN))
    for point in found:
        with suppress(OutOfDomain):
            interface.declared_value(point)
            return point
    return found[0]


def _filled(interface: ModuleInterface, point: Point, name: str) -> Iterator[Point]:
    """Points where one input is special, and one where all are that can be."""
    special = {}
    for entry in interface.inputs:
        array = sampling.project(entry.structure, FILLS[name](point.values[entry.name]))
        if contains(entry.structure, array) and contains(entry.domain, array):
            special[entry.name] = array
    choices = [{key: array} for key, array in special.items()]
    for values in (choices if len(choices) == 1 else [special, *choices]) if special else []:
        where = "" if len(interface.inputs) == 1 else f" in {', '.join(values)}"
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
