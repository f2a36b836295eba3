"""The points at which a module is called, in their order, and the checks made at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from derivatrix.runtime import checks, measure, operators, reach, sampling, special
from derivatrix.runtime.checks import Trial
from derivatrix.runtime.curves import curves
from derivatrix.runtime.interface import BATCH, CallError, ModuleInterface, Point
from derivatrix.runtime.reach import Run
from derivatrix.runtime.reference import OutOfDomain
from derivatrix.runtime.report import MODULE, Curve, Row

EVERYWHERE = (
    checks.check_value,
    checks.check_adjoint,
    checks.check_products,
    checks.check_symmetry,
    checks.check_structure,
    checks.check_repeat,
    checks.check_out,
)
SMALL = (checks.check_formulas,)
"""Left out where sizes are larger: a formula's text need not be a fast way to compute it."""
ONCE = (checks.check_float32, checks.check_layout, checks.check_linearity)
ON_CPU = (checks.check_kernels, operators.check_operators)
"""What modules for the CPU have besides: kernels to be called directly, and operators."""
WIDE = (*EVERYWHERE, checks.check_slopes, checks.check_float32)
DENSE = (checks.check_products, checks.check_repeat)
"""For results with so many entries that little more than one of them is to be in memory."""
UNSTEADY = (checks.check_value, checks.check_repeat, checks.check_out)
"""For special points where the function jumps, so that rounding decides which derivative it has."""

HUGE = (*UNSTEADY, checks.check_slopes)
"""For special points with entries of at least HUGE_ENTRY: derivatives that cancel are all rounding
there, each in another way, so that they are compared with trusted differences alone."""
HUGE_ENTRY = 1e5

MANY = 20
"""Points of a thorough verification."""

SMALL_ONLY = "modules for devices are verified at small sizes alone"
SPECIAL = "special points"
"""The label of rows that special points passed."""

Check = Callable[[Trial], None]


class Rows(NamedTuple):
    """What was found at a point: its rows, its label, and how differences go with their step."""

    rows: list[Row]
    label: str
    curves: tuple[Curve, ...] = ()


def small(
    interface: ModuleInterface, sizes: Mapping[str, int], seed: int, slow: bool
) -> Iterator[Rows]:
    """The rows of every point with small sizes, random and special, and its label.

    Raises OutOfDomain when no small point has a value, BrokenText where the declaration cannot be
    evaluated."""
    found = measure.small(interface, sizes, seed)
    larger = [] if sizes or slow else measure.large(interface, seed)
    for number, measurement in enumerate([*found, *larger]):
        extra = SMALL if number < len(found) else ()
        once = () if number else ONCE + (ON_CPU if interface.target == "cpu" else ())
        trial = Trial(interface, measurement)
        rows = _rows(trial, (*EVERYWHERE, checks.check_differences, *extra, *once))
        yield rows._replace(curves=tuple(curves(trial)))
    if interface.target == "cpu":
        yield _specials(interface, sizes, seed)
        if BATCH in interface.size_names and BATCH not in sizes:
            yield _empty_batch(interface, sizes, seed)


