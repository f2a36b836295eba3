"""Derivatives as expressions: against each other, the kinds of functions, and differences."""

from typing import Any

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate, evaluate_all
from derivatrix.compiler.ir.nodes import Structural, is_zero, topological
from tests.differentiate.test_random import declared
from tests.plain import check_plain
from tests.points import draw_all, within
from tests.strategies import LEAVES, REGISTRY, arity, leaf_values

n, m, h, c = dx.dims("n m h c")
x, v, b = dx.vector("x", n), dx.vector("v", h), dx.vector("b", h)
A, W = dx.matrix("A", n, n), dx.matrix("W", h, n)
S = dx.matrix("S", n, n, "spd")
SIZES = {"n": 3, "m": 5, "h": 4, "c": 2, "batch": 2}
network = v @ dx.tanh(W @ x + b)


def close(actual: Any, expected: Any) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("rule", REGISTRY, ids=lambda rule: f"{rule.operation.name}{rule.output}")
def test_every_operation_of_the_registry(rule: Any) -> None:
    """The gradient in another expression is differentiated again, and second derivatives agree."""
    result = rule(*(Array(LEAVES[name]) for name in "MHLO"[: arity(rule)]))
    expr = dx.sum(dx.tanh(result) * Array(LEAVES["w" if result.ndim else "s"]))
    M = Array(LEAVES["M"])
    gradient = dx.grad(expr, M)
    if is_zero(gradient.node):
        assert is_zero(dx.hessian_diagonal(expr, M).node) and is_zero(dx.laplacian(expr, M).node)
        return
    expressions = [
        gradient,
        dx.hessian(expr, M),
        dx.grad(dx.sum(gradient**2), M),
        dx.hvp(expr, M, 2 * gradient),
        dx.jvp(gradient, {M: 2 * gradient}),
        dx.vjp(gradient, M, 2 * gradient),
        dx.hessian_diagonal(expr, M),
        dx.laplacian(expr, M),
        dx.divergence(gradient, M),
    ]
    fn = declared(expr)
    nodes = [fn.derivatives.results("gradient")["M",], *(e.node for e in expressions)]
    expected, gradient_value, hessian, *products, diagonal, laplacian, divergence = evaluate_all(
        nodes, leaf_values(3), {}
    )
    close(gradient_value, expected)
    for product in products:
        close(product, 2 * np.tensordot(hessian, gradient_value))
    close(diagonal, np.einsum("ijij->ij", hessian))
    close(laplacian, diagonal.sum())
    close(divergence, diagonal.sum())


@pytest.mark.parametrize("structure", ["spd", "symmetric", "lower", "diagonal", "orthogonal"])
def test_derivatives_by_structured_matrices(structure: str) -> None:
    """They are those of the kinds of functions, projected, for tangents of any structure."""
    X, V = dx.matrix("X", n, n, structure), dx.matrix("V", n, n)
    expr = dx.trace(dx.exp(A @ X) @ X) + dx.trace(X @ X @ X)
    fn = dx.function("f", [A, X], expr, wrt=[X])
    values = draw_all(fn, 1, SIZES)
    values["V"] = np.random.default_rng(2).normal(size=(3, 3))
    within_structure = {**values, "tangent": within(X.node, values["X"], values["V"])}
    hessian = fn.derivatives.results("hessian")["X", "X"]
    second = evaluate(hessian, values, SIZES)
    expected = {
        dx.grad(expr, X): evaluate(fn.derivatives.results("gradient")["X",], values, SIZES),
        dx.hessian(expr, X): second,
        dx.hvp(expr, X, V): evaluate(fn.derivatives.results("hvp")["X",], within_structure, SIZES),
        dx.jvp(expr, {X: V}): evaluate(fn.derivatives.results("jvp")[()], within_structure, SIZES),
        dx.hessian_diagonal(expr, X): np.einsum("ijij->ij", second),
        dx.laplacian(expr, X): np.einsum("ijij->", second),
    }
    for derivative, value in expected.items():
        close(evaluate(derivative.node, values, SIZES), value)


