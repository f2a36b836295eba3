"""Labels of products as indices: which labels are known, which factors belong together, and sums
over letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Item, indexed, matrix
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, einsum
from derivatrix.compiler.ir.product import Product

ONE = sympy.S.One


class NoMatrixNotation(Exception):
    """A node that has no matrix notation."""


def writes_whole(node: ir.Apply) -> bool:
    """Whether all arguments have all stacked axes, in order, and are at most matrices."""
    every = tuple(range(len(node.stack)))
    most = 2 + (BATCH in node.stack[:1])
    return all(labels == every and part.ndim <= most for part, labels in node.arguments)


def chained(tree: Tree) -> Tree:
    """What is constant along one axis of a matrix as a product with ones."""
    if isinstance(tree, kinds.Spread) and tree.rank == 2 and len(tree.along) == 1:
        return algebra.matmul(tree)
    return tree


def contracted(items: list[Item], output: tuple[int, ...], parts: Product) -> Tree:
    """The product of items. Raises NoMatrixNotation where it has none."""
    arrays = [labels for _, labels in items if labels]
    if arrays and all(labels == output for labels in arrays):
        return algebra.hadamard([tree for tree, _ in items])
    tree = contract(items, output, parts.sizes)
    if tree is None:
        raise NoMatrixNotation
    return tree


def check_reducible(
    fixed: Mapping[int, sympy.Expr], output: tuple[int, ...], parts: Product
) -> None:
    """Raise NoMatrixNotation for a product that has none, whatever its factors are."""
    items: list[Item] = []
    for position, (node, labels) in enumerate(parts.factors):
        left = tuple(label for label in labels if label not in fixed)
        tree: Tree = kinds.Name(len(left), str(position), "")
        if isinstance(node, ir.Structural) and len(left) == node.ndim:
            tree = matrix(node)
        items.append((tree, left))
    contracted(items, output, parts)


def summed_over(letters: dict[str, sympy.Expr], body: Tree) -> Tree:
    """The sum of `body` over letters, with what has no indices in front and inner sums joined."""
    if not letters:
        return body
    alone = kinds.Scale(ONE, (), body) if body.rank else kinds.Scale(ONE, (body,), None)
    parts = body if isinstance(body, kinds.Scale) else alone
    outside = [part for part in parts.scalars if not part.letters & set(letters)]
    inside = [part for part in parts.scalars if part.letters & set(letters)]
    sums = [part for part in inside if isinstance(part, kinds.Over)]
    inner = [pair for part in sums for pair in zip(part.over, part.sizes, strict=True)]
    if parts.body is None and len(dict(inner)) == len(inner):
        inside = [part.body if isinstance(part, kinds.Over) else part for part in inside]
        letters = {**letters, **dict(inner)}
    below = tuple(letters.values())
    total = kinds.Over(tuple(letters), algebra.scale(ONE, inside, parts.body), below)
    return algebra.scale(parts.coefficient, outside, total)


def letters_summed(tree: Tree) -> set[str]:
    """The letters of the sums that are factors of `tree`."""
    if isinstance(tree, kinds.Scale):
        return set().union(*(letters_summed(part) for part in tree.scalars))
    return set(tree.over) if isinstance(tree, kinds.Over) else set()


def is_reshaped(label: int, factors: Sequence[Factor]) -> bool:
    """Whether a label stands for two axes merged into one."""
    return any(isinstance(node, ir.Reshape | ir.Vech) and own[0] == label for node, own in factors)


def solved(
    factors: Sequence[Factor], fixed: Mapping[int, sympy.Expr], parts: Product
) -> tuple[list[Factor], dict[int, sympy.Expr]]:
    """Summed labels that a selection or a merge of axes determines, as indices."""
    left, known = list(factors), dict(fixed)
    progress = True
    while progress:
        progress = False
        for factor in left:
            node, own = factor
            target = own[1] if isinstance(node, ir.Slice) else own[0] if own else -1
            if target in known or target in parts.output:
                continue
            if isinstance(node, ir.Slice) and own[0] in known:
                known[target] = node.start + node.step * known[own[0]]
            elif isinstance(node, ir.Reshape) and own[1] in known and own[2] in known:
                known[target] = node.shape[2] * known[own[1]] + known[own[2]]
            else:
                continue
            left.remove(factor)
            progress = True
            break
    return left, known


def in_blocks(
    factors: Sequence[Factor], fixed: Mapping[int, sympy.Expr], parts: Product
) -> list[Factor]:
    """The factors with a block of one in place of it and of merges whose outer index is known."""
    merges = {
        factor[1][0]: factor
        for factor in factors
        if _takes_blocks(factor, factors, parts)
        and factor[1][1] in fixed
        and factor[1][2] not in fixed
    }
    found: list[Factor] = []
    for node, labels in factors:
        slices: list[Factor] = []
        for label in labels:
            if label in merges and (node, labels) != merges[label]:
                merge, (_, outer, inner) = merges[label]
                start = sympy.expand(merge.shape[2] * fixed[outer])
                taken = ir.Slice(merge.shape[2], merge.shape[0], start, 1)
                slices.append((taken, (inner, label)))
        turned = {own[1]: own[0] for _, own in slices}
        output = tuple(turned.get(label, label) for label in labels)
        if len(set(output)) < len(labels):
            return list(factors)
        if slices:
            first = [own for own in slices if own[1][1] == labels[0]]
            rest = [own for own in slices if own not in first]
            found.append((einsum([*first, (node, labels), *rest], output), output))
        elif (node, labels) not in merges.values():
            found.append((node, labels))
    return found


def outer_labels(parts: Product) -> list[int]:
    """The summed labels of blocks whose entries are those of the product."""
    found = [own for node, own in parts.factors if _takes_blocks((node, own), parts.factors, parts)]
    found = [own for own in found if own[1] not in parts.output and own[2] in parts.output]
    return list(dict.fromkeys(own[1] for own in sorted(found, key=lambda own: own[2])))


def _takes_blocks(factor: Factor, factors: Sequence[Factor], parts: Product) -> bool:
    """Whether a factor merges two axes into one that is summed over with one other factor."""
    node, own = factor
    if not isinstance(node, ir.Reshape) or own[1] == own[2] or own[0] in parts.output:
        return False
    return sum(labels.count(own[0]) for _, labels in factors) == 2


def split_merge(
    factors: Sequence[Factor], fixed: Mapping[int, sympy.Expr], parts: Product
) -> tuple[Factor, dict[int, sympy.Expr], list[Item]] | None:
    """A merge of axes whose merged index is known: the indices of the others, and what has to
    hold where these are known as well."""
    for factor in factors:
        node, own = factor
        free = [i for i in own[1:] if i not in fixed]
        if not isinstance(node, ir.Reshape) or own[0] not in fixed or own[1] == own[2]:
            continue
        if not free or any(i in parts.output for i in free):
            continue
        index, inner = fixed[own[0]], node.shape[2]
        values = {own[1]: sympy.floor(index / inner), own[2]: sympy.Mod(index, inner)}
        known = [(value, fixed[i]) for i, value in values.items() if i in fixed]
        brackets: list[Item] = [(condition(one, "==", other), ()) for one, other in known]
        return factor, {i: values[i] for i in free}, brackets
    return None


def joined(items: list[Item], parts: Product) -> Item:
    """Items as one, by the output's labels that they have."""
    output = tuple(i for i in parts.output if any(i in own for _, own in items))
    return contracted(items, output, parts), output


