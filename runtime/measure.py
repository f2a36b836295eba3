"""Finite differences of a whole function at a point, and points where they can be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.differences import STEPS, Estimate, Line, differentiate
from derivatrix.runtime.reference import OutOfDomain, Text
from derivatrix.runtime.surface import Arrays, CallError, Input, Point, Sizes, Surface

ACCURATE = 5e-9
"""The relative error of differences that a point should have; the best one is taken if none has."""
DRAWN = 40
"""The most points drawn at one choice of sizes."""
MEASURED = 8
"""The most of them where differences are taken."""
ENOUGH = 4
"""How many of them, the first ones near the middle of the domain, show that what is zero but for
rounding is zero, not saturated."""
RESOLVED = 100
"""How much larger than its error a derivative is that is certainly not zero."""
REPRESENTABLE = 1e30
"""What values and derivatives should stay below, so that float32 can hold them."""


FEW = 3
"""How many steps of differences are tried at large sizes."""
NUDGE = 2.0**-45
"""The relative change of entries that the value's condition is told by."""
STEADY = 1e-9
"""How much of itself a value may move by that."""
WAVERING = 1e-7
"""How much of itself a derivative may move by that."""
BENT = 2.0**-20
"""The step at which differences to both sides are compared, to notice a kink."""


@dataclass(frozen=True)
class Measurement:
    """The declared value and the differences at a point.

    directions: for each `wrt` input, K directions for one sample, stacked; turned: the same for
    second derivatives, which are tangential at orthogonal matrices.
    first: for each `wrt` input, the differences of the value along them: shape (K, *value.shape).
    along: those along the point's tangents, each projected on its input's structure.
    second: for each pair "X, Y" the differences of the gradient by X along the turned directions
    of Y.
    second_along: for each `wrt` input X, those of the gradient by X along the tangents.
    The last two are empty where there is no gradient that can be called; second lacks an input of
    which no direction is tangential.
    single: whether the declaration has nearly that value in float32 too.
    wobble: how far the declared value moves where the inputs do by a little more than rounding;
    infinite where it stops being defined. Known at special points and at large sizes only.
    """

    point: Point
    value: np.ndarray
    directions: Arrays
    turned: Arrays
    first: dict[str, Estimate]
    along: Estimate
    second: dict[str, Estimate]
    second_along: dict[str, Estimate]
    single: bool
    wobble: float = 0.0

    @property
    def steady(self) -> bool:
        """Whether the declared value is that of the points around, but for rounding."""
        return self.wobble <= STEADY * (largest(self.value) or 1.0)

    @property
    def error(self) -> float:
        """The largest error of a difference, relative to the largest entry of its array."""
        later = [*self.second.values(), *self.second_along.values()]
        return max([self.first_error, *(_relative(part, self.gradient_size) for part in later)])

    @property
    def first_error(self) -> float:
        """The same of the differences of the declared value alone."""
        parts = [*self.first.values(), self.along]
        return max(_relative(part, largest(self.value)) for part in parts)

    @property
    def gradient_size(self) -> float:
        """The size of what second differences are computed from."""
        parts = self.first.values() or (self.along,)
        slopes = [largest(part.derivative) for part in parts]
        return max(largest(self.value), *slopes)

    @property
    def telling(self) -> bool:
        """Whether the differences are accurate, also those that are small, and fit float32."""
        first = [*self.first.values(), self.along]
        second = [*self.second.values(), *self.second_along.values()]
        sizes = [largest(part.derivative) for part in (*first, *second)]
        representable = self.single and max(largest(self.value), *sizes) < REPRESENTABLE
        return representable and all(
            part.constant or _relative(part, 0.0) <= ACCURATE for part in (*first, *second)
        )


def largest(array: np.ndarray) -> float:
    """The largest absolute value, 0 for no entries."""
    return float(np.abs(array).max(initial=0.0))


def scale(array: np.ndarray, floor: float) -> float:
    """What errors in an array are relative to: its largest entry, or `floor` (the size of what
    it was computed from) if it is zero but for rounding, or 1 if that is zero too."""
    size = largest(array)
    return size if size > 1e-10 * floor else floor or 1.0


def magnitude(derivative: np.ndarray, error: np.ndarray, floor: float) -> float:
    """What errors in differences are relative to: their largest entry if it stands out from their
    errors, and otherwise what `scale` says."""
    size = largest(derivative)
    return size if size > RESOLVED * largest(error) else scale(derivative, floor)


def _relative(estimate: Estimate, floor: float) -> float:
    return largest(estimate.error) / magnitude(estimate.derivative, estimate.error, floor)


