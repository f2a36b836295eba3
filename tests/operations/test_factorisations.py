"""Factorisations, spectra, norms: values against NumPy and SciPy, derivatives against central
differences at several sizes, formula texts, points where singular values or eigenvalues are
repeated, and what happens outside the domain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf, topological
from derivatrix.compiler.ir.operation import Point
from derivatrix.compiler.operations.cholesky import CHOLESKY
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import lower_part
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError

n, p, k = dx.dims("n p k")
S, K = dx.matrix("S", n, n, "spd"), dx.matrix("K", n, n, "symmetric")
M, A = dx.matrix("M", n, n), dx.matrix("A", p, k)
STEP = 1e-4

Values = dict[str, np.ndarray]


def values(size: int, seed: int = 0, wide: bool = False) -> Values:
    """A point, with singular values and eigenvalues well apart."""
    generator = np.random.default_rng(seed)
    rows, columns = (size, size + 2) if wide else (size + 2, size)
    left, right = (np.linalg.qr(generator.normal(size=(m, m)))[0] for m in (rows, columns))
    vectors = np.linalg.qr(generator.normal(size=(size, size)))[0]
    spectrum = 1.0 + np.arange(size)
    return {
        "S": (vectors * spectrum) @ vectors.T,
        "K": (vectors * (spectrum - 2.4)) @ vectors.T,
        "M": np.diag(2.0 + 2 * np.arange(size)) + 0.2 * generator.normal(size=(size, size)),
        "A": (left[:, :size] * spectrum) @ right[:, :size].T,
    }


def unpivoted(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U of a matrix for which SciPy exchanges no rows."""
    exchanges, lower, upper = scipy.linalg.lu(matrix)
    assert np.array_equal(exchanges, np.eye(len(matrix)))
    return lower, upper


