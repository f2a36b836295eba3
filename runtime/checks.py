"""The checks of verification, each on the results of a module at one point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.interface import Arrays, CallError, Input, ModuleInterface, Point
from derivatrix.runtime.measure import (
    REPRESENTABLE,
    TRUSTED,
    Measurement,
    is_smooth,
    is_trusted,
    largest,
    magnitude,
    scale,
)
from derivatrix.runtime.reference import BrokenText, OutOfDomain, Text, Values
from derivatrix.runtime.report import LARGEST_ENTRY, Row

PERTURBATION = 1e-4
"""The relative error that every comparison with differences has to notice."""
ROUNDING = 64 * np.finfo(np.float64).eps
"""What numbers of size 1 may lose where they cancel."""
LINEAR = ("vjp", "jvp", "hvp")
"""The functions that are linear in their last arguments."""
FACTORS = (0.0, 2.0**10, -(2.0**10), 2.0**-10)
"""By which cotangents and tangents are multiplied; no product is rounded."""
SECOND = ("hessian", "hvp")
NOISE = 16
"""How many times the change of a derivative by rounding its error may be."""
DIGITS = 1e-9
"""The relative error that derivatives may have beside those of the declaration in 50 digits."""
JUDGED = 500
"""Entries of inputs up to which a value is computed in 50 digits, in seconds."""
TINY = 1e-3
"""Entries below this part of the largest one count as errors of it, not of themselves."""


class Trial:
    """A module's results at a point, what they should be, and the rows of the checks.

    kinds: the functions to call, all if it is None. special: whether the point is one where the
    function may have no derivative; then derivatives that are not finite are left out unless
    differences say that there is one, and what is compared is compared as far as rounding at points
    with large entries allows. noise: how far rounding changes JVP and HVP there."""

    def __init__(
        self,
        interface: ModuleInterface,
        measurement: Measurement,
        kinds: Sequence[str] | None = None,
        special: bool = False,
        noise: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.interface = interface
        self.expected = measurement
        self.point = measurement.point
        self.special = special
        self.slack = 1e3 if special else 1.0
        self.rows: list[Row] = []
        self.floor = max(
            largest(measurement.value), measurement.gradient_size, 1.0 if special else 0.0
        )
        self.noise = noise
        self.results: dict[str, Arrays] = {}
        for kind in interface.kinds if kinds is None else kinds:
            found = self.call("call", kind, self.point)
            if found is not None and not (
                special and _infinite(kind, found) and not self.has(kind)
            ):
                self.results[kind] = found
        self.kept = {
            kind: {key: array.copy() for key, array in arrays.items()}
            for kind, arrays in self.results.items()
        }

    def rounding(self, kind: str) -> float:
        """The error that cancellation may leave in the results of a function: that of numbers of
        the value's size, and at special points many times the change by inputs that are rounded."""
        return self.slack * ROUNDING * self.floor + NOISE * self.noise[kind in SECOND]

    @property
    def cancellation(self) -> float:
        """The size below which derivatives at a special point may be all rounding: they are sums of
        terms as large as the value times an input, as in Xᵀ diag(p (1 - p)) X where p is 0 or 1."""
        return ROUNDING * self.floor * max(1.0, *map(largest, self.point.values.values()))

    def has(self, kind: str) -> bool:
        """Whether differences say that the function has the derivative at a special point."""
        parts = [*self.expected.first.values(), self.expected.along]
        first = all(is_trusted(part, self.floor) for part in parts)
        return first and (kind not in SECOND or is_smooth(self.interface, self.point))

    def call(
        self,
        check: str,
        kind: str,
        point: Point,
        out: object = None,
        dtypes: tuple[type[np.floating], ...] = (np.float64,),
    ) -> Arrays | None:
        """The module's results, or a row that says why there are none."""
        try:
            return self.interface.results(kind, point, out, dtypes)
        except CallError as error:
            if not (self.special and undefined(error)):
                self.fail(check, kind, "", str(error))
            return None

    def fail(self, check: str, kind: str, key: str, note: str) -> None:
        self.add(check, kind, key, np.inf, 0.0, False, note)

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
        """Add the row of an entrywise comparison; `size` is what its errors are relative to."""
        error = np.abs(actual - expected)
        bound = np.broadcast_to(allowed, error.shape)
        if self.special and kind != "value":
            level = self.cancellation
            if max(largest(actual), largest(expected)) <= level:
                bound = np.maximum(bound, level)
        passed = bool((error <= bound).all())
        where = _worst(error, bound)
        note = "" if passed else _difference(where, actual, expected)
        if passed and bound.min() >= size:
            note = LARGEST_ENTRY
        worst, limit = float(error[where]), float(bound[where])
        self.add(check, kind, key, worst / size, limit / size, passed, note)
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
        self.rows.append(Row(check, kind, key, self.point.label, error, limit, passed, note))

    def control(
        self,
        kind: str,
        key: str,
        actual: np.ndarray,
        expected: np.ndarray,
        allowed: np.ndarray,
        size: float,
    ) -> None:
        """Add the row of the negative control: the comparison, made again with every entry
        perturbed up and down, has to fail at every entry."""
        entry = np.abs(actual)
        step = PERTURBATION * np.where(entry >= TINY * size, entry, size)
        error = np.minimum(np.abs(actual + step - expected), np.abs(actual - step - expected))
        passed = bool((error > allowed).all())
        where = _worst(allowed, error)
        note = "" if passed else f"differences here are too inaccurate to see {PERTURBATION:g}"
        worst, limit = float(error[where]), float(allowed[where])
        self.add("control", kind, key, worst / size, limit / size, passed, note)


