"""The inverse of a square matrix; solving is multiplying by it (the plan factorises instead)."""

from collections.abc import Sequence

import numpy as np

from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.operation import Operation, Point, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.pivots import reciprocal
from derivatrix.compiler.operations.shapes import square

INHERITED_FACTS = frozenset({"symmetric", "psd", "lower", "upper", "diagonal", "orthogonal"})
"""Facts of A that A⁻¹ has, too."""


def _facts(arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
    """A semidefinite matrix that has an inverse is definite, and so is its inverse."""
    inherited = arguments[0] & INHERITED_FACTS
    return inherited | {"spd"} if "psd" in inherited else inherited


def _differential(at: Point) -> tuple[Array, ...]:
    """dY = -Y dA Y (Magnus and Neudecker 8.4)."""
    return (-(at.result @ at.tangents[0] @ at.result),)


INVERSE = register(
    Operation(
        name="inv",
        title="an inverse",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("inv", cores[0]),),
        value=lambda arguments, parameters: (np.linalg.inv(arguments[0]),),
        differential=_differential,
        numpy=lambda arguments, parameters, output: f"np.linalg.inv({arguments[0]})",
        latex=r"{0}^{{-1}}",
        facts=_facts,
        domain=("invertible",),
        is_inverse=True,
        is_matrix_function=True,
        factor_kernel="inverse",
        unrolled=unrolled.inverse,
        single=reciprocal,
    )
)
