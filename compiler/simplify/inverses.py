"""The rules for inverses and pseudoinverses in products: A⁻¹ A = I, also where A is a product whose
factors stand beside the inverse; the identities of Penrose; residuals that are orthogonal to A."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from derivatrix.compiler.ir.nodes import Apply, Delta, Einsum, Labels, Node, Sum
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.pseudoinverse import PINV

Place = tuple[tuple[int, ...], Labels, Labels]
"""Where a matrix stands in a product: the positions of its factors, the labels of its axes, and
those that these factors are summed over."""


def cancel_inverse(product: Product) -> Product | None:
    """A⁻¹ A = A A⁻¹ = I."""
    for one, inverse, labels in _inverses(product):
        matrix = inverse.arguments[0][0]
        for positions, outer, hidden in _places(product, matrix):
            if outer[:-2] != labels[:-2]:
                continue
            pair = _adjacent(labels[-2:], outer[-2:], "symmetric" in facts(matrix))
            if pair is None:
                continue
            *ends, inner = pair
            mentions = sum(product.factors[p][1].count(inner) for p in (one, *positions))
            if product.private(inner, mentions):
                rest = product.without(one, *positions)
                for label in (inner, *hidden):
                    rest = rest.without(summed=label)
                if isinstance(matrix, Einsum) and product.factors[positions[0]][0] is not matrix:
                    rest = rest.scaled(1 / matrix.coefficient)
                return rest.times((Delta(matrix.shape[-1]), tuple(ends)))
    return None


def _inverses(product: Product) -> Iterator[tuple[int, Apply, Labels]]:
    """Positions, nodes and labels of inverses whose stacked axes are in order."""
    for position, (node, labels) in enumerate(product.factors):
        if isinstance(node, Apply) and node.operation is INVERSE and _has_stack_in_order(node):
            yield position, node, labels


def _has_stack_in_order(node: Apply) -> bool:
    return node.arguments[0][1] == tuple(range(len(node.stack)))


def _adjacent(left: Labels, right: Labels, symmetric: bool) -> tuple[int, int, int] | None:
    """The outer two labels and the inner one of a matrix product of two factors, if it is one."""
    (i, j), (k, m) = left, right
    if j == k:
        return (i, m, j)
    if m == i:
        return (k, j, i)
    if symmetric and j == m:
        return (i, k, j)
    if symmetric and i == k:
        return (j, m, i)
    return None


def _places(product: Product, matrix: Node) -> Iterator[Place]:
    """Where a matrix stands in a product, as one factor or as the factors that it consists of."""
    for position, (node, labels) in enumerate(product.factors):
        if node is matrix:
            yield (position,), labels, ()
    if isinstance(matrix, Einsum):
        yield from _factor_places(product, matrix, (), {})


def _factor_places(
    product: Product, matrix: Einsum, positions: tuple[int, ...], names: dict[int, int]
) -> Iterator[Place]:
    """Where the factors of a product stand in another, from the first one after `positions` on.
    names: the labels that those before have there."""
    if len(positions) == len(matrix.factors):
        mentions = Counter(label for _, labels in matrix.factors for label in labels)
        if len(names) == len(matrix.sizes) == len({*names.values()}):
            hidden = tuple(names[label] for label in matrix.contracted)
            if all(product.private(names[c], mentions[c]) for c in matrix.contracted):
                yield positions, tuple(names[axis] for axis in range(matrix.ndim)), hidden
        return
    factor, labels = matrix.factors[len(positions)]
    for position, (node, others) in enumerate(product.factors):
        if node is not factor or position in positions:
            continue
        for arrangement in _arrangements(node, others):
            extended = dict(names)
            pairs = zip(labels, arrangement, strict=True)
            if all(extended.setdefault(label, other) == other for label, other in pairs):
                yield from _factor_places(product, matrix, (*positions, position), extended)


def _arrangements(node: Node, labels: Labels) -> Iterator[Labels]:
    """The labels of a factor, either way for a symmetric matrix."""
    yield labels
    if "symmetric" in facts(node):
        yield (*labels[:-2], labels[-1], labels[-2])


def brings_inverse_together(node: Einsum, product: Product) -> bool:
    """Whether splicing a factor into a product puts a matrix beside its inverse. Such a factor is
    spliced even where others share it: the product without the pair costs less."""
    position = next(i for i, (factor, _) in enumerate(product.factors) if factor is node)
    here = {factor for factor, _ in node.factors}
    there = {factor for factor, _ in product.factors}
    if not (_inverted(here) & _material(there) or _inverted(there) & _material(here)):
        return False
    return cancel_inverse(product.inlined(position)) is not None


def _inverted(nodes: set[Node]) -> set[Node]:
    """The matrices of which inverses are among `nodes`, and their factors."""
    inverses = (n for n in nodes if isinstance(n, Apply) and n.operation is INVERSE)
    return _material({inverse.arguments[0][0] for inverse in inverses})


def _material(nodes: set[Node]) -> set[Node]:
    """Nodes and the factors of those that are products."""
    inner = {factor for node in nodes if isinstance(node, Einsum) for factor, _ in node.factors}
    return nodes | inner


def absorb_projector(product: Product) -> Product | None:
    """A A⁺ A = A and A⁺ A A⁺ = A⁺, where A A⁺ and A⁺ A, which are symmetric, may stand transposed
    and on either side, as in Aᵀ A A⁺ = Aᵀ (Penrose, A generalized inverse for matrices, 1955)."""
    for one, two, ends, summed, place in _projectors(product):
        matrix = product.factors[two][0]
        for three, (node, labels) in enumerate(product.factors):
            if three in (one, two) or node not in (matrix, product.factors[one][0]):
                continue
            axis = place if node is matrix else -3 - place
            label = labels[axis]
            if label in ends and product.private(label, 2):
                (end,) = {*ends} - {label}
                absorbed = [*labels]
                absorbed[axis] = end
                rest = product.without(one, two, three, summed=summed).without(summed=label)
                return rest.times((node, tuple(absorbed)))
    return None


def _projectors(product: Product) -> Iterator[tuple[int, int, Labels, int, int]]:
    """Factors A⁺ and A that are multiplied: their positions, the labels of the product's axes, the
    label summed over, and the axis of A that the product projects."""
    for one, (inverse, labels) in enumerate(product.factors):
        if not (
            isinstance(inverse, Apply) and inverse.operation is PINV and not inverse.parameters
        ):
            continue
        matrix, stack = inverse.arguments[0]
        if stack != tuple(range(len(inverse.stack))):
            continue
        for two, (node, others) in enumerate(product.factors):
            if node is not matrix or others[:-2] != labels[:-2]:
                continue
            (rows, columns), (above, below) = others[-2:], labels[-2:]
            if columns == above != rows and rows != below and product.private(columns, 2):
                yield one, two, (rows, below), columns, -2
            elif rows == below != columns and columns != above and product.private(rows, 2):
                yield one, two, (columns, above), rows, -1


def meets_its_inverse(total: Sum, product: Product) -> bool:
    """Whether a sum in a product has a term with an inverse of what the product's other factors are
    made of: multiplied out, such a residual, as A (A⁺ B) - B times Aᵀ, may vanish."""
    nodes = {factor for term in total.terms if isinstance(term, Einsum) for factor in term.children}
    inverted = {
        argument
        for node in nodes
        if isinstance(node, Apply) and node.operation in (INVERSE, PINV)
        for argument, _ in node.arguments
    }
    return bool(_material(inverted) & {factor for factor, _ in product.factors})
