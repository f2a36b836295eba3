"""Finite differences of a whole function at a point, and points where they can be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.differences import STEPS, Estimate, Line, differentiate
from derivatrix.runtime.interface import Arrays, CallError, Input, ModuleInterface, Point, Sizes
from derivatrix.runtime.reference import OutOfDomain

ACCURATE = 5e-9
"""The relative error of differences that a point should have; the best one is taken if none has."""
DRAWN = 40
"""The most points drawn at one choice of sizes."""
MEASURED = 8
"""The most points at which differences are taken, of those drawn."""
ENOUGH = 4
"""After so many points with accurate differences no better one is looked for: what is zero at all
of them, up to rounding, is zero and not the derivative of a function that saturates."""
RESOLVED = 100
"""How many times larger than its error a derivative is that is certainly not zero."""
REPRESENTABLE = 1e30
"""Values and derivatives should be smaller, so that float32 can hold them."""
WIDE_ACCURATE = 1e-9
"""The relative error of differences at large sizes after which no better point is looked for."""
FEW = 3
"""How many steps of differences are tried at large sizes."""
NUDGE = 2.0**-45
"""The change of the inputs, in parts of their largest entries, that shows how sensitive results are
to rounding."""
STEADY = 1e-6
"""The relative change of the value by that, up to which it is that of the points around."""
SENSITIVE = 1e-4
"""The relative change of a derivative by that, from which rounding decides about it."""
TRUSTED = 1e-5
"""The relative error of differences that are compared with at special points and large sizes."""
SMALL_UNIT = 0.1
"""The largest entry up to which differences have steps in its measure."""
KINK_STEP = 2.0**-20
"""The step at which differences to both sides are compared, to notice a kink."""


@dataclass(frozen=True)
class Measurement:
    """The declared value and the differences at a point.

    directions: for each `wrt` input, K directions for one sample along which it keeps its
    structure, stacked; none for an orthogonal matrix of one row.
    first: for each `wrt` input, the differences of the value along them: shape (K, *value.shape).
    along: those along the point's tangents, each projected on its input's structure, as functions
    project what they are given.
    second: for each pair "X, Y" the differences of the gradient by X along the directions of Y.
    second_along: for each `wrt` input X, those of the gradient by X along the tangents.
    The last two are empty where nothing is compared with them, and where there is no gradient that
    can be called. What is by an input without directions is missing.
    single: whether the declaration has nearly that value in float32 too.
    sensitivity: the change of the declared value where the inputs change by a little more than
    rounding; infinite where it stops being defined. Known at special points and at large sizes.
    """

    point: Point
    value: np.ndarray
    directions: Arrays
    first: dict[str, Estimate]
    along: Estimate
    second: dict[str, Estimate]
    second_along: dict[str, Estimate]
    single: bool
    sensitivity: float = 0.0

    @property
    def steady(self) -> bool:
        """Whether the declared value is that of the points around, but for rounding."""
        return self.sensitivity <= STEADY * (largest(self.value) or 1.0)

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
    def usable(self) -> bool:
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


def is_trusted(estimate: Estimate, floor: float) -> bool:
    """Whether differences are accurate enough to be compared with at special points."""
    return _relative(estimate, floor) <= TRUSTED


def _relative(estimate: Estimate, floor: float) -> float:
    return largest(estimate.error) / magnitude(estimate.derivative, estimate.error, floor)


def small(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> list[Measurement]:
    """Two points with small sizes, different ones where there is a choice.

    Raises OutOfDomain when there is no point with a finite real value."""
    candidates = sampling.assignments(interface, sizes)
    found: list[Measurement] = []
    spare: list[Measurement] = []
    reasons: list[str] = []
    for number, candidate in enumerate(candidates if len(candidates) > 1 else candidates * 2):
        try:
            measurement = _settled(interface, candidate, [seed, number], 200)
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


def large(interface: ModuleInterface, seed: int) -> list[Measurement]:
    """One point with larger sizes, or none: many functions are ill-conditioned there."""
    sizes = sampling.large(interface)
    if sizes is None:
        return []
    try:
        measurement = _settled(interface, sizes, [seed, len(sizes), 1], 24)
    except OutOfDomain:
        return []
    return [_numbered(measurement, 3)] if measurement.first_error <= ACCURATE else []


def wide(interface: ModuleInterface, sizes: Sizes, seed: int, kinds: Sequence[str]) -> Measurement:
    """A point with these sizes, large ones, with differences along the tangents alone; those of
    the gradient, which may be the largest by far, only where second derivatives are among `kinds`.

    Raises OutOfDomain when there is no point with a finite real value."""
    random = np.random.default_rng([seed, *sizes.values()])
    with_second = "hvp" in kinds or "hessian" in kinds
    measured: list[Measurement] = []
    for point, value in defined(interface, sizes, random):
        found = _measure(interface, point, value, {}, most=FEW, with_second=with_second)
        measured.append(replace(found, sensitivity=_sensitivity(interface, point, value)))
        best = min(measured, key=lambda each: each.first_error)
        if (best.first_error <= WIDE_ACCURATE and best.steady) or len(measured) == ENOUGH:
            break
    return best


def defined(
    interface: ModuleInterface, sizes: Sizes, random: np.random.Generator
) -> Iterator[tuple[Point, np.ndarray]]:
    """Of the first points drawn those where the declaration has a value, with that. Raises
    OutOfDomain, with the first reason, where it has none at any."""
    reasons: list[OutOfDomain] = []
    for point in itertools.islice(sampling.draws(interface, sizes, random), DRAWN):
        try:
            value = interface.declared_value(point)
        except OutOfDomain as error:
            reasons.append(error)
        else:
            yield point, value
    if len(reasons) == DRAWN:
        raise reasons[0]


def special(
    interface: ModuleInterface, point: Point, seed: int, with_second: bool = False
) -> Measurement:
    """The same at a special point. The errors of its differences are large where there is a kink.
    There may be one at the point itself unless `with_second` says that there is none: then there
    are no differences of the gradient, as on lines through 0 that of |x|² is smooth; its
    derivative is not 0.

    Raises OutOfDomain where the declaration has no finite real value."""
    value = interface.declared_value(point)
    stacks = input_directions(interface, point, 0, np.random.default_rng([seed, 3]))
    found = _measure(interface, point, value, stacks, kinks=True, with_second=with_second)
    return replace(found, sensitivity=_sensitivity(interface, point, value))


def _sensitivity(interface: ModuleInterface, point: Point, value: np.ndarray) -> float:
    moved = sampling.nudged(interface, point, NUDGE)
    try:
        return largest(interface.declared_value(moved) - value)
    except OutOfDomain:
        return np.inf


def roundoff(interface: ModuleInterface, point: Point, kind: str) -> tuple[float, bool]:
    """How far apart a function's results are at two points that differ from this one by little
    more than rounding, and whether rounding decides about them; infinite where the function fails
    at one of the two, or is finite at one of them alone."""
    try:
        one, other = (
            interface.results(kind, sampling.nudged(interface, point, NUDGE, seed))
            for seed in (1, 2)
        )
    except CallError:
        return np.inf, True
    if not any(np.isfinite(array).all() for array in (*one.values(), *other.values())):
        return 0.0, False  # that is no matter of rounding
    apart = max((largest(other[key] - array) for key, array in one.items()), default=0.0)
    size = max([1.0, *map(largest, one.values())])
    return apart, not apart <= SENSITIVE * size


def is_smooth(interface: ModuleInterface, point: Point) -> bool:
    """Whether differences of the module's gradient along the tangents say that it has a derivative
    at a special point."""
    gradient = _gradient(interface, point)
    if gradient is None:
        return False
    along = partial(slopes, interface)
    parts = _along(along, gradient, point, tangents(interface, point), kinks=True)
    return all(
        is_trusted(part, max(1.0, largest(slope)))
        for part, slope in zip(parts, gradient, strict=True)
    )


def _settled(interface: ModuleInterface, sizes: Sizes, seed: list[int], most: int) -> Measurement:
    """The first point drawn with usable differences, else the one with the most accurate."""
    random = np.random.default_rng(seed)
    measured: list[Measurement] = []
    for point, value in defined(interface, sizes, random):
        found = _measure(interface, point, value, input_directions(interface, point, most, random))
        if found.usable:
            return found
        measured.append(found)
        best = min(measured, key=lambda each: each.error)
        if len(measured) == (ENOUGH if best.error <= ACCURATE else MEASURED):
            break
    return best


def _measure(
    interface: ModuleInterface,
    point: Point,
    value: np.ndarray,
    stacks: Arrays,
    kinks: bool = False,
    most: int = len(STEPS),
    with_second: bool = True,
) -> Measurement:
    """The differences along the directions of `stacks`, if there are some, and along the tangents.
    kinks, most: see `_along`; with_second: whether to make those of the gradient, too."""
    along_steps = partial(_along, kinks=kinks, most=most)
    moving = tangents(interface, point)

    def values(moved: Point) -> tuple[np.ndarray, ...]:
        return (interface.declared_value(moved),)

    first = {
        name: _stacked([along_steps(values, (value,), point, {name: step})[0] for step in stack])
        for name, stack in stacks.items()
        if len(stack)
    }
    (along,) = along_steps(values, (value,), point, moving)
    second: dict[str, Estimate] = {}
    second_along: dict[str, Estimate] = {}
    gradient = _gradient(interface, point) if with_second else None
    if gradient is not None:
        along_gradient = partial(slopes, interface)
        for name, stack in stacks.items():
            columns = [along_steps(along_gradient, gradient, point, {name: step}) for step in stack]
            for position, entry in enumerate(interface.wrt if columns else ()):
                own = [_within(entry, point, column[position]) for column in columns]
                second[f"{entry.name}, {name}"] = _stacked(own)
        parts = zip(
            interface.wrt, along_steps(along_gradient, gradient, point, moving), strict=True
        )
        second_along = {entry.name: _within(entry, point, part) for entry, part in parts}
    single = _single(interface, point, value)
    return Measurement(point, value, stacks, first, along, second, second_along, single)


def tangents(interface: ModuleInterface, point: Point) -> Arrays:
    """The point's tangents, each projected on its input's structure."""
    return {
        entry.name: sampling.tangential(
            entry.structure, point.values[entry.name], point.tangents[entry.name]
        )
        for entry in interface.wrt
    }


def input_directions(
    interface: ModuleInterface, point: Point, most: int, random: np.random.Generator
) -> Arrays:
    """For each `wrt` input directions for one sample (see `sampling.directions`), stacked: those
    that keep its structure at the value of the first sample, and are not zero."""
    found = {}
    for entry in interface.wrt:
        value = point.values[entry.name]
        sample = value[0] if entry.batched else value
        stack = sampling.directions(entry.structure, entry.core(point.sizes), most, random)
        stack = sampling.tangential(entry.structure, sample, stack)
        found[entry.name] = stack[[bool(direction.any()) for direction in stack]]
    return found


def _within(entry: Input, point: Point, part: Estimate) -> Estimate:
    """Differences of a gradient by an input as its second derivative is: projected again where the
    input is an orthogonal matrix."""
    value = point.values[entry.name]
    derivative = sampling.tangential(entry.structure, value, part.derivative)
    return replace(part, derivative=derivative)


def _single(interface: ModuleInterface, point: Point, value: np.ndarray) -> bool:
    """Whether the declaration in float32 is within a hundredth of its value."""
    values = {name: array.astype(np.float32) for name, array in point.values.items()}
    try:
        narrow = interface.declared_value(replace(point, values=values))
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
    counts as an error; then there are steps in the measure of the moved entries, too, where these
    are small."""
    line, length = line_along(function, point, steps)
    found = differentiate(line, centre, length, most)
    if not kinks:
        return found
    found = _sided(line, centre, KINK_STEP / length, found)
    unit = max(largest(point.values[name]) for name in steps)
    if 0 < unit < SMALL_UNIT:
        near = differentiate(line, centre, length / unit, most)
        near = _sided(line, centre, KINK_STEP * unit / length, near)
        found = tuple(
            min(pair, key=lambda estimate: largest(estimate.error))
            for pair in zip(found, near, strict=True)
        )
    return found


