"""Products taken apart: what is done to them leaves their values as they were."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Delta, Einsum, Node, Sum, einsum, labels_of
from derivatrix.compiler.ir.product import Product, components
from tests.strategies import LEAVES, SIZE, leaf_values, nodes, products

VALUES = leaf_values(0)
MAX_TERMS = 30


def value(node: Node) -> np.ndarray:
    return evaluate(node, VALUES, {})


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * scale)


@settings(max_examples=100, deadline=None)
@given(products())
@example(einsum([(Delta(SIZE), "ik"), (LEAVES["w"], "k"), (Delta(SIZE), "kj")], "ij"))
def test_reduced(node: Einsum) -> None:
    """Deltas are left between axes of the output alone, and no size is left to be counted."""
    product = Product.reduced(node)
    assert {*product.sizes} == {*labels_of(product.factors), *product.output}
    for factor, labels in product.factors:
        if isinstance(factor, Delta):
            assert len({*labels} & {*product.output}) == 2
    close(value(product.node), value(node))


@settings(max_examples=100, deadline=None)
@given(products())
def test_without_deltas(node: Einsum) -> None:
    """The entries at equal indices of axes with one label, and zeros elsewhere."""
    product = Product.of(node).without_deltas()
    axes = tuple(dict.fromkeys(product.output))
    entries = value(Product(product.coefficient, product.factors, axes, product.sizes).node)
    expected = np.zeros_like(value(node))
    indices = np.indices(entries.shape)
    expected[tuple(indices[axes.index(label)] for label in product.output)] = entries
    close(value(node), expected)


@settings(max_examples=100, deadline=None)
@given(nodes())
def test_rewritten(node: Node) -> None:
    """Products and sums in a product taken apart, as long as there are not too many terms."""

    def rewrite(product: Product, others: int) -> list[Product] | None:
        for position, (factor, _) in enumerate(product.factors):
            if isinstance(factor, Einsum | Sum) and others < MAX_TERMS:
                return product.multiplied_out(position, factor)
        return None

    actual = Product.of_factor(node).rewritten(rewrite)
    close(sum((value(product.node) for product in actual), np.zeros_like(value(node))), value(node))


@given(st.lists(st.lists(st.integers(0, 12), max_size=3).map(tuple)), st.sets(st.integers(0, 12)))
def test_components(labels: list[tuple[int, ...]], apart: set[int]) -> None:
    """The components of the graph whose edges link factors with their labels."""
    actual = components(list(enumerate(labels)), apart)
    pairs = [(i, len(labels) + own) for i, each in enumerate(labels) for own in {*each} - apart]
    rows, columns = ([pair[side] for pair in pairs] for side in (0, 1))
    size = len(labels) + 13
    graph = csr_array((np.ones(len(pairs)), (rows, columns)), shape=(size, size))
    _, of = connected_components(graph, directed=False)
    groups = [
        [factor for factor in enumerate(labels) if of[factor[0]] == number]
        for number in dict.fromkeys(of[: len(labels)])
    ]
    assert actual == groups
