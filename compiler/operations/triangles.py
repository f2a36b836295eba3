"""Φ, the lower triangle with half of the diagonal: M = Φ(M) + Φ(M)ᵀ for a symmetric M."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import Operation, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.shapes import square

HALF_LOWER = register(
    Operation(
        name="half_lower",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("half_lower", cores[0]),),
        value=lambda arguments, parameters: (
            (np.tril(arguments[0]) + np.tril(arguments[0], -1)) / 2,
        ),
        differential=lambda at: (half_lower(at.tangents[0]),),
        transposes={0: lambda at, cotangent: half_lower(cotangent)},
        numpy=lambda arguments, *_: (
            f"(lambda a: (np.tril(a) + np.tril(a, -1)) / 2)({arguments[0]})"
        ),
        unicode="Φ({0})",
        latex=r"\Phi({0})",
        kernel="factors.half_lower",
        reads="lower",
        is_mask=True,
        unrolled=unrolled.half_lower,
        facts=lambda arguments, output: frozenset({"lower"}),
        description="""Φ(A): the lower triangle of a square matrix with half of its diagonal, zero
above, so that a symmetric matrix is Φ(A) + Φ(A)ᵀ.""",
    )
)


def half_lower(matrix: Array) -> Array:
    """Φ(A)."""
    return apply(HALF_LOWER, matrix)
