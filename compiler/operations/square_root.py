"""The principal square root of a matrix."""

from collections.abc import Sequence

import numpy as np
import scipy

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.matrix_functions import (
    NOT_PRINCIPAL,
    require_principal,
    transposed,
)
from derivatrix.compiler.operations.pivots import positive_root
from derivatrix.compiler.operations.shapes import square
from derivatrix.compiler.operations.sylvester import SYLVESTER

KEPT = frozenset({"symmetric", "lower", "upper", "diagonal"})


def _root(matrix: np.ndarray) -> np.ndarray:
    require_principal("sqrtm", matrix)
    return np.real(scipy.linalg.sqrtm(matrix))


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    every = np.vectorize(_root, otypes=[float], signature="(n,n)->(n,n)")
    return (every(arguments[0]),)


def _facts(arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
    """The principal root of a symmetric matrix, where there is one, is positive definite."""
    known = arguments[0] & KEPT
    return known | {"psd", "spd"} if "symmetric" in known else known


def _differential(at: Point) -> tuple[Array, ...]:
    """R dR + dR R = dA."""
    return (apply(SYLVESTER, at.result, at.result, at.tangents[0]),)


SQRTM = register(
    Operation(
        name="sqrtm",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("sqrtm", cores[0]),),
        value=_value,
        differential=_differential,
        numpy=lambda arguments, *_: f"scipy.linalg.sqrtm({arguments[0]})",
        kernel="roots.sqrtm",
        failure=NOT_PRINCIPAL,
        single=positive_root,
        facts=_facts,
        domain=("spd",),
        notation=("sqrtm",),
        description=(
            "The principal square root of a square matrix: the R with R @ R = A whose eigenvalues "
            "have positive real parts. LinAlgError where an eigenvalue of A lies on the closed "
            "negative real axis, as for a singular matrix."
        ),
        rules=(transposed,),
    )
)
