"""Points that random ones never are: sizes of 1, zeros, ones, round numbers, equal rows, small,
large and negative entries, both sides of thresholds, as far as the inputs' structures and domains
have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from derivatrix.runtime import sampling, thresholds
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
        for name in JOINT_FILLS:
            yield from itertools.islice(_filled(interface, point, name), 1)


def beside_thresholds(
    interface: ModuleInterface, given: Mapping[str, int], seed: int
) -> Iterator[Point]:
    """Points with small sizes on both sides of what the declaration compares with something, too
    far from it for small differences to come to the other side."""
    random = np.random.default_rng([seed, 9])
    point = usual(interface, sampling.assignments(interface, given)[0], random)
    yield from thresholds.points(interface, point, random)


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
        fill = FILLS.get(name) or JOINT_FILLS[name]
        array = sampling.project(entry.structure, fill(point.values[entry.name]))
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


def _round(array: np.ndarray) -> np.ndarray:
    """Numbers that a program could treat apart, with the signs of the entries."""
    return np.copysign(np.resize(ROUND_NUMBERS, array.shape), array)


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


ROUND_NUMBERS = (2.0, 0.5, 1.0, 3.0, 10.0, 4.0, 0.25, 5.0, 100.0)
LARGE_ENTRIES = (2e3, -2e3, 3e6, -3e6, 30, -30)

FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeros": _constant(0.0),
    "ones": _constant(1.0),
    "identity": _unit,
    "equal rows": _equal,
    "negative": lambda array: -np.abs(array),
    **{f"an entry {number:g}": _one(number) for number in LARGE_ENTRIES},
}
"""By name how one input, and all of them together, become special."""
JOINT_FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round numbers": _round,
    "twos": _constant(2.0),
    "twice the identity": lambda array: 2 * _unit(array),
    "small entries": lambda array: 1e-2 * array,
    "tiny entries": lambda array: 1e-9 * array,
}
"""How all inputs together become special: a point for each takes less time than one for each
input."""
