"""A sign of a formula is written unlike every name, and one name unlike another."""

import re

import numpy as np
import pytest
import scipy
import sympy

import derivatrix as dx
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.signs import SIGNS
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.operations.softmax import SOFTMAX

n, m = dx.dims("n m")
X = dx.matrix("X", n, n)

TEXTS = [
    ("inv(eye + I - X)", "X: n n, I: n n", "value", "(𝐈 + I − X)⁻¹  where 𝐈 = identity"),
    ("tr(I*X)", "I: n n, X: n n", "hvp I", "Ẋᵀ"),
    ("I'*x", "I: n, x: n", "hessian I x", "𝐈  where 𝐈 = identity"),
    ("e1[1]*x[1]", "x: n, e1: n", "gradient x", "e₁[1] 𝐞₁  where 𝐞 = unit vector"),
    ("x[1]^2", "x: e", "gradient x", "2 x[1] 𝐞₁  where 𝐞 = unit vector"),
    ("e*x[0]", "x: n, e: ", "gradient x", "e 𝐞₀  where 𝐞 = unit vector"),
    ("x1'*x_1", "x1: n, x_1: n", "value", "x1ᵀ x_1"),
    ("weights'*weights_bar", "weights: n, weights_bar: n", "vjp weights_bar", "ȳ weights"),
    ("pinv(X)*T_1", "X: n n, T_1: n n", "vjp X", "−pinv(X)ᵀ Ȳ T₁ᵀ pinv(X)ᵀ"),
    ("inv(ones*ones' + eye - X)", "X: n n", "value", "(𝟏 𝟏ᵀ + I − X)⁻¹"),
    ("inv(s + X)", "s:, X: n n", "value", "(X + s 𝟏 𝟏ᵀ)⁻¹"),
    ("inv(s + X)", "s:, X: n n", "jacobian s", "−M⁻¹ 𝟏 𝟏ᵀ M⁻¹  where M = X + s 𝟏 𝟏ᵀ"),
    ("det(1 + exp(X))", "X: n n", "value", "det(𝟏 𝟏ᵀ + exp(X))"),
    ("1 - X*X", "X: n n", "value", "𝟏 𝟏ᵀ − X²"),
    ("log(1 + X)", "X: n n", "value", "log(1 + X)"),
    ("1 + exp(X)", "X: n n", "value", "1 + exp(X)"),
    ("(1 + X).*(2 - X)", "X: n n", "value", "(1 + X) ⊙ (2 − X)"),
]


@pytest.mark.parametrize(("text", "dims", "what", "expected"), TEXTS)
def test_texts(text: str, dims: str, what: str, expected: str) -> None:
    kind, *by = what.split()
    assert text_function(text, dims).formula(kind, tuple(by) or None) == expected


K, TWO = sympy.Symbol("k", integer=True), sympy.Integer(2)
A, a = kinds.Name(2, "A", "A"), kinds.Name(1, "a", "a")

