"""Formula texts: what they say, and that the NumPy ones evaluate to the node's array."""

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy
import scipy.linalg
import scipy.special
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler import formulas
from derivatrix.compiler.formulas import STYLES, factoring, render, render_equation
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.printers.base import PRIMARY
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir import arrays, dimensions, scalar_functions
from derivatrix.compiler.ir.arrays import Array, apply, elementwise
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import (
    Apply,
    Constant,
    Delta,
    Leaf,
    Map,
    Node,
    Slice,
    Sum,
    Triangle,
    einsum,
    full,
    leaves,
    slot,
    topological,
    zeros,
)
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.compiler.operations.sylvester import SYLVESTER
from derivatrix.runtime.errors import UnsupportedError
from tests import ROOT
from tests.cases import CASES
from tests.points import draw_all
from tests.trees import check_text, formula_value, text_of

n, m, batch = dimensions.dims("n m batch")
SIZES = {"n": 3, "m": 2, "q": 2, "batch": 4}


def leaf(name, *shape, structure="general", role="input"):
    sizes = tuple(sympy.sympify(size) for size in shape)
    return Array(Leaf(name, sizes, structure, role))


X = leaf("X", n, n)
A = leaf("A", m, n)
B = leaf("B", n, n)
S = leaf("S", n, n, structure="spd")
x = leaf("x", n)
y = leaf("y", n)
s = leaf("s")
bar = leaf("cotangent", n, n, role="cotangent")


def inv(array):
    return apply(INVERSE, array)


def delta(size, labels):
    return (Delta(size), labels)


def values_of(node, seed=0):
    """Random arrays for the leaves below `node`."""
    rng = np.random.default_rng(seed)
    values = {}
    for part in leaves([node]):
        shape = tuple(int(dimensions.evaluate(size, SIZES)) for size in part.shape)
        value = rng.normal(size=shape)
        values[part.name] = (
            value @ value.T + np.eye(len(value)) if part.structure == "spd" else value
        )
    return values


def evaluated(text, values, sizes=SIZES):
    scope = {"np": np, "scipy": scipy, **values, **sizes}
    with np.errstate(all="ignore"):
        return np.asarray(eval(text, scope))


def check(node, seed=0):
    """The NumPy text evaluates to the array of the right shape."""
    values = values_of(node, seed)
    with np.errstate(all="ignore"):
        expected = evaluate(node, values, SIZES)
    text = render(node, "numpy")
    result = evaluated(text, values)
    assert result.shape == expected.shape, text
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-8 * size)


p = leaf("p", n)
TEXTS = [
    (X @ X, "X²", "X @ X"),
    (bar @ X.T + X.T @ bar, "Ȳ Xᵀ + Xᵀ Ȳ", "cotangent @ X.T + X.T @ cotangent"),
    (X.T @ bar + bar @ X.T, "Ȳ Xᵀ + Xᵀ Ȳ", "cotangent @ X.T + X.T @ cotangent"),
    (2 * (X @ X @ X.T) + 2 * (X.T @ X @ X), "2 X² Xᵀ + 2 Xᵀ X²", None),
    (3 * (X @ X).T, "3 (Xᵀ)²", "3 * X.T @ X.T"),
    (B @ x + B.T @ x, "B x + Bᵀ x", "B @ x + B.T @ x"),
    (x @ B @ x, "xᵀ B x", "x @ B @ x"),
    ((x @ B @ x) / (x @ x), "xᵀ B x / (xᵀ x)", "(x @ B @ x) / (x @ x)"),
    (inv(S) - inv(S) @ B @ inv(S), "S⁻¹ − S⁻¹ B S⁻¹", None),
    (-inv(X).T @ bar @ inv(X).T, "−X⁻ᵀ Ȳ X⁻ᵀ", None),
    (inv(S).T @ x, "S⁻¹ x", "np.linalg.solve(S, x)"),
    (Array(einsum([(p.node, "i"), delta(n, "ij")], "ij")), "diag(p)", "np.diag(p)"),
    (
        Array(einsum([(p.node, "i"), delta(n, "ij")], "ij"))
        - Array(einsum([(p.node, "i"), (p.node, "j")], "ij")),
        "diag(p) − p pᵀ",
        "np.diag(p) - np.outer(p, p)",
    ),
    ((X @ X @ X).trace(), "tr(X³)", None),
    ((X.T @ B).trace(), "tr(Bᵀ X)", None),
    (arrays.multiply(X, X).sum(), "‖X‖_F²", "np.sum(X**2)"),
    (elementwise(sympy.sqrt(slot(0)), x @ x), "‖x‖", "np.linalg.norm(x)"),
    (x / elementwise(sympy.sqrt(slot(0)), x @ x), "x/‖x‖", "x / np.linalg.norm(x)"),
    (A.sum(axis=1), "A 𝟏", "np.sum(A, axis=1)"),
    (A.sum(axis=0), "Aᵀ 𝟏", "np.sum(A, axis=0)"),
    (A.sum(), "sum(A)", "np.sum(A)"),
    (X * x[:, None], "diag(x) X", "x[:, None] * X"),
    (X * x, "X diag(x)", "X * x"),
    (Array(einsum([(x.node, "i"), (A.node, "ji")], "i")), "x ⊙ (Aᵀ 𝟏)", None),
    (arrays.multiply((X * x[:, None]), S.T).sum(axis=1), "(S ⊙ (diag(x) X)) 𝟏", None),
    ((x[:, None] * inv(X)) @ y, "diag(x) X⁻¹ y", "x * np.linalg.solve(X, y)"),
    ((x[:, None] * X).sum(axis=1), "diag(x) X 𝟏", "x * np.sum(X, axis=1)"),
    (X + s, "X + s", "X + s"),
    (X + x, "X + 𝟏 xᵀ", "X + x"),
    (X / Array(full(n)), "X/n", "X / n"),
    (X[1:, :2], "X[1:, :2]", "X[1:, :2]"),
    (X[0, 1], "X[0,1]", "X[0, 1]"),
    (X[:, 0], "X[:, 0]", "X[:, 0]"),
    (x[::-1], "x[::−1]", "x[::-1]"),
    (bar * elementwise(1 - sympy.tanh(slot(0)) ** 2, X), "Ȳ ⊙ (1 − tanh(X)∘²)", None),
    (X / B, "X ⊘ B", "X / B"),
    (Array(full(sympy.Rational(1, 2))) * x, "½ x", "x / 2"),
    (Array(zeros((n, n))), "0", "np.zeros((n, n))"),
    (Array(full(sympy.Integer(2), (n,))), "2 𝟏", "np.full((n,), 2.0)"),
    (Array(Delta(n)), "I", "np.eye(n)"),
    (X + s * Array(Delta(n)), "X + s I", "X + s * np.eye(n)"),
    (elementwise(sympy.Max(slot(0), 0), x), "max(0, x)", None),
    (elementwise(sympy.Piecewise((1, slot(0) > 0), (0, True)), x), "[x > 0]", None),
]


