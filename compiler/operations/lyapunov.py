"""The Lyapunov equations A X + X Aᵀ = Q, in continuous time, and X = A X Aᵀ + Q, in discrete."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy
import sympy

from derivatrix.compiler.ir.arrays import Array, apply, scale
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Apply, Delta, Factor, Node
from derivatrix.compiler.ir.operation import Operation, Parameters, Point, register
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.commuting import commute
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import each_matrix
from derivatrix.compiler.operations.shapes import same, square


def _shapes(name: str) -> Callable[[Sequence[Shape], Parameters], tuple[Shape, ...]]:
    return lambda cores, parameters: (same(name, [square(name, core) for core in cores]),)


def require_nonzero(sums: np.ndarray, largest: float, message: str) -> None:
    """Raise LinAlgError where a number in `sums` is zero within rounding errors: each is a sum of
    numbers up to `largest` computed from matrices."""
    level = sum(sums.shape) * np.finfo(float).eps * largest
    if not np.all(np.abs(sums) > level):
        raise np.linalg.LinAlgError(message)


def _solve_continuous(matrix: np.ndarray, constant: np.ndarray) -> tuple[np.ndarray, ...]:
    values = np.linalg.eigvals(matrix)
    message = f"solve_continuous_lyapunov: {OPPOSITE}"
    require_nonzero(values[:, None] + values, np.abs(matrix).max(initial=0), message)
    return (scipy.linalg.solve_continuous_lyapunov(matrix, constant),)


def _solve_discrete(matrix: np.ndarray, constant: np.ndarray) -> tuple[np.ndarray, ...]:
    values = np.linalg.eigvals(matrix)
    products = values[:, None] * values
    message = f"solve_discrete_lyapunov: {INVERSE_TO_EACH_OTHER}"
    require_nonzero(1 - products, max(1, np.abs(matrix).max(initial=0) ** 2), message)
    return (scipy.linalg.solve_discrete_lyapunov(matrix, constant),)


OPPOSITE = "two eigenvalues of the matrix add up to zero"
INVERSE_TO_EACH_OTHER = "the product of two eigenvalues of the matrix is 1"


def _facts(arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
    """The transposed equation has the same solution where Q is symmetric."""
    return arguments[1] & {"symmetric"}


def _continuous(at: Point) -> tuple[Array, ...]:
    """A dX + dX Aᵀ = dQ - dA X - X dAᵀ."""
    d_matrix, d_constant = at.tangents
    right = d_constant - d_matrix @ at.result - at.result @ d_matrix.mT
    return (apply(LYAPUNOV, at.arguments[0], right),)


def _discrete(at: Point) -> tuple[Array, ...]:
    """dX = A dX Aᵀ + dA X Aᵀ + A X dAᵀ + dQ."""
    matrix, _ = at.arguments
    d_matrix, d_constant = at.tangents
    right = d_constant + d_matrix @ at.result @ matrix.mT + matrix @ at.result @ d_matrix.mT
    return (apply(STEIN, matrix, right),)


def halved(node: Apply, matrix: Factor, constant: Factor) -> Node | None:
    """X = A⁻¹ C / 2, which solves A X + X A = C if C commutes with A."""
    (a, labels), (c, _) = matrix, constant
    inverse = scale(apply(INVERSE, Array(a)), sympy.S.Half)
    if isinstance(c, Delta) and labels == tuple(range(len(node.stack))):
        return inverse.node
    return None if node.stack or not commute(c, a) else (inverse @ Array(c)).node


def _commuting(node: Apply) -> Node | None:
    matrix, constant = node.arguments
    return halved(node, matrix, constant) if "symmetric" in facts(matrix[0]) else None


LYAPUNOV: Operation = register(
    Operation(
        name="solve_continuous_lyapunov",
        ranks=(2, 2),
        shapes=_shapes("solve_continuous_lyapunov"),
        value=lambda arguments, parameters: each_matrix(_solve_continuous, arguments),
        differential=_continuous,
        transposes={1: lambda at, cotangent: apply(LYAPUNOV, at.arguments[0].mT, cotangent)},
        numpy=lambda texts, *_: f"scipy.linalg.solve_continuous_lyapunov({', '.join(texts)})",
        unicode="lyapunov({0}, {1})",
        latex=r"\operatorname{{lyapunov}}({0}, {1})",
        matrix_equation=lambda a: ((a, None), (None, a.mT)),
        failure=OPPOSITE,
        facts=_facts,
        domain=("spd", ""),
        description=(
            "The X with A @ X + X @ A.T = Q, by Schur's form of A (Bartels and Stewart). Q need "
            "not be symmetric. LinAlgError where two eigenvalues of A add up to zero."
        ),
        rules=(_commuting,),
    )
)

STEIN: Operation = register(
    Operation(
        name="solve_discrete_lyapunov",
        ranks=(2, 2),
        shapes=_shapes("solve_discrete_lyapunov"),
        value=lambda arguments, parameters: each_matrix(_solve_discrete, arguments),
        differential=_discrete,
        transposes={1: lambda at, cotangent: apply(STEIN, at.arguments[0].mT, cotangent)},
        numpy=lambda texts, *_: f"scipy.linalg.solve_discrete_lyapunov({', '.join(texts)})",
        matrix_equation=lambda a: ((None, None), (-a, a.mT)),
        kernel="stein.discrete_lyapunov",
        failure=INVERSE_TO_EACH_OTHER,
        facts=_facts,
        notation=("dlyap",),
        description=(
            "The X with A @ X @ A.T - X + Q = 0, by Schur's form of A (Kitagawa). Q need not be "
            "symmetric. LinAlgError where the product of two eigenvalues of A is 1."
        ),
    )
)
