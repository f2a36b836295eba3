"""Verification of loops: it notices faults planted in modules and in rules, and passes loops that
amplify rounding."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate import recurrence
from derivatrix.compiler.differentiate.recurrence import over_time
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.plan import recurrences
from derivatrix.runtime import exact, special, trials
from derivatrix.runtime.interface import interfaces
from tests.loops import elman

pytestmark = pytest.mark.usefixtures("forgotten")


def _declared() -> Function:
    T = dx.dims("T")
    r, a, start = dx.vector("r", T), dx.scalar("a"), dx.scalar("start")

    def step(s: Array, x: Array) -> tuple[Array, Array]:
        return a * dx.sin(s) + x * dx.exp(x), s * x

    last, ys = dx.scan(step, start + 1, r)
    return dx.function("loop", [r, a, start], dx.sum(ys) + last, kinds=["value", "vjp"])


def _notices(module: ModuleType) -> bool:
    """Whether a row of the first point at which a module is verified is no success."""
    (interface,) = interfaces(module)
    result = next(trials.small(interface, {"T": 4}, 0, slow=True))
    return not all(row.passed for row in result.rows)


FORWARD, BACKWARD = r"for (t\d*) in range\(T\):", r"for (t\d*) in range\(T - 1, -1, -1\):"
CALL = r"\n +step_scan_\w+\((?:[^()]|\n)*?"

TEXTS: dict[str, tuple[str, str]] = {
    "another start": (r"(\w+\[0\]) = a0_copy\[0\]", r"\1 = 1.01 * a0_copy[0]"),
    "another end of the adjoint": (r"(\w+\[T\]) = (\w+\[0\])\n", r"\1 = 0 * \2\n"),
    "the x of the step before": (rf"({FORWARD}{CALL})(\w+)\[\2\], (\w+\[0\])", r"\1\3[\2 - 1], \4"),
    "the first x in all steps": (rf"({FORWARD}{CALL})(\w+)\[\2\], (\w+\[0\])", r"\1\3[0], \4"),
    "x in reversed order": (rf"({FORWARD}{CALL})(\w+)\[\2\], (\w+\[0\])", r"\1\3[T - 1 - \2], \4"),
    "no first step": (FORWARD, r"for \1 in range(1, T):"),
    "no last step": (FORWARD, r"for \1 in range(T - 1):"),
    "no last step of the adjoint": (BACKWARD, r"for \1 in range(T - 2, -1, -1):"),
    "the state at the start in all steps of the adjoint": (
        *(rf"({BACKWARD}{CALL})(\w+)\[\2\], (\w+\[0\])", r"\1\3[0], \4"),
    ),
    "a step that adds": (r"out_0\[\(?0?\)?\] = ", r"out_0[0] = 1e-3 + "),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("loops") / "generated"
    dx.build([_declared()], directory)
    return directory


@pytest.mark.parametrize("fault", TEXTS)
def test_a_fault_in_the_text_of_a_loop(fault: str, package: Path, tmp_path: Path) -> None:
    directory = tmp_path / "generated"
    shutil.copytree(package, directory)
    path = directory / "loop.py"
    text = path.read_text(encoding="utf-8")
    wrong = re.sub(*TEXTS[fault], text)
    assert wrong != text
    path.write_text(wrong, encoding="utf-8")
    assert _notices(dx.load(path))


def test_a_loop_without_a_fault_passes(package: Path) -> None:
    assert not _notices(dx.load(package / "loop.py"))


def _wrong_times(change: Callable[[Array], Array]) -> Callable[..., list[Array]]:
    """What is computed before a loop, at other times."""
    return lambda *arguments: [change(array) for array in over_time(*arguments)]


RULES: dict[str, tuple[Any, str, Any]] = {
    "derivatives at the states after the steps": (
        *(recurrence, "before_steps", recurrence.after_steps),
    ),
    "terms of the adjoint in another order": (
        *(recurrence, "over_time", _wrong_times(lambda array: array[::-1])),
    ),
    "what varies, computed once": (
        recurrences,
        "over_time",
        _wrong_times(lambda array: 0 * array + array[:1]),
    ),
}


@pytest.mark.parametrize("fault", RULES)
def test_a_fault_in_a_rule_of_loops(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*RULES[fault])
    function = elman().function.with_kinds(["value", "gradient"])
    assert _notices(dx.compile(function))


def test_rounding_of_a_symmetric_carry_is_not_amplified() -> None:
    """Covariances of a Kalman filter become asymmetric by rounding. Where A is large, factors of
    one triangle do not fit products of both; unless the triangles are kept equal, the likelihood
    has two correct digits, or its matrix is not positive definite."""
    n, m, T = dx.dims("n m T")
    A, C, P0 = dx.matrix("A", n, n), dx.matrix("C", m, n), dx.matrix("P0", n, n, "spd")
    R, Y, x0 = dx.matrix("R", m, m, "spd"), dx.matrix("Y", T, m), dx.vector("x0", n)

    def step(carry: Any, y: Array) -> Any:
        x, P = carry
        S, v = dx.assume(C @ P @ C.mT + R, "spd"), y - C @ x
        gain = P @ C.mT @ dx.inv(S)
        term = v @ dx.inv(S) @ v + dx.logdet(S)
        return (A @ (x + gain @ v), A @ (P - gain @ C @ P) @ A.mT + dx.eye(n)), term

    likelihood = dx.sum(dx.scan(step, (x0, P0), Y)[1])
    inputs = [Y, A, C, R, x0, P0]
    module = dx.compile(dx.function("likelihood", inputs, likelihood, kinds=["value"]))
    (interface,) = interfaces(module)
    for seed in range(5):
        point = special.random_point(
            interface, {"n": 3, "m": 4, "T": 5}, np.random.default_rng(seed)
        )
        point.values["A"][0, 0] = 2000
        expected = exact.declared_value(interface, point)
        assert module.value(**point.values) == pytest.approx(float(expected), rel=1e-4)


def test_names_of_carries_and_slices_may_be_any() -> None:
    """Names that a kernel needs, sizes, keywords and letters of two inputs alike."""
    T, n = dx.dims("T n")
    X, h0 = dx.matrix("X", T, n), dx.vector("h0", n)
    names = ["n", "T", "lambda", "out_0", "λ", "out", "c1", "a b"]

    def step(carry: dict[str, Array], out_0_: Array) -> tuple[dict[str, Array], None]:
        total = sum(carry.values(), h0)
        return {name: dx.sin(total + k * out_0_) for k, name in enumerate(names)}, None

    last, _ = dx.scan(step, dict.fromkeys(names, h0), X)
    function = dx.function("named", [X, h0], sum(last.values(), h0), kinds=["value", "vjp"])
    assert not _notices(dx.compile(function))
