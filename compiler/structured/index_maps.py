"""Index maps: indices on axes as functions of labels, which replace the structural factors of a
product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.ir import nodes as ir


@dataclass(frozen=True)
class IndexMap:
    """The index on an axis: `offset` plus the sum of each step times its label; with a table, the
    table's entry at the only label. `table`: the tuple of a `Gather`; of a `Vech`, its size, and
    "rows" or "columns", the coordinate of the entry. `is_label`: whether the index is the label,
    over the whole axis."""

    offset: sympy.Expr
    steps: tuple[tuple[int, sympy.Expr], ...]
    table: tuple[int, ...] | tuple[sympy.Expr, str] | None = None
    is_label: bool = False

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(label for label, _ in self.steps)

    @property
    def plain(self) -> int | None:
        """The label if the index is a label over the whole axis, else None."""
        return self.labels[0] if self.is_label else None


def at_label(label: int) -> IndexMap:
    """Make the index map of a label itself."""
    return IndexMap(sympy.S.Zero, ((label, sympy.S.One),), is_label=True)


class IndexMaps:
    """The index maps of the labels that structural factors determine by other, free labels.

    masks: triangles between free labels. unread: the other structural factors from which no index
    map could be read.
    """

    def __init__(self, factors: Sequence[ir.Factor]) -> None:
        self._index_maps: dict[int, IndexMap] = {}
        self._sources: dict[int, ir.Factor] = {}
        self.unread: list[ir.Factor] = []
        structural = [f for f in factors if isinstance(f[0], ir.Structural)]
        for factor in structural:
            if isinstance(factor[0], ir.Triangle) or not self._determines_labels(factor):
                self.unread.append(factor)
        self.masks = [
            (node, labels)
            for node, labels in self.unread
            if isinstance(node, ir.Triangle)
            and len(set(labels)) == 2
            and not self._index_maps.keys() & set(labels)
        ]
        self.unread = [factor for factor in self.unread if factor not in self.masks]

    def at(self, label: int) -> IndexMap:
        """Return the index map of a label in terms of free labels."""
        return self._index_maps.get(label, at_label(label))

    def sources(self, labels: Sequence[int]) -> list[ir.Factor]:
        """List the structural factors that determine some of the labels."""
        sources: list[ir.Factor] = []
        pending = list(labels)
        while pending:
            factor = self._sources.get(pending.pop())
            if factor is not None and factor not in sources:
                sources.append(factor)
                pending += factor[1]
        return sources

    def free(self, labels: Sequence[int]) -> tuple[int, ...]:
        """List the free labels that determine `labels`, each once."""
        return tuple(dict.fromkeys(new for label in labels for new in self.at(label).labels))

    def _determines_labels(self, factor: ir.Factor) -> bool:
        """Add the index maps of the labels that a structural factor determines by its others; False
        if it determines none."""
        node, labels = factor
        if len(set(labels)) < len(labels):
            return False
        match node:
            case ir.Slice():
                source = IndexMap(node.start, ((labels[0], sympy.Integer(node.step)),))
                index_maps = {labels[1]: source}
            case ir.Reshape():
                steps = ((labels[1], node.shape[2]), (labels[2], sympy.S.One))
                index_maps = {labels[0]: IndexMap(sympy.S.Zero, steps)}
            case ir.Gather():
                index_maps = {
                    labels[1]: IndexMap(sympy.S.Zero, ((labels[0], sympy.S.One),), node.table)
                }
            case ir.Vech():
                packed = ((labels[0], sympy.S.One),)
                index_maps = {
                    label: IndexMap(sympy.S.Zero, packed, (node.shape[1], side))
                    for label, side in zip(labels[1:], ("rows", "columns"), strict=True)
                }
            case _:
                return False
        resolved = {
            label: _composed(index_map, self._index_maps) for label, index_map in index_maps.items()
        }
        if any(
            index_map is None or label in self._index_maps or label in index_map.labels
            for label, index_map in resolved.items()
        ):
            return False
        updated = {
            label: _composed(index_map, resolved) for label, index_map in self._index_maps.items()
        }
        if any(index_map is None for index_map in updated.values()):
            return False
        self._index_maps = {**updated, **resolved}  # type: ignore[dict-item]
        self._sources.update(dict.fromkeys(index_maps, factor))
        return True


def _composed(
    index_map: IndexMap, inner_maps: dict[int, IndexMap] | dict[int, IndexMap | None]
) -> IndexMap | None:
    """Replace the labels of an index map by their index maps; None if a table is in the way."""
    if not any(label in inner_maps for label in index_map.labels):
        return index_map
    offset = index_map.offset
    steps: dict[int, sympy.Expr] = {}
    for label, step in index_map.steps:
        inner = inner_maps.get(label, at_label(label))
        if inner is None or index_map.table is not None or inner.table is not None:
            return None
        offset += step * inner.offset
        for source, factor in inner.steps:
            steps[source] = steps.get(source, sympy.S.Zero) + step * factor
    return IndexMap(sympy.expand(offset), tuple((k, sympy.expand(v)) for k, v in steps.items()))
