"""Sizes, points and directions for verification, drawn inside the inputs' structures and domains.

Everything is a function of the generator that is passed, so a seed gives the same points always.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.surface import Input, Point, Sizes, Surface, shape_at

Shape = tuple[int, ...]
Random = np.random.Generator

LARGE = (16, 11, 8, 6)
"""Least sizes to try for the point with larger sizes, where other code may run than at small."""
LARGE_ENTRIES = 500_000
"""The most entries that a derivative may have there."""


# Sizes


def assignments(surface: Surface, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Small sizes for the names in the module's shapes, the most telling first.

    The sizes of one assignment are distinct, and so are the axes of different texts if that can
    be had, so that a wrong axis has a wrong size. Rows are more than columns first, then fewer.
    `given` fixes some sizes. Raises ShapeError when it names others or no size fits.
    """
    names = surface.size_names
    for name, size in given.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise ShapeError(f"{surface.name}: no size is called {name}; its sizes: {known}")
        if not isinstance(size, int) or size < 1:
            raise ShapeError(f"{surface.name}: size {name} = {size!r} is no positive integer")
    free = [name for name in names if name not in given]
    found: list[dict[str, int]] = []
    for base, order in itertools.product((3, 2, 5), (_descending, _ascending, _rotated)):
        sizes = {**given, **_distinct(order(free), base, _least(surface.module))}
        sizes = {name: sizes[name] for name in names}
        if sizes not in found and _fits(surface, sizes):
            found.append(sizes)
    if not found:
        raise ShapeError(f"{surface.name}: no sizes make every axis positive; give `sizes`")
    return sorted(found, key=lambda sizes: _collisions(surface, sizes))


def large(surface: Surface) -> dict[str, int] | None:
    """Sizes above the small ones, if there is a size to choose and the derivatives stay small."""
    names = list(surface.size_names)
    for base in LARGE if names else ():
        sizes = _distinct(_descending(names), base, _least(surface.module))
        sizes = {name: sizes[name] for name in names}
        if _fits(surface, sizes) and _entries(surface, sizes) <= LARGE_ENTRIES:
            return sizes
    return None


def enlarged(surface: Surface, size: int) -> list[dict[str, int]]:
    """Assignments with every size at least `size`, and with one of them, the others small."""
    names = list(surface.size_names)
    least = _least(surface.module)
    orders = [_distinct(_descending(names), size, least)]
    if len(names) > 1:
        for name in names:
            rest = [other for other in names if other != name]
            orders.append({name: max(size, least.get(name, 1)), **_distinct(rest, 3, least)})
    found = [{name: sizes[name] for name in names} for sizes in orders]
    return [sizes for sizes in found if _fits(surface, sizes)]


