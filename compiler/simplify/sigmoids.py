"""sigmoid(t) and sigmoid(-t) = 1 - sigmoid(t), as in cross entropies and their derivatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import sympy

from derivatrix.compiler.ir.nodes import Einsum, Factor, Map, Node, Sum, einsum, full, literal
from derivatrix.compiler.ir.scalar_functions import sigmoid


def sigmoid_argument(node: Node) -> tuple[sympy.Expr, tuple[Node, ...]] | None:
    """t, as a function of arrays, where the entries of a node are sigmoid(t) or 1 - sigmoid(-t)."""
    if isinstance(node, Map) and isinstance(node.expression, sigmoid):
        return node.expression.args[0], node.arguments
    if isinstance(node, Sum) and len(node.terms) == 2:
        for one, other in (node.terms, node.terms[::-1]):
            for found in _sigmoids(other) if literal(one) == 1 else ():
                if literal(found.rest) == -1:
                    return -found.factor.expression.args[0], found.factor.arguments
    return None


def with_one_sigmoid(
    terms: Sequence[Node], difference: Callable[[Node, Node], Node]
) -> list[Node] | None:
    """The terms of a sum with c (a sigmoid(t) + b sigmoid(-t)) written c (a - b) sigmoid(t) + c b,
    where a - b is no sum: p - y for (1 - y) p - y (1 - p). None where there are no such terms."""
    found = [one for term in terms for one in _sigmoids(term)]
    found.sort(key=lambda one: one.factor.expression.args[0].could_extract_minus_sign())
    for one, two in permutations(found, 2):
        turned = Map(sigmoid(-one.factor.expression.args[0]), one.factor.arguments)
        if turned != two.factor or one.term is two.term or one.labels != two.labels:
            continue
        shared = [*(one.entries & two.entries).elements()]
        a, b = one.without(shared), two.without(shared)
        change = difference(a, b)
        if isinstance(change, Sum) and change.terms:
            continue
        rest = [term for term in terms if term not in (one.term, two.term)]
        with_sigmoid = one.product(*shared, (change, one.every), (one.factor, one.labels))
        return [*rest, with_sigmoid, one.product(*shared, (b, one.every))]
    return None


@dataclass(frozen=True)
class _Sigmoid:
    """A factor sigmoid(t) of a term, its labels there, and the other factors' product `rest`, which
    has the labels that are summed with it as further axes: `every` label."""

    term: Node
    factor: Map
    labels: tuple[int, ...]
    rest: Einsum

    @property
    def every(self) -> tuple[int, ...]:
        return tuple(range(self.rest.ndim))

    @property
    def entries(self) -> Counter[Factor]:
        """The factors in `rest` that are not summed in it."""
        factors = self.rest.factors
        return Counter(own for own in factors if max(own[1], default=0) < self.rest.ndim)

    def without(self, shared: Sequence[Factor]) -> Einsum:
        """`rest` without some of its factors."""
        factors = (Counter(self.rest.factors) - Counter(shared)).elements()
        sizes = dict(enumerate(self.rest.sizes))
        return einsum(factors, self.every, self.rest.coefficient, sizes)

    def product(self, *factors: Factor) -> Einsum:
        return einsum(factors, range(self.term.ndim), sizes=dict(enumerate(self.rest.shape)))


def _sigmoids(term: Node) -> Iterator[_Sigmoid]:
    output = tuple(range(term.ndim))
    if isinstance(term, Map) and isinstance(term.expression, sigmoid):
        yield _Sigmoid(term, term, output, full(1, term.shape))
    for place, (factor, labels) in enumerate(term.factors if isinstance(term, Einsum) else ()):
        if isinstance(factor, Map) and isinstance(factor.expression, sigmoid):
            assert isinstance(term, Einsum)
            order = list(dict.fromkeys([*output, *labels]))
            others = [*term.factors[:place], *term.factors[place + 1 :]]
            rest = einsum(others, order, term.coefficient, dict(enumerate(term.sizes)))
            yield _Sigmoid(term, factor, tuple(map(order.index, labels)), rest)
