"""The largest entry of a vector."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply, multiply, sum_over
from derivatrix.compiler.ir.nodes import zeros
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.shapes import an_entry


def _differential(at: Point) -> tuple[Array, ...]:
    """The tangent at the largest entry; of several equal ones, the mean of their tangents."""
    return (sum_over(multiply(apply(SHARES, at.arguments[0]), at.tangents[0])),)


def _shares(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    largest = arguments[0] == arguments[0].max(-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        return (largest / largest.sum(-1, keepdims=True),)


SHARES = register(
    Operation(
        name="shares_of_maximum",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0],),
        requires=an_entry,
        value=_shares,
        differential=lambda at: (Array(zeros(at.result.node.shape)),),
        numpy=lambda arguments, *_: (
            "(lambda x: (x == np.max(x, -1, keepdims=True)) "
            "/ np.sum(x == np.max(x, -1, keepdims=True), -1, keepdims=True))"
            f"({arguments[0]})"
        ),
        unicode="∇max({0})",
        latex=r"\nabla\max({0})",
        kernel="extrema.shares_of_maximum",
        columns="columns.shares_of_column_maxima",
        is_selector=True,
        description="""The derivative of the maximum: 1 at a vector's largest entry, 0 elsewhere.

x: a vector, with leading stacked axes if any. Of k equally large entries each has 1/k. Its own
derivative is 0.""",
    )
)

MAXIMUM = register(
    Operation(
        name="max",
        ranks=(1,),
        shapes=lambda cores, parameters: ((),),
        requires=an_entry,
        value=lambda arguments, parameters: (np.asarray(arguments[0].max(-1)),),
        differential=_differential,
        numpy=lambda arguments, *_: f"np.max({arguments[0]}, -1)",
        latex=r"\max({0})",
        kernel="extrema.row_maxima",
        columns="columns.column_maxima",
        description="""The largest entry of a vector, with leading stacked axes if any.

Where several entries are equally large there is no derivative; they share it evenly.""",
    )
)
