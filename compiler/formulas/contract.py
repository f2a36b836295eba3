"""Labelled products in matrix notation, by reducing a graph whose nodes are labels and whose edges
are matrices.

Each factor is an item: a tree with a label for each of its axes. The rules in `RULES`, tried in
this order, replace items by one, until all labels are those of the output: two items that share a
summed label become their product, vectors on a label scale the matrices that have it, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy

from derivatrix.compiler.formulas import algebra, entrywise
from derivatrix.compiler.formulas.build import Item
from derivatrix.compiler.formulas.tree import (
    Identity,
    Kronecker,
    Mask,
    Ones,
    Reshaped,
    Transpose,
    Tree,
    Unvectorised,
    Vectorised,
)
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.nodes import Labels, labels_of

Sizes = Mapping[int, Dimension]


@dataclass
class Graph:
    """The items, the scalars split off, the output's labels, and the sizes of all labels."""

    items: list[Item]
    output: Labels
    sizes: Sizes
    scalars: list[Tree] = field(default_factory=list)

    def having(self, label: int) -> list[Item]:
        """List the items with a label."""
        return [item for item in self.items if label in item[1]]

    def summed(self) -> list[int]:
        """List the labels that are summed over."""
        return [label for label in labels_of(self.items) if label not in self.output]

    def replace(self, old: Sequence[Item], tree: Tree, labels: Labels) -> bool:
        """Replace items by one, or by a scalar. Returns True, as a rule that was applied."""
        position = next(i for i, item in enumerate(self.items) if item is old[0])
        if labels:
            self.items[position] = (tree, labels)
        else:
            self.scalars.append(tree)
        self.items = [item for item in self.items if not any(item is old_item for old_item in old)]
        return True


