"""Contractions with a factor in common are one, where that takes fewer operations."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import dims
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.plan.common_factors import pull_out
from derivatrix.compiler.plan.nominal_sizes import nominal
from derivatrix.compiler.plan.shared_functions import share_functions
from derivatrix.compiler.plan.sums_of_contractions import join_contractions
from derivatrix.compiler.plan.variants import variants
from tests.plain import run_plain

n, m = dims("n m")
A, B, C, P, Q = (ir.Leaf(name, (n, n)) for name in "ABCPQ")
v, w = ir.Leaf("v", (n,)), ir.Leaf("w", (m,))
LEAVES = (A, B, C, P, Q, v, w)
SIZES = {"n": 3, "m": 2}


def total(*terms: ir.Node) -> ir.Sum:
    return ir.Sum(terms, terms[0].shape)


def product(left: ir.Node, right: ir.Node, scale: int = 1) -> ir.Einsum:
    return ir.einsum([(left, "ik"), (right, "kj")], "ij", sympy.Integer(scale))


def join(*roots: ir.Node) -> list[ir.Node]:
    """The roots joined, which have to be what they were."""
    new = join_contractions(roots, nominal)
    actual = [new[root] for root in roots]
    random = np.random.default_rng(0)
    given = {leaf.name: random.normal(size=[SIZES[str(s)] for s in leaf.shape]) for leaf in LEAVES}
    for array, expected in zip(
        evaluate_all(actual, given, SIZES), evaluate_all(roots, given, SIZES), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)
    return actual


def contractions(*roots: ir.Node) -> int:
    """Count the products of matrices in the nodes."""
    return sum(
        isinstance(node, ir.Einsum) and len(node.factors) > 1 and bool(node.contracted)
        for node in ir.topological(roots)
    )


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([product(A, P), product(B, P, 2), product(C, P)], 1),
        ([product(P, A), product(P, B)], 1),
        ([product(A, P), product(B, P), product(P, A), product(P, B)], 2),
        ([product(A, P), product(A, Q), product(B, P)], 2),
        ([product(product(A, Q), P), product(product(B, Q), P)], 2),
        ([product(A, P), ir.einsum([(B, "ki"), (P, "kj")], "ij"), C], 1),
        ([product(A, P), ir.einsum([(B, "ik"), (P, "jk")], "ij")], 2),
        ([product(A, P), product(B, Q)], 2),
    ],
)
def test_as_few_as_there_are_factors(terms: list[ir.Node], expected: int) -> None:
    (actual,) = join(total(*terms))
    assert contractions(actual) == expected


def test_what_is_multiplied_entry_by_entry_on_the_way() -> None:
    def turned(inner: ir.Node) -> ir.Einsum:
        return ir.einsum([(v, "i"), (w, "l"), (product(inner, P), "ij")], "ijl")

    (result,) = join(total(turned(A), turned(B)))
    assert contractions(result) == 1


def test_what_else_is_read_stays() -> None:
    first, second = product(A, P), product(B, P)
    assert join(total(first, second), first) == [total(first, second), first]


def test_sums_that_cost_more_than_they_save_stay() -> None:
    """A v + B v reads both matrices once; A + B would be written too. The deltas of the other two
    terms leave vectors, whose sum would have three axes."""
    vectors = [ir.einsum([(matrix, "ij"), (v, "j")], "i") for matrix in (A, B)]
    assert join(total(*vectors)) == [total(*vectors)]
    delta = ir.Delta(n)
    apart = [
        ir.einsum([(delta, "ik"), (A, "aj"), (P, "al")], "ijkl"),
        ir.einsum([(delta, "jk"), (B, "ai"), (P, "al")], "ijkl"),
    ]
    assert join(total(*apart)) == [total(*apart)]


def layers(count: int) -> Derivatives:
    N, d = dx.dims("N d")
    X, weights = dx.matrix("X", N, d), [dx.matrix(f"W{i}", d, d) for i in range(count)]
    output = X
    for weight in weights:
        output = dx.tanh(output @ weight.T)
    return Derivatives(dx.function("layers", [X, *weights], dx.sum(output**2), wrt=[weights[0]]))


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_networks_hessian_is_added_up_layer_by_layer(count: int) -> None:
    """One product has the result's entries, however many layers there are; the others take no more
    than the samples times a product of two matrices, a few for each layer."""
    nodes = pull_out(list(layers(count).kernel("hessian")[1].values()))
    (result,) = variants(share_functions(nodes))
    degrees = [sum(sympy.degree(size, s) for s in size.free_symbols) for _, size in result.terms]
    assert max(degrees) == 5 and degrees.count(5) == 1
    assert degrees.count(4) < 4 * count


def test_the_hessian_is_what_it_was() -> None:
    derivatives = layers(4)
    random, sizes = np.random.default_rng(0), {"N": 3, "d": 2}
    arguments, results = derivatives.kernel("hessian")
    given = {
        leaf.name: random.normal(size=[sizes[str(s)] for s in leaf.shape]) for leaf in arguments
    }
    (expected,) = evaluate_all(list(results.values()), given, sizes)
    out = np.full(expected.shape, np.nan)
    run_plain(kernel_plan(derivatives, "hessian"), given, [out])
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)
