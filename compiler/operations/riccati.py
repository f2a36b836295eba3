"""The stabilising solutions of the algebraic Riccati equations, in continuous and discrete time.

The differential is a Lyapunov equation with the matrix of the closed loop, A - B K (Kao and
Hennequin 2020, "Automatic differentiation of Sylvester, Lyapunov, and algebraic Riccati
equations").
"""

from collections.abc import Callable, Sequence

import numpy as np
import scipy

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.operation import Operation, Parameters, Point, Value, register
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.lyapunov import LYAPUNOV, STEIN
from derivatrix.compiler.operations.matrices import each_matrix, symmetric_part
from derivatrix.compiler.operations.shapes import square
from derivatrix.runtime.errors import ShapeError


def _shapes(name: str) -> Callable[[Sequence[Shape], Parameters], tuple[Shape, ...]]:
    def shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        matrix, gain, costs, weight = cores
        for core in (matrix, costs, weight):
            square(name, core)
        if gain[0] != matrix[0] or costs != matrix or weight[0] != gain[1]:
            texts = ", ".join(shape_text(core) for core in cores)
            raise ShapeError(
                f"{name} needs matrices of shapes (n, n), (n, m), (n, n), (m, m), not {texts}"
            )
        return (matrix,)

    return shapes


def _value(name: str) -> Value:
    """Return the value by the function of this name in `scipy.linalg`."""

    def solve(*matrices: np.ndarray) -> tuple[np.ndarray, ...]:
        if not matrices[0].size:
            return (np.zeros((0, 0)),)  # SciPy refuses empty matrices
        return (getattr(scipy.linalg, name)(*matrices),)

    return lambda arguments, parameters: each_matrix(solve, arguments)


def _prepare(arrays: Sequence[Array]) -> Sequence[Array]:
    matrix, gain, costs, weight = arrays
    name = "an algebraic Riccati equation"
    return matrix, gain, symmetric_part(name, costs), symmetric_part(name, weight)


def _facts(arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
    is_semidefinite = "psd" in arguments[2] & arguments[3]
    return frozenset({"symmetric", "psd"} if is_semidefinite else {"symmetric"})


def _continuous(at: Point) -> tuple[Array, ...]:
    """(A - B K)ᵀ dX + dX (A - B K) + dQ + dAᵀ X + X dA - X dB K - Kᵀ dBᵀ X + Kᵀ dR K = 0 for
    K = R⁻¹ Bᵀ X."""
    matrix, gain, _, weight = at.arguments
    d_matrix, d_gain, d_costs, d_weight = at.tangents
    control = apply(INVERSE, weight) @ gain.mT @ at.result
    half = at.result @ (d_matrix - d_gain @ control)
    constant = half + half.mT + d_costs + control.mT @ d_weight @ control
    return (apply(LYAPUNOV, (matrix - gain @ control).mT, -constant),)


def _discrete(at: Point) -> tuple[Array, ...]:
    """dX = Fᵀ dX F + dQ + (dA - dB K)ᵀ X F + Fᵀ X (dA - dB K) + Kᵀ dR K for
    K = (R + Bᵀ X B)⁻¹ Bᵀ X A and F = A - B K."""
    matrix, gain, _, weight = at.arguments
    d_matrix, d_gain, d_costs, d_weight = at.tangents
    costs = at.result @ gain
    control = apply(INVERSE, weight + gain.mT @ costs) @ costs.mT @ matrix
    closed_loop = matrix - gain @ control
    half = closed_loop.mT @ at.result @ (d_matrix - d_gain @ control)
    constant = half + half.mT + d_costs + control.mT @ d_weight @ control
    return (apply(STEIN, closed_loop.mT, constant),)


FAILURE = "there is no stabilising solution"

CARE = register(
    Operation(
        name="solve_continuous_are",
        ranks=(2, 2, 2, 2),
        shapes=_shapes("solve_continuous_are"),
        value=_value("solve_continuous_are"),
        differential=_continuous,
        numpy=lambda texts, *_: f"scipy.linalg.solve_continuous_are({', '.join(texts)})",
        kernel="riccati.continuous_riccati",
        failure=FAILURE,
        facts=_facts,
        domain=("", "", "spd", "spd"),
        prepare=_prepare,
        notation=("care",),
        description=(
            "The stabilising solution X of A.T @ X + X @ A - X @ B @ inv(R) @ B.T @ X + Q = 0: "
            "that for which the eigenvalues of A - B @ inv(R) @ B.T @ X have negative real parts. "
            "Of Q and R the symmetric parts are taken. LinAlgError where there is none."
        ),
    )
)

DARE = register(
    Operation(
        name="solve_discrete_are",
        ranks=(2, 2, 2, 2),
        shapes=_shapes("solve_discrete_are"),
        value=_value("solve_discrete_are"),
        differential=_discrete,
        numpy=lambda texts, *_: f"scipy.linalg.solve_discrete_are({', '.join(texts)})",
        kernel="riccati.discrete_riccati",
        failure=FAILURE,
        facts=_facts,
        domain=("", "", "spd", "spd"),
        prepare=_prepare,
        notation=("dare",),
        description=(
            "The stabilising solution X of A.T @ X @ A - X - A.T @ X @ B @ inv(R + B.T @ X @ B) @ "
            "B.T @ X @ A + Q = 0: that for which the eigenvalues of A - B @ K, where "
            "K = inv(R + B.T @ X @ B) @ B.T @ X @ A, lie inside the unit circle. Of Q and R the "
            "symmetric parts are taken. LinAlgError where there is none."
        ),
    )
)
