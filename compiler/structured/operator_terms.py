"""Terms of operators: arrays with labels, and index maps from these to the axes."""

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
    """coefficient times the product of parts and masks, summed over the labels that are neither in
    `outputs` nor in `inputs`.

    sizes: of the labels. outputs, inputs: index maps of the axes of the result and of the argument.
    With several of them, the result is added at each of `outputs`, and the term is applied to the
    sum of the arguments at each of `inputs`. parts, masks: arrays and triangles with their labels.
    """

    coefficient: sympy.Expr
    sizes: tuple[Dimension, ...]
    outputs: tuple[tuple[IndexMap, ...], ...]
    inputs: tuple[tuple[IndexMap, ...], ...]
    parts: tuple[ir.Factor, ...]
    masks: tuple[ir.Factor, ...]

    def with_parts(self, nodes: Iterator[ir.Node]) -> Term:
        """Replace the arrays by the next ones of `nodes`."""
        parts = tuple((next(nodes), labels) for _, labels in self.parts)
        return replace(self, parts=parts)

    @property
    def factors(self) -> tuple[ir.Factor, ...]:
        return self.parts + self.masks

    @property
    def adjugate_factors(self) -> dict[int, ir.Node]:
        """Output of `ADJUGATE_FACTORS` in the term -> the part that contains it. Such parts are all
        zero where other terms replace this one."""
        return {
            node.output: part
            for part, _ in self.parts
            for node in ir.topological([part])
            if isinstance(node, ir.Apply) and node.operation is ADJUGATE_FACTORS
        }


@dataclass
class SharedParts:
    """The arrays of all operators of a function, each computed once, a matrix or its transpose."""

    nodes: dict[ir.Node, None] = field(default_factory=dict)

    def add(self, node: ir.Node, labels: ir.Labels) -> ir.Factor:
        """Add an array and return its factor; the factor of the transpose instead, if the transpose
        is a part already, or if the node only transposes another one."""
        if node not in self.nodes and node.ndim == 2:
            base = ir.transposed(node)
            transpose = base or _transposed_product(node)
            if transpose is not None and (base or transpose in self.nodes):
                self.nodes.setdefault(transpose)
                return transpose, labels[::-1]
        self.nodes.setdefault(node)
        return node, labels


def _transposed_product(node: ir.Node) -> ir.Node | None:
    """Exchange the two axes of a product."""
    if not isinstance(node, ir.Einsum):
        return None
    factors = ir.relabelled(node.factors, (1, 0, *node.contracted))
    sizes = (node.sizes[1], node.sizes[0], *node.sizes[2:])
    return ir.Einsum(node.coefficient, factors, sizes, 2)


def terms(node: ir.Node, rank: int, batched: bool) -> list[Term]:
    """Split a Jacobian whose first `rank` axes are those of the output into terms. `batched`: axis
    0 is the batch, which the input has, too."""
    result: list[Term] = []
    for product in products(node):
        product = product.without_deltas()
        axes = product.output
        result.append(_term(product, axes[:rank], axes[: int(batched)] + axes[rank:]))
    return _add_like_terms(result)


def merge_terms(terms: Sequence[Term], shared_parts: SharedParts) -> tuple[Term, ...]:
    """Share arrays, and merge terms that then differ in the index maps of one side only."""
    shared = [
        replace(term, parts=tuple(shared_parts.add(node, labels) for node, labels in term.parts))
        for term in terms
    ]
    return tuple(_merge_sides(_merge_sides(shared, "inputs"), "outputs"))


def _term(product: Product, outputs: ir.Labels, inputs: ir.Labels) -> Term:
    """Make the term of a product whose labels on the axes of both sides are given."""
    index_maps = IndexMaps(product.factors)
    dense = [factor for factor in product.factors if not isinstance(factor[0], ir.Structural)]
    free_inputs, free_outputs = (frozenset(index_maps.free(axes)) for axes in (inputs, outputs))
    parts = [
        Part((factor,), frozenset(index_maps.free(factor[1])))
        for factor in (*dense, *index_maps.unread)
    ]
    masks = [frozenset(labels) for _, labels in index_maps.masks]
    labels_read = free_inputs.union(free_outputs, *masks, *(part.labels for part in parts))
    # a sum over a label that no part has repeats the same summand
    repetitions = [
        size
        for label, size in product.sizes.items()
        if label not in labels_read and index_maps.at(label).plain == label
    ]
    grouped = Grouping(parts, masks, free_inputs, free_outputs, product.sizes).parts()
    return Term(
        product.coefficient * sympy.Mul(*repetitions),
        tuple(
            product.sizes.get(label, sympy.S.One)
            for label in range(max(product.sizes, default=-1) + 1)
        ),
        (tuple(map(index_maps.at, outputs)),),
        (tuple(map(index_maps.at, inputs)),),
        tuple(_node(part, index_maps, product.sizes) for part in grouped),
        tuple(index_maps.masks),
    )


