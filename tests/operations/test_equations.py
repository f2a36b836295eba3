"""Matrix equations: kernels against SciPy and the equations themselves, derivatives, failures."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.linalg

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import leaves
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.compiler.simplify import simplify
from derivatrix.templates.support.cpu import riccati, stein, sylvester

RICCATI = [
    (riccati.continuous_riccati, scipy.linalg.solve_continuous_are),
    (riccati.discrete_riccati, scipy.linalg.solve_discrete_are),
]
PRECISIONS = [(np.float64, 1e-9), (np.float32, 2e-3)]
n, m = dx.dims("n m")
A, B, Q = dx.matrix("A", n, n), dx.matrix("B", n, m), dx.matrix("Q", n, n)
R, S = dx.matrix("R", m, m), dx.matrix("S", n, n, "spd")


def draw(size: int, controls: int = 2) -> list[np.ndarray]:
    """Stacks of A, B, Q and R, of which A is not stable and Q and R are definite."""
    generator = np.random.default_rng(size)
    shapes = (size, size), (size, controls), (size, size), (controls, controls)
    a, b, q, r = (generator.normal(size=(3, *shape)) for shape in shapes)
    return [a, b, q @ q.swapaxes(1, 2), r @ r.swapaxes(1, 2) + np.eye(controls)]


@pytest.mark.parametrize(("real", "tolerance"), PRECISIONS, ids=["float64", "float32"])
@pytest.mark.parametrize(("kernel", "reference"), RICCATI, ids=["continuous", "discrete"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 10])
def test_riccati(
    kernel: Callable, reference: Callable, size: int, real: type, tolerance: float
) -> None:
    arrays = [array.astype(real) for array in draw(size)]
    kept = [array.copy() for array in arrays]
    out = np.empty_like(arrays[0])
    assert kernel(*arrays, out)
    for before, after in zip(kept, arrays, strict=True):
        np.testing.assert_array_equal(before, after)
    for actual, *matrices in zip(out, *(array.astype(float) for array in kept), strict=True):
        matrices[2:] = ((matrix + matrix.T) / 2 for matrix in matrices[2:])
        expected = reference(*matrices)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * abs(expected).max())


def doubled(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The solution in discrete time by doubling (Anderson 1978), in 60 digits."""
    with mpmath.workdps(60):
        a, b, q, r = (mpmath.matrix(array.tolist()) for array in (a, b, q, r))
        gain, unit = b * mpmath.inverse(r) * b.T, mpmath.eye(a.rows)
        for _ in range(12):
            inverse = mpmath.inverse(unit + gain * q)
            a, gain, q = (
                a * inverse * a,
                gain + a * inverse * gain * a.T,
                q + a.T * q * inverse * a,
            )
        return np.array(q.tolist(), dtype=float)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("size", [2e3, -1e5])
def test_riccati_with_a_large_entry(place: int, size: float) -> None:
    matrices = [stack[:1].copy() for stack in draw(4)]
    matrices[place][0, 0, 0] += abs(size) if place > 1 else size
    actual = np.empty_like(matrices[0])
    assert riccati.discrete_riccati(*matrices, actual)
    expected = doubled(*(stack[0] for stack in matrices))
    np.testing.assert_allclose(actual[0], expected, rtol=0, atol=2e-13 * np.abs(expected).max())


def test_riccati_where_the_closed_loop_has_repeated_eigenvalues() -> None:
    """Three double integrators side by side."""
    a = np.kron(np.eye(3), [[0.0, 1.0], [0.0, 0.0]])
    b = np.kron(np.eye(3), [[0.0], [1.0]])
    out = np.empty((1, 6, 6))
    for kernel, reference in RICCATI:
        matrices = [a + np.eye(6) * (kernel is riccati.discrete_riccati), b, np.eye(6), np.eye(3)]
        assert kernel(*(matrix[None].copy() for matrix in matrices), out)
        np.testing.assert_allclose(out[0], reference(*matrices), atol=1e-9)


UNSOLVABLE = {
    "an unstable part without control": ([[2.0, 0], [0, 0.5]], [[0.0], [1]], np.eye(2), [[1.0]]),
    "not a number": ([[np.nan, 0], [0, 1]], [[0.0], [1]], np.eye(2), [[1.0]]),
}


