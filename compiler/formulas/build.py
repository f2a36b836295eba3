"""Building trees from nodes, as all styles do.

A node that is used more than once and has a long text becomes a definition, so that texts grow no
faster than the graph. So does a deep node, which bounds the depth of trees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.formulas import algebra, entrywise, expressions
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.definitions import Definition, provisional_name
from derivatrix.compiler.formulas.rewrite import replaced
from derivatrix.compiler.formulas.sharing import name_repeated_parts
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, Node, labels_of, leaves, slot, topological
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts

MAX_DEPTH = 20
"""Depth of a tree at which its node becomes a definition."""

SYMMETRIC = ("symmetric", "spd", "diagonal")


class Builder(ABC):
    """Builds the tree of `root`.

    bound: placeholders of loops, with the nodes and the first indices that these stand for;
    running: the letters of times and stacked axes of the loops around a place.
    names: by a leaf's name, the name to show (for a cotangent or tangent: the name that gets the
    accent). differentials: by a leaf's name, the node whose differential it is. declared: names
    that no definition gets, even if the formula does not have them.
    """

    by_index = False
    max_repeated_length: int
    """Longest text of a node that is written more than once without a definition."""

    def __init__(
        self,
        root: Node,
        names: Mapping[str, str] | None = None,
        differentials: Mapping[str, Node] | None = None,
        declared: Iterable[str] = (),
    ) -> None:
        self.root = root
        self.declared = frozenset(declared)
        self.names = dict(names or {})
        self.differentials = dict(differentials or {})
        self.definitions: list[Definition] = []
        self.named: dict[Node, kinds.Name] = {}
        self.bound: dict[Node, tuple[Node, Indices]] = {}
        self.running: frozenset[str] = frozenset()
        self.drafts: dict[Node, tuple[Tree, Indices]] = {}
        self.written: dict[tuple[Node, Indices, frozenset[str]], Tree] = {}
        self.definition_count = 0
        self.order = topological([*self.differentials.values(), root])
        self.use_counts = _count_uses(self.order)
        self.used_names = self._names_in_use()
        for node in self._deep_nodes():
            self.define(node)

    def result(self) -> tuple[Tree, Indices]:
        """Build the root's tree and the left side's indices; define repeated parts."""
        tree, indices = self.draft(self.root)
        table = self.conventions([tree, *(definition.tree for definition in self.definitions)])
        definitions = [
            replace(definition, tree=replaced(definition.tree, table))
            for definition in self.definitions
        ]
        tree, self.definitions = name_repeated_parts(
            *(replaced(tree, table), definitions, self.measure, self.reserved)
        )
        return tree, indices

    def conventions(self, trees: Sequence[Tree]) -> dict[Tree, Tree]:
        """Choose parts of the trees that are written differently because of other parts."""
        return {}

    @property
    def reserved(self) -> set[str]:
        """The names that no definition may have."""
        return self.used_names

    def tree(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of `node`, with an index for each axis that is not None. `scope`: index
        letters in use."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            if not _can_be_defined(matrix):
                return self.tree(matrix, indices, scope)
            self.define(node)
        if node not in self.named and self.use_counts[node] > 1 and _can_be_defined(node):
            draft, _ = self.draft(node)
            is_plain_product = isinstance(node, ir.Einsum) and not draft.counts[kinds.Ones]
            # A product that occurs twice reads better in place.
            factor = 2 if is_plain_product and self.use_counts[node] == 2 else 1
            target = self.defined_instead(node)
            too_long = self.measure(draft) > factor * self.max_repeated_length
            if too_long and _can_be_defined(target):
                self.define(target)
        if node in self.named:
            return indexed(self.named[node], indices)
        key = (node, indices, scope)
        if key not in self.written:
            self.written[key] = self.expand(node, indices, scope)
        return self.written[key]

    def count_uses(self, roots: Sequence[Node]) -> None:
        """Count how often the steps of a loop use their nodes: long ones get a name."""
        for node, count in _count_uses(topological(roots)).items():
            self.use_counts[node] += count

    def defined_instead(self, node: Node) -> Node:
        """Choose the node that gets a definition where `node` is long and repeated."""
        return node

    def define(self, node: Node) -> Tree:
        """Give `node` a name."""
        if node not in self.named:
            tree, indices = self.draft(node)
            name = self.fresh_name(node)
            self.named[node] = name
            self.definitions.append(Definition(name, tree, indices, node.shape))
        return self.named[node]

    def draft(self, node: Node) -> tuple[Tree, Indices]:
        """Build the tree of `node` alone; stated structures are left out."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            return self.draft(matrix)
        if node not in self.drafts:
            self.drafts[node] = self.right_side(node)
        return self.drafts[node]

    @abstractmethod
    def right_side(self, node: Node) -> tuple[Tree, Indices]:
        """Build the right side of the equation that defines `node`, and the left side's indices."""

    @abstractmethod
    def expand(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of `node` from those of its children."""

    @abstractmethod
    def measure(self, tree: Tree) -> int:
        """Return the length of a tree's text."""

    def fresh_name(self, node: Node) -> kinds.Name:
        """Make a provisional name for a definition, until all are known."""
        self.definition_count += 1
        return provisional_name(node.ndim, self.definition_count, "symmetric" in facts(node))

    def sum(self, node: ir.Sum, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of a sum."""
        terms = [self.tree(term, indices, scope) for term in node.terms]
        shape = tuple(s for s, i in zip(node.shape, indices, strict=True) if i is None)
        return algebra.add(terms, shape)

    def map(self, node: ir.Map, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of an entrywise function."""
        symbols = {
            slot(position): self.tree(argument, indices, scope)
            for position, argument in enumerate(node.arguments)
            if node.expression.has(slot(position))
        }
        shape = tuple(s for s, i in zip(node.shape, indices, strict=True) if i is None)
        tree = expressions.convert(node.expression, symbols)
        return tree if tree.rank else entrywise.spread(tree, (), shape)

    def input(self, node: ir.Leaf) -> Tree:
        """Build the tree of an input, cotangent, tangent or differential."""
        body = self.differentials.get(node.name)
        if body is None:
            return self.leaf(node)
        tree = self.tree(body, (None,) * body.ndim, frozenset())
        return kinds.Differential(node.ndim, tree, node.structure in SYMMETRIC)

    def leaf(self, node: ir.Leaf) -> kinds.Name:
        """Make the name of a leaf."""
        symmetric = node.structure in SYMMETRIC
        accent = {"cotangent": "bar", "tangent": "dot"}.get(node.role, "")
        base = self.names.get(node.name)
        if base is None:
            base = {"cotangent": "Y", "tangent": "X"}.get(node.name, node.name)
            base = base.removeprefix("tangent_").removeprefix("cotangent_") if accent else base
            rank = node.ndim - (BATCH in node.shape[:1])
            base = base.lower() if node.role == "cotangent" and rank < 2 else base
        return kinds.Name(node.ndim, base, node.name, accent, symmetric)

    def constant(self, node: ir.Constant) -> Tree:
        """Build the tree of a constant array."""
        if not node.ndim:
            return kinds.Number(sympy.Float(float(node.array), 17))
        return kinds.Literal(node.ndim, node.key, node.array)

    def _names_in_use(self) -> set[str]:
        """Collect the names of leaves, as shown and in NumPy, and of dimensions."""
        graph_leaves = leaves(self.order)
        names = {name for leaf in graph_leaves for name in (self.leaf(leaf).base, leaf.name)}
        expressions = {size for node in self.order for size in node.shape}
        for node in self.order:
            if isinstance(node, ir.Einsum):
                expressions |= {node.coefficient, *node.sizes}
        symbols = {symbol.name for part in expressions for symbol in part.free_symbols}
        return names | symbols | self.declared

    def _deep_nodes(self) -> list[Node]:
        """List nodes that bound the depth of trees when they are definitions."""
        heights: dict[Node, int] = {}
        deep_nodes = []
        for node in self.order:
            height = 1 + max((heights[child] for child in node.children), default=0)
            if height >= MAX_DEPTH and node is not self.root:
                deep_nodes.append(node)
                height = 0
            heights[node] = height
        return deep_nodes


def indexed(tree: Tree, indices: Indices) -> Tree:
    """Index `tree` unless all indices are None."""
    return kinds.Indexed(tree, indices) if any(index is not None for index in indices) else tree


def _can_be_defined(node: Node) -> bool:
    """Tell whether a node may get a name: no leaf, structural array, or product of such arrays."""
    if isinstance(node, ir.Einsum):
        return not all(isinstance(factor, ir.Structural) for factor, _ in node.factors)
    return not isinstance(node, (ir.Leaf, ir.Structural))


def _count_uses(order: list[Node]) -> Counter[Node]:
    """Count the occurrences of each node when its parents are written once."""
    uses: Counter[Node] = Counter()
    for node in order:
        match node:
            case ir.Einsum():
                uses.update(factor for factor, _ in set(node.factors))
            case ir.Sum():
                uses.update(node.terms)
            case ir.Map():
                for position, argument in enumerate(node.arguments):
                    uses[argument] += int(node.expression.count(slot(position)))
            case ir.Apply():
                uses.update(argument for argument, _ in node.arguments)
    return uses


Item = tuple[Tree, tuple[int, ...]]
"""A factor of a product: a tree, with a label for each of its axes."""


def without_spreads(items: list[Item]) -> list[Item]:
    """Drop the axes along which items are constant."""
    result: list[Item] = []
    for tree, labels in items:
        if isinstance(tree, kinds.Spread):
            labels = tuple(labels[axis] for axis in tree.along)
            tree = tree.body
        result.append((tree, labels))
    return result


def remove_spreads(items: list[Item], product: Product) -> list[Item]:
    """Drop the axes along which items are constant. A summed label that no item has any more
    becomes a factor, its size."""
    result = without_spreads(items)
    remaining = {*labels_of(result), *product.output}
    dropped = [label for label in labels_of(items) if label not in remaining]
    if dropped:
        count = expressions.convert(sympy.prod([product.sizes[label] for label in dropped]))
        result.append((count, ()))
    return result


def chain_factors(factors: tuple[Factor, ...], output: tuple[int, ...]) -> tuple[Factor, ...]:
    """Order factors so that each shares a label with the one before it. The first one has the
    first output label, or else is a vector at an end of the chain."""
    vectors = [labels[0] for _, labels in factors if len(labels) == 1]
    rows = [labels[0] for _, labels in factors if len(labels) > 1]
    label = next(iter((*output, *(v for v in vectors if v in rows), *vectors)), None)

    def place(factor: Factor) -> tuple[int, int, int, bool]:
        node, labels = factor
        has_accent = isinstance(node, ir.Leaf) and node.role not in ("input", "symbol")
        axis = labels.index(label) if label in labels else 2 + len(labels)
        return axis, len(labels), min(labels, default=0), not has_accent

    remaining = list(factors)
    result: list[Factor] = []
    while remaining:
        result.append(min(remaining, key=place))
        remaining.remove(result[-1])
        further_labels = [other for other in result[-1][1] if other != label]
        if further_labels:
            label = further_labels[-1]
    return tuple(result)


def matrix(node: ir.Structural) -> Tree:
    """Build the tree of a structural array."""
    match node:
        case ir.Delta():
            return kinds.Identity(node.shape[0])
        case ir.Slice():
            count, size = node.shape
            return kinds.Rows(count, size, node.start, node.step)
        case ir.Triangle():
            rows, columns = node.shape
            return kinds.Mask(rows, columns, node.offset)
        case ir.Reshape() | ir.Vech():
            return kinds.Reshaped(node.shape[1], node.shape[2], isinstance(node, ir.Vech))
        case ir.Gather():
            return kinds.Gathered(node.table, node.shape[1])
    raise TypeError(f"no formula for {node!r}")


def call(node: ir.Apply, arguments: list[Tree], rank: int) -> Tree:
    """Build the tree of an operation whose result has this rank."""
    if node.operation.formula("unicode", node.output) == "{0}":
        return arguments[0]
    symmetric = "symmetric" in facts(node)
    if node.operation.is_inverse and rank == 2:
        return algebra.power(arguments[0], -1, symmetric)
    return kinds.Call(
        rank,
        node.operation.key,
        tuple(arguments),
        node.parameters,
        node.output,
        symmetric,
        node.operation,
    )
