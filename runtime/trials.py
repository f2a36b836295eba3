"""The points at which a module is called, in their order, and the checks made at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from derivatrix.runtime import checks, measure, operators, reach, sampling, special
from derivatrix.runtime.checks import FIRST_KINDS, SECOND_KINDS, Special, Trial
from derivatrix.runtime.curves import curves
from derivatrix.runtime.interface import (
    BATCH,
    Arrays,
    CallError,
    ModuleInterface,
    Point,
    attempt,
)
from derivatrix.runtime.measure import Measurement
from derivatrix.runtime.reach import Run
from derivatrix.runtime.reference import OutOfDomain
from derivatrix.runtime.report import MODULE, Curve, Row

CHECKS = (
    checks.check_value,
    checks.check_adjoint,
    checks.check_products,
    checks.check_symmetry,
    checks.check_structure,
    checks.check_repeat,
    checks.check_out,
)
"""The checks made at every point with small sizes."""
FIRST_POINT_CHECKS = (checks.check_float32, checks.check_layout, checks.check_linearity)
CPU_CHECKS = (checks.check_kernels, operators.check_operators)
"""Checks of the kernels and operators, which modules for devices lack."""
LARGE_CHECKS = (*CHECKS, checks.check_slopes)
DENSE_CHECKS = (checks.check_products, checks.check_repeat)
"""Checks of results so large that only one or two of them fit into memory."""
UNSTEADY_CHECKS = (checks.check_value, checks.check_repeat, checks.check_out)
"""Checks at special points where the function jumps, so that rounding decides its derivative."""
HUGE_CHECKS = (*UNSTEADY_CHECKS, checks.check_slopes)
"""Checks at special points with an entry of at least HUGE_ENTRY. Derivatives that cancel are all
rounding there, and each kind has another: they are compared with trusted differences alone."""
HUGE_ENTRY = 1e5

THOROUGH_POINTS = 20

COTANGENTS_TOLERANCE = 1e-10
"""Allowed error of a sum over the outputs, relative to the largest entry of its terms."""
SMALL_ONLY = "modules for devices are verified at small sizes alone"
SPECIAL = "special points"
"""The label of rows that special points passed."""

Check = Callable[[Trial], None]


class PointResult(NamedTuple):
    """The rows of a point, its label, and the errors of differences by their step."""

    rows: list[Row]
    label: str
    curves: tuple[Curve, ...] = ()


def small(
    interface: ModuleInterface, sizes: Mapping[str, int], seed: int, slow: bool
) -> Iterator[PointResult]:
    """Check the module at points with small sizes, random and special; `slow`: at no larger ones.

    Raises OutOfDomain when the declaration has a value at no small point, BrokenText when it
    cannot be evaluated."""
    measurements = measure.small(interface, sizes, seed)
    larger = [] if sizes or slow else measure.larger(interface, seed)
    for number, measurement in enumerate([*measurements, *larger]):
        selected: list[Check] = [*CHECKS, checks.check_differences]
        if number < len(measurements):  # a formula's NumPy text may be slow at larger sizes
            selected.append(checks.check_formulas)
        if number == 0:
            selected += FIRST_POINT_CHECKS
            if BATCH in interface.size_names and BATCH not in sizes:
                selected.append(checks.check_batch_axes)
            selected += CPU_CHECKS if interface.target == "cpu" else ()
        trial = Trial(interface, measurement)
        result = _run(trial, selected)
        if not all(row.passed for row in result.rows):
            (first, decides_first), (second, decides_second) = _roundoffs(
                interface, measurement.point, is_thorough=True
            )
            if not (decides_first or decides_second):
                trial = Trial(interface, measurement, roundoff=(first, second))
                result = _run(trial, selected)
            elif number >= len(measurements):
                continue  # rounding decides at the larger sizes, as in ill-conditioned equations
        yield result._replace(curves=tuple(curves(trial)))
    if interface.target == "cpu":
        yield _check_special_points(interface, sizes, seed)
        if BATCH in interface.size_names and BATCH not in sizes:
            yield _check_empty_batch(interface, sizes, seed)


def all_cotangents(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> PointResult:
    """Check that the VJP of the cotangents of all outputs is the sum of the VJPs of each."""
    random = np.random.default_rng([seed, 9])
    assignment = sampling.assignments(interface, sizes)[0]
    points = [special.random_point(output, assignment, random) for output in interface.outputs]
    values, label = points[0].values, points[0].label
    pairs = zip(interface.outputs, points, strict=True)
    try:
        single = [output.results("vjp", replace(p, values=values)) for output, p in pairs]
        cotangents = tuple(point.cotangent for point in points)
        result = attempt(lambda: interface.module.vjp(*values.values(), cotangents))
        together = interface.by_key("vjp", result)
    except CallError as error:
        return PointResult([Row.failure("cotangents", "vjp", str(error), point=label)], label)
    rows: list[Row] = []
    for key, array in together.items():
        terms = np.stack([part[key] for part in single])
        size = measure.largest(np.abs(terms).sum(axis=0)) or 1.0
        difference = measure.largest(array - terms.sum(axis=0)) / size
        passed = difference <= COTANGENTS_TOLERANCE
        note = "" if passed else "the cotangents together give another sum than each alone"
        rows.append(
            Row("cotangents", "vjp", key, label, difference, COTANGENTS_TOLERANCE, passed, note)
        )
    return PointResult(rows, label)


def thorough(
    interface: ModuleInterface, sizes: Mapping[str, int], seed: int
) -> Iterator[PointResult]:
    """Compare results at many points with small sizes with the declaration and its differences in
    50 digits; stop with a row that says so where a function has no implementation in these."""
    from derivatrix.runtime import exact, precise  # mpmath is loaded for these alone

    choices = sampling.assignments(interface, sizes)
    for number in range(THOROUGH_POINTS):
        random = np.random.default_rng([seed, number, THOROUGH_POINTS])
        label = f"50 digits, point {number + 1}"
        try:
            point, _ = next(measure.defined(interface, choices[number % len(choices)], random))
            measurement = exact.measure(interface, replace(point, label=label), random)
        except OutOfDomain:
            continue
        except precise.Imprecise as error:
            note = f"{error} is not known in 50 digits"
            yield PointResult([Row("digits", MODULE, "", "", 0.0, 0.0, True, note)], label)
            return
        has_second = bool(measurement.second_along)
        kinds = [kind for kind in interface.kinds if has_second or kind not in SECOND_KINDS]
        yield _run(Trial(interface, measurement, kinds), (*CHECKS, checks.check_digits))


def _run(trial: Trial, selected: Iterable[Check]) -> PointResult:
    for check in selected:
        check(trial)
    return PointResult(trial.rows, trial.point.label)


def large(interface: ModuleInterface, run: Run, seed: int) -> Iterator[PointResult]:
    """Check the module at the sizes of a run; not at all where the declaration has no value."""
    kinds = [kind for kind in run.kinds if kind != interface.operator]
    entries = {kind: reach.entries(interface, kind, run.sizes) for kind in kinds}
    usual = [kind for kind in kinds if entries[kind] <= reach.MAX_ENTRIES]
    try:
        measurement = measure.large(interface, run.sizes, seed, usual)
    except OutOfDomain:
        return
    selected: list[Check] = [*LARGE_CHECKS]
    if interface.operator in run.kinds:
        selected.append(operators.check_products)
    if min(run.sizes.values()) == reach.LARGE_SIZE:  # larger ones may leave no digit in float32
        selected.append(checks.check_float32)
    yield _run(Trial(interface, measurement, usual), selected)
    references = [kind for kind in usual if kind in ("jvp", "vjp", "hvp", "gradient")]
    for kind in kinds:
        if kind not in usual:
            yield _run(Trial(interface, measurement, [kind, *references]), DENSE_CHECKS)


def _check_special_points(
    interface: ModuleInterface, sizes: Mapping[str, int], seed: int
) -> PointResult:
    """Check the module at special points; of the rows that passed, return only that nearest to
    failure for each check, function and input."""
    worst: dict[tuple[str, str, str], Row] = {}
    failed: list[Row] = []
    results = [
        *(
            _check_special_point(interface, *p, seed)
            for p in special.points(interface, sizes, seed)
        ),
        *(
            _check_special_point(interface, point, (), seed, is_smooth=True)
            for point in special.beside_thresholds(interface, sizes, seed)
        ),
    ]
    for rows in results:
        for row in rows:
            key = (row.check, row.function, row.input)
            if not row.passed:
                failed.append(row)
            elif key not in worst or _nearness(row) > _nearness(worst[key]):
                worst[key] = row
    passed = [replace(row, point=SPECIAL) for row in worst.values()]
    return PointResult([*passed, *failed], SPECIAL)


def _nearness(row: Row) -> tuple[bool, float]:
    return row.decides, row.error_ratio


def _check_special_point(
    interface: ModuleInterface,
    point: Point,
    single: tuple[Point, ...],
    seed: int,
    is_smooth: bool = False,
) -> list[Row]:
    """Check the module at a special point; if a check fails, measure the effect of rounding more
    thoroughly, and check again. single: see `SpecialPoint`.
    is_smooth: the function is known to have no kink near.

    Where the declaration has no value, a function may return anything or raise an error of the
    mathematics, and no other error."""
    try:
        measurement = measure.special(interface, point, seed, with_second=is_smooth)
    except OutOfDomain:
        return [
            Row.failure("call", kind, str(error), point=point.label)
            for kind in interface.kinds
            if (error := _call_error(interface, kind, point)) and not checks.is_undefined(error)
        ]
    check = partial(_check_measured_point, interface, single=single, is_smooth=is_smooth)
    rows = check(measurement)
    if all(row.passed for row in rows):
        return rows
    return check(_measure_again(interface, measurement, seed), is_thorough=True)


def _measure_again(interface: ModuleInterface, measurement: Measurement, seed: int) -> Measurement:
    """Measure again in 50 digits, if every function that the declaration calls is known in these.
    The sensitivity to rounding is the error of NumPy's value, as kernels compute like NumPy, or the
    change of the module's own value, if that is larger: rounding may leave the function's domain.
    """
    from derivatrix.runtime import exact, precise  # mpmath is loaded for these alone

    point, value = measurement.point, measurement.value
    change, _ = measure.roundoff(interface, point, ["value"], is_thorough=True)
    sensitivity = max(change, measurement.sensitivity)
    if sum(array.size for array in point.values.values()) <= checks.MAX_PRECISE_ENTRIES:
        with suppress(OutOfDomain, precise.Imprecise):
            measurement = exact.measure(interface, point, np.random.default_rng([seed, 3]))
    error = measure.largest(value - measurement.value)
    return replace(measurement, sensitivity=max(error, sensitivity))


def _check_measured_point(
    interface: ModuleInterface,
    measurement: Measurement,
    single: tuple[Point, ...],
    is_smooth: bool,
    is_thorough: bool = False,
) -> list[Row]:
    """Check the module at a special point that has been measured. is_thorough: estimate what
    rounding changes from all derivatives, not from the cheapest of each order alone."""
    point = measurement.point
    (first, decides_first), (second, decides_second) = _roundoffs(interface, point, is_thorough)
    is_unsteady = not measurement.is_steady or decides_first
    if is_thorough:  # then a derivative may be ∞ / ∞ on the way, as that of x / exp(x)
        is_unsteady = is_unsteady or interface.overflows(point)
    is_huge = max(map(measure.largest, point.values.values()), default=0.0) >= HUGE_ENTRY
    left_out = {*SECOND_KINDS} if is_huge or is_unsteady or decides_second else set()
    if is_huge and is_thorough and {"jvp", "vjp"} & {*interface.kinds}:
        left_out.add("jacobian")  # which is multiplied out: its terms are the largest
    checked_kinds = [kind for kind in interface.kinds if kind not in left_out]
    special_point = Special(is_unsteady, single)
    trial = Trial(interface, measurement, checked_kinds, special_point, (first, second))
    steady = HUGE_CHECKS if is_huge else (*CHECKS, checks.check_slopes)
    return _run(trial, UNSTEADY_CHECKS if is_unsteady else steady).rows


def _roundoffs(
    interface: ModuleInterface, point: Point, is_thorough: bool
) -> list[tuple[float, bool]]:
    """Estimate by how much rounding changes the first derivatives and the second ones, and whether
    it decides them. is_thorough: from all kinds, not from the cheapest one of each order alone."""
    first, second = (
        [kind for kind in kinds if kind in interface.kinds] for kinds in (FIRST_KINDS, SECOND_KINDS)
    )
    number = None if is_thorough else 1
    return [
        measure.roundoff(interface, point, kinds[:number], is_thorough)
        for kinds in (first or ["value"], second)
    ]


def _call_error(interface: ModuleInterface, kind: str, point: Point) -> CallError | None:
    try:
        interface.results(kind, point)
    except CallError as error:
        return error
    return None


def _check_empty_batch(
    interface: ModuleInterface, sizes: Mapping[str, int], seed: int
) -> PointResult:
    """Check the results for a batch of no samples, by call, `out=` and kernel: sums over the batch
    are zero. The arrays to be filled hold nan before."""
    random = np.random.default_rng([seed, 8])
    point = special.random_point(interface, sampling.assignments(interface, sizes)[0], random)
    batched = {entry.name for entry in interface.inputs if entry.batched}

    def emptied(arrays: Arrays) -> Arrays:
        return {name: a[:0] if name in batched else a for name, a in arrays.items()}

    cotangent = point.cotangent[:0] if interface.batched else point.cotangent
    empty = {**point.sizes, BATCH: 0}
    label = ", ".join(f"{name}={size}" for name, size in empty.items())
    point = Point(empty, label, emptied(point.values), emptied(point.tangents), cotangent)
    rows: list[Row] = []
    for kind in interface.kinds if sampling.meets(empty, interface.requirements) else ():
        out = interface.packed(kind, interface.unfilled(kind, empty), empty)
        calls = (
            partial(interface.results, kind, point),
            partial(interface.results, kind, point, out),
            partial(interface.filled, kind, point),
        )
        for call in calls:
            try:
                results = call()
            except CallError as error:
                rows.append(Row.failure("call", kind, str(error), point=label))
                continue
            for key, array in results.items():
                size = measure.largest(array)
                note = "" if size == 0 else f"{size:.10g} where 0 is expected"
                rows.append(Row("empty batch", kind, key, label, size, 0.0, size == 0, note))
    return PointResult(rows, label)