def undefined(error: CallError) -> bool:
    """Whether what was raised says that the function has no value there."""
    return isinstance(error.__cause__, ValueError)


def _infinite(kind: str, arrays: Arrays) -> bool:
    """Whether derivatives are not finite."""
    return kind != "value" and not all(np.isfinite(array).all() for array in arrays.values())


def check_value(trial: Trial) -> None:
    """The value against the declaration's own NumPy text."""
    expected = trial.expected.value
    if not np.isfinite(trial.expected.sensitivity):
        return
    size = scale(expected, 0.0)
    allowed = 1e-9 * np.abs(expected) + 1e-10 * size + trial.slack * trial.expected.sensitivity
    if trial.special:  # what cancels there has the rounding errors of numbers of size 1
        allowed = allowed + ROUNDING * trial.floor
    for kind in ("value", "value_and_gradient"):
        if kind in trial.kept:
            actual = trial.kept[kind][""]
            if not np.all(np.abs(actual - expected) <= allowed):
                expected = _judged(trial)
            trial.compare("value", kind, "", actual, expected, allowed, size)


def _judged(trial: Trial) -> np.ndarray:
    """The declaration's value where the module's is another: in 50 digits, as SciPy's errors may be
    larger than rounding's; NumPy's where that is not known."""
    from derivatrix.runtime import exact, precise  # mpmath is loaded for these alone

    if sum(array.size for array in trial.point.values.values()) <= JUDGED:
        with suppress(OutOfDomain, precise.Imprecise):
            return exact.declared_value(trial.interface, trial.point)
    return trial.expected.value


class Pair(NamedTuple):
    """A derivative's coordinates, their differences, and how far off the latter may be."""

    kind: str
    key: str
    actual: np.ndarray
    expected: np.ndarray
    error: np.ndarray


def check_differences(trial: Trial) -> None:
    """Every derivative against five-point central differences; then the negative control."""
    for pair in _pairs(trial):
        size = magnitude(pair.expected, pair.error, trial.floor)
        error = pair.error + pair.error.mean()  # the mean, where an entry's own is small by luck
        allowed = 1e-6 * np.abs(pair.expected) + 1e-9 * size + 4 * error
        comparison = (pair.kind, pair.key, pair.actual, pair.expected, allowed, size)
        if trial.compare("differences", *comparison):
            trial.control(*comparison)