def positive(q: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sign = np.sign(np.diag(r))
    return q * sign, r * sign[:, None]


def signed(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(vectors[np.abs(vectors).argmax(0), range(vectors.shape[1])]))


def svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    return u * signed(u), s, vh * signed(u)[:, None]


def eigh(matrix: np.ndarray) -> np.ndarray:
    vectors = np.linalg.eigh(matrix)[1]
    return np.asarray(vectors * signed(vectors))


def eig(matrix: np.ndarray) -> np.ndarray:
    spectrum, vectors = np.linalg.eig(matrix)
    vectors = vectors[:, np.argsort(spectrum)]
    return np.asarray(vectors * signed(vectors))


def schatten(matrix: np.ndarray, power: float) -> float:
    return float((np.linalg.svd(matrix)[1] ** power).sum() ** (1 / power))


Reference = Callable[[np.ndarray], Any]
TALL: dict[str, tuple[Array, Reference]] = {
    "cholesky": (dx.cholesky(S), np.linalg.cholesky),
    "cholesky upper": (dx.cholesky(S, upper=True), lambda s: np.linalg.cholesky(s).T),
    "cholesky of a product": (dx.cholesky(A.T @ A), lambda a: np.linalg.cholesky(a.T @ a)),
    "qr Q": (dx.qr(A).Q, lambda a: positive(*np.linalg.qr(a))[0]),
    "qr R": (dx.qr(A, mode="r"), lambda a: positive(*np.linalg.qr(a))[1]),
    "lu L": (dx.lu(M).L, lambda m: unpivoted(m)[0]),
    "lu U": (dx.lu(M).U, lambda m: unpivoted(m)[1]),
    "eigh V": (dx.eigh(K).eigenvectors, eigh),
    "eigh values": (dx.eigh(K).eigenvalues, np.linalg.eigvalsh),
    "eigvalsh": (dx.eigvalsh(K), np.linalg.eigvalsh),
    "lambda_max": (dx.lambda_max(K), lambda m: np.linalg.eigvalsh(m)[-1]),
    "lambda_min": (dx.lambda_min(K), lambda m: np.linalg.eigvalsh(m)[0]),
    "eig V": (dx.eig(M).eigenvectors, eig),
    "eigvals": (dx.eigvals(M), lambda m: np.sort(np.linalg.eigvals(m))),
}
ANY_SHAPE: dict[str, tuple[Array, Reference]] = {
    "svd U": (dx.svd(A).U, lambda a: svd(a)[0]),
    "svd S": (dx.svd(A).S, lambda a: svd(a)[1]),
    "svd Vh": (dx.svd(A).Vh, lambda a: svd(a)[2]),
    "svdvals": (dx.svdvals(A), scipy.linalg.svdvals),
    "polar": (dx.polar(A).U, lambda a: scipy.linalg.polar(a)[0]),
    "polar P": (dx.polar(A).P, lambda a: scipy.linalg.polar(a)[1]),
    "polar left": (dx.polar(A, "left").P, lambda a: scipy.linalg.polar(a, "left")[1]),
    "pinv": (dx.pinv(A), np.linalg.pinv),
    "lstsq": (dx.lstsq(A, A[:, 0] + 1), lambda a: np.linalg.lstsq(a, a[:, 0] + 1)[0]),
    "cond": (dx.cond(A), np.linalg.cond),
    "norm": (dx.norm(A), np.linalg.norm),
    "norm nuc": (dx.norm(A, "nuc"), lambda a: np.linalg.norm(a, "nuc")),
    "norm 2": (dx.norm(A, 2), lambda a: np.linalg.norm(a, 2)),
    "norm -2": (dx.norm(A, -2), lambda a: np.linalg.norm(a, -2)),
    "norm 1": (dx.norm(A, 1), lambda a: np.linalg.norm(a, 1)),
    "norm inf": (dx.norm(A, np.inf), lambda a: np.linalg.norm(a, np.inf)),
    "norm -inf": (dx.norm(A, -np.inf), lambda a: np.linalg.norm(a, -np.inf)),
    "vector norm 3": (dx.vector_norm(A, 3), lambda a: np.linalg.norm(a.ravel(), 3)),
    "vector norm inf": (dx.norm(A[0], np.inf), lambda a: np.linalg.norm(a[0], np.inf)),
    "schatten 3": (dx.schatten_norm(A, 3), lambda a: schatten(a, 3)),
    "schatten 4": (dx.schatten_norm(A, 4), lambda a: schatten(a, 4)),
    "schatten 1.5": (dx.schatten_norm(A, 1.5), lambda a: schatten(a, 1.5)),
    "max": (dx.max(A, axis=0) * dx.min(A), lambda a: a.max(axis=0) * a.min()),
}
SINGLE = {**TALL, **ANY_SHAPE}


def input_of(expression: Array) -> str:
    return str(function_of(expression).inputs[0].name)


def function_of(expression: Array) -> Function:
    """The function of the one input that the expression has."""
    leaves = [node for node in topological([expression.node]) if isinstance(node, Leaf)]
    return dx.function("f", [leaf.name for leaf in leaves], expression)


def sizes(point: Values) -> dict[str, int]:
    rows, columns = point["A"].shape
    return {"n": len(point["S"]), "p": rows, "k": columns}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_value(name: str, size: int) -> None:
    expression, reference = SINGLE[name]
    for wide in {False, name in ANY_SHAPE}:
        point = values(size, size, wide)
        expected = reference(point[input_of(expression)])
        actual = evaluate(expression.node, point, sizes(point))
        assert actual.shape == np.shape(expected)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SINGLE)
def test_numpy_text_with_stacked_axes(name: str) -> None:
    """The formula of the value, read by NumPy, for stacks of matrices as for one."""
    expression = SINGLE[name][0]
    (leaf,) = function_of(expression).inputs
    batched = dx.function("f", [leaf.name], expression, batch=[leaf.name])
    point = values(3)
    stacked = np.stack([values(3, seed)[leaf.name] for seed in range(4)])
    text = batched.formula("value", style="numpy")
    actual = eval(text, {"np": np, "scipy": scipy, leaf.name: stacked})
    for one, result in zip(stacked, actual, strict=True):
        expected = evaluate(expression.node, {leaf.name: one}, sizes(point))
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def weighted(expression: Array) -> Function:
    """The function's entries times fixed weights, summed and squared: a scalar function of which
    every entry counts."""
    (leaf,) = function_of(expression).inputs
    weights = dx.tensor("w", *expression.node.shape)
    return dx.function("f", [leaf.name, "w"], dx.sum(weights * expression) ** 2, wrt=[leaf.name])


