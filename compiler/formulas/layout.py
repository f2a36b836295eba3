"""Parts put into zeros, laid out as blocks."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.formulas.tree import Block, Padded, Range, Tree, Zeros
from derivatrix.compiler.ir.dimensions import Dimension

Places = list[Range | None]
"""Along an axis, what is taken (None: all of it), with the gaps between."""


def grid(cells: Sequence[Padded]) -> Block | None:
    """The sum of parts in zeros as blocks."""
    places = [_axis([cell.ranges[axis] for cell in cells]) for axis in range(cells[0].rank)]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    filled: dict[tuple[int, ...], Padded] = {}
    for cell in cells:
        at = tuple(place.index(taken) for place, taken in zip(known, cell.ranges, strict=True))
        if at in filled:
            return None
        filled[at] = cell
    return _laid_out(filled, known)


def _laid_out(filled: dict[tuple[int, ...], Padded], places: Sequence[Places]) -> Block:
    """Blocks from the places along each axis and what is in each."""
    rows = []
    for row in range(len(places[0])):
        cells: list[Tree] = []
        for column in range(len(places[1])) if len(places) == 2 else (-1,):
            at = (row, column)[: len(places)]
            taken = [place[position] for place, position in zip(places, at, strict=True)]
            zeros = Zeros(tuple(part[1] for part in taken if part is not None))
            cells.append(filled[at].body if at in filled else zeros)
        rows.append(tuple(cells))
    return Block(len(places), tuple(rows), tuple(filled.values()))


def _axis(ranges: Sequence[Range | None]) -> Places | None:
    """The places along an axis, in order and with the gaps between; None where they overlap."""
    different = list(dict.fromkeys(ranges))
    if None in different:
        return different if len(different) == 1 else None
    taken = [entry for entry in different if entry is not None]
    ordered = [taken.pop()]
    for entry in taken:
        position = 0
        while position < len(ordered) and _before(ordered[position], entry):
            position += 1
        if position < len(ordered) and not _before(entry, ordered[position]):
            return None
        ordered.insert(position, entry)
    return _gaps_filled(ordered)


def _before(left: Range, right: Range) -> bool:
    return bool(sympy.expand(right[0] - left[0] - left[1]).is_nonnegative)


def _gaps_filled(ordered: Sequence[Range]) -> Places:
    size = ordered[0][3]
    places: Places = []
    end: Dimension = sympy.S.Zero
    for entry in (*ordered, (size, sympy.S.Zero, 1, size)):
        gap = sympy.expand(entry[0] - end)
        if gap != 0:
            places.append((end, gap, 1, size))
        if entry[1] != 0:
            places.append(entry)
        end = sympy.expand(entry[0] + entry[1])
    return places


def surrounded(tree: Padded) -> Block:
    """A part put into zeros as blocks."""
    places: list[Places] = [
        [None] if taken is None else _gaps_filled([taken]) for taken in tree.ranges
    ]
    at = tuple(place.index(taken) for place, taken in zip(places, tree.ranges, strict=True))
    return _laid_out({at: tree}, places)
