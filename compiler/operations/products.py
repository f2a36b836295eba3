"""The product of the entries of a vector, and of all entries but one.

Derivatives are products of the other entries, never quotients, so entries may be zero.
"""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply, multiply, subtract, sum_over
from derivatrix.compiler.ir.nodes import Apply, Delta, Node, einsum, full
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.eigen import EIGVALSH


def _differential(at: Point) -> tuple[Array, ...]:
    """Σ_i (Π_{j≠i} x_j) dx_i."""
    return (sum_over(multiply(apply(PRODUCTS_OF_OTHERS, at.arguments[0]), at.tangents[0])),)


def _products_of_others_differential(at: Point) -> tuple[Array, ...]:
    """d (Π_{k≠i} x_k) = Σ_{j≠i} (Π_{k≠i,j} x_k) dx_j, where the product without i and j is that
    without j of the vector with 1 in the place of x_i."""
    (vector,) = at.arguments
    size = vector.node.shape[0]
    identity = Array(Delta(size))
    off_diagonal = subtract(Array(full(1, (size, size))), identity)
    rows = Array(einsum([(vector.node, "j")], "ij", sizes={"i": size}))
    without_two = apply(PRODUCTS_OF_OTHERS, multiply(off_diagonal, rows) + identity)
    return (multiply(off_diagonal, without_two) @ at.tangents[0],)


def _products_of_others(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    (x,) = arguments
    return (np.where(np.eye(x.shape[-1]), 1, x[..., None, :]).prod(-1),)


PRODUCTS_OF_OTHERS = register(
    Operation(
        name="products_of_others",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0],),
        value=_products_of_others,
        differential=_products_of_others_differential,
        numpy=lambda arguments, *_: (
            "(lambda x: np.prod(np.where(np.eye(x.shape[-1]), 1, x[..., None, :]), -1))"
            f"({arguments[0]})"
        ),
        unicode="∇prod({0})",
        latex=r"\nabla\prod({0})",
        kernel="products.products_of_others",
        description="""The derivative of the product of a vector's entries: the i-th entry is the
product of all entries but the i-th.

x: a vector, with leading stacked axes if any. It is not made by division, so entries may be 0.""",
    )
)


def _of_eigenvalues(node: Apply) -> Node | None:
    """Π λ_i(A) = det(A), which has derivatives at repeated eigenvalues."""
    ((values, stack),) = node.arguments
    if not isinstance(values, Apply) or values.operation is not EIGVALSH:
        return None
    arguments = [(child, tuple(stack[axis] for axis in axes)) for child, axes in values.arguments]
    return Apply(DETERMINANT, tuple(arguments), node.stack)


PRODUCT = register(
    Operation(
        name="prod",
        ranks=(1,),
        shapes=lambda cores, parameters: ((),),
        value=lambda arguments, parameters: (np.asarray(arguments[0].prod(-1)),),
        differential=_differential,
        numpy=lambda arguments, *_: f"np.prod({arguments[0]}, -1)",
        latex=r"\prod({0})",
        kernel="products.row_products",
        rules=(_of_eigenvalues,),
        description="The product of the entries of a vector, with leading stacked axes if any.",
    )
)
