"""Constants in expressions: real, finite numbers and arrays of numbers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError
from derivatrix.templates.support.common.arguments import _advice_if_not_plain

NUMBERS = (bool, int, float, Fraction, Decimal, np.bool_, np.integer, np.floating)
COMPLEX = (complex, np.complexfloating)
MAX_FLOAT = sympy.Integer(int(np.finfo(np.float64).max))
"""The largest number of float64, as an integer that integers of any length compare with."""


def real_number(value: Any) -> sympy.Expr:
    """Convert a Python or NumPy number to SymPy's. Raises DeclarationError unless it is finite."""
    try:
        finite = np.isfinite(float(value))
    except OverflowError:
        finite = False
    if not finite:
        number = value.item() if isinstance(value, np.generic) else value
        raise DeclarationError(
            f"the constant {shown(number)} is no finite number of float64; "
            "expressions hold finite constants only"
        )
    return scalar_functions.number(value)


def items(value: Any, expected: str) -> list[Any]:
    """List the items of an iterable. Raises UnsupportedError, which says what was `expected`."""
    try:
        return list(value)
    except TypeError as error:
        raise UnsupportedError(f"expected {expected}, not {shown(value)}") from error


def require_plain(value: object) -> None:
    """Raise UnsupportedError for arrays whose class means more than their numbers."""
    if isinstance(value, np.matrix) or _advice_if_not_plain(value):
        raise UnsupportedError(
            f"a constant array of type {type(value).__name__} says more than its numbers (a mask, "
            "a unit, another product); give the numbers alone, as of np.asarray"
        )


def real_array(value: object) -> np.ndarray:
    """Convert a NumPy array or nested lists to an array of finite real numbers. Raises
    UnsupportedError for other entries, ShapeError for ragged lists, DeclarationError for nan,
    infinities and arrays without entries."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{shown(value)} is ragged: its rows must have equal lengths") from error
    if array.dtype.kind == "c":
        raise UnsupportedError("a constant array is complex; every array here is real")
    if array.dtype.kind == "O" and all(isinstance(entry, NUMBERS) for entry in array.flat):
        numbers = [float(real_number(entry)) for entry in array.flat]
        array = np.reshape(np.asarray(numbers, np.float64), array.shape)
    if array.dtype.kind not in "fiub":
        raise UnsupportedError(f"a constant array of dtype {array.dtype} holds no real numbers")
    if not array.size:
        raise DeclarationError(f"a constant array of shape {shape_text(array.shape)} is empty")
    array = array.astype(np.float64)
    places = np.argwhere(~np.isfinite(array))
    if len(places):
        place = tuple(map(int, places[0]))
        raise DeclarationError(
            f"a constant array has the entry {array[place]} at {list(place)}; "
            "expressions hold finite constants only"
        )
    return array


def refuse_complex(value: object) -> UnsupportedError:
    """Return the error for a complex number."""
    return UnsupportedError(f"the constant {value} is complex; every array here is real")
