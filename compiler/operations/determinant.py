"""Determinants and their logarithms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import Array, apply, elementwise, multiply, sum_over
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.pivots import pivot
from derivatrix.compiler.operations.shapes import square


def _relative_change(at: Point) -> Array:
    """d det(A) / det(A) = d log |det(A)| = tr(A⁻¹ dA) (Jacobi's formula)."""
    inverse = apply(INVERSE, at.arguments[0])
    return sum_over(multiply(inverse.mT, at.tangents[0]))


def _log_of_determinant(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    sign, logarithm = np.linalg.slogdet(arguments[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        return (np.asarray(np.log(sign) + logarithm),)


def _of_number(numbers: Sequence[Array], facts: Sequence[frozenset[str]]) -> tuple[Array, ...]:
    """The number, which must be positive if the matrix is definite."""
    return (pivot(numbers, facts) if "spd" in facts[0] else numbers[0],)


def _logarithm_of_number(
    numbers: Sequence[Array], facts: Sequence[frozenset[str]]
) -> tuple[Array, ...] | None:
    """log(x) of a definite matrix; None for others: at x = 0 their derivative must raise."""
    if "spd" not in facts[0]:
        return None
    return (elementwise(sympy.log(slot(0)), pivot(numbers, facts)),)


def _record(name: str, numpy: str, **fields: Any) -> Operation:
    return register(
        Operation(
            name=name,
            ranks=(2,),
            shapes=lambda cores, parameters: (square(name, cores[0])[:-2],),
            numpy=lambda arguments, parameters, output: numpy.format(arguments[0]),
            factor_kernel=name,
            **fields,
        )
    )


DETERMINANT = _record(
    name="det",
    value=lambda arguments, parameters: (np.asarray(np.linalg.det(arguments[0])),),
    differential=lambda at: (multiply(at.result, _relative_change(at)),),
    numpy="np.linalg.det({0})",
    latex=r"\det({0})",
    domain=("invertible",),
    title="a determinant",
    unrolled=unrolled.determinant,
    single=_of_number,
)
"""Kernels compute det(A) A⁻¹ as the adjugate (`simplify.adjugates`), which singular A have, too."""

LOG_DETERMINANT = _record(
    name="logdet",
    value=_log_of_determinant,
    differential=lambda at: (_relative_change(at),),
    numpy="(lambda sign, logarithm: logarithm + np.log(sign))(*np.linalg.slogdet({0}))",
    latex=r"\log\det({0})",
    domain=("spd",),
    title="the logarithm of a determinant",
    unrolled=unrolled.log_determinant,
    single=_logarithm_of_number,
)
"""log(det(A)), nan where the determinant is negative."""

LOG_ABSOLUTE_DETERMINANT = _record(
    name="logabsdet",
    value=lambda arguments, parameters: (np.asarray(np.linalg.slogdet(arguments[0])[1]),),
    differential=lambda at: (_relative_change(at),),
    numpy="np.linalg.slogdet({0})[1]",
    unicode="log|det({0})|",
    latex=r"\log\left|\det({0})\right|",
    domain=("invertible",),
    title="the logarithm of a determinant",
    unrolled=unrolled.log_absolute_determinant,
)
