"""Sizes, points and directions for verification, drawn inside the inputs' structures and domains.

Everything is a function of the generator that is passed, so a seed gives the same points always.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from derivatrix.runtime.domains import ANYWHERE, DOMAINS, Random, Shape, draw
from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.interface import Input, ModuleInterface, Point, Sizes, shape_at

LARGE = (16, 11, 8, 6)
"""Least sizes to try for the point with larger sizes, where other code may run than at small."""
LARGE_ENTRIES = 500_000
"""The most entries that a derivative may have there."""


# Sizes


def assignments(interface: ModuleInterface, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Small sizes for the names in the module's shapes, those first that show most.

    The sizes of one assignment are distinct, and so are the axes of different texts if that can
    be had, so that a wrong axis has a wrong size. Rows are more than columns first, then fewer.
    `given` fixes some sizes. Raises ShapeError when it names others or no size fits.
    """
    names = interface.size_names
    for name, size in given.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise ShapeError(f"{interface.name}: no size is called {name}; its sizes: {known}")
        if not isinstance(size, int) or size < 1:
            raise ShapeError(f"{interface.name}: size {name} = {size!r} is no positive integer")
    free = [name for name in names if name not in given]
    found: list[dict[str, int]] = []
    orders = (free[::-1], free, free[1:] + free[:1])
    for base, order in itertools.product((3, 2, 5), orders):
        sizes = _distinct(interface, order, base, given)
        if sizes not in found and _fits(interface, sizes):
            found.append(sizes)
    if not found:
        raise ShapeError(f"{interface.name}: no sizes make every axis positive; give `sizes`")
    return sorted(found, key=lambda sizes: _collisions(interface, sizes))


def large(interface: ModuleInterface) -> dict[str, int] | None:
    """Sizes above the small ones, if there is a size to choose and the derivatives stay small."""
    names = list(interface.size_names)
    for base in LARGE if names else ():
        sizes = _distinct(interface, names[::-1], base)
        if _fits(interface, sizes) and _entries(interface, sizes) <= LARGE_ENTRIES:
            return sizes
    return None


def enlarged(interface: ModuleInterface, size: int) -> list[dict[str, int]]:
    """Assignments with every size at least `size`, and with one of them, the others small."""
    names = list(interface.size_names)
    found = [_distinct(interface, names[::-1], size)]
    for name in names if len(names) > 1 else ():
        alone = {name: max(size, _least(interface).get(name, 1))}
        found.append(_distinct(interface, [n for n in names if n != name], 3, alone))
    return [sizes for sizes in found if _fits(interface, sizes)]


def ones(interface: ModuleInterface, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Assignments with every size 1 that is not given, and with one of them, as far as they fit."""
    names = list(interface.size_names)
    free = [name for name in names if name not in given]
    small = assignments(interface, given)[0]
    found: list[dict[str, int]] = []
    for chosen in (free, *([name] for name in free)):
        sizes = {**small, **dict.fromkeys(chosen, 1)}
        if chosen and sizes not in found and _fits(interface, sizes):
            found.append(sizes)
    return found


def _least(interface: ModuleInterface) -> Mapping[str, int]:
    """The least sizes among the module's conditions on sizes, such as "n >= 2"."""
    found = [re.fullmatch(r"(\w+) >= (\d+)", text) for text in interface.requirements]
    return {match[1]: int(match[2]) for match in found if match}


def _distinct(
    interface: ModuleInterface, names: list[str], base: int, given: Sizes | None = None
) -> dict[str, int]:
    """The given sizes, and growing ones for the other names in their order, each at least `base`
    and its own least size."""
    least, found = _least(interface), dict[str, int]()
    for name in names:
        start = max(base, least.get(name, 1))
        found[name] = next(size for size in itertools.count(start) if size not in found.values())
    return {name: {**(given or {}), **found}[name] for name in interface.size_names}


def _shapes(interface: ModuleInterface) -> list[tuple[str, ...]]:
    return [entry.shape for entry in interface.inputs] + [interface.output]


def _fits(interface: ModuleInterface, sizes: Sizes) -> bool:
    positive = all(size > 0 for shape in _shapes(interface) for size in shape_at(shape, sizes))
    return positive and meets(sizes, interface.requirements)


def meets(sizes: Mapping[str, int], requirements: Sequence[str]) -> bool:
    """Whether sizes fulfil conditions such as "n >= 2", which the compiler wrote."""
    return all(eval(text, {}, dict(sizes)) for text in requirements)


def _collisions(interface: ModuleInterface, sizes: Sizes) -> int:
    """How many texts of axes stand for a number that another text stands for too."""
    texts = {text for shape in _shapes(interface) for text in shape} | set(sizes)
    return len(texts) - len({shape_at((text,), sizes) for text in texts})


def _entries(interface: ModuleInterface, sizes: Sizes) -> int:
    """The entries of the largest derivative."""
    pairs = [(kind, key) for kind in interface.kinds for key in interface.keys(kind)]
    return max(math.prod(interface.shape(kind, key, sizes)) for kind, key in pairs)


# Points


SPREADS = (1.0, 1.0, 0.1, 0.01, 1.0)
"""How far from the middle of their domains the first points are, in parts of the usual distance."""


def draws(interface: ModuleInterface, sizes: Sizes, random: Random) -> Iterator[Point]:
    """Points at these sizes, without end: as declared first; then nearer and nearer to the middle
    of the declared domains, where functions do not saturate; then in the other domains where
    functions are defined, the inputs alike and mixed."""
    choices = {entry.name: _choices(entry) for entry in interface.inputs}
    first = {name: domains[0] for name, domains in choices.items()}
    for spread in SPREADS:
        yield _point(interface, sizes, first, random, spread)
    for domain in ANYWHERE[1:]:
        domains = {name: domain if domain in choices[name] else first[name] for name in first}
        for _ in range(2 if domains != first else 0):
            yield _point(interface, sizes, domains, random)
    while True:
        mixed = {name: str(random.choice(domains)) for name, domains in choices.items()}
        yield _point(interface, sizes, mixed, random, float(random.choice(SPREADS)))


def _choices(entry: Input) -> tuple[str, ...]:
    """The domains where an input may be drawn, the declared one first."""
    declared = entry.domain
    if entry.structure not in ("general", "symmetric"):
        declared = entry.structure
    return (declared, *DOMAINS[declared].narrower) if declared in DOMAINS else ANYWHERE


def _point(
    interface: ModuleInterface,
    sizes: Sizes,
    domains: Mapping[str, str],
    random: Random,
    spread: float = 1.0,
) -> Point:
    values = {}
    for entry in interface.inputs:
        array = draw(domains[entry.name], entry.full(sizes), random, spread)
        values[entry.name] = project(entry.structure, array)
    tangents = {entry.name: weights(entry.full(sizes), random) for entry in interface.wrt}
    cotangent = weights(interface.shape("value", "", sizes), random)
    moved = [
        f"{entry.name} {domains[entry.name]}"
        for entry in interface.inputs
        if domains[entry.name] != _choices(entry)[0]
    ]
    near = [f"spread {spread:g}"] if spread != 1 else []
    label = ", ".join([*(f"{name}={size}" for name, size in sizes.items()), *moved, *near])
    return Point(dict(sizes), label or "the declared sizes", values, tangents, cotangent)


def weights(shape: Shape, random: Random) -> np.ndarray:
    """Numbers of either sign with sizes in [0.5, 1.5]: none is small enough to hide an error."""
    return np.asarray(random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape))


