"""From nodes to trees: what every style shares.

A node used more than once, whose text is long, becomes a definition of its own, so that texts
grow no faster than the graph. So do nodes that lie deep, which bounds the depth of every tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.formulas import algebra, entrywise, expressions
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.definitions import Definition, unnamed
from derivatrix.compiler.formulas.rewrite import replaced
from derivatrix.compiler.formulas.sharing import named
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, Node, labels_of, leaves, slot, topological
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts

DEPTH = 20
"""Trees are cut into definitions where nodes lie deeper than this."""

SYMMETRIC = ("symmetric", "spd", "diagonal")


class Builder(ABC):
    """Builds the tree of `root`. `names`: what is shown for a leaf's name (for a cotangent or
    tangent: the name that gets the accent). `differentials`: for a leaf's name, the node whose
    differential it is. `declared`: names that the formula leaves alone, whether in it or not."""

    limit: int
    """How long the tree of a node may be that is written more than once without a name."""

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
        self.known: dict[Node, kinds.Name] = {}
        self.drafts: dict[Node, tuple[Tree, Indices]] = {}
        self.written: dict[tuple[Node, Indices, frozenset[str]], Tree] = {}
        self.number = 0
        self.order = topological([*self.differentials.values(), root])
        self.uses = _uses(self.order)
        self.taken = self._taken()
        for node in self._deep():
            self.define(node)

    def result(self) -> tuple[Tree, Indices]:
        """The root's tree, with names for what is repeated, and the left side's indices."""
        tree, indices = self.draft(self.root)
        table = self.conventions([tree, *(part.tree for part in self.definitions)])
        parts = [replace(part, tree=replaced(part.tree, table)) for part in self.definitions]
        tree, self.definitions = named(replaced(tree, table), parts, self.measure, self.reserved)
        return tree, indices

    def conventions(self, trees: Sequence[Tree]) -> dict[Tree, Tree]:
        """For parts of the trees, how they are written beside the others."""
        return {}

    @property
    def reserved(self) -> set[str]:
        """What no definition may be called."""
        return self.taken

    def tree(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """The tree of `node`, with an index for each axis that is not None. `scope`: index
        letters in use."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            if not _compound(matrix):
                return self.tree(matrix, indices, scope)
            self.define(node)
        if node not in self.known and self.uses[node] > 1 and _compound(node):
            draft, _ = self.draft(node)
            twice = isinstance(node, ir.Einsum) and self.uses[node] == 2
            limit = 2 * self.limit if twice and not draft.counts[kinds.Ones] else self.limit
            target = self.repeated(node)
            if self.measure(draft) > limit and _compound(target):
                self.define(target)
        if node in self.known:
            return indexed(self.known[node], indices)
        written = (node, indices, scope)
        if written not in self.written:
            self.written[written] = self.expand(node, indices, scope)
        return self.written[written]

    def repeated(self, node: Node) -> Node:
        """What gets a name where a node is long and repeated."""
        return node

    def define(self, node: Node) -> Tree:
        """Give `node` a name."""
        if node not in self.known:
            tree, indices = self.draft(node)
            name = self.fresh_name(node)
            self.known[node] = name
            self.definitions.append(Definition(name, tree, indices, node.shape))
        return self.known[node]

    def draft(self, node: Node) -> tuple[Tree, Indices]:
        """The tree of `node` on its own; of a matrix with a stated structure that of the matrix."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            return self.draft(matrix)
        if node not in self.drafts:
            self.drafts[node] = self.alone(node)
        return self.drafts[node]

    @abstractmethod
    def alone(self, node: Node) -> tuple[Tree, Indices]:
        """The tree of `node` as the right side of an equation, and the left side's indices."""

    @abstractmethod
    def expand(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """The tree of `node`, in terms of its children's."""

    @abstractmethod
    def measure(self, tree: Tree) -> int:
        """The length of a tree's text."""

    def fresh_name(self, node: Node) -> kinds.Name:
        """A name for a definition until all are known."""
        self.number += 1
        return unnamed(node.ndim, self.number, "symmetric" in facts(node))

    def sum(self, node: ir.Sum, indices: Indices, scope: frozenset[str]) -> Tree:
        """A sum's tree."""
        terms = [self.tree(term, indices, scope) for term in node.terms]
        shape = tuple(s for s, i in zip(node.shape, indices, strict=True) if i is None)
        return algebra.add(terms, shape)

    def map(self, node: ir.Map, indices: Indices, scope: frozenset[str]) -> Tree:
        """The tree of a function entry by entry."""
        symbols = {
            slot(position): self.tree(argument, indices, scope)
            for position, argument in enumerate(node.arguments)
        }
        shape = tuple(s for s, i in zip(node.shape, indices, strict=True) if i is None)
        tree = expressions.convert(node.expression, symbols)
        return tree if tree.rank else entrywise.spread(tree, (), shape)

    def input(self, node: ir.Leaf) -> Tree:
        """The tree of a leaf."""
        body = self.differentials.get(node.name)
        if body is None:
            return self.leaf(node)
        tree = self.tree(body, (None,) * body.ndim, frozenset())
        return kinds.Differential(node.ndim, tree, node.structure in SYMMETRIC)

    def leaf(self, node: ir.Leaf) -> kinds.Name:
        """The name of a leaf."""
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
        """The tree of a literal array."""
        if not node.ndim:
            return kinds.Number(sympy.Float(float(node.array), 17))
        return kinds.Literal(node.ndim, node.key, node.array)

    def _taken(self) -> set[str]:
        """Names that stand for something already."""
        known = leaves(self.order)
        shown = {self.leaf(leaf).base for leaf in known}
        written = {leaf.name for leaf in known}
        expressions = {size for node in self.order for size in node.shape}
        for node in self.order:
            if isinstance(node, ir.Einsum):
                expressions |= {node.coefficient, *node.sizes}
        symbols = {symbol.name for part in expressions for symbol in part.free_symbols}
        return shown | written | symbols | self.declared

    def _deep(self) -> list[Node]:
        """Nodes at which trees are cut."""
        heights: dict[Node, int] = {}
        cut = []
        for node in self.order:
            height = 1 + max((heights[child] for child in node.children), default=0)
            if height >= DEPTH and node is not self.root:
                cut.append(node)
                height = 0
            heights[node] = height
        return cut


def indexed(tree: Tree, indices: Indices) -> Tree:
    """`tree` with the indices that are not None."""
    return kinds.Indexed(tree, indices) if any(index is not None for index in indices) else tree


def _compound(node: Node) -> bool:
    """Whether a node is worth a name: it is no array of zeros and ones, nor a product of such."""
    if isinstance(node, ir.Einsum):
        return not all(isinstance(factor, ir.Structural) for factor, _ in node.factors)
    return not isinstance(node, (ir.Leaf, ir.Structural))


def _uses(order: list[Node]) -> Counter[Node]:
    """How often each node is written when its parents are written once."""
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
                uses.update(_written(node))
    return uses


def _written(node: ir.Apply) -> Counter[Node]:
    """How often an operation's NumPy text repeats its arguments."""
    marks = [f"<{position}>" for position in range(len(node.arguments))]
    text = node.operation.numpy(marks, node.parameters, node.output)
    counts: Counter[Node] = Counter()
    for mark, (argument, _) in zip(marks, node.arguments, strict=True):
        counts[argument] += max(1, text.count(mark))
    return counts


Item = tuple[Tree, tuple[int, ...]]


def without_spreads(items: list[Item]) -> list[Item]:
    """The items without the axes along which they are constant."""
    result: list[Item] = []
    for tree, labels in items:
        if isinstance(tree, kinds.Spread):
            labels = tuple(labels[axis] for axis in tree.along)
            tree = tree.body
        result.append((tree, labels))
    return result


def opened(items: list[Item], parts: Product) -> list[Item]:
    """The items without the axes along which they are constant. A summed label that no item has
    any more becomes a factor, its size."""
    result = without_spreads(items)
    kept = {*labels_of(result), *parts.output}
    gone = [label for label in labels_of(items) if label not in kept]
    if gone:
        count = expressions.convert(sympy.prod([parts.sizes[label] for label in gone]))
        result.append((count, ()))
    return result


def ordered(factors: tuple[Factor, ...], output: tuple[int, ...]) -> tuple[Factor, ...]:
    """Factors so that each shares a label with the one before, from the first output label on,
    or from an end of the chain."""
    left = list(factors)
    result: list[Factor] = []
    label = output[0] if output else _start(factors)
    while left:
        best = min(left, key=lambda factor: _place(factor, label))
        left.remove(best)
        result.append(best)
        rest = [other for other in best[1] if other != label]
        if rest:
            label = rest[-1]
    return tuple(result)


def _start(factors: tuple[Factor, ...]) -> int | None:
    """The label of a vector at the end of a chain, best the left one."""
    vectors = [labels[0] for _, labels in factors if len(labels) == 1]
    rows = [labels[0] for _, labels in factors if len(labels) > 1]
    return next((label for label in vectors if label in rows), next(iter(vectors), None))


def _place(factor: Factor, label: int | None) -> tuple[int, int, int, bool]:
    node, labels = factor
    accented = isinstance(node, ir.Leaf) and node.role not in ("input", "symbol")
    linked = labels.index(label) if label in labels else 2 + len(labels)
    return linked, len(labels), min(labels, default=0), not accented


def matrix(node: ir.Structural) -> Tree:
    """The tree of a structural array."""
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
    """The tree of an operation, its result of this rank."""
    if node.operation.formula("unicode", node.output) == "{0}":
        return arguments[0]
    symmetric = "symmetric" in facts(node)
    if node.operation.name == "inv" and rank == 2:
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
