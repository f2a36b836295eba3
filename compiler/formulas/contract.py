"""Products with labels as matrix notation, by reducing a graph whose edges are matrices.

Each factor is an item: a tree with a label for each of its axes. A label summed over that two
items share joins them into one; the vectors on a label scale the matrices that have it; and so
on, until what is left has just the output's labels. The rules are tried in the order of `RULES`.
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
    """The items left, the scalars found, and which labels are the output's."""

    items: list[Item]
    output: Labels
    sizes: Sizes
    scalars: list[Tree] = field(default_factory=list)

    def having(self, label: int) -> list[Item]:
        """The items with a label."""
        return [item for item in self.items if label in item[1]]

    def summed(self) -> list[int]:
        """The labels still to be summed over."""
        return [label for label in labels_of(self.items) if label not in self.output]

    def replace(self, old: Sequence[Item], tree: Tree, labels: Labels) -> bool:
        """Put one item in the place of others."""
        position = next(i for i, item in enumerate(self.items) if item is old[0])
        self.items[position] = (tree, labels) if labels else old[0]
        gone = old[1:] if labels else old
        self.items = [item for item in self.items if not any(item is other for other in gone)]
        if not labels:
            self.scalars.append(tree)
        return True


def contract(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """The product of items of at most two axes, summed over the labels that are not in `output`
    (at most two); an output label that no item has is broadcast. None: no matrix notation."""
    scalars = [tree for tree, labels in items if not labels]
    delta = next((item for item in items if _covers(item, Identity, output)), None)
    if delta is not None:
        return _on_diagonal([item for item in items if item is not delta], output, sizes)
    mask = next((item for item in items if _covers(item, Mask, output)), None)
    if mask is not None:
        return _on_triangle(mask, [item for item in items if item is not mask], output, sizes)
    graph = Graph([item for item in items if item[1]], output, sizes, scalars)
    large = [tree for tree, labels in graph.items if len(labels) > 2]
    if not all(isinstance(tree, Reshaped) for tree in large) or len(output) > 2:
        return None
    while any(rule(graph) for rule in RULES):
        pass
    if graph.summed() or any(len(labels) > 2 for _, labels in graph.items):
        return None
    shape = tuple(sizes[label] for label in output)
    return algebra.scale(sympy.S.One, graph.scalars, _assembled(graph, shape))


def _covers(item: Item, kind: type[Tree], output: Labels) -> bool:
    """Whether an item is of a kind and has the output's two labels."""
    tree, labels = item
    return isinstance(tree, kind) and len(output) == 2 and set(labels) == set(output)


def _on_diagonal(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """The product of `items` and the identity: a diagonal matrix."""
    first, second = output
    merged = [(tree, tuple(first if i == second else i for i in own)) for tree, own in items]
    vector = contract(merged, (first,), sizes)
    return None if vector is None else _diagonal_matrix(vector, sizes[first])


def _diagonal_matrix(vector: Tree, size: Dimension) -> Tree:
    """diag(v); a number has been a vector of equal entries."""
    if vector.rank == 0:
        return algebra.scale(sympy.S.One, [vector], Identity(size))
    return algebra.diag(vector)


def _on_triangle(mask: Item, items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree | None:
    """The product of `items` and the mask of a triangle."""
    tree, labels = mask
    rest = contract(items, output, sizes)
    assert isinstance(tree, Mask)
    lower = labels == output
    if rest is None:
        return None
    if not items:
        return tree if lower else Transpose(tree)
    return algebra.triangle(rest, lower, -tree.offset if lower else tree.offset)


def _loop(graph: Graph) -> bool:
    """A(i,i): a trace, or the diagonal."""
    for item in graph.items:
        tree, labels = item
        if len(labels) == 2 and labels[0] == labels[1]:
            if labels[0] not in graph.output and len(graph.having(labels[0])) == 1:
                return graph.replace([item], algebra.trace(tree), ())
            return graph.replace([item], algebra.diagonal(tree), labels[:1])
    return False


def _parallel(graph: Graph) -> bool:
    """Items with the same labels: an inner product, the trace of a product, or a product entry
    by entry."""
    for position, item in enumerate(graph.items):
        shared = [other for other in graph.items if other[1] == item[1]]
        if len(shared) > 2 and _only_vectors(graph, item[1], shared):
            product = algebra.hadamard([tree for tree, _ in shared])
            return graph.replace(shared, algebra.total(product), ())
        for other in graph.items[position + 1 :]:
            if set(item[1]) != set(other[1]):
                continue
            labels = item[1]
            free = [i for i in labels if i in graph.output or len(graph.having(i)) > 2]
            first, second = item[0], _turned(other, labels)
            if free:
                product = algebra.hadamard([first, second])
                return graph.replace([item, other], product, labels)
            return graph.replace([item, other], algebra.contracted(first, second), ())
    return False


def _only_vectors(graph: Graph, labels: Labels, vectors: Sequence[Item]) -> bool:
    """Whether a summed label is that of these vectors alone."""
    if len(labels) > 1 or labels[0] in graph.output:
        return False
    return len(graph.having(labels[0])) == len(vectors)


def _turned(item: Item, labels: Labels) -> Tree:
    """The item's tree with its axes in the order of `labels`."""
    return item[0] if item[1] == labels else algebra.transpose(item[0])


def _alone(graph: Graph) -> bool:
    """A summed label that one item has: a product with ones."""
    for label in graph.summed():
        items = graph.having(label)
        if len(items) == 1 and len(items[0][1]) < 3:
            ones = Ones(graph.sizes[label])
            return _join(graph, items[0], (ones, (label,)), label, [items[0]])
    return False


def _join(graph: Graph, left: Item, right: Item, label: int, old: Sequence[Item]) -> bool:
    """Sum over a label that just two items have."""
    if len(left[1]) < len(right[1]):
        left, right = right, left
    first = tuple(i for i in left[1] if i != label)
    second = tuple(i for i in right[1] if i != label)
    column = _turned(right, (label, *second))
    if not first:
        return graph.replace(old, algebra.matmul(Transpose(left[0]), column), ())
    return graph.replace(
        old, algebra.matmul(_turned(left, (*first, label)), column), first + second
    )


def _pair(graph: Graph) -> bool:
    """A summed label that two items have: a product; those with vectors first."""
    found = []
    for order, label in enumerate(graph.summed()):
        items = graph.having(label)
        if len(items) == 2 and all(len(labels) < 3 for _, labels in items):
            found.append((sum(len(labels) for _, labels in items), order, label, items))
    if not found:
        return False
    _, _, label, items = min(found, key=lambda entry: entry[:2])
    return _join(graph, items[0], items[1], label, items)


def _weighted(graph: Graph) -> bool:
    """A vector between two matrices: A diag(v) B; on an output's label: diag(v) A."""
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


def _private(graph: Graph, label: int) -> Item | None:
    """The one other item that has a summed label which two items have."""
    items = [item for item in graph.having(label) if not isinstance(item[0], Reshaped)]
    alone = label not in graph.output and len(graph.having(label)) == 2
    return items[0] if alone and len(items) == 1 else None


def _vectorised(graph: Graph) -> bool:
    """A matrix both of whose axes are merged: vec; a vector that is split: its inverse."""
    for item in graph.items:
        merge, labels = item
        if not isinstance(merge, Reshaped) or len(set(labels)) < 3:
            continue
        merged, first, second = labels
        whole = _private(graph, first)
        if whole is not None and whole is _private(graph, second):
            order = labels[1:] if merge.packed else (second, first)
            vector = Vectorised(_turned(whole, order), merge.packed)
            return graph.replace([whole, item], vector, (merged,))
        vector_item = _private(graph, merged)
        if vector_item is not None and len(vector_item[1]) == 1:
            order, sizes = labels[1:], (merge.outer, merge.inner)
            if not merge.packed:
                order, sizes = order[::-1], sizes[::-1]
            matrix = Unvectorised(vector_item[0], *sizes, merge.packed)
            return graph.replace([vector_item, item], matrix, order)
    return False


def _kronecker(graph: Graph) -> bool:
    """Two pairs of axes merged, of two matrices, or one pair of two vectors."""
    merges = [item for item in graph.items if isinstance(item[0], Reshaped) and not item[0].packed]
    for one in merges:
        left, right = (_private(graph, label) for label in one[1][1:])
        if left is None or right is None or left is right:
            continue
        if len(left[1]) == len(right[1]) == 1:
            product = Kronecker(left[0], right[0])
            return graph.replace([one, left, right], product, one[1][:1])
        for two in merges:
            if two is one:
                continue
            if (_private(graph, two[1][1]), _private(graph, two[1][2])) != (left, right):
                continue
            factors = (
                _turned(item, (one[1][place], two[1][place]))
                for place, item in ((1, left), (2, right))
            )
            return graph.replace(
                [one, two, left, right], Kronecker(*factors), (one[1][0], two[1][0])
            )
    return False


RULES: tuple[Callable[[Graph], bool], ...] = (
    _loop,
    _parallel,
    _alone,
    _pair,
    _weighted,
    _vectorised,
    _kronecker,
)


def _assembled(graph: Graph, shape: Shape) -> Tree | None:
    """The items left, each with labels of the output only, as one array."""
    output = graph.output
    vectors = {labels[0]: tree for tree, labels in graph.items if len(labels) == 1}
    matrices = [item for item in graph.items if len(item[1]) == 2]
    if matrices:
        return _turned(matrices[0], output)
    if len(vectors) == 2:
        return algebra.matmul(vectors[output[0]], Transpose(vectors[output[1]]))
    if vectors:
        ((label, tree),) = vectors.items()
        return entrywise.spread(tree, (output.index(label),), shape)
    if not shape:
        return None
    return entrywise.spread(algebra.scale(sympy.S.One, []), (), shape)