@pytest.mark.parametrize("array, unicode, numpy", TEXTS, ids=[text for _, text, _ in TEXTS])
def test_texts(array, unicode, numpy):
    assert render(array.node, "unicode") == unicode
    if numpy is not None:
        assert render(array.node, "numpy") == numpy
    check(array.node)


jacobian = einsum([delta(n, "ik"), (X.node, "lj")], "ijkl")
jacobian = Sum((jacobian, einsum([(X.node, "ik"), delta(n, "jl")], "ijkl")), (n, n, n, n))
W = leaf("W", m, n)
xs = leaf("x", batch, n)
ys = leaf("cotangent", batch, m, role="cotangent")
batched = apply(SOFTMAX, xs @ W.T)
quadratic = Array(einsum([(B.node, "ij"), (y.node, "j"), (x.node, "i")], ""))
pulled = Array(einsum([(ys.node, "bi"), (xs.node, "bj")], "ij"))


def formula(text, dims, kind, by=None):
    inputs = ", ".join(f"{name}: {sizes}" for name, sizes in dims.items())
    return text_function(text, inputs, [by or next(iter(dims))]).formula(kind)


SQUARE = {"X": "n n", "A": "n n"}
WELL_KNOWN = [
    # Petersen and Pedersen's Matrix Cookbook, Magnus and Neudecker, matrixcalculus.org
    ("a'*X*b", {"X": "m n", "a": "m", "b": "n"}, "gradient", "a bᵀ"),
    ("A*X*B", {"X": "m n", "A": "q m", "B": "n p"}, "vjp", "Aᵀ Ȳ Bᵀ"),
    ("A*X*B", {"X": "m n", "A": "q m", "B": "n p"}, "jacobian", "A[i,k] B[l,j]"),
    ("A*exp(x)", {"x": "n", "A": "m n"}, "jacobian", "A diag(exp(x))"),
    ("sum(X)^2", {"X": "m n"}, "gradient", "2 sum(X) 𝟏 𝟏ᵀ"),
    ("exp(0.1*x'*A*x)", {"x": "n", "A": "n n"}, "gradient",
     "0.1 α (A x + Aᵀ x)  where α = exp(0.1 xᵀ A x)"),
    ("tr(X^2*A)", SQUARE, "gradient", "Aᵀ Xᵀ + Xᵀ Aᵀ"),
    ("tr(B'*X'*C*X*B)", {"X": "m n", "B": "n p", "C": "m m"}, "gradient", "(C + Cᵀ) X B Bᵀ"),
    ("tr(X^4)", {"X": "n n"}, "gradient", "4 (Xᵀ)³"),
    ("tr(inv(X'*C*X)*A)", {"X": "p k", "C": "p p spd", "A": "k k"}, "gradient",
     "−C X (Xᵀ C X)⁻¹ (A + Aᵀ) (Xᵀ C X)⁻¹"),
    ("det(X)", {"X": "n n"}, "gradient", "det(X) X⁻ᵀ"),
    ("det(X)", {"X": "n n"}, "hessian",
     "det(X) ((X⁻¹)[j,i] (X⁻¹)[l,k] − (X⁻¹)[l,i] (X⁻¹)[j,k])"),
    ("det(X'*A*X)", {"X": "p k", "A": "p p spd"}, "gradient",
     "2 det(Xᵀ A X) A X (Xᵀ A X)⁻¹"),
    ("logdet(eye+X*X')", {"X": "n m"}, "gradient", "2 (I + X Xᵀ)⁻¹ X"),
    ("a'*inv(X)*b", {"X": "n n", "a": "n", "b": "n"}, "gradient", "−X⁻ᵀ a bᵀ X⁻ᵀ"),
    ("a'*inv(X)*b", {"X": "n n", "a": "n", "b": "n"}, "hessian",
     "(X⁻¹)[l,i] (X⁻ᵀ a)[k] (X⁻¹ b)[j] + (X⁻ᵀ a)[i] (X⁻¹ b)[l] (X⁻¹)[j,k]"),
    ("a'*inv(S)*a", {"S": "n n spd", "a": "n"}, "gradient", "−S⁻¹ a aᵀ S⁻¹"),
    ("inv(X)", {"X": "n n"}, "vjp", "−X⁻ᵀ Ȳ X⁻ᵀ"),
    ("inv(Q)", {"Q": "n n orthogonal"}, "value", "Qᵀ"),
    ("norm2(A*x-y)", {"x": "k", "A": "p k", "y": "p"}, "gradient",
     "Aᵀ (A x − y) / ‖A x − y‖"),
    ("(x'*A*x)/(x'*x)", {"x": "n", "A": "n n"}, "gradient",
     "(A x + Aᵀ x − 2 (xᵀ A x) x / (xᵀ x)) / (xᵀ x)"),
    ("sum(log(exp(-y.*(X*w)) + ones))", {"w": "d", "X": "N d", "y": "N"}, "gradient",
     "−Xᵀ (y ⊙ sigmoid(−y ⊙ (X w)))"),
    ("sum(max(0, 1 - y.*(X*w)).^2)", {"w": "d", "X": "N d", "y": "N"}, "gradient",
     "−2 Xᵀ (y ⊙ max(0, 1 − y ⊙ (X w)))"),
    ("sum(max(0, x))", {"x": "n"}, "gradient", "[x > 0]  where [0 > 0] = ½"),
    ("sum(relu(x))", {"x": "n"}, "gradient", "[x > 0]"),
    ("softmax(x)", {"x": "n"}, "jacobian", "diag(p) − p pᵀ  where p = softmax(x)"),
    ("kron(A,X)", {"X": "n p", "A": "q m"}, "jvp", "A ⊗ Ẋ"),
    ("kron(A,X)", {"X": "n p", "A": "q m"}, "jacobian",
     "[i mod n = k] [j mod p = l] A[⌊i/n⌋,⌊j/p⌋]"),
    ("vec(A*X*B)", {"X": "m n", "A": "q m", "B": "n p"}, "vjp", "Aᵀ unvec(ȳ) Bᵀ"),
    ("vech(S)", {"S": "n n"}, "vjp", "unvech(ȳ)"),
    ("norm2([A, X]*b)^2", {"X": "m p", "A": "m n", "b": "n+p"}, "gradient",
     "2 [A, X] b b[n:]ᵀ"),
    ("sum(exp(X[0:2, 1:]))", {"X": "m n"}, "gradient", "[0, exp(X[:2, 1:]); 0, 0]"),
    ("[x; 2*x]", {"x": "n"}, "value", "[x; 2 x]"),
    ("solve(L, y)", {"L": "n n lower", "y": "n"}, "vjp", "−tril(L⁻ᵀ z̄ yᵀ L⁻ᵀ)"),
    ("expm(0.5*X)", {"X": "n n"}, "jacobian", "½ Dexpm(½ X)[e_k e_lᵀ][i,j]"),
    ("inv(X'*diag(w)*X)*X'*diag(w)*y", {"w": "p positive", "X": "p k", "y": "p"}, "vjp",
     "(X M⁻¹ z̄) ⊙ (y − X M⁻¹ Xᵀ (w ⊙ y))  where M = Xᵀ diag(w) X"),
    ("P - P*H'*inv(H*P*H'+R)*H*P", {"P": "n n", "H": "q n", "R": "q q spd"}, "vjp",
     "(I − Hᵀ M⁻ᵀ H Pᵀ) Ȳ (I − Pᵀ Hᵀ M⁻ᵀ H)  where M = R + H P Hᵀ"),
    ("normF(T - U*V')^2", {"U": "m k", "T": "m n", "V": "n k"}, "gradient",
     "−2 (T − U Vᵀ) V"),
]  # fmt: skip


