"""Association: every product as a tree of pairwise contractions.

The order is chosen by flops (dynamic programming over subsets of the factors), and so that a
partial product that several terms of the kernel have is made once. Structural factors are no
operands: they stay at the outside, as index arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.plan.sizes import nominal
from derivatrix.compiler.plan.structure import split

MOST_EXACT = 8
MOST_PERMUTED = 4
INVERSE = "inv"

Numbers = Callable[[sympy.Expr], float]


def associate(
    roots: Sequence[ir.Node], numbers: Numbers = nominal
) -> tuple[list[ir.Node], dict[ir.Node, frozenset[str]]]:
    """`roots`, with products of at most two factors wherever something is contracted; and the
    structure facts of the nodes within, which products of two factors no longer show. `numbers`:
    how large sizes are taken to be."""
    sharing: Counter[ir.Node] = Counter()
    _Associator(sharing, Counter(), numbers).rebuild(roots)
    associator = _Associator(Counter(), sharing, numbers)
    rebuilt = associator.rebuild(roots)
    return rebuilt, {new: facts(old) for old, new in associator.known.items()}


class _Associator:
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
        parts = _Parts(einsum)
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
            group = _Group(
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


class _Parts:
    """An Einsum taken apart: structural factors used up where they only rename or slice, axes
    that one factor alone is summed over summed at once."""

    def __init__(self, einsum: ir.Einsum) -> None:
        self.coefficient = einsum.coefficient
        self.sizes = einsum.sizes
        self.output = tuple(range(einsum.ndim))
        self.structural, self.dense = split(einsum)
        self._merge_deltas()
        covered = {label for _, labels in self.dense for label in labels}
        alone = len(self.dense) == 1 and not self.structural and covered.issuperset(self.output)
        moving = len(self.dense) > 1 and any(_moves(node) for node, _ in self.structural)
        if (self.contracted or moving) and not alone:
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
    return isinstance(node, ir.Merge | ir.Pack | ir.Pick)


def _sides(node: ir.Structural, labels: ir.Labels) -> list[set[int]]:
    """The labels of a structural factor that, contracted with one array, leave the others as
    its axes; for a mask, all of them."""
    match node:
        case ir.Select() | ir.Pick():
            return [{labels[1]}]
        case ir.Merge() | ir.Pack():
            return [{labels[0]}, {labels[1], labels[2]}]
        case ir.Triangle():
            return [set(labels)]
    return []


class _Group:
    """Factors connected by contracted labels, and the best order to multiply them in.
    A subset of them is a bit mask."""

    def __init__(
        self,
        factors: Sequence[ir.Factor],
        kept: set[int],
        sizes: Shape,
        shared: Counter[ir.Node],
        built: dict[ir.Node, ir.Node],
        numbers: Numbers,
    ) -> None:
        self._number = numbers
        self._built = built
        self.factors = sorted(factors, key=lambda factor: (factor[0].key, factor[1]))
        self.full = (1 << len(self.factors)) - 1
        self._kept = kept
        self._numbers = [numbers(size) for size in sizes]
        self._shared = shared
        self._triangles = any(facts(node) & {"lower", "upper"} for node, _ in self.factors)
        self._remaining: dict[int, set[int]] = {}
        self._canonical: dict[int, tuple[ir.Einsum, ir.Labels]] = {}
        self._best: dict[int, tuple[float, int]] = {}
        if len(self.factors) <= MOST_EXACT:
            self._search()
        else:
            self._greedy()

    def candidates(self) -> list[ir.Node]:
        """Every connected partial product, once."""
        if len(self.factors) > MOST_EXACT:
            masks = [mask for mask in self._best if mask.bit_count() > 1]
        else:
            masks = [mask for mask in range(1, self.full + 1) if mask.bit_count() > 1]
        found = (self.canonical(mask)[0] for mask in masks if self._connected(mask))
        return list(dict.fromkeys(found))

    def top(self) -> tuple[ir.Factor, ir.Factor]:
        """The two operands of the last multiplication."""
        part = self._best[self.full][1]
        return self.product(part), self.product(self.full ^ part)

    def product(self, mask: int) -> ir.Factor:
        """The partial product of a subset, with its labels."""
        if mask.bit_count() == 1:
            return self.factors[mask.bit_length() - 1]
        node, labels = self.canonical(mask)
        if mask.bit_count() == 2:
            return node, labels
        if len(self.factors) > MOST_EXACT:
            part = self._best[mask][1]
            return ir.einsum([self.product(part), self.product(mask ^ part)], labels), labels
        if node not in self._built:
            output = range(node.ndim)
            group = _Group(
                node.factors, set(output), node.sizes, self._shared, self._built, self._number
            )
            self._built[node] = ir.einsum(group.top(), output)
        return self._built[node], labels

    def canonical(self, mask: int) -> tuple[ir.Einsum, ir.Labels]:
        """A subset as one product that is the same wherever it occurs, and its output labels."""
        if mask not in self._canonical:
            members = [f for n, f in enumerate(self.factors) if mask >> n & 1]
            labels = self._labels(mask)
            best = min(_orders(members), key=lambda order: _pattern(order, labels))
            found = dict.fromkeys(label for _, ls in best for label in ls)
            output = tuple(label for label in found if label in labels)
            self._canonical[mask] = (ir.einsum(best, output), output)
        return self._canonical[mask]

    def _labels(self, mask: int) -> set[int]:
        """The labels that a subset's product still has."""
        if mask not in self._remaining:
            outside = self._kept | self._union(self.full ^ mask)
            self._remaining[mask] = self._union(mask) & outside
        return self._remaining[mask]

    def _union(self, mask: int) -> set[int]:
        members = (f for n, f in enumerate(self.factors) if mask >> n & 1)
        return {label for _, labels in members for label in labels}

    def _connected(self, mask: int) -> bool:
        """Whether the factors of a subset hang together by labels that it sums over."""
        summed = self._union(mask) - self._labels(mask)
        pending = [n for n in range(len(self.factors)) if mask >> n & 1]
        reached = set(self.factors[pending.pop()][1]) & summed
        while pending:
            linked = [n for n in pending if reached.intersection(self.factors[n][1])]
            if not linked:
                return False
            pending = [n for n in pending if n not in linked]
            reached |= {label for n in linked for label in self.factors[n][1]} & summed
        return True

    def _search(self) -> None:
        for mask in range(1, self.full + 1):
            if mask.bit_count() == 1:
                self._best[mask] = (0.0, 0)
                continue
            lowest = mask & -mask
            options = []
            part = mask
            while part:
                part = (part - 1) & mask
                if part & lowest:
                    cost = self._best[part][0] + self._best[mask ^ part][0]
                    options.append((cost + self._cost(part, mask ^ part), part))
            cost, part = min(options)
            shared = self._shared and self._connected(mask)
            uses = self._shared[self.canonical(mask)[0]] if shared else 1
            self._best[mask] = (cost / max(uses, 1), part)

    def _greedy(self) -> None:
        parts = [1 << n for n in range(len(self.factors))]
        self._best = dict.fromkeys(parts, (0.0, 0))
        while len(parts) > 1:
            pairs = list(itertools.combinations(parts, 2))
            linked = [p for p in pairs if self._union(p[0]) & self._union(p[1])] or pairs
            left, right = min(linked, key=lambda pair: (self._cost(*pair), pair))
            self._best[left | right] = (0.0, left)
            parts = [part for part in parts if part not in (left, right)] + [left | right]

    def _cost(self, left: int, right: int) -> float:
        """Flops of a pairwise product, and the writing of what has more axes than it sums over."""
        union = self._labels(left) | self._labels(right)
        flops = 2 * math.prod([self._numbers[label] for label in union])
        flops /= 1 + sum(map(self._triangular, (left, right, left | right)))
        result = math.prod([self._numbers[label] for label in self._labels(left | right)])
        return flops + 4 * result + self._inversion(left, right) + self._inversion(right, left)

    def _triangular(self, mask: int) -> bool:
        """Whether a subset's product is known to be triangular, so that zeros are left out."""
        if not self._triangles:
            return False
        single = mask.bit_count() == 1
        node = self.factors[mask.bit_length() - 1][0] if single else self.canonical(mask)[0]
        return bool(facts(node) & {"lower", "upper"})

    def _inversion(self, mask: int, other: int) -> float:
        """What it costs that a factor is an inverse, and the product with it no solve."""
        if mask.bit_count() > 1:
            return 0.0
        node, labels = self.factors[mask.bit_length() - 1]
        if not is_inverse(node):
            return 0.0
        size = self._number(node.shape[-1])
        product = self._labels(mask | other)
        solved = [label for label in labels[-2:] if label not in product]
        if len(solved) == 1 and labels[-1] != labels[-2]:
            return 0.0
        return 2 * size**3


