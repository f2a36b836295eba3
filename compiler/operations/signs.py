"""Signs of vectors that are determined up to sign: the first of each column's largest entries is
positive. Entries within rounding of each other count as equally large."""

import numpy as np

from derivatrix.templates.support.common.module import LEADING_RATIO

_LEADS = f"np.abs({{0}}) >= {LEADING_RATIO} * np.abs({{0}}).max(-2, keepdims=True, initial=0)"
SIGNS = (
    "(lambda v, leads: np.sign(np.sum(v * (leads & (np.cumsum(leads, -2) == 1)), -2, "
    f"keepdims=True)))({{0}}, {_LEADS})"
)
"""Format string of a matrix's name: the signs of its columns, as rows of length 1."""


def signs(matrix: np.ndarray) -> np.ndarray:
    """Return the sign of the first of the largest entries of each column: (..., 1, columns)."""
    sizes = np.abs(matrix)
    is_largest = sizes >= LEADING_RATIO * sizes.max(-2, keepdims=True, initial=0)
    leader = is_largest & (np.cumsum(is_largest, -2) == 1)
    return np.asarray(np.sign(np.sum(matrix * leader, -2, keepdims=True)))
