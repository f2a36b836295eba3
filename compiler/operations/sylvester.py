"""The solution X of the Sylvester equation A X + X B = C."""

from collections.abc import Sequence

import numpy as np
import scipy

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.nodes import Apply, Node, transposed
from derivatrix.compiler.ir.operation import Operation, Parameters, Point, register
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.lyapunov import LYAPUNOV, halved, require_nonzero
from derivatrix.compiler.operations.matrices import each_matrix
from derivatrix.compiler.operations.shapes import square
from derivatrix.runtime.errors import ShapeError


def _shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    a, b, c = cores
    square("solve_sylvester", a)
    square("solve_sylvester", b)
    if c != (a[0], b[0]):
        raise ShapeError(
            f"solve_sylvester with shapes {shape_text(a)} and {shape_text(b)} needs a "
            f"right-hand side of shape {shape_text((a[0], b[0]))}, "
            f"not {shape_text(c)}"
        )
    return (c,)


NOT_REGULAR = "the first matrix and minus the second share an eigenvalue"


def _solve(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    sums = np.linalg.eigvals(a)[:, None] + np.linalg.eigvals(b)
    largest = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    require_nonzero(sums, largest, f"solve_sylvester: {NOT_REGULAR}")
    return (scipy.linalg.solve_sylvester(a, b, c),)


def _differential(at: Point) -> tuple[Array, ...]:
    """dX solves the same equation: A dX + dX B = dC - dA X - X dB."""
    a, b, _ = at.arguments
    d_a, d_b, d_c = at.tangents
    right_side = d_c - d_a @ at.result - at.result @ d_b
    return (apply(SYLVESTER, a, b, right_side),)


def _commuting(node: Apply) -> Node | None:
    a, b, c = node.arguments
    return halved(node, a, c) if a == b else None


def _lyapunov(node: Apply) -> Node | None:
    """A X + X Aᵀ = C, also of a symmetric A."""
    a, b, c = node.arguments
    if a[1] != b[1]:
        return None
    is_symmetric = a == b and "symmetric" in facts(a[0])
    if is_symmetric or transposed(b[0]) is a[0] or transposed(a[0]) is b[0]:
        return Apply(LYAPUNOV, (a, c), node.stack)
    return None


SYLVESTER: Operation = register(
    Operation(
        name="solve_sylvester",
        ranks=(2, 2, 2),
        shapes=_shapes,
        value=lambda arguments, parameters: each_matrix(_solve, arguments),
        differential=_differential,
        transposes={
            2: lambda at, cotangent: apply(
                SYLVESTER, at.arguments[0].mT, at.arguments[1].mT, cotangent
            )
        },
        numpy=lambda arguments, *_: f"scipy.linalg.solve_sylvester({', '.join(arguments)})",
        unicode="sylvester({0}, {1}, {2})",
        latex=r"\operatorname{{sylvester}}({0}, {1}, {2})",
        matrix_equation=lambda left, right: ((left, None), (None, right)),
        failure=NOT_REGULAR,
        domain=("spd", "spd", ""),
        rules=(_commuting, _lyapunov),
    )
)