def slope(function: Callable[[np.ndarray], np.ndarray], at: np.ndarray, to: np.ndarray) -> Any:
    """The five-point central difference."""
    near, far = (function(at + h * to) - function(at - h * to) for h in (STEP, 2 * STEP))
    return (8 * near - far) / (12 * STEP)


def differences(
    declared: Function, point: Values, size: dict[str, int], kinds: tuple[str, ...]
) -> float:
    """The largest relative error of gradient and HVP against differences of the value and of the
    gradient, along a direction that keeps the structure."""
    name = declared.wrt[0]
    generator = np.random.default_rng(7)
    tangent = np.asarray(generator.normal(size=point[name].shape))
    if name in ("S", "K"):
        tangent = tangent + tangent.T
    point = {**point, "tangent": tangent}
    nodes = {kind: next(iter(declared.derivatives.results(kind).values())) for kind in kinds}

    def at(kind: str, moved: np.ndarray) -> np.ndarray:
        return evaluate(nodes[kind], {**point, name: moved}, size)

    errors = []
    pairs = [("value", np.vdot(at("gradient", point[name]), tangent))]
    if "hvp" in kinds:
        pairs.append(("gradient", at("hvp", point[name])))
        hessian = at("hessian", point[name])
        pairs.append(("gradient", np.tensordot(hessian, tangent, tangent.ndim)))
    for kind, derivative in pairs:
        expected = slope(lambda moved, kind=kind: at(kind, moved), point[name], tangent)
        scale = max(1.0, float(np.abs(expected).max()))
        errors.append(float(np.abs(derivative - expected).max()) / scale)
    return max(errors) if np.isfinite(errors).all() else np.inf


ALL_KINDS = ("value", "gradient", "hvp", "hessian")


@pytest.mark.parametrize("name", SINGLE)
def test_first_and_second_derivatives(name: str) -> None:
    declared = weighted(SINGLE[name][0])
    for size, wide in [(1, False), (2, False), (3, False), *[(3, True)] * (name in ANY_SHAPE)]:
        point = values(size, size, wide)
        shape = evaluate(SINGLE[name][0].node, point, sizes(point)).shape
        point["w"] = np.random.default_rng(1).uniform(0.5, 1.5, shape)
        assert differences(declared, point, sizes(point), ALL_KINDS) < 1e-6


def test_a_wrong_differential_is_noticed() -> None:
    """A Cholesky factor whose rule forgets to halve the diagonal fails the same check."""

    def wrong(at: Point) -> tuple[Array, ...]:
        inverse = apply(INVERSE, at.result)
        return (at.result @ lower_part(inverse @ at.tangents[0] @ inverse.mT),)

    factor = apply(dataclasses.replace(CHOLESKY, differential=wrong), S)
    point = {**values(3), "w": np.ones((3, 3))}
    right, faulty = weighted(dx.cholesky(S)), weighted(factor)
    assert differences(right, point, sizes(point), ("value", "gradient")) < 1e-7
    assert differences(faulty, point, sizes(point), ("value", "gradient")) > 1e-3


B = dx.matrix("B", n, n, "spd")


@pytest.mark.parametrize("size", [1, 4])
def test_generalised_eigenvalues(size: int) -> None:
    point = values(size)
    point["B"] = values(size, 1)["S"]
    spectrum, vectors = scipy.linalg.eigh(point["K"], point["B"])
    actual = evaluate(dx.eigvalsh(K, B).node, point, sizes(point))
    np.testing.assert_allclose(actual, spectrum, rtol=1e-11)
    result = evaluate(dx.eigh(K, B).eigenvectors.node, point, sizes(point))
    np.testing.assert_allclose(np.abs(result), np.abs(vectors), atol=1e-11)
    weights = dx.vector("w", n)
    point["w"] = np.arange(1.0, size + 1)
    for wrt in ("K", "B"):
        function = dx.function("f", [K, B, weights], dx.eigvalsh(K, B) ** 2 @ weights, wrt=[wrt])
        tangent = point["S"]
        gradient = evaluate(function.derivatives.results("gradient")[(wrt,)], point, sizes(point))

        def value(moved: np.ndarray, wrt: str = wrt) -> np.ndarray:
            matrices = {**point, wrt: moved}
            result = scipy.linalg.eigvalsh(matrices["K"], matrices["B"])
            return np.asarray(result**2 @ point["w"])

        expected = slope(value, point[wrt], tangent)
        np.testing.assert_allclose(np.vdot(gradient, tangent), expected, rtol=1e-7)