def line_along(
    function: Callable[[Point], tuple[np.ndarray, ...]],
    point: Point,
    steps: Mapping[str, np.ndarray],
) -> tuple[Line, float]:
    """A function of points as one of the distance from this one along `steps`, and how far a unit
    of that goes."""

    def line(distance: float) -> tuple[np.ndarray, ...]:
        moved = {
            name: np.asarray(point.values[name] + distance * step) for name, step in steps.items()
        }
        return function(replace(point, values={**point.values, **moved}))

    return line, np.sqrt(sum(float(np.sum(step**2)) for step in steps.values()))


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


def _gradient(interface: ModuleInterface, point: Point) -> tuple[np.ndarray, ...] | None:
    """The module's gradient at a point, if it has one that works."""
    if "gradient" not in interface.kinds:
        return None
    try:
        return slopes(interface, point)
    except OutOfDomain:
        return None


def slopes(interface: ModuleInterface, point: Point) -> tuple[np.ndarray, ...]:
    """The module's gradient at a point. Raises OutOfDomain where it raises, or is not finite."""
    try:
        found = tuple(interface.results("gradient", point).values())
    except CallError as error:
        raise OutOfDomain(str(error)) from error
    if not all(np.isfinite(slope).all() for slope in found):
        raise OutOfDomain("the gradient is not finite")
    return found
