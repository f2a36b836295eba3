"""From nodes to trees for reading: matrix notation where there is one, else indices.

An axis of a node is either open (part of a matrix or vector) or carries an index. In matrix
notation the batch axis carries a letter and at most two axes are open; in index notation
every axis carries one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, count

import sympy

from derivatrix.compiler.formulas import algebra, factoring
from derivatrix.compiler.formulas.build import (
    Builder,
    Item,
    call,
    indexed,
    matrix,
    opened,
    ordered,
)
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.entries import by_entries
from derivatrix.compiler.formulas.expressions import convert
from derivatrix.compiler.formulas.indexing import (
    NoMatrixNotation,
    bracket,
    chained,
    check_reducible,
    contracted,
    entry_of,
    in_blocks,
    index_of,
    is_reshaped,
    joined,
    letters_of,
    letters_summed,
    outer_labels,
    solved,
    split_merge,
    summed_over,
    writes_whole,
)
from derivatrix.compiler.formulas.length import length
from derivatrix.compiler.formulas.sharing import complements, plain_indicators
from derivatrix.compiler.formulas.tree import Add, Indices, Over, Tree, Unit
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, Node, einsum, labels_of
from derivatrix.compiler.ir.product import Product, components

LETTERS = "ijklpqrsuvwacdefghmnotxyz"
BATCH_LETTERS = "brsqz"


class Notation(Builder):
    """Trees for the styles unicode and latex, and, with `by_index`, for index."""

    def __init__(
        self,
        root: Node,
        names: Mapping[str, str] | None = None,
        by_index: bool = False,
        differentials: Mapping[str, Node] | None = None,
        declared: Iterable[str] = (),
    ) -> None:
        self.by_index = by_index  # whether every axis carries an index
        self.limit = 30 if by_index else 12
        self.open: set[Node] = set()  # nodes whose drafts have been begun
        self.letters_used: set[str] = set()
        super().__init__(root, names, differentials, declared)

    def result(self) -> tuple[Tree, Indices]:
        tree, indices = super().result()
        self.definitions = [replace(part, tree=by_entries(part.tree)) for part in self.definitions]
        return by_entries(tree), indices

    def conventions(self, trees: Sequence[Tree]) -> dict[Tree, Tree]:
        return {**plain_indicators(trees), **complements(trees)}

    @property
    def reserved(self) -> set[str]:
        return self.taken | self.letters_used

    def repeated(self, node: Node) -> Node:
        """What is inverted, instead of its inverse."""
        if isinstance(node, ir.Apply) and node.operation.name == "inv" and not node.stack:
            del self.drafts[node]
            return node.arguments[0][0]
        return node

    def measure(self, tree: Tree) -> int:
        return length(tree)

    def alone(self, node: Node) -> tuple[Tree, Indices]:
        if isinstance(node, ir.Constant):
            return self.constant(node), (None,) * node.ndim
        self.open.add(node)
        if not self.by_index:
            indices = self.letters(node, matrices=True)
            try:
                tree = self.expand(node, indices, letters_of(indices), strict=True)
                return chained(tree), indices
            except NoMatrixNotation:
                pass
        indices = self.letters(node, matrices=False)
        return self.expand(node, indices, letters_of(indices)), indices

    def letters(self, node: Node, matrices: bool) -> Indices:
        """Index letters for the axes of a left side; open axes get None."""
        scope: set[str] = set()
        indices: list[sympy.Expr | None] = []
        for axis, size in enumerate(node.shape):
            batched = axis == 0 and size == BATCH
            if matrices and not batched:
                indices.append(None)
                continue
            letter = self.unused_letter(scope, batched)
            scope.add(letter)
            indices.append(index_of(letter))
        return tuple(indices)

    def unused_letter(self, scope: Set[str], batched: bool = False) -> str:
        """A letter that stands for nothing yet."""
        letters = BATCH_LETTERS if batched else LETTERS
        candidates = chain(letters, (f"i{number}" for number in count(1)))
        letter = next(own for own in candidates if own not in scope and own not in self.taken)
        self.letters_used.add(letter)
        return letter

    def expand(
        self, node: Node, indices: Indices, scope: frozenset[str], strict: bool = False
    ) -> Tree:
        """As `Builder.expand`. Where matrix notation fails, the node becomes a definition; if
        `strict`, NoMatrixNotation is raised instead."""
        match node:
            case ir.Leaf():
                return indexed(self.input(node), indices)
            case ir.Constant():
                return indexed(self.constant(node), indices)
            case ir.Map():
                return self._entry(node, indices, self.map(node, indices, scope))
            case ir.Sum():
                return self._entry(node, indices, self.sum(node, indices, scope, strict))
        try:
            match node:
                case ir.Apply():
                    return self._call(node, indices, scope)
                case ir.Structural():
                    axes = range(node.ndim)
                    return self._product(einsum([(node, axes)], axes), indices, scope)
                case ir.Einsum():
                    return self._product(node, indices, scope)
        except NoMatrixNotation:
            if strict:
                raise
            return indexed(self.define(node), indices)
        raise TypeError(f"no formula for {node!r}")

    def _entry(self, node: Node, indices: Indices, tree: Tree) -> Tree:
        """An entry of a matrix with sums in it as `(...)[i,j]`, unless in the index style."""
        if self.by_index or None in indices or not 0 < node.ndim <= 2 or not tree.counts[Over]:
            return tree
        if BATCH in node.shape or (node in self.open and node not in self.drafts):
            return tree
        whole, left = self.draft(node)
        return indexed(whole, indices) if left.count(None) == node.ndim else tree

    def sum(
        self, node: ir.Sum, indices: Indices, scope: frozenset[str], strict: bool = False
    ) -> Tree:
        """As `Builder.sum`. If `strict`, NoMatrixNotation is raised for a term that has none."""
        for term in node.terms if strict else ():
            if term not in self.known and not isinstance(term, (ir.Leaf, ir.Constant)):
                self.expand(term, indices, scope, strict=True)
        tree = super().sum(node, indices, scope)
        if isinstance(tree, Add):
            tree = algebra.add([chained(term) for term in tree.terms])
        if not isinstance(tree, Add):
            return chained(tree)
        return factoring.factored(tree) if node is self.root else factoring.freed(tree)

    # Products

    def _product(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        pairs = zip(node.shape, indices, strict=True)
        if not self.by_index and all(index is None or size == BATCH for size, index in pairs):
            try:
                return self._reduced(node, indices, scope)
            except NoMatrixNotation:
                if None in indices:
                    raise
        return self._indexed(node, indices, scope)

    def _reduced(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        """A product in matrix notation; a batch axis that is summed over gets a letter."""
        parts = Product.reduced(node)
        fixed = {i: index for i, index in enumerate(indices) if index is not None}
        fixed |= {i: sympy.S.Zero for i in parts.summed if parts.sizes[i] == 1}
        output = tuple(i for i, index in enumerate(indices) if index is None)
        letters: dict[str, sympy.Expr] = {}
        for label in parts.summed:
            if parts.sizes[label] == BATCH:
                letter = self.unused_letter(scope | set(letters), batched=True)
                letters[letter] = BATCH
                fixed[label] = index_of(letter)
        try:
            check_reducible(fixed, output, parts)
        except NoMatrixNotation:
            for label in outer_labels(parts):
                letter = self.unused_letter(scope | set(letters))
                letters[letter] = parts.sizes[label]
                fixed[label] = index_of(letter)
            parts = replace(parts, factors=tuple(in_blocks(parts.factors, fixed, parts)))
            check_reducible(fixed, output, parts)
        scope |= set(letters)
        items = []
        for factor in parts.factors:
            items.append(self._single(factor, fixed, scope))
            scope |= letters_summed(items[-1][0]) if letters else set()
        body = contracted([(convert(parts.coefficient), ()), *opened(items, parts)], output, parts)
        return summed_over(letters, body)

    def _indexed(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        """A product of entries."""
        parts = Product.reduced(node)
        parts = replace(parts, factors=ordered(parts.factors, parts.output))
        fixed = {i: index for i, index in enumerate(indices) if index is not None}
        fixed |= {i: sympy.S.Zero for i in parts.summed if parts.sizes[i] == 1}
        output = tuple(i for i, index in enumerate(indices) if index is None)
        items = self._items(parts.factors, fixed, parts, scope)
        return contracted([(convert(parts.coefficient), ()), *opened(items, parts)], output, parts)

    def _single(
        self, factor: Factor, fixed: Mapping[int, sympy.Expr], scope: frozenset[str]
    ) -> Item:
        node, labels = factor
        tree = self._factor(node, tuple(fixed.get(label) for label in labels), scope)
        return tree, tuple(label for label in labels if label not in fixed)

    def _factor(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        if not isinstance(node, ir.Structural):
            return self.tree(node, indices, scope)
        given = [index for index in indices if index is not None]
        if not given:
            return matrix(node)
        if len(given) == node.ndim:
            return bracket(node, given)
        if isinstance(node, ir.Delta):
            return Unit(node.shape[0], given[0])
        if isinstance(node, ir.Slice) and indices[0] is not None:
            return Unit(node.shape[1], node.start + node.step * indices[0])
        raise NoMatrixNotation

    def _items(
        self,
        factors: Sequence[Factor],
        fixed: Mapping[int, sympy.Expr],
        parts: Product,
        scope: frozenset[str],
    ) -> list[Item]:
        """The factors with their indices. What is linked by summed labels becomes an entry of one
        matrix or vector, or else a sum over a letter."""
        factors, fixed = solved(factors, fixed, parts)
        factors = factors if self.by_index else in_blocks(factors, fixed, parts)
        items: list[Item] = []
        for linked in components(factors, {*fixed, *parts.output}):
            summed = [i for i in labels_of(linked) if i not in fixed and i not in parts.output]
            if not summed:
                items += [self._single(factor, fixed, scope) for factor in linked]
                continue
            entry = None if self.by_index else self._entry_of_product(linked, fixed, parts, scope)
            items.append(entry or self._summed(linked, summed, fixed, parts, scope))
            scope |= letters_summed(items[-1][0])
        return items

    def _summed(
        self,
        factors: Sequence[Factor],
        summed: Sequence[int],
        fixed: Mapping[int, sympy.Expr],
        parts: Product,
        scope: frozenset[str],
    ) -> Item:
        """The sum over a letter for the label that most factors have."""
        split = split_merge(factors, fixed, parts)
        if split is not None:
            rest = [factor for factor in factors if factor is not split[0]]
            items = self._items(rest, {**fixed, **split[1]}, parts, scope)
            return joined([*split[2], *items], parts)
        counts = {label: sum(label in own for _, own in factors) for label in summed}
        single = [label for label in summed if not is_reshaped(label, factors)]
        label = max(single or summed, key=counts.__getitem__)
        letter = self.unused_letter(scope, parts.sizes[label] == BATCH)
        inner = {**fixed, label: index_of(letter)}
        items = self._items(factors, inner, parts, scope | {letter})
        body, output = joined(items, parts)
        return summed_over({letter: parts.sizes[label]}, body), output

    def _entry_of_product(
        self,
        factors: Sequence[Factor],
        fixed: Mapping[int, sympy.Expr],
        parts: Product,
        scope: frozenset[str],
    ) -> Item | None:
        """Linked factors as an entry of their product, where that has matrix notation."""
        inside = {i: index for i, index in fixed.items() if parts.sizes[i] == BATCH}
        items: list[Item] = []
        for node, labels in factors:
            given = inside if node.ndim < 3 or isinstance(node, ir.Reshape | ir.Vech) else fixed
            try:
                items.append(self._single((node, labels), given, scope))
            except NoMatrixNotation:
                return None
        open_labels = [label for _, own in items for label in own]
        outer = tuple(i for i in dict.fromkeys(open_labels) if i in fixed or i in parts.output)
        if len(outer) > 2 or any(open_labels.count(i) > 1 for i in outer):
            return None
        tree = contract(opened(items, parts), outer, parts.sizes)
        if tree is None:
            return None
        index = tuple(fixed.get(label) for label in outer)
        return entry_of(tree, index), tuple(i for i in outer if i not in fixed)

    # Operations

    def _call(self, node: ir.Apply, indices: Indices, scope: frozenset[str]) -> Tree:
        """Indices of stacked axes are those of the arguments, unless these are matrices or
        vectors that can be written whole."""
        depth = len(node.stack)
        pushed = list(indices[:depth])
        if writes_whole(node):
            pushed = [
                pushed[label] if node.stack[label] == BATCH else None for label in range(depth)
            ]
        free = [label for label in range(depth) if pushed[label] is None]
        rest = [index for label, index in enumerate(indices) if label in free or label >= depth]
        arguments = []
        for argument, labels in node.arguments:
            own = [pushed[label] for label in labels] + [None] * (argument.ndim - len(labels))
            whole = [label for label in labels if label in free]
            if whole != free or (free and own.count(None) > 2):
                raise NoMatrixNotation
            arguments.append(self._whole(argument, tuple(own), scope))
        return indexed(call(node, arguments, len(rest)), tuple(rest))

    def _whole(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """The tree of an operation's argument; in the index style sums and products in it are
        definitions."""
        if self.by_index and None in indices and isinstance(node, (ir.Einsum, ir.Sum, ir.Map)):
            return indexed(self.define(node), indices)
        return self.tree(node, indices, scope)