def test_wide_qr() -> None:
    """The first columns are factored, in every front end: values are those of NumPy, but for signs,
    and derivatives those of differences, in both precisions."""
    wide = dx.matrix("W", 2, 5)
    q, r = dx.qr(wide)
    assert np.linalg.qr(wide).R.node is r.node
    by_text = (text_function(f"qr{name}(W)", "W: 2 5", ["W"]) for name in "QR")
    random = np.random.default_rng(0)
    point, step = random.normal(size=(2, 2, 5))
    for output, function in enumerate(by_text):
        assert function.expression is (q, r)[output].node

        def value(matrix: np.ndarray, output: int = output) -> np.ndarray:
            return positive(*np.linalg.qr(matrix))[output]

        module, expected = dx.compile(function), slope(value, point, step)
        weights = random.normal(size=expected.shape)
        for real, digits in ((np.float64, 1e-8), (np.float32, 1e-5)):
            at, along, by = (array.astype(real) for array in (point, step, weights))
            near = partial(np.testing.assert_allclose, rtol=digits, atol=digits)
            near(module.value(at), value(point))
            near(module.jvp(at, along), expected)
            near(np.vdot(module.vjp(at, by), step), np.vdot(weights, expected))


def test_sizes_of_wide_qr() -> None:
    """Symbolic ones that say which is larger."""
    wide = dx.matrix("W", n, n + k)
    assert dx.qr(wide).R.node.shape == (n, n + k)
    point = np.random.default_rng(1).normal(size=(2, 5))
    result = evaluate(dx.qr(wide).R.node, {"W": point}, {"n": 2, "k": 3})
    np.testing.assert_allclose(result, positive(*np.linalg.qr(point))[1], atol=1e-14)


# Where singular values or eigenvalues are repeated

X, H = dx.matrix("A", 5, 3), dx.matrix("K", 3, 3, "symmetric")
WEIGHTS = dx.constant(np.random.default_rng(5).normal(size=(5, 3)))


def root_by_vectors(matrix: Array) -> Array:
    values, vectors = dx.eigh(matrix)
    return vectors * dx.sqrt(values) @ vectors.mT


REPEATED = {
    "nuclear": dx.norm(X, "nuc"),
    "sum of singular values": dx.sum(dx.svdvals(X)),
    "sum of their squares": dx.sum(dx.svd(X).S ** 2),
    "polar": dx.sum(dx.polar(X).U * WEIGHTS),
    "pinv": dx.sum(dx.pinv(X) * WEIGHTS.T),
    "schatten 4": dx.schatten_norm(X, 4),
    "cholesky": dx.sum(dx.cholesky(X.T @ X) * WEIGHTS[:3]),
    "qr": dx.sum(dx.qr(X).Q * WEIGHTS) + dx.qr(X).R[0, 1],
    "exponential": dx.trace(dx.expm(X.T @ X / 10)),
    "sum of eigenvalues": dx.sum(dx.eigvalsh(H)) ** 2,
    "sum of squares": dx.sum(dx.eigvalsh(H) ** 2),
    "sum of cubes": dx.sum(dx.eigvalsh(H) ** 3),
    "sum of exponentials": dx.sum(dx.exp(dx.eigvalsh(H))) ** 2,
    "entropy": dx.sum(dx.log(dx.eigvalsh(H)) * dx.eigvalsh(H)),
    "sum of inverses": dx.sum(1 / (1 + dx.eigvalsh(H))),
    "exponential of a symmetric matrix": dx.trace(dx.expm(H)),
    "root by vectors": dx.sum(WEIGHTS[:3] * root_by_vectors(H)),
    "softmax": dx.logsumexp(dx.eigvalsh(H)),
    "schatten 3": dx.schatten_norm(X, 3),
    "logarithms": dx.sum(dx.log(dx.svdvals(X))),
    "product": dx.prod(dx.eigvalsh(H)),
}
ONLY_FIRST = {"product of singular values": dx.prod(dx.svdvals(X))}
"""Functions whose first derivatives are right where the second are nan."""


