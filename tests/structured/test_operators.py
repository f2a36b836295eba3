"""Jacobians and Hessians as operators: their terms, with parts evaluated by NumPy, against the
dense arrays."""

import copy
import itertools
import math
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function, function
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.structured import structured
from derivatrix.compiler.structured.operator_text import operator_lines
from derivatrix.templates.support.common import linear_map as kernels
from derivatrix.templates.support.common import linear_map_terms
from tests.cases import CASES, EVALUATED
from tests.points import SIZES, draw_all


def operators(
    function: Function, sizes: Mapping[str, int] = SIZES, values: Any = None
) -> dict[tuple[str, ...], Any]:
    """The operators of a function, as its generated module makes them."""
    result = structured(function.derivatives)
    values = draw_all(function, sizes=sizes) if values is None else values
    parts = tuple(evaluate_all(result.parts, values, sizes))
    scope = {**vars(kernels), **sizes, "_parts": parts, "_dtype": np.float64}
    texts = {
        operator.key: "\n".join(
            operator_lines("operator", operator, result, lambda size: size, set())
        )
        for operator in result.operators
    }
    return {key: eval(text, scope) for key, text in texts.items()}


def matrix(array: np.ndarray, operator: Any, batched: bool) -> np.ndarray:
    """A Jacobian as a matrix: with one block for each sample where both sides have the batch."""
    if not batched:
        return array.reshape(operator.shape)
    samples = len(array)
    blocks = array.reshape(samples, operator.shape[0] // samples, -1)
    whole = np.zeros((samples, blocks.shape[1], samples, blocks.shape[2]))
    for sample, block in enumerate(blocks):
        whole[sample, :, sample] = block
    return whole.reshape(operator.shape)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("case", [*CASES, *EVALUATED], ids=lambda case: case.name)
def test_operators_are_the_dense_arrays(case: Function) -> None:
    kind = "jacobian" if case.expression.shape else "hessian"
    nodes = case.derivatives.batched(kind)
    values = draw_all(case)
    arrays = evaluate_all(list(nodes.values()), values, SIZES)
    result = operators(case, values=values)
    generator = np.random.default_rng(3)
    for key, array in zip(nodes, arrays, strict=True):
        operator = result[key]
        close(operator.todense(), array)
        whole = matrix(array, operator, key[-1] in case.batch)
        close(operator.tosparse().toarray(), whole)
        if whole.shape[0] == whole.shape[1]:
            close(operator.diagonal(), np.diagonal(whole).reshape(operator.input_shape))
            close(operator.trace(), np.trace(whole))
        for map_, dense in ((operator, whole), (operator.T, whole.T)):
            vectors = generator.normal(size=(dense.shape[1], 3))
            close(map_ @ vectors, dense @ vectors)
            close(map_.matvec(vectors[:, 0]), dense @ vectors[:, 0])
            shaped = vectors[:, 0].reshape(map_.input_shape)
            close(map_ @ shaped, (dense @ vectors[:, 0]).reshape(map_.output_shape))


n, m, k = dx.dims("n m k")
X, A, B = dx.matrix("X", n, n), dx.matrix("A", m, n), dx.matrix("B", n, k)
S, V = dx.matrix("S", n, n, "spd"), dx.matrix("V", n, n, "invertible")
U, W = dx.matrix("U", n, k), dx.matrix("W", m, k)
a, b, w = dx.vector("a", n), dx.vector("b", n), dx.vector("w", n)
Y, R = dx.matrix("Y", n, m), dx.matrix("R", n, m)
x = dx.vector("x", m)
T = dx.tensor("T", n, m, k)

TABLES = {
    "vech": [S, dx.vech(S @ S.T)],
    "unvech": [X, dx.unvech(dx.vech(X @ X), n)],
    "take": [X, dx.take(X @ X, [0, 2, 2], 0)],
    "vec": [A, X, dx.vec(A @ X)],
    "reshape": [T, dx.reshape(T, (n * m, k)) ** 2],
    "kron": [X, W, dx.kron(X, W)],
}


@pytest.mark.parametrize("name", TABLES)
def test_reshaped_and_gathered(name: str) -> None:
    *inputs, expression = TABLES[name]
    test_operators_are_the_dense_arrays(function(name, inputs, expression))


def test_the_diagonal_is_found_without_the_matrix() -> None:
    """The matrix would have 90,000 x 90,000 entries."""
    case = function("square", [X], X @ X)
    values = draw_all(case, sizes={"n": 300})
    (operator,) = operators(case, {"n": 300}, values).values()
    diagonal = np.diag(values["X"])
    close(operator.diagonal(), diagonal[:, None] + diagonal)
    close(operator.trace(), 600 * diagonal.sum())
    (operator,) = operators(function("wide", [A, x], A.T @ x, wrt=[x])).values()
    with pytest.raises(ValueError, match=r"only a square operator has a diagonal; it is \(3, 4\)"):
        operator.diagonal()


WORDS = [
    (X @ X, "X", "A ⊗ I + I ⊗ Aᵀ"),
    (A @ X @ B, "X", "A ⊗ Bᵀ"),
    (X.T, "X", "permutation"),
    (X * dx.tanh(X), "X", "diagonal"),
    (a * b, "b", "diagonal"),
    (dx.inv(V), "V", "A ⊗ Aᵀ"),
    (dx.solve(V, a), "a", "dense"),
    (dx.softmax(a), "a", "diagonal + rank 1"),
    (dx.sum((Y - U @ W.T) ** 2), "U", "I ⊗ A"),
    (dx.sum(dx.log(1 + dx.exp(R @ x))), "x", "rank n"),
    (a[1:] - a[:-1], "a", "sparse"),
    (dx.inv(S), "S", "sym(A ⊗ A)"),
    (dx.sum(a), "a", "zero"),
]


@pytest.mark.parametrize(("expression", "name", "text"), WORDS, ids=lambda value: str(value)[:20])
def test_structure_in_words(expression: Any, name: str, text: str) -> None:
    inputs = [leaf.name for leaf in ir.leaves([expression.node])]
    case = function("f", inputs, expression, wrt=[name])
    (operator,) = structured(case.derivatives).operators
    assert operator.structure == text


LARGE = {"n": 7, "m": 9, "k": 2, "c": 4, "batch": 3}
P = dx.vector("p", n, "positive")
C = dx.matrix("C", n, n, "invertible")
SOLVED = {
    "diagonal": (a * dx.tanh(P), "a", 0),
    "permuted": (X.T * dx.exp(C), "X", 0),
    "identity": (X + C, "X", 0),
    "Kronecker": (C @ X @ dx.inv(V), "X", 7),
    "transposed": (C @ X.T @ V, "X", 7),
    "inverse": (dx.inv(V), "V", 7),
    "blocks": (X @ V, "X", 7),
    "blocks of rows": (dx.softmax(X) @ V + X, "X", None),
    "Sylvester": (C @ X + X @ V, "X", 0),
    "square": (V @ V, "V", 0),
    "transposed Sylvester": (C @ X.T + X.T @ V, "X", 0),
    "rank 1": (dx.log(P) + a * (w @ P), "p", 1),
    "ridge": (dx.sum((dx.matrix("E", k, n) @ P) ** 2) + dx.sum(P**2), "p", 2),
    "norm": (dx.norm(X) * dx.norm(a) + dx.sum(X**3), "X", 1),
    "dense": (dx.solve(V, a), "a", 7),
    "factorised": (dx.sum((Y - U @ W.T) ** 2), "U", 2),
    "no structure": (V @ V @ V, "V", None),
}


@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize("transposed", [False, True])
def test_solutions(name: str, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expression, wrt, largest = SOLVED[name]
    case = function("f", [leaf.name for leaf in ir.leaves([expression.node])], expression, [wrt])
    (operator,) = operators(case, LARGE).values()
    operator = operator.T if transposed else operator
    dense = operator.tosparse().toarray()
    right = np.random.default_rng(5).normal(size=(len(dense), 2))
    if largest is not None:
        monkeypatch.setattr(np.linalg, "solve", _up_to(largest, np.linalg.solve))
    for given in (right, right[:, 0], right[:, 0].reshape(operator.output_shape)):
        actual = operator.solve(given)
        expected = np.linalg.lstsq(dense, given.reshape(len(dense), -1))[0]
        back = given.shape if given.shape != operator.output_shape else operator.input_shape
        scale = np.abs(expected).max()
        np.testing.assert_allclose(actual, expected.reshape(back), rtol=0, atol=1e-8 * scale)


@pytest.mark.parametrize("directions", [0, 1, 2])
def test_solutions_beside_small_diagonals(directions: int) -> None:
    """A diagonal plus terms of low rank, with an entry of the diagonal that is nearly zero."""
    E = dx.matrix("E", k, n)
    (operator,) = operators(
        function("f", [E, P], dx.sum((E @ P) ** 2) + dx.sum(P**4), ["p"]),
        {"n": 4, "k": directions},
        {"E": np.eye(2, 4)[:directions] + 0.1, "p": np.array([1e-8, 1, 2, 3])},
    ).values()
    expected = np.array([1.0, -2, 3, 4])
    right = operator.todense() @ expected
    np.testing.assert_allclose(operator.solve(right), expected, rtol=1e-10)


def test_solutions_of_large_numbers() -> None:
    """LAPACK divides the sides of a Sylvester equation by a number if the solution may overflow."""
    shape, C, D = {"n": 2}, dx.matrix("C", n, n), dx.matrix("D", n, n)
    (operator,) = operators(
        function("f", [C, D, X], C @ X + X @ D, ["X"]),
        shape,
        {"C": np.eye(2) / 64, "D": np.diag([1 / 64, 1 / 32]), "X": np.eye(2)},
    ).values()
    expected = 1e296 * np.array([[1.0, 2], [3, 4]])
    np.testing.assert_allclose(operator.solve(operator @ expected), expected)


def _up_to(largest: int, solve: Any) -> Any:
    def checked(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
        assert matrix.shape[-1] <= largest
        return solve(matrix, right)

    return checked


@pytest.fixture(scope="module")
def square() -> ModuleType:
    return dx.compile(function("square", [X], X @ X))


def _scaled(method: Callable) -> Callable:
    def wrong(self: Any, *arguments: Any) -> Any:
        return method(self, *arguments) * (1 + 1e-4)

    return wrong


FAULTS = [
    ("todense", "todense"),
    ("tosparse", "tosparse"),
    ("_product", "operator"),
    ("rmatmat", "operator"),
    ("solve", "solve"),
]


@pytest.mark.parametrize(("method", "check"), FAULTS)
def test_a_wrong_operator_is_noticed(
    square: ModuleType, method: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(square.jacobian_operator(np.eye(2)))
    monkeypatch.setattr(kind, method, _scaled(getattr(kind, method)))
    report = dx.verify(square, sizes={"n": 3})
    assert not report.passed
    assert check in {row.check for row in report.failures}


def test_matrices_without_columns(square: ModuleType) -> None:
    operator = square.jacobian_operator(np.eye(2))
    nothing = np.zeros((4, 0))
    for product in (operator @ nothing, operator.matmat(nothing), operator.rmatmat(nothing)):
        assert product.shape == nothing.shape
    assert operator.solve(nothing).shape == nothing.shape


def test_an_absent_operator_is_noticed(square: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(square, "jacobian_operator")
    report = dx.verify(square, sizes={"n": 3})
    assert {row.check for row in report.failures} == {"operator"}


def test_nothing_large_is_made(square: ModuleType) -> None:
    point, along = np.random.default_rng(0).normal(size=(2, 500, 500))
    operator = square.jacobian_operator(point)
    assert operator.shape == (250_000, 250_000)
    expected = point @ along + along @ point
    np.testing.assert_allclose(operator @ along, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(operator @ along.ravel(), expected.ravel(), rtol=0, atol=1e-9)
    assert repr(operator) == "<square: Jacobian by X: 250000 x 250000, A ⊗ I + I ⊗ Aᵀ>"


def test_only_what_is_not_zero_is_stored(square: ModuleType) -> None:
    point = np.random.default_rng(0).normal(size=(20, 20))
    sparse = square.jacobian_operator(point).tosparse()
    assert sparse.format == "csr"
    assert sparse.nnz == 2 * 20**3 - 20**2
    np.testing.assert_allclose(sparse.diagonal(), np.add.outer(*2 * [np.diag(point)]).ravel())


def test_scipy_takes_operators(square: ModuleType) -> None:
    point = np.eye(4) + np.random.default_rng(0).normal(size=(4, 4)) / 9
    operator = square.jacobian_operator(point)
    right = np.arange(16.0)
    actual, failure = scipy.sparse.linalg.gmres(operator, right, rtol=1e-10)
    assert not failure
    np.testing.assert_allclose(actual, operator.solve(right), atol=1e-8)
    (value,) = scipy.sparse.linalg.svds(operator, 1, return_singular_vectors=False)
    dense = operator.todense().reshape(16, 16)
    np.testing.assert_allclose(value, np.linalg.norm(dense, 2))


def test_operators_are_those_of_scipy(square: ModuleType) -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 3, 3))
    J, K = square.jacobian_operator(first), square.jacobian_operator(second)
    assert isinstance(J, LinearOperator) and aslinearoperator(J) is J
    dense, other = (operator.todense().reshape(9, 9) for operator in (J, K))
    eye = aslinearoperator(np.eye(9))
    algebra = {
        "sums": (J + eye - K, dense + np.eye(9) - other),
        "from the left": (eye + J, np.eye(9) + dense),
        "multiples": (2 * J / 4 + np.float64(3) * -K, dense / 2 - 3 * other),
        "products": (J @ K @ eye * J, dense @ other @ dense),
        "powers": (J**2, dense @ dense),
        "transposes": ((J @ K.T).H + J.H + K.transpose() + K.adjoint(), None),
    }
    algebra["transposes"] = (algebra["transposes"][0], other @ dense.T + dense.T + 2 * other.T)
    vectors = np.random.default_rng(1).normal(size=(9, 2))
    for operator, matrix in algebra.values():
        assert isinstance(operator, LinearOperator)
        close(operator @ vectors, matrix @ vectors)
        close(operator.rmatvec(vectors[:, 0]), matrix.T @ vectors[:, 0])
        close(operator.T @ vectors, matrix.T @ vectors)
    column = vectors[:, :1]
    close(J.matvec(column), dense @ column)
    close(J.rmatvec(column), dense.T @ column)
    shaped = column.reshape(3, 3)
    for product in (J @ shaped, J * shaped, J(shaped), J.dot(shaped)):
        close(product, (dense @ column).reshape(3, 3))
    assert type(copy.deepcopy(J)) is type(J)


def test_scipy_is_imported_with_the_first_operator(square: ModuleType) -> None:
    text = f"""
import sys
import numpy as np
import derivatrix.runtime
square = derivatrix.runtime.load({square.__file__!r})
assert "scipy.sparse.linalg" not in sys.modules
square.jacobian_operator(np.eye(2))
assert "scipy.sparse.linalg" in sys.modules
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_operators_are_pickled(square: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a product, which prepares functions for the next."""
    monkeypatch.setitem(sys.modules, square.__name__, square)
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    operator = square.jacobian_operator(matrix)
    product = operator @ matrix
    again = pickle.loads(pickle.dumps(operator))
    assert np.array_equal(again @ matrix, product)
    assert np.array_equal(again.T @ matrix, operator.T @ matrix)


def test_float32(square: ModuleType) -> None:
    point = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    operator = square.jacobian_operator(point)
    assert operator.dtype == np.float32
    for result in (operator @ point, operator.todense(), operator.tosparse()):
        assert result.dtype == np.float32
    assert (operator @ point.astype(np.float64)).dtype == np.float64
    np.testing.assert_allclose(operator @ point, 2 * point @ point, rtol=1e-4, atol=1e-5)


def test_several_inputs_and_memory() -> None:
    module = dx.compile(function("hadamard", [a, b], a * b))
    first, second = np.random.default_rng(0).normal(size=(2, 5))
    operators = module.jacobian_operator(first, second)
    assert operators._fields == ("a", "b")
    given = first.copy()
    np.testing.assert_array_equal(operators.a @ given, second * first)
    kept = second.copy()
    second[:] = 0
    np.testing.assert_array_equal(operators.a @ given, kept * first)
    assert operators.a.T.T is operators.a


ERRORS: list[tuple[Callable, type[Exception], str]] = [
    (lambda J: J @ np.ones(5), ValueError, r"shape \(5,\); expected \(2, 2\), \(4,\) or \(4, k\)"),
    (lambda J: J @ None, TypeError, "expected real numbers"),
    (lambda J: J.matvec(np.ones(5)), ValueError, "5 numbers where 4 are expected"),
    (lambda J: J.solve(np.ones((2, 2))), np.linalg.LinAlgError, "singular"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(square: ModuleType, call: Callable, error: type[Exception], text: str) -> None:
    operator = square.jacobian_operator(np.diag([1.0, -1.0]))
    with pytest.raises(error, match=text):
        call(operator)


def test_what_cannot_be_solved_with() -> None:
    (wide,) = operators(function("f", [A], dx.sum(A, axis=0))).values()
    with pytest.raises(ValueError, match="needs a square operator"):
        wide.solve(np.ones(3))
    (projected,) = operators(function("f", [S], dx.inv(S))).values()
    with pytest.raises(ValueError, match="projected on spd matrices"):
        projected.solve(np.ones((3, 3)))
    (flat,) = operators(function("f", [a], dx.softmax(a))).values()
    with pytest.raises(np.linalg.LinAlgError):
        flat.solve(np.ones(3))


def work(order: Sequence[tuple[int, tuple[int, ...]]], lengths: Mapping[int, int]) -> int:
    """The multiplications of an array with the axes 0 and 1 by others, summed over all labels but
    4 and 5 as soon as no later one has them."""
    required = [{4, 5}.union(*(labels for _, labels in order[n:])) for n in range(len(order) + 1)]
    current, total = {0, 1} & required[0], 0
    for number, (_, labels) in enumerate(order):
        total += math.prod(lengths[label] for label in current.union(labels))
        current = current.union(labels) & required[number + 1]
    return total


def test_factors_are_multiplied_in_the_cheapest_order() -> None:
    random = np.random.default_rng(0)
    for _ in range(40):
        lengths = dict(enumerate(random.integers(2, 9, 6).tolist()))
        factors = [(n, tuple(random.choice(6, 2, replace=False).tolist())) for n in range(5)]
        order, cost = linear_map_terms._order([0, 1], {4, 5}, factors, lengths)
        assert sorted(order) == factors and work(order, lengths) == cost
        assert cost == min(work(other, lengths) for other in itertools.permutations(factors))


def test_products_need_no_more_memory_than_the_factors() -> None:
    """The Hessian of a function of a Cholesky factor is a sum of products of up to ten factors."""
    n = dx.dims("n")
    S = dx.matrix("S", n, n, "spd")
    module = dx.compile(dx.function("entries", [S], dx.prod(dx.diagonal(dx.cholesky(S))) ** 2))
    operator = module.hessian_operator(np.eye(60))
    tracemalloc.start()
    product = operator @ np.eye(60)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(product, module.hvp(np.eye(60), np.eye(60)), atol=1e-10)
    assert memory < 100e6  # an array with an axis for each of five labels takes 6 GB
