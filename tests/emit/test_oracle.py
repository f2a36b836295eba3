"""The declaration's text has nothing in common with the kernels: it is the value of the declared
expression for every kind of node, and faults planted in facts, rules and normal forms, which
kernels come about by, do not pass a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest
import sympy
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler import simplify as simplifying
from derivatrix.compiler.driver import build as building
from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas.tree import Transpose
from derivatrix.compiler.ir import structure as facts
from derivatrix.compiler.ir.dimensions import evaluate as number
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import (
    Apply,
    Constant,
    Delta,
    Gather,
    Leaf,
    Map,
    Node,
    Reshape,
    Slice,
    Sum,
    Triangle,
    Vech,
    einsum,
    full,
    leaves,
    slot,
    zeros,
)
from derivatrix.compiler.ir.numpy_text import numpy_text
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.runtime.reference import OutOfDomain, Text
from tests.points import SIZES, draw
from tests.strategies import expressions, leaf_values, nodes

Plant = Callable[[pytest.MonkeyPatch], None]

pytestmark = pytest.mark.usefixtures("forgotten")

n, m, k = dx.dims("n m k")
HALF = sympy.expand(n * (n + 1) / 2)


def agrees(node: Node, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    shape = tuple(int(number(size, sizes)) for size in node.shape)
    expected = evaluate(node, values, sizes)
    try:
        actual = Text(numpy_text(node, {}))({**sizes, **values}, shape)
    except OutOfDomain:
        assert not np.isfinite(expected).all()
        return
    np.testing.assert_allclose(
        actual, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max(initial=1)
    )


@hypothesis.settings(max_examples=75, deadline=None)
@hypothesis.given(nodes(), st.integers(0, 100))
def test_the_text_of_a_product_or_sum_is_its_value(node: Node, seed: int) -> None:
    agrees(node, leaf_values(seed), {})


@hypothesis.settings(max_examples=75, deadline=None)
@hypothesis.given(expressions(), st.integers(0, 100))
def test_the_text_of_an_expression_is_its_value(array: dx.Function, seed: int) -> None:
    agrees(array.node, leaf_values(seed), {})


x, y = Leaf("x", (n,)), Leaf("y", (n,))
X, R, C = Leaf("X", (n, n)), Leaf("R", (n, m)), Leaf("C", (n, m, k))
P, Q = Leaf("P", (HALF,)), Leaf("Q", (n * m,))
B, V = Leaf("B", (k, n, n)), Leaf("V", (k, n))
s = Leaf("s", ())
HOLDING = Constant(np.arange(6.0).reshape(2, 3) / 7)
SLICED = Slice(n - 1, n, sympy.S.One, 1)
TURNED = Slice(n, n, n - 1, -1)
THIRD = Slice(sympy.Integer(2), n, sympy.S.Zero, 2)
GATHERED = Gather((2, 0, 0, 1), n)
MERGED, PACKED = Reshape(n, m), Vech(n)
INVERSE, SOFTMAX = OPERATIONS["inv"], OPERATIONS["softmax"]

NODES: dict[str, Node] = {
    "leaf": X,
    "number": full(sympy.Rational(1, 3), (n, m)),
    "size": full(n * m / (n + 1)),
    "root of a size": full(1 / sympy.sqrt(n), (m,)),
    "zeros": zeros((n, m)),
    "constant": HOLDING,
    "constant in a product": einsum([(HOLDING, "ij"), (HOLDING, "kj")], "ik"),
    "empty constant": Constant(np.zeros((0, 3))),
    **{
        f"{type(node).__name__} {number}": node
        for number, node in enumerate(
            (
                Delta(n),
                SLICED,
                TURNED,
                THIRD,
                Triangle(n, m),
                Triangle(n, m, 2),
                GATHERED,
                MERGED,
                PACKED,
            )
        )
    },
    "taken": einsum([(X, "ij"), (SLICED, "ki"), (TURNED, "lj")], "lk"),
    "taken twice": einsum([(X, "ij"), (THIRD, "ki"), (THIRD, "kj")], "k"),
    "taken and put back": einsum([(x, "j"), (THIRD, "ij"), (THIRD, "ik")], "k"),
    "put into zeros": einsum([(Leaf("z", (n - 1,)), "i"), (SLICED, "ij")], "j"),
    "selected of a diagonal": einsum([(X, "jj"), (SLICED, "ij")], "i"),
    "selected by two": einsum([(x, "j"), (y, "j"), (SLICED, "ij")], "i"),
    "gathered": einsum([(R, "ja"), (GATHERED, "ij")], "ai"),
    "added back": einsum([(Leaf("z", (sympy.Integer(4),)), "i"), (GATHERED, "ij")], "j"),
    "selections alone": einsum([(SLICED, "ij"), (TURNED, "jk"), (GATHERED, "lk")], "il"),
    "merged": einsum([(MERGED, "kij"), (R, "ij")], "k"),
    "merged in the middle": einsum([(Reshape(m, k), "qjk"), (C, "ijk")], "qi"),
    "merged by another order": einsum([(Reshape(k, n), "qki"), (C, "ijk")], "jq"),
    "split": einsum([(MERGED, "kij"), (Q, "k")], "ji"),
    "merged of two": einsum([(MERGED, "kij"), (x, "i"), (Leaf("u", (m,)), "j")], "k"),
    "merged diagonal": einsum([(Reshape(n, n), "kii")], "k"),
    "packed": einsum([(PACKED, "kij"), (X, "ij")], "k"),
    "packed of a stack": einsum([(PACKED, "kij"), (B, "bji")], "bk"),
    "unpacked": einsum([(PACKED, "kij"), (P, "k")], "ij"),
    "unpacked of a stack": einsum([(PACKED, "kij"), (Leaf("W", (m, HALF)), "bk")], "ibj"),
    "delta renames": einsum([(Delta(n), "ij"), (X, "jk"), (Delta(n), "kl")], "il"),
    "delta kept": einsum([(Delta(n), "ij"), (x, "i")], "ij"),
    "delta summed": einsum([(Delta(n), "ij")], ""),
    "delta of one label": einsum([(Delta(n), "ii"), (x, "k")], "k"),
    "delta counts": einsum([(Delta(n), "ii")], "", sympy.Integer(2)),
    "delta broadcasts": einsum([(Delta(n), "ij")], "i"),
    "a label that counts": einsum([(x, "i")], "i", sizes={"i": n, "c": m}),
    "a label that broadcasts": einsum([(x, "i")], "aib", sizes={"a": m, "b": k}),
    "a broadcast number": einsum([(s, "")], "ab", sizes={"a": m, "b": k}),
    "transposed": einsum([(C, "ijk")], "kij"),
    "transposed and entrywise": einsum([(C, "ijk"), (R, "ij"), (x, "i")], "jki"),
    "trace": einsum([(X, "ii")], ""),
    "diagonal": einsum([(X, "ii")], "i"),
    "traces of a stack": einsum([(B, "bii")], "b"),
    "sum": einsum([(C, "ijk")], "ik"),
    "sum in another order": einsum([(C, "ijk")], "ki"),
    "matrix product": einsum([(X, "ij"), (R, "jk")], "ik"),
    "product with a transpose": einsum([(X, "ji"), (R, "jk")], "ik"),
    "matrix times vector": einsum([(R, "ij"), (Leaf("u", (m,)), "j")], "i"),
    "vector times matrix": einsum([(x, "i"), (R, "ij")], "j"),
    "inner product": einsum([(x, "i"), (y, "i")], ""),
    "stacked products": einsum([(B, "bij"), (B, "bjk")], "bik"),
    "stacked by one": einsum([(B, "bij"), (X, "jk")], "bik"),
    "stacked by the other": einsum([(X, "ij"), (B, "bjk")], "bik"),
    "stacked vectors": einsum([(V, "bi"), (B, "bij")], "bj"),
    "a stack of vectors": einsum([(B, "bij"), (V, "bj")], "bi"),
    "a factor of one label": einsum([(x, "i"), (y, "j"), (s, "")], "ji", -sympy.S.Half),
    "sum of broadcasts": Sum((full(2, (n, m)), einsum([(x, "i")], "ij", sizes={"j": m})), (n, m)),
    "differences": Sum((einsum([(X, "ij")], "ij", sympy.S.NegativeOne), X, Delta(n)), (n, n)),
    "map": Map(sympy.exp(slot(0)) * slot(1) - slot(0) ** 2, (x, y)),
    "map of a broadcast": Map(sympy.tanh(slot(0)), (einsum([(x, "i")], "bi", sizes={"b": k}),)),
    "branches": Map(
        sympy.Piecewise(
            (slot(0), sympy.And(slot(0) > slot(1), slot(1) < 1, slot(0) < 2)), (slot(1), True)
        ),
        (einsum([(x, "i")], "bi", sizes={"b": k}), V),
    ),
    "operation": Apply(INVERSE, ((X, ()),)),
    "stacked operation": Apply(INVERSE, ((B, (0,)),), (k,)),
    "broadcast operation": Apply(SOFTMAX, ((x, ()),), (k,)),
    "operation of turned stacks": Apply(SOFTMAX, ((C, (1, 0)),), (m, n)),
    "operation of several stacks": Apply(
        OPERATIONS["solve_sylvester"],
        ((Sum((B, B), B.shape), (1,)), (Sum((X, Delta(n), Delta(n)), (n, n)), ()), (B, (0,))),
        (k, k),
    ),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_the_text_of_a_node_is_its_value(node: Node) -> None:
    generator = np.random.default_rng(0)
    values = {leaf.name: draw(leaf, generator, SIZES) for leaf in leaves([node])}
    agrees(node, values, SIZES)


# Faults planted in what kernels come about by


def wrong_facts(part: str, *found: str) -> Plant:
    """Say of the nodes of a kind that they are what they are not."""
    return lambda monkeypatch: monkeypatch.setattr(facts, part, lambda node: frozenset(found))


def wrong_structure(structure: str, *found: str) -> Plant:
    return lambda monkeypatch: monkeypatch.setitem(
        facts.DECLARED_FACTS, structure, frozenset(found)
    )


def wrong_record(name: str, **fields: Any) -> Plant:
    """Plant other fields in the record of an operation."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        for field, value in fields.items():
            monkeypatch.setitem(vars(OPERATIONS[name]), field, value)

    return plant