def repeated(stretch: tuple[float, ...]) -> Values:
    generator = np.random.default_rng(3)
    tall = np.linalg.qr(generator.normal(size=(5, 3)))[0]
    turn = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    return {"A": tall * stretch @ turn, "K": turn * stretch @ turn.T}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("stretch", [(2.0, 2.0, 2.0), (3.0, 1.0, 1.0)])
def test_repeated_values(name: str, stretch: tuple[float, ...]) -> None:
    point = repeated(stretch)
    assert differences(function_of(REPEATED[name]), point, {}, ALL_KINDS) < 1e-6
    if name != "qr":
        exact = {"A": np.eye(5, 3) * stretch, "K": np.diag(stretch)}
        assert differences(function_of(REPEATED[name]), exact, {}, ALL_KINDS) < 1e-6


@pytest.mark.parametrize("name", ONLY_FIRST)
def test_gradients_at_repeated_values(name: str) -> None:
    declared, point = function_of(ONLY_FIRST[name]), repeated((2.0, 2.0, 2.0))
    assert differences(declared, point, {}, ("value", "gradient")) < 1e-6
    exact = {"A": np.eye(5, 3), "K": np.eye(3), "tangent": np.ones((3, 3))}
    exact["tangent"] = np.ones(exact[input_of(ONLY_FIRST[name])].shape)
    (product,) = declared.derivatives.results("hvp").values()
    assert np.isnan(evaluate(product, exact, {})).any()


@pytest.mark.parametrize("expression", [dx.eigh(H).eigenvectors, dx.svd(X).U, dx.svd(X).Vh])
def test_vectors_of_repeated_values_have_no_derivative(expression: Array) -> None:
    declared = function_of(expression)
    exact = {"A": np.eye(5, 3), "K": np.eye(3), "tangent": np.ones((3, 3))}
    exact["tangent"] = np.ones(exact[input_of(expression)].shape)
    (product,) = declared.derivatives.results("jvp").values()
    assert np.isnan(evaluate(product, exact, {})).any()
    text = declared.formula("jvp", style="numpy")
    assert np.isnan(eval(text, {"np": np, "scipy": scipy, **exact})).any()


def test_polar_factors_that_lack_rank_have_no_derivative() -> None:
    text = dx.function("f", [A], dx.polar(A).U).formula("jvp", style="numpy")
    assert np.isnan(eval(text, {"np": np, "A": DEFICIENT, "tangent": np.ones((4, 3))})).all()


# Outside the domain

DEFICIENT = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0])
ROTATION = np.array([[0.0, 1.0], [-1.0, 0.0]])
SHEAR = np.array([[1.0, 1.0], [0.0, 1.0]])
OUTSIDE: list[tuple[Array, np.ndarray]] = [
    (dx.cholesky(S), -np.eye(3)),
    (dx.qr(A).Q, DEFICIENT),
    (dx.pinv(A), DEFICIENT),
    (dx.lstsq(A, A[:, 0]), DEFICIENT),
    (dx.lu(M).L, ROTATION),
    (dx.eigvals(M), ROTATION),
    (dx.eig(M).eigenvectors, SHEAR),
    (dx.eigvalsh(K, S), np.diag([1.0, -1.0])),
]


def deficient(generator: np.random.Generator) -> np.ndarray:
    """A matrix of less than full rank, but for rounding, with at least as many rows as columns."""
    columns, rows = np.sort(generator.integers(2, 9, 2))
    rank = generator.integers(1, columns)
    return generator.normal(size=(rows, rank)) @ generator.normal(size=(rank, columns))


