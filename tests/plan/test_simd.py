"""Straight-line code for samples side by side."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.simd import LANES
from derivatrix.compiler.plan.steps import Allocate, Loop, LoopNest
from tests.plain import check_plain, steps_of

A, S, x = dx.matrix("A", 3, 3), dx.matrix("S", 3, 3, "spd"), dx.vector("x", 3)
N = dx.dims("N")
X, v = dx.matrix("X", N, 3), dx.vector("v", N)
SIDE_BY_SIDE = {
    "inverse": (dx.function("inverse", [A], dx.inv(A), batch=[A]), "vjp"),
    "solved": (dx.function("solved", [S, x], dx.solve(S, x), batch=[S, x]), "vjp"),
    "angles": (dx.function("angles", [A, x], dx.sin(A @ x) * dx.norm(x), batch=[x]), "jacobian"),
    "added": (dx.function("added", [X, x], dx.sum(dx.exp(X @ x)), wrt=[X, x]), "vjp"),
    "total": (dx.function("total", [X], dx.norm(X * X * X * X)), "jvp"),
}
ONE_BY_ONE = {
    "copied": (dx.function("copied", [X], X[:, ::-1]), "value"),
    "together in memory": (dx.function("chain", [v], dx.tanh(dx.exp(v) * v) * v), "value"),
    "a library's": (dx.function("bessel", [x], dx.gammaln(x) * x * x, batch=[x]), "value"),
    "alone": (dx.function("alone", [A], dx.inv(A)), "value"),
}


def in_lanes(function: Function, kind: str) -> bool:
    steps = steps_of(function, kind)
    loops = [part for step in steps if isinstance(step, LoopNest) for part in step.body]
    inner = [part for loop in loops if isinstance(loop, Loop) for part in loop.body]
    return any(isinstance(part, Loop) and part.extent == LANES for part in inner)


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
@pytest.mark.parametrize("samples", [1, LANES - 1, LANES, 2 * LANES + 3])
def test_lanes_compute_every_sample(name: str, samples: int) -> None:
    """Run as plain Python; lanes without a sample change no result."""
    function, kind = SIDE_BY_SIDE[name]
    assert in_lanes(function, kind)
    check_plain(function, kind, {"N": samples, "batch": samples}, 1e-10)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_where_lanes_do_not_gain(name: str) -> None:
    """Little to compute, samples that lie side by side already, functions without vectors, and no
    samples at all."""
    assert not in_lanes(*ONE_BY_ONE[name])


def test_a_device_has_no_lanes() -> None:
    assert "range(16)" in generate(SIDE_BY_SIDE["inverse"][0]).text
    assert "range(16)" not in generate(SIDE_BY_SIDE["inverse"][0], "cuda").text


@pytest.mark.parametrize("singular", [0, 15, 16, 36])
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_any_lane_may_fail(singular: int, real: type) -> None:
    """The last block is not full: memory that holds no sample fails nothing."""
    module = dx.compile(SIDE_BY_SIDE["inverse"][0])
    matrices = np.random.default_rng(0).normal(size=(37, 3, 3)).astype(real)
    for count in (1, 16, 37):
        identity = np.broadcast_to(np.eye(3), (count, 3, 3))
        products = module.value(matrices[:count]) @ matrices[:count]
        np.testing.assert_allclose(products, identity, atol=1e-10 if real is np.float64 else 1e-3)
    matrices[singular] = 0
    with pytest.raises(np.linalg.LinAlgError, match="the matrix is singular"):
        module.value(matrices)


def test_memory_does_not_depend_on_the_samples() -> None:
    kernel = kernel_plan(SIDE_BY_SIDE["inverse"][0].derivatives, "vjp")
    buffers = [b for step in kernel.steps if isinstance(step, Allocate) for b in step.buffers]
    assert buffers and all(size.is_Integer for buffer in buffers for size in buffer.shape)
    assert kernel.partition is not None and kernel.partition.entries_per_sample == 0


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_totals_leave_out_empty_lanes(real: type) -> None:
    module = dx.compile(SIDE_BY_SIDE["added"][0])
    for count in (1, 16, 37):
        points = np.random.default_rng(0).normal(size=(count, 3)).astype(real)
        weights = np.array([0.3, -0.2, 0.1], real)
        powers = np.exp(points.astype(float) @ weights)
        by_point, by_weight = module.gradient(points, weights)
        tolerance = 1e-12 if real is np.float64 else 1e-5
        np.testing.assert_allclose(by_point, np.outer(powers, weights), rtol=tolerance)
        np.testing.assert_allclose(by_weight, powers @ points, rtol=10 * tolerance, atol=tolerance)
        assert by_weight.dtype == real