@pytest.mark.parametrize(
    "text, dims, kind, expected",
    WELL_KNOWN,
    ids=[f"{kind} {text}" for text, _, kind, _ in WELL_KNOWN],
)
def test_well_known_derivatives(text, dims, kind, expected):
    assert formula(text, dims, kind) == expected


def test_greek_names():
    function = text_function(
        "theta_1'*inv(Sigma)*theta_1", "theta_1: n, Sigma: n n spd", ["theta_1"]
    )
    assert function.formula("gradient") == "2 Sigma⁻¹ theta₁"
    assert function.formula("gradient", style="latex") == r"2 \Sigma^{-1} \theta_{1}"


SMALL = {"n": 2, "m": 3, "c": 2, "k": 2, "batch": 2}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.name)
def test_formulas_for_reading_stand_for_the_derivatives(function):
    values = draw_all(function, sizes=SMALL)
    for kind in function.kinds:
        for node in function.derivatives.batched(kind).values():
            check_trees(node, values, SMALL)


def test_both_axes_of_a_product_stay_open():
    function = text_function("w'*axial(A*skew(w))", "w: 3, A: 3 3", ["w"])
    (node,) = function.derivatives.results("hessian").values()
    check_trees(node, values_of(node), SIZES)


def test_a_false_formula_is_found(forgotten, monkeypatch):
    text, dims, _, _ = WELL_KNOWN[-2]
    inputs = ", ".join(f"{name}: {sizes}" for name, sizes in dims.items())
    node = text_function(text, inputs, ["P"]).derivatives.results("vjp")[("P",)]
    values, sizes = values_of(node), SIZES
    monkeypatch.setattr(factoring, "_signed", lambda total: (-sympy.S.One, total))
    with pytest.raises(AssertionError):
        check_trees(node, values, sizes)


