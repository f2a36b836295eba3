"""Sums of sigmoid(t) and sigmoid(-t) = 1 - sigmoid(t), as in derivatives of cross entropies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import sympy

from derivatrix.compiler.ir.nodes import Einsum, Factor, Map, Node, Sum, einsum, full, literal
from derivatrix.compiler.ir.scalar_functions import sigmoid


def sigmoid_argument(node: Node) -> tuple[sympy.Expr, tuple[Node, ...]] | None:
    """Return t, as a function of arrays, if a node is sigmoid(t) or 1 - sigmoid(-t); else None."""
    if isinstance(node, Map) and isinstance(node.expression, sigmoid):
        return node.expression.args[0], node.arguments
    if isinstance(node, Sum) and len(node.terms) == 2:
        for number, term in (node.terms, node.terms[::-1]):
            for sigmoid_in_term in _sigmoids(term) if literal(number) == 1 else ():
                if literal(sigmoid_in_term.cofactor) == -1:
                    function = sigmoid_in_term.factor
                    return -function.expression.args[0], function.arguments
    return None


def with_one_sigmoid(
    terms: Sequence[Node], difference: Callable[[Node, Node], Node]
) -> list[Node] | None:
    """Write c (a sigmoid(t) + b sigmoid(-t)) in a sum as c (a - b) sigmoid(t) + c b, if a - b is no
    sum: p - y for (1 - y) p - y (1 - p). None where there are no such terms."""
    sigmoids = [occurrence for term in terms for occurrence in _sigmoids(term)]
    sigmoids.sort(key=lambda s: s.factor.expression.args[0].could_extract_minus_sign())
    for s, r in permutations(sigmoids, 2):
        reflected = Map(sigmoid(-s.factor.expression.args[0]), s.factor.arguments)
        if reflected != r.factor or s.term is r.term or s.labels != r.labels:
            continue
        shared = [*(s.entries & r.entries).elements()]
        a, b = s.without(shared), r.without(shared)
        change = difference(a, b)
        if isinstance(change, Sum) and change.terms:
            continue
        unchanged = [term for term in terms if term not in (s.term, r.term)]
        with_sigmoid = s.product(*shared, (change, s.axes), (s.factor, s.labels))
        return [*unchanged, with_sigmoid, s.product(*shared, (b, s.axes))]
    return None


@dataclass(frozen=True)
class _Sigmoid:
    """A factor sigmoid(t) of a term, with its labels there. `cofactor` is the product of the other
    factors; labels that are summed together with the sigmoid's are further axes of it."""

    term: Node
    factor: Map
    labels: tuple[int, ...]
    cofactor: Einsum

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(range(self.cofactor.ndim))

    @property
    def entries(self) -> Counter[Factor]:
        """The factors of the cofactor that are not summed in it."""
        factors = self.cofactor.factors
        return Counter(f for f in factors if max(f[1], default=0) < self.cofactor.ndim)

    def without(self, shared: Sequence[Factor]) -> Einsum:
        """Return the cofactor without some of its factors."""
        factors = (Counter(self.cofactor.factors) - Counter(shared)).elements()
        sizes = dict(enumerate(self.cofactor.sizes))
        return einsum(factors, self.axes, self.cofactor.coefficient, sizes)

    def product(self, *factors: Factor) -> Einsum:
        return einsum(factors, range(self.term.ndim), sizes=dict(enumerate(self.cofactor.shape)))


def _sigmoids(term: Node) -> Iterator[_Sigmoid]:
    output = tuple(range(term.ndim))
    if isinstance(term, Map) and isinstance(term.expression, sigmoid):
        yield _Sigmoid(term, term, output, full(1, term.shape))
    for place, (factor, labels) in enumerate(term.factors if isinstance(term, Einsum) else ()):
        if isinstance(factor, Map) and isinstance(factor.expression, sigmoid):
            assert isinstance(term, Einsum)
            order = list(dict.fromkeys([*output, *labels]))
            factors = [*term.factors[:place], *term.factors[place + 1 :]]
            cofactor = einsum(factors, order, term.coefficient, dict(enumerate(term.sizes)))
            yield _Sigmoid(term, factor, tuple(map(order.index, labels)), cofactor)