def wrong_rule(rules: str, rule: Callable[[Any], Any]) -> Plant:
    """Add a rule to the simplifier's."""
    return lambda monkeypatch: monkeypatch.setattr(
        simplifying, rules, (rule, *getattr(simplifying, rules))
    )


def wrong_form(place: ModuleType, name: str, change: Callable[[Any], Any]) -> Plant:
    """Change what a function of a normal form returns."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        right = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, **options: change(right(*given, **options)))

    return plant


def exchanged(factors: list[Any]) -> list[Any]:
    """The axes of the first matrix among the factors exchanged."""
    for position, (node, labels) in enumerate(factors):
        if node.ndim == 2 and isinstance(node, Leaf):
            return [*factors[:position], (node, labels[::-1]), *factors[position + 1 :]]
    return factors


def forgets_thirds(product: Any) -> Any:
    return product.scaled(sympy.Rational(1, 3)) if product.coefficient == 3 else None


def sine_is_cosine(node: Map) -> Node | None:
    return (
        Map(sympy.cos(slot(0)), node.arguments) if node.expression == sympy.sin(slot(0)) else None
    )


def determinant_is_logarithm(node: Apply) -> Node | None:
    if node.operation is not OPERATIONS["det"]:
        return None
    return Apply(OPERATIONS["logabsdet"], node.arguments, node.stack)


def transposed_sum(tree: Any) -> Any:
    return tree if tree.rank != 2 else Transpose(tree)


Z, D = dx.matrix("Z", 2, 2), dx.matrix("D", 2, 2)
G, unit = dx.matrix("G", 2, 2, "invertible"), dx.eye(2)
z, u = dx.scalar("z"), dx.scalar("u")
h, C = dx.vector("h", 3), dx.matrix("C", 3, 3)


def first(value: dx.Array) -> dx.Function:
    """Keep first derivatives alone, as a vector has: for a number found by Newton's method these
    suffice to compile."""
    return dx.function("f", [z, h], value * h, wrt=[z])


SYMMETRIC = frozenset({"symmetric"})

VERIFIED: dict[str, tuple[Plant, Callable[[], dx.Function]]] = {
    "every matrix is symmetric": (
        wrong_structure("general", "symmetric"),
        lambda: dx.function("f", [Z, D], Z.T @ D),
    ),
    "an inverse is symmetric": (
        wrong_record("inv", facts=lambda arguments, output: SYMMETRIC),
        lambda: dx.function("f", [G, D], dx.inv(G).T @ D),
    ),
    "an inverse is lower": (
        wrong_record("inv", facts=lambda arguments, output: frozenset({"lower"})),
        lambda: dx.function("f", [G], dx.tril(dx.inv(G))),
    ),
    "a cross product's matrix is symmetric": (
        wrong_record("skew", facts=lambda arguments, output: SYMMETRIC),
        lambda: dx.function("f", [h, C], dx.skew(h).T * C, wrt=[C]),
    ),
    "half of a triangle is symmetric": (
        wrong_record("half_lower", facts=lambda arguments, output: SYMMETRIC),
        lambda: dx.function("f", [Z, D], dx.half_lower(Z).T * D + D.T, wrt=[D]),
    ),
    "what is entry by entry is symmetric": (
        wrong_facts("_map", "symmetric"),
        lambda: dx.function("f", [Z, D], dx.tanh(Z).T @ D),
    ),
    "a product is symmetric": (
        wrong_facts("_einsum", "symmetric"),
        lambda: dx.function("f", [Z, D], dx.inv(3 * unit + (Z @ D).T @ (Z @ D)) @ (Z @ D).T),
    ),
    "a sum is lower": (
        wrong_facts("_sum", "lower"),
        lambda: dx.function("f", [Z], dx.tril(Z + unit)),
    ),
    "an invertible matrix is orthogonal": (
        wrong_structure("invertible", "orthogonal"),
        lambda: dx.function("f", [G], dx.inv(G)),
    ),
    "three is one": (wrong_rule("RULES", forgets_thirds), lambda: dx.function("f", [Z], 3 * Z)),
    "a sine is a cosine": (
        wrong_rule("MAP_RULES", sine_is_cosine),
        lambda: dx.function("f", [Z], dx.sin(Z)),
    ),
    "a determinant is a logarithm": (
        wrong_rule("APPLY_RULES", determinant_is_logarithm),
        lambda: dx.function("f", [G], dx.det(G)),
    ),
    "a sine is a cosine in a minimum": (
        wrong_rule("MAP_RULES", sine_is_cosine),
        lambda: first(dx.argmin(u**2 - dx.cos(u) / 4 + u * z, u, 0)),
    ),
    "a sine is a cosine in a root": (
        wrong_rule("MAP_RULES", sine_is_cosine),
        lambda: first(dx.root(3 * u + dx.sin(u) - z, u, 0)),
    ),
    "products are turned": (
        wrong_form(simplifying, "canonical_factors", exchanged),
        lambda: dx.function("f", [Z, D], Z @ D),
    ),
    "an operation's text is another's": (
        wrong_record("det", numpy=lambda arguments, *_: f"(2 * np.linalg.det({arguments[0]}))"),
        lambda: dx.function("f", [G], dx.det(G)),
    ),
    "terms are lost": (
        wrong_form(simplifying._Simplifier, "_flat", lambda terms: terms[:2]),
        lambda: dx.function("f", [Z, D], Z + D @ Z + D.T),
    ),
    "coefficients are lost": (
        wrong_form(simplifying, "_split", lambda parts: (parts[0], abs(parts[1]))),
        lambda: dx.function("f", [Z, D], Z - D),
    ),
    "sums of formulas are turned": (
        wrong_form(algebra, "add", transposed_sum),
        lambda: dx.function("f", [Z, D], Z + D),
    ),
    "chains of formulas are turned": (
        wrong_form(algebra, "matmul", transposed_sum),
        lambda: dx.function("f", [Z, D], Z @ D),
    ),
}
"""Faults that verification of the module sees by itself."""
LATE = {
    *("a sine is a cosine", "a sine is a cosine in a minimum", "an inverse is symmetric"),
    *("a cross product's matrix is symmetric", "half of a triangle is symmetric"),
    *("a product is symmetric", "a sum is lower", "coefficients are lost"),
    "chains of formulas are turned",
}
"""The faults that only thorough tests plant, as others are in the same places."""

COMPARED: dict[str, tuple[Plant, Callable[[], dx.Function]]] = {
    "three is one in a derivative": (
        wrong_rule("RULES", forgets_thirds),
        lambda: dx.function("f", [Z], dx.sum(Z**3)).derivative("Z"),
    ),
    "three is one in a second derivative": (
        wrong_rule("RULES", forgets_thirds),
        lambda: dx.function("f", [Z], dx.sum(Z**3) + dx.sum(Z**2)).derivative("Z", "Z"),
    ),
    "three is one in a batched derivative": (
        wrong_rule("RULES", forgets_thirds),
        lambda: dx.function("f", [Z, D], (Z @ D) ** 3, batch=[Z]).derivative("Z"),
    ),
    "products are turned in a derivative": (
        wrong_form(simplifying, "canonical_factors", exchanged),
        lambda: dx.function("f", [Z, D], dx.sum((Z @ D) ** 2)).derivative("Z"),
    ),
    "coefficients are lost in a derivative": (
        wrong_form(simplifying, "_split", lambda parts: (parts[0], abs(parts[1]))),
        lambda: dx.function("f", [Z, D], dx.sum(Z**3 - D * D * Z), wrt=[Z]).derivative("Z"),
    ),
    "terms are lost in a derivative": (
        wrong_form(simplifying._Simplifier, "_flat", lambda terms: terms[:2]),
        lambda: dx.function("f", [Z, D], dx.sum(Z**3 + D * Z + D * D * Z)).derivative("Z"),
    ),
    "what is entry by entry is symmetric, for a function of a matrix": (
        wrong_facts("_map", "symmetric"),
        lambda: dx.function("f", [Z], dx.funm(dx.tanh(Z), sympy.erf)),
    ),
}
"""Faults in the declaration itself, as the compiler made it for the user."""


def refused(declared: Callable[[], dx.Function], directory: Path) -> None:
    with pytest.raises(dx.VerificationError):
        dx.build(declared(), directory, jobs=1)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("plant", "declared"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.thorough] if name in LATE else [])
        for name, case in VERIFIED.items()
    ],
)
def test_verification_refuses_a_planted_fault(
    plant: Plant,
    declared: Callable[[], dx.Function],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "require_agreement", lambda function: None)
    plant(monkeypatch)
    refused(declared, tmp_path / "generated")


@pytest.mark.parametrize(("plant", "declared"), COMPARED.values(), ids=COMPARED)
def test_comparison_refuses_a_planted_fault(
    plant: Plant,
    declared: Callable[[], dx.Function],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    refused(declared, tmp_path / "generated")


S = Leaf("S", (n, n), "symmetric")
PRODUCTS: list[tuple[Node, str]] = [
    (einsum([(R, "ji"), (S, "jk"), (R, "kl")], "il"), "R.T @ S @ R"),
    (einsum([(X, "ij"), (X, "jk"), (x, "k")], "i"), "X @ (X @ x)"),
    (einsum([(x, "i"), (X, "ji")], "j"), "X @ x"),
    (einsum([(X, "ij"), (x, "j"), (X, "kj")], "ik"), "X * x @ X.T"),
]


@pytest.mark.parametrize(("node", "text"), PRODUCTS, ids=[text for _, text in PRODUCTS])
def test_products_of_matrices_are_printed_pair_by_pair(node: Node, text: str) -> None:
    assert numpy_text(node, {}) == text
