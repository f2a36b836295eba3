"""z - logsumexp(z) = log softmax(z), as in cross entropies: the difference of large numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir.nodes import Apply, Einsum, Node, einsum
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP


def with_log_softmax(
    terms: Sequence[Node], simplified: Callable[[Product], Node]
) -> list[Node] | None:
    """The terms of a sum with c z[.., k] - c logsumexp(z) as c log_softmax(z)[.., k], where c is
    whatever product. None where there are no such terms."""
    logarithms = {
        base: (part, coefficient)
        for term in terms
        for part in (term, *term.children)
        if isinstance(part, Apply) and part.operation is LOGSUMEXP and _is_plain(part)
        for base, coefficient in [_unscaled(part.arguments[0][0])]
    }
    for term in terms if logarithms else ():
        product = Product.of(term) if isinstance(term, Einsum) else Product.whole(term)
        for place, (node, _) in enumerate(product.factors):
            if node not in logarithms:
                continue
            logarithm, coefficient = logarithms[node]
            axes, sizes = range(node.ndim), dict(enumerate(node.shape))
            spread = einsum([(logarithm, axes[:-1])], axes, -1 / coefficient, sizes)
            other = simplified(product.with_factor(place, spread))
            if other in terms:
                whole = Apply(LOG_SOFTMAX, logarithm.arguments, logarithm.stack)
                found = simplified(product.with_factor(place, whole).scaled(1 / coefficient))
                return [*(part for part in terms if part not in (term, other)), found]
    return None


def _unscaled(node: Node) -> tuple[Node, sympy.Expr]:
    """An array, and the number that it is multiplied by in `node`, as it is in other terms."""
    if isinstance(node, Einsum) and len(node.factors) == 1:
        array, labels = node.factors[0]
        if labels == tuple(range(len(node.sizes))):
            return array, node.coefficient
    return node, sympy.S.One


def _is_plain(node: Apply) -> bool:
    """Whether an operation's stacked axes are those of its argument, in order."""
    return node.arguments[0][1] == tuple(range(len(node.stack)))
