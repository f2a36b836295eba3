"""The functions of second derivatives: the JVP as a function, with its VJP and JVP."""

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.arrays import Array
from tests.points import draw_all, within

n, m = dx.dims("n m")
X, A, S = dx.matrix("X", n, n), dx.matrix("A", n, n), dx.matrix("S", n, n, "spd")
L, D, Q = (dx.matrix("M", n, n, structure) for structure in ("lower", "diagonal", "orthogonal"))
W, b, x, y = dx.matrix("W", m, n), dx.vector("b", m), dx.vector("x", n), dx.vector("y", n)
s = dx.scalar("s")
LAYER = dx.softmax(W @ x + b)

FUNCTIONS = [
    dx.function("square", [X], X @ X),
    dx.function("layer", [W, b, x], LAYER),
    dx.function("layers", [W, b, x], LAYER, batch=[x]),
    dx.function("classes", [x, W, b], LAYER, wrt=[x], batch=[x]),
    dx.function("weights", [W, x, b], dx.tanh(W @ x + b) * b, wrt=[b, W], batch=[x, b]),
    dx.function("solution", [S, y], dx.solve(S, y)),
    dx.function("solutions", [S, y], dx.solve(S, y), batch=[S]),
    dx.function("triangle", [L, y], dx.solve(L, dx.exp(L @ y))),
    dx.function("diagonal", [D, y], dx.tanh(D @ D @ y)),
    dx.function("rotated", [Q, y], dx.exp(Q @ y)),
    dx.function("scaled", [s, y], dx.exp(s) * y**2),
    dx.function("chosen", [x, y], dx.where(x > 0, dx.sqrt(dx.abs(x)) * y, x**2)),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_second_derivatives_are_those_of_a_scalar_function(function):
    """The value is the JVP. Its VJP is the HVP of the scalar <cotangent, f>, which is derived
    without it, and its JVP the transpose of the VJP. Verification finds nothing."""
    module, second = dx.compile(function), dx.compile(function.second)
    c = dx.tensor("c", *function.expression.shape)
    inputs = [Array(leaf) for leaf in function.inputs]
    scalar = dx.function(
        "weighted",
        [*inputs, c],
        dx.sum(c * Array(function.expression)),
        wrt=function.wrt,
        batch=[*function.batch, *([c] if function.batch else [])],
    )
    generator = np.random.default_rng(0)
    point = draw_all(function)
    values = [point[leaf.name] for leaf in function.inputs]
    tangents, others = (
        [
            within(leaf, point[leaf.name], generator.normal(size=point[leaf.name].shape))
            for leaf in function.derivatives.wrt
        ]
        for _ in range(2)
    )
    value = module.jvp(*values, *tangents)
    np.testing.assert_allclose(second.value(*values, *tangents), value, rtol=1e-12, atol=1e-12)
    cotangent = generator.normal(size=value.shape)
    products = second.vjp(*values, *tangents, cotangent)
    expected = dx.compile(scalar).hvp(*values, cotangent, *tangents)
    if len(function.wrt) == 1:
        products, expected = [products], [expected]
    for name, product, other in zip(function.wrt, products, expected, strict=True):
        is_summed = function.batch and name not in function.batch
        other = other.sum(0) if is_summed else other
        np.testing.assert_allclose(product, other, rtol=1e-9, atol=1e-11)
    curvature = second.jvp(*values, *tangents, *others)
    np.testing.assert_allclose(
        np.sum(curvature * cotangent),
        sum(np.sum(p * t) for p, t in zip(products, others, strict=True)),
        rtol=1e-9,
    )
    report = dx.verify(second)
    assert report.passed, str(report)


def test_directions_are_named_after_their_inputs():
    ef, el, dX, ds = dx.vector("ef", n), dx.vector("el", n), dx.scalar("dX"), dx.dims("dx")
    function = dx.function(
        "f",
        [X, dX, ef, el, dx.vector("x", ds)],
        dx.exp(dX) * X @ (ef * el) + dx.sum(dx.vector("x", ds)),
    )
    names = [leaf.name for leaf in function.second.inputs[len(function.inputs) :]]
    assert names == ["dX_", "ddX", "def_", "del_", "dx_"]
    assert function.second.name == "f_second" and function.second.wrt == function.wrt


def test_a_linear_function_has_second_derivatives_of_zero():
    second = dx.compile(dx.function("linear", [A, y], A @ y, wrt=[y]).second)
    matrix, ones = np.eye(2), np.ones(2)
    assert second.value(matrix, ones, 2 * ones).tolist() == [2.0, 2.0]
    assert second.vjp(matrix, ones, ones, ones).tolist() == [0.0, 0.0]
    assert second.jvp(matrix, ones, ones, ones).tolist() == [0.0, 0.0]
    assert dx.verify(second).passed