def _add_like_terms(terms: Sequence[Term]) -> list[Term]:
    """Add the arrays of terms with one array, or a diagonal, and the same index maps."""
    groups: dict[tuple, list[Term]] = {}
    for term in terms:
        term = _renumber(term, ("outputs", "inputs", "parts"))
        labels = frozenset(ir.labels_of(term.parts))
        is_diagonal = labels <= _labels(term.outputs) & _labels(term.inputs)
        key: tuple = (len(groups),)
        if is_diagonal or len(term.parts) == 1:
            array_labels = () if is_diagonal else (labels,)
            key = (term.sizes, term.outputs, term.inputs, term.masks, array_labels)
        groups.setdefault(key, []).append(term)
    return [group[0] if len(group) == 1 else _sum(group) for group in groups.values()]


def _labels(side: Sequence[Sequence[IndexMap]]) -> set[int]:
    """Collect the labels on the axes of one side."""
    return {label for index_map in side[0] for label in index_map.labels}


def _sum(group: Sequence[Term]) -> Term:
    """Add terms that differ in their arrays only, none of whose labels is summed."""
    labels = tuple(sorted({label for term in group for label in ir.labels_of(term.parts)}))
    sizes = {label: group[0].sizes[label] for label in labels}
    nodes = tuple(
        ir.einsum(term.parts, labels, coefficient=term.coefficient, sizes=sizes) for term in group
    )
    node = ir.Sum(nodes, tuple(sizes.values()))
    return replace(group[0], coefficient=sympy.S.One, parts=((node, labels),))


def _node(part: Part, index_maps: IndexMaps, sizes: Mapping[int, Dimension]) -> ir.Factor:
    """Multiply the factors of a part, and the structural factors that determine their labels, to
    one node."""
    if len(part.factors) == 1:
        ((node, labels),) = part.factors
        free = index_maps.free(labels)
        if free == labels and part.labels == {*labels} and not isinstance(node, ir.Structural):
            return node, labels
    sources = index_maps.sources([label for _, labels in part.factors for label in labels])
    factors = [*part.factors, *(source for source in sources if source not in part.factors)]
    free_labels = (new for _, labels in part.factors for new in index_maps.free(labels))
    output = tuple(label for label in dict.fromkeys(free_labels) if label in part.labels)
    return ir.einsum(factors, output, sizes={label: sizes[label] for label in output}), output


def _renumber(term: Term, order: Sequence[str]) -> Term:
    """Number the labels in the order in which these fields have them."""
    numbers: dict[int, int] = {}
    parts = term.parts

    def part_order(factor: ir.Factor) -> tuple:
        node, labels = factor
        return node.key, [numbers.get(label, len(numbers)) for label in labels]

    for field_name in order:
        if field_name == "parts":
            parts = tuple(sorted(parts, key=part_order))
            labels: Iterable[int] = ir.labels_of((*parts, *term.masks))
        else:
            side = getattr(term, field_name)
            labels = (label for index_map in side[0] for label in index_map.labels)
        for label in labels:
            numbers.setdefault(label, len(numbers))
    return Term(
        term.coefficient,
        tuple(term.sizes[label] for label in numbers),
        tuple(_renamed(index_maps, numbers) for index_maps in term.outputs),
        tuple(_renamed(index_maps, numbers) for index_maps in term.inputs),
        ir.relabelled(parts, numbers),
        ir.relabelled(term.masks, numbers),
    )


def _renamed(index_maps: Iterable[IndexMap], names: dict[int, int]) -> tuple[IndexMap, ...]:
    return tuple(
        replace(index_map, steps=tuple((names[label], step) for label, step in index_map.steps))
        for index_map in index_maps
    )


def _merge_sides(terms: Sequence[Term], side: str) -> list[Term]:
    """Merge terms that differ only in the index maps of one side, "inputs" or "outputs"."""
    opposite = "outputs" if side == "inputs" else "inputs"
    groups: dict[tuple, Term] = {}
    for term in terms:
        term = _renumber(term, (opposite, "parts", side))
        labels = frozenset(_labels(getattr(term, side)))
        factors = term.coefficient, term.sizes, term.parts, term.masks
        key = (*factors, getattr(term, opposite), labels)
        if key in groups:
            index_maps = getattr(groups[key], side) + getattr(term, side)
            groups[key] = replace(groups[key], **{side: index_maps})
        else:
            groups[key] = term
    return list(groups.values())