def check_slopes(trial: Trial) -> None:
    """Derivatives against differences as far as these are accurate, which need not be so at
    special points and at large sizes."""
    for pair in _pairs(trial):
        size = magnitude(pair.expected, pair.error, trial.floor)
        error = pair.error + pair.error.mean()
        if largest(error) <= TRUSTED * size:
            allowed = 1e-6 * np.abs(pair.expected) + 1e-8 * size + 4 * error
            if trial.special:
                allowed += trial.rounding(pair.kind)
            trial.compare(
                "differences", pair.kind, pair.key, pair.actual, pair.expected, allowed, size
            )


def check_digits(trial: Trial) -> None:
    """Derivatives against those that are known to nearly all their digits."""
    for pair in _pairs(trial):
        size = magnitude(pair.expected, pair.error, trial.floor)
        allowed = np.full(pair.expected.shape, DIGITS * size)
        trial.compare("digits", pair.kind, pair.key, pair.actual, pair.expected, allowed, size)


def _pairs(trial: Trial) -> Iterator[Pair]:
    expected = trial.expected
    for kind, arrays in trial.kept.items():
        if kind in ("hessian", "hvp") and not expected.second_along:
            if not trial.special:
                note = "there is no working gradient to compare it with"
                trial.fail("differences", kind, "", note)
            continue
        for key, array in arrays.items():
            if kind not in ("jvp", "hvp") and not expected.first:
                continue  # large sizes: compared with the jvp and the hvp
            if kind == "jvp":
                yield Pair(kind, key, array, expected.along.derivative, expected.along.error)
            elif kind == "hvp":
                part = expected.second_along[key]
                yield Pair(kind, key, array, part.derivative, part.error)
            elif kind == "vjp":
                if key in expected.first:
                    yield _cotangents(trial, key, array)
            elif key:
                second = kind == "hessian"
                parts = expected.second if second else expected.first
                if key not in parts:
                    continue  # no direction is tangential: an orthogonal matrix of one row
                part, stack = parts[key], expected.directions[key.split(", ")[-1]]
                yield Pair(kind, key, _coordinates(stack, array), part.derivative, part.error)


def _coordinates(stack: np.ndarray, array: np.ndarray) -> np.ndarray:
    """An array contracted over its last axes, those of an input, with directions of the input,
    stacked: shape (K, *rest)."""
    rest = array.shape[: array.ndim - (stack.ndim - 1)]
    return np.moveaxis(array.reshape(*rest, -1) @ stack.reshape(len(stack), -1).T, -1, 0)


def _cotangents(trial: Trial, name: str, array: np.ndarray) -> Pair:
    """A VJP's coordinates, and the cotangent times the differences of the value: per sample, and
    summed over the batch for an input that is shared."""
    first, cotangent = trial.expected.first[name], trial.point.cotangent
    per_sample = trial.interface.batched and trial.interface.input(name).batched
    axes = tuple(range(2 if per_sample else 1, cotangent.ndim + 1))
    expected = (first.derivative * cotangent).sum(axis=axes)
    error = (first.error * np.abs(cotangent)).sum(axis=axes)
    stack = trial.expected.directions[name]
    return Pair("vjp", name, _coordinates(stack, array), expected, error)


def check_adjoint(trial: Trial) -> None:
    """<G, J V> = <VJP(G), V>."""
    if "vjp" not in trial.kept or "jvp" not in trial.kept:
        return
    left = trial.point.cotangent * trial.kept["jvp"][""]
    parts = [array * trial.point.tangents[key] for key, array in trial.kept["vjp"].items()]
    size = np.abs(left).sum() + sum(np.abs(part).sum() for part in parts) or 1.0
    right = np.asarray(sum(part.sum() for part in parts))
    allowed = trial.slack * 1e-9 * size + trial.rounding("jvp")
    trial.compare("adjoint", "jvp", "", np.asarray(left.sum()), right, allowed, size)


