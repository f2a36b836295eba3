"""Sums of arrays put into zeros as block matrices."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.formulas.tree import Block, Padded, Range, Tree, Zeros
from derivatrix.compiler.ir.dimensions import Dimension

Places = list[Range | None]
"""The ranges of blocks along an axis (None: all of it), with the gaps between."""


def grid(cells: Sequence[Padded]) -> Block | None:
    """Lay the sum of arrays in zeros out as a block matrix; None if they are not on a grid."""
    axes: list[Places] = []
    for axis in range(cells[0].rank):
        places = _places([cell.ranges[axis] for cell in cells])
        if places is None:
            return None
        axes.append(places)
    filled: dict[tuple[int, ...], Padded] = {}
    for cell in cells:
        position = tuple(map(list.index, axes, cell.ranges))
        if position in filled:
            return None
        filled[position] = cell
    return _block(filled, axes)


def _block(filled: dict[tuple[int, ...], Padded], axes: Sequence[Places]) -> Block:
    """Build the block matrix of the arrays at some positions of a grid, and zeros elsewhere."""
    rows = []
    for row in range(len(axes[0])):
        cells: list[Tree] = []
        for column in range(len(axes[1])) if len(axes) == 2 else (-1,):
            position = (row, column)[: len(axes)]
            ranges = [places[i] for places, i in zip(axes, position, strict=True)]
            zeros = Zeros(tuple(part[1] for part in ranges if part is not None))
            cells.append(filled[position].body if position in filled else zeros)
        rows.append(tuple(cells))
    return Block(len(axes), tuple(rows), tuple(filled.values()))


def _places(ranges: Sequence[Range | None]) -> Places | None:
    """Order the ranges along an axis and fill the gaps; None if ranges overlap."""
    distinct = list(dict.fromkeys(ranges))
    if None in distinct:
        return distinct if len(distinct) == 1 else None
    unordered = [part for part in distinct if part is not None]
    ordered = [unordered.pop()]
    for part in unordered:
        position = 0
        while position < len(ordered) and _is_before(ordered[position], part):
            position += 1
        if position < len(ordered) and not _is_before(part, ordered[position]):
            return None
        ordered.insert(position, part)
    return _with_gaps(ordered)


def _is_before(left: Range, right: Range) -> bool:
    return bool(sympy.expand(right[0] - left[0] - left[1]).is_nonnegative)


def _with_gaps(ordered: Sequence[Range]) -> Places:
    """Insert the gaps between ranges, and those at both ends of the axis."""
    size = ordered[0][3]
    places: Places = []
    end: Dimension = sympy.S.Zero
    for part in (*ordered, (size, sympy.S.Zero, 1, size)):
        gap = sympy.expand(part[0] - end)
        if gap != 0:
            places.append((end, gap, 1, size))
        if part[1] != 0:
            places.append(part)
        end = sympy.expand(part[0] + part[1])
    return places


def surrounded(tree: Padded) -> Block:
    """Write an array put into zeros as a block matrix."""
    axes: list[Places] = [[None] if part is None else _with_gaps([part]) for part in tree.ranges]
    return _block({tuple(map(list.index, axes, tree.ranges)): tree}, axes)
