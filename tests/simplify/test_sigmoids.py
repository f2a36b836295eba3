"""Cross entropies: logarithms of sigmoids without overflow, derivatives with one sigmoid."""

import numpy as np
import pytest
import scipy.special

import derivatrix as dx
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Node
from derivatrix.compiler.simplify import sigmoids, simplify

n, m = dx.dims("n m")
X, A = dx.matrix("X", n, m), dx.matrix("A", n, n)
w, y, t = dx.vector("w", m), dx.vector("y", n), dx.vector("t", n)


def test_a_logistic_regression_reads_like_a_books() -> None:
    p = dx.sigmoid(X @ w)
    loss = -dx.sum(y * dx.log(p) + (1 - y) * dx.log(1 - p))
    function = dx.function("loss", [X, w, y], loss, wrt=[w])
    assert function.formula("gradient") == "Xᵀ (sigmoid(X w) − y)"
    assert function.formula("hessian") == "Xᵀ diag(p ⊙ (1 − p)) X  where p = sigmoid(X w)"


@pytest.mark.parametrize(
    "text", ["log(sigmoid(-t))", "log(1 - sigmoid(t))", "log(1./(1 + exp(t)))"]
)
def test_logarithms_are_finite_where_sigmoids_are_zero(text: str) -> None:
    module = dx.compile(dx.function("f", [t], dx.parse(text, t="n")))
    values = np.array([-800.0, -1.0, 0.0, 40.0, 800.0])
    np.testing.assert_allclose(module.value(values), scipy.special.log_expit(-values))


def evaluated(*nodes: Node) -> list[np.ndarray]:
    draw = np.random.default_rng(0).normal
    values = {"A": draw(size=(3, 3)), "t": draw(size=3), "y": draw(size=3)}
    return [evaluate(node, values, {"n": 3}) for node in nodes]


P, Q = dx.sigmoid(t), dx.sigmoid(-t)
SUMS = {
    "entries": (P * (1 - y) - Q * y, True),
    "summed": ((P * (1 - y)) @ A - (Q * y) @ A, True),
    "the same twice": (P * y + Q * y, True),
    "with a sum of its own": (dx.outer(P * (1 - y), A @ t) - dx.outer(Q * y, A @ t), True),
    "of arrays that have nothing in common": (P * y + Q * (A @ t), False),
    "of sums that differ": ((P * (A @ A @ y)) @ A - (Q * (A @ y)) @ A, False),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_have_one_sigmoid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array, fewer = SUMS[name]
    (simple,) = simplify([array.node])
    expected, actual = evaluated(array.node, simple)
    np.testing.assert_allclose(actual, expected, atol=1e-14)
    with monkeypatch.context() as patch:
        patch.setattr("derivatrix.compiler.simplify.with_one_sigmoid", lambda *_: None)
        assert (simplify([array.node])[0] != simple) == fewer


def test_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sigmoids._Sigmoid.without

    def doubled(self: sigmoids._Sigmoid, shared: list) -> Node:
        return (2 * Array(right(self, shared))).node

    monkeypatch.setattr(sigmoids._Sigmoid, "without", doubled)
    node = SUMS["entries"][0].node
    expected, actual = evaluated(node, simplify([node])[0])
    assert not np.allclose(actual, expected)
