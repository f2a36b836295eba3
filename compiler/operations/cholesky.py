"""The Cholesky factor."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import Operation, Point, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import symmetric_part
from derivatrix.compiler.operations.pivots import positive_root
from derivatrix.compiler.operations.shapes import square
from derivatrix.compiler.operations.triangles import half_lower


def _differential(at: Point) -> tuple[Array, ...]:
    """dL = L Φ(L⁻¹ dA L⁻ᵀ), with Φ the lower triangle with half of the diagonal (Murray,
    Differentiation of the Cholesky decomposition, 2016)."""
    inverse = apply(INVERSE, at.result)
    return (at.result @ half_lower(inverse @ at.tangents[0] @ inverse.mT),)


CHOLESKY = register(
    Operation(
        name="cholesky",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("cholesky", cores[0]),),
        prepare=lambda arrays: [symmetric_part("cholesky", arrays[0])],
        value=lambda arguments, parameters: (np.linalg.cholesky(arguments[0]),),
        differential=_differential,
        numpy=lambda arguments, parameters, output: f"np.linalg.cholesky({arguments[0]})",
        kernel="factors.lower_factor",
        reads="lower",
        unrolled=unrolled.cholesky,
        single=positive_root,
        failure="the matrix is not positive definite",
        facts=lambda arguments, output: frozenset({"lower"}),
        domain=("spd",),
        notation=("chol",),
        letters=("L",),
        description="""The lower triangular L with L Lᵀ = A and a positive diagonal.

A: a symmetric positive definite matrix, with leading stacked axes if any. Of any other square
matrix the symmetric part (A + Aᵀ)/2 is taken, so the derivative is right along all directions.
Raises LinAlgError where that is not positive definite.""",
    )
)
