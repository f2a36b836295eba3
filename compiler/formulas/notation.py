"""From nodes to trees for reading: matrix notation where there is one, else indices.

An axis of a node is either open (part of a matrix or vector) or carries an index. In matrix
notation the batch axis carries a letter and at most two axes are open; in index notation
every axis carries one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas.build import (
    BATCH,
    Builder,
    Item,
    Product,
    call,
    indexed,
    matrix,
    opened,
    product,
)
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.tree import (
    Bracket,
    Indices,
    Over,
    Scale,
    Tree,
)
from derivatrix.compiler.formulas.unicode import UNICODE
from derivatrix.compiler.ir import (
    Apply,
    Constant,
    Delta,
    Einsum,
    Factor,
    Leaf,
    Map,
    Node,
    Select,
    Structural,
    Sum,
    Triangle,
    einsum,
)

LETTERS = "ijklpqrsuvwacdefghmnotxyz"
BATCH_LETTERS = "brsqz"
ONE = sympy.S.One


class NoMatrixNotation(Exception):
    """A node that has no matrix notation."""


class Notation(Builder):
    """Trees for the styles unicode and latex, and, with `by_index`, for index."""

    def __init__(
        self, root: Node, names: Mapping[str, str] | None = None, by_index: bool = False
    ) -> None:
        self.by_index = by_index
        self.limit = 30 if by_index else 12
        super().__init__(root, names)

    def measure(self, tree: Tree) -> int:
        return len(UNICODE.text(tree))

    def alone(self, node: Node) -> tuple[Tree, Indices]:
        if not self.by_index:
            indices = self.letters(node, matrices=True)
            try:
                return self.expand(node, indices, _scope(indices), strict=True), indices
            except NoMatrixNotation:
                pass
        indices = self.letters(node, matrices=False)
        return self.expand(node, indices, _scope(indices)), indices

    def letters(self, node: Node, matrices: bool) -> Indices:
        """Index letters for the axes of a left side; open axes get None."""
        scope: set[str] = set()
        indices: list[sympy.Expr | None] = []
        for axis, size in enumerate(node.shape):
            batched = axis == 0 and size == BATCH
            if matrices and not batched:
                indices.append(None)
                continue
            letter = next(self.unused(frozenset(scope), batched))
            scope.add(letter)
            indices.append(_letter(letter))
        return tuple(indices)

    def unused(self, scope: frozenset[str], batched: bool = False) -> Iterator[str]:
        """Letters that stand for nothing yet."""
        letters = BATCH_LETTERS if batched else LETTERS
        numbered = (f"i{number}" for number in range(1, len(self.order) + 100))
        for letter in (*letters, *numbered):
            if letter not in scope and letter not in self.taken:
                yield letter

    def expand(
        self, node: Node, indices: Indices, scope: frozenset[str], strict: bool = False
    ) -> Tree:
        """As `Builder.expand`. Where matrix notation fails, the node becomes a definition; if
        `strict`, NoMatrixNotation is raised instead."""
        match node:
            case Leaf():
                return indexed(self.leaf(node), indices)
            case Constant():
                return indexed(self.constant(node), indices)
            case Map():
                return self.map(node, indices, scope)
            case Sum():
                return self._sum(node, indices, scope, strict)
        try:
            return self._product_or_call(node, indices, scope)
        except NoMatrixNotation:
            if strict:
                raise
            return indexed(self.define(node), indices)

    def _product_or_call(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        match node:
            case Apply():
                return self._call(node, indices, scope)
            case Structural():
                return self._product(einsum([(node, range(2))], range(2)), indices, scope)
            case Einsum():
                return self._product(node, indices, scope)
        raise TypeError(f"no formula for {node!r}")

    def _sum(self, node: Sum, indices: Indices, scope: frozenset[str], strict: bool) -> Tree:
        for term in node.terms if strict else ():
            if term not in self.known and not isinstance(term, (Leaf, Constant)):
                self.expand(term, indices, scope, strict=True)
        return self.sum(node, indices, scope)

    # Products

    def _product(self, node: Einsum, indices: Indices, scope: frozenset[str]) -> Tree:
        pairs = zip(node.shape, indices, strict=True)
        if not self.by_index and all(index is None or size == BATCH for size, index in pairs):
            try:
                return self._reduced(node, indices, scope, by_index=False)
            except NoMatrixNotation:
                if None in indices:
                    raise
        return self._reduced(node, indices, scope, by_index=True)

    def _reduced(
        self, node: Einsum, indices: Indices, scope: frozenset[str], by_index: bool
    ) -> Tree:
        parts = product(node)
        if by_index:
            parts = replace(parts, factors=ordered(parts.factors, parts.output))
        fixed = {i: index for i, index in enumerate(indices) if index is not None}
        output = tuple(i for i, index in enumerate(indices) if index is None)
        factors, letters = self._indexed_labels(parts, fixed, scope, by_index)
        scope |= set(letters)
        items: list[Item] = []
        for factor, labels in factors:
            own = tuple(fixed.get(label) for label in labels)
            open_labels = tuple(label for label in labels if label not in fixed)
            items.append((self._factor(factor, own, scope), open_labels))
        return over(letters, self._body([(parts.scalar, ()), *opened(items, parts)], output, parts))

    def _factor(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        if not isinstance(node, Structural):
            return self.tree(node, indices, scope)
        row, column = indices
        if row is None and column is None:
            return matrix(node)
        if row is None or column is None:
            raise NoMatrixNotation
        return _bracket(node, row, column)

    def _indexed_labels(
        self,
        parts: Product,
        fixed: dict[int, sympy.Expr],
        scope: frozenset[str],
        by_index: bool,
    ) -> tuple[tuple[Factor, ...], list[str]]:
        """Put into `fixed` an index for each summed label that needs one (in matrix notation
        the batch axis). Gives the factors that remain, and the letters summed over."""
        factors = parts.factors
        letters: list[str] = []
        for label in parts.summed:
            if not by_index and parts.sizes[label] != BATCH:
                continue
            if by_index and parts.sizes[label] == 1:
                fixed[label] = sympy.S.Zero
                continue
            letter = next(self.unused(scope | set(letters), parts.sizes[label] == BATCH))
            letters.append(letter)
            fixed[label] = _letter(letter)
        for factor in factors if by_index else ():
            node, (row, column) = factor if isinstance(factor[0], Select) else (None, (0, 0))
            if node is None or column < len(parts.output) or str(fixed[column]) not in letters:
                continue
            letters.remove(str(fixed[column]))
            fixed[column] = node.start + node.step * fixed[row]  # type: ignore[attr-defined]
            factors = tuple(other for other in factors if other is not factor)
        return factors, letters

    def _body(self, items: list[Item], output: tuple[int, ...], parts: Product) -> Tree:
        if output and all(labels in ((), output) for _, labels in items):
            if any(labels for _, labels in items):
                return algebra.hadamard([tree for tree, _ in items], len(output))
        reduced = contract(items, output, parts.sizes)
        if reduced is None:
            raise NoMatrixNotation
        return reduced

    # Operations

    def _call(self, node: Apply, indices: Indices, scope: frozenset[str]) -> Tree:
        depth = len(node.stack)
        stacked, core = indices[:depth], indices[depth:]
        free = [label for label in range(depth) if stacked[label] is None]
        if free and any(index is not None for index in core):
            raise NoMatrixNotation
        arguments = []
        for argument, labels in node.arguments:
            if [label for label in labels if label in free] != free:
                raise NoMatrixNotation
            whole = (None,) * (argument.ndim - len(labels))
            own = (*(stacked[label] for label in labels), *whole)
            if own.count(None) > 2 and free:
                raise NoMatrixNotation
            arguments.append(self._whole(argument, own, scope))
        return indexed(call(node, arguments, len(free) + len(core)), (None,) * len(free) + core)

    def _whole(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        """The tree of an operation's argument; in the index style sums and products in it are
        definitions."""
        if self.by_index and None in indices and isinstance(node, (Einsum, Sum, Map)):
            return indexed(self.define(node), indices)
        return self.tree(node, indices, scope)


def over(letters: list[str], body: Tree) -> Tree:
    """The sum of `body` over letters, with the coefficient in front and inner sums joined."""
    if isinstance(body, Scale):
        inner = Scale(ONE, body.scalars, body.body)
        if body.body is None and not body.scalars:
            return body
        joined = _join_sums(list(letters), inner)
        return algebra.scale(body.coefficient, [], joined)
    return _join_sums(list(letters), body)


def _join_sums(letters: list[str], body: Tree) -> Tree:
    parts = body.scalars if isinstance(body, Scale) and body.body is None else (body,)
    if any(isinstance(part, Over) for part in parts) and not body.rank:
        factors = [part.body if isinstance(part, Over) else part for part in parts]
        inner = [letter for part in parts if isinstance(part, Over) for letter in part.letters]
        if len(set(inner)) == len(inner):
            return _join_sums([*letters, *inner], algebra.scale(ONE, factors))
    if isinstance(body, Scale) and body.body is not None and not body.scalars:
        body = algebra.scale(body.coefficient, [], body.body)
    body = algebra.scale(ONE, parts) if isinstance(body, Scale) and body.body is None else body
    return Over(tuple(letters), body) if letters else body


def ordered(factors: tuple[Factor, ...], output: tuple[int, ...]) -> tuple[Factor, ...]:
    """Factors so that each shares a label with the one before, from the first output label on,
    or from an end of the chain."""
    left = list(factors)
    result: list[Factor] = []
    label = output[0] if output else None
    while left:
        best = min(left, key=lambda factor: _place(factor, label))
        left.remove(best)
        result.append(best)
        rest = [other for other in best[1] if other != label]
        if rest:
            label = rest[-1]
    return tuple(result)


def _place(factor: Factor, label: int | None) -> tuple[int, int, bool, bool]:
    node, labels = factor
    plain = isinstance(node, Leaf)
    accented = plain and node.role != "input"  # type: ignore[attr-defined]
    linked = labels.index(label) if label in labels else 2 + len(labels)
    return linked, len(labels), not accented, not plain


def _letter(letter: str) -> sympy.Symbol:
    return sympy.Symbol(letter, integer=True)


def _scope(indices: Indices) -> frozenset[str]:
    return frozenset(str(index) for index in indices if index is not None)


def _bracket(node: Structural, row: sympy.Expr, column: sympy.Expr) -> Tree:
    match node:
        case Delta():
            return Bracket(row, "δ", column)
        case Select():
            return Bracket(column, "==", node.start + node.step * row)
        case Triangle():
            return Bracket(row, ">=", column + node.offset)
    raise TypeError(f"no formula for {node!r}")
