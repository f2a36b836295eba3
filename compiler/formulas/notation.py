"""Building trees for reading, in matrix notation where there is one, else by index.

An axis of a node is either open (an axis of a matrix or vector) or has an index. In matrix notation
the batch axis has an index and at most two axes are open; in index notation all axes have indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, count

import sympy

from derivatrix.compiler.formulas import algebra, factoring, recurrences
from derivatrix.compiler.formulas.build import (
    Builder,
    Item,
    call,
    chain_factors,
    indexed,
    matrix,
    remove_spreads,
)
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.entries import by_entries
from derivatrix.compiler.formulas.entrywise import spread
from derivatrix.compiler.formulas.indexing import (
    NoMatrixNotation,
    as_chain,
    block_labels,
    bracket,
    check_reducible,
    contract_product,
    entry_of,
    index_texts,
    is_merged,
    multiply_items,
    resolve_labels,
    selects_of_longer,
    split_index,
    sum_letters,
    sum_over,
    take_blocks,
    writes_whole,
)
from derivatrix.compiler.formulas.length import length
from derivatrix.compiler.formulas.rewrite import with_distinct_letters
from derivatrix.compiler.formulas.sharing import complements, plain_indicators
from derivatrix.compiler.formulas.tree import Add, Indices, Over, Tree, Unit, index_of
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, Node, einsum, labels_of
from derivatrix.compiler.ir.product import Product, components

LETTERS = "ijklpqrsuvwacdefghmnotxyz"
BATCH_LETTERS = "brsqz"


class Notation(Builder):
    """Builds trees for the styles unicode and latex, and, with `by_index`, for index."""

    def __init__(
        self,
        root: Node,
        names: Mapping[str, str] | None = None,
        by_index: bool = False,
        differentials: Mapping[str, Node] | None = None,
        declared: Iterable[str] = (),
    ) -> None:
        self.by_index = by_index
        self.max_repeated_length = 30 if by_index else 12
        self.drafts_begun: set[Node] = set()
        self.letters_used: set[str] = set()
        super().__init__(root, names, differentials, declared)

    def result(self) -> tuple[Tree, Indices]:
        tree, indices = super().result()
        self.used_names |= index_texts(indices)
        for definition in self.definitions:
            self.used_names |= definition.names | index_texts(definition.indices)
        self.definitions = [
            replace(definition, tree=self._finished(definition.tree, definition.indices))
            for definition in self.definitions
        ]
        return self._finished(tree, indices), indices

    def _finished(self, tree: Tree, indices: Indices) -> Tree:
        """Write small arrays by their entries, and nested sums with different letters."""
        # Sums are joined when they are multiplied, so which ones are nested is known only now.
        return with_distinct_letters(by_entries(tree), index_texts(indices), self.new_letter)

    def conventions(self, trees: Sequence[Tree]) -> dict[Tree, Tree]:
        return {**plain_indicators(trees), **complements(trees)}

    @property
    def reserved(self) -> set[str]:
        return self.used_names | self.letters_used

    def defined_instead(self, node: Node) -> Node:
        """Choose the inverted matrix instead of its inverse."""
        if isinstance(node, ir.Apply) and node.operation.is_inverse and not node.stack:
            del self.drafts[node]
            return node.arguments[0][0]
        return node

    def measure(self, tree: Tree) -> int:
        return length(tree)

    def right_side(self, node: Node) -> tuple[Tree, Indices]:
        if isinstance(node, ir.Constant):
            return self.constant(node), (None,) * node.ndim
        self.drafts_begun.add(node)
        if not self.by_index:
            indices = self.left_indices(node, matrix_notation=True)
            try:
                tree = self.expand(node, indices, index_texts(indices), strict=True)
                return as_chain(tree), indices
            except NoMatrixNotation:
                pass
        indices = self.left_indices(node, matrix_notation=False)
        return self.expand(node, indices, index_texts(indices)), indices

    def left_indices(self, node: Node, matrix_notation: bool) -> Indices:
        """Choose index letters for the axes of a left side; open axes get None."""
        scope: set[str] = set()
        indices: list[sympy.Expr | None] = []
        for axis, size in enumerate(node.shape):
            is_batch = axis == 0 and size == BATCH
            if matrix_notation and not is_batch:
                indices.append(None)
                continue
            letter = self.new_letter(scope, is_batch)
            scope.add(letter)
            indices.append(index_of(letter))
        return tuple(indices)

    def new_letter(self, scope: Set[str], is_batch: bool = False) -> str:
        """Choose an index letter that is neither in `scope` nor another name."""
        alphabet = BATCH_LETTERS if is_batch else LETTERS
        candidates = chain(alphabet, (f"i{number}" for number in count(1)))
        other_names = scope | self.used_names | self.running
        letter = next(name for name in candidates if name not in other_names)
        self.letters_used.add(letter)
        return letter

    def expand(
        self, node: Node, indices: Indices, scope: frozenset[str], strict: bool = False
    ) -> Tree:
        """Build the tree of `node`; see `Builder.expand`. A node without matrix notation becomes a
        definition; if `strict`, NoMatrixNotation is raised instead."""
        match node:
            case ir.Leaf() if node in self.bound:
                source, first_indices = self.bound[node]
                return self.tree(source, (*first_indices, *indices), scope)
            case ir.Leaf():
                return indexed(self.input(node), indices)
            case ir.Constant():
                return indexed(self.constant(node), indices)
            case ir.Map():
                return self._entry(node, indices, self.map(node, indices, scope))
            case ir.Sum():
                return self._entry(node, indices, self.sum(node, indices, scope, strict))
            case ir.Apply() if node.operation.loop is not None:
                return indexed(recurrences.states(self, node), indices)
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
        """Write an entry that contains sums as entry of a matrix, `(...)[i,j]`, unless in the
        index style. `tree`: the entry."""
        if self.by_index or None in indices or not 0 < node.ndim <= 2 or not tree.counts[Over]:
            return tree
        if BATCH in node.shape or (node in self.drafts_begun and node not in self.drafts):
            return tree
        matrix_tree, left_indices = self.draft(node)
        has_notation = left_indices.count(None) == node.ndim
        return indexed(matrix_tree, indices) if has_notation else tree

    def sum(
        self, node: ir.Sum, indices: Indices, scope: frozenset[str], strict: bool = False
    ) -> Tree:
        """Build the tree of a sum; if `strict`, raise NoMatrixNotation for a term without it."""
        for term in node.terms if strict else ():
            if term not in self.named and not isinstance(term, (ir.Leaf, ir.Constant)):
                self.expand(term, indices, scope, strict=True)
        tree = super().sum(node, indices, scope)
        if isinstance(tree, Add):
            tree = algebra.add([as_chain(term) for term in tree.terms])
        if not isinstance(tree, Add):
            return as_chain(tree)
        if node is self.root:
            return factoring.factor(tree)
        return factoring.factor_in_parentheses(tree)

    # Products

    def _product(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        pairs = zip(node.shape, indices, strict=True)
        is_reduced = all(index is None or size == BATCH for size, index in pairs)
        if is_reduced and not self.by_index and not selects_of_longer(node):
            try:
                return self._reduced(node, indices, scope)
            except NoMatrixNotation:
                if None in indices:
                    raise
        return self._indexed(node, indices, scope)

    def _reduced(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build a product in matrix notation; a summed batch axis gets an index letter."""
        product = Product.reduced(node)
        index_at = {i: index for i, index in enumerate(indices) if index is not None}
        index_at |= {i: sympy.S.Zero for i in product.summed if product.sizes[i] == 1}
        output = tuple(i for i, index in enumerate(indices) if index is None)
        summed_letters: dict[str, sympy.Expr] = {}
        for label in product.summed:
            if product.sizes[label] == BATCH:
                letter = self.new_letter(scope | set(summed_letters), is_batch=True)
                summed_letters[letter] = BATCH
                index_at[label] = index_of(letter)
        try:
            check_reducible(index_at, output, product)
        except NoMatrixNotation:
            for label in block_labels(product):
                letter = self.new_letter(scope | set(summed_letters))
                summed_letters[letter] = product.sizes[label]
                index_at[label] = index_of(letter)
            factors = take_blocks(product.factors, index_at, product)
            product = replace(product, factors=tuple(factors))
            check_reducible(index_at, output, product)
        scope |= set(summed_letters)
        items = []
        for factor in product.factors:
            items.append(self._item(factor, index_at, scope))
            scope |= sum_letters(items[-1][0]) if summed_letters else set()
        return sum_over(summed_letters, contract_product(items, output, product))

    def _indexed(self, node: ir.Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build a product in index notation."""
        product = Product.reduced(node)
        product = replace(product, factors=chain_factors(product.factors, product.output))
        index_at = {i: index for i, index in enumerate(indices) if index is not None}
        index_at |= {i: sympy.S.Zero for i in product.summed if product.sizes[i] == 1}
        output = tuple(i for i, index in enumerate(indices) if index is None)
        items = self._items(product.factors, index_at, product, scope)
        return contract_product(items, output, product)

    def _item(
        self, factor: Factor, index_at: Mapping[int, sympy.Expr], scope: frozenset[str]
    ) -> Item:
        node, labels = factor
        tree = self._factor_tree(node, tuple(index_at.get(label) for label in labels), scope)
        pairs = zip(node.shape, labels, strict=True)
        shape = tuple(size for size, label in pairs if label not in index_at)
        if not tree.rank:  # a number, where the entries cancel as in x / x
            tree = spread(tree, (), shape)
        return tree, tuple(label for label in labels if label not in index_at)

    def _factor_tree(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        if not isinstance(node, ir.Structural):
            return self.tree(node, indices, scope)
        axis_indices = [index for index in indices if index is not None]
        if not axis_indices:
            return matrix(node)
        if len(axis_indices) == node.ndim:
            return bracket(node, axis_indices)
        if isinstance(node, ir.Delta):
            return Unit(node.shape[0], axis_indices[0])
        if isinstance(node, ir.Slice) and indices[0] is not None:
            return Unit(node.shape[1], node.start + node.step * indices[0])
        raise NoMatrixNotation

    def _items(
        self,
        factors: Sequence[Factor],
        index_at: Mapping[int, sympy.Expr],
        product: Product,
        scope: frozenset[str],
    ) -> list[Item]:
        """Build the factors of a product in index notation. Factors linked by summed labels become
        an entry of one matrix or vector, or else a sum over a letter.

        index_at: by label, its index; the others are open or summed.
        """
        factors, index_at = resolve_labels(factors, index_at, product)
        factors = factors if self.by_index else take_blocks(factors, index_at, product)
        items: list[Item] = []
        for group in components(factors, {*index_at, *product.output}):
            summed = [i for i in labels_of(group) if i not in index_at and i not in product.output]
            if not summed:
                items += [self._item(factor, index_at, scope) for factor in group]
                continue
            item = None
            if not self.by_index and split_index(group, index_at, product) is None:
                item = self._entry_of_product(group, index_at, product, scope)
            items.append(item or self._sum_over_letter(group, summed, index_at, product, scope))
            scope |= sum_letters(items[-1][0])
        return items

    def _sum_over_letter(
        self,
        factors: Sequence[Factor],
        summed_labels: Sequence[int],
        index_at: Mapping[int, sympy.Expr],
        product: Product,
        scope: frozenset[str],
    ) -> Item:
        """Sum over a letter for the label that most factors have."""
        split = split_index(factors, index_at, product)
        if split is not None:
            selection, split_indices, conditions = split
            factors = [factor for factor in factors if factor is not selection]
            items = self._items(factors, {**index_at, **split_indices}, product, scope)
            return multiply_items([*conditions, *items], product)
        counts = {label: sum(label in labels for _, labels in factors) for label in summed_labels}
        unmerged = [label for label in summed_labels if not is_merged(label, factors)]
        longer = {
            labels[1]
            for node, labels in factors
            if isinstance(node, ir.Slice) and labels[0] in summed_labels
        }
        candidates = unmerged or summed_labels
        shortest = [label for label in candidates if label not in longer]
        label = max(shortest or candidates, key=counts.__getitem__)
        letter = self.new_letter(scope, product.sizes[label] == BATCH)
        inner_indices = {**index_at, label: index_of(letter)}
        items = self._items(factors, inner_indices, product, scope | {letter})
        body, output = multiply_items(items, product)
        return sum_over({letter: product.sizes[label]}, body), output

    def _entry_of_product(
        self,
        factors: Sequence[Factor],
        index_at: Mapping[int, sympy.Expr],
        product: Product,
        scope: frozenset[str],
    ) -> Item | None:
        """Write linked factors as an entry of their product; None without matrix notation."""
        batch_index_at = {i: index for i, index in index_at.items() if product.sizes[i] == BATCH}
        items: list[Item] = []
        for node, labels in factors:
            is_open = node.ndim < 3 or isinstance(node, ir.Reshape | ir.Vech)
            try:
                factor = node, labels
                items.append(self._item(factor, batch_index_at if is_open else index_at, scope))
            except NoMatrixNotation:
                return None
        open_labels = [label for _, item_labels in items for label in item_labels]
        outer = {*index_at, *product.output}
        entry_labels = tuple(label for label in dict.fromkeys(open_labels) if label in outer)
        if len(entry_labels) > 2 or any(open_labels.count(i) > 1 for i in entry_labels):
            return None
        tree = contract(remove_spreads(items, product), entry_labels, product.sizes)
        if tree is None:
            return None
        index = tuple(index_at.get(label) for label in entry_labels)
        return entry_of(tree, index), tuple(i for i in entry_labels if i not in index_at)

    # Operations

    def _call(self, node: ir.Apply, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of an operation. Indices of stacked axes become indices of the arguments,
        unless these are matrices or vectors that can be written without."""
        depth = len(node.stack)
        stack_indices = [
            None if writes_whole(node) and size != BATCH else index
            for size, index in zip(node.stack, indices, strict=False)
        ]
        open_labels = [label for label in range(depth) if stack_indices[label] is None]
        result_indices = tuple(
            index for axis, index in enumerate(indices) if axis in open_labels or axis >= depth
        )
        arguments = []
        for argument, labels in node.arguments:
            core_indices = [None] * (argument.ndim - len(labels))
            argument_indices = (*(stack_indices[label] for label in labels), *core_indices)
            has_open_labels = [label for label in labels if label in open_labels] == open_labels
            if not has_open_labels or (open_labels and argument_indices.count(None) > 2):
                raise NoMatrixNotation
            arguments.append(self._argument_tree(argument, argument_indices, scope))
        return indexed(call(node, arguments, len(result_indices)), result_indices)

    def _argument_tree(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """Build the tree of an argument; in the index style, sums and products in it become
        definitions."""
        if self.by_index and None in indices and isinstance(node, (ir.Einsum, ir.Sum, ir.Map)):
            return indexed(self.define(node), indices)
        return self.tree(node, indices, scope)