def test_shapes_and_formulas() -> None:
    """Output axes come first, then input axes."""
    assert dx.jacobian(A @ x, A).shape == (n, n, n)
    assert dx.jacobian(A @ A, A).shape == dx.hessian(dx.trace(A @ A), A).shape == (n, n, n, n)
    texts = {
        dx.grad(x @ A @ x, x): "A x + Aᵀ x",
        dx.jacobian(x @ A @ x, x): "A x + Aᵀ x",
        dx.hessian(x @ A @ x, "x"): "A + Aᵀ",
        dx.hvp(x @ A @ x, x, A @ x): "A² x + Aᵀ A x",
        dx.jvp(A @ x, {A: A.T, x: x}): "A x + Aᵀ x",
        dx.vjp(A @ x, A, x): "x xᵀ",
        dx.hessian_diagonal(dx.logdet(A), A): "−(A⁻ᵀ)∘²",
        dx.laplacian(dx.norm(x), x): "n/‖x‖ − xᵀ x / ‖x‖³",
        dx.divergence(A @ dx.tanh(x), x): "(1 − tanh(x)∘²)ᵀ diagonal(A)",
        x - dx.solve(dx.hessian(dx.logsumexp(A @ x), x), dx.grad(dx.logsumexp(A @ x), x)): (
            "x − (Aᵀ diag(p) (A − 𝟏 pᵀ A))⁻¹ Aᵀ p  where p = softmax(A x)"
        ),
    }
    for derivative, text in texts.items():
        assert declared(derivative).formula("value") == text


def test_symbols_of_sympy() -> None:
    M = sympy.MatrixSymbol("M", 3, 3)
    for expr, symbol in [
        (sympy.Trace(M * M), M),
        (sympy.Trace(M * M), dx.matrix("M", 3, 3)),
        (dx.trace(dx.matrix("M", 3, 3) @ M), M),
    ]:
        assert dx.function("f", [M], dx.grad(expr, symbol)).formula("value") == "2 Mᵀ"


def test_gradients_of_where_leave_the_other_branch_out() -> None:
    log = dx.sum(dx.where(x > 0, dx.log(x), 0))
    values = {"x": np.array([2.0, 0.0, -1.0])}
    with np.errstate(divide="ignore"):
        close(evaluate(dx.grad(log, x).node, values, {"n": 3}), [0.5, 0, 0])
        close(evaluate(dx.hessian_diagonal(log, x).node, values, {"n": 3}), [-0.25, 0, 0])


def test_roots_to_powers_that_vary() -> None:
    gradient = dx.grad(dx.sum(dx.hypot(x, 1) ** x), x)
    at = np.array([0.5, -1.5, 2.0])
    root = np.hypot(at, 1)
    expected = root**at * (np.log(root) + at**2 / root**2)
    close(evaluate(gradient.node, {"x": at}, SIZES), expected)


def test_derivatives_of_samples() -> None:
    """An expression is that of one sample, whatever is in it."""
    penalty = dx.function("penalty", [W, b, v, x], dx.sum(dx.grad(network, x) ** 2), batch=[x])
    values = draw_all(penalty, 0, SIZES)
    batched = penalty.derivatives.batched("gradient")["W",]
    single = penalty.derivatives.results("gradient")["W",]
    rows = [evaluate(single, {**values, "x": row}, SIZES) for row in values["x"]]
    close(evaluate(batched, values, SIZES), rows)


def test_derivatives_of_roots() -> None:
    """Compare with the implicit function theorem, twice."""
    y = dx.vector("y", n)
    root = dx.root(y - dx.tanh(A @ y + x) / 2, y, dx.zeros(n))
    slopes = 1 - dx.tanh(A @ root + x) ** 2
    by_hand = dx.solve(2 * dx.eye(n) - slopes[:, None] * A, dx.diag(slopes))
    values = {"A": np.random.default_rng(0).normal(size=(3, 3)) / 3, "x": np.array([0.3, 0, -1.0])}
    close(*(evaluate(e.node, values, SIZES) for e in (dx.jacobian(root, x), by_hand)))
    expr = dx.sum(root**2)
    pair = dx.hessian_diagonal(expr, x), dx.diagonal(dx.jacobian(dx.grad(expr, x), x))
    close(*(evaluate(e.node, values, SIZES) for e in pair))