def check_products(trial: Trial) -> None:
    """The Jacobian times tangents and cotangents against JVP and VJP, the Hessian times tangents
    against the HVP, and the gradient, whose kernel is the Jacobian's, times cotangents against the
    VJP."""
    kept, interface = trial.kept, trial.interface
    if "jacobian" in kept and "jvp" in kept:
        blocks = [push(trial, entry, kept["jacobian"][entry.name]) for entry in interface.wrt]
        _compare_products(trial, "jvp", "", kept["jvp"][""], blocks)
    for kind in ("jacobian", "gradient", "value_and_gradient"):
        for entry in interface.wrt if kind in kept and "vjp" in kept else ():
            pulled = [_pull(trial, entry, kept[kind][entry.name])]
            checked = "vjp" if kind == "jacobian" else kind
            _compare_products(trial, checked, entry.name, kept["vjp"][entry.name], pulled)
    if "hessian" in kept and "hvp" in kept:
        for row in interface.wrt:
            hessian = {
                entry: kept["hessian"][f"{row.name}, {entry.name}"] for entry in interface.wrt
            }
            blocks = [push(trial, entry, block) for entry, block in hessian.items()]
            _compare_products(trial, "hvp", row.name, kept["hvp"][row.name], blocks)


def _compare_products(
    trial: Trial,
    kind: str,
    key: str,
    actual: np.ndarray,
    blocks: list[tuple[np.ndarray, np.ndarray]],
) -> None:
    expected = np.asarray(sum(block for block, _ in blocks)).reshape(actual.shape)
    magnitude = np.asarray(sum(size for _, size in blocks)).reshape(actual.shape)
    size = scale(magnitude, trial.floor)
    allowed = trial.slack * (1e-9 * magnitude + 1e-10 * size) + trial.rounding(kind)
    trial.compare("products", kind, key, actual, expected, allowed, size)


