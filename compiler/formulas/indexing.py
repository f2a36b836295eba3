"""Index notation for products: indices of labels, entries, conditions, and sums over letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Item, indexed, matrix, remove_spreads
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.expressions import convert
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Factor, einsum
from derivatrix.compiler.ir.product import Product

ONE = sympy.S.One


class NoMatrixNotation(Exception):
    """Raised for a node that has no matrix notation, or no vec form."""


def writes_whole(node: ir.Apply) -> bool:
    """Tell whether all arguments have all stacked axes, in order, and are at most matrices."""
    stack_labels = tuple(range(len(node.stack)))
    max_rank = 2 + (BATCH in node.stack[:1])
    return all(
        labels == stack_labels and argument.ndim <= max_rank for argument, labels in node.arguments
    )


def as_chain(tree: Tree) -> Tree:
    """Write a matrix that is constant along one axis as a product with ones."""
    if isinstance(tree, kinds.Spread) and tree.rank == 2 and len(tree.along) == 1:
        return algebra.matmul(tree)
    return tree


def contract_items(items: list[Item], output: tuple[int, ...], product: Product) -> Tree:
    """Multiply items in matrix notation. Raises NoMatrixNotation where there is none."""
    label_tuples = [labels for _, labels in items if labels]
    if label_tuples and all(labels == output for labels in label_tuples):
        return algebra.hadamard([tree for tree, _ in items])
    tree = contract(items, output, product.sizes)
    if tree is None:
        raise NoMatrixNotation
    return tree


def contract_product(items: list[Item], output: tuple[int, ...], product: Product) -> Tree:
    """Multiply the items of `product` and its coefficient in matrix notation."""
    coefficient: Item = (convert(product.coefficient), ())
    return contract_items([coefficient, *remove_spreads(items, product)], output, product)


def check_reducible(
    index_at: Mapping[int, sympy.Expr], output: tuple[int, ...], product: Product
) -> None:
    """Raise NoMatrixNotation for a product that has none, before the trees of its factors are
    built, which takes longer and may define them."""
    items: list[Item] = []
    for position, (node, labels) in enumerate(product.factors):
        open_labels = tuple(label for label in labels if label not in index_at)
        tree: Tree = kinds.Name(len(open_labels), str(position), "")
        if isinstance(node, ir.Structural) and len(open_labels) == node.ndim:
            tree = matrix(node)
        items.append((tree, open_labels))
    contract_items(items, output, product)


def sum_over(letters: dict[str, sympy.Expr], body: Tree) -> Tree:
    """Sum `body` over letters, given with their sizes. Factors without these letters are moved in
    front of the sum; inner sums are joined with it."""
    if not letters:
        return body
    if not isinstance(body, kinds.Scale):
        body = kinds.Scale(ONE, (), body) if body.rank else kinds.Scale(ONE, (body,), None)
    constants = [factor for factor in body.scalars if not factor.letters & set(letters)]
    summands = [factor for factor in body.scalars if factor.letters & set(letters)]
    sums = [factor for factor in summands if isinstance(factor, kinds.Over)]
    inner = [pair for part in sums for pair in zip(part.over, part.sizes, strict=True)]
    if body.body is None and len(dict(inner)) == len(inner):
        summands = [
            factor.body if isinstance(factor, kinds.Over) else factor for factor in summands
        ]
        letters = {**letters, **dict(inner)}
    summand = algebra.scale(ONE, summands, body.body)
    total = kinds.Over(tuple(letters), summand, tuple(letters.values()))
    return algebra.scale(body.coefficient, constants, total)


def sum_letters(tree: Tree) -> set[str]:
    """Collect the letters of the sums that are factors of `tree`."""
    if isinstance(tree, kinds.Scale):
        return set().union(*(sum_letters(part) for part in tree.scalars))
    return set(tree.over) if isinstance(tree, kinds.Over) else set()


def is_merged(label: int, factors: Sequence[Factor]) -> bool:
    """Tell whether a label is that of two axes merged into one."""
    return any(
        isinstance(node, ir.Reshape | ir.Vech) and labels[0] == label for node, labels in factors
    )


def resolve_labels(
    factors: Sequence[Factor], index_at: Mapping[int, sympy.Expr], product: Product
) -> tuple[list[Factor], dict[int, sympy.Expr]]:
    """Compute the indices of summed labels that a selection or a merge of axes determines.

    Returns the factors without these selections and merges, and the indices by label.
    """
    remaining, index_at = list(factors), dict(index_at)
    for factor in factors:
        node, labels = factor
        target = labels[1] if isinstance(node, ir.Slice) else labels[0] if labels else -1
        if target in index_at or target in product.output:
            continue
        if isinstance(node, ir.Slice) and labels[0] in index_at:
            index_at[target] = node.start + node.step * index_at[labels[0]]
        elif isinstance(node, ir.Reshape) and {*labels[1:]} <= index_at.keys():
            index_at[target] = node.shape[2] * index_at[labels[1]] + index_at[labels[2]]
        else:
            continue
        remaining.remove(factor)
        return resolve_labels(remaining, index_at, product)
    return remaining, index_at


def take_blocks(
    factors: Sequence[Factor], index_at: Mapping[int, sympy.Expr], product: Product
) -> list[Factor]:
    """Replace a factor, and merges of its axes whose outer index is known, by a block of it."""
    merges = {
        labels[0]: (node, labels)
        for node, labels in factors
        if _is_block_merge((node, labels), factors, product)
        and labels[1] in index_at
        and labels[2] not in index_at
    }
    result: list[Factor] = []
    for node, labels in factors:
        output = labels
        row_slices: list[Factor] = []
        further_slices: list[Factor] = []
        for label in labels:
            if label in merges and merges[label] != (node, labels):
                merge, (_, outer, inner) = merges[label]
                start = sympy.expand(merge.shape[2] * index_at[outer])
                selection = ir.Slice(merge.shape[2], merge.shape[0], start, 1), (inner, label)
                (row_slices if label == labels[0] else further_slices).append(selection)
                output = tuple(
                    inner if output_label == label else output_label for output_label in output
                )
        if len(set(output)) < len(labels):
            return list(factors)
        if output != labels:
            block = einsum([*row_slices, (node, labels), *further_slices], output)
            result.append((block, output))
        elif (node, labels) not in merges.values():
            result.append((node, labels))
    return result


def block_labels(product: Product) -> list[int]:
    """List the summed labels that number blocks whose entries are those of the product."""
    pairs = [
        (labels[2], labels[1])
        for node, labels in product.factors
        if _is_block_merge((node, labels), product.factors, product)
        and labels[1] not in product.output
        and labels[2] in product.output
    ]
    return list(dict.fromkeys(outer for _, outer in sorted(pairs, key=lambda pair: pair[0])))


def _is_block_merge(factor: Factor, factors: Sequence[Factor], product: Product) -> bool:
    """Tell whether a factor merges two axes into one that is summed with one other factor."""
    node, labels = factor
    if not isinstance(node, ir.Reshape) or labels[1] == labels[2] or labels[0] in product.output:
        return False
    return sum(other_labels.count(labels[0]) for _, other_labels in factors) == 2


def split_index(
    factors: Sequence[Factor], index_at: Mapping[int, sympy.Expr], product: Product
) -> tuple[Factor, dict[int, sympy.Expr], list[Item]] | None:
    """Find a merge of axes whose merged index is known, or the transpose of a selection. Returns
    it, the indices of its summed axes, and the conditions on known indices."""
    for factor in factors:
        node, labels = factor
        if _is_transposed_slice(factor, index_at, product):
            assert isinstance(node, ir.Slice)
            index, stop = index_at[labels[1]], sympy.expand(node.start + node.shape[0])
            bounds: list[Tree] = []
            if node.start != 0:
                bounds.append(kinds.Bracket(index, ">=", node.start))
            if stop != node.shape[1]:
                bounds.append(kinds.Bracket(index, "<", stop))
            return factor, {labels[0]: index - node.start}, [(bound, ()) for bound in bounds]
        unknown = [label for label in labels[1:] if label not in index_at]
        if not isinstance(node, ir.Reshape) or labels[0] not in index_at or labels[1] == labels[2]:
            continue
        if not unknown or any(label in product.output for label in unknown):
            continue
        index, inner_size = index_at[labels[0]], node.shape[2]
        outer_and_inner = {
            labels[1]: sympy.floor(index / inner_size),
            labels[2]: sympy.Mod(index, inner_size),
        }
        conditions: list[Item] = [
            (condition(outer_and_inner[label], "==", index_at[label]), ())
            for label in labels[1:]
            if label in index_at
        ]
        return factor, {label: outer_and_inner[label] for label in unknown}, conditions
    return None


def selects_of_longer(node: ir.Einsum) -> bool:
    """Tell whether a product selects one entry of an axis that it makes longer: its matrix
    notation, Yᵀ e_T[1:], is harder to read than an index."""
    slices = [
        (part.shape[0], *labels) for part, labels in node.factors if isinstance(part, ir.Slice)
    ]
    selected = {axis for size, row, axis in slices if size == 1 and row >= node.ndim}
    return any(axis in selected for size, _, axis in slices if size != 1)


def _is_transposed_slice(
    factor: Factor, index_at: Mapping[int, sympy.Expr], product: Product
) -> bool:
    """Tell whether a factor puts a summed axis into a longer one with a known index."""
    node, labels = factor
    return (
        isinstance(node, ir.Slice)
        and node.step == 1
        and labels[1] in index_at
        and labels[0] not in index_at
        and labels[0] not in product.output
    )


def multiply_items(items: list[Item], product: Product) -> Item:
    """Multiply items to one, with the output labels that they have."""
    output = tuple(i for i in product.output if any(i in labels for _, labels in items))
    return contract_items(items, output, product), output


@algebra.linear
def entry_of(tree: Tree, indices: Indices) -> Tree:
    """Take an entry of a matrix or vector (where an index is None, a row or column), of the
    transpose if that is written with fewer transposes."""
    if len(indices) == 2 and indices != (None, None):
        transposed = algebra.transpose(tree)
        if transposed.counts[kinds.Transpose] < tree.counts[kinds.Transpose]:
            return indexed(transposed, indices[::-1])
    return indexed(tree, indices)


def index_texts(indices: Indices) -> frozenset[str]:
    """Write the indices that are not None."""
    return frozenset(str(index) for index in indices if index is not None)


def condition(left: sympy.Expr, symbol: str, right: sympy.Expr) -> Tree:
    """Build [left symbol right], which is 1 if it holds for all indices."""
    gap = sympy.expand(left - right)
    holds = gap.is_nonnegative if symbol == ">=" else gap == 0
    return kinds.Number(ONE) if holds else kinds.Bracket(left, symbol, right)


def bracket(node: ir.Structural, indices: Sequence[sympy.Expr]) -> Tree:
    """Build an entry of an array of zeros and ones: a condition on its indices."""
    *merged, row, column = indices
    match node:
        case ir.Reshape():
            return condition(merged[0], "==", node.shape[2] * row + column)
        case ir.Vech():
            place = condition(merged[0], "==", row * (row + 1) / 2 + column)
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
