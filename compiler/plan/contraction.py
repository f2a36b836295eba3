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
from derivatrix.compiler.plan.index_arithmetic import split
from derivatrix.compiler.plan.nominal_sizes import nominal


def pairwise(
    roots: Sequence[ir.Node], numbers: Numbers = nominal
) -> tuple[list[ir.Node], dict[ir.Node, frozenset[str]]]:
    """`roots`, with products of at most two factors wherever something is contracted; and the
    structure facts of the nodes within, which products of two factors no longer show. `numbers`:
    how large sizes are taken to be."""
    met: Counter[ir.Node] = Counter()
    contraction = _Contraction(met, Counter(), numbers)
    nodes = contraction.rebuild(roots)
    if max(met.values(), default=0) > 1:
        contraction = _Contraction(Counter(), met, numbers)
        nodes = contraction.rebuild(roots)
    return nodes, {new: facts(old) for old, new in contraction.known.items()}


class _Contraction:
    """One pass. `seen` collects the partial products met; `shared` says how many terms of the
    kernel have one. `known`: each node met, with what it has become."""

    def __init__(self, seen: Counter[ir.Node], shared: Counter[ir.Node], numbers: Numbers) -> None:
        self._numbers = numbers
        self._seen = seen
        self._shared = shared
        self.known: dict[ir.Node, ir.Node] = {}
        self._needed: set[ir.Node] = set()
        self._built: dict[ir.Node, ir.Node] = {}

    def rebuild(self, roots: Sequence[ir.Node]) -> list[ir.Node]:
        nodes = ir.topological(roots)
        self._needed = set(roots)
        for node in nodes:
            if not isinstance(node, ir.Einsum):
                self._needed.update(node.children)
        for node in nodes:
            self.known[node] = self._rebuilt(node)
        return [self.known[root] for root in roots]

    def _rebuilt(self, node: ir.Node) -> ir.Node:
        """A node on its rebuilt children, products being pairwise. A matrix of which a structure is
        stated is that matrix, known to have the structure."""
        if (matrix := ir.assumed_matrix(node)) is not None:
            return self.known[matrix]
        if not isinstance(node, ir.Einsum):
            new = rebuilt(node, self.known)
            return _grouped(new) if isinstance(new, ir.Sum) else new
        coefficient = node.coefficient
        factors: list[ir.Factor] = []
        for factor, labels in node.factors:
            scale, peeled, relabelled = self._peeled(factor, labels)
            coefficient = coefficient * scale
            factors.append((peeled, relabelled))
        return self._product(ir.Einsum(coefficient, tuple(factors), node.sizes, node.ndim))

    def _peeled(self, factor: ir.Node, labels: ir.Labels) -> tuple[sympy.Expr, ir.Node, ir.Labels]:
        """A factor without its own coefficient and transposition."""
        node = self.known[factor]
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
        """A product as the pairwise contractions of its linked factors."""
        parts = _OpenProduct(einsum)
        if not parts.contracted:
            return parts.node()
        found = components(parts.dense[::-1], parts.kept)
        linked = [component[::-1] for component in found[::-1]]  # in the order of the last factors
        whole = (
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
                component, parts.kept, parts.sizes, self._shared, self._built, self._numbers
            )
            self._seen.update(group.candidates())
            if whole and self._shared[group.canonical(group.full)[0]] < 2:
                left, right = group.top()
                return ir.einsum([left, right], parts.output, parts.coefficient)
            dense.append(group.product(group.full))
        parts.dense = dense
        return parts.node()


def _grouped(total: ir.Sum) -> ir.Node:
    """Two contractions or more in a sum with other terms: a sum of their own, for accumulating."""
    products = [t for t in total.terms if isinstance(t, ir.Einsum) and t.contracted]
    if len(products) < 2 or len(products) == len(total.terms):
        return total
    rest = tuple(term for term in total.terms if term not in products)
    return ir.Sum((*rest, ir.Sum(tuple(products), total.shape)), total.shape)


