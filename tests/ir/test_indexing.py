"""Arrays of positions beside other indices: the axes of the result stand where NumPy puts them."""

from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate

T = dx.tensor("T", 2, 3, 3)
VALUES = np.arange(18.0).reshape(2, 3, 3)
PAIR, SQUARE = [0, 1], [[0, 1], [1, 1]]

INDICES: list[Any] = [
    (slice(None), PAIR, SQUARE),
    (PAIR, slice(None), SQUARE),
    (slice(1), PAIR, ..., SQUARE),
    (..., PAIR, slice(1)),
    (None, PAIR, -1),
    (None, -1, None, PAIR),
    (PAIR, None, 0),
    (0, slice(None), PAIR),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_positions(index: Any) -> None:
    result = evaluate(T[index].node, {"T": VALUES}, {})
    np.testing.assert_array_equal(result, VALUES[index])