X, w, y, C = dx.matrix("X", m, n), dx.vector("w", n), dx.vector("y", m), dx.matrix("C", n, c)
LINEAR = {
    "log-sum-exp": (dx.logsumexp(X), X),
    "softmax": (dx.sum(dx.logsumexp(X @ C, axis=1)), C),
    "logistic": (dx.sum(dx.log(1 + dx.exp(-y * (X @ w)))), w),
    "poisson": (dx.sum(dx.exp(X @ w) - y * (X @ w)), w),
    "network": (network, x),
}


@pytest.mark.parametrize("name", LINEAR)
def test_no_array_is_larger_than_the_inputs(name: str) -> None:
    """The diagonal and the trace of the Hessian are derived without it, and so are kernels."""
    expr, symbol = LINEAR[name]
    for derivative in (dx.hessian_diagonal(expr, symbol), dx.laplacian(expr, symbol)):
        fn = declared(derivative)
        for kind in ("value", "vjp"):
            for node in topological(fn.derivatives.kernel(kind)[1].values()):
                assert node.ndim <= 2 or isinstance(node, Structural)
            check_plain(fn, kind, SIZES)


def test_a_compiled_gradient_penalty() -> None:
    penalty = dx.function(
        "penalty",
        [W, b, v, x],
        dx.sum(dx.grad(network, x) ** 2) + dx.laplacian(network, x),
        wrt=[W],
        kinds=["gradient"],
    )
    values = draw_all(penalty, 0, SIZES)
    gradient = dx.compile(penalty).gradient(*(values[leaf.name] for leaf in penalty.inputs))
    step, direction = 1e-5, np.random.default_rng(1).normal(size=(4, 3))

    def at(distance: float) -> Any:
        moved = {**values, "W": values["W"] + distance * direction}
        return evaluate(penalty.expression, moved, SIZES)

    slope = (at(step) - at(-step)) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-8)


B = dx.matrix("B", n, m)
REFUSED = {
    "ShapeError: grad: expr is a scalar, not of shape (n,); the derivative of an array is its "
    "jacobian": lambda: dx.grad(x, x),
    "ShapeError: laplacian: expr is a scalar, not of shape (n, n); the derivative of an array is "
    "its jacobian": lambda: dx.laplacian(A, A),
    "DeclarationError: jacobian: the expression has no symbol A (n, n) to differentiate by; its "
    "symbols: x (n,)": lambda: dx.jacobian(x, A),
    "DeclarationError: hessian: the expression has no symbol x (m,) to differentiate by; its "
    "symbols: x (n,), S (n, n) spd": lambda: dx.hessian(x @ S @ x, dx.vector("x", m)),
    "DeclarationError: grad: the expression has no symbol (A x) to differentiate by; its symbols: "
    "A (n, n), x (n,)": lambda: dx.grad(dx.sum(A @ x), A @ x),
    "DeclarationError: grad: the expression has no symbol 'z' to differentiate by; its symbols: "
    "none": lambda: dx.grad(2, "z"),
    "UnsupportedError: grad: the symbol to differentiate by: None of type NoneType is not an array "
    "expression; expected a derivatrix array, a number, a NumPy array or a SymPy expression": (
        lambda: dx.grad(x @ x, None)
    ),
    "UnsupportedError: hvp: expr: 'x' of type str is not an array expression; expected a "
    "derivatrix array, a number, a NumPy array or a SymPy expression": lambda: dx.hvp("x", x, x),
    "DeclarationError: jvp: tangents is a dict {X: V}, not {}": lambda: dx.jvp(x, {}),
    "ShapeError: jvp: the tangent of x has shape (n, n), expected (n,)": lambda: dx.jvp(x, {x: A}),
    "DeclarationError: jvp: two tangents of one symbol, of x, x": lambda: dx.jvp(x, {x: x, "x": x}),
    "ShapeError: vjp: G has shape (), expected (n,)": lambda: dx.vjp(x, x, 1),
    "ShapeError: hvp: V has shape (n, m), expected (n,)": lambda: dx.hvp(x @ x, x, B),
    "ShapeError: divergence: expr has shape (), expected (n,)": lambda: dx.divergence(x @ x, x),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_derivative_is_refused(message: str) -> None:
    with pytest.raises(dx.DerivatrixError) as raised:
        REFUSED[message]()
    assert f"{type(raised.value).__name__}: {raised.value}" == message
