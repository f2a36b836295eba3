"""Functions of a matrix: kernels against SciPy, also where eigenvalues repeat, and failures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf, leaves
from derivatrix.compiler.operations import OPERATIONS, Operation, matrix_functions
from derivatrix.compiler.operations.commuting import commute
from derivatrix.compiler.simplify import simplify
from derivatrix.templates.support.cpu import exponential
from tests.plain import helper

FUNCTIONS = ["expm", "logm", "sqrtm", "cosm", "sinm", "tanhm"]
n = dx.dims("n")
A, B, E = dx.matrix("A", n, n), dx.matrix("B", n, n), dx.matrix("E", n, n)


z = sympy.Symbol("z")
C = dx.matrix("C", n, n, "symmetric")


def along(result: dx.Array, direction: dx.Array) -> dx.Array:
    """The derivative of a function of A, B or C as these move along a direction."""
    tangents = dict.fromkeys((A.node, B.node, C.node), direction.node)
    used = {leaf: tangent for leaf, tangent in tangents.items() if leaf in leaves([result.node])}
    return dx.Array(differential([result.node], used)[0])


def matrices(size: int) -> dict[str, np.ndarray]:
    """Matrices of all kinds, with the eigenvalues of some of them repeated."""
    draw = np.random.default_rng(size).normal(size=(size, size))
    eye, shift = np.eye(size), np.eye(size, k=1)
    basis = np.linalg.qr(draw)[0]
    return {
        "general": draw,
        "triangular": np.triu(draw),
        "symmetric": draw + draw.T,
        "definite": draw @ draw.T + eye,
        "rotation": 3 * (draw - draw.T),
        "zero": 0 * draw,
        "identity": eye,
        "repeated": basis @ np.diag([2.0] * (size - 1) + [1.0]) @ basis.T,
        "Jordan": 1.5 * eye + shift,
        "nilpotent": shift,
        "skewed": 0.1 * eye + 30 * shift,
        "nearly singular": basis @ np.diag(np.logspace(-8, 0, size)) @ basis.T,
        "pairs": np.kron(np.eye(size), [[1.0, -2.0], [2.0, 1.0]]) + np.eye(2 * size, k=2),
    }


def computed(operation: Operation, *arrays: np.ndarray) -> np.ndarray | None:
    """Run the kernel on stacked arrays; None where it reports a failure."""
    assert operation.kernel is not None
    out = np.empty_like(arrays[0])
    return None if helper(operation.kernel)(*arrays, out) is False else out


def expected(operation: Operation, *arrays: np.ndarray) -> np.ndarray | None:
    try:
        return operation.value([array.astype(float) for array in arrays], ())[0]
    except np.linalg.LinAlgError:
        return None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_values(name: str, size: int) -> None:
    operation = OPERATIONS[name]
    for kind, matrix in matrices(size).items():
        actual, value = computed(operation, matrix[None]), expected(operation, matrix[None])
        assert (actual is None) == (value is None), kind
        if actual is not None and value is not None:
            close(actual, value, 1e-10 if kind != "nearly singular" else 1e-7, kind)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stacks_in_single_precision(name: str) -> None:
    stack = np.stack([matrices(3)[kind] for kind in ("definite", "repeated", "Jordan")])
    actual = computed(OPERATIONS[name], stack.astype(np.float32))
    assert actual is not None and actual.dtype == np.float32
    close(actual, expected(OPERATIONS[name], stack), 1e-5)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "sqrtm"])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_in_directions(name: str, order: int) -> None:
    directions = np.random.default_rng(7).normal(size=(order, 2, 3, 3))
    operation = matrix_functions.derivative(matrix_functions.FUNCTIONS[name], order)
    for kind in ("definite", "repeated", "Jordan", "identity"):
        stack = np.stack([matrices(3)[kind]] * 2)
        actual = computed(operation, stack, *directions)
        assert actual is not None
        close(actual, expected(operation, stack, *directions), 1e-8, kind)


@pytest.mark.parametrize("norm", [1e-9, 0.01, 0.1, 0.5, 2, 4.7, 5, 30])
def test_exponentials_of_all_norms(norm: float) -> None:
    """The degree of the approximant, and the number of squarings, follow from the norm. Derivatives
    are a block of the exponential of a block triangular matrix (Mathias 1996)."""
    A, E, F = np.random.default_rng(0).normal(size=(3, 5, 5))
    A *= norm / np.linalg.norm(A, 1)
    zero = np.zeros_like(A)
    blocks = np.block([[A, E, F, zero], [zero, A, zero, F], [zero, zero, A, E], [zero] * 3 + [A]])
    exact = scipy.linalg.expm(blocks)
    for order, last in enumerate((0, 5, 15)):
        actual = np.empty((1, 5, 5))
        exponential.expm(*(matrix[None] for matrix in (A, E, F)[: order + 1]), actual)
        expected = exact[:5, last : last + 5]
        np.testing.assert_allclose(actual[0], expected, rtol=0, atol=3e-13 * abs(expected).max())


def test_exponentials_of_large_nilpotent_matrices() -> None:
    """The first halvings are superfluous: their factors in powers of the matrix overflow."""
    A = np.zeros((1, 3, 3))
    A[0, 0, 1], A[0, 1, 2] = 1e60, 1
    actual = computed(OPERATIONS["expm"], A)
    assert actual is not None
    np.testing.assert_allclose(actual[0], [[1, 1e60, 5e59], [0, 1, 1], [0, 0, 1]], rtol=1e-14)


def test_a_large_tangent() -> None:
    """The eigenvalues of tanh are -1 and 1, far out, and next to a pole of a half of the matrix
    nothing happens."""
    far = computed(OPERATIONS["tanhm"], 400 * matrices(5)["symmetric"][None])
    assert far is not None
    np.testing.assert_allclose(abs(np.linalg.eigvalsh(far[0])), 1, rtol=1e-11)
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    half = computed(OPERATIONS["tanhm"], np.pi * turn[None] * (1 + 1e-3))
    assert half is not None
    close(half[0], np.tan(np.pi * 1e-3) * turn, 1e-10)


@pytest.mark.parametrize(
    ("scalar", "gradient"),
    [
        (dx.trace(dx.expm(A)), "expm(A)ᵀ"),
        (dx.trace(dx.logm(A)), "A⁻ᵀ"),
        (dx.trace(dx.sinm(A)), "cosm(A)ᵀ"),
        (dx.trace(dx.cosm(A)), "−sinm(A)ᵀ"),
        (dx.trace(dx.tanhm(A)), "I − (tanhm(A)ᵀ)²"),
        (dx.trace(dx.sqrtm(A)), "½ sqrtm(A)⁻ᵀ"),
        (dx.trace(dx.expm(A.T) @ E), "Dexpm(Aᵀ)[E]"),
        (dx.trace(dx.expm(3 * A) @ E), "3 Dexpm(3 A)[E]ᵀ"),
    ],
)
def test_gradients_read_well(scalar: dx.Array, gradient: str) -> None:
    inputs = [A] if "E" not in gradient else [A, E]
    assert dx.function("f", inputs, scalar, wrt=[A]).formula("gradient") == gradient


def test_directions_have_no_order() -> None:
    tangents = {A.node: Leaf("T", A.node.shape)}, {A.node: Leaf("U", A.node.shape)}
    one, other = (
        simplify(differential(differential([dx.expm(A).node], first), second))[0]
        for first, second in (tangents, tangents[::-1])
    )
    assert one is other


def test_third_derivatives() -> None:
    """Third derivatives in one direction, against differences of the second derivative."""
    generator = np.random.default_rng(3)
    a, e = generator.normal(size=(2, 3, 3))
    tangent = {A.node: E.node}
    second = simplify(differential(differential([dx.expm(A).node], tangent), tangent))
    third = simplify(differential(second, tangent))[0]

    def at(node: dx.Array, step: float = 0.0) -> np.ndarray:
        return evaluate(node, {"A": a + step * e, "E": e}, {"n": 3})

    near, far = (at(second[0], h) - at(second[0], -h) for h in (1e-2, 2e-2))
    close(at(third), (8 * near - far) / 0.12, 1e-6)


@pytest.mark.parametrize(
    ("scalar", "gradient"),
    [
        (dx.trace(A @ dx.logm(A) - A), "logm(A)ᵀ"),
        (dx.trace(dx.expm(A) @ dx.expm(A)), "2 (expm(A)ᵀ)²"),
        (dx.trace(dx.fractional_matrix_power(A, 0.3)), "0.3 A⁻ᵀ expm(0.3 logm(A))ᵀ"),
        (dx.trace(dx.funm(sympy.sinh, C)), "½ expm(C) + ½ expm(−C)"),
    ],
)
def test_derivatives_along_functions_of_the_matrix(scalar: dx.Array, gradient: str) -> None:
    inputs = leaves([scalar.node])
    assert dx.function("f", [leaf.name for leaf in inputs], scalar).formula("gradient") == gradient


def test_what_commutes() -> None:
    for one, other in ((A @ A.T, dx.expm(A @ A.T)), (dx.inv(A).T, 2 * A.T @ A.T), (A, dx.eye(n))):
        assert commute(*simplify([one.node, other.node]))
    for one, other in ((A, A.T), (A, C), (A @ A.T, A), (A @ C, C @ A), (A, dx.exp(A)), (C, A + C)):
        assert not commute(*simplify([one.node, other.node]))


@pytest.mark.parametrize("power", [-2, -1.5, -0.5, 0, 0.5, 1, 2.5, 0.3, -1.7])
def test_powers(power: float) -> None:
    for kind in ("definite", "Jordan", "pairs"):
        matrix = matrices(3)[kind]
        actual = evaluate(dx.fractional_matrix_power(dx.constant(matrix), power).node, {}, {})
        close(actual, scipy.linalg.fractional_matrix_power(matrix, power), 1e-9, kind)


def test_a_size_as_a_power() -> None:
    matrix = matrices(3)["definite"]
    actual = evaluate(dx.fractional_matrix_power(B, n).node, {"B": matrix}, {"n": 3})
    close(actual, np.linalg.matrix_power(matrix, 3), 1e-9)


ELEMENTARY = [
    (sympy.exp, np.exp),
    (3 - z**3 / 4 + 2 * z, lambda x: 3 - x**3 / 4 + 2 * x),
    (sympy.exp(-(z**2)), lambda x: np.exp(-(x**2))),
    (sympy.sin(2 * z) / (2 + sympy.cos(z)), lambda x: np.sin(2 * x) / (2 + np.cos(x))),
    (lambda x: x / (1 + dx.exp(-x)), lambda x: x / (1 + np.exp(-x))),
    (sympy.tan(z / 9), lambda x: np.tan(x / 9)),
    (sympy.asinh, np.arcsinh),
    (sympy.log(4 + z**2), lambda x: np.log(4 + x**2)),
    (sympy.sqrt(1 + z**2), lambda x: np.sqrt(1 + x**2)),
    (abs(z), np.abs),
    (sympy.sign, np.sign),
    (sympy.Integer(2), lambda x: 2 + 0 * x),
    (sympy.erf, scipy.special.erf),
    (z * sympy.atan(z), lambda x: x * np.arctan(x)),
    (lambda x: np.exp(-x) / 2, lambda x: np.exp(-x) / 2),
]


@pytest.mark.parametrize(("function", "scalar"), ELEMENTARY)
def test_elementary_functions(function: object, scalar: Callable) -> None:
    matrix = matrices(3)["symmetric"]
    values, vectors = np.linalg.eigh(matrix)
    wanted = vectors @ np.diag(scalar(values)) @ vectors.T
    for call in (dx.funm(function, C), dx.funm(C, function)):
        close(evaluate(call.node, {"C": matrix}, {"n": 3}), wanted, 1e-9)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (sympy.erf, dx.UnsupportedError, "no erf of a matrix"),
        (sympy.asin, dx.UnsupportedError, "no asin of a matrix"),
        (sympy.I * z, dx.UnsupportedError, "I\\*z is complex"),
        (z * sympy.Symbol("y"), dx.DeclarationError, "one variable, not of y, z"),
        ("z", dx.DeclarationError, "one SymPy symbol, not 'z'"),
        (lambda x: dx.exp(x) * A, dx.DeclarationError, "one SymPy symbol"),
    ],
)
def test_functions_that_there_are_not(function: object, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        dx.funm(A, function)
    with pytest.raises(dx.ShapeError, match="square"):
        dx.funm(dx.matrix("M", 2, 3), sympy.exp)
    with pytest.raises(dx.DeclarationError, match="a number or a scalar"):
        dx.fractional_matrix_power(C, A)


def test_a_derivative_by_divided_differences() -> None:
    """The derivative of erf(A) at repeated eigenvalues, against that at eigenvalues a bit apart."""
    function = dx.function("f", [C, A], dx.sum(dx.funm(C, sympy.erf) * A), wrt=[C])
    gradient = function.derivatives.results("gradient")[("C",)]
    actual, wanted = (
        evaluate(gradient, {"C": np.diag([2.0, 2 + gap, 1]), "A": matrices(3)["general"]}, {"n": 3})
        for gap in (0, 1e-5)
    )
    close(actual, wanted, 1e-5)
    assert np.isfinite(actual).all()


def close(
    actual: np.ndarray, wanted: np.ndarray | None, tolerance: float, message: str = ""
) -> None:
    assert wanted is not None
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * scale, err_msg=message)


@pytest.mark.parametrize("name", ["logm", "sqrtm"])
@pytest.mark.parametrize(
    "matrix", [np.diag([1.0, 0.0]), np.diag([1.0, -2.0]), np.full((2, 2), np.nan)]
)
def test_outside_the_domain(name: str, matrix: np.ndarray) -> None:
    assert computed(OPERATIONS[name], matrix[None]) is None
    with pytest.raises(np.linalg.LinAlgError):
        OPERATIONS[name].value([matrix], ())


RULES = [
    dx.expm(3 * A.T),
    along(dx.expm(2 * A.T), E.T),
    along(along(dx.logm(B.T), 2 * E.T), B.T),
    along(along(dx.expm(A), E), A),
    along(dx.expm(A), dx.eye(n)),
    along(dx.logm(B), dx.eye(n)),
    along(dx.sinm(A), dx.eye(n)),
    along(dx.cosm(A), dx.eye(n)),
    along(dx.tanhm(A), dx.eye(n)),
    along(dx.expm(2 * A.T), A.T @ A.T),
    along(dx.logm(B), B @ dx.sqrtm(B) + dx.inv(B)),
    along(dx.expm(C @ C), 2 * C - C @ C @ C),
    along(dx.sqrtm(B), B @ B),
    along(dx.sqrtm(C @ C), dx.cosm(C) + 2 * dx.eye(n)),
    dx.sqrtm(B.T),
    dx.solve_sylvester(B, B, dx.eye(n)),
    dx.solve_sylvester(B, B, B),
]


@pytest.mark.parametrize("before", RULES, ids=str)
def test_rules_change_no_value(before: dx.Array) -> None:
    """Each rule of the records, on functions where it applies."""
    after = simplify([before.node])[0]
    assert after is not before.node
    values = {"A": matrices(3)["general"], "C": matrices(3)["symmetric"]}
    values["B"] = matrices(3)["definite"] + np.eye(3, k=1)
    values["E"] = np.random.default_rng(1).normal(size=(3, 3))
    wanted = evaluate(before.node, values, {"n": 3})
    close(evaluate(after, values, {"n": 3}), wanted, 1e-11)
