"""z - logsumexp(z) = log softmax(z), as in cross entropies: the difference cancels for large z."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir.nodes import Apply, Einsum, Node, einsum
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP


def with_log_softmax(
    terms: Sequence[Node], simplified: Callable[[Product], Node]
) -> list[Node] | None:
    """Replace c z[.., k] - c logsumexp(z) in the terms of a sum by c log_softmax(z)[.., k], where c
    is any product; None where there are no such terms."""
    logarithms = {
        base: (part, coefficient)
        for term in terms
        for part in (term, *term.children)
        if isinstance(part, Apply) and part.operation is LOGSUMEXP
        if part.arguments[0][1] == tuple(range(len(part.stack)))
        for base, coefficient in [_unscaled(part.arguments[0][0])]
    }
    for term in terms if logarithms else ():
        product = Product.of(term) if isinstance(term, Einsum) else Product.of_factor(term)
        for place, (node, _) in enumerate(product.factors):
            if node not in logarithms:
                continue
            logarithm, coefficient = logarithms[node]
            axes, sizes = range(node.ndim), dict(enumerate(node.shape))
            spread = einsum([(logarithm, axes[:-1])], axes, -1 / coefficient, sizes)
            counterpart = simplified(product.with_factor(place, spread))
            if counterpart in terms:
                log_softmax = Apply(LOG_SOFTMAX, logarithm.arguments, logarithm.stack)
                combined = simplified(
                    product.with_factor(place, log_softmax).scaled(1 / coefficient)
                )
                return [*(part for part in terms if part not in (term, counterpart)), combined]
    return None


def _unscaled(node: Node) -> tuple[Node, sympy.Expr]:
    """Split a node into an array and the number that multiplies it."""
    if isinstance(node, Einsum) and len(node.factors) == 1:
        array, labels = node.factors[0]
        if labels == tuple(range(len(node.sizes))):
            return array, node.coefficient
    return node, sympy.S.One
