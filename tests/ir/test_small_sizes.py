"""Sizes 0 and 1: every operation, and functions of the front end, against NumPy; conditions on
sizes, which public functions and kernels check."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.interpret import evaluate, evaluate_all
from derivatrix.compiler.ir.nodes import Apply, Leaf, topological
from derivatrix.compiler.ir.operation import OPERATIONS, Operation
from derivatrix.runtime.errors import DeclarationError
from tests.plain import run_plain
from tests.points import draw, draw_all
from tests.structured.test_operators import operators

n, m, k = dx.dims("n m k")
x, y, s = dx.vector("x", n), dx.vector("y", m), dx.scalar("s")
A, B, X = dx.matrix("A", n, m), dx.matrix("B", n, k), dx.matrix("X", n, n)
S = dx.matrix("S", n, n, "spd")
SMALL = [{"n": 0, "m": 0}, {"n": 0, "m": 2}, {"n": 2, "m": 0}, {"n": 1, "m": 1}]
Values = dict[str, np.ndarray]
Sizes = Mapping[str, int]


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def leaves_of(expression: Array, *inputs: Array) -> Function:
    """A function of those of the inputs that an expression has."""
    from derivatrix.compiler.ir.nodes import leaves

    used = leaves([expression.node])
    return dx.function("f", [leaf for leaf in inputs if leaf.node in used], expression)


def check_kernels(function: Function, points: Sequence[tuple[Values, Sizes]]) -> None:
    """The kernels as plain Python, and operators, against NumPy's evaluation."""
    for kind in function.kinds:
        nodes = list(function.derivatives.kernel(kind)[1].values())
        kernel = kernel_plan(function.derivatives, kind)
        for values, sizes in points:
            with np.errstate(all="ignore"):
                expected = evaluate_all(nodes, values, sizes)
            outputs = [np.full(array.shape, 7.5) for array in expected]
            run_plain(kernel, values, outputs)
            for output, array in zip(outputs, expected, strict=True):
                close(output, array)
    kind = "jacobian" if function.expression.shape else "hessian"
    nodes = list(function.derivatives.batched(kind).values())
    for values, sizes in points:
        with np.errstate(all="ignore"):
            dense = evaluate_all(nodes, values, sizes)
            for operator, array in zip(
                operators(function, sizes, values).values(), dense, strict=True
            ):
                check_operator(operator, array)


def check_operator(operator: Any, array: np.ndarray) -> None:
    close(operator.todense(), array)
    assert operator.tosparse().shape == operator.shape
    for each in (operator, operator.T):
        rows, columns = each.shape
        assert (each @ np.ones((columns, 7))).shape == (rows, 7)
        assert each.matmat(np.ones((columns, 7))).shape == (rows, 7)
        assert each.matvec(np.ones(columns)).shape == (rows,)
        assert (each @ np.ones(each.input_shape)).shape == each.output_shape
    if operator.shape == (0, 0) and not operator._projected:
        assert operator.solve(np.ones(0)).size == 0


def operation_function(record: Operation, output: int) -> Function:
    """An operation on stacks of m arrays of n rows and columns, or 3 where it asks for that."""
    size = 3 if record.name in ("skew", "axial") else n
    needs = record.domain or ("",) * len(record.ranks)
    inputs = [
        dx.tensor(f"a{i}", m, *[size] * rank, structure="spd" if need == "spd" else "general")
        for i, (rank, need) in enumerate(zip(record.ranks, needs, strict=True))
    ]
    arrays = list(record.prepare(inputs))
    return dx.function("f", inputs, apply(record, *arrays, output=output))


NEEDS_AN_ENTRY = ("log_softmax", "max", "rows_at", "shares_of_maximum", "softmax", "sums_at")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation(name: str) -> None:
    record = OPERATIONS[name]
    for output in range(max(len(record.outputs), 1)):
        function = operation_function(record, output)
        points = [(suited(function, sizes), sizes) for sizes in SMALL if fits(function, sizes)]
        check_kernels(function, points)
        if len(points) < len(SMALL):
            assert function.requirements == ("n >= 1",)
            assert name in NEEDS_AN_ENTRY


def fits(function: Function, sizes: Sizes) -> bool:
    """Return whether the sizes meet the conditions."""
    return all(eval(text, {}, dict(sizes)) for text in function.requirements)


