"""The campaign of kernels notices a sample that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from tests.campaign.kernels import apart

n, m = dx.dims("n m")
W, x = dx.matrix("W", m, n), dx.vector("x", n)


@pytest.mark.parametrize("spoilt", ["", "vjp"])
def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, spoilt: str) -> None:
    function = dx.function("f", [W, x], dx.tanh(W @ x), wrt=[x])
    stacked = dx.function("f", [W, x], dx.tanh(W @ x), wrt=[x], batch=[x])
    single, other = dx.compile(function), dx.compile(stacked)
    if spoilt:
        right = other.vjp

        def last_one_wrong(*given: np.ndarray) -> Any:
            actual = right(*given)
            actual[-1:] *= 1.001
            return actual

        monkeypatch.setattr(other, "vjp", last_one_wrong)
    sizes = {"m": 3, "n": 2}
    actual: list[str] = []
    for batch in (0, 1, 5):
        actual += apart(stacked, {**sizes, "batch": batch}, single, other)
    expected = ["vjp of 1", "vjp of 5"] if spoilt else []
    assert [text.partition(":")[0] for text in actual] == expected
