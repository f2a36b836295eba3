"""Numbers that an operation on a 1 x 1 matrix requires to be positive, or not zero.

A function of such a number is differentiated as any other, and still raises LinAlgError where the
operation on a larger matrix does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import Array, apply, elementwise
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, register

NOT_POSITIVE = "the matrix is not positive definite"
SINGULAR = "the matrix is singular"

Holds = Callable[[np.ndarray], np.ndarray]


def _value(
    holds: Holds, failure: str, arguments: Arrays, parameters: Parameters
) -> tuple[np.ndarray, ...]:
    if not np.all(holds(arguments[0])):
        raise np.linalg.LinAlgError(failure)
    return (np.asarray(arguments[0]),)


def _record(name: str, holds: Holds, failure: str, kind: str, description: str) -> Operation:
    def unrolled(algebra, arguments, facts):  # type: ignore[no-untyped-def]
        algebra.require(kind, arguments[0][()])
        return (arguments[0],)

    return register(
        Operation(
            name=name,
            ranks=(0,),
            shapes=lambda cores, parameters: ((),),
            value=partial(_value, holds, failure),
            differential=lambda at: at.tangents,
            unicode="{0}",
            latex="{0}",
            numpy=lambda arguments, *_: f"({arguments[0]})",
            kernel=f"pivots.{name}",
            failure=failure,
            domain=("positive",),
            unrolled=unrolled,
            description=description,
        )
    )


POSITIVE_PIVOT = _record(
    "positive_pivot",
    lambda x: x > 0,
    NOT_POSITIVE,
    "positive",
    "The number x itself. Raises LinAlgError where it is not positive.",
)

NONZERO_PIVOT = _record(
    "nonzero_pivot",
    lambda x: x != 0,
    SINGULAR,
    "nonzero",
    "The number x itself. Raises LinAlgError where it is zero.",
)


def pivot(numbers: Sequence[Array], facts: Sequence[frozenset[str]]) -> Array:
    """Return the entry of an invertible 1 x 1 matrix: positive if the matrix is definite."""
    return apply(POSITIVE_PIVOT if "spd" in facts[0] else NONZERO_PIVOT, numbers[0])


def reciprocal(numbers: Sequence[Array], facts: Sequence[frozenset[str]]) -> tuple[Array, ...]:
    """1/x of a number that must not be zero."""
    return (elementwise(1 / slot(0), pivot(numbers, facts)),)


def positive_root(numbers: Sequence[Array], facts: Sequence[frozenset[str]]) -> tuple[Array, ...]:
    """The square root of a number that must be positive."""
    return (elementwise(sympy.sqrt(slot(0)), apply(POSITIVE_PIVOT, numbers[0])),)
