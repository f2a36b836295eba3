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

ACCURATE_ERROR = 5e-9
"""The relative error of differences that a point should have; without one the best is taken."""
MAX_DRAWN_POINTS = 40
"""Most points drawn for one assignment of sizes."""
MAX_MEASURED_POINTS = 8
"""Most points, of those drawn for one assignment, at which differences are computed."""
ENOUGH_ACCURATE_POINTS = 4
"""Points with accurate differences after which the search for a better one ends: a derivative that
is zero at all of them is zero, and not that of a function that saturates."""
NONZERO_RATIO = 100
"""A derivative more than this many times its error is not zero."""
FLOAT32_AGREEMENT = 1e-2
"""Largest relative difference of the declared values in float32 and float64 at a usable point."""
MAX_FLOAT32_MAGNITUDE = 1e30
"""Bound on values and derivatives, so that float32 can hold them."""
LARGE_ACCURATE_ERROR = 1e-7
"""The relative error of differences at large sizes that ends the search for a better point."""
MIN_LARGE_VALUE = 2.0**-40
"""The search at large sizes goes on while no entry of the value is this large: where a function
saturates, as softmax does, its derivative is all rounding of terms that cancel."""
MIN_VALUE = 1e-280
"""Smaller values have derivatives that underflow."""
SMALL_DIRECTIONS = 200
"""Most directions of an input along which the declaration is differentiated at small sizes: a basis
for all but inputs with more entries."""
LARGER_DIRECTIONS = 4
"""Most single entries of an input along which the declaration is differentiated at larger sizes;
dense directions, which show any wrong entry, come on top."""
LARGE_MAX_STEPS = 3
"""Most steps of differences tried at large sizes."""
FLOAT64_ROUNDING = 2.0**-29
"""Ratio of the rounding of float64, 2⁻⁵³, to that of float32, 2⁻²⁴."""
PERTURBATION = 2.0**-45
"""Perturbation of the inputs, relative to their largest entries, that reveals the sensitivity of
results to rounding."""
MAX_STEADY_CHANGE = 1e-6
"""Largest relative change of the value by PERTURBATION at a point that is no jump."""
MAX_STABLE_CHANGE = 1e-4
"""Largest relative change of a derivative by PERTURBATION; rounding decides derivatives that change
more."""
THOROUGH_PERTURBATIONS = 8
"""Perturbations that are compared where a check has failed."""
MAX_TRUSTED_ERROR = 1e-5
"""Largest relative error of differences that results at special points and large sizes are compared
with."""
SMALL_UNIT = 0.1
"""Inputs with no larger entry are differentiated with steps relative to that entry, too."""
KINK_STEP = 2.0**-20
"""Step at which one-sided differences are compared, to detect a kink."""


@dataclass(frozen=True)
class Measurement:
    """The declared value and finite differences at a point.

    directions: for each `wrt` input, K directions for one sample along which it keeps its
    structure, stacked; none for an orthogonal matrix of one row.
    first: differences of the value along these, by input: shape (K, *value.shape).
    along: differences of the value along the point's tangents, each projected on its input's
    structure, as the module's functions project them.
    second: differences of the gradient by X along the directions of Y, by "X, Y".
    second_along: differences of the gradient by X along the tangents, by X.
    The last two are empty where they are not needed, and where the module has no working gradient;
    first and second lack inputs without directions.
    float32_agrees: whether the declaration has nearly the same value in float32.
    sensitivity: the error of the declared value by rounding, estimated from a perturbation of the
    inputs slightly above rounding and from its value in float32; infinite if the value becomes
    undefined. Computed at special points and large sizes.
    """

    point: Point
    value: np.ndarray
    directions: Arrays
    first: dict[str, Estimate]
    along: Estimate
    second: dict[str, Estimate]
    second_along: dict[str, Estimate]
    float32_agrees: bool
    sensitivity: float = 0.0

    @property
    def is_steady(self) -> bool:
        """True if the declared value is that of the surrounding points, but for rounding."""
        return self.sensitivity <= MAX_STEADY_CHANGE * (largest(self.value) or 1.0)

    @property
    def is_accurate(self) -> bool:
        """True if the declared value is not all rounding, as the determinant of a singular matrix
        is, nor underflow."""
        size = largest(self.value)
        return size > MIN_VALUE and self.sensitivity <= MAX_STEADY_CHANGE * size

    @property
    def is_tiny(self) -> bool:
        """True if the value may be rounding of terms of size 1 that cancel."""
        return largest(self.value) < MIN_LARGE_VALUE

    @property
    def error(self) -> float:
        """The largest error of all differences, relative to the largest entry of their arrays."""
        second = [*self.second.values(), *self.second_along.values()]
        errors = [_relative_error(estimate, self.gradient_size) for estimate in second]
        return max([self.first_error, *errors])

    @property
    def first_error(self) -> float:
        """The largest relative error of the differences of the value."""
        size = largest(self.value)
        return max(
            _relative_error(estimate, size) for estimate in (*self.first.values(), self.along)
        )

    @property
    def gradient_size(self) -> float:
        """The size of the numbers that second differences are computed from."""
        estimates = self.first.values() or (self.along,)
        return max(largest(self.value), *(largest(part.derivative) for part in estimates))

    @property
    def is_usable(self) -> bool:
        """True if all differences are accurate, small ones included, and fit float32."""
        first = [*self.first.values(), self.along]
        estimates = [*first, *self.second.values(), *self.second_along.values()]
        size = max(largest(self.value), *(largest(part.derivative) for part in estimates))
        return (
            self.float32_agrees
            and size < MAX_FLOAT32_MAGNITUDE
            and all(
                part.constant or _relative_error(part, 0.0) <= ACCURATE_ERROR for part in estimates
            )
        )