def nudged(interface: ModuleInterface, point: Point, part: float, seed: int = 0) -> Point:
    """The point with every entry but zeros moved by about this part of the largest of its array."""
    random = np.random.default_rng(seed)
    values = {}
    for entry in interface.inputs:
        array = point.values[entry.name]
        largest = np.where(array == 0, 0.0, np.abs(array).max(initial=0.0))
        step = part * largest * weights(array.shape, random)
        values[entry.name] = np.asarray(array + project(entry.structure, step))
    return replace(point, values=values)


# Structures


def project(structure: str, array: np.ndarray) -> np.ndarray:
    """The nearest array of a structure that is a linear space, in the last two axes; the array
    itself for other structures."""
    if structure in ("symmetric", "spd"):
        return (array + np.swapaxes(array, -1, -2)) / 2
    if structure == "lower":
        return np.tril(array)
    if structure == "upper":
        return np.triu(array)
    if structure == "diagonal":
        return array * np.eye(array.shape[-1])
    return array


def tangential(structure: str, value: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The nearest directions, in the last two axes, along which a value keeps its structure: at an
    orthogonal matrix Q to first order, (D - Q D' Q) / 2."""
    if structure != "orthogonal":
        return project(structure, directions)
    return np.asarray((directions - value @ np.swapaxes(directions, -1, -2) @ value) / 2)


PROJECTED = ("symmetric", "spd", "lower", "upper", "diagonal", "orthogonal")
"""The structures that derivatives are projected on."""


def directions(structure: str, shape: Shape, most: int, random: Random) -> np.ndarray:
    """Directions that keep the structure, stacked: a basis if it has at most `most` members,
    otherwise some of its members and a few dense directions of length 1, all at random. With
    `most` 0 there is one direction, a dense one."""
    if not most:
        return _dense(structure, shape, random)[None]
    free = np.argwhere(_freedom(structure, shape))
    dense = [_dense(structure, shape, random) for _ in range(4 if len(free) > most else 0)]
    if dense:
        free = random.permutation(free)[: min(most, 32)]
    return np.stack([*(_basis(structure, shape, tuple(index)) for index in free), *dense])


def _freedom(structure: str, shape: Shape) -> np.ndarray:
    """Which entries move freely; of a symmetric array the lower triangle."""
    pattern = "lower" if structure in ("symmetric", "spd") else structure
    return np.asarray(project(pattern, np.ones(shape)) != 0)


def _basis(structure: str, shape: Shape, index: tuple[int, ...]) -> np.ndarray:
    direction = np.zeros(shape)
    direction[index] = 1.0
    if structure in ("symmetric", "spd"):
        direction[(*index[:-2], index[-1], index[-2])] = 1.0
    return direction


def _dense(structure: str, shape: Shape, random: Random) -> np.ndarray:
    direction = project(structure, weights(shape, random))
    return np.asarray(direction / np.linalg.norm(direction))
