"""Functions given by equations: values, derivatives, failures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate
from tests.points import draw_all

n = dx.dims("n")
P, S = dx.matrix("P", n, n), dx.matrix("S", n, n, "spd")
x, b = dx.vector("x", n), dx.vector("b", n)
A = dx.matrix("A", n, n)
s, t = dx.scalar("s"), dx.scalar("t")


MATRIX_ROOT = dx.function("matrix_root", [S], dx.root(P @ P - S, P, S))
KEPLER = dx.function("kepler", [s], dx.root(t - 0.3 * dx.sin(t) - s, t, s))
SAMPLE = dx.function("sample", [b], dx.root(x + 0.1 * x**3 - b, x, b), batch=[b])
FIXED = dx.function("fixed", [A, b], dx.fixed_point(dx.tanh(0.1 * A @ x + b), x, b), wrt=[b])
LEAST = dx.function(
    "least",
    [A, b],
    dx.argmin(dx.sum((A @ x - b) ** 2) + dx.sum(x**4 + x**2), x, dx.zeros(n)),
    wrt=[b],
)
LATE = pytest.mark.thorough


@pytest.mark.parametrize(
    "function",
    [
        SAMPLE,
        *(pytest.param(case, marks=LATE) for case in (KEPLER, MATRIX_ROOT, FIXED, LEAST)),
    ],
    ids=lambda function: function.name,
)
def test_modules_of_roots(function: dx.Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    "function", [MATRIX_ROOT, KEPLER, FIXED, LEAST], ids=lambda function: function.name
)
def test_derivatives_of_roots(function: dx.Function) -> None:
    check_derivatives(function, {"n": 3})


def check_derivatives(function: dx.Function, sizes: dict[str, int]) -> None:
    """Evaluated: the tangent by the one input against differences, and the adjoint."""
    values = draw_all(function, 0, sizes)
    (name,) = function.wrt

    def moved(step: float) -> np.ndarray:
        shifted = {**values, name: values[name] + step * values["tangent"]}
        return evaluate(function.expression, shifted, sizes)

    near, far = moved(1e-3) - moved(-1e-3), moved(2e-3) - moved(-2e-3)
    (jvp,), (vjp,) = (
        [evaluate(node, values, sizes) for node in function.derivatives.results(kind).values()]
        for kind in ("jvp", "vjp")
    )
    np.testing.assert_allclose(jvp, (8 * near - far) / 12e-3, rtol=1e-8, atol=1e-8)
    assert np.sum(vjp * values["tangent"]) == pytest.approx(np.sum(jvp * values["cotangent"]))


def test_a_solver_of_ones_own() -> None:
    """Its solution is the start; Newton's method finds no better one, and the derivative is ours.
    The equation has other roots, which other starts lead to."""
    start = dx.scalar("start")
    equation = t - 3 * dx.sin(t) - s
    module = dx.compile(dx.function("roots", [s, start], dx.root(equation, t, start), wrt=[s]))
    actual = [brentq(lambda t: t - 3 * np.sin(t) - 0.1, *ends) for ends in ((-3, -1), (-1, 1))]
    for solution in actual:
        assert module.value(0.1, solution) == pytest.approx(solution, abs=1e-12)
        slope = 1 / (1 - 3 * np.cos(solution))
        assert module.gradient(0.1, solution) == pytest.approx(slope, rel=1e-9)
    assert abs(actual[0] - actual[1]) > 1


def test_a_root_that_is_not_there() -> None:
    residual = t**2 + s**2 + 1
    module = dx.compile(dx.function("bad", [s], dx.root(residual, t, s)))
    told = r"^bad: root.*did not converge.*in 10 steps .* was 1\.18, \.\.\., 1\.09, 1\.09, 1\.09$"
    for call in (module.value, module.hessian):
        with pytest.raises(np.linalg.LinAlgError, match=told):
            call(0.3)
    with pytest.raises(np.linalg.LinAlgError, match=r"in 0 steps .* was 1, where the Jacobian is"):
        module.value(0.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"in 0 steps .* was inf$"):
        module.value(np.inf)
    silent = dx.compile(dx.function("bad", [s], dx.root(residual, t, s, "nan")))
    assert np.isnan(silent.gradient(0.3))


def test_wrong_equations() -> None:
    with pytest.raises(dx.ShapeError, match="an equation for each entry"):
        dx.root(dx.trace(P) - s, P, S)
    with pytest.raises(dx.ShapeError, match="the start has shape"):
        dx.root(P @ P - S, P, b)
    with pytest.raises(dx.DeclarationError, match="no equation depends on x"):
        dx.root(b, x, b)
    with pytest.raises(dx.DeclarationError, match="must not depend on x"):
        dx.root(x - b, x, x)
    with pytest.raises(dx.DeclarationError, match="symbolic input"):
        dx.root(x - b, 3, b)
    with pytest.raises(dx.DeclarationError, match="on_failure"):
        dx.root(x - b, x, b, "ignore")
