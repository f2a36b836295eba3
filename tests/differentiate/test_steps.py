"""Derivations: every line that is printed equals the differential, by central differences."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import sympy
from click.testing import CliRunner

import derivatrix as dx
from derivatrix.compiler import cli
from derivatrix.compiler.differentiate import derivation as steps
from derivatrix.compiler.differentiate.derivation import align_trace, derivation, lines
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.tree import Indices, Number, Tree
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.arrays import Array, scale
from derivatrix.compiler.ir.nodes import Leaf, Node, leaves
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import DeclarationError
from tests.cases import CASES
from tests.points import SIZES, along, draw
from tests.trees import Reader

TRACE = "tr(A*inv(X))"
GOLDEN: dict[str, list[tuple[str, str]]] = {
    TRACE: [
        ("d tr(X⁻¹ A) = tr(A d(X⁻¹))", "the trace is linear"),
        ("= −tr(A X⁻¹ dX X⁻¹)", "differential of an inverse: dY = −Y dA Y"),
        ("= −tr(X⁻¹ A X⁻¹ dX)", "the trace is cyclic"),
        ("∇_X y = −X⁻ᵀ Aᵀ X⁻ᵀ", "collected: dy = tr(∇ᵀ dX)"),
    ],
    "x'*A*x": [
        ("d(xᵀ A x) = dxᵀ A x + xᵀ A dx", "differential of a product"),
        ("= (A x + Aᵀ x)ᵀ dx", "a scalar is its own transpose"),
        ("∇_x y = A x + Aᵀ x", "collected: dy = ∇ᵀ dx"),
    ],
    "A*tanh(X)*A": [
        ("d(A tanh(X) A) = A d tanh(X) A", "a product with constants is linear"),
        ("= A ((1 − tanh(X)∘²) ⊙ dX) A", "chain rule, entry by entry: dtanh(t)/dt = 1 − tanh(t)²"),
        ("X̄ = (Aᵀ Ȳ Aᵀ) ⊙ (1 − tanh(X)∘²)", "collected: ⟨Ȳ, dY⟩ = ⟨X̄, dX⟩"),
    ],
    "logdet(S) + tr(S*A)": [
        ("d(tr(A S) + logdet(S)) = d tr(A S) + d logdet(S)", "differential of a sum"),
        ("= tr(A dS) + d logdet(S)", "the trace is linear"),
        ("= tr(A dS) + tr(S⁻¹ dS)", "differential of the logarithm of a determinant"),
        ("= tr((A + S⁻¹) dS)", "the trace is cyclic"),
        ("G = A + S⁻¹", "collected: dy = tr(Gᵀ dS)"),
        ("∇_S y = S⁻¹ + ½ A + ½ Aᵀ", "the part of G that is symmetric"),
    ],
    "tr(A*A)": [
        ("d tr(A²) = 0", "it does not depend on X"),
        ("∇_X y = 0", "collected: dy = tr(∇ᵀ dX)"),
    ],
}
LAST = ("collected: ", "the part of G that is ")
"""Beginnings of the reason for a derivation's last line."""
DIMS = {"A": "n n", "X": "n n", "x": "n", "S": "n n spd"}


def declared(text: str, by: str) -> Function:
    used = [name for name in DIMS if name in text]
    dims = ", ".join(f"{name}: {DIMS[name]}" for name in used)
    return text_function(text, dims, [by])


@pytest.mark.parametrize("text", [text for text in GOLDEN if text != "tr(A*A)"])
def test_texts(text: str) -> None:
    by = next(name for name in "XxS" if name in text.replace("exp", ""))
    actual = derivation(declared(text, by).derivatives, by)
    expected = GOLDEN[text]
    assert [step.text for step in actual] == [line for line, _ in expected]
    for step, (_, reason) in zip(actual, expected, strict=True):
        assert step.reason.startswith(reason)


def test_what_does_not_move() -> None:
    n = dx.dims("n")
    A, X = dx.matrix("A", n, n), dx.matrix("X", n, n)
    function = dx.function("f", [A, X], dx.trace(A @ A) + 0 * dx.trace(X), wrt=["X"])
    assert [(step.text, step.reason) for step in derivation(function.derivatives)] == GOLDEN[
        "tr(A*A)"
    ]


def shown(function: Function, leaf: Leaf) -> Iterator[tuple[str, Tree, Indices, Notation]]:
    """The lines as printed."""
    root = simplify([function.expression])[0]
    previous: Tree = Number(sympy.S.Zero)
    for line in lines(root, leaf):
        used = {part.name for part in leaves([line.node])}
        moving = {name: part for name, part in line.primals.items() if name in used}
        builder = Notation(line.node, differentials=moving)
        tree, indices = builder.result()
        previous = align_trace(tree, previous)
        yield line.reason, previous, indices, builder


def printed(function: Function, leaf: Leaf) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each line's reason and value, and the central difference of the function."""
    generator = np.random.default_rng(3)
    values: dict[str, np.ndarray] = {own.name: draw(own, generator) for own in function.inputs}
    moved = along(leaf, np.asarray(generator.normal(size=values[leaf.name].shape)))
    direction: Mapping[str, np.ndarray] = {leaf.name: moved}
    expected: np.ndarray | None = None
    for reason, tree, indices, builder in shown(function, leaf):
        reader = Reader(values, SIZES, builder.definitions, direction)
        shape = tuple(reader.size(size) for size in builder.root.shape)
        value = np.broadcast_to(reader.array(tree, indices, shape), shape)
        if expected is None:
            expected = value
        yield reason, value, expected


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.name)
def test_every_line_is_the_differential(function: Function) -> None:
    inputs = {leaf.name: leaf for leaf in function.inputs}
    for name in function.wrt:
        lines = [*printed(function, inputs[name])]
        assert len(lines) > 1
        for reason, value, expected in lines:
            size = max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(value, expected, atol=1e-6 * size, err_msg=reason)
        assert derivation(function.derivatives, name)[-1].reason.startswith(LAST)


def test_a_false_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = steps.rule

    def wrong(node: Node, known: Mapping[Node, Node]) -> Node:
        return scale(Array(right(node, known)), sympy.Rational(1001, 1000)).node

    monkeypatch.setattr(steps, "rule", wrong)
    function = declared(TRACE, "X")
    (leaf,) = (leaf for leaf in function.inputs if leaf.name == "X")
    errors = [np.abs(value - expected).max() for _, value, expected in printed(function, leaf)]
    assert max(errors) > 1e-4


def test_refusals() -> None:
    n = dx.dims("n")
    X, Z = dx.matrix("X", n, n), dx.matrix("Z", n, n)
    function = dx.function("f", [X, Z], X @ Z)
    with pytest.raises(DeclarationError, match="by which input"):
        derivation(function.derivatives)
    with pytest.raises(DeclarationError, match="'W' is not in wrt"):
        derivation(function.derivatives, "W")
    with pytest.raises(DeclarationError, match="no style 'numpy'"):
        derivation(function.derivatives, "X", "numpy")
    assert r"\mathrm{d}X" in derivation(function.derivatives, "X", "latex")[0].text


def test_explain_shows_steps() -> None:
    command = ["explain", TRACE, "--dims", "A: n n, X: n n", "--wrt", "X", "--steps"]
    result = CliRunner().invoke(cli.main, command)
    assert result.exit_code == 0
    for line, reason in GOLDEN[TRACE]:
        assert any(
            row.startswith(line) and f"[{reason}" in row for row in result.output.splitlines()
        )
