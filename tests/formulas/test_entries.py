"""Matrices and vectors that are declared entry by entry print as such, and keep their values."""

import numpy as np
import pytest

from derivatrix.compiler.formulas import formula
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.interpret import evaluate
from tests.trees import formula_value

TURN = "[cos(t), -sin(t); sin(t), cos(t)]*y"
TEXTS = [
    ("[1, 2; 3, 4]*y", "y: 2", "value", "[1, 2; 3, 4] y"),
    ("[1, 2; 3, 4]*y", "y: 2", "vjp y", "[1, 3; 2, 4] z̄"),
    ("[1, 2, 3; -4, 0.5, 0]*y", "y: 3", "jacobian y", "[1, 2, 3; −4, ½, 0]"),
    ("inv([1, s; 0, 1])*y", "y: 2, s:", "value", "[1, s; 0, 1]⁻¹ y"),
    (TURN, "y: 2, t:", "value", "[cos(t), −sin(t); sin(t), cos(t)] y"),
    (
        TURN,
        "y: 2, t:",
        "jacobian t",
        "[−cos(t) y[1] − sin(t) y[0]; cos(t) y[0] − sin(t) y[1]]",
    ),
    ("[a; b; 3]'*y", "a:, b:, y: 3", "gradient y", "[a; b; 3]"),
    ("det([a, b; b, a])", "a:, b:", "value", "det([a, b; b, a])"),
]


@pytest.mark.parametrize(("text", "dims", "what", "expected"), TEXTS)
def test_texts(text: str, dims: str, what: str, expected: str) -> None:
    kind, *by = what.split()
    function = text_function(text, dims)
    assert function.formula(kind, tuple(by) or None) == expected
    latex = function.formula(kind, tuple(by) or None, "latex")
    assert "bmatrix" in latex and r"e_{" not in latex


@pytest.mark.parametrize("text", [TURN, "[1, t; t, 4]*y + y", "[t, 2; 0, t]'*[1, y[0]; 3, t]*y"])
def test_values(text: str) -> None:
    function = text_function(text, "y: 2, t:")
    values = {"y": np.array([0.3, -1.2]), "t": np.array(0.7), "cotangent": np.array([2.0, 0.1])}
    for kind in ("value", "vjp", "jacobian"):
        for node in function.derivatives.results(kind).values():
            result = formula_value(node, values, {}, False)
            np.testing.assert_allclose(result, evaluate(node, values, {}), err_msg=kind)


LETTERS = "abcdefghijklmnopq"
MANY = f"[{'; '.join(LETTERS)}]'*y", f"y: 17, {', '.join(f'{letter}:' for letter in LETTERS)}"


@pytest.mark.parametrize(("text", "dims"), [("[x, 0; 0, 0]*y", "x:, y: 2"), MANY])
def test_many_entries_and_single_ones_stay_sums(text: str, dims: str) -> None:
    node = text_function(text, dims).derivatives.results("value")[()]
    tree, _, definitions = formula(node, (), False)
    assert not any(part.counts[kinds.Entries] for part in (tree, *(d.tree for d in definitions)))
