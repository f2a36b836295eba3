"""Special points, which random draws never give: sizes of 1, zeros, ones, round numbers, equal
rows, small, large and negative entries, both sides of thresholds, where the inputs' structures and
domains allow them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from derivatrix.runtime import sampling, thresholds
from derivatrix.runtime.domains import Random, contains
from derivatrix.runtime.interface import Arrays, ModuleInterface, Point, Sizes
from derivatrix.runtime.reference import OutOfDomain

MAX_DRAWN_POINTS = 20
"""Most points drawn until the declaration has a value at one: enough to try each domain."""


class SpecialPoint(NamedTuple):
    """A special point, and the points at which only one of its special inputs is special."""

    point: Point
    single: tuple[Point, ...] = ()


def points(
    interface: ModuleInterface, fixed: Mapping[str, int], seed: int
) -> Iterator[SpecialPoint]:
    """Yield special points with small sizes, some of them `fixed`."""
    random = np.random.default_rng([seed, 7])
    for sizes in sampling.sizes_of_one(interface, fixed):
        point = random_point(interface, sizes, random)
        yield SpecialPoint(replace(point, label=f"random, {point.label}"))
        yield from _filled_points(interface, point, "zeros")
    for sizes in sampling.assignments(interface, fixed)[:1]:
        point = random_point(interface, sizes, random)
        for name in FILLS:
            yield from _filled_points(interface, point, name)
        for name in SINGLE_FILLS:
            yield from (at for at in _filled_points(interface, point, name) if not at.single)
        for name in JOINT_FILLS:
            yield from itertools.islice(_filled_points(interface, point, name), 1)


def beside_thresholds(
    interface: ModuleInterface, fixed: Mapping[str, int], seed: int
) -> Iterator[Point]:
    """Yield points with small sizes on both sides of the declaration's thresholds, too far from
    them for the steps of finite differences to cross."""
    random = np.random.default_rng([seed, 9])
    point = random_point(interface, sampling.assignments(interface, fixed)[0], random)
    yield from thresholds.points(interface, point, random)


def random_point(interface: ModuleInterface, sizes: Sizes, random: Random) -> Point:
    """Draw a point where the declaration has a value; any point if MAX_DRAWN_POINTS have none."""
    candidates = list(itertools.islice(sampling.draws(interface, sizes, random), MAX_DRAWN_POINTS))
    for point in candidates:
        with suppress(OutOfDomain):
            interface.declared_value(point)
            return point
    return candidates[0]


def _filled_points(interface: ModuleInterface, point: Point, name: str) -> Iterator[SpecialPoint]:
    """Yield points where the fill `name` replaces all inputs that it can, then each one alone."""
    fill = (FILLS | SINGLE_FILLS | JOINT_FILLS)[name]
    filled = {}
    for entry in interface.inputs:
        array = sampling.project(entry.structure, fill(point.values[entry.name]))
        if contains(entry.structure, array) and contains(entry.domain, array):
            filled[entry.name] = array

    def replaced(values: Arrays) -> Point:
        inputs = "" if len(interface.inputs) == 1 else f" in {', '.join(values)}"
        label = f"{name}{inputs}, {point.label}"
        return replace(point, label=label, values={**point.values, **values})

    single = tuple(replaced({key: array}) for key, array in filled.items())
    if len(single) > 1:
        yield SpecialPoint(replaced(filled), single)
    yield from map(SpecialPoint, single)


def _constant(number: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.full(array.shape, number)


def _one_entry(number: float) -> Callable[[np.ndarray], np.ndarray]:
    """Replace the first entry, which is on the diagonal of a matrix, by `number`."""

    def fill(array: np.ndarray) -> np.ndarray:
        filled = array.copy()
        if filled.size:
            filled[(0,) * array.ndim] = number
        return filled

    return fill


def _round(array: np.ndarray) -> np.ndarray:
    """Fill with numbers that programs may treat as special cases, keeping the signs."""
    return np.copysign(np.resize(ROUND_NUMBERS, array.shape), array)


def _equal_rows(array: np.ndarray) -> np.ndarray:
    """Repeat the first row of a matrix, or the first entry of a vector."""
    axis = max(array.ndim - 2, 0)
    if array.ndim == 0 or array.shape[axis] == 0:
        return array
    return np.broadcast_to(array.take([0], axis), array.shape).copy()


def _identity(array: np.ndarray) -> np.ndarray:
    """Fill square matrices with the identity, other arrays with ones."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        return np.ones(array.shape)
    return np.broadcast_to(np.eye(array.shape[-1]), array.shape).copy()


ROUND_NUMBERS = (2.0, 0.5, 1.0, 3.0, 10.0, 4.0, 0.25, 5.0, 100.0)
MODERATE_ENTRIES = (30, -30)
LARGE_ENTRIES = (2e3, -2e3, 3e6, -3e6)

FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeros": _constant(0.0),
    "ones": _constant(1.0),
    "identity": _identity,
    "equal rows": _equal_rows,
    "negative": lambda array: -np.abs(array),
    **{f"an entry {number:g}": _one_entry(number) for number in MODERATE_ENTRIES},
}
"""Replacements of all inputs together, and of each one alone, by name."""
JOINT_FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round numbers": _round,
    "twos": _constant(2.0),
    "twice the identity": lambda array: 2 * _identity(array),
    "small entries": lambda array: 1e-2 * array,
    "tiny entries": lambda array: 1e-9 * array,
    "zeros of both signs": lambda array: np.copysign(0.0, array),
}
"""Replacements of all inputs together. Each input alone would take more time."""
SINGLE_FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    f"an entry {number:g}": _one_entry(number) for number in LARGE_ENTRIES
}
"""Replacements of each input alone: beside products of several large numbers, no digit of the other
terms is left."""