def push(trial: Trial, entry: Input, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array of shape (*lead, ..., *input) times the input's tangent: (batch, ...) flattened;
    and the same of absolute values."""
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
    """The cotangent times a Jacobian, and the same of absolute values."""
    samples = trial.point.sizes["batch"] if trial.interface.batched else 1
    vector = trial.point.cotangent.reshape(samples, -1)
    matrix = array.reshape(samples, vector.shape[1], -1)
    rule = "loi,lo->li" if trial.interface.batched and entry.batched else "loi,lo->i"
    return np.einsum(rule, matrix, vector), np.einsum(rule, np.abs(matrix), np.abs(vector))


def check_linearity(trial: Trial) -> None:
    """VJP, JVP and HVP are linear in cotangents and tangents: zero for zero, scaled as these are,
    and the sum of the results for a unit vector and for the other entries."""
    for kind in LINEAR:
        kept = trial.kept.get(kind, {})
        for factor in FACTORS if kept else ():
            scaled = _along(trial, kind, partial(np.multiply, factor))
            for key, array in scaled.items():
                _compare_linear(trial, kind, key, array, factor * kept[key], abs(factor))
        units = [_along(trial, kind, change) for change in (_first_entry, _other_entries) if kept]
        for key, array in kept.items():
            if all(units):
                _compare_linear(trial, kind, key, units[0][key] + units[1][key], array, 1.0)


def _along(trial: Trial, kind: str, change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    """The results along cotangents and tangents that are changed; none where there are none."""
    point = trial.point
    tangents = {name: change(array) for name, array in point.tangents.items()}
    moved = replace(point, cotangent=change(point.cotangent), tangents=tangents)
    return trial.call("linearity", kind, moved) or {}


def _first_entry(array: np.ndarray) -> np.ndarray:
    return array - _other_entries(array)


def _other_entries(array: np.ndarray) -> np.ndarray:
    others = array.copy()
    others[(0,) * array.ndim if array.size else ()] = 0.0
    return others


def _compare_linear(
    trial: Trial, kind: str, key: str, actual: np.ndarray, expected: np.ndarray, factor: float
) -> None:
    size = scale(trial.kept[kind][key], trial.floor)
    allowed = factor * (1e-11 * size + trial.rounding(kind))
    trial.compare("linearity", kind, key, actual, expected, allowed, size * (factor or 1.0))


def check_symmetry(trial: Trial) -> None:
    """The Hessian's blocks X, Y against those of Y, X."""
    blocks = trial.kept.get("hessian", {})
    lead = len(trial.interface.lead(trial.point.sizes))
    for key, block in blocks.items():
        row, column = key.split(", ")
        rank = len(trial.interface.input(column).shape)
        axes = tuple(range(lead, block.ndim))
        other = blocks[f"{column}, {row}"]
        swapped = other.transpose(*range(lead), *axes[rank:], *axes[:rank])
        size = scale(block, trial.floor)
        allowed = trial.slack * 1e-10 * size + trial.rounding("hessian")
        trial.compare("symmetry", "hessian", key, block, swapped, allowed, size)


def check_structure(trial: Trial) -> None:
    """Derivatives by a structured input lie in its structure (the last axes are the input's)."""
    for kind, arrays in trial.kept.items():
        for key, array in arrays.items():
            entry = trial.interface.input(key.split(", ")[-1]) if key else None
            if entry is not None and entry.structure in sampling.PROJECTED:
                size = scale(array, trial.floor)
                value = trial.point.values[entry.name]
                stacked = value.ndim - 2
                between = (1,) * (array.ndim - value.ndim)
                value = value.reshape(*value.shape[:stacked], *between, *value.shape[stacked:])
                inside = sampling.tangential(entry.structure, value, array)
                allowed = 1e-10 * size + (trial.rounding(kind) if trial.special else 0.0)
                trial.compare("structure", kind, key, array, inside, allowed, size)


def check_repeat(trial: Trial) -> None:
    """A second run gives the same bits, in memory of its own."""
    for kind, kept in trial.kept.items():
        again = trial.call("repeat", kind, trial.point)
        if again is None:
            continue
        for key, array in kept.items():
            if not _same_bits(again[key], array):
                trial.fail("repeat", kind, key, "a second run gives other bits")
            elif np.may_share_memory(again[key], trial.results[kind][key]):
                trial.fail("repeat", kind, key, "a second run writes over the result of the first")
            else:
                trial.add("repeat", kind, key, 0.0, 0.0, True)


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    first, second = (np.atleast_1d(np.ascontiguousarray(array)) for array in (one, other))
    return np.array_equal(first.view(np.uint8), second.view(np.uint8))


def check_out(trial: Trial) -> None:
    """With `out=` the same numbers are written there, every one of them, and it is returned."""
    for kind, kept in trial.kept.items():
        target = {key: np.full_like(array, np.nan) for key, array in kept.items()}
        packed = trial.interface.packed(kind, target)
        returned = trial.call("out", kind, trial.point, packed)
        if returned is None:
            continue
        for key, array in kept.items():
            if returned[key] is not target[key] and array.ndim:
                trial.fail("out", kind, key, "the array given as out= is not what is returned")
            else:
                _same(trial, "out", kind, key, target[key], array)


def check_kernels(trial: Trial) -> None:
    """Kernels called directly fill every entry, with the same numbers."""
    for kind, kept in trial.kept.items():
        try:
            filled = trial.interface.filled(kind, trial.point)
        except CallError as error:
            trial.fail("kernel", kind, "", str(error))
            continue
        for key, array in kept.items():
            _same(trial, "kernel", kind, key, filled[key], array)


def check_layout(trial: Trial) -> None:
    """Read-only arguments that are not contiguous give the same numbers."""
    point = trial.point.mapped(_scattered)
    for kind, kept in trial.kept.items():
        found = trial.call("layout", kind, point)
        if found is not None:
            for key, array in kept.items():
                _same(trial, "layout", kind, key, found[key], array)


def _same(
    trial: Trial, check: str, kind: str, key: str, actual: np.ndarray, expected: np.ndarray
) -> None:
    size = scale(expected, trial.floor)
    allowed = trial.slack * (1e-11 * size + ROUNDING * trial.floor)
    trial.compare(check, kind, key, actual, expected, allowed, size)


def _scattered(array: np.ndarray) -> np.ndarray:
    wide = np.zeros((*array.shape, 2))
    view = wide[..., 0]
    view[...] = array
    view.flags.writeable = False
    return view


def check_float32(trial: Trial) -> None:
    """float32 arguments give float32 results, as near to those of float64 as rounding and the
    function's condition at the point allow; where that leaves no digit they need not be finite.

    Compiling takes longest of all: functions that call nothing that others do not are left out."""
    narrow = trial.point.mapped(lambda array: array.astype(np.float32))
    wide = narrow.mapped(lambda array: array.astype(np.float64))
    nudged = sampling.nudged(trial.interface, wide, float(np.finfo(np.float32).eps))
    only_numbers = not any(array.ndim for array in narrow.values.values())
    dtypes = (np.float32, np.float64) if only_numbers else (np.float32,)
    for kind in filter(trial.kept.__contains__, trial.interface.single_kinds):
        found = trial.call("float32", kind, narrow, dtypes=dtypes)
        if found is None:
            continue
        exact = trial.call("float32", kind, wide)
        near = trial.call("float32", kind, nudged)
        if exact is None or near is None:
            continue
        for key, array in exact.items():
            size = scale(array, trial.floor)
            allowed = 1e-4 * size + 200 * largest(near[key] - array)
            lost = allowed >= size and not np.isfinite(found[key]).all()
            if not lost and largest(array) < REPRESENTABLE:
                trial.compare("float32", kind, key, found[key], array, allowed, size)


def check_formulas(trial: Trial) -> None:
    """The NumPy text of each formula gives the kernel's numbers, with nothing but `np`, `scipy`
    and the function's own names in scope."""
    formulas = trial.interface.module.FORMULAS
    for kind, kept in trial.kept.items():
        if kind == "value_and_gradient":
            continue
        for key, array in kept.items():
            text = formulas.get(kind, {}).get(key, {}).get("numpy", "")
            if text:
                _check_formula(trial, kind, key, text, array)
            else:
                trial.fail("formula", kind, key, "FORMULAS has no NumPy text of it")


def _check_formula(trial: Trial, kind: str, key: str, text: str, array: np.ndarray) -> None:
    point = trial.point
    names: Values = {**point.sizes, **point.values, **trial.interface.extras(kind, point)}
    try:
        expected = Text(text)(names, array.shape)
    except (BrokenText, OutOfDomain) as error:
        trial.fail("formula", kind, key, str(error))
        return
    size = scale(array, trial.floor)
    allowed = 1e-8 * np.abs(expected) + 1e-10 * size + trial.rounding(kind)
    trial.compare("formula", kind, key, array, expected, allowed, size)


def _worst(error: np.ndarray, bound: np.ndarray) -> tuple[np.intp, ...]:
    """The index of the entry where the error is largest, measured by the bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == bound, 1.0, error / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    return tuple(np.unravel_index(np.argmax(ratio), ratio.shape))


def _difference(where: tuple[np.intp, ...], actual: np.ndarray, expected: np.ndarray) -> str:
    entry = f"entry {', '.join(str(index) for index in where)}: " if where else ""
    return f"{entry}{actual[where]:.10g} where {expected[where]:.10g} is expected"