def suited(function: Function, sizes: Sizes) -> Values:
    """Points where operations are defined: positive definite matrices, positive vectors."""
    values = draw_all(function, sizes=sizes)
    random = np.random.default_rng(2)
    for leaf in function.inputs:
        structure = "spd" if leaf.ndim == 3 and leaf.shape[-1] == leaf.shape[-2] else "positive"
        with np.errstate(all="ignore"):
            values[leaf.name] = draw(Leaf(leaf.name, leaf.shape, structure), random, sizes)
    return values


NUMPY: dict[str, tuple[Array, Callable[..., Any]]] = {
    "x[0]": (x[0] ** 2, lambda x: x[0] ** 2),
    "x[-1]": (x[-1] * x, lambda x: x[-1] * x),
    "X[0, -1]": (X[0, -1] * X, lambda X: X[0, -1] * X),
    "max": (dx.max(x), lambda x: np.max(x)),
    "max of rows": (dx.max(A, axis=1), lambda A: np.max(A, axis=1)),
    "min of columns": (dx.min(A, axis=0), lambda A: np.min(A, axis=0)),
    "sum": (dx.sum(A), lambda A: np.sum(A)),
    "prod": (dx.prod(A, axis=0), lambda A: np.prod(A, axis=0)),
    "mean": (dx.mean(A), lambda A: np.mean(A)),
    "mean of columns": (dx.mean(A, 0), lambda A: np.mean(A, 0)),
    "mean of rows": (dx.mean(dx.tanh(A), 1), lambda A: np.mean(np.tanh(A), 1)),
    "var of columns": (dx.var(A, 0), lambda A: np.var(A, 0)),
    "var": (dx.var(x), lambda x: np.var(x)),
    "covariance": (A.T @ A / n, lambda A: A.T @ A / np.float64(len(A))),
    "centred": (A - dx.mean(A, 0), lambda A: A - np.mean(A, 0)),
    "added mean": (y + 2 * dx.mean(A, 0), lambda y, A: y + 2 * np.mean(A, 0)),
    "tanh / n": (dx.tanh(A) / n, lambda A: np.tanh(A) / np.float64(len(A))),
    "sum / n": (dx.sum(A) / n, lambda A: np.sum(A) / np.float64(len(A))),
    "where": (
        dx.where(dx.var(A, 1) > 0, dx.flip(x), -s),
        lambda A, x, s: np.where(np.var(A, 1) > 0, np.flip(x), -s),
    ),
    "roll by 1": (dx.roll(x * x, 1), lambda x: np.roll(x * x, 1)),
    "roll by -3": (dx.roll(x * x, -3), lambda x: np.roll(x * x, -3)),
    "roll of rows": (dx.roll(A, 5, axis=0), lambda A: np.roll(A, 5, axis=0)),
    "logsumexp": (dx.logsumexp(A, 1), lambda A: np.logaddexp.reduce(A, 1, initial=-np.inf)),
    "concatenate": (dx.concatenate([x, y, x]), lambda x, y: np.concatenate([x, y, x])),
    "stack": (dx.stack([x, 2 * x]), lambda x: np.stack([x, 2 * x])),
    "diag": (dx.diag(x), lambda x: np.diag(x)),
    "triangles": (dx.tril(A) + dx.triu(A, 1), lambda A: np.tril(A) + np.triu(A, 1)),
    "cumsum": (dx.cumsum(A, axis=0), lambda A: np.cumsum(A, axis=0)),
    "vech": (dx.vech(X), lambda X: X[np.tril_indices(len(X))]),
    "kron": (dx.kron(A, x), lambda A, x: np.kron(A, x)),
    "reshape": (dx.reshape(A, (m, n)), lambda A: np.reshape(A, A.shape[::-1])),
    "take": (dx.take(x, [2, 0]), lambda x: np.take(x, [2, 0])),
    "product": (A.T @ X @ A, lambda A, X: A.T @ X @ A),
    "trace": (dx.trace(X), lambda X: np.trace(X)),
    "einsum": (dx.einsum("ij,i->j", A, x), lambda A, x: np.einsum("ij,i->j", A, x)),
    "det": (dx.det(S), lambda S: np.linalg.det(S)),
    "solve": (dx.solve(S, A), lambda S, A: np.linalg.solve(S, A)),
    "inv": (dx.inv(S), lambda S: np.linalg.inv(S)),
    "cholesky": (dx.cholesky(S), lambda S: np.linalg.cholesky(S)),
    "eigenvalues": (dx.eigvalsh(S), lambda S: np.linalg.eigvalsh(S)),
    "singular values": (dx.svdvals(A), lambda A: np.linalg.svd(A, compute_uv=False)),
    "pinv": (dx.pinv(A), lambda A: np.linalg.pinv(A)),
}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_against_numpy(name: str) -> None:
    """NumPy's value, or conditions that do not hold where it raises; the kernels' derivatives."""
    expression, numpy = NUMPY[name]
    function = leaves_of(expression, x, y, A, X, S, s)
    points = []
    for sizes in SMALL:
        values = draw_all(function, sizes=sizes)
        try:
            expected = numpy(*(values[name] for name in numpy.__code__.co_varnames))
        except (IndexError, ValueError):
            assert not fits(function, sizes)
            continue
        assert fits(function, sizes)
        close(evaluate(function.expression, values, sizes), np.asarray(expected))
        points.append((values, sizes))
    check_kernels(function, points)


