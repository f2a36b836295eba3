"""The principal square root of a matrix."""

from collections.abc import Sequence

import numpy as np
import scipy

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import Operation, Point, register
from derivatrix.compiler.operations.matrices import each_matrix
from derivatrix.compiler.operations.matrix_functions import (
    INHERITED_FACTS,
    NOT_PRINCIPAL,
    require_principal,
    transposed,
)
from derivatrix.compiler.operations.pivots import positive_root
from derivatrix.compiler.operations.shapes import square
from derivatrix.compiler.operations.sylvester import SYLVESTER


def _root(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    require_principal("sqrtm", matrix)
    # The principal root is real: an imaginary part is rounding (Higham 2008, theorem 1.29).
    return (np.real(scipy.linalg.sqrtm(matrix)),)


def _facts(arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
    """The principal root of a symmetric matrix, where there is one, is positive definite."""
    inherited = arguments[0] & INHERITED_FACTS
    return inherited | {"psd", "spd"} if "symmetric" in inherited else inherited


def _differential(at: Point) -> tuple[Array, ...]:
    """R dR + dR R = dA."""
    return (apply(SYLVESTER, at.result, at.result, at.tangents[0]),)


SQRTM = register(
    Operation(
        name="sqrtm",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("sqrtm", cores[0]),),
        value=lambda arguments, parameters: each_matrix(_root, arguments),
        differential=_differential,
        numpy=lambda arguments, *_: f"scipy.linalg.sqrtm({arguments[0]})",
        kernel="roots.sqrtm",
        failure=NOT_PRINCIPAL,
        single=positive_root,
        facts=_facts,
        domain=("spd",),
        is_matrix_function=True,
        notation=("sqrtm",),
        description=(
            "The principal square root of a square matrix: the R with R @ R = A whose eigenvalues "
            "have positive real parts. LinAlgError where an eigenvalue of A lies on the closed "
            "negative real axis, as for a singular matrix."
        ),
        rules=(transposed,),
    )
)
