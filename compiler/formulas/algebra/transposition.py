"""Transposes, pushed to the names where that leaves fewer of them."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.formulas.algebra import (
    chains,
    coefficients,
    entrywise,
    order,
    parts,
    products,
    sums,
)
from derivatrix.compiler.formulas.rewrite import mapped
from derivatrix.compiler.formulas.tree import (
    Add,
    Block,
    Choice,
    Diag,
    Function,
    Hadamard,
    Identity,
    Indexed,
    Kronecker,
    Logic,
    Matmul,
    Over,
    Padded,
    Positive,
    Power,
    Raise,
    Relation,
    Rows,
    Scale,
    Spread,
    Transpose,
    Tree,
    Triangle,
    Zeros,
    is_row,
)

ENTRYWISE = (Add, Choice, Function, Hadamard, Logic, Positive, Raise, Relation)
"""Kinds whose entries depend on the same entries of their parts, all of them, or on scalars."""


def transpose(tree: Tree) -> Tree:
    """A matrix transposed."""
    match tree:
        case Identity() | Diag():
            return tree
        case Transpose():
            return tree.body
        case Matmul():
            return chains.matmul(*flipped(tree.factors))
        case Power():
            return Power(transpose(tree.body), tree.exponent)
        case Scale() if tree.body is not None:
            return coefficients.scale(tree.coefficient, tree.scalars, transpose(tree.body))
        case Spread():
            along = sorted(1 - axis for axis in tree.along)
            return entrywise.spread(tree.body, along, tree.shape[::-1])
        case Zeros():
            return Zeros(tree.shape[::-1])
        case Triangle():
            return Triangle(transpose(tree.body), not tree.lower, -tree.offset)
        case Over():
            return Over(tree.over, transpose(tree.body), tree.sizes)
        case Padded():
            return parts.padded(transpose(tree.body), tree.ranges[::-1])
        case Block():
            return _block(tree)
        case Kronecker():
            return Kronecker(transpose(tree.left), transpose(tree.right))
        case Rows() if tree.step == -1 and tree.count == tree.size:
            return tree
    if getattr(tree, "symmetric", False):
        return tree
    last = isinstance(tree, Indexed) and tree.indices[-2:] == (None, None)
    if isinstance(tree, Indexed) and last and getattr(tree.body, "symmetric", False):
        return tree
    pushed = _pushed(tree)
    return pushed if pushed is not None else Transpose(tree)


def _block(tree: Block) -> Block:
    cells = [Padded(transpose(cell.body), cell.ranges[::-1]) for cell in tree.cells]
    rows = [tuple(map(transpose, column)) for column in zip(*tree.rows, strict=True)]
    return Block(2, tuple(rows), tuple(cells))


def _pushed(tree: Tree) -> Tree | None:
    """The transpose taken inside, where that leaves no more transposes than one outside."""
    if not isinstance(tree, ENTRYWISE):
        return None
    result = _normal(mapped(tree, _turned))
    few = order.transposes(result) <= order.transposes(Transpose(tree))
    return result if few and result.rank == 2 else None


def _normal(tree: Tree) -> Tree:
    """The normal form of what works entry by entry, its parts matrices or scalars."""
    match tree:
        case Add():
            return sums.add(tree.terms, 2)
        case Hadamard():
            return products.hadamard(tree.factors, 2)
        case Raise():
            return products.raised(tree.body, tree.exponent)
        case Function():
            return entrywise.function(tree.function, tree.arguments)
    return tree


def _turned(tree: Tree) -> Tree:
    return transpose(tree) if tree.rank == 2 else tree


def _flip(factor: Tree) -> Tree:
    if is_row(factor):
        return factor.body
    return Transpose(factor) if factor.rank == 1 else transpose(factor)


def flipped(factors: Sequence[Tree]) -> list[Tree]:
    """The factors of a product's transpose."""
    return [_flip(factor) for factor in reversed(factors)]