CONDITIONS = {
    ("n >= 1",): [x[0], x[-1], x[1:], x[::-1][0], dx.max(x), dx.softmax(x), dx.norm(x, np.inf)],
    ("n >= 3",): [x[2], x[-3], x[:3], x[3:], x[[0, 2, 1]], dx.take(x, [2]), dx.diff(x, 3)],
    ("m >= 1",): [dx.max(A, axis=1), A[:, 0], dx.softmax(A)],
    ("m >= 1", "n >= 1"): [dx.max(A), A[0, 0], dx.svdvals(A)[0], dx.norm(A, 2)],
    ("m >= 2", "n >= 2"): [dx.svdvals(A)[0] + dx.svdvals(A)[1]],
    ("n >= 2",): [dx.var(x, ddof=1), dx.vech(X)[2], x[-1] + x[1], dx.concatenate([x, x])[3]],
    ("n % 2 == 0",): [dx.reshape(x, (2, n / 2))],
    (): [x[::-1], dx.roll(x, 7), dx.mean(x), dx.sum(A) / (n * m), dx.vech(X), x[:0]],
}


@pytest.mark.parametrize("conditions", CONDITIONS, ids=str)
def test_conditions(conditions: tuple[str, ...]) -> None:
    for expression in CONDITIONS[conditions]:
        function = dx.function("f", [x, A, X], dx.sum(expression) + x @ X @ x + dx.sum(A))
        assert function.requirements == conditions


def test_conditions_of_equations() -> None:
    P = dx.vector("P", n)
    actual = dx.root(P**3 + P - x - x[2], P, x)
    assert dx.function("f", [x], actual).requirements == ("n >= 3",)


def test_conditions_of_loops() -> None:
    Y, h = dx.matrix("Y", m, n), dx.vector("h", n)

    def inner(g: Array, y: Array) -> tuple[Array, None]:
        return g * g[2] + y, None

    def outer(g: Array, y: Array) -> tuple[Array, None]:
        return dx.scan(inner, g * y, Y)[0], None

    for step in (inner, outer, lambda g, y: (g * dx.reshape(y, (3, n / 3))[0, 0], None)):
        for checkpoint in (None, 2):
            last, _ = dx.scan(step, h, Y, checkpoint=checkpoint)
            condition = "n >= 3" if step in (inner, outer) else "n % 3 == 0"
            assert condition in dx.function("f", [h, Y], last).requirements


def test_what_no_sizes_fulfil_is_refused() -> None:
    with pytest.raises(DeclarationError, match="f: an axis is too short for its index, slice or"):
        dx.function("f", [x], dx.max(dx.zeros(0)) * x)


def test_modules_for_devices_have_the_same_conditions() -> None:
    module = dx.compile(dx.function("f", [x], dx.max(x) * x), "cuda")
    assert module.REQUIREMENTS == ("n >= 1",)
    for kind in ("value", "vjp", "jvp", "jacobian"):
        text = inspect.getsource(getattr(module, kind))
        assert re.search(r"if .*not \(n >= 1\):\n +_run\.refuse\(\)", text)


# Compiled modules, in a process of their own: what goes wrong there may end it

CHILD = """
import numpy as np
import numba
import derivatrix as dx
n, m = dx.dims("n m")
x, A, X = dx.vector("x", n), dx.matrix("A", n, m), dx.matrix("X", n, n)
s, F = dx.scalar("s"), dx.matrix("F", n, 3)

def compiled(*inputs):
    return dx.compile(dx.function("f", inputs[:-1], inputs[-1]))

def refused(function, *arguments):
    try:
        function(*arguments)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{function} takes {arguments}")
"""


