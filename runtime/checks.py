"""The checks of verification, each on the results of a module at one point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.differences import Estimate
from derivatrix.runtime.interface import Arrays, CallError, Input, ModuleInterface, Point
from derivatrix.runtime.measure import (
    MAX_FLOAT32_MAGNITUDE,
    MAX_TRUSTED_ERROR,
    Measurement,
    is_smooth,
    is_trusted,
    largest,
    magnitude,
    scale,
)
from derivatrix.runtime.measure import special as measure_special
from derivatrix.runtime.reference import BrokenText, OutOfDomain, Text, Values
from derivatrix.runtime.report import LARGEST_ENTRY, Row

PERTURBATION = 1e-4
"""The relative error that every comparison with differences must detect."""
ROUNDING = 64 * np.finfo(np.float64).eps
"""Allowed error of a result by cancellation, relative to the terms that cancel."""
SPECIAL_SLACK = 1e3
"""Factor of the tolerances at special points, where large entries have large rounding errors."""
MAX_DECIDED_CHANGE = 1e-9
"""Largest change of a value by rounding at a special point where the value has to be finite. At the
edge of a domain, as that of arccos at 1, a value changes by far more, and rounding may leave the
domain."""
FIRST_DIGIT = 0.1
"""Relative error in float32 from which no digit is correct; such results need not be finite."""
LINEAR_KINDS = ("vjp", "jvp", "hvp")
"""The functions that are linear in their last arguments."""
POWER_OF_TWO_FACTORS = (0.0, 2.0**10, -(2.0**10), 2.0**-10)
"""Factors of cotangents and tangents in the check of linearity; no product is rounded."""
FIRST_KINDS = ("jvp", "gradient", "vjp", "jacobian")
SECOND_KINDS = ("hvp", "hessian")
"""The kinds of first and of second derivatives, the cheapest of each first."""
ROUNDOFF_FACTOR = 16
"""Allowed error of a derivative at a special point, relative to its change by rounded inputs."""
DIGITS_TOLERANCE = 1e-9
"""Allowed relative error of derivatives beside those of the declaration in 50 digits."""
MAX_PRECISE_ENTRIES = 500
"""Most entries of inputs for which the value is computed in 50 digits, which takes seconds."""
SMALL_ENTRY_RATIO = 1e-3
"""Entries below this part of the largest one are perturbed relative to it in the control."""


@dataclass(frozen=True)
class Special:
    """A special point, where the function may have no derivative: derivatives that are not finite
    are left out unless differences say that there is one, and tolerances include the rounding
    errors at points with large entries.

    is_unsteady: rounding decides the value or its derivative. single: see `SpecialPoint`."""

    is_unsteady: bool
    single: tuple[Point, ...]


class Trial:
    """A module's results at a point, the expected ones, and the rows of the checks.

    kinds: the functions to call, all if it is None. roundoff: the changes of first and of second
    derivatives by rounded inputs, where they are known."""

    def __init__(
        self,
        interface: ModuleInterface,
        measurement: Measurement,
        kinds: Sequence[str] | None = None,
        special: Special | None = None,
        roundoff: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.interface = interface
        self.expected = measurement
        self.point = measurement.point
        self.special = special
        self.roundoff = roundoff
        self.slack = SPECIAL_SLACK if special else 1.0
        self.rows: list[Row] = []
        self.floor = max(
            largest(measurement.value), measurement.gradient_size, 1.0 if special else 0.0
        )
        self.results: dict[str, Arrays] = {}
        """The arrays that the functions returned: a later call must not change them."""
        for kind in interface.kinds if kinds is None else kinds:
            arrays = self.call("call", kind, self.point)
            if arrays is None:
                continue
            is_finite = all(np.isfinite(array).all() for array in arrays.values())
            if is_finite or self.must_be_finite(kind):
                self.results[kind] = arrays
        self.copies = {
            kind: {key: array.copy() for key, array in arrays.items()}
            for kind, arrays in self.results.items()
        }

    def rounding(self, kind: str) -> float:
        """Bound the error that cancellation leaves in the results of a function: that of terms of
        the value's size, and a multiple of the change by rounded inputs."""
        roundoff = self.roundoff[kind in SECOND_KINDS]
        return self.slack * ROUNDING * self.floor + ROUNDOFF_FACTOR * roundoff

    def cancellation(self, kind: str) -> float:
        """Return the size below which a derivative at a special point may be all rounding: it is a
        sum of terms as large as the value times an input, as in Xᵀ diag(p (1 - p)) X where p is 0
        or 1; a second derivative, times two inputs."""
        largest_input = max(1.0, *map(largest, self.point.values.values()))
        return ROUNDING * self.floor * largest_input ** (2 if kind in SECOND_KINDS else 1)

    def must_be_finite(self, kind: str) -> bool:
        """Return whether the function has a value or derivative at the point, as far as differences
        show. At a special point they also show one where each of its special inputs alone is
        special: a zero of another input may hide a jump."""
        if self.special is None:
            return True
        if kind == "value":
            return self.expected.sensitivity <= MAX_DECIDED_CHANGE * max(1.0, self.floor)
        if self.special.is_unsteady or not self._has_first_derivative:
            return False
        return kind not in SECOND_KINDS or is_smooth(self.interface, self.point)

    @cached_property
    def _has_first_derivative(self) -> bool:
        assert self.special
        measurements = [self.expected]
        for point in self.special.single:
            with suppress(OutOfDomain):
                measurements.append(measure_special(self.interface, point, seed=0))
        return all(
            is_trusted(estimate, max(largest(m.value), m.gradient_size, 1.0))
            for m in measurements
            for estimate in (*m.first.values(), m.along)
        )

    def call(
        self,
        check: str,
        kind: str,
        point: Point,
        out: object = None,
        dtypes: tuple[type[np.floating], ...] = (np.float64,),
    ) -> Arrays | None:
        """Call a function of the module; None, and a row with the error, if it fails."""
        try:
            return self.interface.results(kind, point, out, dtypes)
        except CallError as error:
            if not (self.special and is_undefined(error)):
                self.fail(check, kind, "", str(error))
            return None

    def fail(self, check: str, kind: str, key: str, note: str) -> None:
        self.rows.append(Row.failure(check, kind, note, key, self.point.label))

    def compare(
        self,
        check: str,
        kind: str,
        key: str,
        actual: np.ndarray,
        expected: np.ndarray,
        allowed: np.ndarray | float,
        size: float,
    ) -> bool:
        """Add the row of an entrywise comparison; `size` is the scale of its relative errors."""
        error = np.abs(actual - expected)
        bound = np.broadcast_to(allowed, error.shape)
        if self.special and kind != "value":
            level = self.cancellation(kind)
            if max(largest(actual), largest(expected)) <= level:
                bound = np.maximum(bound, level)
        passed = bool((error <= bound).all())
        index = _worst_entry(error, bound)
        note = LARGEST_ENTRY if passed and bound.min() >= size else ""
        if not passed:
            entry = f"entry {', '.join(map(str, index))}: " if index else ""
            note = f"{entry}{actual[index]:.10g} where {expected[index]:.10g} is expected"
        self.add(check, kind, key, error[index] / size, bound[index] / size, passed, note)
        return passed

    def add(
        self,
        check: str,
        kind: str,
        key: str,
        error: float,
        limit: float,
        passed: bool,
        note: str = "",
    ) -> None:
        label = self.point.label
        self.rows.append(Row(check, kind, key, label, float(error), float(limit), passed, note))

    def control(
        self,
        kind: str,
        key: str,
        actual: np.ndarray,
        expected: np.ndarray,
        allowed: np.ndarray,
        size: float,
    ) -> None:
        """Add the row of the negative control: with entries perturbed up or down, the comparison
        must fail at every entry."""
        magnitudes = np.abs(actual)
        is_small = magnitudes < SMALL_ENTRY_RATIO * size
        step = PERTURBATION * np.where(is_small, size, magnitudes)
        error = np.minimum(np.abs(actual + step - expected), np.abs(actual - step - expected))
        passed = bool((error > allowed).all())
        index = _worst_entry(allowed, error)
        note = "" if passed else f"differences here are too inaccurate to see {PERTURBATION:g}"
        self.add("control", kind, key, error[index] / size, allowed[index] / size, passed, note)