def test_jacobian_by_index():
    expected = "J[i,j,k,l] = δ[i,k] X[l,j] + δ[j,l] X[i,k]"
    assert render_equation(("J", PRIMARY), jacobian, "unicode") == expected
    assert render_equation(("J", PRIMARY), jacobian, "index") == expected
    text = r"J_{ijkl} = \delta_{ik} X_{lj} + \delta_{jl} X_{ik}"
    assert render_equation(("J", PRIMARY), jacobian, "latex") == text
    check(jacobian)


@pytest.mark.parametrize(
    "array, text",
    [
        (bar @ X.T + X.T @ bar, "Z[i,j] = Σ_k Ȳ[i,k] X[j,k] + Σ_k X[k,i] Ȳ[k,j]"),
        (quadratic, "Z = Σ_{i,j} x[i] B[i,j] y[j]"),
        (X[1:, 0], "Z[i] = X[i + 1,0]"),
        (inv(S) @ x, "Z[i] = Σ_j (S⁻¹)[i,j] x[j]"),
        (apply(SOFTMAX, B @ x), "Z[i] = softmax(t₁)[i]  where t₁[i] = Σ_j B[i,j] x[j]"),
        (pulled, "Z[i,j] = Σ_b ȳ[b,i] x[b,j]"),
        (elementwise(sympy.exp(slot(0)), X) * s, "Z[i,j] = s exp(X[i,j])"),
        (quadratic * quadratic, "Z = (Σ_{i,j} x[i] B[i,j] y[j])²"),
        (
            elementwise(sympy.exp(slot(0)), X @ y) @ (X @ x),
            "Z = Σ_{i,j} exp(Σ_k X[i,k] y[k]) X[i,j] x[j]",
        ),
    ],
)
def test_index_texts(array, text):
    assert render_equation(("Z", PRIMARY), array.node, "index") == text


@pytest.mark.parametrize(
    "array, text",
    [
        (bar @ X.T + X.T @ bar, r"\bar{Y} X^{\top} + X^{\top} \bar{Y}"),
        (-inv(X).T @ bar, r"-X^{-\top} \bar{Y}"),
        ((x @ B @ x) / (x @ x), r"\frac{x^{\top} B x}{x^{\top} x}"),
        (X / B, r"X \oslash B"),
        (leaf("alpha") * leaf("beta_1", n), r"\alpha \beta_{1}"),
        (leaf("weights", n) * 0.5, r"\frac{1}{2} \mathrm{weights}"),
        (elementwise(sympy.sqrt(slot(0)), x @ x), r"\left\| x \right\|"),
    ],
)
def test_latex_texts(array, text):
    assert render(array.node, "latex") == text


def test_batch_axes_carry_a_letter():
    assert render_equation(("Y", PRIMARY), batched.node, "unicode") == "Y[b] = softmax(W x[b])"
    assert render_equation(("W̄", PRIMARY), pulled.node, "unicode") == "W̄ = Σ_b ȳ[b] x[b]ᵀ"
    check(batched.node)
    check(pulled.node)


def test_names_of_cotangents_and_tangents():
    tangent = leaf("tangent_A", m, n, role="tangent")
    assert render((bar @ X).node, "unicode", {"cotangent": "Q"}) == "Q̄ X"
    assert render((tangent @ X).node, "unicode") == "Ȧ X"
    assert render((tangent @ X).node, "latex", {"tangent_A": "theta"}) == r"\dot{\theta} X"
    assert render((leaf("x1", n) * leaf("weights", n)).node, "unicode") == "weights ⊙ x₁"


def test_sizes_are_read_off_inputs():
    node, sizes = (X / Array(full(n))).node, {"n": dimensions.symbol("X.shape[0]")}
    assert render(node, "numpy", sizes=sizes) == "X / X.shape[0]"
    identity = Delta(dimensions.dimension(n + 1))
    assert render(identity, "numpy", sizes=sizes) == "np.eye(X.shape[0] + 1)"


def test_shared_parts_have_a_line_of_their_own():
    shared = apply(SOFTMAX, B @ x + y)
    node = (shared * (x - (shared @ x))).node
    definition = "  where p = softmax(y + B x)"
    assert render_equation(("z", PRIMARY), node, "unicode") == f"z = p ⊙ (x − pᵀ x){definition}"
    lines = render_equation(("z" * 90, PRIMARY), node, "unicode").splitlines()
    assert lines == [f"{'z' * 90} = p ⊙ (x − pᵀ x)", definition]
    assert render(node, "unicode").endswith(definition)
    assert render(node, "numpy").startswith("(p := scipy.special.softmax(")
    assert r"\begin{aligned}" in render_equation(("z", PRIMARY), node, "latex")
    check(node)


def test_names_of_shared_parts_are_new():
    for name, expected in (("t", "h"), ("h", "t₁"), ("t1", "h")):
        other = leaf(name, n)
        shared = elementwise(sympy.tanh(slot(0)), B @ x + other)
        node = (shared * (other - (shared @ x))).node
        assert f"where {expected} = tanh" in render(node, "unicode")
        check(node)


def test_an_unknown_style_is_refused():
    with pytest.raises(ValueError, match="unknown style 'html'; expected one of unicode"):
        render(X.node, "html")


