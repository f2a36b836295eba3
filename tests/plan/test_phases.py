"""Kernels that several threads call one after the other, each for a share of the rows."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.partial_sums import partial_sums
from derivatrix.compiler.plan.steps import (
    Buffer,
    Fill,
    Load,
    Loop,
    LoopNest,
    Only,
    Plan,
    Rows,
    Store,
)
from tests.packages import with_threads
from tests.plain import check_plain, run_plain
from tests.points import draw_all, leaves

n, m = dx.dims("n m")
A, B, C = dx.matrix("A", n, n), dx.matrix("B", n, n), dx.matrix("C", n, n)
X = dx.matrix("X", n, m)
a, b, v = dx.vector("a", n), dx.vector("b", n), dx.vector("v", m)
BOTH = A @ B @ a
phase = dx.vector("phase", n)

PHASED: dict[str, tuple[Function, str, int]] = {
    "chain": (dx.function("chain", [A, B, C, a], A @ B @ C @ a), "vjp", 4),
    "along": (dx.function("chain", [A, B, C, a], A @ B @ C @ a), "jvp", 3),
    "direction": (dx.function("direction", [A, B, a], BOTH / dx.norm(BOTH)), "vjp", 5),
    "form": (dx.function("form", [A, phase], phase @ A @ phase), "value_and_gradient", 3),
    "residual": (dx.function("residual", [A, a, b], dx.norm(A @ a - b) ** 2), "gradient", 2),
    "diagonal": (dx.function("diagonal", [A, a], dx.sum(dx.tanh(A) @ a) * dx.diag(A)), "jvp", 4),
    "moved": (dx.function("moved", [A, a], (A @ a)[::-1] * (A.T @ a)), "vjp", 3),
    "power": (dx.function("power", [A, a], A @ (A @ (A @ a))), "value", 3),
}
SIZES = [{"n": 7, "m": 3}, {"n": 2, "m": 5}, {"n": 1, "m": 1}]


def planned(name: str) -> Plan:
    function, kind, _ = PHASED[name]
    return kernel_plan(Derivatives(function), kind)


def phases(rows: Rows) -> list[Only]:
    result = [step for step in rows.kernel.steps if isinstance(step, Only)]
    assert len(result) == len(rows.kernel.steps) == rows.phases
    return result


@pytest.mark.parametrize("name", PHASED)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_phases_make_the_whole(name: str, sizes: dict[str, int]) -> None:
    """Run as plain Python, share by share in several orders."""
    function, kind, count = PHASED[name]
    rows = planned(name).partition
    assert isinstance(rows, Rows) and rows.phases == count
    check_plain(function, kind, sizes)


@pytest.mark.parametrize("name", PHASED)
def test_every_phase_is_needed(name: str) -> None:
    """Two phases in one are wrong in some order of the shares."""
    function, _, count = PHASED[name]
    made, values = planned(name), draw_all(function, sizes=SIZES[0])
    assert isinstance(made.partition, Rows)
    for number in range(count - 1):
        steps = list(phases(made.partition))
        steps[number + 1] = dataclasses.replace(
            steps[number + 1], condition=steps[number].condition
        )
        kernel = dataclasses.replace(made.partition.kernel, steps=tuple(steps))
        rows = dataclasses.replace(made.partition, kernel=kernel)
        shapes = [[7 for _ in buffer.shape] for _, buffer in made.outputs]
        with pytest.raises(AssertionError):
            run_plain(
                dataclasses.replace(made, partition=rows), values, list(map(np.empty, shapes))
            )


def test_a_matrix_is_read_once() -> None:
    """Sums over its rows and along them are one loop: each thread adds up its own rows."""
    rows = planned("residual").partition
    assert isinstance(rows, Rows) and [buffer.name for buffer in rows.work_arrays] == [
        "out_a_parts",
        "t0",
    ]
    first, second = phases(rows)
    reading = [step for step in first.steps if "A[i, j]" in str(step)]
    assert len(reading) == 1 and "A[i, j]" not in str(second)


def test_what_is_read_before_it_is_complete() -> None:
    """It stays one array: what reads it would find the threads' sums not yet added up."""
    i, j = sympy.symbols("i j", integer=True, nonnegative=True)
    size = sympy.Symbol("n", integer=True, positive=True)
    matrix, vector, copy = (Buffer(name, (size,) * k) for name, k in (("A", 2), ("t", 1), ("u", 1)))
    added = Store(Load(vector, (j,)), Load(matrix, (i, j)), True)
    adding = LoopNest("t", (Loop(i, size, True, (Loop(j, size, False, (added,)),)),))
    copied = Store(Load(copy, (i,)), Load(vector, (i,)), False)
    reading = LoopNest("u", (Loop(i, size, False, (copied,)),))
    assert len(partial_sums([Fill(vector), adding, adding, reading])) == 5
    early = [Fill(vector), adding, reading, adding]
    assert partial_sums(early) == early


def test_a_sum_that_each_thread_makes() -> None:
    """Scalars are made again in each phase that reads them, and results once."""
    direction, form = planned("direction").partition, planned("form").partition
    assert isinstance(direction, Rows) and isinstance(form, Rows)
    texts = ["\n".join(map(str, phase.steps)) for phase in phases(direction)]
    assert [len(re.findall(r"^nest a\d =", text, re.M)) for text in texts] == [0, 0, 3, 0, 0]
    steps = [step for step in form.kernel.every_step if isinstance(step, LoopNest)]
    alone = [step.comment for step in steps if "Eq(part, 0)" in str(step)]
    assert [comment.split("[")[0] for comment in alone] == ["out_value"]


@pytest.mark.parametrize("body", [B @ dx.inv(A) @ a, dx.trace(dx.exp(A @ B)) * a], ids=str)
def test_what_is_not_phased(body: dx.Expr) -> None:
    """Factorisations, and products of matrices, which have threads of their own."""
    kernel = kernel_plan(Derivatives(dx.function("f", [A, B, a], body)), "value")
    assert kernel.partition is None


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["chain", "direction", "form"])
def test_threads(monkeypatch: pytest.MonkeyPatch, name: str, real: type, threads: int) -> None:
    """Results equal those of one thread."""
    function, kind, _ = PHASED[name]
    module = dx.compile(function)
    pool = with_threads(monkeypatch, module, threads)
    for size in (400, 1500):
        rng = np.random.default_rng(size)
        arguments = [rng.normal(size=[size] * leaf.ndim).astype(real) for leaf in function.inputs]
        arguments += [rng.normal(size=size).astype(real)] * (kind == "vjp")
        actual = leaves(getattr(module, kind)(*arguments))
        expected = [np.empty(np.shape(array), real) for array in actual]
        getattr(module, f"{kind}_kernel")(*arguments, *expected)
        for one, other in zip(actual, expected, strict=True):
            assert np.asarray(one).dtype == real
            tolerance = 200 * np.finfo(real).eps * np.abs(other).max()
            np.testing.assert_allclose(one, other, 0, tolerance)
    assert len(pool.helpers) == min(threads, 4) - 1
