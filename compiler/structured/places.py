"""Where a product's labels are on the axes: index arithmetic in place of structural factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.ir import nodes as ir


@dataclass(frozen=True)
class Place:
    """The index on an axis: `offset` plus each step times its label; or, where there is a table,
    the table's entry at the one label. `table`: the tuple of a `Pick`; of a `Pack`, its size and
    which coordinate ("rows" or "columns") of the lower triangle's entry. `whole`: the axis is the
    label, from its first index to its last."""

    offset: sympy.Expr
    steps: tuple[tuple[int, sympy.Expr], ...]
    table: tuple[int, ...] | tuple[sympy.Expr, str] | None = None
    whole: bool = False

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(label for label, _ in self.steps)

    @property
    def plain(self) -> int | None:
        """The label, where the axis is just that."""
        return self.labels[0] if self.whole else None


def at_label(label: int) -> Place:
    """The index that is a label."""
    return Place(sympy.S.Zero, ((label, sympy.S.One),), whole=True)


class Places:
    """Labels that follow from others. `sources` says by which factors, `rest` are the factors
    that nothing could be read off, `masks` the triangles between free labels."""

    def __init__(self, factors: Sequence[ir.Factor]) -> None:
        self._found: dict[int, Place] = {}
        self._by: dict[int, ir.Factor] = {}
        self.rest: list[ir.Factor] = []
        structural = [f for f in factors if isinstance(f[0], ir.Structural)]
        for factor in structural:
            if isinstance(factor[0], ir.Triangle) or not self._read(factor):
                self.rest.append(factor)
        self.masks = [
            (node, labels)
            for node, labels in self.rest
            if isinstance(node, ir.Triangle)
            and len(set(labels)) == 2
            and not self._found.keys() & set(labels)
        ]
        self.rest = [factor for factor in self.rest if factor not in self.masks]

    def at(self, label: int) -> Place:
        """The index that a label stands for, in terms of free labels."""
        return self._found.get(label, at_label(label))

    def sources(self, labels: Sequence[int]) -> list[ir.Factor]:
        """The structural factors that determine some of the labels."""
        needed: list[ir.Factor] = []
        pending = list(labels)
        while pending:
            factor = self._by.get(pending.pop())
            if factor is not None and factor not in needed:
                needed.append(factor)
                pending += factor[1]
        return needed

    def free(self, labels: Sequence[int]) -> tuple[int, ...]:
        """The free labels that these stand for, each once."""
        return tuple(dict.fromkeys(new for label in labels for new in self.at(label).labels))

    def _read(self, factor: ir.Factor) -> bool:
        """Note what a factor says of its labels, if that can be had."""
        node, labels = factor
        if len(set(labels)) < len(labels):
            return False
        match node:
            case ir.Select():
                source = Place(node.start, ((labels[0], sympy.Integer(node.step)),))
                found = {labels[1]: source}
            case ir.Merge():
                steps = ((labels[1], node.shape[2]), (labels[2], sympy.S.One))
                found = {labels[0]: Place(sympy.S.Zero, steps)}
            case ir.Pick():
                found = {labels[1]: Place(sympy.S.Zero, ((labels[0], sympy.S.One),), node.table)}
            case ir.Pack():
                packed = ((labels[0], sympy.S.One),)
                found = {
                    label: Place(sympy.S.Zero, packed, (node.shape[1], side))
                    for label, side in zip(labels[1:], ("rows", "columns"), strict=True)
                }
            case _:
                return False
        resolved = {label: self._resolved(place) for label, place in found.items()}
        if not all(self._fits(label, place) for label, place in resolved.items()):
            return False
        known = {label: _put(place, resolved) for label, place in self._found.items()}
        if any(place is None for place in known.values()):
            return False
        self._found = {**known, **resolved}  # type: ignore[dict-item]
        self._by.update(dict.fromkeys(found, factor))
        return True

    def _resolved(self, place: Place) -> Place | None:
        return _put(place, self._found)

    def _fits(self, label: int, place: Place | None) -> bool:
        return place is not None and label not in self._found and label not in place.labels


def _put(place: Place, known: dict[int, Place] | dict[int, Place | None]) -> Place | None:
    """A place with labels replaced by what they stand for; None where that is no such place."""
    if not any(label in known for label in place.labels):
        return place
    offset = place.offset
    steps: dict[int, sympy.Expr] = {}
    for label, step in place.steps:
        inner = known.get(label, at_label(label))
        if inner is None or place.table is not None:
            return None
        if inner.table is not None:
            return None
        offset += step * inner.offset
        for source, factor in inner.steps:
            steps[source] = steps.get(source, sympy.S.Zero) + step * factor
    return Place(sympy.expand(offset), tuple((k, sympy.expand(v)) for k, v in steps.items()))
