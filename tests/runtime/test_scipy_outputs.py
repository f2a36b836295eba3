"""Objectives of functions with several outputs: their outputs stacked as one residual vector."""

import numpy as np
import pytest
from scipy import optimize

import derivatrix as dx
from derivatrix.scipy import objective

n, m = dx.dims("n m")
A, b, x, S = dx.matrix("A", m, n), dx.vector("b", m), dx.vector("x", n), dx.matrix("S", n, n, "spd")
PARTS = {"misfit": dx.exp(A @ x / 2) - b, "size": x @ S @ x, "bend": dx.outer(x, x) - S}
FIT = dx.function("fit", [A, b, x, S], PARTS, wrt=[x, S])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(2)


def differences(function, x, step=1e-6):
    columns = [(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(len(x))]
    return np.stack(columns, axis=-1)


def test_outputs_are_stacked(random: np.random.Generator) -> None:
    data = {"A": random.normal(size=(4, 2)), "b": random.normal(size=4)}
    fit = objective(FIT, **data)
    point = fit.pack(x=random.normal(size=2), S=np.array([[2.0, 0.5], [0.5, 1.0]]))
    arrays = fit.unpack(point)
    x, S = arrays.x, arrays.S
    expected = [np.exp(data["A"] @ x / 2) - data["b"], [x @ S @ x], (np.outer(x, x) - S).ravel()]
    residual = fit.residual(point)
    np.testing.assert_allclose(residual, np.concatenate(expected))
    jacobian = fit.jac(point)
    assert jacobian.shape == (9, 5)
    np.testing.assert_allclose(jacobian, differences(fit.residual, point), atol=1e-7)
    operator = fit.jac_operator(point)
    np.testing.assert_allclose(operator @ np.eye(5), jacobian, atol=1e-12)
    np.testing.assert_allclose(operator.T @ np.eye(9), jacobian.T, atol=1e-12)
    weights = random.normal(size=9)
    curvature = differences(lambda moved: fit.jac(moved).T @ weights, point)
    np.testing.assert_allclose(fit.hess(point, weights), curvature, atol=1e-6)


def test_least_squares_of_several_outputs(random: np.random.Generator) -> None:
    data = {"A": random.normal(size=(6, 2)), "S": np.eye(2) / 10}
    truth = np.array([0.3, -0.4])
    fit = objective(FIT, ["x"], b=np.exp(data["A"] @ truth / 2), **data)
    start = fit.pack(np.zeros(2) + 0.1)
    plain, matrix, products = (
        optimize.least_squares(fit.residual, start, jac=jac)
        for jac in ("2-point", fit.jac, fit.jac_operator)
    )
    np.testing.assert_allclose(matrix.x, plain.x, atol=1e-6)
    np.testing.assert_allclose(products.x, plain.x, atol=1e-6)


def test_samples_are_stacked_by_output(random: np.random.Generator) -> None:
    function = dx.function("fits", [A, x], {"line": A @ x, "size": x @ x}, wrt=[x, A], batch=[x])
    fits = objective(function)
    point = fits.pack(x=random.normal(size=(3, 2)), A=random.normal(size=(4, 2)))
    assert fits.residual(point).shape == (15,)
    np.testing.assert_allclose(fits.jac(point), differences(fits.residual, point), atol=1e-7)
    operator = fits.jac_operator(point)
    np.testing.assert_allclose(operator.T @ np.eye(15), fits.jac(point).T, atol=1e-12)


def test_several_outputs_are_no_scalar() -> None:
    fit = objective(FIT, ["x"], A=np.ones((1, 2)), b=np.ones(1), S=np.eye(2))
    with pytest.raises(dx.UnsupportedError, match="this one returns misfit, size, bend; use resid"):
        fit.fun(np.ones(2))