def is_undefined(error: CallError) -> bool:
    """Return whether a function raised ValueError: it has no value at the point."""
    return isinstance(error.__cause__, ValueError)


def check_value(trial: Trial) -> None:
    """Compare the value with the declaration's NumPy text."""
    expected = trial.expected.value
    if not np.isfinite(trial.expected.sensitivity):
        return
    size = scale(expected, 0.0)
    allowed = 1e-9 * np.abs(expected) + 1e-10 * size + trial.slack * trial.expected.sensitivity
    if trial.special:  # terms of size 1 may have cancelled
        allowed = allowed + ROUNDING * trial.floor
    for kind in ("value", "value_and_gradient"):
        if kind in trial.copies:
            actual = trial.copies[kind][""]
            if not np.all(np.abs(actual - expected) <= allowed):
                expected = _precise_value(trial)
            trial.compare("value", kind, "", actual, expected, allowed, size)


def _precise_value(trial: Trial) -> np.ndarray:
    """Compute the declaration's value in 50 digits, as SciPy's functions may have larger errors
    than rounding; NumPy's value if a function has no implementation in 50 digits."""
    from derivatrix.runtime import exact, precise  # mpmath is loaded for these alone

    if sum(array.size for array in trial.point.values.values()) <= MAX_PRECISE_ENTRIES:
        with suppress(OutOfDomain, precise.Imprecise):
            return exact.declared_value(trial.interface, trial.point)
    return trial.expected.value


