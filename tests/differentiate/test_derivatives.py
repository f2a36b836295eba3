"""Every derivative kind of every case, evaluated with NumPy, against central differences of the
declared value and against the other kinds."""

from functools import cache

import numpy as np
import pytest
import scipy.linalg

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Node
from tests.cases import CASES, EVALUATED
from tests.points import SIZES, draw_all, within

STEP = 2e-3


class Setting:
    """One function at one point."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.derivatives = function.derivatives
        self.values = draw_all(function)
        self.single = len(function.wrt) == 1

    def at(self, node: Node, **others: np.ndarray) -> np.ndarray:
        return evaluate(node, {**self.values, **others}, SIZES)

    def all(self, kind: str) -> dict[tuple[str, ...], np.ndarray]:
        return {key: self.at(node) for key, node in self.derivatives.batched(kind).items()}

    def tangent(self, name: str) -> np.ndarray:
        return self.values["tangent" if self.single else f"tangent_{name}"]

    def difference(self, node: Node) -> np.ndarray:
        """The five-point central difference of `node` along the tangents."""

        def moved(step: float) -> np.ndarray:
            shifted = {n: self.values[n] + step * self.tangent(n) for n in self.function.wrt}
            return evaluate(node, {**self.values, **shifted}, SIZES)

        near, far = moved(STEP) - moved(-STEP), moved(2 * STEP) - moved(-2 * STEP)
        return (8 * near - far) / (12 * STEP)

    def within(self, name: str, array: np.ndarray) -> np.ndarray:
        """A change of the gradient by an input, as far as it keeps the input's structure."""
        return within(self.derivatives.inputs[name], self.values[name], array)

    def along(self, jacobian: np.ndarray, name: str, rank: int) -> np.ndarray:
        """The Jacobian times the tangent of an input; `rank` output axes come first."""
        tangent = self.tangent(name)
        flat = jacobian.reshape(*jacobian.shape[:rank], -1)
        if name in self.function.batch:
            tangent = tangent.reshape(tangent.shape[0], *[1] * (rank - 1), -1)
            return (flat * tangent).sum(-1)
        return flat @ tangent.reshape(-1)


ALL = [*CASES, *EVALUATED]
SCALAR = [case for case in ALL if not case.expression.shape]
setting_of = cache(Setting)


@pytest.fixture(scope="module", params=ALL, ids=lambda case: case.name)
def setting(request: pytest.FixtureRequest) -> Setting:
    return setting_of(request.param)


@pytest.fixture(scope="module", params=SCALAR, ids=lambda case: case.name)
def scalar(request: pytest.FixtureRequest) -> Setting:
    return setting_of(request.param)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-8) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def test_jvp_against_differences(setting: Setting) -> None:
    value = setting.derivatives.batched("value")[()]
    close(setting.all("jvp")[()], setting.difference(value))


def test_simplified_value_against_declared(setting: Setting) -> None:
    if setting.function.batch:
        single = {
            name: array[1] if name in setting.function.batch else array
            for name, array in setting.values.items()
        }
        declared = evaluate(setting.function.expression, single, SIZES)
        close(setting.all("value")[()][1], declared, 1e-12)
    else:
        close(setting.all("value")[()], setting.at(setting.function.expression), 1e-12)


def test_vjp_is_adjoint_of_jvp(setting: Setting) -> None:
    forward = np.vdot(setting.all("jvp")[()], setting.values["cotangent"])
    backward = sum(np.vdot(v, setting.tangent(k)) for (k,), v in setting.all("vjp").items())
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-10)


def test_jacobian_along_tangents_is_jvp(setting: Setting) -> None:
    jvp = setting.all("jvp")[()]
    pieces = [setting.along(j, k, jvp.ndim) for (k,), j in setting.all("jacobian").items()]
    close(np.sum(pieces, axis=0), jvp, 1e-10)


def test_only_scalar_functions_have_gradients(setting: Setting) -> None:
    kinds = {"gradient", "value_and_gradient", "hessian", "hvp"}
    result = kinds & {*setting.derivatives.kinds}
    assert result == (set() if setting.function.expression.shape else kinds)


