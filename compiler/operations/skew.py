"""The matrix of the cross product with a vector, and its adjoint; both linear."""

from collections.abc import Sequence

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import apply
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.operation import Operation, Parameters, register
from derivatrix.compiler.operations import unrolled
from derivatrix.runtime.errors import ShapeError

THREE = sympy.Integer(3)


def _skew_shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    if cores[0] != (THREE,):
        raise ShapeError(f"skew needs a vector of 3 entries, not shape {shape_text(cores[0])}")
    return ((THREE, THREE),)


def _axial_shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    if cores[0] != (THREE, THREE):
        raise ShapeError(f"axial needs a 3 by 3 matrix, not shape {shape_text(cores[0])}")
    return ((THREE,),)


SKEW: Operation = register(
    Operation(
        name="skew",
        ranks=(1,),
        shapes=_skew_shapes,
        value=lambda arrays, _: (np.cross(np.eye(3), np.expand_dims(arrays[0], -2)),),
        differential=lambda at: (apply(SKEW, at.tangents[0]),),
        transposes={0: lambda at, cotangent: apply(AXIAL, cotangent)},
        numpy=lambda arguments, *_: f"np.cross(np.eye(3), np.expand_dims({arguments[0]}, -2))",
        kernel="skew.skew",
        unrolled=unrolled.skew,
        notation=("skew",),
        description="The matrix of the cross product: skew(w) @ v is the cross product of w and v, "
        "of three entries each.",
    )
)

AXIAL: Operation = register(
    Operation(
        name="axial",
        ranks=(2,),
        shapes=_axial_shapes,
        value=lambda arrays, _: (np.cross(arrays[0], np.eye(3)).sum(-2),),
        differential=lambda at: (apply(AXIAL, at.tangents[0]),),
        transposes={0: lambda at, cotangent: apply(SKEW, cotangent)},
        numpy=lambda arguments, *_: f"np.cross({arguments[0]}, np.eye(3)).sum(-2)",
        kernel="skew.axial",
        unrolled=unrolled.axial,
        notation=("axial",),
        description="The adjoint of skew: the vector a with a @ v = sum(A * skew(v)) for every v, "
        "for a 3 by 3 matrix A; twice the axial vector of its skew part.",
    )
)
