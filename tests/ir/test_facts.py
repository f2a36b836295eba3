"""Facts of structure, against the numbers they speak of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, seed, settings

import derivatrix.compiler.frontends.arrays as dx
from derivatrix import function
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Node, einsum, slot, topological
from derivatrix.compiler.ir.signs import is_nonnegative, is_positive
from derivatrix.compiler.ir.structure import DECLARED_FACTS, facts, parity
from derivatrix.compiler.simplify import simplify
from tests.strategies import expressions, leaf_values, nodes

SIZES = {"n": 4, "m": 3}
n, m = dx.dims("n m")
A, X = dx.matrix("A", n, m), dx.matrix("X", n, n)
S, P = dx.matrix("S", n, n, "spd"), dx.matrix("P", n, n, "spd")
V, H = dx.matrix("V", m, m, "spd"), dx.matrix("H", n, n, "symmetric")
L, K, U = (
    dx.matrix(*a) for a in (("L", n, n, "lower"), ("K", n, n, "lower"), ("U", n, n, "upper"))
)
D, E = dx.matrix("D", n, n, "diagonal"), dx.matrix("E", n, n, "diagonal")
Q = dx.matrix("Q", n, n, "orthogonal")
x, p = dx.vector("x", n), dx.vector("p", n, "positive")
s, q = dx.scalar("s"), dx.scalar("q", "positive")
B = dx.tensor("B", 2, n, n, structure="spd")

DIFFERENCE = X[:, None, :] - X[None, :, :]
SQUARED = dx.sum(DIFFERENCE**2 * p, axis=2)
DISTANCE = dx.norm(DIFFERENCE, axis=2)
LENGTHS = dx.sum(X**2, axis=1)
GRAM = X @ X.T - LENGTHS[:, None] / 2 - LENGTHS[None, :] / 2

CLAIMS: list[tuple[Array, str]] = [
    (S + dx.diag(x), "symmetric"),
    (S + S.T, "spd"),
    (X + X.T, "symmetric"),
    (X @ H + H @ X.T, "symmetric"),
    (S + 0.1 * dx.eye(n), "spd"),
    (S - 0.1 * dx.eye(n), "symmetric"),
    (S + q * dx.eye(n), "spd"),
    (S + s * dx.eye(n), "symmetric"),
    (S + s**2 * dx.eye(n), "spd"),
    (S + dx.softplus(s) * dx.eye(n), "spd"),
    (S - dx.exp(s) * dx.eye(n), "symmetric"),
    (A.T @ A, "psd"),
    (A @ V @ A.T + dx.eye(n), "spd"),
    (X.T @ H @ X, "symmetric"),
    (X @ dx.diag(p) @ X.T, "psd"),
    (X @ dx.diag(x) @ X.T, "symmetric"),
    (-A.T @ A, "symmetric"),
    (dx.kron(S, V), "spd"),
    (dx.kron(S, dx.eye(m)) + dx.kron(dx.diag(p), V), "spd"),
    (dx.kron(S, dx.kron(P + dx.eye(n), V)), "spd"),
    (dx.kron(H, V), "symmetric"),
    (-dx.kron(S, V), "symmetric"),
    (dx.kron(dx.diag(x), V), "symmetric"),
    (dx.outer(x, x), "psd"),
    (dx.outer(x, p), ""),
    (dx.outer(x, x) * S, "psd"),
    (dx.outer(x, x) * H, "symmetric"),
    (dx.einsum("ia,ja,a->ij", X, X, p), "psd"),
    (dx.einsum("ia,ja,a->ij", X, X, x), "symmetric"),
    (dx.einsum("ia,ja,ib,jb->ij", X, X, A, A), "psd"),
    (dx.einsum("ia,jb,ab,ij->ij", X, X, S, P), "psd"),
    (dx.einsum("ia,jb,ab,ia,ja->ij", X, X, S, P, P), ""),
    (dx.einsum("ia,jb,ab,ia,jb->ij", X, X, S, H, H), "psd"),
    (dx.einsum("ia,jb,ab,ia,ja,ib,jb->ij", X, X, S, H, H, H, H), "symmetric"),
    (dx.einsum("ia,ja,ib,jb,ab->ij", X, X, X, X, S), "symmetric"),
    (S + P, "spd"),
    (S - P, "symmetric"),
    (S / q, "spd"),
    (S * s, "symmetric"),
    (S @ P, ""),
    (S @ P @ S, "psd"),
    (dx.inv(A.T @ A), "spd"),
    (X @ dx.inv(S) @ X.T, "psd"),
    (dx.inv(L), "lower"),
    (L @ K, "lower"),
    (U.T @ L.T.T, "lower"),
    (L @ D @ K, "lower"),
    (L.T @ U, "upper"),
    (L @ U, ""),
    (L * X, "lower"),
    (L + D, "lower"),
    (L + 1, ""),
    (dx.sin(L), "lower"),
    (dx.cos(L), ""),
    (dx.tril(X), "lower"),
    (dx.tril(X, -1), "lower"),
    (dx.tril(X, 1), ""),
    (dx.triu(X) @ U, "upper"),
    (D @ E, "diagonal lower upper symmetric"),
    (D + E, "diagonal"),
    (dx.diag(p), "diagonal spd"),
    (dx.diag(x**2), "diagonal psd"),
    (dx.diag(x), "diagonal"),
    (Q.T, "orthogonal"),
    (2 * Q, ""),
    (dx.constant([[2.0, 0], [1, 3]]), "lower"),
    (dx.constant([[2.0, 1], [1, 3]]), "symmetric"),
    (B + B.mT, "spd"),
    (X @ B @ X.T, "psd"),
    (GRAM, "symmetric"),
    (dx.exp(GRAM), "psd"),
    (dx.exp(-SQUARED / 2) + q * dx.eye(n), "spd"),
    (dx.exp(SQUARED), "symmetric"),
    (dx.exp(dx.exp(-SQUARED)), "psd"),
    (dx.exp(-DISTANCE / q), "psd"),
    (q * dx.exp(-2 * dx.sqrt(DISTANCE) - SQUARED), "psd"),
    ((1 + SQUARED / q) ** -1.5, "psd"),
    ((1 - SQUARED) ** -2, "symmetric"),
    ((SQUARED - 1) ** -1, "symmetric"),
    (1 / (DISTANCE + SQUARED), "symmetric"),
    (1 / (2 + DISTANCE) + dx.exp(-dx.log1p(DISTANCE)), "psd"),
    (dx.exp(-dx.abs(x[:, None] - x[None, :])), "psd"),
    (dx.exp(-dx.abs(x[:, None] + x[None, :])), "symmetric"),
    (dx.exp(-DISTANCE) - dx.eye(n), "symmetric"),
    (dx.cos(x[:, None] - x[None, :]), "symmetric"),
    (dx.sin(x[:, None] - x[None, :]), ""),
    (dx.sin(x[:, None] - x[None, :]) ** 2, "symmetric"),
    (dx.exp(-((x[:, None] - p[None, :]) ** 2)), ""),
    (dx.exp(-s * SQUARED), "symmetric"),
    (dx.exp(-(s**2) * SQUARED / 1000), "psd"),
    (dx.exp(-dx.hypot(H, 1)), "symmetric"),
    (dx.exp(-1 * -SQUARED), "symmetric"),
    (elementwise(1 + sympy.cosh(slot(0)), GRAM), "symmetric"),
]
"""Each with facts that must be found; definite or semidefinite only where that is listed."""


def draw(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)

    def definite(*shape: int) -> np.ndarray:
        root = generator.normal(size=shape)
        return root @ root.swapaxes(-1, -2) + 0.1 * np.eye(shape[-1])

    square = [generator.normal(size=(4, 4)) for _ in range(8)]
    return {
        "A": generator.normal(size=(4, 3)),
        "X": square[0],
        "S": definite(4, 4),
        "P": definite(4, 4),
        "V": definite(3, 3),
        "B": definite(2, 4, 4),
        "H": square[1] + square[1].T,
        "L": np.tril(square[2]),
        "K": np.tril(square[3]),
        "U": np.triu(square[4]),
        "D": np.diag(np.diag(square[5])),
        "E": np.diag(np.diag(square[6])),
        "Q": np.linalg.qr(square[7])[0],
        "x": generator.normal(size=4),
        "p": np.exp(generator.normal(size=4)),
        "s": np.asarray(2 * generator.normal()),
        "q": np.asarray(np.exp(generator.normal())),
    }


def least(array: np.ndarray) -> float:
    """The least eigenvalue, in units of the largest."""
    values = np.linalg.eigvalsh(array)
    return float((values.min(-1) / np.maximum(abs(values).max(-1), 1e-300)).min())


HOLDS: dict[str, Callable[[np.ndarray], bool]] = {
    "symmetric": lambda array: np.allclose(array, array.swapaxes(-1, -2)),
    "lower": lambda array: np.allclose(array, np.tril(array)),
    "upper": lambda array: np.allclose(array, np.triu(array)),
    "diagonal": lambda array: np.allclose(array, np.tril(np.triu(array))),
    "orthogonal": lambda array: np.allclose(array @ array.swapaxes(-1, -2), np.eye(len(array))),
    "psd": lambda array: not array.size or least(array) > -1e-9,
    "spd": lambda array: not array.size or least(array) > -1e-12,
}


def check(node: Node, values: Any, sizes: Any) -> None:
    """Whatever is said of a node is so at these values."""
    array = evaluate(node, values, sizes)
    if np.isfinite(array).all():
        for fact in facts(node):
            assert HOLDS[fact](array), (fact, array)
        assert not is_nonnegative(node) or (array >= 0).all()
        assert not is_positive(node) or (array > 0).all()


@pytest.mark.parametrize(
    ("expression", "claimed"), CLAIMS, ids=[str(i) for i in range(len(CLAIMS))]
)
def test_facts(expression: Array, claimed: str) -> None:
    node = simplify([expression.node])[0]
    known = facts(node)
    assert set(claimed.split()) <= known
    assert ("psd" in known) == ("psd" in claimed or "spd" in claimed)
    assert ("spd" in known) == ("spd" in claimed)
    for point in range(10):
        check(expression.node, draw(point), SIZES)
        check(node, draw(point), SIZES)


@pytest.mark.parametrize("kind", [nodes(), expressions()], ids=["nodes", "expressions"])
def test_facts_of_random_nodes(kind: Any) -> None:
    @seed(0)
    @settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(kind)
    def holds(drawn: Node | Array) -> None:
        node = drawn.node if isinstance(drawn, Array) else drawn
        for point in range(3):
            check(node, leaf_values(point), {})
            check(simplify([node])[0], leaf_values(point), {})

    holds()


def test_facts_of_shared_products() -> None:
    """P Aᵀ is a node of its own where it is used twice."""
    shared = P @ X.T
    total, gain = simplify([(X @ shared + S).node, (shared @ dx.inv(X @ shared + S)).node])
    assert "spd" in facts(total)
    assert any("spd" in facts(node) for node in topological([gain]))


def test_parity() -> None:
    difference = (x[:, None] - x[None, :]).node
    assert parity(DIFFERENCE.node, 0, 1) == -1
    assert parity(DIFFERENCE.node, 0, 2) is None
    assert parity((X - X.T).node, 0, 1) == -1
    assert parity(difference, 0, 1) == -1
    for node, sign in (
        (dx.sin(Array(difference)), -1),
        (Array(difference) * (X - X.T), 1),
        (Array(difference) * S, -1),
        (dx.exp(Array(difference)), None),
        (X + 2 * X.T, None),
        (2 * X - X.T, None),
    ):
        assert parity(simplify([node.node])[0], 0, 1) == sign


@pytest.mark.parametrize("structure", DECLARED_FACTS)
def test_assumed(structure: str) -> None:
    assumed = dx.assume(dx.cos(X), structure)
    assert facts(assumed.node) == DECLARED_FACTS[structure]
    texts = ("cos(X)⁻¹ X", "M⁻¹ X  where M = cos(X)", "Hᵀ X  where H = cos(X)")
    assert function("f", [X], dx.inv(assumed) @ X).formula("value") in texts


def test_signs() -> None:
    weight = dx.scalar("weight", "positive")
    known = {
        x**2: (False, True),
        x**2 + 1: (True, True),
        dx.exp(x) * weight: (True, True),
        dx.sigmoid(x) + dx.softplus(x): (True, True),
        weight * x: (False, False),
        dx.sqrt(weight) + dx.abs(x): (True, True),
        dx.sum(dx.exp(x)): (True, True),
        -dx.exp(x): (False, False),
        dx.vector("share", n, "simplex"): (True, True),
        dx.constant([1.0, 0.0]): (False, True),
    }
    for array, signs in known.items():
        assert (is_positive(array.node), is_nonnegative(array.node)) == signs
    assert not is_nonnegative(Array(simplify([(x * sympy.S.NegativeOne).node])[0]).node)


def test_coefficients_with_sizes() -> None:
    gradient = dx.grad(dx.var(X, ddof=1), X)
    values = np.arange(16.0).reshape(4, 4)
    expected = 2 * (values - values.mean()) / 15
    np.testing.assert_allclose(evaluate(gradient.node, {"X": values}, SIZES), expected, atol=1e-14)
    antisymmetric = (X - X.T).node
    product = einsum([(dx.sin(X - X.T).node, (0, 1))], (0, 1), sympy.Symbol("k") - 1)
    assert parity(antisymmetric, 0, 1) == parity(product, 0, 1) == -1
