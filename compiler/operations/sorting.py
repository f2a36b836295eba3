"""Vectors in ascending order, and in the order of other vectors.

Sorting permutes entries, so its derivative is the same permutation of the tangent. Equal entries
keep their order, and nan comes last, as in NumPy.
"""

import numpy as np

from derivatrix.compiler.ir.arrays import apply
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, register
from derivatrix.compiler.operations.shapes import same

_ORDER = "np.argsort({1}, -1, kind='stable')"
_TAKEN = "np.take_along_axis(*np.broadcast_arrays({0}, {1}), -1)"


def _sorted_by(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    values, order = np.broadcast_arrays(arguments[0], np.argsort(arguments[1], kind="stable"))
    return (np.take_along_axis(values, order, -1),)


def _unsorted_by(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    ranks = np.argsort(np.argsort(arguments[1], kind="stable"))
    values, ranks = np.broadcast_arrays(arguments[0], ranks)
    return (np.take_along_axis(values, ranks, -1),)


SORTED_BY: Operation = register(
    Operation(
        name="sorted_by",
        ranks=(1, 1),
        shapes=lambda cores, parameters: (same("sorted_by", cores),),
        value=_sorted_by,
        differential=lambda at: (apply(SORTED_BY, at.tangents[0], at.arguments[1]),),
        transposes={0: lambda at, cotangent: apply(UNSORTED_BY, cotangent, at.arguments[1])},
        numpy=lambda arguments, *_: _TAKEN.format(arguments[0], _ORDER.format(*arguments)),
        unicode="{0}[argsort({1})]",
        latex=r"{0}[\operatorname{{argsort}}({1})]",
        kernel="sorting.rows_sorted_by",
        description="The entries of the first vector in the ascending order of the second.",
    )
)

UNSORTED_BY: Operation = register(
    Operation(
        name="unsorted_by",
        ranks=(1, 1),
        shapes=lambda cores, parameters: (same("unsorted_by", cores),),
        value=_unsorted_by,
        differential=lambda at: (apply(UNSORTED_BY, at.tangents[0], at.arguments[1]),),
        transposes={0: lambda at, cotangent: apply(SORTED_BY, cotangent, at.arguments[1])},
        numpy=lambda arguments, *_: _TAKEN.format(
            arguments[0], f"np.argsort({_ORDER.format(*arguments)}, -1)"
        ),
        unicode="{0}[argsort(argsort({1}))]",
        latex=r"{0}[\operatorname{{argsort}}(\operatorname{{argsort}}({1}))]",
        kernel="sorting.rows_unsorted_by",
        description="The inverse of sorted_by: sorted_by(unsorted_by(x, keys), keys) is x.",
    )
)

SORT = register(
    Operation(
        name="sort",
        ranks=(1,),
        shapes=lambda cores, parameters: (cores[0],),
        value=lambda arguments, parameters: (np.sort(arguments[0], kind="stable"),),
        differential=lambda at: (apply(SORTED_BY, at.tangents[0], at.arguments[0]),),
        numpy=lambda arguments, *_: f"np.sort({arguments[0]}, -1)",
        kernel="sorting.sorted_rows",
        description="The entries of a vector in ascending order, with leading stacked axes if any.",
    )
)
