"""Kernels called by several threads, each for a share of the rows of the results."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.steps import Guard, Loop, LoopNest, Plan
from tests.packages import with_threads
from tests.plain import check_plain

n, m = dx.dims("n m")
A, B, X = dx.matrix("A", n, n), dx.matrix("B", n, n), dx.matrix("X", n, m)
a, b = dx.vector("a", n), dx.vector("b", n)

SHARED = {
    "product": (dx.function("product", [a, b], a * b), "jacobian"),
    "square": (dx.function("square", [A], A @ A), "jacobian"),
    "softmax": (dx.function("softmax", [a], dx.softmax(a)), "jacobian"),
    "turned": (dx.function("turned", [X], X.T), "jacobian"),
    "quadratic": (dx.function("quadratic", [a], dx.sum(a**2) ** 2), "hessian"),
    "vector": (dx.function("vector", [A, a], A @ a), "value"),
    "norms": (dx.function("norms", [X, a], dx.norm(X) * dx.norm(a)), "gradient"),
    "totals": (dx.function("totals", [A], dx.sum(A, axis=0)), "value"),
    "curved": (dx.function("curved", [A, a], dx.sum(dx.tanh(A) @ a)), "value_and_gradient"),
    "triangle": (dx.function("triangle", [A], dx.tril(A) @ A[::-1]), "jacobian"),
}
WHOLE = {
    "samples": (dx.function("samples", [X], dx.tanh(X)), "value"),
    "gemm": (dx.function("gemm", [A, B], A @ B), "value"),
    "solution": (dx.function("solution", [A], dx.inv(A)), "value"),
}


def planned(function: Function, kind: str) -> Plan:
    return kernel_plan(Derivatives(function), kind)


def share_of(name: str) -> Plan:
    """The kernel of a share of the rows."""
    partition = planned(*SHARED[name]).partition
    assert partition is not None and partition.axis == "rows" and partition.kernel is not None
    return partition.kernel


@pytest.mark.parametrize("name", SHARED)
def test_what_is_shared(name: str) -> None:
    plan = share_of(name)
    loops = [part for step in plan.steps if isinstance(step, LoopNest) for part in step.body]
    assert any(isinstance(part, Loop) and part.start != 0 for part in loops)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_not_shared(name: str) -> None:
    """Samples are shared in another way; products of matrices have threads of their own."""
    assert not any(partition.axis == "rows" for partition in planned(*WHOLE[name]).partitions)


def test_what_one_thread_does() -> None:
    """A sum that is a result is made once."""
    plan = share_of("curved")
    guarded = [step for step in plan.steps if isinstance(step, LoopNest) and alone(step)]
    assert ["out_value" in step.comment for step in guarded] == [True]


def test_columns_of_what_is_read_row_by_row() -> None:
    """A sum over rows is made for a share of the columns."""
    plan = share_of("totals")
    *_, last = plan.steps
    assert isinstance(last, LoopNest)
    outer = last.body[-1]
    assert isinstance(outer, Loop) and outer.start == 0
    inner = outer.body[-1]
    assert isinstance(inner, Loop) and inner.start != 0


def alone(step: LoopNest) -> bool:
    return isinstance(step.body[0], Guard)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("sizes", [{"n": 5, "m": 2}, {"n": 1, "m": 4}, {"n": 2, "m": 3}])
def test_shares_make_the_whole(name: str, sizes: dict[str, int]) -> None:
    """Run as plain Python, with shares in the wrong order, some of them empty."""
    check_plain(*SHARED[name], sizes)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    module = dx.compile(SHARED["product"][0])
    pool = with_threads(monkeypatch, module, threads)
    x, y = np.random.default_rng(0).normal(size=(2, 1010))
    module.jacobian(x[:20], y[:20])
    assert not pool.helpers
    by_x, by_y = module.jacobian(x, y)
    assert len(pool.helpers) == min(threads, 4) - 1
    np.testing.assert_array_equal(by_x, np.diag(y))
    np.testing.assert_array_equal(by_y, np.diag(x))
    out = np.empty((2, 1010, 1010))
    module.jacobian_kernel(x, y, *out)
    np.testing.assert_array_equal(out, (by_x, by_y))


def test_a_gradient_that_is_the_jacobian() -> None:
    """Kernels that are the same are one, and threads share their work by one function."""
    module = dx.compile(dx.function("norms", [X, a], dx.norm(X) * dx.norm(a)))
    assert module.gradient_kernel is module.jacobian_kernel
    assert {"_jacobian_kernel_in_parts", "_gradient_kernel_in_parts"} & {
        *module.generated.data
    } == {"_jacobian_kernel_in_parts"}
