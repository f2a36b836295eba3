"""The terms of an operator: parts that are arrays, and index maps from their labels to the axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.operations.adjugate import ADJUGATE_FACTORS
from derivatrix.compiler.structured.expand import products
from derivatrix.compiler.structured.grouping import Grouping, Part
from derivatrix.compiler.structured.index_maps import IndexMap, IndexMaps


@dataclass(frozen=True)
class Term:
    """coefficient * sum over all labels but those of `outputs` and `inputs` of the parts.

    sizes: of the labels. outputs, inputs: index maps of the axes of the result and of the argument;
    where there are several the term is added at each, and applied to the sum over each.
    parts: nodes with their labels, `masks` the triangles among them.
    """

    coefficient: sympy.Expr
    sizes: tuple[Dimension, ...]
    outputs: tuple[tuple[IndexMap, ...], ...]
    inputs: tuple[tuple[IndexMap, ...], ...]
    parts: tuple[ir.Factor, ...]
    masks: tuple[ir.Factor, ...]

    def with_parts(self, nodes: Iterator[ir.Node]) -> Term:
        """The same term with other nodes as parts, taken from `nodes`."""
        parts = tuple((next(nodes), labels) for _, labels in self.parts)
        return replace(self, parts=parts)

    @property
    def factors(self) -> tuple[ir.Factor, ...]:
        return self.parts + self.masks

    @property
    def adjugate_factors(self) -> dict[int, ir.Node]:
        """The outputs of `ADJUGATE_FACTORS` in the term, with the parts that are made of them: all
        zero where other terms stand for this one."""
        return {
            node.output: part
            for part, _ in self.parts
            for node in ir.topological([part])
            if isinstance(node, ir.Apply) and node.operation is ADJUGATE_FACTORS
        }


@dataclass
class Known:
    """The nodes of parts met so far, so that one array serves wherever it can."""

    nodes: dict[ir.Node, None] = field(default_factory=dict)

    def add(self, node: ir.Node, labels: ir.Labels) -> ir.Factor:
        """The factor, or what it is the transpose of where that is known or simpler."""
        if node not in self.nodes and node.ndim == 2:
            whole = ir.transposed(node)
            other = whole or _flipped(node)
            if other is not None and (whole or other in self.nodes):
                self.nodes.setdefault(other)
                return other, labels[::-1]
        self.nodes.setdefault(node)
        return node, labels


def _flipped(node: ir.Node) -> ir.Node | None:
    """A product of two matrices with its two axes exchanged."""
    if not isinstance(node, ir.Einsum):
        return None
    factors = ir.relabelled(node.factors, (1, 0, *node.contracted))
    sizes = (node.sizes[1], node.sizes[0], *node.sizes[2:])
    return ir.Einsum(node.coefficient, factors, sizes, 2)


def terms(node: ir.Node, rank: int, batched: bool) -> list[Term]:
    """The terms of a Jacobian whose first `rank` axes are the output's. `batched`: axis 0 is
    the batch, which the input has too."""
    found: list[Term] = []
    for product in products(node):
        merged = product.without_deltas()
        axes = merged.output
        found.append(_term(merged, axes[:rank], axes[: int(batched)] + axes[rank:]))
    return _added(found)


def shared(found: Sequence[Term], known: Known) -> tuple[Term, ...]:
    """The terms with as few arrays, and as few terms, as there can be."""
    renamed = [
        replace(term, parts=tuple(known.add(node, labels) for node, labels in term.parts))
        for term in found
    ]
    return tuple(_together(_together(renamed, "inputs"), "outputs"))


def _term(product: Product, outputs: ir.Labels, inputs: ir.Labels) -> Term:
    """The term of a product, given its labels on the axes of both sides."""
    index_maps = IndexMaps(product.factors)
    dense = [factor for factor in product.factors if not isinstance(factor[0], ir.Structural)]
    given, asked = (frozenset(index_maps.free(axes)) for axes in (inputs, outputs))
    parts = [
        Part((factor,), frozenset(index_maps.free(factor[1])))
        for factor in (*dense, *index_maps.rest)
    ]
    fixed = [frozenset(labels) for _, labels in index_maps.masks]
    used = given.union(asked, *fixed, *(part.labels for part in parts))
    unused = [
        size
        for label, size in product.sizes.items()
        if label not in used and index_maps.at(label).plain == label
    ]
    grouped = Grouping(parts, fixed, given, asked, product.sizes).parts()
    return Term(
        product.coefficient * sympy.Mul(*unused),
        tuple(
            product.sizes.get(label, sympy.S.One)
            for label in range(max(product.sizes, default=-1) + 1)
        ),
        (tuple(map(index_maps.at, outputs)),),
        (tuple(map(index_maps.at, inputs)),),
        tuple(_node(part, index_maps, product.sizes) for part in grouped),
        tuple(index_maps.masks),
    )


def _added(found: Sequence[Term]) -> list[Term]:
    """Terms that are one array by the same index maps, as one term with the sum of the arrays."""
    groups: dict[tuple, list[Term]] = {}
    for each in found:
        term = _numbered(each, ("outputs", "inputs", "parts"))
        labels = frozenset(ir.labels_of(term.parts))
        single = len(term.parts) == 1 or labels <= _diagonal(term)
        own = () if labels <= _diagonal(term) else (labels,)
        key = (term.sizes, term.outputs, term.inputs, term.masks, own) if single else (len(groups),)
        groups.setdefault(key, []).append(term)
    return [group[0] if len(group) == 1 else _sum(group) for group in groups.values()]


def _diagonal(term: Term) -> frozenset[int]:
    """The labels on axes of both sides."""
    return frozenset(_labels(term.outputs) & _labels(term.inputs))


def _labels(side: Sequence[Sequence[IndexMap]]) -> set[int]:
    """The labels on the axes of one side."""
    return {label for index_map in side[0] for label in index_map.labels}


def _sum(group: Sequence[Term]) -> Term:
    """Terms that differ in their parts, which have labels on the axes only."""
    first = group[0]
    labels = tuple(sorted({label for term in group for label in ir.labels_of(term.parts)}))
    sizes = {label: first.sizes[label] for label in labels}
    nodes = tuple(
        ir.einsum(term.parts, labels, coefficient=term.coefficient, sizes=sizes) for term in group
    )
    node = ir.Sum(nodes, tuple(sizes.values()))
    return replace(first, coefficient=sympy.S.One, parts=((node, labels),))


def _node(part: Part, index_maps: IndexMaps, sizes: Mapping[int, Dimension]) -> ir.Factor:
    """A part as a node, and its labels."""
    if len(part.factors) == 1:
        ((node, labels),) = part.factors
        free = index_maps.free(labels)
        if free == labels and part.labels == {*labels} and not isinstance(node, ir.Structural):
            return node, labels
    sources = index_maps.sources([label for _, labels in part.factors for label in labels])
    factors = [*part.factors, *(source for source in sources if source not in part.factors)]
    ordered = (new for _, labels in part.factors for new in index_maps.free(labels))
    output = tuple(label for label in dict.fromkeys(ordered) if label in part.labels)
    return ir.einsum(factors, output, sizes={label: sizes[label] for label in output}), output


def _numbered(term: Term, order: Sequence[str] = ("outputs", "parts", "inputs")) -> Term:
    """The term with labels numbered as they are met, looking at its sides in this order."""
    numbers: dict[int, int] = {}
    parts = term.parts
    for side in order:
        if side == "parts":
            parts = tuple(sorted(parts, key=lambda factor: _rank(factor, numbers)))
            met: Iterable[int] = ir.labels_of((*parts, *term.masks))
        else:
            met = (label for index_map in getattr(term, side)[0] for label in index_map.labels)
        for label in met:
            numbers.setdefault(label, len(numbers))
    return Term(
        term.coefficient,
        tuple(term.sizes[label] for label in numbers),
        tuple(_moved(index_maps, numbers) for index_maps in term.outputs),
        tuple(_moved(index_maps, numbers) for index_maps in term.inputs),
        ir.relabelled(parts, numbers),
        ir.relabelled(term.masks, numbers),
    )


def _rank(factor: ir.Factor, numbers: dict[int, int]) -> tuple:
    node, labels = factor
    return node.key, [numbers.get(label, len(numbers)) for label in labels]


def _moved(index_maps: Iterable[IndexMap], renames: dict[int, int]) -> tuple[IndexMap, ...]:
    return tuple(
        replace(index_map, steps=tuple((renames[label], step) for label, step in index_map.steps))
        for index_map in index_maps
    )


def _together(found: Sequence[Term], side: str) -> list[Term]:
    """Terms that differ only in the index maps of one side, as one."""
    other = "outputs" if side == "inputs" else "inputs"
    groups: dict[tuple, Term] = {}
    for each in found:
        term = _numbered(each, (other, "parts", side))
        labels = frozenset(_labels(getattr(term, side)))
        same = (term.coefficient, term.sizes, getattr(term, other), term.parts, term.masks)
        key = (*same, labels)
        if key in groups:
            every = getattr(groups[key], side) + getattr(term, side)
            groups[key] = replace(groups[key], **{side: every})
        else:
            groups[key] = term
    return list(groups.values())