def test_a_function_without_a_spelling_is_refused():
    node = elementwise(sympy.erfi(slot(0)), x).node
    assert render(node, "unicode") == "erfi(x)"
    with pytest.raises(UnsupportedError, match="erfi"):
        render(node, "numpy")


def test_arguments_without_the_stack_broadcast():
    stacked = leaf("A", batch, n, n)
    labels = (((stacked * stacked).node, (0,)), (S.node, ()), (X.node, ()))
    text = render(Apply(SYLVESTER, labels, (batch,)), "numpy")
    assert text == "scipy.linalg.solve_sylvester(A**2, S[None, :, :], X[None, :, :])"


def chain(depth):
    """A network's value; each layer is used twice."""
    layer = x
    for _ in range(depth):
        layer = elementwise(sympy.tanh(slot(0)), B @ layer) * layer
    return layer.node


@pytest.mark.parametrize("style", STYLES)
def test_texts_grow_with_the_graph(style):
    small, large = (len(render(chain(depth), style)) for depth in (8, 32))
    assert large < 6 * small


def test_deep_and_wide_graphs_print():
    deep = wide = X
    for position in range(300):
        deep = elementwise(sympy.tanh(slot(0)), deep)
        wide = wide + X ** (position + 2)
    for style in STYLES:
        assert render(deep.node, style).count("tanh") == 300
        assert render(wide.node, style).count("X") == 301
    check(deep.node)
    squares = X
    for _ in range(30):
        squares = squares @ squares
    powers = re.findall(r"matrix_power\(\w+, (\d+)\)", render(squares.node, "numpy"))
    assert math.prod(map(int, powers)) == 2**30


def all_texts():
    """Texts of many kinds of nodes, for comparison between processes."""
    arrays_ = [array for array, _, _ in TEXTS]
    nodes_ = [*(array.node for array in arrays_), jacobian, batched.node, chain(5)]
    return "\n".join(text_of(node, style) for node in nodes_ for style in STYLES)


TEXTS_PRINTED = "from tests.formulas.test_formulas import all_texts; print(all_texts())"


def test_texts_do_not_depend_on_hash_seeds():
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    environment["PYTHONIOENCODING"] = "utf-8"
    command = [sys.executable, "-c", TEXTS_PRINTED]
    process = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert process.stdout.decode() == all_texts() + "\n"


# Random nodes


FUNCTIONS = [
    sympy.tanh(slot(0)),
    1 / (1 + slot(0) ** 2),
    sympy.exp(-slot(0)) - 2 * slot(0),
    sympy.sqrt(1 + slot(0) ** 2),
    sympy.Max(0, slot(0)),
    sympy.Abs(slot(0)) ** sympy.Rational(3, 2),
    sympy.Piecewise((slot(0), slot(0) > 0), (sympy.exp(slot(0)) - 1, True)),
    sympy.Piecewise((1, sympy.And(slot(0) > 0, slot(0) <= 1)), (0, True)),
    scalar_functions.sigmoid(slot(0)) * scalar_functions.sigmoid(-slot(0)),
    sympy.erf(slot(0)) / sympy.pi,
    sympy.sign(slot(0)),
    sympy.Integer(1) + 0 * slot(0),
]
PAIRS = [
    slot(0) * slot(1),
    slot(0) - 3 * slot(1) ** 2,
    sympy.Max(slot(0), slot(1)),
    slot(0) / (1 + slot(1) ** 2),
    sympy.atan2(slot(0), 1 + slot(1) ** 2),
    sympy.Piecewise((slot(0), slot(0) < slot(1)), (-slot(1), True)),
]
SHAPE_SIZES = [n, m, sympy.Integer(2), batch]
SELECTIONS = [(2, n, 1, 1), (m, batch, 0, 2), (n, batch, 1, 1), (n, n, n - 1, -1), (1, n, 2, 1)]
COEFFICIENTS = [
    sympy.S.One,
    -sympy.S.One,
    sympy.Rational(-3, 2),
    sympy.Float(0.1),
    n / 2,
    1 / sympy.sqrt(n),
    n * m + 1,
]


@st.composite
def shapes(draw, most=3):
    return tuple(draw(st.lists(st.sampled_from(SHAPE_SIZES), max_size=most)))


@st.composite
def structural(draw):
    kind = draw(st.integers(0, 2))
    size, other = draw(st.sampled_from(SHAPE_SIZES)), draw(st.sampled_from(SHAPE_SIZES))
    if kind == 0:
        return Delta(size)
    if kind == 1:
        return Triangle(size, other, draw(st.integers(-1, 1)))
    count, size, start, step = draw(st.sampled_from(SELECTIONS))
    return Slice(*map(sympy.sympify, (count, size, start)), step)


@st.composite
def products(draw, pool):
    count = draw(st.integers(0, 3))
    labels: dict[str, sympy.Expr] = {}

    def label_for(size):
        known = [label for label, own in labels.items() if own == size]
        choice = draw(st.sampled_from([*known, "new"]))
        if choice != "new":
            return choice
        labels[f"l{len(labels)}"] = size
        return f"l{len(labels) - 1}"

    factors = []
    for _ in range(count):
        if draw(st.integers(0, 4)) == 0:
            node: Node = draw(structural())
        else:
            node = draw(st.sampled_from(pool))
        factors.append((node, tuple(label_for(size) for size in node.shape)))
    if draw(st.integers(0, 3)) == 0:
        labels["extra"] = draw(st.sampled_from(SHAPE_SIZES))
    output = draw(st.permutations(list(labels)))[: draw(st.integers(0, min(3, len(labels))))]
    return einsum(factors, output, draw(st.sampled_from(COEFFICIENTS)), dict(labels))


