"""det(A) A⁻¹ as the adjugate of A, in kernels: where A is singular it has a value, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.nodes import Apply, Einsum, Map, Node, einsum, slot, topological
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.adjugate import ADJUGATE
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.simplify.product import Product
from derivatrix.compiler.simplify.products import power_of

REGULAR = frozenset({"spd", "orthogonal", "lower", "upper"})
"""Of these det(A) and A⁻¹ are as good: they have inverses, or det(A) and A⁻¹ are quicker found."""


def with_adjugates(roots: Sequence[Node]) -> list[Node]:
    """The nodes with det(A)ᵏ A⁻¹, for a whole k > 0, as det(A)ᵏ⁻¹ adj(A); further factors A⁻¹
    leave it as it is."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        made = rebuilt(node, new)
        new[node] = _with_adjugate(made) if isinstance(made, Einsum) else made
    return [new[root] for root in roots]


def _with_adjugate(node: Einsum) -> Node:
    product = Product.of(node)
    inverses = [place for place, (factor, _) in enumerate(product.factors) if _is(factor, INVERSE)]
    for one in inverses:
        inverse, labels = product.factors[one]
        assert isinstance(inverse, Apply)
        matrix = inverse.arguments[0][0]
        alone = sum(product.factors[place][0] is inverse for place in inverses) == 1
        for two, (factor, stacked) in enumerate(product.factors):
            base, power = power_of(factor)
            if (
                alone
                and _is(base, DETERMINANT)
                and (base.arguments, base.stack) == (inverse.arguments, inverse.stack)
                and stacked == labels[:-2]
                and power.is_Integer
                and power > 0
                and not facts(matrix) & REGULAR
            ):
                rest = [] if power == 1 else [(Map(slot(0) ** (power - 1), (base,)), stacked)]
                adjugate = Apply(ADJUGATE, inverse.arguments, inverse.stack)
                found = product.without(one, two).times((adjugate, labels), *rest)
                return einsum(found.factors, found.output, found.coefficient, sizes=found.sizes)
    return node


def _is(node: Node, operation: object) -> TypeGuard[Apply]:
    return isinstance(node, Apply) and node.operation is operation
