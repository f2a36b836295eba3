"""Functions of symmetric matrices that are written with eigenvalues and eigenvectors.

V diag(h(λ)) Vᵀ has derivatives where eigenvalues are repeated, though V has none: with B = Vᵀ dA V
they are V (L ∘ B) Vᵀ, where L holds the divided differences of h (Daleckii and Krein 1965). So
these products are gathered before an expression is differentiated, and written out afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import sympy

from derivatrix.compiler import scalars
from derivatrix.compiler.arrays import Array, apply, elementwise, multiply
from derivatrix.compiler.ir import Apply, Einsum, Map, Node, Sum, einsum, slot, topological
from derivatrix.compiler.operations.eigen import EIGH, EIGVALSH
from derivatrix.compiler.operations.registry import Operation, Parameters, Point
from derivatrix.compiler.simplify import rebuilt
from derivatrix.compiler.simplify.product import Product

KINKED = (sympy.Abs, sympy.sign, sympy.Piecewise, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling)
"""Functions with which h is not taken to have divided differences."""

ROUNDING = sympy.Float("1e-12")
"""Differences of h are divided as they are where the next term of Taylor's series counts more."""


def gathered(roots: Sequence[Node]) -> list[Node]:
    """The nodes with each V diag(h(λ)) Vᵀ as one operation."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        changed = rebuilt(node, new)
        new[node] = _gathered(changed) if isinstance(changed, Einsum) else changed
    return [new[root] for root in roots]


def spread(roots: Sequence[Node]) -> list[Node]:
    """The nodes with that operation written out again."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        changed = rebuilt(node, new)
        new[node] = _spread(changed) if isinstance(changed, Apply) else changed
    return [new[root] for root in roots]


def _gathered(node: Einsum) -> Node:
    product = Product.of(node)
    while (next_one := _gather_one(product)) is not None:
        product = next_one
    if product.factors == node.factors:
        return node
    return einsum(product.factors, product.output, product.coefficient, dict(product.sizes))


def _gather_one(product: Product) -> Product | None:
    for one, (vectors, (*outer, row, label)) in _vectors(product):
        for two, (other, (*others, column, last)) in _vectors(product):
            if two <= one or other is not vectors or (*others, last) != (*outer, label):
                continue
            positions = _mentions(product, label)
            between = [product.factors[i] for i in positions if i not in (one, two)]
            if label in product.output or any(own != (*outer, label) for _, own in between):
                continue
            parts = [_function_of_values(node, vectors) for node, _ in between]
            if not parts or any(part is None for part in parts):
                continue
            function = sympy.Mul(*parts)
            if function.has(*KINKED):
                continue
            whole = Apply(SPECTRAL, vectors.arguments, vectors.stack, (function,))
            rest = product.without(*positions, summed=label)
            return rest.times((whole, (*outer, row, column)))
    return None


def _vectors(product: Product) -> list[tuple[int, tuple[Apply, tuple[int, ...]]]]:
    """The factors that are eigenvectors of symmetric matrices, with their positions."""
    return [
        (position, (node, labels))
        for position, (node, labels) in enumerate(product.factors)
        if isinstance(node, Apply) and node.operation is EIGH and node.output == 1
    ]


def _mentions(product: Product, label: int) -> list[int]:
    return [i for i, (_, labels) in enumerate(product.factors) if label in labels]


def _function_of_values(node: Node, vectors: Apply) -> sympy.Expr | None:
    """`node` as an expression of slot(0), the eigenvalues that belong to `vectors`, if it is a
    function of those entry by entry."""
    if isinstance(node, Apply):
        values = node.operation is EIGVALSH or (node.operation is EIGH and node.output == 0)
        own = (node.arguments, node.stack) == (vectors.arguments, vectors.stack)
        return slot(0) if values and own else None
    if isinstance(node, Einsum):
        axes = tuple(range(node.ndim))
        plain = len(node.sizes) == node.ndim and all(own == axes for _, own in node.factors)
        if not plain or not node.coefficient.is_number:
            return None
    if not isinstance(node, (Map, Sum, Einsum)):
        return None
    known = {child: _function_of_values(child, vectors) for child in node.children}
    if any(part is None for part in known.values()):
        return None
    if isinstance(node, Map):
        slots = {slot(i): known[argument] for i, argument in enumerate(node.arguments)}
        return node.expression.xreplace(slots)
    if isinstance(node, Sum):
        return sympy.Add(*(known[term] for term in node.terms))
    return sympy.Mul(node.coefficient, *(known[factor] for factor, _ in node.factors))


@cache
def divided_difference(function: sympy.Expr) -> sympy.Expr:
    """(h(x) - h(y)) / (x - y) for x, y = slot(0), slot(1), right where they are equal or nearly so:
    by cancelling, or there from Taylor's series about their mean."""
    x, y = slot(0), slot(1)
    quotient = (function - function.xreplace({x: y})) / (x - y)
    if function.is_rational_function(x):
        return sympy.cancel(sympy.together(quotient))
    derivatives = [function]
    for _ in range(5):
        derivatives.append(scalars.derivative(derivatives[-1], x))
    mean, gap = (x + y) / 2, x - y
    first, third, fifth = (derivatives[i].xreplace({x: mean}) for i in (1, 3, 5))
    near = sympy.Abs(fifth) * gap**4 / 1920 <= ROUNDING * sympy.Abs(first)
    return sympy.Piecewise((first + third * gap**2 / 24, near), (quotient, True))


def _value(arguments: Sequence[np.ndarray], parameters: Parameters) -> tuple[np.ndarray, ...]:
    values, vectors = np.linalg.eigh(arguments[0])
    results = scalars.evaluate(sympy.sympify(parameters[0]), [values])
    return ((vectors * results[..., None, :]) @ np.swapaxes(vectors, -1, -2),)


def _differential(at: Point) -> tuple[Array, ...]:
    """V (L ∘ Vᵀ dA V) Vᵀ."""
    (matrix,), (change,) = at.arguments, at.tangents
    values, vectors = apply(EIGH, matrix), apply(EIGH, matrix, output=1)
    sizes = dict(zip("ij", matrix.node.shape, strict=True))
    rows, columns = (Array(einsum([(values.node, own)], "ij", sizes=sizes)) for own in "ij")
    differences = elementwise(divided_difference(sympy.sympify(at.parameters[0])), rows, columns)
    return (vectors @ multiply(differences, vectors.mT @ change @ vectors) @ vectors.mT,)


SPECTRAL = Operation(
    name="spectral",
    ranks=(2,),
    shapes=lambda cores, parameters: (cores[0],),
    value=_value,
    differential=_differential,
    numpy=lambda arguments, parameters, output: f"spectral({arguments[0]})",
    unicode="spectral({0})",
    latex=r"\operatorname{{spectral}}({0})",
    facts=lambda arguments, output: frozenset({"symmetric"}),
    description="V diag(h(λ)) Vᵀ, with a function h of slot(0) as parameter; written out, by "
    "`spread`, before anything is planned or printed.",
)


def _spread(node: Apply) -> Node:
    if node.operation is not SPECTRAL:
        return node
    vectors = Array(Apply(EIGH, node.arguments, node.stack, output=1))
    values = Array(Apply(EIGH, node.arguments, node.stack))
    weights = elementwise(sympy.sympify(node.parameters[0]), values)
    outer = tuple(range(len(node.stack)))
    factors = [(vectors, "ik"), (weights, "k"), (vectors, "jk")]
    labelled = [(array.node, (*outer, *labels)) for array, labels in factors]
    return einsum(labelled, (*outer, "i", "j"))