@pytest.mark.parametrize("expression", [dx.pinv(A), dx.qr(A).Q, dx.pinv(A.T)])
def test_matrices_that_lack_rank_up_to_rounding(expression: Array) -> None:
    """Also where QR leaves more than rounding errors of one column on the diagonal."""
    declared = dx.function("f", [A], expression)
    module, generator = dx.compile(declared, kinds=["value"]), np.random.default_rng(0)
    text = declared.formula("value", style="numpy")
    for _ in range(400):
        matrix = deficient(generator)
        with pytest.raises(np.linalg.LinAlgError):
            evaluate(expression.node, {"A": matrix}, dict(zip("pk", matrix.shape, strict=True)))
        for real in (np.float64, np.float32):
            with pytest.raises(np.linalg.LinAlgError):
                module.value(matrix.astype(real))
            assert np.isnan(eval(text, {"np": np, "A": matrix.astype(real)})).all()
    stack = np.stack([np.eye(4, 3), DEFICIENT])
    result = eval(
        dx.function("g", [A], expression, batch=[A]).formula("value", style="numpy"),
        {"np": np, "A": stack},
    )
    assert np.isfinite(result[0]).all() and np.isnan(result[1]).all()


def test_columns_of_any_length_are_independent() -> None:
    """QR does not depend on the units of columns, nor does what it takes for rounding."""
    function, generator = dx.function("f", [A], dx.qr(A).Q), np.random.default_rng(0)
    module = dx.compile(function, kinds=["value"])
    for columns in (1, 3, 40):
        matrix = generator.normal(size=(40, columns))
        lengths = 10.0 ** generator.uniform(-200, 200, columns)
        result = module.value(matrix * lengths)
        np.testing.assert_allclose(result, module.value(matrix), rtol=0, atol=1e-11)


def test_pseudoinverses_of_known_rank() -> None:
    """Golub and Pereyra's derivative at a matrix of this rank, nan at one of less."""
    f = dx.function("f", [A], dx.pinv(A, rank=2))
    at = DEFICIENT + np.outer([1.0, 0, 1, -1], [1.0, 1, 0])
    e = np.random.default_rng(1).normal(size=at.shape)
    inverse = np.linalg.pinv(at, rcond=1e-10)
    beyond = inverse @ inverse.T @ e.T @ (np.eye(4) - at @ inverse)
    beyond += (np.eye(3) - inverse @ at) @ e.T @ inverse.T @ inverse
    module = dx.compile(f, kinds=["value", "jvp"])
    along = module.jvp(at, e)
    np.testing.assert_allclose(along, beyond - inverse @ e @ inverse, atol=1e-12)
    for real, digits in ((np.float64, 1e-12), (np.float32, 1e-4)):
        np.testing.assert_allclose(module.value(at.astype(real)), inverse, atol=digits)
        assert np.isnan(module.value(DEFICIENT.astype(real))).all()
    assert np.isnan(module.jvp(DEFICIENT, e)).all()
    scope = {"np": np, "A": at, "tangent": e}
    np.testing.assert_allclose(eval(f.formula("jvp", style="numpy"), scope), along, atol=1e-12)
    assert text_function("pinv(A, 2)", "A: p k").expression is f.expression


@pytest.mark.parametrize("rank", [0, 4, True, 2.0, "2"])
def test_ranks_of_pseudoinverses(rank: object) -> None:
    with pytest.raises(
        DeclarationError, match=r"pinv: the rank of .* is an integer or a size from"
    ):
        dx.pinv(X, rank=rank)


def test_a_rank_above_the_number_of_stacked_matrices() -> None:
    random = np.random.default_rng(2)
    stack = random.normal(size=(1, 5, 2)) @ random.normal(size=(1, 2, 4))
    actual = evaluate(dx.pinv(dx.tensor("T", 1, 5, 4), rank=2).node, {"T": stack}, {})
    np.testing.assert_allclose(actual, np.linalg.pinv(stack, rcond=1e-10), atol=1e-12)


@pytest.mark.parametrize(("expression", "matrix"), OUTSIDE, ids=[str(i) for i in range(8)])
def test_outside_the_domain(expression: Array, matrix: np.ndarray) -> None:
    point = dict.fromkeys("SKMA", matrix)
    with pytest.raises(np.linalg.LinAlgError):
        evaluate(expression.node, point, {"n": len(matrix), "p": len(matrix), "k": 3})


