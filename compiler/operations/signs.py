"""The sign of vectors that are determined up to sign: of each column's largest entries the first
is positive. Entries within rounding of each other count as equally large."""

import numpy as np

from derivatrix.templates.support.common.limits import LEADING_RATIO

_LEADS = f"np.abs({{0}}) >= {LEADING_RATIO} * np.abs({{0}}).max(-2, keepdims=True, initial=0)"
SIGNS = (
    "(lambda v, leads: np.sign(np.sum(v * (leads & (np.cumsum(leads, -2) == 1)), -2, "
    f"keepdims=True)))({{0}}, {_LEADS})"
)
"""Format string of a matrix's name: the signs of its columns, as an axis of rows of length 1."""


def signs(matrix: np.ndarray) -> np.ndarray:
    """The sign of the first of the largest entries of each column, as a row: (..., 1, columns)."""
    sizes = np.abs(matrix)
    leads = sizes >= LEADING_RATIO * sizes.max(-2, keepdims=True, initial=0)
    first = leads & (np.cumsum(leads, -2) == 1)
    return np.asarray(np.sign(np.sum(matrix * first, -2, keepdims=True)))
