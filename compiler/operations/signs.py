"""The sign of vectors that are determined up to sign: of each column's largest entries the first
is positive. Entries within rounding of each other count as equally large."""

import numpy as np

from derivatrix.templates.support.common.limits import LEADING

_LEADS = f"np.abs({{0}}) >= {LEADING} * np.abs({{0}}).max(-2, keepdims=True)"
SIGNS = f"np.sign(np.take_along_axis({{0}}, np.argmax({_LEADS}, -2, keepdims=True), -2))"
"""Format string of a matrix's name: the signs of its columns, as an axis of rows of length 1."""


def signs(matrix: np.ndarray) -> np.ndarray:
    """The sign of the first of the largest entries of each column, as a row: (..., 1, columns)."""
    sizes = np.abs(matrix)
    leads = np.argmax(sizes >= LEADING * sizes.max(-2, keepdims=True), -2, keepdims=True)
    return np.asarray(np.sign(np.take_along_axis(matrix, leads, -2)))