def child(code: str) -> None:
    """Run lines in a process whose freed memory is overwritten; AssertionError where it fails."""
    environment = {**os.environ, "MALLOC_PERTURB_": "85", "MALLOC_CHECK_": "3"}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD + code],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert process.returncode == 0, (process.returncode, process.stdout, process.stderr)


REFUSED = {
    "x[-1]": "x, x[-1] * x",
    "x[0]": "x, x[0] ** 2",
    "max": "x, dx.max(x)",
    "X[0, -1]": "X, X[0, -1] * X",
    "loop": "x, dx.scan(lambda h, _: (h * h[0], None), x, length=3)[0]",
}


@pytest.mark.parametrize("name", REFUSED)
def test_too_few_entries_are_refused(name: str) -> None:
    rank = 2 if "X" in name else 1
    child(f"""
f = compiled({REFUSED[name]})
empty = np.zeros({(0,) * rank})
result = np.zeros([0] * np.ndim(f.value(np.ones({(2,) * rank}))))
expected = "f: n = 0; it needs n >= 1"
for real in (np.float64, np.float32):
    for _ in range(1000):
        assert refused(f.value, empty.astype(real)) == expected
        assert refused(f.vjp, empty.astype(real), result) == expected

@numba.njit
def own(array, out):
    f.value_kernel(array, out)

message = "f: an argument of a kernel is too small; it needs n >= 1"
assert refused(own, empty, result) == message
""")


RESULTS = {
    "roll": "x, dx.roll(x * x, 1)",
    "std": "A, dx.std(A)",
    "mean": "A, dx.mean(A, 0)",
    "tanh / n": "A, dx.tanh(A) / n",
    "where": "A, x, s, dx.where(dx.var(A, 1) > 0, dx.flip(x), -s)",
    "covariance": "A, A.T @ A / n",
    "three columns": "F, dx.var(F, 0)",
    "eigenvalues": "X, dx.sum(dx.eigvals(X))",
}


@pytest.mark.parametrize("name", RESULTS)
def test_nothing_goes_wrong_without_entries(name: str) -> None:
    """Value, VJP and operator, with no rows and with no columns; nan where NumPy has it."""
    child(f"""
f = compiled({RESULTS[name]})
for rows, columns in ((0, 0), (0, 2), (2, 0), (1, 1)):
    sizes = {{"n": rows, "m": columns, "3": 3}}
    values = [np.ones([sizes[size] for size in entry["shape"]]) for entry in f.INPUTS]
    with np.errstate(all="ignore"):
        value = f.value(*values)
        names = [entry["name"] for entry in f.INPUTS]
        scope = {{"np": np, **dict(zip(names, values))}}
        try:
            expected = eval(f.DECLARATION, scope)
        except ZeroDivisionError:
            expected = np.full(np.shape(value), np.nan)
        np.testing.assert_allclose(value, expected)
        gradients = f.vjp(*values, np.ones_like(value))
        operators = getattr(f, f.OPERATOR)(*values)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert [part.shape for part in gradients] == [part.shape for part in values]
    for operator in operators if isinstance(operators, tuple) else (operators,):
        assert operator.todense().shape == operator.output_shape + operator.input_shape
        assert (operator @ np.ones(operator.shape[1])).shape == operator.shape[:1]
""")


