"""Running sums: each entry is the one before it and a term."""

from __future__ import annotations

import re

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from tests.plain import check_plain

T, n, m = dx.dims("T n m")
r, X, w, Q = dx.vector("r", T), dx.matrix("X", T, n), dx.vector("w", n), dx.tensor("Q", m, T, n)
q = dx.vector("q", T + 2)

SUMS = {
    "of a vector": ([r], dx.cumsum(r)),
    "along columns": ([X], dx.cumsum(X, 0)),
    "along rows": ([X], dx.cumsum(X, 1)),
    "of a stack": ([Q], dx.cumsum(Q, 1)),
    "of a running sum": ([r], dx.cumsum(dx.cumsum(r))),
    "along both axes": ([X], dx.cumsum(dx.cumsum(X, 0), 1)),
    "of a product": ([X, w], 2 * dx.cumsum(X @ w)),
    "added to others": ([X, r], dx.cumsum(X, 0) - X + dx.cumsum(r)[:, None]),
    "within functions": ([r], dx.sum(dx.cumsum(dx.exp(dx.cumsum(r))) ** 2)),
    "of ones": ([r], r * dx.cumsum(dx.ones(T))),
    "from the last one": ([r], dx.flip(dx.cumsum(dx.flip(r)))),
    "divided by another": ([r], dx.cumsum(r) / dx.sqrt(1 + dx.cumsum(r**2))),
    "of outer products": ([X], dx.cumsum(X[:, :, None] * X[:, None, :], 0)),
    "of a part": ([q], dx.cumsum(q)[2:] * q[:-2]),
}


@pytest.mark.parametrize("length", (0, 1, 5))
@pytest.mark.parametrize("case", SUMS)
def test_running_sums_in_both_directions(case: str, length: int) -> None:
    inputs, output = SUMS[case]
    function = dx.function("running", inputs, output)
    for kind in ("value", "vjp"):
        check_plain(function, kind, {"T": length, "n": 3, "m": 2})
        text = str(kernel_plan(function.derivatives, kind).whole)
        assert re.search(r"\[[^]]*[+-] [12][^]]*\] \+= ", text)
        assert ">= 0" not in text


def test_time_grows_with_the_length() -> None:
    """A sum for each entry would take minutes."""
    module = dx.compile(dx.function("running", [r], dx.cumsum(r), kinds=["value", "vjp"]))
    values = np.random.default_rng(0).normal(size=1_000_000)
    np.testing.assert_allclose(module.value(values), np.cumsum(values), rtol=1e-9, atol=1e-9)
    backward = np.cumsum(values[::-1])[::-1]
    np.testing.assert_allclose(module.vjp(values, values), backward, rtol=1e-9, atol=1e-9)


def test_masked_products_are_no_running_sums() -> None:
    function = dx.function("masked", [X], dx.tril(X @ X.T) @ X)
    check_plain(function, "value", {"T": 4, "n": 3})