@st.composite
def applications(draw, node):
    core = 2 if node.ndim >= 2 and node.shape[-1] == node.shape[-2] else 1
    operation = draw(st.sampled_from([INVERSE, DETERMINANT] if core == 2 else [SOFTMAX, LOGSUMEXP]))
    depth = node.ndim - core
    labels = draw(st.permutations(range(depth)))
    stack = [node.shape[labels.index(i)] for i in range(depth)]
    return Apply(operation, ((node, tuple(labels)),), tuple(stack))


@st.composite
def nodes(draw, steps=6):
    pool: list[Node] = [X.node, x.node, s.node, A.node, S.node, bar.node]
    for position in range(draw(st.integers(0, 2))):
        pool.append(Leaf(f"L{position}", draw(shapes())))
    pool.append(Constant(np.arange(4.0).reshape(2, 2) - 1.5))
    for _ in range(draw(st.integers(1, steps))):
        kind = draw(st.integers(0, 5))
        chosen = draw(st.sampled_from(pool))
        alike = [node for node in pool if node.shape == chosen.shape]
        if kind <= 2:
            pool.append(draw(products(pool)))
        elif kind == 3:
            terms = draw(st.lists(st.sampled_from(alike), min_size=0, max_size=3))
            pool.append(Sum((chosen, *terms), chosen.shape))
        elif kind == 4 or not chosen.ndim:
            if draw(st.booleans()):
                pool.append(Map(draw(st.sampled_from(FUNCTIONS)), (chosen,)))
            else:
                other = draw(st.sampled_from(alike))
                pool.append(Map(draw(st.sampled_from(PAIRS)), (chosen, other)))
        else:
            pool.append(draw(applications(chosen)))
    return pool[-1]


def well_conditioned(node):
    """Return whether values have magnitudes at which rounding errors are negligible."""
    values = values_of(node)
    with np.errstate(all="ignore"):
        for part in topological([node]):
            try:
                array = evaluate(part, values, SIZES)
            except np.linalg.LinAlgError:
                return False
            if not np.isfinite(array).all() or np.abs(array).max(initial=0) > 1e4:
                return False
            inverse = isinstance(part, Apply) and part.operation is INVERSE
            if inverse and np.linalg.cond(array).max(initial=0) > 1e4:
                return False
    return True


def test_sums_over_an_axis_that_a_vector_does_not_have() -> None:
    """Σ_b of a vector without b: the vector is no scalar in front of the sum."""
    rows = einsum([(Delta(batch), "bb"), (X.node, "jj"), (s.node, "")], "bij", 1, {"i": m})
    vector = einsum([(rows, "bij"), (Delta(n), "jj"), (X.node, "jk")], "i")
    for node in (vector, einsum([(vector, "i")], "")):
        check(node)
        check_trees(node, values_of(node), SIZES)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes())
def test_random_nodes(node):
    for style in STYLES:
        check_text(node, style)
    if well_conditioned(node):
        check(node)
        check_trees(node, values_of(node), SIZES)


def check_trees(node, values, sizes):
    """The formulas for reading stand for the node's array."""
    with np.errstate(all="ignore"):
        expected = evaluate(node, values, sizes)
        size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        for by_index in (False, True):
            result = np.broadcast_to(formula_value(node, values, sizes, by_index), expected.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-8 * size)


