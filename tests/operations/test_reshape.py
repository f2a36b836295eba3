"""Axes merged, split and gathered, against NumPy: values, plans and every derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.simplify import simplify

n, m, p = dx.dims("n m p")
SIZES = {"n": 3, "m": 4, "p": 2}
X, A, T = dx.matrix("X", n, m), dx.matrix("A", p, n), dx.tensor("T", n, m, p)
S = dx.matrix("S", n, n)
random = np.random.default_rng(5)
VALUES = {
    "X": random.normal(size=(3, 4)),
    "A": random.normal(size=(2, 3)),
    "T": random.normal(size=(3, 4, 2)),
    "S": random.normal(size=(3, 3)),
}

CASES: dict[str, tuple[Array, Callable[..., Any]]] = {
    "ravel": (dx.ravel(X), lambda X, A, T, S: X.ravel()),
    "other rows": (dx.reshape(X, (m, n)), lambda X, A, T, S: X.reshape(4, 3)),
    "two axes as one": (dx.reshape(T, (n * m, p)), lambda X, A, T, S: T.reshape(12, 2)),
    "unknown length": (dx.reshape(T, (n, -1)), lambda X, A, T, S: T.reshape(3, 8)),
    "all axes other": (dx.reshape(T, (p, m, n)), lambda X, A, T, S: T.reshape(2, 4, 3)),
    "there and back": (
        dx.reshape(dx.reshape(T, (n * m, p)), (n, m * p)),
        lambda X, A, T, S: T.reshape(3, 8),
    ),
    "vec": (dx.vec(A @ X), lambda X, A, T, S: (A @ X).T.ravel()),
    "unvec": (dx.unvec(dx.vec(X), n, m), lambda X, A, T, S: X),
    "vech": (dx.vech(S), lambda X, A, T, S: S[np.tril_indices(3)]),
    "unvech": (dx.unvech(dx.vech(S + S.T), n), lambda X, A, T, S: S + S.T),
    "kron": (dx.kron(A, X), lambda X, A, T, S: np.kron(A, X)),
    "kron of vectors": (dx.kron(X[0], A[:, 0]), lambda X, A, T, S: np.kron(X[0], A[:, 0])),
    "mixed product": (
        dx.kron(A, X) @ dx.kron(A.T, X.T),
        lambda X, A, T, S: np.kron(A, X) @ np.kron(A.T, X.T),
    ),
    "take rows": (dx.take(X, [0, 2, 2], 0), lambda X, A, T, S: X[[0, 2, 2]]),
    "take a table": (
        dx.take(X, [[0, 1], [2, 0]], 1),
        lambda X, A, T, S: X[:, [[0, 1], [2, 0]]],
    ),
    "entries": (X[[0, 2, 0], [1, 0, 1]], lambda X, A, T, S: X[[0, 2, 0], [1, 0, 1]]),
    "rows of rows": (X[[[0, 1], [2, 2]]], lambda X, A, T, S: X[[[0, 1], [2, 2]]]),
    "submatrix": (X[[[0], [2]], [1, 3]], lambda X, A, T, S: X[[[0], [2]], [1, 3]]),
    "axes in front": (T[[0, 1], :, [1, 1]], lambda X, A, T, S: T[[0, 1], :, [1, 1]]),
    "a position beside": (T[0, [1, 0]], lambda X, A, T, S: T[0, [1, 0]]),
    "a position apart": (T[1, :, [1, 0]], lambda X, A, T, S: T[1, :, [1, 0]]),
    "a new axis apart": (T[[0, 2], None, [1, 1]], lambda X, A, T, S: T[[0, 2], None, [1, 1]]),
    "no positions": (X[np.zeros((2, 0), int)], lambda X, A, T, S: X[np.zeros((2, 0), int)]),
    "sum of a kron": (dx.sum(dx.kron(A, X)), lambda X, A, T, S: A.sum() * X.sum()),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    expression, expected = CASES[name]
    wanted = expected(**VALUES)
    for node in (expression.node, *simplify([expression.node], expand=True)):
        actual = evaluate(node, VALUES, SIZES)
        assert actual.shape == wanted.shape
        assert np.allclose(actual, wanted, rtol=1e-12)


def test_numpy_functions_on_symbols() -> None:
    assert np.kron(A, X).shape == (p * n, n * m)
    assert np.reshape(X, (m, n)).shape == (m, n)
    assert np.ravel(X).shape == (n * m,)


def test_a_kron_of_products_is_a_product_of_krons() -> None:
    a, b = simplify([(dx.kron(A, X) @ dx.kron(A.T, X.T)).node, dx.kron(A @ A.T, X @ X.T).node])
    assert a is b


def test_kernels_of_every_derivative() -> None:
    total = dx.sum(dx.kron(A, X) ** 2) + dx.sum(dx.exp(dx.take(X, [1, 0, 1], 1)))
    assert dx.verify(dx.compile(dx.function("total", [A, X], total, wrt=[X]))).passed


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("packed", dx.vech(S @ S.T)),
        ("gathered", 2 * dx.take(X, [0, 1, 1], 0)),
        ("entries", dx.exp(X[[0, 1, 0], [1, 2, 1]])),
        ("submatrix", dx.exp(X[[[0], [1]], [1, 0]])),
        ("reshaped", dx.reshape(dx.exp(X), (m, n))),
    ],
)
def test_kernels_of_jacobians(name: str, expression: Array) -> None:
    wrt = S if name == "packed" else X
    assert dx.verify(dx.compile(dx.function(name, [wrt], expression))).passed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dx.reshape(X, (n, n)), r"cannot reshape \(n, m\) into \(n, n\)"),
        (lambda: dx.reshape(X, (-1, -1)), "cannot reshape"),
        (lambda: dx.vec(T), "vec needs a matrix"),
        (lambda: dx.vech(X), "vech needs a square matrix"),
        (lambda: dx.take(X, [0.5], 0), "integers"),
        (lambda: X[[0, 1], [0, 1, 2]], "do not broadcast"),
        (lambda: dx.unvech(X[0], n), "unvech to n rows"),
    ],
)
def test_wrong_shapes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(dx.ShapeError, match=message):
        call()