def small(
    surface: Surface, declared: Text, sizes: Mapping[str, int], seed: int
) -> list[Measurement]:
    """Two points with small sizes, different ones where there is a choice.

    Raises OutOfDomain when there is no point with a finite real value."""
    candidates = sampling.assignments(surface, sizes)
    found: list[Measurement] = []
    spare: list[Measurement] = []
    reasons: list[str] = []
    for number, candidate in enumerate(candidates if len(candidates) > 1 else candidates * 2):
        try:
            measurement = _settled(surface, declared, candidate, [seed, number], 200)
        except OutOfDomain as reason:
            reasons.append(str(reason))
            continue
        (found if measurement.error <= ACCURATE else spare).append(measurement)
        if len(found) == 2:
            break
    found += sorted(spare, key=lambda measurement: measurement.error)[: 2 - len(found)]
    if not found:
        raise OutOfDomain(reasons[0])
    return [_numbered(measurement, number) for number, measurement in enumerate(found, 1)]


def _numbered(measurement: Measurement, number: int) -> Measurement:
    label = f"point {number}: {measurement.point.label}"
    return replace(measurement, point=replace(measurement.point, label=label))


def large(surface: Surface, declared: Text, seed: int) -> list[Measurement]:
    """One point with larger sizes, or none: many functions are ill-conditioned there."""
    sizes = sampling.large(surface)
    if sizes is None:
        return []
    try:
        measurement = _settled(surface, declared, sizes, [seed, len(sizes), 1], 24)
    except OutOfDomain:
        return []
    return [_numbered(measurement, 3)] if measurement.first_error <= ACCURATE else []


def wide(surface: Surface, declared: Text, sizes: Sizes, seed: int) -> Measurement:
    """A point with these sizes, large ones, with differences along the tangents alone.

    Raises OutOfDomain when there is no point with a finite real value."""
    random = np.random.default_rng([seed, *sizes.values()])
    found: Measurement | None = None
    reason = ""
    measured_points = 0
    for point in itertools.islice(sampling.draws(surface, sizes, random), DRAWN):
        try:
            value = evaluate(surface, declared, point)
        except OutOfDomain as error:
            reason = str(error)
            continue
        measured = _directional(surface, declared, point, value)
        measured_points += 1
        if found is None or measured.first_error < found.first_error:
            found = measured
        if (found.first_error <= STEADY and found.steady) or measured_points == ENOUGH:
            break
    if found is None:
        raise OutOfDomain(reason)
    return found


def _directional(surface: Surface, declared: Text, point: Point, value: np.ndarray) -> Measurement:
    tangents = {
        entry.name: sampling.project(entry.structure, point.tangents[entry.name])
        for entry in surface.wrt
    }

    def values(moved: Point) -> tuple[np.ndarray, ...]:
        return (evaluate(surface, declared, moved),)

    (along,) = _along(values, (value,), point, tangents, most=FEW)
    second: dict[str, Estimate] = {}
    gradient = _gradient(surface, point)
    if gradient is not None:
        parts = _along(partial(_slopes, surface), gradient, point, tangents, most=FEW)
        second = {entry.name: part for entry, part in zip(surface.wrt, parts, strict=True)}
    single = _single(surface, declared, point, value)
    wobble = _wobble(surface, declared, point, value)
    return Measurement(point, value, {}, {}, {}, along, {}, second, single, wobble)


def special(surface: Surface, declared: Text, point: Point, seed: int) -> Measurement:
    """The same at a special point. The errors of its differences are large where there is a kink.

    Raises OutOfDomain where the declaration has no finite real value."""
    value = evaluate(surface, declared, point)
    random = np.random.default_rng([seed, 3])
    found = _measure(surface, declared, point, value, 0, random, kinks=True)
    return replace(found, wobble=_wobble(surface, declared, point, value))


def _wobble(surface: Surface, declared: Text, point: Point, value: np.ndarray) -> float:
    moved = sampling.nudged(surface, point, NUDGE)
    try:
        return largest(evaluate(surface, declared, moved) - value)
    except OutOfDomain:
        return np.inf


def wavers(surface: Surface, point: Point, kind: str) -> bool:
    """Whether a function of the module returns different numbers at two points, both as near to
    this one as rounding. What is so at the point alone does not count."""
    try:
        one, other = (
            surface.results(kind, sampling.nudged(surface, point, NUDGE, seed)) for seed in (1, 2)
        )
    except CallError:
        return True
    return any(
        not largest(other[key] - array) <= WAVERING * max(largest(array), 1.0)
        for key, array in one.items()
    )


def _settled(
    surface: Surface, declared: Text, sizes: Sizes, seed: list[int], most: int
) -> Measurement:
    """The first point drawn where differences are telling, or the most accurate of several."""
    random = np.random.default_rng(seed)
    best: Measurement | None = None
    measured = 0
    reason = ""
    for point in itertools.islice(sampling.draws(surface, sizes, random), DRAWN):
        try:
            value = evaluate(surface, declared, point)
        except OutOfDomain as error:
            reason = reason or str(error)
            continue
        measurement = _measure(surface, declared, point, value, most, random)
        measured += 1
        if measurement.telling:
            return measurement
        if best is None or measurement.error < best.error:
            best = measurement
        if measured == (ENOUGH if best.error <= ACCURATE else MEASURED):
            return best
    if best is None:
        raise OutOfDomain(reason)
    return best


