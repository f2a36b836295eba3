"""The declaration's text has nothing in common with the kernels: it is the value of the declared
expression for every kind of node, and faults planted in facts, rules and normal forms, which
kernels come about by, do not pass a build."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis
import numpy as np
import pytest
import sympy
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler.declaration import declaration
from derivatrix.compiler.dimensions import evaluate as number
from derivatrix.compiler.evaluate import evaluate
from derivatrix.compiler.ir import (
    Apply,
    Constant,
    Delta,
    Leaf,
    Map,
    Merge,
    Node,
    Pack,
    Pick,
    Select,
    Sum,
    Triangle,
    einsum,
    full,
    leaves,
    slot,
    zeros,
)
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.runtime.reference import OutOfDomain, Text
from tests.points import SIZES, draw
from tests.strategies import expressions, leaf_values, nodes

n, m, k = dx.dims("n m k")
HALF = sympy.expand(n * (n + 1) / 2)


def agrees(node: Node, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    shape = tuple(int(number(size, sizes)) for size in node.shape)
    expected = evaluate(node, values, sizes)
    try:
        found = Text(declaration(node, {}))({**sizes, **values}, shape)
    except OutOfDomain:
        assert not np.isfinite(expected).all()
        return
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max(initial=1))


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(nodes(), st.integers(0, 100))
def test_the_text_of_a_product_or_sum_is_its_value(node: Node, seed: int) -> None:
    agrees(node, leaf_values(seed), {})


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(expressions(), st.integers(0, 100))
def test_the_text_of_an_expression_is_its_value(array: dx.Function, seed: int) -> None:
    agrees(array.node, leaf_values(seed), {})


x, y = Leaf("x", (n,)), Leaf("y", (n,))
X, R, C = Leaf("X", (n, n)), Leaf("R", (n, m)), Leaf("C", (n, m, k))
P, Q = Leaf("P", (HALF,)), Leaf("Q", (n * m,))
B, V = Leaf("B", (k, n, n)), Leaf("V", (k, n))
s = Leaf("s", ())
HOLDING = Constant(np.arange(6.0).reshape(2, 3) / 7)
SELECTED = Select(n - 1, n, sympy.S.One, 1)
TURNED = Select(n, n, n - 1, -1)
THIRD = Select(sympy.Integer(2), n, sympy.S.Zero, 2)
PICKED = Pick((2, 0, 0, 1), n)
MERGED, PACKED = Merge(n, m), Pack(n)
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
            (Delta(n), SELECTED, TURNED, THIRD, Triangle(n, m), Triangle(n, m, 2), PICKED, MERGED, PACKED)
        )
    },
    "taken": einsum([(X, "ij"), (SELECTED, "ki"), (TURNED, "lj")], "lk"),
    "taken twice": einsum([(X, "ij"), (THIRD, "ki"), (THIRD, "kj")], "k"),
    "taken and put back": einsum([(x, "j"), (THIRD, "ij"), (THIRD, "ik")], "k"),
    "put into zeros": einsum([(Leaf("z", (n - 1,)), "i"), (SELECTED, "ij")], "j"),
    "selected of a diagonal": einsum([(X, "jj"), (SELECTED, "ij")], "i"),
    "selected by two": einsum([(x, "j"), (y, "j"), (SELECTED, "ij")], "i"),
    "gathered": einsum([(R, "ja"), (PICKED, "ij")], "ai"),
    "added back": einsum([(Leaf("z", (sympy.Integer(4),)), "i"), (PICKED, "ij")], "j"),
    "selections alone": einsum([(SELECTED, "ij"), (TURNED, "jk"), (PICKED, "lk")], "il"),
    "merged": einsum([(MERGED, "kij"), (R, "ij")], "k"),
    "merged in the middle": einsum([(Merge(m, k), "qjk"), (C, "ijk")], "qi"),
    "merged by another order": einsum([(Merge(k, n), "qki"), (C, "ijk")], "jq"),
    "split": einsum([(MERGED, "kij"), (Q, "k")], "ji"),
    "merged of two": einsum([(MERGED, "kij"), (x, "i"), (Leaf("u", (m,)), "j")], "k"),
    "merged diagonal": einsum([(Merge(n, n), "kii")], "k"),
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