def contract(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """Multiply items of at most two axes and sum over the labels that are not in `output` (of at
    most two). An output label that no item has is broadcast. None: there is no matrix notation."""
    delta = next((item for item in items if _covers(item, Identity, output)), None)
    if delta is not None:
        return _on_diagonal([item for item in items if item is not delta], output, sizes)
    mask = next((item for item in items if _covers(item, Mask, output)), None)
    if mask is not None:
        return _on_triangle(mask, [item for item in items if item is not mask], output, sizes)
    large = [tree for tree, labels in items if len(labels) > 2]
    if not all(isinstance(tree, Reshaped) for tree in large) or len(output) > 2:
        return None
    graph = reduce_graph(items, output, sizes)
    if graph.summed() or any(len(labels) > 2 for _, labels in graph.items):
        return None
    shape = tuple(sizes[label] for label in output)
    return algebra.scale(sympy.S.One, graph.scalars, _assembled(graph, shape))


def _covers(item: Item, kind: type[Tree], output: Labels) -> bool:
    """Tell whether an item is of a kind and has the output's two labels."""
    tree, labels = item
    return isinstance(tree, kind) and len(output) == 2 and set(labels) == set(output)


def _on_diagonal(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """Multiply `items` by the identity: a diagonal matrix."""
    row, column = output
    merged = [(tree, tuple(row if i == column else i for i in labels)) for tree, labels in items]
    vector = contract(merged, (row,), sizes)
    return None if vector is None else _diagonal_matrix(vector, sizes[row])


def _diagonal_matrix(vector: Tree, size: Dimension) -> Tree:
    """Make diag(v); a number stands for a vector of equal entries."""
    if vector.rank == 0:
        return algebra.scale(sympy.S.One, [vector], Identity(size))
    return algebra.diag(vector)


def _on_triangle(mask: Item, items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """Multiply `items` by the mask of a triangle."""
    tree, labels = mask
    product = contract(items, output, sizes)
    assert isinstance(tree, Mask)
    is_lower = labels == output
    if product is None:
        return None
    if not items:
        return tree if is_lower else Transpose(tree)
    return algebra.triangle(product, is_lower, -tree.offset if is_lower else tree.offset)


def _reduce_loop(graph: Graph) -> bool:
    """A(i,i) is a trace, or the diagonal if another item or the output has the label."""
    for item in graph.items:
        tree, labels = item
        if len(labels) == 2 and labels[0] == labels[1]:
            if labels[0] not in graph.output and len(graph.having(labels[0])) == 1:
                return graph.replace([item], algebra.trace(tree), ())
            return graph.replace([item], algebra.diagonal(tree), labels[:1])
    return False


def _reduce_parallel(graph: Graph) -> bool:
    """Two items with the same labels are an inner product, the trace of a product, or an entrywise
    product; more than two vectors on a label that only they have are the sum of theirs."""
    for position, item in enumerate(graph.items):
        tree, labels = item
        alike = [other_item for other_item in graph.items if other_item[1] == labels]
        is_summed_vector = len(labels) == 1 and labels[0] not in graph.output
        if len(alike) > 2 and is_summed_vector and len(graph.having(labels[0])) == len(alike):
            product = algebra.hadamard([tree for tree, _ in alike])
            return graph.replace(alike, algebra.total(product), ())
        for other_item in graph.items[position + 1 :]:
            if set(labels) == set(other_item[1]):
                factors = tree, _with_axes(other_item, labels)
                if any(i in graph.output or len(graph.having(i)) > 2 for i in labels):
                    return graph.replace([item, other_item], algebra.hadamard(factors), labels)
                return graph.replace([item, other_item], algebra.contracted(*factors), ())
    return False


def _with_axes(item: Item, labels: Labels) -> Tree:
    """Return the item's tree with its axes in the order of `labels`."""
    return item[0] if item[1] == labels else algebra.transpose(item[0])


def _reduce_single(graph: Graph) -> bool:
    """A summed label that one item has is a product with ones."""
    for label in graph.summed():
        items = graph.having(label)
        if len(items) == 1 and len(items[0][1]) < 3:
            ones = Ones(graph.sizes[label])
            return _join(graph, items[0], (ones, (label,)), label, [items[0]])
    return False


def _join(graph: Graph, left: Item, right: Item, label: int, old: Sequence[Item]) -> bool:
    """Replace `old` by the product of two items, summed over a label that only they have."""
    if len(left[1]) < len(right[1]):
        left, right = right, left
    rows = tuple(i for i in left[1] if i != label)
    columns = tuple(i for i in right[1] if i != label)
    left_tree = _with_axes(left, (*rows, label)) if rows else Transpose(left[0])
    product = algebra.matmul(left_tree, _with_axes(right, (label, *columns)))
    return graph.replace(old, product, rows + columns)


def _reduce_pair(graph: Graph) -> bool:
    """A summed label that two items have is a matrix product; those with vectors come first."""
    pairs = [(label, graph.having(label)) for label in graph.summed()]
    pairs = [
        (label, items)
        for label, items in pairs
        if len(items) == 2 and all(len(labels) < 3 for _, labels in items)
    ]
    if not pairs:
        return False
    label, items = min(pairs, key=lambda pair: sum(len(labels) for _, labels in pair[1]))
    return _join(graph, items[0], items[1], label, items)


def _reduce_weight(graph: Graph) -> bool:
    """A vector between two matrices is A diag(v) B; on a label of the output, diag(v) A."""
    for vector in graph.items:
        if len(vector[1]) != 1:
            continue
        label = vector[1][0]
        matrices = [item for item in graph.having(label) if len(item[1]) == 2]
        if matrices and (label in graph.output or len(matrices) == 2):
            tree, labels = matrices[0]
            weights = _diagonal_matrix(vector[0], graph.sizes[label])
            factors = (weights, tree) if labels[0] == label else (tree, weights)
            return graph.replace([matrices[0], vector], algebra.matmul(*factors), labels)
    return False


def _merge_partner(graph: Graph, label: int) -> Item | None:
    """Return the item that shares a summed label with a merge of axes alone."""
    items = [item for item in graph.having(label) if not isinstance(item[0], Reshaped)]
    is_private = label not in graph.output and len(graph.having(label)) == 2
    return items[0] if is_private and len(items) == 1 else None


def _reduce_vectorised(graph: Graph) -> bool:
    """A matrix whose axes are merged is its vec; a vector whose axis is split, the inverse."""
    for item in graph.items:
        merge, labels = item
        if not isinstance(merge, Reshaped) or len(set(labels)) < 3:
            continue
        merged, outer, inner = labels
        matrix_item = _merge_partner(graph, outer)
        if matrix_item is not None and matrix_item is _merge_partner(graph, inner):
            order = (outer, inner) if merge.packed else (inner, outer)
            vector = Vectorised(_with_axes(matrix_item, order), merge.packed)
            return graph.replace([matrix_item, item], vector, (merged,))
        vector_item = _merge_partner(graph, merged)
        if vector_item is not None and len(vector_item[1]) == 1:
            order, sizes = (outer, inner), (merge.outer, merge.inner)
            if not merge.packed:
                order, sizes = order[::-1], sizes[::-1]
            matrix = Unvectorised(vector_item[0], *sizes, merge.packed)
            return graph.replace([vector_item, item], matrix, order)
    return False


def _reduce_kronecker(graph: Graph) -> bool:
    """The merged axes of two vectors are a Kronecker product; so are both of two matrices."""
    merges = [item for item in graph.items if isinstance(item[0], Reshaped) and not item[0].packed]
    for merge in merges:
        merged, *labels = merge[1]
        left, right = (_merge_partner(graph, label) for label in labels)
        if left is None or right is None or left is right:
            continue
        if len(left[1]) == len(right[1]) == 1:
            return graph.replace([merge, left, right], Kronecker(left[0], right[0]), (merged,))
        for column_merge in merges:
            merged_column, *columns = column_merge[1]
            partners = [_merge_partner(graph, label) for label in columns]
            if column_merge is not merge and partners == [left, right]:
                pairs = zip((left, right), zip(labels, columns, strict=True), strict=True)
                factors = (_with_axes(item, axes) for item, axes in pairs)
                old = [merge, column_merge, left, right]
                return graph.replace(old, Kronecker(*factors), (merged, merged_column))
    return False


RULES: tuple[Callable[[Graph], bool], ...] = (
    _reduce_loop,
    _reduce_parallel,
    _reduce_single,
    _reduce_pair,
    _reduce_weight,
    _reduce_vectorised,
    _reduce_kronecker,
)


def reduce_graph(items: Sequence[Item], output: Labels, sizes: Sizes) -> Graph:
    """Apply the rules to the graph of the items until none applies."""
    scalars = [tree for tree, labels in items if not labels]
    graph = Graph([item for item in items if item[1]], output, sizes, scalars)
    while any(rule(graph) for rule in RULES):
        pass
    return graph


def _assembled(graph: Graph, shape: Shape) -> Tree | None:
    """Combine the items of a reduced graph, which have labels of the output only, to one array."""
    output = graph.output
    vectors = {labels[0]: tree for tree, labels in graph.items if len(labels) == 1}
    matrices = [item for item in graph.items if len(item[1]) == 2]
    if matrices:
        return _with_axes(matrices[0], output)
    if len(vectors) == 2:
        return algebra.matmul(vectors[output[0]], Transpose(vectors[output[1]]))
    if vectors:
        ((label, tree),) = vectors.items()
        return entrywise.spread(tree, (output.index(label),), shape)
    if not shape:
        return None
    return entrywise.spread(algebra.scale(sympy.S.One, []), (), shape)
