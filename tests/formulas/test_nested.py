"""Formulas of nested expressions, of every kind and in every style, against the interpreter."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy
import scipy.special

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import evaluate as size_of
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf, leaves
from tests.trees import formula_value

n, m, k = dx.dims("n m k")
SIZES = {"n": 3, "m": 2, "k": 4, "batch": 2}
A, B, P = dx.matrix("A", n, m), dx.matrix("B", m, n), dx.matrix("P", n, m)
C, M, x = dx.matrix("C", m, k), dx.matrix("M", n, n), dx.vector("x", n)
xs = dx.vector("u", n)

NESTED: dict[str, Callable[[], Array]] = {
    "transposed base": lambda: (A.T**2 + 1) ** B,
    "transposed exponent": lambda: (A**2 + 1) ** (B.T - 2),
    "both": lambda: ((A.T**2 + 1) ** (B - P.T)).T @ B[:, :2],
    "exponent of a sum": lambda: dx.sum((1 + A.T**2) ** (B + dx.sin(B)), axis=0),
    "power of a power": lambda: (((A**2 + 1) ** P) ** B.T) ** -2,
    "quotients": lambda: (A / (1 + P**2)).T / (2 + B**2) ** 1.5,
    "where": lambda: dx.where(A.T > B, P.T, dx.maximum(B, 0.1 * A.T)).T @ C,
    "maxima": lambda: dx.maximum(A, dx.minimum(B.T, P)).T * B,
    "xlogy": lambda: dx.xlogy(A.T, (B**2 + 1)).T @ C,
    "einsum": lambda: dx.einsum("ij,jk->ki", dx.softmax(A, -1), dx.tanh(C)),
    "softmax": lambda: dx.softmax((A.T * x) ** 2, 0) @ M,
    "slices": lambda: (A[1:, :].T ** 2 + 1) ** B[:, 1:] * P[:-1].T,
    "downward": lambda: (M[::-1][:m].T * A)[:, ::-1],
    "divided differences": lambda: dx.trace(dx.expm(M.T / 4) @ A @ B),
    "inverses": lambda: (dx.inv(M + 4 * dx.eye(n)).T @ A).T ** 2,
    "one term": lambda: dx.sum(-2 * (A.T + 0 * B)) * dx.std(P.T),
    "scalars": lambda: (dx.sum(A * B.T) ** 2 + 1) ** -0.5 * (A @ B).T,
    "norms": lambda: dx.norm((A.T**2 + 1) ** B),
    "deviation": lambda: dx.std(dx.xlogy(A**2 + 1, B.T**2 + 1) @ C) * dx.cosh(x)[-1],
    "batch": lambda: ((xs**2 + 1) ** x) @ M.T,
}


def declared(name: str) -> Function:
    expression = NESTED[name]()
    inputs = [leaf for leaf in leaves([expression.node]) if isinstance(leaf, Leaf)]
    given = [array for array in (A, B, P, C, M, x, xs) if array.node in inputs]
    batch = [xs] if name == "batch" else []
    return dx.function("f", given, expression, batch=batch)


def drawn(leaf: Leaf) -> np.ndarray:
    generator = np.random.default_rng(sum(map(ord, leaf.name)))
    return generator.normal(size=[int(size_of(size, SIZES)) for size in leaf.shape])


@pytest.mark.parametrize("name", NESTED)
def test_nested_formulas(name: str) -> None:
    function = declared(name)
    derivatives = function.derivatives
    for kind in derivatives.kinds:
        arguments, results = derivatives.kernel(kind)
        values = {leaf.name: drawn(leaf) for leaf in arguments}
        for key, node in results.items() if kind != "value_and_gradient" else ():
            expected = evaluate(node, values, SIZES)
            wrt = key if len(key) == 2 else (key or (None,))[0]
            text = function.formula(kind, wrt=wrt, style="numpy")
            actual = eval(text, {"np": np, "scipy": scipy, **values})
            assert np.shape(actual) == expected.shape, text
            np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9, err_msg=text)
            for by_index in (False, True):
                whole = formula_value(node, values, SIZES, by_index)
                whole = np.broadcast_to(whole, expected.shape)
                np.testing.assert_allclose(whole, expected, rtol=1e-7, atol=1e-9)


def test_a_transposed_power_transposes_its_exponent() -> None:
    function = declared("transposed base")
    texts = {
        "unicode": "2 Ȳᵀ ⊙ A ⊙ (1 + A∘²)^∘(Bᵀ − 1) ⊙ Bᵀ",
        "numpy": "2 * cotangent.T * A * (1 + A**2)**(B.T - 1) * B.T",
        "index": "2 A[i,j] Ȳ[j,i] B[j,i] (1 + A[i,j]²)^(B[j,i] − 1)",
    }
    for style, text in texts.items():
        assert function.formula("vjp", wrt="A", style=style) == text


@pytest.mark.parametrize("size", [2, 3])
def test_a_downward_slice_may_end_at_the_first_entry(size: int) -> None:
    """M[n-1 : n-1-m : -1] is empty in NumPy where m = n."""
    array = np.arange(9.0).reshape(3, 3)
    function = dx.function("f", [M, C], M[::-1][:m] * dx.sum(C))
    text = function.formula("value", style="numpy")
    scope = {"np": np, "scipy": scipy, "M": array, "C": np.ones((size, 4))}
    np.testing.assert_array_equal(eval(text, scope), 4 * size * array[::-1][:size])