class _OpenProduct:
    """An Einsum taken apart: structural factors used up where they only rename or slice, axes
    that one factor alone is summed over summed at once."""

    def __init__(self, einsum: ir.Einsum) -> None:
        product = Product.reduced(einsum)
        self.coefficient = product.coefficient
        self.sizes = einsum.sizes
        self.output = product.output
        self.structural, self.dense = split(product.factors)
        covered = {*ir.labels_of(self.dense)}
        single = len(self.dense) == 1 and not self.structural and covered.issuperset(self.output)
        moving = len(self.dense) > 1 and any(_moves(node) for node, _ in self.structural)
        if (self.contracted or moving) and not single:
            self._absorb()
            self.dense = [self._reduced(factor) for factor in self.dense]

    @property
    def kept(self) -> set[int]:
        """Labels of the output and of structural factors."""
        return {*self.output, *ir.labels_of(self.structural)}

    @property
    def contracted(self) -> list[int]:
        """Labels that only dense factors have."""
        return [label for label in ir.labels_of(self.dense) if label not in self.kept]

    def node(self) -> ir.Node:
        """The product, as one node again."""
        if not self.structural and len(self.dense) == 1 and self.coefficient == 1:
            factor, labels = self.dense[0]
            if labels == self.output:
                return factor
        factors = (*self.structural, *self.dense)
        labels = (*self.output, *sorted(ir.labels_of(factors)))
        sizes = {label: self.sizes[label] for label in labels}
        return ir.einsum(factors, self.output, self.coefficient, sizes)

    def _absorb(self) -> None:
        """Slice, gather, reshape or mask the one factor that a structural one acts on."""
        for constraint in list(self.structural):
            node, labels = constraint
            others = (own for own in self.structural if own is not constraint)
            outside = {*ir.labels_of(others), *self.output}
            if len(set(labels)) < len(labels):
                continue
            for given in _sides(node, labels):
                touching = [p for p, (_, own) in enumerate(self.dense) if given & set(own)]
                holding = [p for p in touching if given <= set(self.dense[p][1])]
                masked = isinstance(node, ir.Triangle)
                if holding and (masked or (len(touching) == 1 and not given & outside)):
                    self._put(constraint, holding[0], set() if masked else given)
                    break

    def _put(self, constraint: ir.Factor, position: int, given: set[int]) -> None:
        """Multiply a factor by a structural one, whose other labels take the place of `given`."""
        _, labels = constraint
        _, own = self.dense[position]
        new = [label for label in labels if label not in given]
        result: dict[int, None] = {}
        for label in own:
            result.update(dict.fromkeys(new if label in given else [label]))
        part = ir.einsum([constraint, self.dense[position]], list(result))
        self.dense[position] = (part, tuple(result))
        self.structural.remove(constraint)  # type: ignore[arg-type]

    def _reduced(self, factor: ir.Factor) -> ir.Factor:
        """Diagonals taken, and summed over what no other factor has."""
        labels = factor[1]
        others = ir.labels_of(other for other in self.dense if other is not factor)
        remaining = [label for label in dict.fromkeys(labels) if label in {*others, *self.kept}]
        if len(remaining) == len(labels):
            return factor
        return ir.einsum([factor], remaining), tuple(remaining)


def _moves(node: ir.Node) -> bool:
    """Return whether a structural factor reshapes or gathers."""
    return isinstance(node, ir.Reshape | ir.Vech | ir.Gather)


def _sides(node: ir.Structural, labels: ir.Labels) -> list[set[int]]:
    """The labels of a structural factor that, contracted with one array, leave the others as
    its axes; for a mask, all of them."""
    match node:
        case ir.Slice() | ir.Gather():
            return [{labels[1]}]
        case ir.Reshape() | ir.Vech():
            return [{labels[0]}, {labels[1], labels[2]}]
        case ir.Triangle():
            return [set(labels)]
    return []