@pytest.mark.parametrize("case", UNSOLVABLE)
@pytest.mark.parametrize(("kernel", "reference"), RICCATI, ids=["continuous", "discrete"])
def test_riccati_without_a_solution(kernel: Callable, reference: Callable, case: str) -> None:
    arrays = [np.array([matrix], float) for matrix in UNSOLVABLE[case]]
    assert not kernel(*arrays, np.empty_like(arrays[0]))


def test_riccati_on_the_boundary_of_stability() -> None:
    """Eigenvalues on the imaginary axis that no cost asks to move; a weight without inverse."""
    turn = np.array([[[0.0, 1.0], [-1.0, 0.0]]])
    b, eye, out = np.array([[[0.0], [1.0]]]), np.eye(2)[None], np.empty((1, 2, 2))
    assert not riccati.continuous_riccati(turn, b, 0 * eye, eye[:, :1, :1].copy(), out)
    assert not riccati.continuous_riccati(turn, eye.copy(), eye, np.diag([1.0, 0])[None], out)
    assert not riccati.discrete_riccati(turn, b, 0 * eye, eye[:, :1, :1].copy(), out)


@pytest.mark.parametrize(("real", "tolerance"), PRECISIONS, ids=["float64", "float32"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 10])
def test_stein(size: int, real: type, tolerance: float) -> None:
    matrix, _, _, _ = draw(size)
    constant = np.random.default_rng(0).normal(size=matrix.shape)
    matrix[1] = np.triu(matrix[1], 1)
    matrix[2] = 0.5 * np.eye(size) + np.eye(size, k=1)
    out = np.empty(matrix.shape, real)
    assert stein.discrete_lyapunov(matrix.astype(real), constant.astype(real), out)
    for a, q, x in zip(matrix, constant, out, strict=True):
        np.testing.assert_allclose(a @ x @ a.T - x + q, 0, atol=tolerance * max(1, abs(x).max()))


@pytest.mark.parametrize("matrix", [np.eye(2), np.diag([2.0, 0.5]), [[0.6, 0.8], [-0.8, 0.6]]])
def test_stein_without_a_solution(matrix: np.ndarray) -> None:
    out = np.empty((1, 2, 2))
    assert not stein.discrete_lyapunov(np.array([matrix]), np.eye(2)[None], out)


TURN = np.array([[0.6, 0.8], [-0.8, 0.6]])
SINGULAR = {
    "solve_continuous_lyapunov": [
        (np.diag([1.0, -1]),),
        (np.zeros((2, 2)),),
        (TURN - 0.6 * np.eye(2),),
    ],
    "solve_discrete_lyapunov": [(np.eye(2),), (np.diag([2.0, 0.5]),), (TURN,)],
    "solve_sylvester": [(np.diag([1.0, 3]), np.diag([2.0, -3])), (TURN, -TURN)],
}


@pytest.mark.parametrize("name", SINGULAR)
def test_references_of_singular_equations(name: str) -> None:
    """References raise errors as kernels do, also for one singular matrix in a stack."""
    record = OPERATIONS[name]
    for matrices in SINGULAR[name]:
        stacked = [np.stack([3 * np.eye(2), matrix]) for matrix in matrices]
        with pytest.raises(np.linalg.LinAlgError, match=f"^{name}: {record.failure}"):
            record.value([*stacked, np.eye(2)], ())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_schur_forms_serve_the_transposes(size: int) -> None:
    """A X + X Aᵀ = Q and Aᵀ X + X A = Q from one Schur form."""
    a, _, q, _ = draw(size)
    form, vectors, out = (np.empty_like(a) for _ in range(3))
    assert sylvester.schur(a, form, vectors)
    for turned, matrix in ((False, a), (True, a.swapaxes(1, 2))):
        arguments = (form, vectors, form, vectors, q, out, turned, not turned)
        assert sylvester.schur_sylvester(*arguments)
        np.testing.assert_allclose(matrix @ out + out @ matrix.swapaxes(1, 2), q, atol=1e-8)