class Pair(NamedTuple):
    """A derivative in coordinates, its differences, the errors of these, and the scale of all."""

    kind: str
    key: str
    actual: np.ndarray
    expected: np.ndarray
    error: np.ndarray
    size: float

    def compare(self, trial: Trial, check: str, allowed: np.ndarray) -> bool:
        """Add the row of the comparison to a trial."""
        arrays = self.actual, self.expected
        return trial.compare(check, self.kind, self.key, *arrays, allowed, self.size)


def check_differences(trial: Trial) -> None:
    """Compare every derivative with five-point central differences; then the negative control."""
    for pair in _pairs(trial):
        error = pair.error + pair.error.mean()  # an entry's own estimate may be small by luck
        allowed = 1e-6 * np.abs(pair.expected) + 1e-9 * pair.size + 4 * error
        if pair.compare(trial, "differences", allowed):
            trial.control(pair.kind, pair.key, pair.actual, pair.expected, allowed, pair.size)


def check_slopes(trial: Trial) -> None:
    """Compare derivatives with differences if these are accurate, which they need not be at special
    points and at large sizes."""
    for pair in _pairs(trial):
        error = pair.error + pair.error.mean()
        if largest(error) <= MAX_TRUSTED_ERROR * pair.size:
            allowed = 1e-6 * np.abs(pair.expected) + 1e-8 * pair.size + 4 * error
            if trial.special:
                allowed += trial.rounding(pair.kind)
            pair.compare(trial, "differences", allowed)


def check_digits(trial: Trial) -> None:
    """Compare derivatives with differences in 50 digits."""
    for pair in _pairs(trial):
        allowed = np.full(pair.expected.shape, DIGITS_TOLERANCE * pair.size)
        pair.compare(trial, "digits", allowed)


