"""softmax, its logarithm, and logsumexp over the last axis, without overflow."""

import numpy as np
import scipy

from derivatrix.compiler.ir.arrays import Array, apply, multiply, subtract, sum_over
from derivatrix.compiler.ir.operation import (
    Arrays,
    Operation,
    Parameters,
    Point,
    register,
    registered,
)
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.shapes import an_entry


def _softmax(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """SciPy's softmax, but empty for empty vectors, which derivatives of logsumexp may ask for."""
    (x,) = arguments
    return (scipy.special.softmax(x, axis=-1) if x.size else x,)


def _softmax_differential(at: Point) -> tuple[Array, ...]:
    """dp = p ⊙ (dz - p·dz)."""
    p, dz = at.result, at.tangents[0]
    return (multiply(p, subtract(dz, sum_over(multiply(p, dz)))),)


def _log_softmax(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    (x,) = arguments
    return (scipy.special.log_softmax(x, axis=-1) if x.size else x,)


def _log_softmax_differential(at: Point) -> tuple[Array, ...]:
    """d log p = dz - p·dz."""
    p, dz = apply(SOFTMAX, at.arguments[0]), at.tangents[0]
    return (subtract(dz, sum_over(multiply(p, dz))),)


def _logsumexp_differential(at: Point) -> tuple[Array, ...]:
    """d log Σ exp z = softmax(z)·dz."""
    p = apply(SOFTMAX, at.arguments[0])
    return (sum_over(multiply(p, at.tangents[0])),)


def _together(*names: str) -> Operation:
    """Make the operation whose outputs are the results of several operations on the same vector. It
    is for plans alone, which come after differentiation, and is not registered."""
    name = "_and_".join(names)
    return Operation(
        name=name,
        ranks=(1,),
        outputs=names,
        shapes=lambda cores, parameters: tuple(
            registered(part).shapes(cores, parameters)[0] for part in names
        ),
        value=lambda arguments, parameters: tuple(
            registered(part).value(arguments, parameters)[0] for part in names
        ),
        differential=lambda at: at.tangents,
        numpy=lambda arguments, parameters, output: registered(names[output]).numpy(
            arguments, parameters, 0
        ),
        letters=("P",),
        kernel=f"rows.{name}",
        columns=f"columns.{name}_columns",
        unrolled=lambda *arguments: tuple(
            operation.unrolled(*arguments)[0]
            for operation in map(registered, names)
            if operation.unrolled
        ),
    )


SOFTMAX_AND_LOGSUMEXP = _together("softmax", "logsumexp")
SOFTMAX_AND_LOG_SOFTMAX = _together("softmax", "log_softmax")

SOFTMAX = register(
    Operation(
        name="softmax",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0],),
        requires=an_entry,
        value=_softmax,
        differential=_softmax_differential,
        numpy=lambda arguments, *_: f"scipy.special.softmax({arguments[0]}, axis=-1)",
        letters=("P",),
        follows_from={
            SOFTMAX_AND_LOGSUMEXP: lambda at: at.results[0],
            SOFTMAX_AND_LOG_SOFTMAX: lambda at: at.results[0],
        },
        kernel="rows.softmax",
        columns="columns.softmax_columns",
        unrolled=unrolled.softmax,
    )
)

LOG_SOFTMAX = register(
    Operation(
        name="log_softmax",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0],),
        requires=an_entry,
        value=_log_softmax,
        differential=_log_softmax_differential,
        numpy=lambda arguments, *_: f"scipy.special.log_softmax({arguments[0]}, axis=-1)",
        follows_from={SOFTMAX_AND_LOG_SOFTMAX: lambda at: at.results[1]},
        kernel="rows.log_softmax",
        columns="columns.log_softmax_columns",
        unrolled=unrolled.log_softmax,
    )
)
"""x - logsumexp(x) with the maximum of x subtracted first: both may be far larger than the
difference, which has no correct digit then."""

LOGSUMEXP = register(
    Operation(
        name="logsumexp",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0][:-1],),
        value=lambda arguments, parameters: (scipy.special.logsumexp(arguments[0], axis=-1),),
        differential=_logsumexp_differential,
        numpy=lambda arguments, *_: f"scipy.special.logsumexp({arguments[0]}, axis=-1)",
        follows_from={SOFTMAX_AND_LOGSUMEXP: lambda at: at.results[1]},
        kernel="rows.logsumexp",
        columns="columns.logsumexp_columns",
        unrolled=unrolled.logsumexp,
    )
)