def test_the_polar_factor_of_a_deficient_matrix_has_no_derivative() -> None:
    declared = dx.function("f", [A], dx.norm(A, "nuc"))
    point, size = {"A": DEFICIENT, "tangent": DEFICIENT}, {"p": 4, "k": 3}
    assert np.isfinite(evaluate(declared.expression, point, size))
    with pytest.raises(np.linalg.LinAlgError):
        evaluate(declared.derivatives.results("hvp")[("A",)], point, size)


def test_sizes_that_qr_asks_for() -> None:
    assert function_of(dx.qr(A).Q).requirements == ("p >= k",)
    with pytest.raises(np.linalg.LinAlgError):
        evaluate(dx.qr(A).Q.node, {"A": np.ones((2, 3))}, {"p": 2, "k": 3})


def test_entries_of_singular_values_need_sizes() -> None:
    """There are min(n, m) singular values: of symbolic sizes, each must suffice."""
    n, m, k = dx.dims("n m k")
    X, y = dx.matrix("X", n, m), dx.vector("y", k)
    values = dx.svdvals(X)
    assert dx.function("f", [X], values[:3]).requirements == ("m >= 3", "n >= 3")
    assert dx.function("f", [X], X[: values.shape[0]] @ X[:2].T).requirements == ("n >= 2",)
    both = dx.function("f", [X, y], dx.concatenate([values, y])[-3])
    assert both.requirements == ("k + m >= 3", "k + n >= 3")
    two_norms = dx.function("two_norms", [X], values[0] + values[1], kinds=["value"])
    module = dx.compile(two_norms)
    matrix = np.random.default_rng(0).normal(size=(4, 3))
    expected = np.linalg.svd(matrix, compute_uv=False)[:2].sum()
    np.testing.assert_allclose(module.value(matrix), expected)
    with pytest.raises(ValueError, match="it needs n >= 2"):
        module.value(np.ones((1, 3)))


