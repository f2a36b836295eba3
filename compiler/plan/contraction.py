"""Products of many factors as trees of pairwise contractions.

The order (see `contraction_order`) is the one of the fewest operations, and such that a partial
product that several terms of the kernel have is made once. Structural factors are no operands: they
stay at the outside, as index arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.product import Product, components
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.plan.contraction_order import ContractionOrder, Numbers
from derivatrix.compiler.plan.index_arithmetic import Constraint, separate
from derivatrix.compiler.plan.nominal_sizes import nominal


def pairwise(
    roots: Sequence[ir.Node], numbers: Numbers = nominal
) -> tuple[list[ir.Node], dict[ir.Node, frozenset[str]]]:
    """Split contractions of more than two factors into pairwise ones.

    Returns the new roots, and the facts of structure of the nodes within, which pairwise products
    no longer show. numbers: the numbers assumed for sizes."""
    # Only a first pass knows which partial products several terms share; the costs of these are
    # divided among the terms in a second pass.
    counts: Counter[ir.Node] = Counter()
    contraction = _Contraction(counts, Counter(), numbers)
    nodes = contraction.rebuild(roots)
    if max(counts.values(), default=0) > 1:
        contraction = _Contraction(Counter(), counts, numbers)
        nodes = contraction.rebuild(roots)
    return nodes, {new: facts(old) for old, new in contraction.rebuilt_nodes.items()}


class _Contraction:
    """One pass over the nodes of a kernel.

    counts: counts the partial products of all orders; shared: how many terms of the kernel have a
    partial product; rebuilt_nodes: node -> its rewritten form."""

    def __init__(
        self, counts: Counter[ir.Node], shared: Counter[ir.Node], numbers: Numbers
    ) -> None:
        self._numbers = numbers
        self._counts = counts
        self._shared = shared
        self.rebuilt_nodes: dict[ir.Node, ir.Node] = {}
        self._needed: set[ir.Node] = set()
        self._built: dict[ir.Node, ir.Node] = {}

    def rebuild(self, roots: Sequence[ir.Node]) -> list[ir.Node]:
        """Rewrite all nodes, from the leaves up, and return the new roots."""
        nodes = ir.topological(roots)
        self._needed = set(roots)
        for node in nodes:
            if not isinstance(node, ir.Einsum):
                self._needed.update(node.children)
        for node in nodes:
            self.rebuilt_nodes[node] = self._rebuilt(node)
        return [self.rebuilt_nodes[root] for root in roots]

    def _rebuilt(self, node: ir.Node) -> ir.Node:
        """Rebuild a node on its rewritten children, a product as pairwise ones.

        An assumption of structure is replaced by the matrix: `pairwise` returns the fact."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            return self.rebuilt_nodes[matrix]
        if not isinstance(node, ir.Einsum):
            new = rebuilt(node, self.rebuilt_nodes)
            return _grouped(new) if isinstance(new, ir.Sum) else new
        coefficient = node.coefficient
        factors: list[ir.Factor] = []
        for factor, labels in node.factors:
            scale, peeled, relabelled = self._peeled(factor, labels)
            coefficient = coefficient * scale
            factors.append((peeled, relabelled))
        return self._product(ir.Einsum(coefficient, tuple(factors), node.sizes, node.ndim))

    def _peeled(self, factor: ir.Node, labels: ir.Labels) -> tuple[sympy.Expr, ir.Node, ir.Labels]:
        """Split a factor into its coefficient and a node that is no transpose, relabelled: the
        orders of equal factors are then found to be equal, and BLAS reads transposes in place. A
        node that other nodes than products read keeps its coefficient: it is computed once."""
        node = self.rebuilt_nodes[factor]
        coefficient: sympy.Expr = sympy.S.One
        while isinstance(node, ir.Einsum):
            inner = node.factors[0] if len(node.factors) == 1 and not node.contracted else None
            if inner is not None and sorted(inner[1]) == list(range(node.ndim)):
                coefficient = coefficient * node.coefficient
                node, labels = inner[0], tuple(labels[label] for label in inner[1])
                continue
            if factor not in self._needed and node.coefficient != 1:
                coefficient = coefficient * node.coefficient
                node = node.scaled(sympy.S.One)
            break
        return coefficient, node, labels

    def _product(self, einsum: ir.Einsum) -> ir.Node:
        """Contract the linked factors of a product pairwise."""
        parts = _OpenProduct(einsum)
        parts.take_running_sums(linked=True)
        if not parts.contracted:
            parts.take_running_sums()
            return parts.node()
        linked_backwards = components(parts.dense[::-1], parts.open_labels)
        # components are in the order of their last factors
        linked = [component[::-1] for component in linked_backwards[::-1]]
        is_one_contraction = (
            len(linked) == 1
            and not parts.structural
            and {*ir.labels_of(parts.dense)} >= {*parts.output}
        )
        dense: list[ir.Factor] = []
        for component in linked:
            if len(component) == 1:
                dense.extend(component)
                continue
            group = ContractionOrder(
                component, parts.open_labels, parts.sizes, self._shared, self._built, self._numbers
            )
            self._counts.update(group.candidates())
            if is_one_contraction and self._shared[group.canonical(group.full)[0]] < 2:
                left, right = group.top()
                return ir.einsum([left, right], parts.output, parts.coefficient)
            dense.append(group.product(group.full))
        parts.dense = dense
        parts.take_running_sums()
        return parts.node()


