"""Products of many factors as trees of pairwise contractions.

The order (see `contraction_order`) is the one of the fewest operations, and such that a partial
product that several terms of the kernel have is made once. Structural factors are no operands: they
stay at the outside, as index arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.graph import rebuilt
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
        """A node on its rebuilt children, products being pairwise."""
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
        if not parts.contracted or not parts.dense:
            return parts.node()
        components = parts.components()
        whole = (
            len(components) == 1
            and not parts.structural
            and {label for _, labels in parts.dense for label in labels} >= set(parts.output)
        )
        dense: list[ir.Factor] = []
        for component in components:
            if len(component) == 1 or not parts.linked(component):
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
        self.coefficient = einsum.coefficient
        self.sizes = einsum.sizes
        self.output = tuple(range(einsum.ndim))
        self.structural, self.dense = split(einsum)
        self._merge_deltas()
        covered = {label for _, labels in self.dense for label in labels}
        single = len(self.dense) == 1 and not self.structural and covered.issuperset(self.output)
        moving = len(self.dense) > 1 and any(_moves(node) for node, _ in self.structural)
        if (self.contracted or moving) and not single:
            self._absorb()
            self.dense = [self._reduced(factor) for factor in self.dense]

    @property
    def kept(self) -> set[int]:
        """Labels of the output and of structural factors."""
        return {*self.output, *(label for _, labels in self.structural for label in labels)}

    @property
    def contracted(self) -> list[int]:
        """Labels that only dense factors have."""
        found = (label for _, labels in self.dense for label in labels)
        return [label for label in dict.fromkeys(found) if label not in self.kept]

    def node(self) -> ir.Node:
        """The product, as one node again."""
        if not self.structural and len(self.dense) == 1 and self.coefficient == 1:
            factor, labels = self.dense[0]
            if labels == self.output:
                return factor
        used = {label for _, labels in (*self.structural, *self.dense) for label in labels}
        sizes: dict[Hashable, Dimension] = {
            label: self.sizes[label] for label in (*self.output, *sorted(used))
        }
        return ir.einsum([*self.structural, *self.dense], self.output, self.coefficient, sizes)

    def components(self) -> list[list[ir.Factor]]:
        """The dense factors, grouped by the contracted labels they share."""
        groups: list[tuple[set[int], list[ir.Factor]]] = []
        inner = set(self.contracted)
        for factor in self.dense:
            labels = inner.intersection(factor[1])
            joined = [group for group in groups if group[0] & labels]
            groups = [group for group in groups if not group[0] & labels]
            members = [f for group in joined for f in group[1]]
            groups.append((labels.union(*(group[0] for group in joined)), [*members, factor]))
        return [members for _, members in groups]

    def linked(self, component: list[ir.Factor]) -> bool:
        """Whether something is contracted within the component."""
        return any(set(self.contracted).intersection(labels) for _, labels in component)

    def _merge_deltas(self) -> None:
        """One label for the two of each identity that is summed over; labels left without factors
        become numbers in the coefficient."""
        total = [label for label in range(len(self.sizes)) if label not in self.output]
        position = 0
        while position < len(self.structural):
            node, labels = self.structural[position]
            first, second = labels[0], labels[-1]
            inner = second if second in total else first
            if isinstance(node, ir.Delta) and (first == second or inner in total):
                del self.structural[position]
                if first != second:
                    self._rename(inner, first if inner == second else second)
                    total.remove(inner)
                position = 0
            else:
                position += 1
        used = {label for _, labels in (*self.structural, *self.dense) for label in labels}
        unused = [self.sizes[label] for label in total if label not in used]
        self.coefficient = self.coefficient * sympy.Mul(*unused)

    def _rename(self, old: int, new: int) -> None:
        def renamed(labels: ir.Labels) -> ir.Labels:
            return tuple(new if label == old else label for label in labels)

        self.structural = [(node, renamed(labels)) for node, labels in self.structural]
        self.dense = [(node, renamed(labels)) for node, labels in self.dense]

    def _absorb(self) -> None:
        """Slice, gather, reshape or mask the one factor that a structural one acts on."""
        for constraint in list(self.structural):
            node, labels = constraint
            others = {label for c in self.structural if c is not constraint for label in c[1]}
            outside = others | set(self.output)
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
        others = {label for other in self.dense if other is not factor for label in other[1]}
        remaining = [label for label in dict.fromkeys(labels) if label in others | self.kept]
        if len(remaining) == len(labels):
            return factor
        return ir.einsum([factor], remaining), tuple(remaining)


def _moves(node: ir.Node) -> bool:
    """Whether a structural factor reshapes or gathers."""
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