def _pairs(trial: Trial) -> Iterator[Pair]:
    """Yield the derivatives that there are differences for. Jacobian, gradient and Hessian are
    contracted with the directions of the differences, the differences of a VJP with the cotangent.
    """
    expected = trial.expected
    for kind, arrays in trial.copies.items():
        if kind in SECOND_KINDS and not expected.second_along:
            if not trial.special:
                note = "there is no working gradient to compare it with"
                trial.fail("differences", kind, "", note)
            continue
        for key, array in arrays.items():
            if kind == "jvp":
                estimate = expected.along
            elif kind == "hvp":
                estimate = expected.second_along[key]
            else:
                estimates = expected.second if kind == "hessian" else expected.first
                if key not in estimates:
                    continue  # a value; large sizes; an orthogonal matrix of one row
                estimate = estimates[key]
                if kind == "vjp":
                    estimate = _pull_back(trial, key, estimate)
                array = _coordinates(expected.directions[key.split(", ")[-1]], array)
            size = magnitude(estimate.derivative, estimate.error, trial.floor)
            yield Pair(kind, key, array, estimate.derivative, estimate.error, size)


def _coordinates(directions: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Contract the last axes of an array, those of an input, with K directions of the input: shape
    (K, *other axes)."""
    lead = array.shape[: array.ndim - (directions.ndim - 1)]
    rows = directions.reshape(len(directions), -1)
    return np.moveaxis(array.reshape(*lead, -1) @ rows.T, -1, 0)


def _pull_back(trial: Trial, name: str, first: Estimate) -> Estimate:
    """Contract the differences of the value by input `name` with the cotangent: per sample, and
    over the batch for an input that all samples share."""
    cotangent = trial.point.cotangent
    per_sample = trial.interface.batched and trial.interface.input(name).batched
    axes = tuple(range(2 if per_sample else 1, cotangent.ndim + 1))
    derivative = (first.derivative * cotangent).sum(axis=axes)
    return Estimate(derivative, (first.error * np.abs(cotangent)).sum(axis=axes))


def check_adjoint(trial: Trial) -> None:
    """Check <G, J V> = <VJP(G), V>."""
    if "vjp" not in trial.copies or "jvp" not in trial.copies:
        return
    left = trial.point.cotangent * trial.copies["jvp"][""]
    parts = [array * trial.point.tangents[key] for key, array in trial.copies["vjp"].items()]
    size = np.abs(left).sum() + sum(np.abs(part).sum() for part in parts) or 1.0
    right = np.asarray(sum(part.sum() for part in parts))
    allowed = trial.slack * 1e-9 * size + trial.rounding("jvp")
    trial.compare("adjoint", "jvp", "", np.asarray(left.sum()), right, allowed, size)


def check_products(trial: Trial) -> None:
    """Compare the Jacobian times tangents and cotangents with JVP and VJP, the Hessian times
    tangents with the HVP, and the gradient, whose kernel is the Jacobian's, times cotangents with
    the VJP."""
    results, wrt = trial.copies, trial.interface.wrt
    if "jacobian" in results and "jvp" in results:
        products = [push(trial, entry, results["jacobian"][entry.name]) for entry in wrt]
        _compare_products(trial, "jvp", "", results["jvp"][""], products)
    for kind in ("jacobian", "gradient", "value_and_gradient"):
        for entry in wrt if kind in results and "vjp" in results else ():
            products = [_pull(trial, entry, results[kind][entry.name])]
            checked = "vjp" if kind == "jacobian" else kind
            _compare_products(trial, checked, entry.name, results["vjp"][entry.name], products)
    if "hessian" in results and "hvp" in results:
        for row in wrt:
            blocks = [results["hessian"][f"{row.name}, {entry.name}"] for entry in wrt]
            products = [push(trial, entry, block) for entry, block in zip(wrt, blocks, strict=True)]
            _compare_products(trial, "hvp", row.name, results["hvp"][row.name], products)


def _compare_products(
    trial: Trial,
    kind: str,
    key: str,
    actual: np.ndarray,
    products: list[tuple[np.ndarray, np.ndarray]],
) -> None:
    """Compare a result with a sum of products; the sum of the products of absolute values bounds
    the rounding error."""
    expected = np.asarray(sum(product for product, _ in products)).reshape(actual.shape)
    magnitude = np.asarray(sum(size for _, size in products)).reshape(actual.shape)
    size = scale(magnitude, trial.floor)
    allowed = trial.slack * (1e-9 * magnitude + 1e-10 * size) + trial.rounding(kind)
    trial.compare("products", kind, key, actual, expected, allowed, size)


def push(trial: Trial, entry: Input, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiply an array of shape (*lead, ..., *input) by the input's tangent, and their absolute
    values; shape (samples, entries of `...`)."""
    sizes = trial.point.sizes
    tangent = np.broadcast_to(
        trial.point.tangents[entry.name], trial.interface.lead(sizes) + entry.core(sizes)
    )
    vector = tangent.reshape(*trial.interface.lead(sizes), -1)
    if not trial.interface.batched:
        vector = vector.reshape(1, -1)
    matrix = array.reshape(len(vector), -1, vector.shape[1])
    rule = "loi,li->lo"
    return np.einsum(rule, matrix, vector), np.einsum(rule, np.abs(matrix), np.abs(vector))


def _pull(trial: Trial, entry: Input, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiply the cotangent by a Jacobian, and their absolute values."""
    samples = trial.point.sizes["batch"] if trial.interface.batched else 1
    vector = trial.point.cotangent.reshape(samples, -1)
    matrix = array.reshape(samples, vector.shape[1], -1)
    rule = "loi,lo->li" if trial.interface.batched and entry.batched else "loi,lo->i"
    return np.einsum(rule, matrix, vector), np.einsum(rule, np.abs(matrix), np.abs(vector))


def check_linearity(trial: Trial) -> None:
    """Check that VJP, JVP and HVP are linear in cotangents and tangents: homogeneous, and additive
    for the parts in DIRECTION_PARTS and the rest."""
    for kind in LINEAR_KINDS:
        results = trial.copies.get(kind, {})
        if not results:
            continue
        for factor in POWER_OF_TWO_FACTORS:
            scaled = _call_along(trial, kind, partial(np.multiply, factor))
            for key, array in scaled.items():
                _compare_linear(trial, kind, key, array, factor * results[key], abs(factor))
        for part in DIRECTION_PARTS:
            along_part = _call_along(trial, kind, part)
            along_rest = _call_along(trial, kind, partial(_without, part))
            for key, array in results.items() if along_part and along_rest else ():
                _compare_linear(trial, kind, key, along_part[key] + along_rest[key], array, 1.0)


def _call_along(trial: Trial, kind: str, change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    """Call a function with changed cotangents and tangents; empty if the call fails."""
    point = trial.point
    tangents = {name: change(array) for name, array in point.tangents.items()}
    changed = replace(point, cotangent=change(point.cotangent), tangents=tangents)
    return trial.call("linearity", kind, changed) or {}


def _without(part: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> np.ndarray:
    return np.asarray(array - part(array))


def _first_entry(array: np.ndarray) -> np.ndarray:
    part = np.zeros_like(array)
    first = (0,) * array.ndim if array.size else ()
    part[first] = array[first]
    return part


DIRECTION_PARTS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    _first_entry,
    np.ones_like,
    lambda array: np.full_like(array, -2.0),
)
"""Parts of cotangents and tangents, of entries up to 1.5: one entry, ones, negative entries; what
remains of the last are positive entries."""


def _compare_linear(
    trial: Trial, kind: str, key: str, actual: np.ndarray, expected: np.ndarray, factor: float
) -> None:
    size = scale(trial.copies[kind][key], trial.floor)
    allowed = factor * (1e-11 * size + trial.rounding(kind))
    trial.compare("linearity", kind, key, actual, expected, allowed, size * (factor or 1.0))


def check_symmetry(trial: Trial) -> None:
    """Compare the Hessian's blocks X, Y with the transposed blocks Y, X."""
    blocks = trial.copies.get("hessian", {})
    lead = len(trial.interface.lead(trial.point.sizes))
    for key, block in blocks.items():
        row, column = key.split(", ")
        rank = len(trial.interface.input(column).shape)
        axes = tuple(range(lead, block.ndim))
        order = (*range(lead), *axes[rank:], *axes[:rank])
        transposed = blocks[f"{column}, {row}"].transpose(order)
        size = scale(block, trial.floor)
        allowed = trial.slack * 1e-10 * size + trial.rounding("hessian")
        trial.compare("symmetry", "hessian", key, block, transposed, allowed, size)


def check_structure(trial: Trial) -> None:
    """Check that derivatives by a structured input, in their last axes, have its structure."""
    for kind, arrays in trial.copies.items():
        for key, array in arrays.items():
            entry = trial.interface.input(key.split(", ")[-1]) if key else None
            if entry is not None and entry.structure in sampling.PROJECTED:
                size = scale(array, trial.floor)
                value = trial.point.values[entry.name]
                batch_rank = value.ndim - 2
                inserted = range(batch_rank, batch_rank + array.ndim - value.ndim)
                value = np.expand_dims(value, tuple(inserted))
                projected = sampling.tangential(entry.structure, value, array)
                allowed = 1e-10 * size + (trial.rounding(kind) if trial.special else 0.0)
                trial.compare("structure", kind, key, array, projected, allowed, size)


def check_repeat(trial: Trial) -> None:
    """Check that a second call gives the same bits, and in other memory."""
    for kind, copies in trial.copies.items():
        second = trial.call("repeat", kind, trial.point)
        if second is None:
            continue
        for key, array in copies.items():
            if not np.array_equal(second[key].view(np.int64), array.view(np.int64)):
                trial.fail("repeat", kind, key, "a second run gives other bits")
            elif np.may_share_memory(second[key], trial.results[kind][key]):
                trial.fail("repeat", kind, key, "a second run writes over the result of the first")
            else:
                trial.add("repeat", kind, key, 0.0, 0.0, True)


def check_out(trial: Trial) -> None:
    """Check that `out=` arrays are filled with the same numbers and returned."""
    for kind, copies in trial.copies.items():
        target = {key: np.full_like(array, np.nan) for key, array in copies.items()}
        packed = trial.interface.packed(kind, target, trial.point.sizes)
        returned = trial.call("out", kind, trial.point, packed)
        if returned is None:
            continue
        for key, array in copies.items():
            if returned[key] is not target[key] and array.ndim:
                trial.fail("out", kind, key, "the array given as out= is not what is returned")
                del target[key]
        _compare_all(trial, "out", kind, target, copies)


def check_kernels(trial: Trial) -> None:
    """Check that kernels called directly fill every entry with the same numbers."""
    for kind, copies in trial.copies.items():
        try:
            filled = trial.interface.filled(kind, trial.point)
        except CallError as error:
            trial.fail("kernel", kind, "", str(error))
        else:
            _compare_all(trial, "kernel", kind, filled, copies)


def check_layout(trial: Trial) -> None:
    """Check that read-only arguments that are not contiguous give the same numbers."""

    def strided(array: np.ndarray) -> np.ndarray:
        view = np.zeros((*array.shape, 2))[..., 0]
        view[...] = array
        view.flags.writeable = False
        return view

    point = trial.point.mapped(strided)
    for kind, copies in trial.copies.items():
        results = trial.call("layout", kind, point)
        if results is not None:
            _compare_all(trial, "layout", kind, results, copies)


def check_batch_axes(trial: Trial) -> None:
    """Check calls with two batch axes, with none, and with axes that broadcast."""
    for kind, copies in trial.copies.items():
        try:
            for results, expected in _results_by_axes(trial, kind, copies):
                _compare_all(trial, "batch axes", kind, results, expected)
        except CallError as error:
            trial.fail("batch axes", kind, "", str(error))


def _results_by_axes(trial: Trial, kind: str, copies: Arrays) -> Iterator[tuple[Arrays, Arrays]]:
    """Call a function with other batch axes; yield the results and the expected ones."""
    interface = trial.interface
    arguments = {**trial.point.values, **interface.extras(kind, trial.point)}
    entries = interface.arguments(kind)
    stacks = {name: arguments[name] for name, entry in entries.items() if entry.batched}
    by_sample = {key: array for key, array in copies.items() if interface.has_batch(kind, key)}

    def call(changed: Arrays) -> Arrays:
        return interface.call(kind, arguments | changed)

    two_axes = call({name: array[:, None] for name, array in stacks.items()})
    yield two_axes, copies | {key: array[:, None] for key, array in by_sample.items()}
    no_axis = call({name: array[0] for name, array in stacks.items()})
    first_sample = {key: array[0] for key, array in by_sample.items()}
    yield {key: no_axis[key] for key in first_sample}, first_sample
    if len(stacks) > 1:
        name, stack = next(iter(stacks.items()))
        repeated = np.repeat(stack[:1], len(stack), axis=0)
        yield call({name: stack[:1]}), call({name: repeated})


def _compare_all(
    trial: Trial, check: str, kind: str, results: Arrays, expected_results: Arrays
) -> None:
    """Compare the results of two ways to call a function."""
    for key, actual in results.items():
        expected = expected_results[key]
        if actual.shape != expected.shape:
            shapes = f"shape {actual.shape} where {expected.shape} is expected"
            trial.fail(check, kind, key, shapes)
            continue
        size = scale(expected, trial.floor)
        allowed = trial.slack * (1e-11 * size + ROUNDING * trial.floor)
        trial.compare(check, kind, key, actual, expected, allowed, size)


def check_float32(trial: Trial) -> None:
    """Check that float32 arguments give float32 results near those of float64, as rounding and the
    condition of the function allow; without a correct digit they need not be finite.

    Compilation takes most of the time of verification: `float32_kinds` leaves out functions whose
    code others share."""
    single = trial.point.mapped(lambda array: array.astype(np.float32))
    double = single.mapped(lambda array: array.astype(np.float64))
    perturbed = sampling.perturb(trial.interface, double, float(np.finfo(np.float32).eps))
    only_numbers = not any(array.ndim for array in single.values.values())
    dtypes = (np.float32, np.float64) if only_numbers else (np.float32,)
    for kind in filter(trial.copies.__contains__, trial.interface.float32_kinds):
        results = trial.call("float32", kind, single, dtypes=dtypes)
        if results is None:
            continue
        exact = trial.call("float32", kind, double)
        nearby = trial.call("float32", kind, perturbed)
        if exact is None or nearby is None:
            continue
        for key, array in exact.items():
            size = scale(array, trial.floor)
            allowed = 1e-4 * size + 200 * largest(nearby[key] - array)
            has_no_digit = allowed >= FIRST_DIGIT * size and not np.isfinite(results[key]).all()
            if not has_no_digit and largest(array) < MAX_FLOAT32_MAGNITUDE:
                trial.compare("float32", kind, key, results[key], array, allowed, size)


def check_formulas(trial: Trial) -> None:
    """Check that the NumPy text of each formula gives the kernel's numbers, with only `np`, `scipy`
    and the function's names in scope."""
    point = trial.point
    for kind, copies in trial.copies.items():
        if kind == "value_and_gradient":
            continue
        names: Values = {**point.sizes, **point.values, **trial.interface.extras(kind, point)}
        for key, array in copies.items():
            text = trial.interface.formula(kind, key)
            if not text:
                trial.fail("formula", kind, key, "FORMULAS has no NumPy text of it")
                continue
            try:
                expected = Text(text)(names, array.shape)
            except (BrokenText, OutOfDomain) as error:
                trial.fail("formula", kind, key, str(error))
                continue
            size = scale(array, trial.floor)
            allowed = 1e-8 * np.abs(expected) + 1e-10 * size + trial.rounding(kind)
            trial.compare("formula", kind, key, array, expected, allowed, size)


def _worst_entry(error: np.ndarray, bound: np.ndarray) -> tuple[np.intp, ...]:
    """Find the index of the entry with the largest error relative to its bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == bound, 1.0, error / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    return tuple(np.unravel_index(np.argmax(ratio), ratio.shape))
