"""Higher derivatives by name: each against differences of the one before, and one compiled."""

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate
from tests.points import draw_all

n, m = dx.dims("n m")
x, y, A = dx.vector("x", n), dx.vector("y", m), dx.matrix("A", n, m)
X, S, L = dx.matrix("X", n, n), dx.matrix("S", n, n, "spd"), dx.matrix("L", n, n, "lower")
SIZES = {"n": 3, "m": 2}
STEP = 1e-3

FUNCTIONS = [
    dx.function("cube", [X], dx.trace(X @ X @ X)),
    dx.function("inverse", [X], dx.inv(X)),
    dx.function("logdet", [S], dx.logdet(S)),
    dx.function("triangle", [L], dx.sum(dx.exp(L @ L))),
    dx.function("logsumexp", [x], dx.logsumexp(x)),
    dx.function("softmax", [x], dx.softmax(x)),
    dx.function("form", [x, A, y], dx.exp(0.3 * (x @ A @ y))),
    dx.function("exponential", [X], dx.trace(X @ dx.expm(X))),
    dx.function("linear", [x, A], A.T @ x),
]
ORDERS = [
    (f, names)
    for f in FUNCTIONS
    for names in [(f.wrt[0],) * 3, (f.wrt[0], f.wrt[-1]), (f.wrt[-1], f.wrt[0], f.wrt[0])]
]


@pytest.mark.parametrize(("function", "names"), ORDERS, ids=lambda part: str(part)[:40])
def test_a_derivative_is_that_of_the_one_before(function, names):
    before = function.derivative(*names[:-1])
    actual = function.derivative(*names)
    assert actual.name == "_".join([function.name, *names])
    assert actual.inputs == function.inputs
    values = draw_all(function, 0, SIZES)
    leaf = next(leaf for leaf in function.inputs if leaf.name == names[-1])
    direction = np.random.default_rng(1).normal(size=values[leaf.name].shape)
    if leaf.structure == "spd":
        direction = direction + direction.T
    if leaf.structure == "lower":
        direction = np.tril(direction)

    def moved(step):
        at = {**values, leaf.name: values[leaf.name] + step * direction}
        return evaluate(before.expression, at, SIZES)

    near, far = moved(STEP) - moved(-STEP), moved(2 * STEP) - moved(-2 * STEP)
    array = evaluate(actual.expression, values, SIZES)
    along = np.tensordot(array, direction, direction.ndim)
    size = max(np.abs(along).max(), np.abs(array).max(), 1e-3)
    np.testing.assert_allclose(along, (8 * near - far) / (12 * STEP), rtol=0, atol=2e-7 * size)


def test_a_third_derivative_is_compiled_and_verified():
    third = dx.function("form", [x], dx.logsumexp(x)).derivative(x, "x", x)
    module = dx.compile(third)
    assert dx.verify(module).passed
    assert module.value(np.arange(4.0)).shape == (4, 4, 4)


def test_derivatives_by_what_is_not_an_input_are_refused():
    cube = FUNCTIONS[0]
    for wrong in ((), ("X", "Z"), (S,)):
        with pytest.raises(dx.DeclarationError, match="cube: "):
            cube.derivative(*wrong)
