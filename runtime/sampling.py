"""Sizes, points and directions for verification, drawn inside the inputs' structures and domains.

Everything is a function of the generator that is passed, so a seed always gives the same points.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from derivatrix.runtime.domains import DOMAINS, UNDECLARED, Random, Shape, draw
from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.interface import Input, ModuleInterface, Point, Sizes, shape_at

LARGER_SIZES = (16, 11, 8, 6)
"""Minimum sizes to try for the point with larger sizes, where kernels may take other branches."""
MAX_LARGER_ENTRIES = 500_000
"""Most entries of a derivative at the point with larger sizes."""
DENSE_DIRECTIONS = 4
"""Number of dense directions that are added to an incomplete basis: they reach every entry."""
MAX_BASIS_SAMPLE = 32
"""Most members of an incomplete basis."""


# Sizes


def assignments(interface: ModuleInterface, fixed: Mapping[str, int]) -> list[dict[str, int]]:
    """List assignments of small sizes to the names in the module's shapes, the best tests first.

    The sizes of one assignment are distinct, and so are axes with different texts if possible, so
    that a wrong axis has a wrong size. Rows are more than columns first, then fewer.
    `fixed` fixes some sizes. Raises ShapeError if it has unknown names or no sizes are valid.
    """
    names = interface.size_names
    for name, size in fixed.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise ShapeError(f"{interface.name}: no size is called {name}; its sizes: {known}")
        if type(size) is not int or size < 1:
            raise ShapeError(f"{interface.name}: size {name} = {size!r} is no positive integer")
    free = [name for name in names if name not in fixed]
    candidates: list[dict[str, int]] = []
    orders = (free[::-1], free, free[1:] + free[:1])
    for minimum, order in itertools.product((3, 2, 5), orders):
        sizes = _distinct_sizes(interface, order, minimum, fixed)
        if sizes not in candidates and _are_valid(interface, sizes):
            candidates.append(sizes)
    if not candidates:
        raise ShapeError(f"{interface.name}: no sizes make every axis positive; give `sizes`")
    return sorted(candidates, key=lambda sizes: _count_collisions(interface, sizes))


def larger_sizes(interface: ModuleInterface) -> dict[str, int] | None:
    """Choose sizes above the small ones; None if there is no size to choose, or a derivative would
    have more than MAX_LARGER_ENTRIES."""
    names = list(interface.size_names)
    pairs = [(kind, key) for kind in interface.kinds for key in interface.keys(kind)]
    for minimum in LARGER_SIZES if names else ():
        sizes = _distinct_sizes(interface, names[::-1], minimum)
        if _are_valid(interface, sizes):
            counts = [math.prod(interface.shape(kind, key, sizes)) for kind, key in pairs]
            if max(counts) <= MAX_LARGER_ENTRIES:
                return sizes
    return None


def enlarged(interface: ModuleInterface, size: int) -> list[dict[str, int]]:
    """List the valid assignments with every size at least `size`, or one of them, others small."""
    names = list(interface.size_names)
    candidates = [_distinct_sizes(interface, names[::-1], size)]
    for name in names if len(names) > 1 else ():
        fixed = {name: max(size, _minimum_sizes(interface).get(name, 1))}
        candidates.append(_distinct_sizes(interface, [n for n in names if n != name], 3, fixed))
    return [sizes for sizes in candidates if _are_valid(interface, sizes)]


def sizes_of_one(interface: ModuleInterface, fixed: Mapping[str, int]) -> list[dict[str, int]]:
    """List the valid assignments of 1 to all sizes that are not fixed, and to each alone."""
    free = [name for name in interface.size_names if name not in fixed]
    small = assignments(interface, fixed)[0]
    candidates: list[dict[str, int]] = []
    for names in (free, *([name] for name in free)):
        sizes = {**small, **dict.fromkeys(names, 1)}
        if names and sizes not in candidates and _are_valid(interface, sizes):
            candidates.append(sizes)
    return candidates


def _minimum_sizes(interface: ModuleInterface) -> Mapping[str, int]:
    """Read the minimum sizes from the module's conditions on sizes, such as "n >= 2"."""
    matches = [re.fullmatch(r"(\w+) >= (\d+)", text) for text in interface.requirements]
    return {match[1]: int(match[2]) for match in matches if match}


def _distinct_sizes(
    interface: ModuleInterface, names: list[str], minimum: int, fixed: Sizes | None = None
) -> dict[str, int]:
    """Assign distinct, growing sizes to `names` in order, at least `minimum` and what the module
    requires; the other names have theirs from `fixed`."""
    required, sizes = _minimum_sizes(interface), dict[str, int]()
    for name in names:
        start = max(minimum, required.get(name, 1))
        sizes[name] = next(size for size in itertools.count(start) if size not in sizes.values())
    return {name: {**(fixed or {}), **sizes}[name] for name in interface.size_names}


def _shapes(interface: ModuleInterface) -> list[tuple[str, ...]]:
    return [entry.shape for entry in interface.inputs] + [interface.output]


def _are_valid(interface: ModuleInterface, sizes: Sizes) -> bool:
    positive = all(size > 0 for shape in _shapes(interface) for size in shape_at(shape, sizes))
    return positive and meets(sizes, interface.requirements)


