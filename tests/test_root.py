"""Functions given by equations: values, derivatives, failures."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx

n = dx.dims("n")
P, S = dx.matrix("P", n, n), dx.matrix("S", n, n, "spd")
x, b = dx.vector("x", n), dx.vector("b", n)
A = dx.matrix("A", n, n)
s, t = dx.scalar("s"), dx.scalar("t")


@pytest.mark.parametrize(
    "function",
    [
        dx.function("matrix_root", [S], dx.root(P @ P - S, P, S)),
        dx.function("kepler", [s], dx.root(t - 0.3 * dx.sin(t) - s, t, s)),
        dx.function("sample", [b], dx.root(x + 0.1 * x**3 - b, x, b), batch=[b]),
        dx.function("fixed", [A, b], dx.fixed_point(dx.tanh(0.1 * A @ x + b), x, b), wrt=[b]),
        dx.function(
            "least",
            [A, b],
            dx.argmin(dx.sum((A @ x - b) ** 2) + dx.sum(x**4 + x**2), x, dx.zeros(n)),
            wrt=[b],
        ),
    ],
    ids=lambda function: function.name,
)
def test_derivatives_of_roots(function: dx.Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)


def test_a_root_that_is_not_there() -> None:
    residual = t**2 + s**2 + 1
    module = dx.compile(dx.function("bad", [s], dx.root(residual, t, s)))
    for call in (module.value, module.gradient, module.hessian):
        with pytest.raises(np.linalg.LinAlgError, match=r"^bad: root.*did not converge"):
            call(0.3)
    silent = dx.compile(dx.function("bad", [s], dx.root(residual, t, s, "nan")))
    assert np.isnan(silent.value(0.3))
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