def evaluate(surface: Surface, text: Text, point: Point) -> np.ndarray:
    """The value of the declaration's text."""
    shape = surface.shape("value", "", point.sizes)
    return text({**point.sizes, **point.values}, shape)


def _measure(
    surface: Surface,
    declared: Text,
    point: Point,
    value: np.ndarray,
    most: int,
    random: np.random.Generator,
    kinks: bool = False,
) -> Measurement:
    along_steps = partial(_along, kinks=kinks)
    stacks = {
        entry.name: sampling.directions(entry.structure, entry.core(point.sizes), most, random)
        for entry in surface.wrt
    }
    turned = {
        entry.name: _turned(entry, point.values[entry.name], stacks[entry.name])
        for entry in surface.wrt
    }
    tangents = {
        entry.name: sampling.project(entry.structure, point.tangents[entry.name])
        for entry in surface.wrt
    }

    def values(moved: Point) -> tuple[np.ndarray, ...]:
        return (evaluate(surface, declared, moved),)

    first = {
        name: _stacked([along_steps(values, (value,), point, {name: step})[0] for step in stack])
        for name, stack in stacks.items()
    }
    (along,) = along_steps(values, (value,), point, tangents)
    second: dict[str, Estimate] = {}
    second_along: dict[str, Estimate] = {}
    gradient = _gradient(surface, point)
    if gradient is not None:
        slopes = partial(_slopes, surface)
        for name, stack in turned.items():
            columns = [along_steps(slopes, gradient, point, {name: step}) for step in stack]
            for position, entry in enumerate(surface.wrt if columns else ()):
                own = [column[position] for column in columns]
                second[f"{entry.name}, {name}"] = _stacked(own)
        parts = along_steps(slopes, gradient, point, tangents)
        second_along = {entry.name: part for entry, part in zip(surface.wrt, parts, strict=True)}
    single = _single(surface, declared, point, value)
    return Measurement(point, value, stacks, turned, first, along, second, second_along, single)


def _turned(entry: Input, value: np.ndarray, stack: np.ndarray) -> np.ndarray:
    """The directions that are tangential and not zero, at the value of the first sample."""
    sample = value[0] if entry.batched else value
    found = sampling.tangential(entry.structure, sample, stack)
    return found[[bool(direction.any()) for direction in found]]


def _single(surface: Surface, declared: Text, point: Point, value: np.ndarray) -> bool:
    """Whether the declaration in float32 is within a hundredth of its value."""
    values = {name: array.astype(np.float32) for name, array in point.values.items()}
    try:
        narrow = evaluate(surface, declared, replace(point, values=values))
    except OutOfDomain:
        return False
    return largest(narrow - value) <= 1e-2 * largest(value)


def _along(
    function: Callable[[Point], tuple[np.ndarray, ...]],
    centre: tuple[np.ndarray, ...],
    point: Point,
    steps: Mapping[str, np.ndarray],
    kinks: bool = False,
    most: int = len(STEPS),
) -> tuple[Estimate, ...]:
    """The differences of a function of points; `steps` moves some inputs, every sample of a
    batch alike if it has no batch axis. kinks: whether what differs to the two sides of the point
    counts as an error."""

    def line(distance: float) -> tuple[np.ndarray, ...]:
        moved = {
            name: np.asarray(point.values[name] + distance * step) for name, step in steps.items()
        }
        return function(replace(point, values={**point.values, **moved}))

    length = np.sqrt(sum(float(np.sum(step**2)) for step in steps.values()))
    found = differentiate(line, centre, length, most)
    return _sided(line, centre, BENT / length, found) if kinks else found


def _sided(
    line: Line, centre: tuple[np.ndarray, ...], step: float, found: tuple[Estimate, ...]
) -> tuple[Estimate, ...]:
    """The estimates with the differences of the two sides' slopes in their errors."""
    try:
        sides = line(step), line(-step)
    except OutOfDomain:
        return tuple(replace(part, error=np.full_like(part.error, np.inf)) for part in found)
    parts = zip(found, centre, *sides, strict=True)
    return tuple(
        replace(part, error=part.error + np.abs(ahead - 2 * value + behind) / step)
        for part, value, ahead, behind in parts
    )


def _stacked(parts: Sequence[Estimate]) -> Estimate:
    return Estimate(
        np.stack([part.derivative for part in parts]),
        np.stack([part.error for part in parts]),
        all(part.constant for part in parts),
    )


def _gradient(surface: Surface, point: Point) -> tuple[np.ndarray, ...] | None:
    """The module's gradient at a point, if it has one that works."""
    if "gradient" not in surface.kinds:
        return None
    try:
        return _slopes(surface, point)
    except OutOfDomain:
        return None


def _slopes(surface: Surface, point: Point) -> tuple[np.ndarray, ...]:
    try:
        slopes = tuple(surface.results("gradient", point).values())
    except CallError as error:
        raise OutOfDomain(str(error)) from error
    if not all(np.isfinite(slope).all() for slope in slopes):
        raise OutOfDomain("the gradient is not finite")
    return slopes
