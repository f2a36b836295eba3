"""Declarations by SymPy's expressions, derivatrix's arrays and NumPy's functions on symbols,
lowered and evaluated, against NumPy on numbers."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.special
import sympy
from sympy import MatrixSymbol, Symbol, Trace
from sympy.matrices.expressions import factorizations
from sympy.matrices.expressions.diagonal import DiagonalMatrix

import derivatrix.compiler.frontends.arrays as dx
from derivatrix.compiler.frontends.numpy import RENAMED
from derivatrix.compiler.frontends.sympy import lower
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.scalar_functions import FUNCTIONS
from derivatrix.runtime.errors import DerivatrixError, ShapeError, UnsupportedError

n, m = sympy.symbols("n m")
N, M = dx.dims("n m")
X, A = MatrixSymbol("X", n, n), MatrixSymbol("A", m, n)
x, y = MatrixSymbol("x", n, 1), MatrixSymbol("y", m, 1)
s = Symbol("s")
J, K = sympy.symbols("j k", integer=True)
SIZES = {"n": 4, "m": 3}
generator = np.random.default_rng(0)
VALUES = {
    "X": generator.normal(size=(4, 4)),
    "A": generator.normal(size=(3, 4)),
    "x": generator.normal(size=4),
    "y": generator.normal(size=3),
    "s": np.asarray(1.3),
    "p": np.exp(generator.normal(size=4)),
    "T": generator.normal(size=(2, 3, 4)),
}
X_, A_, x_, y_, p_, T_ = (VALUES[name] for name in "XAxypT")
s_ = 1.3


def check(expression: Any, expected: Any) -> None:
    node = expression.node if isinstance(expression, Array) else lower(expression)
    actual = evaluate(node, VALUES, SIZES)
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


SYMPY = [
    (X * X, X_ @ X_),
    (x.T * X * x, x_ @ X_ @ x_),
    (Trace(X.I * X.T), np.trace(np.linalg.inv(X_) @ X_.T)),
    (A * x + 2 * y, A_ @ x_ + 2 * y_),
    (x * x.T, np.outer(x_, x_)),
    (x.T * x, x_ @ x_),
    (sympy.HadamardProduct(X, X.T), X_ * X_.T),
    (sympy.HadamardPower(X, 2), X_**2),
    (sympy.log(sympy.Determinant(X * X.T)), np.log(np.linalg.det(X_ @ X_.T))),
    (X.applyfunc(sympy.tanh), np.tanh(X_)),
    (X.applyfunc(sympy.Lambda(n, n**2 + 1)), X_**2 + 1),
    (sympy.DiagMatrix(x) * X, np.diag(x_) @ X_),
    (sympy.DiagonalOf(X), np.diag(X_)),
    (s * X + sympy.Identity(n), s_ * X_ + np.eye(4)),
    (X + sympy.OneMatrix(n, n) - sympy.ZeroMatrix(n, n), X_ + 1),
    (X[0, 1] ** 2, X_[0, 1] ** 2),
    (X[0:2, 1:3], X_[0:2, 1:3]),
    (X[0, :], X_[0]),
    (x[2, 0] * X, x_[2] * X_),
    (sympy.exp(Trace(X)) + sympy.sqrt(s) * sympy.pi, np.exp(np.trace(X_)) + np.sqrt(s_) * np.pi),
    (
        sympy.BlockMatrix([[X, x], [x.T, sympy.Matrix([[s]])]]),
        np.block([[X_, x_[:, None]], [x_[None], np.array([[s_]])]]),
    ),
    (sympy.Matrix([[s, 1], [2, s**2]]), np.array([[s_, 1], [2, s_**2]])),
    (sympy.Matrix([[1, 2], [3, 4]]), np.array([[1.0, 2], [3, 4]])),
    (X**3, np.linalg.matrix_power(X_, 3)),
    (X**-2, np.linalg.matrix_power(X_, -2)),
    (sympy.Max(s, 0) * x, s_ * x_),
    (sympy.Piecewise((s, s > 2), (s**2, True)), s_**2),
    (N * Trace(X) / M, 4 * np.trace(X_) / 3),
    ((x.T * X * x)[0, 0], x_ @ X_ @ x_),
    ((X * X)[1, 2] ** 2, (X_ @ X_)[1, 2] ** 2),
    (factorizations.LofLU(X) * factorizations.UofLU(X), X_),
    (factorizations.LofCholesky(X.T * X), np.linalg.cholesky(X_.T @ X_)),
    (factorizations.UofCholesky(X.T * X), np.linalg.cholesky(X_.T @ X_).T),
    (factorizations.QofQR(X) * factorizations.RofQR(X), X_),
    (factorizations.SofSVD(X), np.diag(np.linalg.svd(X_)[1])),
    (sympy.MatMul(*factorizations.svd(X)[:2], factorizations.VofSVD(X).T), X_),
    (sympy.atan2(s, Trace(X)), np.arctan2(s_, np.trace(X_))),
    (A.applyfunc(sympy.loggamma), scipy.special.loggamma(A_)),
    (DiagonalMatrix(A), A_ * np.eye(3, 4)),
    (DiagonalMatrix(X) * x, np.diag(X_) * x_),
    (sympy.Sum(s, (K, 0, N - 1)), 4 * s_),
    (sympy.Sum(x[K, 0], (K, 0, N - 1), (J, 0, M - 1)), 3 * x_.sum()),
]


@pytest.mark.parametrize(("expression", "expected"), SYMPY, ids=lambda part: str(part)[:40])
def test_sympy(expression: Any, expected: Any) -> None:
    check(expression, expected)


Xa, Aa, xa, ya, pa = (
    dx.matrix("X", "n", "n"),
    dx.matrix("A", "m", "n"),
    dx.vector("x", "n"),
    dx.vector("y", "m"),
    dx.vector("p", "n", "positive"),
)
Ta = dx.tensor("T", 2, 3, 4)

ARRAYS = [
    (Xa @ Xa, X_ @ X_),
    (xa @ Xa @ xa, x_ @ X_ @ x_),
    (Ta @ dx.ones(4, 2), T_ @ np.ones((4, 2))),
    (Xa * xa + 2, X_ * x_ + 2),
    (xa[:, None] - xa, x_[:, None] - x_),
    (2**xa / Xa, 2**x_ / X_),
    (1 - Xa, 1 - X_),
    (-Xa.T + +Xa, -X_.T + X_),
    (Xa[1:, :] @ xa, X_[1:] @ x_),
    (Xa[::-1, -1], X_[::-1, -1]),
    (Xa[-2:, :2], X_[-2:, :2]),
    (Xa[..., 0], X_[..., 0]),
    (Xa[0], X_[0]),
    (Ta[:, ::2, 1], T_[:, ::2, 1]),
    (Ta.mT, np.swapaxes(T_, -1, -2)),
    (Ta.T, T_.T),
    (Ta.sum((0, 2)), T_.sum((0, 2))),
    (Ta.mean(1, keepdims=True), T_.mean(1, keepdims=True)),
    (abs(Xa) ** 2.5, np.abs(X_) ** 2.5),
    (Fraction(1, 3) * xa - Decimal("0.1"), x_ / 3 - 0.1),
    (dx.asarray([Fraction(1, 2), 3]) * ya[:2], np.array([0.5, 3]) * y_[:2]),
    (np.float32(0.5) * xa + np.array(2) * xa - np.bool_(True), 2.5 * x_ - 1),
    (dx.where(Xa > 0, Xa, 0.1 * Xa), np.where(X_ > 0, X_, 0.1 * X_)),
    (dx.where(Xa == Xa.T, Xa, 0), np.diag(np.diag(X_))),
    (dx.where(Xa != Xa.T, Xa, 0), X_ - np.diag(np.diag(X_))),
    (dx.where(Xa <= Xa.T, 1, 0), np.where(X_ <= X_.T, 1.0, 0.0)),
    (dx.var(Xa, axis=0), X_.var(axis=0)),
    (dx.cumsum(Ta, axis=1), T_.cumsum(axis=1)),
    (dx.tensordot(Ta, Ta, ([0, 1], [0, 1])), np.tensordot(T_, T_, ([0, 1], [0, 1]))),
    (dx.norm(xa, 3), np.linalg.norm(x_, 3)),
    (dx.norm(Xa, "fro", axis=(0, 1)), np.linalg.norm(X_)),
    (dx.softmax(Xa, axis=0), scipy.special.softmax(X_, axis=0)),
    (dx.logsumexp(Ta, axis=(0, 1)), scipy.special.logsumexp(T_, axis=(0, 1))),
    (dx.logsumexp(Xa), scipy.special.logsumexp(X_)),
    (dx.prod(Ta, axis=(0, 2), keepdims=True), np.prod(T_, axis=(0, 2), keepdims=True)),
    (np.prod(Xa) * Xa.prod(-1) + np.multiply.reduce(Xa), X_.prod() * X_.prod(-1) + X_.prod(0)),
    (dx.log_softmax(Xa), scipy.special.log_softmax(X_, axis=-1)),
    (
        dx.block([[Xa, xa[:, None]], [xa[None], dx.ones(1, 1)]]),
        np.block([[X_, x_[:, None]], [x_[None], np.ones((1, 1))]]),
    ),
    (dx.clip(Xa, -0.5, 0.5), np.clip(X_, -0.5, 0.5)),
    (dx.inv(Ta[:, :, :3]), np.linalg.inv(T_[:, :, :3])),
    (dx.solve(Xa, Aa.T), np.linalg.solve(X_, A_.T)),
    (dx.matrix_power(Xa, 0), np.eye(4)),
    (dx.matrix_power(Xa, -3), np.linalg.matrix_power(X_, -3)),
    (dx.constant([[1, 2], [3, 4]]) @ xa[:2], np.array([[1, 2], [3, 4]]) @ x_[:2]),
    (np.array([[1.0, 2], [3, 4]]) @ xa[:2], np.array([[1, 2], [3, 4]]) @ x_[:2]),
    (dx.squeeze(Xa[:1]), X_[0]),
    (dx.diag(xa) + dx.diag(dx.diagonal(Xa)), np.diag(x_) + np.diag(np.diag(X_))),
    (Xa / dx.dims("n"), X_ / 4),
    (N * xa / (N + 1) + dx.sum(xa) / N**2, 4 * x_ / 5 + x_.sum() / 16),
    (N + xa - s * xa, 4 + x_ - s_ * x_),
    (2**N - N**xa, 16 - 4.0**x_),
    (Trace(X) * xa, np.trace(X_) * x_),
    (dx.trace(Xa) + Trace(X.I * X), np.trace(X_) + 4),
    (Xa @ X, X_ @ X_),
    (dx.asarray(Trace(X.I * (Xa @ Xa))), np.trace(X_)),
]


@pytest.mark.parametrize(
    ("expression", "expected"), ARRAYS, ids=[str(i) for i in range(len(ARRAYS))]
)
def test_arrays(expression: Array, expected: Any) -> None:
    check(expression, expected)


def plain_numpy(X: Any, x: Any) -> Any:
    """A function written for NumPy, which symbols go through unchanged."""
    hidden = np.tanh(X @ x)
    scores = np.exp(hidden) / np.sum(np.exp(hidden))
    total = np.linalg.norm(X) + np.trace(np.linalg.inv(X.T @ X)) + np.linalg.slogdet(X)[1]
    matrix = np.diag(np.diag(X)) + np.outer(x, x) + np.where(X > 0, X, 0) + np.tril(X, -1)
    joined = np.concatenate([np.maximum(x, 0), np.cumsum(x), np.einsum("ij,j->i", X, x)])
    solved = np.linalg.solve(X, np.dot(X, x)) + np.mean(X, axis=0) + np.var(X, axis=1)
    return total * scores @ matrix @ solved + joined @ joined + np.square(x) @ np.abs(x)


def test_plain_numpy_function() -> None:
    check(plain_numpy(Xa, xa), plain_numpy(X_, x_))


UFUNCS = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos"]
UFUNCS += ["tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "sign", "floor", "ceil"]
UFUNCS += ["absolute", "negative", "positive", "square", "reciprocal"]
BINARY = ["add", "subtract", "multiply", "true_divide", "power", "maximum", "minimum", "arctan2"]
BINARY += [
    "hypot",
    "logaddexp",
    "greater",
    "less",
    "greater_equal",
    "less_equal",
    "equal",
    "not_equal",
    "float_power",
]


@pytest.mark.parametrize("name", UFUNCS)
def test_numpy_ufunc(name: str) -> None:
    function = getattr(np, name)
    check(function(pa), function(p_))


@pytest.mark.parametrize("name", BINARY)
def test_numpy_binary_ufunc(name: str) -> None:
    function = getattr(np, name)
    check(function(pa, Xa[0] ** 2 + 1), np.asarray(function(p_, X_[0] ** 2 + 1), dtype=float))


def test_normal_distribution_in_its_tails() -> None:
    far = np.array([-30.0, -8.0, 0.0, 8.0])
    value = evaluate(dx.normcdf(xa).node, {"x": far}, SIZES)
    np.testing.assert_allclose(value, scipy.special.ndtr(far), rtol=1e-12)


def test_every_elementwise_function_is_public() -> None:
    missing = [name for name in FUNCTIONS if name not in dx.FUNCTIONS]
    assert missing == []
    assert all(name not in dx.FUNCTIONS for name in RENAMED)


def named(name: str) -> Any:
    return MatrixSymbol(name, n, m)


BAD = [
    (lambda: lower(named("P") * named("Q")), ShapeError, r"\(n, m\)"),
    (lambda: lower(sympy.MatAdd(X, MatrixSymbol("P", n, n + 1))), ShapeError, "n \\+ 1"),
    (lambda: lower(MatrixSymbol("P", n, n + 1) * MatrixSymbol("P", n, n + 1)), ShapeError, "n"),
    (lambda: lower(sympy.exp(X)), UnsupportedError, "applyfunc"),
    (lambda: lower(X ** sympy.Rational(1, 2)), UnsupportedError, "1/2"),
    (lambda: lower(sympy.I * X), UnsupportedError, "real|Imaginary"),
    (
        lambda: Xa @ ya,
        ShapeError,
        r"X @ y: X has shape \(n, n\), y has shape \(m,\); expected n = m",
    ),
    (lambda: Xa + ya, ShapeError, "broadcast"),
    (lambda: Xa[9, 9, 9], ShapeError, "indices"),
    (lambda: dx.constant([1.0, 2.0])[2], ShapeError, "out of bounds"),
    (lambda: Xa["a"], UnsupportedError, "index"),
    (lambda: Xa[::2], UnsupportedError, "symbolic size"),
    (lambda: np.fft.fft(Xa), UnsupportedError, "fft"),
    (lambda: np.trace(Ta), UnsupportedError, "3 axes"),
    (lambda: np.dot(Xa, Ta), UnsupportedError, "3 axes"),
    (lambda: np.outer(Xa, xa), UnsupportedError, "2 axes"),
    (lambda: np.cumsum(Xa), UnsupportedError, "axis"),
    (lambda: np.partition(Xa, 1), UnsupportedError, "partition"),
    (lambda: np.maximum.accumulate(Xa), UnsupportedError, "accumulate"),
    (lambda: np.linalg.norm(Xa, "spectral"), UnsupportedError, "spectral"),
    (lambda: dx.asarray("a"), UnsupportedError, "str"),
    (lambda: dx.asarray(np.array([1j])), UnsupportedError, "complex"),
    (lambda: dx.trace(Aa), ShapeError, "square"),
    (lambda: dx.inv(Aa), ShapeError, "square"),
    (lambda: dx.det(xa), ShapeError, "axes"),
    (lambda: dx.einsum("ij,jk", Xa, Aa), ShapeError, "index j"),
    (lambda: dx.einsum("...j->j", Xa), ShapeError, "leading axes"),
    (lambda: dx.erfinv(2), DerivatrixError, "erfinv.*-1 <= x <= 1"),
    (lambda: dx.solve_sylvester(Xa, Xa, Aa), ShapeError, "right-hand side"),
    (
        lambda: dx.concatenate([Xa, Aa[:, :2]]),
        ShapeError,
        r"X has shape \(n, n\), .*equal shapes apart from axis 0",
    ),
    (lambda: dx.matrix("P", "n", "m", "spd"), ShapeError, "square"),
    (lambda: dx.matrix("P", "n", "m", "purple"), DerivatrixError, "purple"),
    (lambda: dx.matrix("2P", "n", "m"), DerivatrixError, "identifier"),
    (lambda: dx.matrix("P", -1, 2), DerivatrixError, "size"),
    (lambda: dx.matrix("P", 1.5, 2), DerivatrixError, "size|dimension"),
    (lambda: dx.dims(""), DerivatrixError, "name"),
    (lambda: dx.dims("class"), DerivatrixError, "keyword"),
    (lambda: dx.dims("None"), DerivatrixError, "keyword"),
    (lambda: dx.dims("np"), DerivatrixError, "taken"),
    (lambda: Xa / 0, DerivatrixError, "division"),
    (lambda: list(xa), UnsupportedError, "x of shape .* loop"),
    (lambda: sympy.diff(xa @ xa, xa), UnsupportedError, "SymPy cannot differentiate"),
    (lambda: np.argmin(xa), UnsupportedError, "numpy.argmin .*positions"),
    (lambda: np.emath.sqrt(xa), UnsupportedError, "scimath.sqrt"),
    (lambda: Xa.sum(initial=2.0), UnsupportedError, "numpy.sum: the argument initial=2.0"),
]


@pytest.mark.parametrize(("build", "error", "text"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_symbols_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="where"):
        bool(Xa > 0)
    with pytest.raises(TypeError, match="number"):
        float(xa[0])
    with pytest.raises(TypeError):
        Xa + "text"