@algebra.linear
def entry_of(tree: Tree, indices: Indices) -> Tree:
    """An entry of a matrix or vector (or, where an index is None, a row or column)."""
    if all(index is None for index in indices):
        return tree
    if len(indices) == 2:
        turned = algebra.transpose(tree)
        if turned.counts[kinds.Transpose] < tree.counts[kinds.Transpose]:
            return indexed(turned, indices[::-1])
    return indexed(tree, indices)


def index_of(letter: str) -> sympy.Symbol:
    """A letter as an index."""
    return sympy.Symbol(letter, integer=True)


def letters_of(indices: Indices) -> frozenset[str]:
    """The texts of the indices that are given."""
    return frozenset(str(index) for index in indices if index is not None)


def condition(left: sympy.Expr, symbol: str, right: sympy.Expr) -> Tree:
    """1 where the relation between two indices holds, which it may for all of them."""
    gap = sympy.expand(left - right)
    holds = gap.is_nonnegative if symbol == ">=" else gap == 0
    return kinds.Number(ONE) if holds else kinds.Bracket(left, symbol, right)


def bracket(node: ir.Structural, indices: Sequence[sympy.Expr]) -> Tree:
    """An entry of an array of zeros and ones: a condition on its indices."""
    *first, row, column = indices
    match node:
        case ir.Reshape():
            return condition(first[0], "==", node.shape[2] * row + column)
        case ir.Vech():
            place = condition(first[0], "==", row * (row + 1) / 2 + column)
            return algebra.scale(ONE, [place, condition(row, ">=", column)], None)
        case ir.Gather():
            return kinds.Bracket(column, "==", sympy.Function(f"gather{list(node.table)}")(row))
        case ir.Delta():
            return condition(row, "δ", column)
        case ir.Slice():
            return condition(column, "==", node.start + node.step * row)
        case ir.Triangle():
            return condition(row, ">=", column + node.offset)
    raise TypeError(f"no formula for {node!r}")