@pytest.mark.parametrize(
    ("text", "dims", "equation"),
    [
        ("lyap(A, Q)", {"A": "n n", "Q": "n n"}, lambda x, a, q: a @ x + x @ a.T + q),
        ("dlyap(A, Q)", {"A": "n n", "Q": "n n"}, lambda x, a, q: a @ x @ a.T + q - x),
        (
            "care(A, B, Q, R)",
            {"A": "n n", "B": "n m", "Q": "n n spd", "R": "m m spd"},
            lambda x, a, b, q, r: a.T @ x + x @ a - x @ b @ np.linalg.solve(r, b.T @ x) + q,
        ),
        (
            "dare(A, B, Q, R)",
            {"A": "n n", "B": "n m", "Q": "n n spd", "R": "m m spd"},
            lambda x, a, b, q, r: (
                a.T @ x @ (a - b @ np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a)) - x + q
            ),
        ),
    ],
)
def test_notation(text: str, dims: dict[str, str], equation: Callable) -> None:
    values = {name: array[0] for name, array in zip("ABQR", draw(3), strict=True)}
    array = evaluate(dx.parse(text, **dims).node, values, {"n": 3, "m": 2})
    np.testing.assert_allclose(equation(array, *(values[name] for name in dims)), 0, atol=1e-9)


@pytest.mark.parametrize(
    ("scalar", "gradient"),
    [
        (dx.trace(dx.solve_continuous_lyapunov(A, S)), "lyapunov(Aᵀ, I)"),
        (dx.trace(dx.solve_discrete_lyapunov(A, S)), "dlyap(Aᵀ, I)"),
        (
            dx.trace(dx.solve_continuous_are(A, B, S, dx.eye(m))),
            "−lyapunov(A − B Bᵀ care(A, B, S, I), I)",
        ),
    ],
)
def test_gradients_read_well(scalar: dx.Array, gradient: str) -> None:
    inputs = [array for array in (A, B, S) if array.node in leaves([scalar.node])]
    assert dx.function("f", inputs, scalar, wrt=[S]).formula("gradient") == gradient


def test_a_symmetric_sylvester_equation_is_one_of_lyapunov() -> None:
    for before, after in (
        (dx.solve_sylvester(A, A.T, Q), dx.solve_continuous_lyapunov(A, Q)),
        (dx.solve_sylvester(A.T, A, Q), dx.solve_continuous_lyapunov(A.T, Q)),
        (dx.solve_sylvester(S, S, Q), dx.solve_continuous_lyapunov(S, Q)),
        (dx.solve_continuous_lyapunov(S, S), dx.eye(n) / 2),
        (dx.solve_continuous_lyapunov(S, dx.eye(n)), dx.inv(S) / 2),
    ):
        one, other = simplify([before.node, after.node])
        assert one is other
    values = {"A": draw(3)[0][0], "Q": draw(3)[2][1], "S": draw(3)[2][2] + np.eye(3)}
    before = dx.solve_sylvester(A.T, A, Q) + dx.solve_sylvester(S, S, Q - S) + S @ S
    expected = evaluate(before.node, values, {"n": 3})
    actual = evaluate(simplify([before.node])[0], values, {"n": 3})
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_weights_are_made_symmetric() -> None:
    free = dx.solve_continuous_are(A, B, Q, R)
    same = dx.solve_continuous_are(A, B, (Q + Q.T) / 2, (R + R.T) / 2)
    one, other = simplify([free.node, same.node])
    assert one is other


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: dx.solve_continuous_lyapunov(B, Q), "square"),
        (lambda: dx.solve_discrete_lyapunov(A, B), "square"),
        (lambda: dx.solve_discrete_lyapunov(A, R), "equal shapes"),
        (lambda: dx.solve_continuous_are(A, B, Q, Q), r"\(n, m\)"),
        (lambda: dx.solve_discrete_are(A, B, B, R), "square"),
        (lambda: dx.solve_discrete_are(A, B.T, Q, R), r"\(n, m\)"),
    ],
)
def test_wrong_shapes(build: Callable, text: str) -> None:
    with pytest.raises(dx.ShapeError, match=text):
        build()


def test_a_compiled_equation_says_what_is_wrong() -> None:
    module = dx.compile(dx.function("lyapunov", [A, Q], dx.solve_continuous_lyapunov(A, Q)))
    unsolvable = np.diag([1.0, -1.0]), np.eye(2)
    for call in (lambda: module.value(*unsolvable), lambda: module.vjp(*unsolvable, np.eye(2))):
        with pytest.raises(np.linalg.LinAlgError, match=r"^lyapunov: .*add up to zero"):
            call()
