"""Index maps: which index on an axis the labels of a product stand for, as arithmetic in place of
structural factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.ir import nodes as ir


@dataclass(frozen=True)
class IndexMap:
    """The index on an axis: `offset` plus each step times its label; or, where there is a table,
    the table's entry at the one label. `table`: the tuple of a `Gather`; of a `Vech`, its size and
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


def at_label(label: int) -> IndexMap:
    """The index that is a label."""
    return IndexMap(sympy.S.Zero, ((label, sympy.S.One),), whole=True)


class IndexMaps:
    """Labels that follow from others. `sources` says by which factors, `rest` are the factors
    that nothing could be read off, `masks` the triangles between free labels."""

    def __init__(self, factors: Sequence[ir.Factor]) -> None:
        self._found: dict[int, IndexMap] = {}
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

    def at(self, label: int) -> IndexMap:
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
            case ir.Slice():
                source = IndexMap(node.start, ((labels[0], sympy.Integer(node.step)),))
                found = {labels[1]: source}
            case ir.Reshape():
                steps = ((labels[1], node.shape[2]), (labels[2], sympy.S.One))
                found = {labels[0]: IndexMap(sympy.S.Zero, steps)}
            case ir.Gather():
                found = {labels[1]: IndexMap(sympy.S.Zero, ((labels[0], sympy.S.One),), node.table)}
            case ir.Vech():
                packed = ((labels[0], sympy.S.One),)
                found = {
                    label: IndexMap(sympy.S.Zero, packed, (node.shape[1], side))
                    for label, side in zip(labels[1:], ("rows", "columns"), strict=True)
                }
            case _:
                return False
        resolved = {label: _put(index_map, self._found) for label, index_map in found.items()}
        if not all(self._fits(label, index_map) for label, index_map in resolved.items()):
            return False
        known = {label: _put(index_map, resolved) for label, index_map in self._found.items()}
        if any(index_map is None for index_map in known.values()):
            return False
        self._found = {**known, **resolved}  # type: ignore[dict-item]
        self._by.update(dict.fromkeys(found, factor))
        return True

    def _fits(self, label: int, index_map: IndexMap | None) -> bool:
        return index_map is not None and label not in self._found and label not in index_map.labels


def _put(
    index_map: IndexMap, known: dict[int, IndexMap] | dict[int, IndexMap | None]
) -> IndexMap | None:
    """An index map with labels replaced by what they stand for; None where that is none."""
    if not any(label in known for label in index_map.labels):
        return index_map
    offset = index_map.offset
    steps: dict[int, sympy.Expr] = {}
    for label, step in index_map.steps:
        inner = known.get(label, at_label(label))
        if inner is None or index_map.table is not None or inner.table is not None:
            return None
        offset += step * inner.offset
        for source, factor in inner.steps:
            steps[source] = steps.get(source, sympy.S.Zero) + step * factor
    return IndexMap(sympy.expand(offset), tuple((k, sympy.expand(v)) for k, v in steps.items()))