WRITTEN: dict[str, list[Tree]] = {
    "I": [kinds.Identity(n), kinds.Rows(n, n, TWO, 1), kinds.Transpose(kinds.Rows(n, n, TWO, 1))],
    "e": [kinds.Unit(n, TWO), kinds.Unit(n, K)],
    "K": [kinds.Commutation(TWO, TWO)],
    "D": [kinds.Duplication(TWO)],
    "L": [kinds.Elimination(TWO)],
    "Ψ": [kinds.Diagonals(TWO)],
    "δ": [kinds.Bracket(K, "δ", TWO)],
    "Σ": [kinds.Over(("k",), kinds.Indexed(a, (K,)), (n,))],
    "d": [kinds.Differential(2, A, False), kinds.Differential(2, kinds.Name(2, "AB", "AB"), False)],
    "σ": [kinds.Function(1, "sigmoid", (a,), scalar_functions.sigmoid)],
    "π": [kinds.Number(sympy.pi)],
    "γ": [kinds.Number(sympy.EulerGamma)],
    "tr": [kinds.Trace(A)],
    "diag": [kinds.Diag(a)],
    "tanh": [kinds.Function(1, "tanh", (a,), sympy.tanh)],
    "vec": [kinds.Vectorised(A, False)],
    "softmax": [kinds.Call(1, "", (a,), (), 0, False, SOFTMAX)],
    "exp": [kinds.Number(sympy.E)],
}
"""Trees that are written with a sign or the name of a function."""
PLAIN = {("unicode", "σ"), ("latex", "Σ"), ("unicode", "exp"), ("latex", "exp")}
"""Styles in which another sign is used, whatever there is beside it."""
STYLES = ("unicode", "latex")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("letter", WRITTEN)
def test_signs_are_unlike_names(letter: str, style: str) -> None:
    printer = math_printers()[style]
    assert WRITTEN.keys() >= SIGNS.keys()
    for tree in WRITTEN[letter]:
        plain = printer.text(tree)
        assert printer.distinguished(letter) not in plain
        assert printer.beside({"r", "A", "a"}).text(tree) == plain
        for name in {letter, f"{letter}_2", f"{letter}2"}:
            beside = printer.beside({name, "A", "a"})
            changed = beside.text(tree)
            assert (changed == plain) == ((style, letter) in PLAIN), changed
            if changed != plain:
                assert changed.replace(printer.distinguished(letter), "").count(letter) == 0


@pytest.mark.parametrize("style", STYLES)
def test_euler_is_a_function_beside_an_input_e(style: str) -> None:
    printer = math_printers()[style]
    number = kinds.Number(sympy.E)
    assert printer.text(number) == "e"
    assert printer.beside({"e"}).text(number) == printer.call("exp", ["1"])[0]


PAIRS = [
    ("x1", "x_1"), ("weights", "weights_bar"), ("speed", "speed_dot"), ("alpha", "α"),
    ("A", "Alpha"), ("x_ab", "x__ab"), ("dX", "X"), ("T1", "T_1"), ("y", "ȳ"),
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_names_are_unlike_each_other(pair: tuple[str, str], style: str) -> None:
    printer = math_printers()[style].beside(set(pair))
    trees = [kinds.Name(2, name, name, accent) for name in pair for accent in ("", "bar", "dot")]
    trees.append(kinds.Differential(2, kinds.Name(2, pair[1], pair[1]), False))
    texts = [re.sub(r"\\mathrm\{(\w)\}", r"\1", printer.text(tree)) for tree in trees]
    assert len({*texts}) == len(texts), texts


def test_letters_of_indices_and_parts_are_no_inputs() -> None:
    """The input itself does not occur in some of the formulas."""
    i, j = dx.vector("i", n), dx.matrix("j", n, m)
    function = dx.function("f", [i, j], dx.outer(i, j @ dx.ones(m)))
    line, _ = function.derivatives.equation_lines("jacobian")
    assert not re.search(r"\bi\b", line.partition("∂i")[2]), line
    M = dx.matrix("M", n, n)
    function = dx.function("g", [X, M], dx.inv(X @ X.T + dx.eye(n)) + M)
    assert " M" not in function.formula("vjp", "X").replace("M₁", "")


def test_parts_of_numpy_texts_leave_inputs_alone() -> None:
    """Texts are evaluated one after the other in one scope: an assignment would change the next."""
    others = [dx.matrix(f"t{number}", n, n) for number in range(1, 5)]
    function = dx.function(
        "f", [X, *others], dx.inv(X @ X.T + dx.eye(n)) @ dx.pinv(X) + sum(others)
    )
    generator = np.random.default_rng(0)
    scope = {name: generator.normal(size=(3, 3)) for name in (*function.wrt, "cotangent")}
    before = {name: value.copy() for name, value in scope.items()}
    for name in function.wrt:
        text = function.formula("vjp", name, style="numpy")
        eval(text, {"np": np, "scipy": scipy}, scope)
    assert ":=" in function.formula("vjp", "X", style="numpy")
    for name, value in before.items():
        np.testing.assert_array_equal(scope[name], value)