def ones(surface: Surface, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Assignments with every size 1 that is not given, and with one of them, as far as they fit."""
    names = list(surface.size_names)
    free = [name for name in names if name not in given]
    small = assignments(surface, given)[0]
    found: list[dict[str, int]] = []
    for chosen in (free, *([name] for name in free)):
        sizes = {**small, **dict.fromkeys(chosen, 1)}
        if chosen and sizes not in found and _fits(surface, sizes):
            found.append(sizes)
    return found


def _least(module: ModuleType) -> Mapping[str, int]:
    """The least sizes among the module's conditions on sizes, such as "n >= 2"."""
    found = [re.fullmatch(r"(\w+) >= (\d+)", text) for text in _requirements(module)]
    return {match[1]: int(match[2]) for match in found if match}


def _requirements(module: ModuleType) -> Sequence[str]:
    return getattr(module, "REQUIREMENTS", ())


def _descending(names: list[str]) -> list[str]:
    return names[::-1]


def _ascending(names: list[str]) -> list[str]:
    return names


def _rotated(names: list[str]) -> list[str]:
    return names[1:] + names[:1]


def _distinct(names: list[str], base: int, least: Mapping[str, int]) -> dict[str, int]:
    """Growing sizes in the order of the names, each at least `base` and its own least size."""
    sizes: dict[str, int] = {}
    for name in names:
        start = max(base, least.get(name, 1))
        sizes[name] = next(size for size in itertools.count(start) if size not in sizes.values())
    return sizes


def _shapes(surface: Surface) -> list[tuple[str, ...]]:
    return [entry.shape for entry in surface.inputs] + [surface.output]


def _fits(surface: Surface, sizes: Sizes) -> bool:
    positive = all(size > 0 for shape in _shapes(surface) for size in shape_at(shape, sizes))
    return positive and all(eval(t, {}, dict(sizes)) for t in _requirements(surface.module))


def _collisions(surface: Surface, sizes: Sizes) -> int:
    """How many texts of axes stand for a number that another text stands for too."""
    texts = {text for shape in _shapes(surface) for text in shape} | set(sizes)
    return len(texts) - len({shape_at((text,), sizes) for text in texts})


def _entries(surface: Surface, sizes: Sizes) -> int:
    """The entries of the largest derivative."""
    pairs = [(kind, key) for kind in surface.kinds for key in surface.keys(kind)]
    return max(math.prod(surface.shape(kind, key, sizes)) for kind, key in pairs)


# Points


def draws(surface: Surface, sizes: Sizes, random: Random) -> Iterator[Point]:
    """Points at these sizes, without end: as declared first; then nearer and nearer to the middle
    of the declared places, where functions do not saturate; then at the other places where
    functions are defined, the inputs alike and mixed."""
    choices = {entry.name: _choices(entry) for entry in surface.inputs}
    first = {name: places[0] for name, places in choices.items()}
    for spread in SPREADS:
        yield _point(surface, sizes, first, random, spread)
    for place in PLACES[1:]:
        places = {name: place if place in choices[name] else first[name] for name in first}
        for _ in range(2 if places != first else 0):
            yield _point(surface, sizes, places, random)
    while True:
        mixed = {name: str(random.choice(places)) for name, places in choices.items()}
        yield _point(surface, sizes, mixed, random, float(random.choice(SPREADS)))


def _choices(entry: Input) -> tuple[str, ...]:
    """The places where an input may be drawn, the declared one first."""
    if entry.structure not in ("general", "symmetric"):
        return (entry.structure, *NARROWER.get(entry.structure, ()))
    if entry.domain in DRAWS:
        return (entry.domain, *NARROWER.get(entry.domain, ()))
    return PLACES


def _point(
    surface: Surface,
    sizes: Sizes,
    places: Mapping[str, str],
    random: Random,
    spread: float = 1.0,
) -> Point:
    values = {}
    for entry in surface.inputs:
        array = _draw(places[entry.name], entry.full(sizes), random, spread)
        values[entry.name] = project(entry.structure, array)
    tangents = {
        entry.name: tangential(
            entry.structure, values[entry.name], weights(entry.full(sizes), random)
        )
        for entry in surface.wrt
    }
    cotangent = weights(surface.shape("value", "", sizes), random)
    moved = [
        f"{entry.name} {places[entry.name]}"
        for entry in surface.inputs
        if places[entry.name] != _choices(entry)[0]
    ]
    near = [f"spread {spread:g}"] if spread != 1 else []
    label = ", ".join([*(f"{name}={size}" for name, size in sizes.items()), *moved, *near])
    return Point(dict(sizes), label or "the declared sizes", values, tangents, cotangent)


def weights(shape: Shape, random: Random) -> np.ndarray:
    """Numbers of either sign with sizes in [0.5, 1.5]: none is small enough to hide an error."""
    return np.asarray(random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape))


def nudged(surface: Surface, point: Point, part: float, seed: int = 0) -> Point:
    """The point with every entry moved by about this part of itself."""
    random = np.random.default_rng(seed)
    values = {}
    for entry in surface.inputs:
        array = point.values[entry.name]
        step = part * np.abs(array) * weights(array.shape, random)
        values[entry.name] = np.asarray(array + project(entry.structure, step))
    return replace(point, values=values)


def _draw(place: str, shape: Shape, random: Random, spread: float) -> np.ndarray:
    """An array of the place, moved towards its middle so that `spread` of the way is left."""
    square = len(shape) >= 2 and shape[-1] == shape[-2]
    if place in SQUARE and not square:
        place = "general"
    array = np.asarray(DRAWS[place](shape, random))
    if spread == 1 or place not in MIDDLES:
        return array
    middle = MIDDLES[place] * (np.eye(shape[-1]) if place in SQUARE else 1.0)
    return np.asarray(middle + spread * (array - middle))