def thorough(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> Iterator[Rows]:
    """The rows of many points with small sizes, where results are compared with the declaration and
    its differences in 50 digits; of none where these are not known, and then why."""
    from derivatrix.runtime import exact, precise  # mpmath is loaded for these alone

    choices = sampling.assignments(interface, sizes)
    for number in range(MANY):
        random = np.random.default_rng([seed, number, MANY])
        label = f"50 digits, point {number + 1}"
        try:
            point, _ = next(measure.defined(interface, choices[number % len(choices)], random))
            measurement = exact.measure(interface, replace(point, label=label), random)
        except OutOfDomain:
            continue
        except precise.Imprecise as error:
            note = f"{error} is not known in 50 digits"
            yield Rows([Row("digits", MODULE, "", "", 0.0, 0.0, True, note)], label)
            return
        second = measurement.second_along
        kinds = [kind for kind in interface.kinds if second or kind not in ("hessian", "hvp")]
        yield _rows(Trial(interface, measurement, kinds), (*EVERYWHERE, checks.check_digits))


def _rows(trial: Trial, wanted: Iterable[Check]) -> Rows:
    for check in wanted:
        check(trial)
    return Rows(trial.rows, trial.point.label)


def large(interface: ModuleInterface, run: Run, seed: int) -> Iterator[Rows]:
    """The rows at sizes that a search has chosen; none where the declaration has no value."""
    kinds = [kind for kind in run.kinds if kind != interface.operator]
    most = {kind: reach.entries(interface, kind, run.sizes) for kind in kinds}
    usual = [kind for kind in kinds if most[kind] <= reach.ENTRIES]
    try:
        measurement = measure.wide(interface, run.sizes, seed, usual)
    except OutOfDomain:
        return
    products = (operators.check_products,) * (interface.operator in run.kinds)
    yield _rows(Trial(interface, measurement, usual), (*WIDE, *products))
    for kind in kinds:
        if kind not in usual:
            others = [other for other in usual if other in ("jvp", "vjp", "hvp", "gradient")]
            yield _rows(Trial(interface, measurement, [kind, *others]), DENSE)


def _specials(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> Rows:
    """The rows at special points: of those passed, the one that is nearest to failure."""
    worst: dict[tuple[str, str, str], Row] = {}
    failed: list[Row] = []
    points = [(point, False) for point in special.points(interface, sizes, seed)]
    points += [(point, True) for point in special.beside_thresholds(interface, sizes, seed)]
    for point, is_smooth in points:
        for row in _special(interface, point, seed, is_smooth):
            key = (row.check, row.function, row.input)
            if not row.passed:
                failed.append(row)
            elif key not in worst or _nearness(row) > _nearness(worst[key]):
                worst[key] = row
    passed = [replace(row, point=SPECIAL) for row in worst.values()]
    return Rows([*passed, *failed], SPECIAL)


def _nearness(row: Row) -> tuple[bool, float]:
    return row.decides, row.part


def _special(interface: ModuleInterface, point: Point, seed: int, is_smooth: bool) -> list[Row]:
    """The rows at a special point; is_smooth: whether a kink of the function is known to be far."""
    try:
        measurement = measure.special(interface, point, seed, with_second=is_smooth)
    except OutOfDomain:
        return _undefined(interface, point)
    kind = next((k for k in ("jvp", "gradient", "vjp") if k in interface.kinds), "value")
    first, sensitive = measure.roundoff(interface, point, kind)
    unsteady = not measurement.steady or sensitive
    kinds: tuple[str, ...] = interface.kinds
    second = 0.0
    if "hvp" in kinds:
        second, sensitive = measure.roundoff(interface, point, "hvp")
        if unsteady or sensitive:
            kinds = tuple(kind for kind in kinds if kind not in checks.SECOND)
    is_huge = max(map(measure.largest, point.values.values()), default=0.0) >= HUGE_ENTRY
    if is_huge:
        kinds = tuple(kind for kind in kinds if kind not in checks.SECOND)
    trial = Trial(interface, measurement, kinds, special=True, noise=(first, second))
    usual = HUGE if is_huge else (*EVERYWHERE, checks.check_slopes)
    return _rows(trial, UNSTEADY if unsteady else usual).rows


def _empty_batch(interface: ModuleInterface, sizes: Mapping[str, int], seed: int) -> Rows:
    """The rows of a batch of no samples: all that is left of the results, sums over it, is zero.
    `out=` and the arrays of kernels are full of nan before."""
    random = np.random.default_rng([seed, 8])
    point = special.usual(interface, sampling.assignments(interface, sizes)[0], random)
    values = {
        entry.name: point.values[entry.name][:0] if entry.batched else point.values[entry.name]
        for entry in interface.inputs
    }
    tangents = {
        entry.name: point.tangents[entry.name][:0] if entry.batched else point.tangents[entry.name]
        for entry in interface.wrt
    }
    cotangent = point.cotangent[:0] if interface.batched else point.cotangent
    empty = {**point.sizes, BATCH: 0}
    label = ", ".join(f"{name}={size}" for name, size in empty.items())
    point = Point(empty, label, values, tangents, cotangent)
    rows: list[Row] = []
    for kind in interface.kinds if sampling.meets(empty, interface.requirements) else ():
        shapes = {key: interface.shape(kind, key, empty) for key in interface.keys(kind)}
        target = {key: np.full(shape, np.nan) for key, shape in shapes.items()}
        calls = (
            lambda kind=kind: interface.results(kind, point),
            lambda kind=kind, target=target: interface.results(
                kind, point, interface.packed(kind, target)
            ),
            lambda kind=kind: interface.filled(kind, point),
        )
        for call in calls:
            try:
                results = call()
            except CallError as error:
                rows.append(Row("call", kind, "", label, np.inf, 0.0, False, str(error)))
                continue
            for key, array in results.items():
                size = measure.largest(array)
                note = "" if size == 0 else f"{size:.10g} where 0 is expected"
                rows.append(Row("empty batch", kind, key, label, size, 0.0, size == 0, note))
    return Rows(rows, label)


def _undefined(interface: ModuleInterface, point: Point) -> list[Row]:
    """Where the declaration has no value a function may return what it likes or raise an error of
    the mathematics, and may do nothing else."""
    rows = []
    for kind in interface.kinds:
        try:
            interface.results(kind, point)
        except CallError as error:
            if not checks.undefined(error):
                rows.append(
                    Row("call", kind, "", point.label, float("inf"), 0.0, False, str(error))
                )
    return rows
