"""Declared functions in other declarations, against their values at the arguments."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import symbol
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf
from tests.cases import CASES, EVALUATED
from tests.points import SIZES, along, draw_all
from tests.strategies import LEAVES, REGISTRY, arity, leaf_values

NEXT_SIZE = {symbol("n"): symbol("m"), symbol("m"): symbol("c"), symbol("c"): symbol("n")}
OUTER_SIZES = {new.name: SIZES[old.name] for old, new in NEXT_SIZE.items()} | {"batch": 5}

n, m, p = dx.dims("n m p")
A, x, y = dx.matrix("A", n, n), dx.vector("x", n), dx.vector("y", m)
S, s = dx.matrix("S", n, n, "spd"), dx.scalar("s", "positive")
square = dx.function("square", [A], A @ A)
volume = dx.function("volume", [S, s], dx.logdet(S) + dx.log(s))
halves = dx.function("halves", [dx.vector("z", 2 * n)], dx.vector("z", 2 * n)[:n])
Q = dx.matrix("Q", n, n, "orthogonal")
turned = dx.function("turned", [Q], Q @ Q.T @ Q)
layer = dx.function("layer", [A, x], dx.tanh(A @ x), batch=[x])
fixed = dx.function("fixed", [A, y], dx.root(x - dx.tanh(A @ x + y[0]), x, dx.zeros(n)))


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def exchanged(fn: Function) -> dict[str, Leaf]:
    """An input for each one of the function: with the name of the next, and other sizes."""
    names = [leaf.name for leaf in fn.inputs]
    shapes = [tuple(size.xreplace(NEXT_SIZE) for size in leaf.shape) for leaf in fn.inputs]
    return {
        leaf.name: Leaf(name, shape, leaf.structure)
        for leaf, name, shape in zip(fn.inputs, names[1:] + names[:1], shapes, strict=True)
    }


@pytest.mark.parametrize("fn", CASES + EVALUATED, ids=lambda fn: fn.name)
def test_names_and_sizes_are_those_of_the_arguments(fn: Function) -> None:
    outer = exchanged(fn)
    inputs = [*map(Array, outer.values())]
    called = dx.function("called", inputs, fn(*inputs), wrt=[outer[name].name for name in fn.wrt])
    values = draw_all(fn)
    for name in fn.batch and (*fn.batch, "cotangent"):
        values[name] = values[name][0]
    outer_values = {outer[key].name: a for key, a in values.items() if key in outer}
    outer_values["cotangent"] = values["cotangent"]
    for kind in ("value", "vjp"):
        results = called.derivatives.results(kind)
        for key, node in fn.derivatives.results(kind).items():
            actual = results[tuple(outer[name].name for name in key)]
            close(evaluate(actual, outer_values, OUTER_SIZES), evaluate(node, values, SIZES))


@pytest.mark.parametrize("rule", REGISTRY, ids=lambda rule: f"{rule.operation.name}{rule.output}")
def test_every_operation_of_the_registry(rule: Any) -> None:
    """Arguments have the structures of the inputs by construction."""
    inputs = [Array(LEAVES[name]) for name in "MHLO"[: arity(rule)]]
    fn = dx.function("rule", inputs, rule(*inputs))
    M, H, L, orthogonal = (Array(LEAVES[name]) for name in "MHLO")
    arguments = dict(zip("MHLO", (M + H @ L, 2 * H + M @ M.T, L @ L, orthogonal.T), strict=True))
    values = leaf_values(3)
    inner = {name: evaluate(a.node, values, {}) for name, a in arguments.items()}
    result = fn(*(arguments[leaf.name] for leaf in fn.inputs))
    close(evaluate(result.node, values, {}), evaluate(fn.expression, inner, {}))


def test_a_call_is_printed_as_what_it_stands_for() -> None:
    B = dx.matrix("B", p, p)
    outer = dx.function("outer", [B], square(square(B) + B))
    assert outer.formula("value") == "(B + B²)²"
    assert outer.formula("jvp") == "(B + B²) T₁ + T₁ (B + B²)  where T₁ = Ḃ + Ḃ B + B Ḃ"
    assert repr(square(A=B)) == "Array(B², shape=(p, p))"
    M = sympy.MatrixSymbol("M", 3, 3)
    assert dx.function("shifted", [M], square(M) + M).formula("vjp") == "Ȳ + Ȳ Mᵀ + Mᵀ Ȳ"
    assert square(square.derivative("A")(B)[:, 0, :, 0]).shape == (p, p)


def test_samples() -> None:
    """An argument may have leading axes where the input has batch axes."""
    values = {"A": np.eye(3) / 2 + 0.1, "xs": np.arange(12.0).reshape(4, 3) / 9}
    sizes = {"n": 3, "m": 4}
    expected = np.tanh(values["xs"] @ values["A"].T)
    xs = dx.matrix("xs", m, n)
    close(evaluate(layer(A, xs).node, values, sizes), expected)
    assert layer(A, xs).shape == (m, n) and layer(A, xs[0]).shape == (n,)
    constant = dx.function("line", [A, x], A @ x, batch=[x]).derivative("x")
    assert constant(A, xs).shape == (m, n, n)


def test_several_batch_axes() -> None:
    """Batch axes of arguments broadcast against each other."""
    scaled = dx.function("scaled", [A, x, s], s * (A @ x), batch=[A, x, s])
    matrices, vectors = dx.tensor("As", p, 1, n, n), dx.tensor("xs", 1, m, n)
    result = scaled(matrices, vectors, s)
    assert result.shape == (p, m, n)
    random, sizes = np.random.default_rng(0), {"n": 3, "m": 4, "p": 2}
    values = {
        "As": random.normal(size=(2, 1, 3, 3)),
        "xs": random.normal(size=(1, 4, 3)),
        "s": np.array(2.0),
    }
    expected = 2 * np.einsum("pij,mj->pmi", values["As"][:, 0], values["xs"][0])
    close(evaluate(result.node, values, sizes), expected)
    gradient = dx.grad(dx.sum(result), matrices)
    by_matrices = np.broadcast_to(2 * values["xs"][0].sum(0), (2, 1, 3, 3))
    close(evaluate(gradient.node, values, sizes), by_matrices)


def test_formulas_of_roots_have_the_arguments() -> None:
    """An unknown with the name of a symbol in an argument is renamed."""
    B, k = dx.matrix("B", p, p), dx.vector("k", 2)
    inner = dx.function("inner", [B, k], fixed(B / 2, 3 * k))
    assert inner.formula("value") == "root(x − tanh(½ B x + 3 k[0]))"
    C, z = dx.matrix("x", m, m), dx.vector("z", n)
    outer = dx.function("outer", [C, z], inner(C.T, z[:2]))
    assert outer.formula("value") == "root(x₁ − tanh(3 z[0] + ½ xᵀ x₁))"
    u = dx.vector("u", n)
    nested = dx.function("nested", [A, y], dx.root(u - fixed(A, y) * u**3 - 1, u, dx.ones(n)))
    text = "root(u − 1 − root(x − tanh(2 A x + exp(y)[0])) ⊙ u∘³)"
    assert repr(nested(2 * A, dx.exp(y))) == f"Array({text}, shape=(n,))"


def test_texts_of_roots_have_names_of_their_own() -> None:
    """Inputs and sizes of the outer function have names of those of the inner one."""
    B, k, z = dx.matrix("x", p, p), dx.vector("n", 4), dx.vector("y", p)
    outer = dx.function("outer", [B, k, z], dx.sum(fixed(B / 4, k) * z))
    values = draw_all(outer, 0, {"p": 3})
    text = outer.formula("value", style="numpy")
    expected = evaluate(outer.expression, values, {"p": 3})
    close(eval(text, {"np": np, "scipy": scipy, **values}), expected)


REFUSED = [
    (lambda: square(dx.matrix("B", m, n)), "has shape (m, n), expected (n, n) with n = m, by A"),
    (lambda: square(2), "has shape (), expected (n, n)"),
    (lambda: layer(dx.matrix("B", p, p), y), "has shape (m,), expected (n,) with n = p, by A"),
    (lambda: layer(A, dx.tensor("T", m, p, p)), "has shape (m, p, p), expected (m, p, n)"),
    (lambda: halves(y), "has shape (m,), expected (2*n,) with n = floor(m/2), by z"),
    (lambda: halves(dx.vector("z", 5)), "has shape (5,), expected (2*n,) with n = 2, by z"),
    (lambda: square(), "square(A): missing a required argument: 'A'"),
    (lambda: square(A, A), "square(A): too many positional arguments"),
    (lambda: layer(A, x=x, w=x), "layer(A, x): there is no input w"),
    (lambda: layer(A, w=x), "layer(A, x): there is no input w"),
    (lambda: square(A, A=A), "square(A): multiple values for argument 'A'"),
    (lambda: turned(A), 'A is not known to be; where it is, write assume(A, "orthogonal")'),
    (lambda: volume(np.array([[1, 2], [2, 1]]), s), "S is spd, and [[1, 2], [2, 1]] is not"),
    (lambda: volume(S, -1), "volume: s is positive, and −1 is not"),
    (lambda: square("A"), "square: A: 'A' of type str is not an array expression"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    is_shape = message.startswith("has shape")
    error = dx.ShapeError if is_shape else (dx.DeclarationError, dx.UnsupportedError)
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)
    assert not is_shape or re.match(r"\w+: the argument for [Axz] ", str(raised.value))


def test_the_axis_of_samples_is_shown() -> None:
    message = re.escape("layer: the argument for x has shape (p, m), expected (p, n)")
    with pytest.raises(dx.ShapeError, match=message):
        layer(A, dx.matrix("X", p, m))


def test_batch_axes_do_not_broadcast() -> None:
    both = dx.function("both", [A, x], A @ x, batch=[A, x])
    message = "both: the batch axes do not broadcast: A has (m,), x has (p,)"
    with pytest.raises(dx.ShapeError, match=re.escape(message)):
        both(dx.tensor("As", m, n, n), dx.matrix("xs", p, n))


def test_structures_that_are_known() -> None:
    """A @ A.T + I is definite by construction, numbers by their values, others by `assume`."""
    values, sizes = {"A": np.diag([1.0, 2.0])}, {"n": 2}
    assert turned(dx.assume(A, "orthogonal")).shape == (n, n)
    definite = volume(A @ A.T + dx.eye(n), dx.exp(A[0, 0]))
    close(evaluate(definite.node, values, sizes), np.log(2 * 5) + 1)
    close(evaluate(volume(np.diag([2.0, 3.0]), 1).node, {}, {}), np.log(6))
    close(evaluate(volume(dx.assume(A, "spd"), 1).node, values, sizes), np.log(2))


@pytest.mark.parametrize("structure", ["symmetric", "spd", "lower", "upper", "diagonal"])
def test_a_full_matrix_means_the_nearest_of_the_structure(structure: str) -> None:
    P = dx.matrix("P", p, p, structure)
    fn = dx.function("f", [P], dx.exp(P))
    called = dx.function("called", [A], fn(A))
    values = draw_all(called, 0, {"n": 3})
    nearest = along(P.node, values["A"])
    close(evaluate(called.expression, values, {"n": 3}), np.exp(nearest))
    gradient = evaluate(called.derivatives.results("vjp")["A",], values, {"n": 3})
    close(gradient, along(P.node, np.exp(nearest) * values["cotangent"]))
