"""Common factors of sums, and common functions."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import dims
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.plan.common_factors import pull_out
from derivatrix.compiler.plan.shared_functions import share_functions

n, m = dims("n m")
x, y = ir.Leaf("x", (n,)), ir.Leaf("y", (m,))
M, N = ir.Leaf("M", (n, m)), ir.Leaf("N", (n, m))


def total(*terms: ir.Node) -> ir.Sum:
    return ir.Sum(terms, terms[0].shape)


def values(leaves: list[ir.Leaf]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    sizes = {"n": 3, "m": 2, "d": 4}
    return {leaf.name: random.normal(size=[sizes[str(s)] for s in leaf.shape]) for leaf in leaves}


def test_a_sum_loses_the_axes_of_its_common_factor() -> None:
    first = ir.einsum([(x, "k"), (M, "ij")], "ijk")
    second = ir.einsum([(x, "k"), (N, "ij")], "ijk", 2)
    third = ir.einsum([(x, "k"), (M, "il"), (N, "pl"), (M, "pj")], "ijk")
    (pulled,) = pull_out([total(first, second, third)])
    assert isinstance(pulled, ir.Einsum)
    assert sorted(node.ndim for node, _ in pulled.factors) == [1, 2]


def test_products_around_take_the_factor_over() -> None:
    inner = total(ir.einsum([(x, "k"), (M, "ij")], "ijk"), ir.einsum([(x, "k"), (N, "ij")], "ijk"))
    (outer,) = pull_out([ir.einsum([(inner, "ijk"), (y, "j")], "ik")])
    assert isinstance(outer, ir.Einsum)
    assert {node.ndim for node, _ in outer.factors} == {1, 2}


def test_other_terms_stay() -> None:
    first = ir.einsum([(x, "k"), (M, "ij")], "ijk")
    second = ir.einsum([(x, "k"), (N, "ij")], "ijk")
    other = ir.einsum([(M, "kj"), (x, "i")], "ijk")
    (pulled,) = pull_out([total(first, second, other)])
    assert isinstance(pulled, ir.Sum)
    assert len(pulled.terms) == 2


def test_what_would_keep_all_axes_stays() -> None:
    same = total(ir.einsum([(M, "ij"), (N, "ij")], "ij"), ir.einsum([(M, "ij"), (x, "i")], "ij"))
    assert pull_out([same]) == [same]


def test_functions_at_hand_are_read() -> None:
    """Also those that are at hand in a function at hand."""
    hidden = sympy.tanh(ir.slot(0))
    inner = ir.Map(hidden, (M,))
    outer = ir.Map(sympy.exp(hidden), (M,))
    slope = ir.Map(ir.slot(1) * sympy.exp(hidden) * (1 - hidden**2), (M, N))
    shared = share_functions([slope, outer, inner])
    assert shared[2] is inner
    assert shared[1] == ir.Map(sympy.exp(ir.slot(0)), (inner,))
    first = shared[0]
    assert isinstance(first, ir.Map)
    assert {*first.arguments} == {N, inner, shared[1]}
    assert not first.expression.atoms(sympy.Function)


def test_cheap_functions_and_those_of_other_arrays_stay() -> None:
    square = ir.slot(0) ** 2
    maps = [
        ir.Map(square, (M,)),
        ir.Map(1 - square, (M,)),
        ir.Map(sympy.exp(ir.slot(0)), (N,)),
        ir.Map(1 + sympy.exp(ir.slot(0)), (M,)),
    ]
    assert share_functions(maps) == maps


d, k = dx.dims("n m")
W, V, v, u = dx.matrix("W", k, d), dx.matrix("V", k, k), dx.vector("v", k), dx.vector("u", d)


@pytest.mark.parametrize(
    "function",
    [
        dx.function("two", [W, V, v, u], v @ dx.tanh(V @ dx.tanh(W @ u)), wrt=[W]),
        dx.function("loss", [W, u, v], dx.sum((dx.tanh(W @ u) - v) ** 2), wrt=[W, u]),
        dx.function("product", [W, u, v], (v @ W @ u) ** 3, wrt=[W]),
    ],
    ids=lambda function: function.name,
)
def test_derivatives_stay_what_they_are(function: dx.Function) -> None:
    derivatives = Derivatives(function)
    sizes = {"n": 3, "m": 2}
    for kind in derivatives.kinds:
        arguments, results = derivatives.kernel(kind)
        nodes = list(results.values())
        given = values(arguments)
        actual = evaluate_all(share_functions(pull_out(nodes)), given, sizes)
        for array, expected in zip(actual, evaluate_all(nodes, given, sizes), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-10, atol=1e-12)