def meets(sizes: Mapping[str, int], requirements: Sequence[str]) -> bool:
    """Return whether sizes satisfy conditions such as "n >= 2", which the compiler wrote."""
    return all(eval(text, {}, dict(sizes)) for text in requirements)


def _count_collisions(interface: ModuleInterface, sizes: Sizes) -> int:
    """Count the axis texts whose number equals that of another text."""
    texts = {text for shape in _shapes(interface) for text in shape} | set(sizes)
    return len(texts) - len({shape_at((text,), sizes) for text in texts})


# Points


SPREADS = (1.0, 1.0, 0.1, 0.01, 1.0)
"""Distances of the first points from the middle of their domains, relative to those drawn."""


def draws(interface: ModuleInterface, sizes: Sizes, random: Random) -> Iterator[Point]:
    """Draw points at these sizes, without end: as declared first; then nearer and nearer to the
    middle of the declared domains, where functions do not saturate; then in narrower domains, the
    same one for all inputs first."""
    choices = {entry.name: _possible_domains(entry) for entry in interface.inputs}
    declared = {name: domains[0] for name, domains in choices.items()}
    for spread in SPREADS:
        yield _draw_point(interface, sizes, declared, random, spread)
    for domain in UNDECLARED[1:]:
        domains = {name: domain if domain in choices[name] else declared[name] for name in choices}
        for _ in range(2 if domains != declared else 0):
            yield _draw_point(interface, sizes, domains, random)
    while True:
        domains = {name: str(random.choice(names)) for name, names in choices.items()}
        yield _draw_point(interface, sizes, domains, random, float(random.choice(SPREADS)))


def _possible_domains(entry: Input) -> tuple[str, ...]:
    """List the domains where an input may be drawn, the declared one first."""
    declared = entry.domain
    if entry.structure not in ("general", "symmetric"):
        declared = entry.structure
    return (declared, *DOMAINS[declared].narrower) if declared in DOMAINS else UNDECLARED


def _draw_point(
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
    tangents = {entry.name: random_weights(entry.full(sizes), random) for entry in interface.wrt}
    cotangent = random_weights(interface.shape("value", "", sizes), random)
    parts = [f"{name}={size}" for name, size in sizes.items()]
    for entry in interface.inputs:
        if domains[entry.name] != _possible_domains(entry)[0]:
            parts.append(f"{entry.name} {domains[entry.name]}")
    parts += [f"spread {spread:g}"] if spread != 1 else []
    label = ", ".join(parts) or "the declared sizes"
    return Point(dict(sizes), label, values, tangents, cotangent)


def random_weights(shape: Shape, random: Random) -> np.ndarray:
    """Draw numbers with magnitudes in [0.5, 1.5]: none is small enough to hide an error."""
    return np.asarray(random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape))


def perturb(interface: ModuleInterface, point: Point, ratio: float, seed: int = 0) -> Point:
    """Move every entry but zeros by about `ratio` times the largest entry of its array."""
    random = np.random.default_rng(seed)
    values = {}
    for entry in interface.inputs:
        array = point.values[entry.name]
        largest = np.where(array == 0, 0.0, np.abs(array).max(initial=0.0))
        step = ratio * largest * random_weights(array.shape, random)
        values[entry.name] = np.asarray(array + project(entry.structure, step))
    return replace(point, values=values)


# Structures


def project(structure: str, array: np.ndarray) -> np.ndarray:
    """Project the last two axes on a structure that is a linear space; others are left alone."""
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
    """Project directions, in the last two axes, on the tangent space of the structure at `value`:
    at an orthogonal matrix Q that is (D - Q D' Q) / 2."""
    if structure != "orthogonal":
        return project(structure, directions)
    return np.asarray((directions - value @ np.swapaxes(directions, -1, -2) @ value) / 2)


PROJECTED = ("symmetric", "spd", "lower", "upper", "diagonal", "orthogonal")
"""The structures that derivatives are projected on."""


def directions(structure: str, shape: Shape, limit: int, random: Random) -> np.ndarray:
    """Stack directions that keep the structure: a basis if it has at most `limit` members,
    otherwise some members at random and DENSE_DIRECTIONS of length 1. With `limit` 0 there is a
    single dense direction."""
    if not limit:
        return _dense_direction(structure, shape, random)[None]
    is_symmetric = structure in ("symmetric", "spd")
    free = np.argwhere(project("lower" if is_symmetric else structure, np.ones(shape)))
    count = DENSE_DIRECTIONS if len(free) > limit else 0
    dense = [_dense_direction(structure, shape, random) for _ in range(count)]
    if dense:
        free = random.permutation(free)[: min(limit, MAX_BASIS_SAMPLE)]
    basis = np.zeros((len(free), *shape))
    for number, index in enumerate(free):
        basis[(number, *index)] = 1.0
        if is_symmetric:
            basis[(number, *index[:-2], index[-1], index[-2])] = 1.0
    return np.stack([*basis, *dense])


def _dense_direction(structure: str, shape: Shape, random: Random) -> np.ndarray:
    direction = project(structure, random_weights(shape, random))
    return np.asarray(direction / np.linalg.norm(direction))
