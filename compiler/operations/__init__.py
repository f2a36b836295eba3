"""The registry of operations, one file an operation or a family."""

from derivatrix.compiler.operations import determinant, inverse, softmax, sylvester
from derivatrix.compiler.operations.registry import (
    OPERATIONS,
    Operation,
    Point,
    register,
)

__all__ = ["OPERATIONS", "Operation", "Point", "register"]
__all__ += ["determinant", "inverse", "softmax", "sylvester"]
