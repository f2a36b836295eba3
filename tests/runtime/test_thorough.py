"""Verification with 50 digits: what they are of, and what it notices besides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.runtime import checks, measure
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.precise import NUMBERS, Imprecise, PreciseText, numbers
from derivatrix.runtime.report import Report
from tests.cases import CASES, EVALUATED
from tests.points import SIZES, draw_all
from tests.strategies import LEAVES, REGISTRY, Recorded, arity, leaf_values

n = dx.dims("n")
X, S = dx.matrix("X", n, n), dx.matrix("S", n, n, "symmetric")


def compare(function: Function, values: dict[str, np.ndarray]) -> None:
    """The declared value in 50 digits, if it has so many, with the one of the interpreter."""
    (node,) = function.derivatives.batched("value").values()
    expected = evaluate(node, values, SIZES)
    given = {**SIZES, **{name: numbers(array) for name, array in values.items()}}
    actual = PreciseText(function.declaration)(given, expected.shape)
    assert all(isinstance(entry, NUMBERS.mpf) for entry in actual.flat)
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual.astype(float), expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("case", [*CASES, *EVALUATED], ids=lambda case: case.name)
def test_declarations_in_50_digits(case: Function) -> None:
    compare(case, draw_all(case))


@pytest.mark.parametrize("rule", REGISTRY, ids=lambda rule: f"{rule.operation.name}{rule.output}")
def test_operations_in_50_digits(rule: Recorded) -> None:
    leaves = [LEAVES[name] for name in "MHLO"[: arity(rule)]]
    function = dx.function("f", [dx.Array(leaf) for leaf in leaves], rule(*map(dx.Array, leaves)))
    compare(function, {leaf.name: leaf_values(3)[leaf.name] for leaf in leaves})


def test_every_operation_is_in_the_registry() -> None:
    assert {rule.operation for rule in REGISTRY} == set(OPERATIONS.values())


def test_whole_numbers_are_divided_in_50_digits() -> None:
    third = PreciseText("1/3 + np.sum(X)**-1 - 2**(-1/2)")({"X": numbers(np.ones((1, 3)))}, ())
    assert abs(third[()] - (NUMBERS.mpf(2) / 3 - 1 / NUMBERS.sqrt(2))) < NUMBERS.mpf(10) ** -48


@pytest.mark.parametrize("wrong", ["SciPy", "the module"])
def test_50_digits_judge_values(wrong: str) -> None:
    """The module's value differs from NumPy's and SciPy's."""
    interface = ModuleInterface(dx.compile(dx.function("square", [X], X @ X)))
    measurement, _ = measure.small(interface, {}, 0)
    if wrong == "SciPy":
        measurement = replace(measurement, value=measurement.value * (1 + 1e-6))
    trial = checks.Trial(interface, measurement, ["value"])
    if wrong == "the module":
        trial.copies["value"][""] *= 1 + 1e-6
    checks.check_value(trial)
    assert trial.rows[-1].passed == (wrong == "SciPy")


def infinite_in_float32(call: Any, *given: Any, **options: Any) -> Any:
    return {"": np.float32(np.inf)} if options else call(*given)


def test_no_digit_in_float32() -> None:
    """Then results may be infinite; with digits left they may not."""
    x, y = dx.scalar("x"), dx.vector("y", n)
    interface = ModuleInterface(dx.compile(dx.function("f", [y, x], dx.sum(y) / (x - 1))))
    interface.float32_kinds = ("value",)
    measurement, _ = measure.small(interface, {}, 0)
    for near, passes in ((1 + 1e-9, True), (2.0, False)):
        point = replace(measurement.point, values={**measurement.point.values, "x": np.array(near)})
        trial = checks.Trial(interface, replace(measurement, point=point), ["value"])
        with mock.patch.object(trial, "call", partial(infinite_in_float32, trial.call)):
            checks.check_float32(trial)
        assert all(row.passed for row in trial.rows) == passes


def test_singular_matrices_in_50_digits() -> None:
    singular = {"X": numbers(np.diag([0.0, 2.0, 3.0]))}
    assert PreciseText("np.linalg.det(X)")(singular, ())[()] == 0
    assert PreciseText("np.linalg.det(X[::-1] + np.eye(3))")(singular, ())[()] == 3
    with pytest.raises(ZeroDivisionError, match="singular"):
        PreciseText("np.linalg.inv(X)")(singular, (3, 3))


def altered(module: ModuleType, kind: str, factor: float, thorough: bool) -> Report:
    """The report of a module one of whose functions returns its result times a factor."""
    right = getattr(module, kind)

    def wrong(*arguments, out=None):  # type: ignore[no-untyped-def]
        actual = right(*arguments, out=out)
        actual *= factor
        return actual

    with mock.patch.object(module, kind, wrong):
        return dx.verify(module, thorough=thorough)


@pytest.mark.parametrize("kind", ["gradient", "hvp"])
def test_an_error_in_the_eighth_digit_is_noticed(kind: str) -> None:
    module = dx.compile(dx.function("f", [S], dx.sum(dx.exp(S) @ S)))
    assert altered(module, kind, 1, thorough=True).passed
    report = altered(module, kind, 1 + 1e-8, thorough=True)
    failed = {(row.check, row.function) for row in report.rows if not row.passed}
    assert ("digits", kind) in failed


def test_what_is_not_known_in_50_digits_is_said() -> None:
    with pytest.raises(Imprecise, match=r"scipy\.special\.airy"):
        PreciseText("scipy.special.airy(x)[0]")({"x": numbers(1.0)}, ())
    with pytest.raises(Imprecise, match="mpmath's svd: no convergence"):
        PreciseText("np.linalg.norm(X, 'nuc')")({"X": numbers(np.full((3, 2), np.nan))}, ())
    module = dx.compile(dx.function("f", [X], X @ X))
    with mock.patch.object(module, "DECLARATION", "X @ X + 0 * np.i0(X)"):
        rows = dx.verify(module, thorough=True).rows
    assert any("numpy.i0" in row.note for row in rows)