LETTERS = [
    ("softmax(X*W)", "X: N d, W: d c", "W", "jvp",
     "(X Ẇ − ((X Ẇ) ⊙ P) 𝟏 𝟏ᵀ) ⊙ P  where P = softmax(X W)"),
    ("softmax(P*x)", "P: m n, x: n", "x", "jvp",
     "(P ẋ − pᵀ P ẋ) ⊙ p  where p = softmax(P x)"),
    ("softmax(p)", "p: n", "p", "jacobian", "diag(t₁) − t₁ t₁ᵀ  where t₁ = softmax(p)"),
    ("det(X'*A*X)", "X: p k, A: p p spd", "X", "hessian",
     "det(M) (4 T₁[i,j] T₁[l,q] + 2 (M⁻¹)[j,q] (A − A X M⁻¹ Xᵀ A)[i,l] − 2 T₁[i,q] T₁[l,j])  "
     "where M = Xᵀ A X, T₁ = A X M⁻¹"),
    ("det(X'*A*X)", "X: p k, A: p p", "X", "hessian",
     "det(M) ((M⁻¹)[j,q] R[l,i] + (M⁻¹)[q,j] R[i,l] + (T₁ + T₂ᵀ)[l,q] (T₁ + T₂ᵀ)[i,j] "
     "− T₁[i,q] T₁[l,j] − T₂[q,i] T₂[j,l])  "
     "where M = Xᵀ A X, T₁ = A X M⁻¹, R = A − A X M⁻¹ Xᵀ A, T₂ = M⁻¹ Xᵀ A"),
    ("tr(inv(X'*C*X)*A)", "X: p k, C: p p spd, A: k k", "X", "hessian",
     "(C X M⁻¹)[i,q] T₂[l,j] + (C X M⁻¹)[l,j] T₂[i,q] + (M⁻¹)[q,j] (C X M⁻¹ T₁ M⁻¹ Xᵀ C)[i,l] "
     "− (M⁻¹ T₁ M⁻¹)[j,q] (C − C X M⁻¹ Xᵀ C)[i,l]  "
     "where T₁ = A + Aᵀ, M = Xᵀ C X, T₂ = C X M⁻¹ T₁ M⁻¹"),
    ("det(X'*A*X)", "X: p k, A: p p", "A", "hessian",
     "det(M) (T₁[j,i] T₁[q,l] − T₁[q,i] T₁[j,l])  where M = Xᵀ A X, T₁ = X M⁻¹ Xᵀ"),
    ("tr(inv(L*L'))", "L: n n lower", "L", "hessian",
     "2 [i ≥ j] ([k ≥ l] ((M⁻¹ L)[i,l] (M⁻² L)[k,j] + (M⁻¹ L)[k,j] (M⁻² L)[i,l] "
     "+ (Lᵀ M⁻² L)[j,l] (M⁻¹)[k,i] + (Lᵀ M⁻¹ L)[j,l] (M⁻²)[k,i]) "
     "− δ[j,l] [k ≥ j] (M⁻²)[i,k])  where M = L Lᵀ"),
    ("det(X'*A*X)", "X: p k, A: p p", "X", "gradient",
     "det(M) (A X M⁻¹ + Aᵀ X M⁻ᵀ)  where M = Xᵀ A X"),
    ("tr(inv(L*L'))", "L: n n lower", "L", "hvp",
     "−2 (tril(M⁻² L̇) + tril(M⁻¹ T₁ L) + tril(T₁ M⁻¹ L))"
     "  where M = L Lᵀ, T₁ = −M⁻¹ (L̇ Lᵀ + L L̇ᵀ) M⁻¹"),
    ("chol(X)", "X: n n spd", "X", "jvp", "L Φ(L⁻¹ Ẋ L⁻ᵀ)  where L = chol(X)"),
    ("sum(log(1+exp(X*w))) - y'*(X*w)", "X: N d, w: d, y: N", "w", "hessian",
     "Xᵀ diag(p ⊙ (1 − p)) X  where p = sigmoid(X w)"),
    ("norm2(A*x-y)", "A: p k, x: k, y: p", "x", "hvp",
     "Aᵀ A ẋ / ‖r‖ − (rᵀ A ẋ) Aᵀ r / ‖r‖³  where r = A x − y"),
    ("sum(tanh(X*W).^2)", "X: N d, W: d k", "W", "hvp",
     "2 Xᵀ ((X Ẇ) ⊙ ((1 − H∘²)∘² − (2 − 2 H∘²) ⊙ H∘²))  where H = tanh(X W)"),
    ("exp(-norm2(x-y)^2/(2*s^2))", "x: n, y: n, s: positive", "x", "hessian",
     "α (r rᵀ / s² − I) / s²  where r = x − y, α = exp(−‖r‖² / (2 s²))"),
    ("b'*tanh(A*tanh(B*x))", "b: p, A: p m, B: m n, x: n", "A", "hvp",
     "−((Ȧ h₁) ⊙ b ⊙ (2 − 2 h₂∘²) ⊙ h₂) h₁ᵀ  where h₁ = tanh(B x), h₂ = tanh(A h₁)"),
    ("sigmoid(A*x)", "A: m n, x: n", "A", "jacobian",
     "δ[i,j] p[i] (1 − p[i]) x[k]  where p = sigmoid(A x)"),
    ("kron(X,B)", "X: m n, B: p q", "X", "vjp", "tr(Bᵀ Ȳ[i p:i p + p, j q:j q + q])"),
    ("kron(A,X)", "A: q m, X: n p", "X", "vjp",
     "Σ_{i,j} A[i,j] Ȳ[i n:i n + n, j p:j p + p]"),
]  # fmt: skip
"""Repeated parts have the letters of textbooks, if these are free; products with blocks are sums
over blocks."""

LETTER_SIZES = {"n": 3, "m": 2, "p": 4, "q": 2, "k": 2, "d": 2, "N": 5, "c": 3}


@pytest.mark.parametrize("text, inputs, by, kind, expected", LETTERS)
def test_what_is_repeated_has_a_books_letter(text, inputs, by, kind, expected):
    function = text_function(text, inputs, [by])
    assert function.formula(kind) == expected
    values = draw_all(function, sizes=LETTER_SIZES)
    for node in function.derivatives.results(kind).values():
        check_trees(node, values, LETTER_SIZES)


def test_a_letter_is_no_index():
    """p counts entries there, so the probabilities are t₁."""
    text = "-sum(softmax(eigvalsh(S)).*log(softmax(eigvalsh(S))))"
    function = text_function(text, "S: n n symmetric", ["S"])
    hessian = function.formula("hessian")
    assert "Σ_{p,q}" in hessian
    assert not re.search(r"\bp = ", hessian)


def test_a_formula_is_built_once_for_the_styles_of_one_notation(monkeypatch):
    """And each style's text is what it is on its own."""
    names = {"cotangent": "Once"}
    node = (bar @ inv(X @ X.T) @ bar.T + X).node
    styles = "unicode", "latex", "index"
    alone = []
    for style in styles:
        formulas.formula.cache_clear()
        alone.append(render(node, style, names))
    formulas.formula.cache_clear()
    built, real = [], Notation.result
    monkeypatch.setattr(Notation, "result", lambda self: built.append(self.by_index) or real(self))
    assert [render(node, style, names) for style in styles] == alone
    assert render_equation(("Y", PRIMARY), node, "unicode", names).startswith("Y = ")
    assert built == [False, True]
    assert render(node, "unicode", {"cotangent": "Another"}) != alone[0]


