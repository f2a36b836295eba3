"""The solution X of the Sylvester equation A X + X B = C."""

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from derivatrix.compiler.arrays import Array, apply
from derivatrix.compiler.dimensions import Shape, shape_text
from derivatrix.compiler.facts import facts
from derivatrix.compiler.ir import Apply, Node, transposed
from derivatrix.compiler.operations.lyapunov import LYAPUNOV, halved
from derivatrix.compiler.operations.registry import (
    Operation,
    Parameters,
    Point,
    register,
)
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


def _value(arguments: Sequence[np.ndarray], parameters: Parameters) -> tuple[np.ndarray, ...]:
    stack = np.broadcast_shapes(*(argument.shape[:-2] for argument in arguments))
    full = [np.broadcast_to(a, stack + a.shape[-2:]) for a in arguments]
    result = np.empty(full[2].shape)
    for index in np.ndindex(stack):
        result[index] = scipy.linalg.solve_sylvester(*(a[index] for a in full))
    return (result,)


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
        value=_value,
        differential=_differential,
        transposes={2: _transpose},
        numpy=lambda arguments, *_: f"scipy.linalg.solve_sylvester({', '.join(arguments)})",
        unicode="sylvester({0}, {1}, {2})",
        latex=r"\operatorname{{sylvester}}({0}, {1}, {2})",
        failure="the first matrix and minus the second share an eigenvalue",
        domain=("spd", "spd", ""),
        rules=(_commuting, _lyapunov),
    )
)
