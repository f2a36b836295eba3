"""Slices and entries, and products with rows of the identity: what is taken, what is put into
zeros, and sums of that as blocks."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.formulas.algebra import chains, coefficients, transposition
from derivatrix.compiler.formulas.layout import grid
from derivatrix.compiler.formulas.tree import (
    Identity,
    Ones,
    Padded,
    Part,
    Range,
    Rows,
    Scale,
    Transpose,
    Tree,
    Unit,
    is_row,
)
from derivatrix.compiler.ir.dimensions import Dimension


def selected(left: Tree, right: Tree) -> Tree | None:
    """Products with rows of the identity, written as slices and entries."""
    if isinstance(right, Ones) and isinstance(left, Transpose) and isinstance(left.body, Rows):
        rows = left.body
        return Unit(rows.size, rows.start) if rows.count == 1 else None
    if isinstance(left, Rows) and not is_row(right):
        if isinstance(right, Transpose) and isinstance(right.body, Rows):
            return None
        return part(right, (_range(left), None) if right.rank == 2 else (_range(left),))
    if is_row(left) and isinstance(left.body, Unit) and right.rank == 2:
        return Transpose(part(right, (left.body.position, None)))
    if isinstance(right, Unit) and left.rank == 2:
        return part(left, (None, right.position))
    if isinstance(right, Transpose) and isinstance(right.body, Rows):
        if is_row(left):
            return Transpose(part(left.body, (_range(right.body),)))
        return part(left, (None, _range(right.body))) if left.rank == 2 else None
    return None


def _range(rows: Rows) -> Range:
    return rows.start, rows.count, rows.step, rows.size


def part(body: Tree, ranges: tuple[Range | Dimension | None, ...]) -> Tree:
    """Entries of a matrix or vector."""
    if isinstance(body, Ones) and isinstance(ranges[0], tuple):
        return Ones(ranges[0][1])
    if isinstance(body, Part):
        own = iter(ranges)
        merged = [
            next(own) if old is None or isinstance(old, tuple) else old for old in body.ranges
        ]
        kept = [old for old in body.ranges if old is None or isinstance(old, tuple)]
        if all(old is None or new is None for old, new in zip(kept, ranges, strict=True)):
            both = [
                new if new is not None else old
                for old, new in zip(body.ranges, merged, strict=True)
            ]
            return Part(body.body, tuple(both))
    if isinstance(body, Transpose) and len(ranges) == 2 and body.rank == 2:
        inner = part(body.body, ranges[::-1])
        return transposition.transpose(inner) if inner.rank == 2 else inner
    return Part(body, ranges)


# Zeros around a part


def padded(body: Tree, ranges: Sequence[Range | None]) -> Tree:
    """`body` put into zeros."""
    if isinstance(body, Scale) and body.body is not None:
        return coefficients.scale(body.coefficient, body.scalars, padded(body.body, ranges))
    body = _identity_in_zeros(body) or body
    if isinstance(body, Padded):
        free = all(old is None or new is None for old, new in zip(body.ranges, ranges, strict=True))
        if free:
            both = tuple(old or new for old, new in zip(body.ranges, ranges, strict=True))
            return Padded(body.body, both)
    return Padded(body, tuple(ranges))


def embedded(chain: Sequence[Tree]) -> Tree | None:
    """A chain that starts or ends with a contiguous selection, as what is put into zeros."""
    if len(chain) < 2:
        return None
    first, last = chain[0], chain[-1]
    if isinstance(first, Transpose) and isinstance(first.body, Rows) and first.body.step == 1:
        body = chains.matmul(*chain[1:])
        return padded(body, (_range(first.body), None)[: body.rank])
    if isinstance(last, Rows) and last.step == 1:
        if len(chain) == 2 and is_row(chain[0]):
            return Transpose(padded(chain[0].body, (_range(last),)))
        body = chains.matmul(*chain[:-1])
        return padded(body, (None, _range(last))) if body.rank == 2 else None
    return None


def selections(tree: Padded) -> list[Tree]:
    """What is put into zeros as a product with selections."""
    rows = [None if taken is None else _rows(taken) for taken in tree.ranges]
    left = [] if rows[0] is None else [Transpose(rows[0])]
    right = rows[1:] if tree.rank == 2 else []
    return [*left, tree.body, *(part for part in right if part is not None)]


def _rows(taken: Range) -> Rows:
    start, count, step, size = taken
    return Rows(count, size, start, step)


# Blocks


def blocks(terms: Sequence[Tree]) -> list[Tree]:
    """The terms of a sum, with those that are parts put into zeros joined as blocks, where they
    lie on a grid."""
    found = {id(term): cell for term in terms if (cell := _cell(term)) is not None}
    if len(found) < 2:
        return list(terms)
    joined = grid(list(found.values()))
    if joined is None:
        return list(terms)
    return [*(term for term in terms if id(term) not in found), joined]


def _cell(term: Tree) -> Padded | None:
    """A term as a part put into zeros."""
    match term:
        case Padded():
            return term
        case Scale(body=Padded() as inner):
            return Padded(
                coefficients.scale(term.coefficient, term.scalars, inner.body), inner.ranges
            )
        case Rows() | Transpose():
            return _identity_in_zeros(term)
        case Scale(body=Rows() | Transpose()):
            assert term.body is not None
            cell = _cell(term.body)
            if cell is None:
                return None
            return Padded(
                coefficients.scale(term.coefficient, term.scalars, cell.body), cell.ranges
            )
    return None


def _identity_in_zeros(term: Tree) -> Padded | None:
    match term:
        case Rows(step=1):
            return Padded(Identity(term.count), (None, _range(term)))
        case Transpose(body=Rows(step=1) as rows):
            return Padded(Identity(rows.count), (_range(rows), None))
    return None


def _scaled(term: Scale, cell: Padded) -> Padded:
    return Padded(coefficients.scale(term.coefficient, term.scalars, cell.body), cell.ranges)
