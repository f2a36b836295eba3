"""Products that are symmetric in two of their axes: half of the entries are computed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.plan.steps import Gemm
from tests.plain import check_plain, steps_of

N, h, d = dx.dims("N h d")
X, S, G, V = dx.matrix("X", N, d), dx.matrix("S", N, h), dx.matrix("G", h, h), dx.vector("V", N)
PAIRS = "ni,nk,nj,nl->"


def pairs(output: str) -> dx.Array:
    return dx.einsum(PAIRS + output, S, S, X, X)


PACKED = {
    **{
        "".join(order): dx.function("f", [S, X], pairs("".join(order)))
        for order in itertools.permutations("ijkl")
    },
    "weighted": dx.function("f", [S, X, V], dx.einsum("n,ni,nk,nj,nl->ijkl", V, S, S, X, X)),
    "scaled": dx.function("f", [S, X], dx.exp(-3 * pairs("ijkl") / 2)),
    "times a matrix": dx.function("f", [S, X, G], dx.einsum("ik,ijkl->ijkl", G, pairs("ijkl"))),
    "added": dx.function("f", [S, X], pairs("ijkl") + 2 * pairs("ilkj") + pairs("kjil")),
    "of functions": dx.function(
        "f", [S, X], dx.einsum("ni,nk,nj,nl->ijkl", dx.tanh(S), dx.tanh(S), dx.sin(X), dx.sin(X))
    ),
    "diagonals": dx.function("f", [S, X], dx.einsum("ijil->jil", pairs("ijkl"))),
    "one pair": dx.function("f", [S, X], dx.einsum("ni,nj,nl->ijl", S, X, X)),
    "summed": dx.function("f", [S, X], dx.sum(dx.tanh(pairs("ijkl")), axis=(1, 2))),
    "read twice": dx.function("f", [S, X], dx.tanh(pairs("ijkl")) * pairs("ijkl")),
}
WHOLE = {
    "no pair": dx.function("f", [S, X], dx.einsum("ni,nj,nl->ijl", S, X, dx.tanh(X))),
    "few": dx.function("f", [S], dx.einsum("ni,nj,nl->ijl", S, S[:, :2], S[:, :2])),
    "a matrix": dx.function("f", [X], X.T @ X),
    "of a stack": dx.function("f", [X, G], dx.einsum("nj,nl,ik->ijkl", X, X, G)),
}


BOTH = {name for name in PACKED if name not in ("diagonals", "one pair")}
"""Products that are symmetric in two pairs of axes."""


def halves(function: dx.Function) -> int:
    """Count the packed axes of products."""
    steps = steps_of(function, "value")
    made = {size for s in steps if isinstance(s, Gemm) for size in s.target.buffer.shape}
    return sum(sympy.expand(size * (size + 1) / 2) in made for size in (h, d))


@pytest.mark.parametrize("name", [*PACKED, *WHOLE])
@pytest.mark.parametrize("sizes", [{"N": 4, "h": 3, "d": 5}, {"N": 1, "h": 2, "d": 2}])
def test_half_is_enough(name: str, sizes: dict[str, int]) -> None:
    function = {**PACKED, **WHOLE}[name]
    check_plain(function, "value", sizes)
    assert halves(function) == (name in PACKED) + (name in BOTH)


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_compiled(real: type) -> None:
    module = dx.compile(PACKED["weighted"])
    rng = np.random.default_rng(0)
    s, x, v = (rng.normal(size=shape).astype(real) for shape in ((50, 7), (50, 6), (50,)))
    expected = np.einsum("n,ni,nk,nj,nl->ijkl", *(a.astype(float) for a in (v, s, s, x, x)))
    actual = module.value(s, x, v)
    assert actual.dtype == real
    np.testing.assert_allclose(actual, expected, atol=2000 * np.finfo(real).eps)