W = dx.matrix("W", 2, 3)
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: dx.cholesky(W), ShapeError, r"cholesky needs a square matrix, not shape \(2, 3\)"),
    (lambda: dx.eigh(A), ShapeError, "eigh needs a square"),
    (lambda: dx.eigvals(W), ShapeError, "square"),
    (lambda: dx.lu(W), ShapeError, "square"),
    (lambda: dx.eigvalsh(K, A), ShapeError, "equal sizes"),
    (lambda: dx.lstsq(W, dx.vector("b", 3)), ShapeError, "as many rows"),
    (lambda: dx.qr(A, mode="complete"), UnsupportedError, "complete"),
    (lambda: dx.svd(W, full_matrices=True), UnsupportedError, "full_matrices"),
    (lambda: np.linalg.svd(W), UnsupportedError, "full_matrices=False"),
    (lambda: dx.polar(W, "up"), UnsupportedError, "up"),
    (lambda: dx.norm(W, "spectral"), UnsupportedError, "spectral"),
    (lambda: dx.norm(W, 3), UnsupportedError, "ord=3 over 2 axes"),
    (lambda: dx.norm(W, 0, axis=0), UnsupportedError, "ord=0"),
    (lambda: dx.schatten_norm(W, 0.5), UnsupportedError, "p >= 1"),
    (lambda: dx.schatten_norm(W[0], 4), ShapeError, "expected a matrix"),
    (lambda: dx.lambda_max(W[0]), ShapeError, r"eigvalsh needs a square matrix, not shape \(3,\)"),
    (lambda: np.linalg.lstsq(W, W, rcond=1e-3), UnsupportedError, "rcond"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


# NumPy's own functions on symbols

SQUARE = dx.matrix("S", 4, 4, "spd")
TALL_A = dx.matrix("A", 6, 4)
T = dx.tensor("T", 3, 6, 4)
DISPATCHED: dict[str, Callable[..., Any]] = {
    "cholesky": lambda S, A, T: np.linalg.cholesky(S),
    "qr": lambda S, A, T: np.matmul(*np.linalg.qr(A)),
    "qr r": lambda S, A, T: abs(np.linalg.qr(A, mode="r")),
    "eigh": lambda S, A, T: np.linalg.eigh(S)[0] + abs(np.linalg.eigh(S).eigenvectors),
    "eigvalsh": lambda S, A, T: np.linalg.eigvalsh(S),
    "eigvals": lambda S, A, T: np.sum(np.linalg.eigvals(S) ** 3),
    "svd": lambda S, A, T: np.linalg.svd(A, full_matrices=False)[1],
    "svd square": lambda S, A, T: (lambda u, s, v: (u * s) @ v)(*np.linalg.svd(S)),
    "svd values": lambda S, A, T: np.linalg.svd(T, compute_uv=False),
    "svd stacked": lambda S, A, T: (lambda u, s, v: (u * s[:, None]) @ v)(
        *np.linalg.svd(T, full_matrices=False)
    ),
    "pinv": lambda S, A, T: np.linalg.pinv(T),
    "lstsq": lambda S, A, T: np.linalg.lstsq(A, T[0])[0] + np.linalg.lstsq(A, A[:, 0] ** 2)[1],
    "cond": lambda S, A, T: np.linalg.cond(T) + np.linalg.cond(S, 1) + np.linalg.cond(S, -2),
    "norm": lambda S, A, T: np.linalg.norm(A, "nuc") + np.linalg.norm(A, 2),
    "norm axes": lambda S, A, T: np.linalg.norm(T, -1, axis=(2, 0), keepdims=True),
    "vector norm": lambda S, A, T: np.linalg.vector_norm(T, ord=3, axis=(0, 2), keepdims=True),
    "vector norms": lambda S, A, T: np.linalg.norm(T, np.inf, axis=1) + np.linalg.norm(A[0], -1),
    "matrix norm": lambda S, A, T: np.linalg.matrix_norm(T, ord="nuc"),
    "max": lambda S, A, T: np.max(T, axis=(0, 2)) - np.amin(T, axis=(0, 2)) + T.max() - A.min(),
}


@pytest.mark.parametrize("name", DISPATCHED)
def test_numpys_functions(name: str) -> None:
    generator = np.random.default_rng(0)
    point = {"S": values(4)["S"], "A": values(4)["A"], "T": generator.normal(size=(3, 6, 4))}
    expected = DISPATCHED[name](**point)
    actual = evaluate(DISPATCHED[name](SQUARE, TALL_A, T).node, point, {})
    assert actual.shape == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-12)


# Compiled


@pytest.mark.thorough
def test_compiled_in_a_batch() -> None:
    """Verified; and the kernels in float32, and for what has no solution."""
    b = dx.vector("b", p)
    module = dx.compile(dx.function("fitted", [A, b], dx.lstsq(A, b), batch=[b]))
    report = dx.verify(module)
    assert report.passed, str(report)
    point = values(3)["A"].astype(np.float32), np.ones((2, 5), np.float32)
    single, double = module.value(*point), module.value(*(part.astype(float) for part in point))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=1e-4)
    for call in (module.value, module.jacobian):
        with pytest.raises(np.linalg.LinAlgError, match="full rank"):
            call(DEFICIENT, np.ones((2, 4)))


def test_hessian_of_a_simple_eigenvalue_beside_repeated_ones() -> None:
    module = dx.compile(dx.function("largest", [K], dx.lambda_max(K)))
    tangent = np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 6.0], [4.0, 6.0, 8.0]])
    expected = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    at = np.diag([1.0, 1.0, 3.0])
    np.testing.assert_allclose(module.hvp(at, tangent), expected, atol=1e-14)
    hessian = module.hessian(at)
    np.testing.assert_allclose(np.tensordot(hessian, tangent, 2), expected, atol=1e-14)


def test_eigenvalues_of_symmetric_matrices_are_found_as_such() -> None:
    M, S = dx.matrix("M", 3, 3), dx.matrix("S", 3, 3, "symmetric")

    def value(expression: dx.Array) -> str:
        return str(dx.function("f", [M, S], expression).formula("value"))

    assert value(M + dx.diag(dx.eigvals(S))) == "M + diag(eigvalsh(S))"
    assert value(M @ dx.eig(S)[1]) == "M eighV(S)"
    assert value(dx.eigvals(M @ S)) == "eigvals(M S)"