def _general(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(random.standard_normal(shape))


def _positive(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(np.exp(random.uniform(-0.69, 0.69, shape)))


def _simplex(shape: Shape, random: Random) -> np.ndarray:
    array = _positive(shape, random)
    return np.asarray(array / array.sum(-1, keepdims=True))


def _small(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(random.uniform(-0.4, 0.4, shape))


def _fraction(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(random.uniform(0.15, 0.85, shape))


def _above_one(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(random.uniform(1.3, 2.5, shape))


def _spd(shape: Shape, random: Random) -> np.ndarray:
    factor = _general(shape, random)
    return factor @ np.swapaxes(factor, -1, -2) / shape[-1] + np.eye(shape[-1])


def _triangular(shape: Shape, random: Random) -> np.ndarray:
    return _dominant(shape, random) + _small(shape, random) * (1 - np.eye(shape[-1]))


def _dominant(shape: Shape, random: Random) -> np.ndarray:
    size = shape[-1]
    diagonal = np.eye(size) * random.uniform(1.5, 2.5, (*shape[:-2], 1, size))
    return _general(shape, random) * (0.5 / size) + diagonal


def _orthogonal(shape: Shape, random: Random) -> np.ndarray:
    factor, triangle = np.linalg.qr(_general(shape, random))
    signs = np.sign(np.diagonal(triangle, axis1=-2, axis2=-1))
    return np.asarray(factor * signs[..., None, :])


def _one_orthogonal(shape: Shape, random: Random) -> np.ndarray:
    """The same for every sample, so that one direction is tangential for all of them."""
    return np.broadcast_to(_orthogonal(shape[-2:], random), shape).copy()


def _invertible(shape: Shape, random: Random) -> np.ndarray:
    """Singular values between 1 and 2, either sign of the determinant."""
    stretch = random.uniform(1.0, 2.0, (*shape[:-2], 1, shape[-1]))
    return (_orthogonal(shape, random) * stretch) @ _orthogonal(shape, random)


def _real_spectrum(shape: Shape, random: Random) -> np.ndarray:
    """Real eigenvalues that are apart, of either sign; eigenvectors that are not orthogonal."""
    size = shape[-1]
    apart = np.arange(size) - size / 2 + random.uniform(0.1, 0.4, (*shape[:-2], 1, size))
    vectors = _dominant(shape, random)
    return np.asarray((vectors * apart) @ np.linalg.inv(vectors))


DRAWS: dict[str, Callable[[Shape, Random], np.ndarray]] = {
    "general": _general,
    "positive": _positive,
    "small": _small,
    "fraction": _fraction,
    "spd": _spd,
    "dominant": _dominant,
    "above one": _above_one,
    "lower": _triangular,
    "upper": _triangular,
    "diagonal": _dominant,
    "orthogonal": _one_orthogonal,
    "nonneg": _positive,
    "simplex": _simplex,
    "invertible": _invertible,
    "real spectrum": _real_spectrum,
}
MIDDLES = {
    "general": 0.0,
    "positive": 1.0,
    "small": 0.0,
    "fraction": 0.5,
    "spd": 2.0,
    "dominant": 2.0,
    "above one": 1.9,
    "lower": 2.0,
    "upper": 2.0,
    "diagonal": 2.0,
    "nonneg": 1.0,
}
"""The middle of a place: all entries, or of square matrices those on the diagonal. What lies
between it and a point of the place is in the place too."""

SPREADS = (1.0, 1.0, 0.1, 0.01, 1.0)
"""How far from the middle the first points are, in parts of the usual distance."""

SQUARE = (
    *("spd", "dominant", "lower", "upper", "diagonal", "orthogonal", "invertible"),
    "real spectrum",
)

PLACES = ("general", "positive", "small", "fraction", "spd", "dominant", "above one")
"""Where an input that declares nothing is drawn, in the order tried."""

NARROWER = {
    "positive": ("fraction", "above one"),
    "nonneg": ("fraction", "above one"),
    "invertible": ("dominant", "spd"),
    "real spectrum": ("spd",),
}
"""Smaller places inside a declared one, for functions that need more than it says."""


# Structures


def project(structure: str, array: np.ndarray) -> np.ndarray:
    """The nearest array of the structure, in the last two axes; the identity where every
    direction is allowed (an orthogonal input has the ambient derivative)."""
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
    """Directions at a value; those at an orthogonal matrix Q turned into ones along which it
    stays orthogonal to first order, Q (D - D').

    Only along these do second derivatives agree with differences of a gradient that is written
    with what holds at orthogonal matrices, as Q'Q = I."""
    if structure != "orthogonal":
        return directions
    return np.asarray(value @ (directions - np.swapaxes(directions, -1, -2)))


PROJECTED = ("symmetric", "spd", "lower", "upper", "diagonal")
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