def test_sizes_within_sizes() -> None:
    n, m = sympy.symbols("n m", integer=True, positive=True)
    unicode = math_printers()["unicode"]
    assert unicode.dimension(sympy.floor(sympy.floor(n / 2) / 3)) == "⌊⌊n/2⌋/3⌋"
    assert unicode.dimension(sympy.Mod(sympy.floor(n / 2), m)) == "⌊n/2⌋ mod m"


def test_sizes_that_are_lengths_and_more() -> None:
    """A size is read as an expression, which keeps its precedence in products."""
    size = dx.dims("n")
    x = dx.vector("x", size - 1)
    function = dx.function("f", [x], dx.mean(x) * dx.ones(2 * size) + dx.sum(x) * 3 * size)
    values = np.array([1.0, 2.0, 6.0])
    for text in (function.declaration, function.formula("value", style="numpy")):
        np.testing.assert_allclose(eval(text, {"np": np, "x": values}), np.full(8, 111.0))


def test_arguments_without_effect_have_no_definition() -> None:
    product = einsum([(X.node, "ii"), (X.node, "ij")], "ijk", 1, {"k": n})
    assert render(Map(sympy.S.One, (product,)), "unicode") == "broadcast(1)"


def test_entries_that_cancel_leave_arrays_of_their_shape() -> None:
    v, M = dx.vector("v", n), dx.matrix("M", n, m)
    assert repr(dx.concatenate([v, v - v])) == "Array([v; 0 𝟏], shape=(2*n,))"
    assert repr(dx.concatenate([v, v / v])) == "Array([v; 𝟏], shape=(2*n,))"
    assert repr((M / M) @ M.T) == "Array(𝟏 𝟏ᵀ Mᵀ, shape=(n, n))"


def test_sums_that_keep_their_axis():
    X = dx.matrix("X", n, m)
    squares = dx.sum(X**2, axis=1, keepdims=True)
    function = dx.function("f", [X], X / dx.sqrt(1 + squares) + dx.exp(-squares))
    assert function.formula("value") == "exp(−X∘² 𝟏) 𝟏ᵀ + diag(1 ⊘ sqrt(1 + X∘² 𝟏)) X"
    values = {"X": np.arange(6.0).reshape(3, 2) / 5}
    actual = eval(function.formula("value", style="numpy"), {"np": np, **values})
    (node,) = function.derivatives.results("value").values()
    np.testing.assert_allclose(actual, evaluate(node, values, SIZES), rtol=1e-14)


@pytest.mark.parametrize("kind", ["gradient", "hessian"])
def test_loops_of_numbers(kind):
    """Loops that start with a number, and parameters that are numbers, for each entry of another
    array."""
    s, start, series = dx.scalar("s"), dx.scalar("h0"), dx.vector("u", dx.dims("T"))
    last, squares = dx.scan(lambda h, x: (dx.tanh(h * s + x), h**2), start, series)
    function = dx.function("f", [s, start, series], dx.sum(squares) + last)
    values = {"s": 0.7, "h0": -0.4, "u": np.array([0.3, 1.1, -0.2])}
    scope = {"np": np, **values}
    for key, node in function.derivatives.results(kind).items():
        actual = eval(function.derivatives.formula(kind, key, "numpy"), scope)
        expected = evaluate(node, {k: np.asarray(v) for k, v in values.items()}, {"T": 3})
        np.testing.assert_allclose(actual, expected, rtol=1e-13, err_msg=str(key))


def test_long_steps_name_what_they_repeat():
    """Each of Euler's steps reads the one before twice: written out, the formula doubles with each
    of them."""
    start, force, series = dx.vector("z", 2), dx.scalar("k"), dx.vector("u", dx.dims("T"))

    def function(substeps):
        def step(z, u):
            for _ in range(substeps):
                z = z + 0.01 * dx.stack([z[1], u - force * dx.sin(z[0])])
            return z, z[0]

        return dx.function("f", [start, force, series], dx.sum(dx.scan(step, start, series)[1]))

    lengths = [len(function(substeps).formula("gradient", "z")) for substeps in (4, 8, 12)]
    assert lengths[2] - lengths[1] < 2 * (lengths[1] - lengths[0])
    short = function(3)
    values = {"z": np.array([0.1, 0.2]), "k": np.array(0.3), "u": np.arange(4.0)}
    for kind in ("value", "gradient"):
        for key, node in short.derivatives.results(kind).items():
            text = short.derivatives.formula(kind, key, "numpy")
            expected = evaluate(node, values, {"T": 4})
            np.testing.assert_allclose(eval(text, {"np": np, **values}), expected, rtol=1e-13)


@pytest.mark.parametrize("kind", ["gradient", "hessian"])
def test_loops_without_steps(kind):
    """NumPy texts of derivatives by T arrays evaluate for T = 0, too."""
    W, X, start = dx.matrix("W", 2, 2), dx.matrix("X", dx.dims("T"), 2), dx.vector("h0", 2)
    _, states = dx.scan(lambda h, x: (dx.tanh(W @ h + x),) * 2, start, X)
    function = dx.function("f", [W, X, start], dx.sum(states**2) + start @ start)
    values = {"W": np.eye(2), "X": np.zeros((0, 2)), "h0": np.ones(2)}
    for key, node in function.derivatives.results(kind).items():
        actual = eval(function.derivatives.formula(kind, key, "numpy"), {"np": np, **values})
        np.testing.assert_array_equal(actual, evaluate(node, values, {"T": 0}), strict=True)