def test_gradient_is_vjp_at_one(scalar: Setting) -> None:
    """The Jacobian is no other node, so it says nothing here."""
    one, gradients = np.ones_like(scalar.values["cotangent"]), scalar.all("gradient")
    for (name,), node in scalar.derivatives.batched("vjp").items():
        shared = scalar.function.batch and name not in scalar.function.batch
        gradient = gradients[name,].sum(axis=0) if shared else gradients[name,]
        close(gradient, scalar.at(node, cotangent=one), 1e-10)


def test_hvp_against_differences_and_hessian(scalar: Setting) -> None:
    gradients = scalar.derivatives.batched("gradient")
    hessian = scalar.all("hessian")
    for (name,), product in scalar.all("hvp").items():
        close(product, scalar.within(name, scalar.difference(gradients[(name,)])))
        pieces = [
            scalar.along(hessian[(name, other)], other, product.ndim)
            for other in scalar.function.wrt
        ]
        close(np.sum(pieces, axis=0), product, 1e-10)


def test_hessian_is_symmetric(scalar: Setting) -> None:
    hessian = scalar.all("hessian")
    stacked = 1 if scalar.function.batch else 0
    ranks = {leaf.name: leaf.ndim for leaf in scalar.function.inputs}
    for (row, column), block in hessian.items():
        first = range(stacked, stacked + ranks[row])
        second = range(stacked + ranks[row], block.ndim)
        close(block.transpose(*range(stacked), *second, *first), hessian[(column, row)], 1e-10)


def test_derivatives_by_stacked_orthogonal_matrices_are_tangential() -> None:
    Q, A = dx.tensor("Q", 2, 2, 2, "orthogonal"), dx.tensor("A", 2, 2, 2)
    reversed_product = dx.function("f", [Q, A], A @ Q[::-1], wrt=[Q])
    scalar = dx.function("g", [Q, A], dx.sum(A * Q @ Q[::-1]), wrt=[Q])
    generator = np.random.default_rng(0)
    q = np.linalg.qr(generator.normal(size=(2, 2, 2)))[0]
    values = {"Q": q, "A": generator.normal(size=(2, 2, 2))}
    jacobian = evaluate(reversed_product.derivatives.results("jacobian")["Q",], values, {})
    close(jacobian, (jacobian - q @ jacobian.mT @ q) / 2)
    hessian = evaluate(scalar.derivatives.results("hessian")["Q", "Q"], values, {})
    close(hessian, hessian.transpose(3, 4, 5, 0, 1, 2))
    close(hessian, evaluate(scalar.derivative("Q", "Q").expression, values, {}))


def test_the_hessian_at_an_orthogonal_matrix_is_that_along_geodesics() -> None:
    """d²/dt² f(Q expm(t Ω)) at t = 0, for a skew Ω, is the Hessian twice times V = Q Ω."""
    n = dx.dims("n")
    Q, A = dx.matrix("Q", n, n, "orthogonal"), dx.matrix("A", n, n)
    function = dx.function(
        "f", [Q, A], dx.sum(dx.tanh(Q.T @ A @ Q) ** 2) + dx.trace(A @ Q), wrt=[Q]
    )
    setting = Setting(function)
    tangent, value = setting.tangent("Q"), setting.values["Q"]
    assert np.abs(tangent).max() > 0.1

    def moved(step: float) -> np.ndarray:
        turned = value @ scipy.linalg.expm(step * value.T @ tangent)
        return setting.at(function.expression, Q=turned)

    h, centre = 1e-3, moved(0.0)
    near, far = moved(h) + moved(-h), moved(2 * h) + moved(-2 * h)
    expected = (16 * near - far - 30 * centre) / (12 * h**2)
    hessian = setting.all("hessian")["Q", "Q"]
    along = np.tensordot(np.tensordot(hessian, tangent, 2), tangent, 2)
    np.testing.assert_allclose(along, expected, rtol=1e-6)
    ambient = np.asarray(np.random.default_rng(2).normal(size=tangent.shape))
    product = setting.derivatives.kernel("hvp")[1]["Q",]
    close(setting.at(product, tangent=ambient), np.tensordot(hessian, ambient, 2))
