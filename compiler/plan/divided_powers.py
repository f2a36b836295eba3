"""Products with powers of denominators, x y⁻², as products with lower powers, x y⁻¹ y⁻¹.

Where y⁻² is stored for several readers, it may be beyond the range of numbers though x y⁻² is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_values import divided_powers


def with_divided_powers(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Split negative powers in products into lower powers to divide by in turn."""
    return transformed(roots, _with_lower_powers)


def _with_lower_powers(node: ir.Node) -> ir.Node:
    if not isinstance(node, ir.Einsum) or len(node.factors) < 2:
        return node
    product = Product.of(node)
    for place, (factor, labels) in enumerate(node.factors):
        base, exponent = ir.power_of(factor)
        parts = divided_powers(-exponent) if exponent.is_negative else []
        if len(parts) > 1:
            powers = [(ir.Map(ir.slot(0) ** -part, (base,)), labels) for part in parts]
            product = product.with_factor(place, powers[0][0]).times(*powers[1:])
    return product.node if product.factors != node.factors else node
