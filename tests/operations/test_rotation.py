"""Sines over angles and what is made of them: sinc, and rotations about vectors."""

import mpmath
import numpy as np
import pytest
import scipy
import sympy
from scipy.spatial.transform import Rotation

import derivatrix as dx
from derivatrix.compiler.ir import interpret
from derivatrix.compiler.ir.arrays import elementwise
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.scalar_functions import evaluate, spherical

n = dx.dims("n")
x, w, V, W = dx.vector("x", n), dx.vector("w", 3), dx.matrix("V", n, 3), dx.matrix("W", n, 3)


def exact_spherical(order, number):
    """j_k(x) / x^k in many digits."""
    with mpmath.workdps(60):
        number = abs(mpmath.mpf(number))
        if not number:
            return float(1 / mpmath.fac2(2 * order + 1))
        bessel = mpmath.besselj(order + mpmath.mpf(1) / 2, number)
        return float(mpmath.sqrt(mpmath.pi / 2 / number) * bessel / number**order)


@pytest.mark.parametrize("order", range(6))
def test_spherical_functions(order):
    points = np.concatenate([[0, 1e-300, 1e-160, 1e-9], np.linspace(0.01, 12, 200), [1e3, -2.5]])
    expected = np.array([exact_spherical(order, point) for point in points])
    envelope = np.minimum(expected[0], np.maximum(abs(points), 1) ** -(order + 1.0))
    module = dx.compile(dx.function("f", [x], elementwise(spherical(order, slot(0)), x)))
    for values in (module.value(points), evaluate(spherical(order, slot(0)), [points])):
        assert np.abs((values - expected) / envelope).max() < 2e-12
    assert np.abs((module.value(points) - expected) / envelope)[:200].max() < 2e-15
    assert np.isfinite(module.value(np.array([1e200, 1e300]))).all()


def test_sinc_has_every_derivative_at_0():
    module = dx.compile(dx.function("f", [x], dx.sinc(x)))
    points = np.array([0, 1e-300, 1e-5, 0.5, 1, -3.25])
    np.testing.assert_allclose(module.value(points), np.sinc(points), rtol=1e-14, atol=1e-16)
    s = dx.scalar("s")
    orders = [dx.function("f", [s], dx.sinc(s))]
    while len(orders) < 7:
        orders.append(orders[-1].derivative(s))
    values = [interpret.evaluate(function.expression, {"s": 0.0}, {}) for function in orders]
    expected = [1, 0, -(np.pi**2) / 3, 0, np.pi**4 / 5, 0, -(np.pi**6) / 7]
    np.testing.assert_allclose(values, expected, rtol=1e-14)


def test_sinc_of_numpy_and_sympy():
    assert np.sinc(x).node is dx.sinc(x).node
    s = sympy.Symbol("s", real=True)
    function = dx.function("f", ["s"], sympy.sinc(s) * s)
    third = function.derivative("s", "s", "s").expression
    np.testing.assert_allclose(interpret.evaluate(third, {"s": 0.0}, {}), -1)
    assert dx.function("f", [x], dx.sinc(x)).formula("vjp") == "−π² ȳ ⊙ x ⊙ spherical(1, π x)"


def test_values_of_rotations():
    module = dx.compile(dx.function("f", [w], dx.rotation(w), batch=[w]))
    vectors = np.random.default_rng(0).normal(size=(50, 3)) * np.geomspace(1e-170, 30, 50)[:, None]
    vectors[0] = 0
    expected = Rotation.from_rotvec(vectors).as_matrix()
    np.testing.assert_allclose(module.value(vectors), expected, atol=1e-14)


def test_derivatives_of_rotations_at_0():
    """Those of the exponential's series I + K + K²/2 + K³/6."""
    weights = np.random.default_rng(1).normal(size=(3, 3))
    turned = dx.function("f", [w], dx.sum(weights * dx.rotation(w)))
    K = dx.skew(w)
    series = dx.function("f", [w], dx.sum(weights * (K + K @ K / 2 + K @ K @ K / 6)))
    for names in (["w"], ["w", "w"], ["w", "w", "w"]):
        actual, expected = (
            interpret.evaluate(function.derivative(*names).expression, {"w": np.zeros(3)}, {})
            for function in (turned, series)
        )
        np.testing.assert_allclose(actual, expected, atol=1e-14)


def test_stacks_of_rotations():
    module = dx.compile(dx.function("f", [W, V], (dx.rotation(W) @ V[..., None])[..., 0]))
    vectors, points = np.random.default_rng(2).normal(size=(2, 5, 3))
    expected = Rotation.from_rotvec(vectors).apply(points)
    np.testing.assert_allclose(module.value(vectors, points), expected, atol=1e-14)


def test_a_rotation_is_an_exponential():
    vector = np.array([0.3, -1.1, 0.4])
    module = dx.compile(dx.function("f", [w], dx.rotation(w) - dx.expm(dx.skew(w))))
    assert np.abs(module.jacobian(vector)).max() < 1e-13
    np.testing.assert_allclose(
        scipy.linalg.expm(np.cross(np.eye(3), vector)), Rotation.from_rotvec(vector).as_matrix()
    )


def test_vectors_of_other_sizes_are_refused():
    with pytest.raises(dx.ShapeError, match=r"rotation\(v\): .* \(4,\); expected 3 entries"):
        dx.rotation(dx.vector("v", 4))
