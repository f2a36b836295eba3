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
    left, right, constant = cores
    square("solve_sylvester", left)
    square("solve_sylvester", right)
    if constant != (left[0], right[0]):
        raise ShapeError(
            f"solve_sylvester with shapes {shape_text(left)} and {shape_text(right)} needs a "
            f"right-hand side of shape {shape_text((left[0], right[0]))}, "
            f"not {shape_text(constant)}"
        )
    return (constant,)


SHARED = "the first matrix and minus the second share an eigenvalue"


def _solve(left: np.ndarray, right: np.ndarray, constant: np.ndarray) -> tuple[np.ndarray, ...]:
    sums = np.linalg.eigvals(left)[:, None] + np.linalg.eigvals(right)
    largest = max(np.abs(left).max(initial=0), np.abs(right).max(initial=0))
    require_nonzero(sums, largest, f"solve_sylvester: {SHARED}")
    return (scipy.linalg.solve_sylvester(left, right, constant),)


def _differential(at: Point) -> tuple[Array, ...]:
    """dX solves the same equation: A dX + dX B = dC - dA X - X dB."""
    left, right, _ = at.arguments
    d_left, d_right, d_constant = at.tangents
    moved = d_constant - d_left @ at.result - at.result @ d_right
    return (apply(SYLVESTER, left, right, moved),)


def _transpose(at: Point, cotangent: Array) -> Array:
    return apply(SYLVESTER, at.arguments[0].mT, at.arguments[1].mT, cotangent)


def _commuting(node: Apply) -> Node | None:
    left, right, constant = node.arguments
    return halved(node, left, constant) if left == right else None


def _lyapunov(node: Apply) -> Node | None:
    """A X + X Aᵀ = C, also of a symmetric A."""
    left, right, constant = node.arguments
    if left[1] != right[1]:
        return None
    mirrored = left == right and "symmetric" in facts(left[0])
    if mirrored or transposed(right[0]) is left[0] or transposed(left[0]) is right[0]:
        return Apply(LYAPUNOV, (left, constant), node.stack)
    return None


SYLVESTER = register(
    Operation(
        name="solve_sylvester",
        ranks=(2, 2, 2),
        shapes=_shapes,
        value=lambda arguments, parameters: each_matrix(_solve, arguments),
        differential=_differential,
        transposes={2: _transpose},
        numpy=lambda arguments, *_: f"scipy.linalg.solve_sylvester({', '.join(arguments)})",
        unicode="sylvester({0}, {1}, {2})",
        latex=r"\operatorname{{sylvester}}({0}, {1}, {2})",
        failure=SHARED,
        domain=("spd", "spd", ""),
        rules=(_commuting, _lyapunov),
    )
)