SINGLE: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "inv": ("general", dx.inv),
    "inv of definite": ("spd", dx.inv),
    "inv of lower": ("lower", dx.inv),
    "solve": ("symmetric", lambda A: dx.solve(A, A @ A @ A)),
    "det": ("general", lambda A: dx.det(A) ** 2),
    "det of definite": ("spd", lambda A: dx.det(A) ** 2),
    "logdet": ("general", dx.logdet),
    "logdet of definite": ("spd", dx.logdet),
    "cholesky": ("spd", dx.cholesky),
    "pinv": ("general", dx.pinv),
    "eigvalsh": ("symmetric", lambda A: dx.eigvalsh(A) ** 2),
    "eigh": ("symmetric", lambda A: dx.eigh(A)[1] @ A @ A),
    "eigvals": ("general", lambda A: dx.eigvals(A) ** 2),
    "eig": ("upper", lambda A: dx.eig(A)[1] @ A @ A),
    "expm": ("general", dx.expm),
    "logm": ("diagonal", dx.logm),
    "sqrtm": ("general", dx.sqrtm),
    "cosm": ("general", dx.cosm),
    "sinm": ("general", dx.sinm),
    "tanhm": ("general", dx.tanhm),
    "beside arrays": ("spd", lambda A: x * dx.inv(A)[0, 0] + dx.logdet(A)),
    "of a product": ("spd", lambda A: dx.inv(A @ A.T + A) @ A),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_matrix_of_one_entry_is_a_number(name: str) -> None:
    """Kernels against the declaration and its differences; nothing but checks is left of the
    operations, apart from a logarithm that may be -inf."""
    structure, expression = SINGLE[name]
    matrix = dx.matrix("A", 1, 1, structure)
    declared = expression(matrix)
    inputs = [matrix, x] if name == "beside arrays" else [matrix]
    function = dx.function("f", inputs, declared, wrt=[matrix])
    values, step = {"A": np.array([[0.7]]), "x": np.array([1.0, 2.0])}, 1e-6

    def value(entry: float) -> np.ndarray:
        return evaluate(declared.node, {**values, "A": np.array([[entry]])}, {"n": 2})

    slope = (value(0.7 + step) - value(0.7 - step)) / (2 * step)
    for kind, expected in (("value", value(0.7)), ("jacobian", slope[..., None, None])):
        nodes = list(function.derivatives.kernel(kind)[1].values())
        names = {node.operation.name for node in topological(nodes) if isinstance(node, Apply)}
        assert names <= {"positive_pivot", "nonzero_pivot", "logdet"}
        out = np.full(expected.shape, np.nan)
        run_plain(kernel_plan(function.derivatives, kind), values, [out])
        np.testing.assert_allclose(out, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("size", [2, n])
@pytest.mark.parametrize(
    "structure, entry, operation, text",
    [
        ("general", 0.0, dx.inv, "A[0,0]: the matrix is singular"),
        ("lower", 0.0, dx.inv, "A[0,0]: the matrix is singular"),
        ("general", 0.0, dx.pinv, "A[0,0]: the matrix is singular"),
        ("spd", -1.0, dx.inv, "A[0,0]: the matrix is not positive definite"),
        ("spd", 0.0, dx.logdet, "A[0,0]: the matrix is not positive definite"),
        ("spd", np.nan, dx.cholesky, "A[0,0]: the matrix is not positive definite"),
        ("general", -1.0, dx.sqrtm, "A[0,0]: the matrix is not positive definite"),
        ("general", 0.0, dx.logm, "A[0,0]: the matrix is not positive definite"),
    ],
)
def test_what_a_matrix_of_one_entry_must_not_be(
    structure: str, entry: float, operation: Callable[[Array], Array], text: str, size: Any
) -> None:
    """Straight-line kernels, and those that call others, refuse it as those of larger matrices."""
    matrix, other = dx.matrix("A", 1, 1, structure), dx.vector("v", size)
    function = dx.function("f", [matrix, other], other * dx.sum(operation(matrix)), wrt=[matrix])
    values = {"A": np.array([[entry]]), "v": np.ones(2)}
    for kind, out in (("value", np.ones(2)), ("jacobian", np.ones((2, 1, 1)))):
        with pytest.raises(np.linalg.LinAlgError, match=re.escape(text)):
            run_plain(kernel_plan(function.derivatives, kind), values, [out])


def test_the_derivative_by_an_orthogonal_number_is_zero() -> None:
    Q = dx.matrix("Q", 1, 1, "orthogonal")
    function = dx.function("f", [Q], dx.inv(Q) + dx.expm(Q))
    out = np.ones((1, 1, 1, 1))
    run_plain(kernel_plan(function.derivatives, "jacobian"), {"Q": -np.ones((1, 1))}, [out])
    assert not out.any()


def test_loops_of_one_round_are_left_out() -> None:
    row = dx.matrix("a", 1, n)
    function = dx.function("f", [row, x], row * x)
    assert "range(1)" not in generate(function).text


def test_formulas_of_a_kalman_step() -> None:
    P, H, R = dx.matrix("P", 2, 2, "spd"), dx.matrix("H", 1, 2), dx.matrix("R", 1, 1, "spd")
    y, z = dx.vector("y", 1), dx.vector("z", 2)
    gain = P @ H.T @ dx.inv(H @ P @ H.T + R)
    function = dx.function("f", [P, H, R, y, z], z + gain @ (y - H @ z))
    assert function.formula("value") == ("z + (y[0] − (H z)[0]) P H[0] / (R[0,0] + H[0]ᵀ P H[0])")