def is_inverse(node: ir.Node) -> bool:
    return isinstance(node, ir.Apply) and node.operation.name == INVERSE


def _orders(members: list[ir.Factor]) -> Iterable[list[ir.Factor]]:
    """The factors sorted by node, with the equal ones in every order and the axes of symmetric
    ones both ways."""
    groups = [list(group) for _, group in itertools.groupby(members, key=lambda f: f[0].key)]
    choices = [
        list(itertools.permutations(group)) if len(group) <= MOST_PERMUTED else [tuple(group)]
        for group in groups
    ]
    for chosen in itertools.product(*choices):
        order = [factor for group in chosen for factor in group]
        yield order
        flipped = [_flipped(factor) for factor in order]
        pairs = enumerate(zip(order, flipped, strict=True))
        symmetric = [position for position, (factor, other) in pairs if factor != other]
        for positions in _subsets(symmetric[:MOST_PERMUTED]):
            yield [
                flipped[position] if position in positions else factor
                for position, factor in enumerate(order)
            ]


def _flipped(factor: ir.Factor) -> ir.Factor:
    """A symmetric factor with its last two labels exchanged; any other as it is."""
    node, labels = factor
    if "symmetric" not in facts(node):
        return factor
    return node, (*labels[:-2], labels[-1], labels[-2])


def _subsets(items: list[int]) -> Iterable[tuple[int, ...]]:
    """Every subset but the empty one."""
    for size in range(1, len(items) + 1):
        yield from itertools.combinations(items, size)


def _pattern(order: list[ir.Factor], output: set[int]) -> list[tuple[int, ...]]:
    """The labels, numbered in the order met, with the contracted ones marked."""
    numbers: dict[int, int] = {}
    pattern = []
    for _, labels in order:
        row = []
        for label in labels:
            numbers.setdefault(label, len(numbers))
            row += [numbers[label], int(label in output)]
        pattern.append(tuple(row))
    return pattern