def largest(array: np.ndarray) -> float:
    """Return the largest absolute value, 0 for no entries."""
    return float(np.abs(array).max(initial=0.0))


def scale(array: np.ndarray, floor: float) -> float:
    """Return the scale of relative errors in an array: its largest entry; `floor`, the size of the
    numbers it was computed from, if that entry is rounding; or 1 if `floor` is 0."""
    size = largest(array)
    return size if size > 1e-10 * floor else floor or 1.0


def magnitude(derivative: np.ndarray, error: np.ndarray, floor: float) -> float:
    """Return the scale of relative errors in differences: their largest entry if it stands out from
    their errors, else that of `scale`."""
    size = largest(derivative)
    return size if size > NONZERO_RATIO * largest(error) else scale(derivative, floor)


def is_trusted(estimate: Estimate, floor: float) -> bool:
    """Return whether differences are accurate enough to be compared with at special points."""
    return _relative_error(estimate, floor) <= MAX_TRUSTED_ERROR


def _relative_error(estimate: Estimate, floor: float) -> float:
    return largest(estimate.error) / magnitude(estimate.derivative, estimate.error, floor)


def small(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> list[Measurement]:
    """Measure at two points with small sizes, of different assignments if there are two.

    Raises OutOfDomain if no point has a finite real value."""
    candidates = sampling.assignments(interface, sizes)
    accurate: list[Measurement] = []
    inaccurate: list[Measurement] = []
    reasons: list[str] = []
    for number, candidate in enumerate(candidates if len(candidates) > 1 else candidates * 2):
        try:
            measurement = _measure_best(interface, candidate, [seed, number], SMALL_DIRECTIONS)
        except OutOfDomain as reason:
            reasons.append(str(reason))
            continue
        (accurate if measurement.error <= ACCURATE_ERROR else inaccurate).append(measurement)
        if len(accurate) == 2:
            break
    best = [*accurate, *sorted(inaccurate, key=lambda measurement: measurement.error)][:2]
    if not best:
        raise OutOfDomain(reasons[0])
    return [_with_number(measurement, number) for number, measurement in enumerate(best, 1)]


def _with_number(measurement: Measurement, number: int) -> Measurement:
    label = f"point {number}: {measurement.point.label}"
    return replace(measurement, point=replace(measurement.point, label=label))


def larger(interface: ModuleInterface, seed: int) -> list[Measurement]:
    """Measure at one point with larger sizes; at none if the function is ill-conditioned there."""
    sizes = sampling.larger_sizes(interface)
    if sizes is None:
        return []
    try:
        measurement = _measure_best(interface, sizes, [seed, len(sizes), 1], LARGER_DIRECTIONS)
    except OutOfDomain:
        return []
    return [_with_number(measurement, 3)] if measurement.first_error <= ACCURATE_ERROR else []


def large(interface: ModuleInterface, sizes: Sizes, seed: int, kinds: Sequence[str]) -> Measurement:
    """Measure at a point with large sizes, along the tangents alone. Differences of the gradient,
    which may be the largest array by far, are left out unless `kinds` has second derivatives.

    Raises OutOfDomain if no point has a finite real value that rounding does not decide, as it
    decides the determinant of a singular matrix."""
    random = np.random.default_rng([seed, *sizes.values()])
    with_second = "hvp" in kinds or "hessian" in kinds
    measurements: list[Measurement] = []
    for point, value in defined(interface, sizes, random):
        measurement = _measure(
            interface, point, value, {}, max_steps=LARGE_MAX_STEPS, with_second=with_second
        )
        change = _sensitivity(interface, point, value)
        measurements.append(replace(measurement, sensitivity=change))
        best = min(measurements, key=lambda m: (not m.is_accurate, m.is_tiny, m.first_error))
        is_accurate = best.first_error <= LARGE_ACCURATE_ERROR and best.is_accurate
        if (is_accurate and not best.is_tiny) or len(measurements) == ENOUGH_ACCURATE_POINTS:
            break
    if not best.is_accurate:
        raise OutOfDomain("rounding decides the value")
    return best


def defined(
    interface: ModuleInterface, sizes: Sizes, random: np.random.Generator
) -> Iterator[tuple[Point, np.ndarray]]:
    """Draw MAX_DRAWN_POINTS, and yield those where the declaration has a value, with the value.
    Raises OutOfDomain, with the first reason, if there is none."""
    reasons: list[OutOfDomain] = []
    for point in itertools.islice(sampling.draws(interface, sizes, random), MAX_DRAWN_POINTS):
        try:
            value = interface.declared_value(point)
        except OutOfDomain as error:
            reasons.append(error)
        else:
            yield point, value
    if len(reasons) == MAX_DRAWN_POINTS:
        raise reasons[0]


def special(
    interface: ModuleInterface, point: Point, seed: int, with_second: bool = False
) -> Measurement:
    """Measure at a special point. A kink there shows as a large error of the differences.

    with_second: the point is known to be no kink. Otherwise the gradient is not differentiated:
    that of ‖x‖ is constant along lines through 0, but its derivative is not 0.
    Raises OutOfDomain where the declaration has no finite real value."""
    value = interface.declared_value(point)
    directions = input_directions(interface, point, 0, np.random.default_rng([seed, 3]))
    measurement = _measure(
        interface, point, value, directions, detect_kinks=True, with_second=with_second
    )
    return replace(measurement, sensitivity=_sensitivity(interface, point, value))


def _sensitivity(interface: ModuleInterface, point: Point, value: np.ndarray) -> float:
    """Estimate the error of the declared value: by perturbed inputs, and by its value in float32,
    which shows where the declaration subtracts nearly equal numbers."""
    perturbed = sampling.perturb(interface, point, PERTURBATION)
    try:
        change = largest(interface.declared_value(perturbed) - value)
    except OutOfDomain:
        return np.inf
    single = _value_in_float32(interface, point)
    return change if single is None else max(change, FLOAT64_ROUNDING * largest(single - value))


def _value_in_float32(interface: ModuleInterface, point: Point) -> np.ndarray | None:
    """Evaluate the declaration in float32; None where it has no value."""
    values = {name: array.astype(np.float32) for name, array in point.values.items()}
    try:
        return interface.declared_value(replace(point, values=values))
    except OutOfDomain:
        return None


def roundoff(
    interface: ModuleInterface, point: Point, kinds: Sequence[str], is_thorough: bool = False
) -> tuple[float, bool]:
    """Return the largest difference of functions' results at points that differ from this one by
    little more than rounding, and whether a difference is too large to check these results;
    infinite where a function fails at such a point, or is not finite at some of them alone.

    is_thorough: compare more points, and results in float32, which takes a compilation."""
    number = THOROUGH_PERTURBATIONS if is_thorough else 2
    points = [sampling.perturb(interface, point, PERTURBATION, 1 + seed) for seed in range(number)]
    differences, sizes = [0.0], [1.0]
    for kind in kinds:
        try:
            results = [interface.results(kind, nearby) for nearby in points]
            if is_thorough:
                differences.append(_change_in_float32(interface, point, kind))
        except CallError:
            return np.inf, True
        for key, array in results[0].items():
            finite = [bool(np.isfinite(result[key]).all()) for result in results]
            if not any(finite):
                continue  # rounding does not decide
            sizes.append(largest(array))
            differences += [
                largest(result[key] - array) if all(finite) else np.inf for result in results[1:]
            ]
    difference = max(differences)
    return difference, not difference <= MAX_STABLE_CHANGE * max(sizes)


def _change_in_float32(interface: ModuleInterface, point: Point, kind: str) -> float:
    """Estimate the rounding error of a function's results from those in float32; 0 where these
    overflow. Raises CallError."""
    dtypes = (np.float32, np.float64)  # of numbers alone, these are float64
    single = interface.results(
        kind, point.mapped(lambda array: array.astype(np.float32)), None, dtypes
    )
    double = interface.results(kind, point)
    with np.errstate(invalid="ignore"):
        changes = [FLOAT64_ROUNDING * largest(single[key] - array) for key, array in double.items()]
    return max(filter(np.isfinite, changes), default=0.0)


def is_smooth(interface: ModuleInterface, point: Point) -> bool:
    """Return whether differences of the module's gradient along the tangents show that it has a
    derivative at a special point."""
    gradient = _gradient(interface, point)
    if gradient is None:
        return False
    function = partial(slopes, interface)
    estimates = _along(function, gradient, point, tangents(interface, point), detect_kinks=True)
    return all(
        is_trusted(estimate, max(1.0, largest(slope)))
        for estimate, slope in zip(estimates, gradient, strict=True)
    )


def _measure_best(
    interface: ModuleInterface, sizes: Sizes, seed: list[int], max_directions: int
) -> Measurement:
    """Measure at points until one has usable differences, and return it or the most accurate."""
    random = np.random.default_rng(seed)
    measurements: list[Measurement] = []
    for point, value in defined(interface, sizes, random):
        directions = input_directions(interface, point, max_directions, random)
        measurement = _measure(interface, point, value, directions)
        if measurement.is_usable:
            return measurement
        measurements.append(measurement)
        best = min(measurements, key=lambda measurement: measurement.error)
        is_accurate = best.error <= ACCURATE_ERROR
        if len(measurements) == (ENOUGH_ACCURATE_POINTS if is_accurate else MAX_MEASURED_POINTS):
            break
    return best


def _measure(
    interface: ModuleInterface,
    point: Point,
    value: np.ndarray,
    directions: Arrays,
    detect_kinks: bool = False,
    max_steps: int = len(STEPS),
    with_second: bool = True,
) -> Measurement:
    """Differentiate the declaration along the directions of each input and along the tangents, and
    `with_second` the module's gradient, too, if there is a second derivative to compare with.
    detect_kinks, max_steps: see `_along`."""
    along_steps = partial(_along, detect_kinks=detect_kinks, max_steps=max_steps)
    projected = tangents(interface, point)

    def values(moved: Point) -> tuple[np.ndarray, ...]:
        return (interface.declared_value(moved),)

    first = {
        name: Estimate.stack(
            [along_steps(values, (value,), point, {name: step})[0] for step in stack]
        )
        for name, stack in directions.items()
        if len(stack)
    }
    (along,) = along_steps(values, (value,), point, projected)
    second: dict[str, Estimate] = {}
    second_along: dict[str, Estimate] = {}
    has_second = "hessian" in interface.kinds or "hvp" in interface.kinds
    gradient = _gradient(interface, point) if with_second and has_second else None
    if gradient is not None:
        along_gradient = partial(along_steps, partial(slopes, interface), gradient, point)
        for name, stack in directions.items():
            columns = [along_gradient({name: step}) for step in stack]
            for position, entry in enumerate(interface.wrt if columns else ()):
                blocks = [_project(entry, point, column[position]) for column in columns]
                second[f"{entry.name}, {name}"] = Estimate.stack(blocks)
        second_along = {
            entry.name: _project(entry, point, estimate)
            for entry, estimate in zip(interface.wrt, along_gradient(projected), strict=True)
        }
    single = _value_in_float32(interface, point)
    agrees = single is not None and largest(single - value) <= FLOAT32_AGREEMENT * largest(value)
    return Measurement(point, value, directions, first, along, second, second_along, agrees)


def tangents(interface: ModuleInterface, point: Point) -> Arrays:
    """Project the point's tangents on the structures of their inputs."""
    return {
        entry.name: sampling.tangential(
            entry.structure, point.values[entry.name], point.tangents[entry.name]
        )
        for entry in interface.wrt
    }


def input_directions(
    interface: ModuleInterface, point: Point, limit: int, random: np.random.Generator
) -> Arrays:
    """Stack directions for one sample of each `wrt` input (see `sampling.directions`): tangential
    to its structure at the first sample, and not zero. There are none where the module has no
    derivative that differences along single inputs are compared with."""
    directions = {}
    for entry in interface.wrt if {*interface.kinds} - {"value", "jvp"} else ():
        value = point.values[entry.name]
        sample = value[0] if entry.batched else value
        stack = sampling.directions(entry.structure, entry.core(point.sizes), limit, random)
        stack = sampling.tangential(entry.structure, sample, stack)
        directions[entry.name] = stack[[bool(direction.any()) for direction in stack]]
    return directions


def _project(entry: Input, point: Point, estimate: Estimate) -> Estimate:
    """Project differences of a gradient on the input's structure, as the module projects second
    derivatives: the step from an orthogonal matrix has left its tangent space."""
    value = point.values[entry.name]
    derivative = sampling.tangential(entry.structure, value, estimate.derivative)
    return replace(estimate, derivative=derivative)


def _along(
    function: Callable[[Point], tuple[np.ndarray, ...]],
    centre: tuple[np.ndarray, ...],
    point: Point,
    steps: Mapping[str, np.ndarray],
    detect_kinks: bool = False,
    max_steps: int = len(STEPS),
) -> tuple[Estimate, ...]:
    """Differentiate a function of points along `steps`, by input; a step without a batch axis moves
    every sample. detect_kinks: include the difference of the two one-sided slopes in the error, and
    where the entries are small try steps relative to them, too."""
    line, length = line_along(function, point, steps)
    estimates = differentiate(line, centre, length, max_steps)
    if not detect_kinks:
        return estimates
    estimates = _with_kink_error(line, centre, KINK_STEP / length, estimates)
    unit = max(largest(point.values[name]) for name in steps)
    if 0 < unit < SMALL_UNIT:
        near = differentiate(line, centre, length / unit, max_steps)
        near = _with_kink_error(line, centre, KINK_STEP * unit / length, near)
        estimates = tuple(
            min(pair, key=lambda estimate: largest(estimate.error))
            for pair in zip(estimates, near, strict=True)
        )
    return estimates


def line_along(
    function: Callable[[Point], tuple[np.ndarray, ...]],
    point: Point,
    steps: Mapping[str, np.ndarray],
) -> tuple[Line, float]:
    """Restrict a function of points to the line from `point` along `steps`; also return the length
    of `steps`."""

    def line(distance: float) -> tuple[np.ndarray, ...]:
        moved = {
            name: np.asarray(point.values[name] + distance * step) for name, step in steps.items()
        }
        return function(replace(point, values={**point.values, **moved}))

    return line, np.sqrt(sum(float(np.sum(step**2)) for step in steps.values()))


def _with_kink_error(
    line: Line, centre: tuple[np.ndarray, ...], step: float, estimates: tuple[Estimate, ...]
) -> tuple[Estimate, ...]:
    """Add the difference of the two one-sided slopes to the errors; infinite at a domain's edge."""
    try:
        sides = line(step), line(-step)
    except OutOfDomain:
        return tuple(replace(part, error=np.full_like(part.error, np.inf)) for part in estimates)
    return tuple(
        replace(part, error=part.error + np.abs(ahead - 2 * value + behind) / step)
        for part, value, ahead, behind in zip(estimates, centre, *sides, strict=True)
    )


def _gradient(interface: ModuleInterface, point: Point) -> tuple[np.ndarray, ...] | None:
    """Call the module's gradient at a point; None if there is none or it fails."""
    if "gradient" not in interface.kinds:
        return None
    try:
        return slopes(interface, point)
    except OutOfDomain:
        return None


def slopes(interface: ModuleInterface, point: Point) -> tuple[np.ndarray, ...]:
    """Call the module's gradient at a point. Raises OutOfDomain if it raises or is not finite."""
    try:
        gradient = tuple(interface.results("gradient", point).values())
    except CallError as error:
        raise OutOfDomain(str(error)) from error
    if not all(np.isfinite(slope).all() for slope in gradient):
        raise OutOfDomain("the gradient is not finite")
    return gradient