def _grouped(total: ir.Sum) -> ir.Node:
    """Move two or more contractions of a sum to an inner sum, where BLAS accumulates them."""
    products = [t for t in total.terms if isinstance(t, ir.Einsum) and t.contracted]
    if len(products) < 2 or len(products) == len(total.terms):
        return total
    other_terms = tuple(term for term in total.terms if term not in products)
    return ir.Sum((*other_terms, ir.Sum(tuple(products), total.shape)), total.shape)


class _OpenProduct:
    """The parts of a product while it is rewritten: structural factors are applied to the factor
    that they slice or rename, and axes of a single factor are summed at once."""

    def __init__(self, einsum: ir.Einsum) -> None:
        product = Product.reduced(einsum)
        self.coefficient = product.coefficient
        self.sizes = einsum.sizes
        self.output = product.output
        self.structural, self.dense = separate(product.factors)
        covered = {*ir.labels_of(self.dense)}
        single = len(self.dense) == 1 and not self.structural and covered.issuperset(self.output)
        moves_axes = any(
            isinstance(node, ir.Reshape | ir.Vech | ir.Gather) for node, _ in self.structural
        )
        sums_triangles = any(
            isinstance(node, ir.Triangle) and not {*axes} <= {*self.output}
            for node, axes in self.structural
        )
        is_split = self.contracted or (len(self.dense) > 1 and moves_axes) or sums_triangles
        if is_split and not single:
            self._apply_structural()
            self.dense = [self._reduced(factor) for factor in self.dense]

    @property
    def open_labels(self) -> set[int]:
        """The labels of the output and of structural factors."""
        return {*self.output, *ir.labels_of(self.structural)}

    @property
    def contracted(self) -> list[int]:
        """The labels that only dense factors have."""
        return [label for label in ir.labels_of(self.dense) if label not in self.open_labels]

    def take_running_sums(self, linked: bool = False) -> None:
        """Sum over an axis of triangles of ones first: running sums take one loop over that axis
        instead of one for each of their entries. linked: only where products with other factors
        would join both axes of a triangle."""
        while any(self._take_running_sum(constraint, linked) for constraint in self.structural):
            pass

    def _take_running_sum(self, constraint: Constraint, linked: bool) -> bool:
        """Sum over one axis of a triangle the factors that have this axis, if one of them has all
        of their axes and none has the other axis; return whether the triangle was used."""
        node, labels = constraint
        if not isinstance(node, ir.Triangle) or node.offset or len({*labels}) < 2:
            return False
        linked_axes = [ir.labels_of(group) for group in components(self.dense, self.open_labels)]
        if linked and not any({*labels} <= {*axes} for axes in linked_axes):
            return False
        other_structural = [factor for factor in self.structural if factor is not constraint]
        outside = {*self.output, *ir.labels_of(other_structural)}
        for summed, end in (labels, labels[::-1]):
            terms = [factor for factor in self.dense if summed in factor[1]]
            axes = max((axes for _, axes in terms), key=len, default=(summed,))
            if summed in outside or end in axes or not {*ir.labels_of(terms)} <= {*axes}:
                continue
            output = tuple(end if label == summed else label for label in dict.fromkeys(axes))
            self.dense = [factor for factor in self.dense if factor not in terms]
            self.dense.append((ir.einsum([constraint, *terms], output), output))
            self.structural = other_structural
            return True
        return False

    def node(self) -> ir.Node:
        """Join the parts to one node."""
        if not self.structural and len(self.dense) == 1 and self.coefficient == 1:
            factor, labels = self.dense[0]
            if labels == self.output:
                return factor
        factors = (*self.structural, *self.dense)
        labels = (*self.output, *sorted(ir.labels_of(factors)))
        sizes = {label: self.sizes[label] for label in labels}
        return ir.einsum(factors, self.output, self.coefficient, sizes)

    def _apply_structural(self) -> None:
        """Slice, gather, reshape or mask the dense factor that a structural factor acts on."""
        for constraint in list(self.structural):
            node, labels = constraint
            other_structural = (factor for factor in self.structural if factor is not constraint)
            outside = {*ir.labels_of(other_structural), *self.output}
            if len(set(labels)) < len(labels):
                continue
            for replaced in _sides(node, labels):
                touching = [p for p, (_, axes) in enumerate(self.dense) if replaced & set(axes)]
                holding = [p for p in touching if replaced <= set(self.dense[p][1])]
                masked = isinstance(node, ir.Triangle)
                if holding and (masked or (len(touching) == 1 and not replaced & outside)):
                    self._apply_to(constraint, holding[0], set() if masked else replaced)
                    break

    def _apply_to(self, constraint: Constraint, position: int, replaced: set[int]) -> None:
        """Multiply a dense factor by a structural one, whose other labels replace `replaced`."""
        _, labels = constraint
        _, old_labels = self.dense[position]
        inserted = [label for label in labels if label not in replaced]
        new_labels: dict[int, None] = {}
        for label in old_labels:
            new_labels.update(dict.fromkeys(inserted if label in replaced else [label]))
        part = ir.einsum([constraint, self.dense[position]], list(new_labels))
        self.dense[position] = (part, tuple(new_labels))
        self.structural.remove(constraint)

    def _reduced(self, factor: ir.Factor) -> ir.Factor:
        """Take diagonals of a factor, and sum over labels that no other factor has."""
        labels = factor[1]
        labels_elsewhere = {*ir.labels_of(f for f in self.dense if f is not factor)}
        needed_labels = self.open_labels | labels_elsewhere
        remaining = [label for label in dict.fromkeys(labels) if label in needed_labels]
        if len(remaining) == len(labels):
            return factor
        return ir.einsum([factor], remaining), tuple(remaining)


def _sides(node: ir.Structural, labels: ir.Labels) -> list[set[int]]:
    """List the sets of labels by which a structural factor can be contracted with an array, so that
    its other labels become axes; for a mask, all of its labels."""
    match node:
        case ir.Slice() if node.shape[0] == node.shape[1]:  # entries in reversed order
            return [{labels[1]}, {labels[0]}]
        case ir.Slice() | ir.Gather():
            return [{labels[1]}]
        case ir.Reshape() | ir.Vech():
            return [{labels[0]}, {labels[1], labels[2]}]
        case ir.Triangle():
            return [set(labels)]
    return []
