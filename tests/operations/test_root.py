"""Functions given by equations: values, derivatives, failures."""

from __future__ import annotations

import numpy as np
import pytest

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
    """Evaluated: the tangent against differences, and the adjoint."""
    sizes = {"n": 3}
    values = draw_all(function, 0, sizes)
    name = function.wrt[0]
    tangent = np.random.default_rng(1).normal(size=values[name].shape)
    values["tangent"] = tangent + tangent.T if tangent.ndim == 2 else tangent

    def moved(step: float) -> np.ndarray:
        shifted = {**values, name: values[name] + step * values["tangent"]}
        return evaluate(function.expression, shifted, sizes)

    near, far = moved(1e-3) - moved(-1e-3), moved(2e-3) - moved(-2e-3)
    (jvp,) = (
        evaluate(node, values, sizes) for node in function.derivatives.results("jvp").values()
    )
    np.testing.assert_allclose(jvp, (8 * near - far) / 12e-3, rtol=0, atol=1e-8)
    values["cotangent"] = np.random.default_rng(2).normal(size=jvp.shape)
    (vjp,) = (
        evaluate(node, values, sizes) for node in function.derivatives.results("vjp").values()
    )
    assert np.sum(vjp * values["tangent"]) == pytest.approx(np.sum(jvp * values["cotangent"]))


def test_a_root_that_is_not_there() -> None:
    residual = t**2 + s**2 + 1
    module = dx.compile(dx.function("bad", [s], dx.root(residual, t, s)))
    for call in (module.value, module.hessian):
        with pytest.raises(np.linalg.LinAlgError, match=r"^bad: root.*did not converge"):
            call(0.3)
    silent = dx.compile(dx.function("bad", [s], dx.root(residual, t, s, "nan")))
    assert np.isnan(silent.gradient(0.3))


def test_wrong_equations() -> None:
    with pytest.raises(dx.ShapeError, match="an equation for each entry"):
        dx.root(dx.trace(P) - s, P, S)
    with pytest.raises(dx.ShapeError, match="the start has shape"):
        dx.root(P @ P - S, P, b)
    with pytest.raises(dx.DeclarationError, match="does not depend on x"):
        dx.root(b, x, b)
    with pytest.raises(dx.DeclarationError, match="must not depend on x"):
        dx.root(x - b, x, x)
    with pytest.raises(dx.DeclarationError, match="symbolic input"):
        dx.root(x - b, 3, b)
    with pytest.raises(dx.DeclarationError, match="on_failure"):
        dx.root(x - b, x, b, "ignore")
