"""Kernels called by several threads, each with a part of the samples."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.special

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.templates.support.cpu import kernels
from tests.packages import sharing, support_file, warmed, with_threads

b, n, m = dx.dims("b n m")
A, x, W = dx.matrix("A", 3, 3), dx.vector("x", n), dx.matrix("W", m, n)
S, V = dx.matrix("S", b, n), dx.matrix("V", n, n)
inverse = dx.function("inverse", [A], dx.inv(A), batch=[A])
shared = dx.function("shared", [x, W], dx.tanh(W @ x), batch=[x])


def sliced(function: dx.Function, kind: str) -> tuple[bool, ...] | None:
    made = kernel_plan(Derivatives(function), kind).partition
    by_samples = made is not None and made.axis == "samples" and not made.has_sums
    return made.sliced if made and by_samples else None


def test_what_is_cut() -> None:
    assert sliced(inverse, "vjp") == (True, True, True)
    assert sliced(shared, "jvp") == (True, False, True, False, True)
    assert sliced(shared, "vjp") is None  # the cotangent of W is a sum over the samples
    assert sliced(dx.function("f", [S], dx.softmax(S, axis=1)), "value") == (True, True)


@pytest.mark.parametrize(
    "expression",
    [
        dx.softmax(S, axis=0),
        S / dx.sum(S),
        S - dx.mean(S, axis=0),
        S - dx.logsumexp(S, axis=0),
        S - dx.max(S, axis=0),
        S[::-1],
        S @ dx.ones(n, b),
        dx.sum(S, axis=0),
        dx.sum(S),
        S * b,
        S.T,
    ],
    ids=str,
)
def test_what_is_not_cut(expression: dx.Array) -> None:
    """Rows that depend on others, or on how many there are."""
    assert sliced(dx.function("f", [S], expression), "value") is None


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return dx.compile(inverse)


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("samples", [60000, 60003])
def test_parts_make_the_whole(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: int, samples: int
) -> None:
    matrices = np.random.default_rng(0).normal(size=(samples, 3, 3))
    cotangents = np.random.default_rng(1).normal(size=matrices.shape)
    whole = np.empty_like(matrices)
    module.vjp_kernel(matrices, cotangents, whole)
    pool = with_threads(monkeypatch, module, threads)
    assert np.array_equal(module.vjp(matrices, cotangents), whole)
    assert len(pool.helpers) == threads - 1
    out = np.full_like(whole, np.nan)
    module.vjp(matrices, cotangents, out=out)
    assert np.array_equal(out, whole)


def test_blocks_that_fit_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are short where there are arrays besides arguments and results, and each has no work
    of its own."""
    layer = Derivatives(dx.function("layer", [x, W], dx.softmax(W @ x), batch=[x]))
    solved = Derivatives(dx.function("solved", [x, V], dx.tanh(dx.solve(V, x)), batch=[x]))
    cases = (layer, "jvp"), (solved, "value"), (Derivatives(inverse), "vjp")
    partitions = [kernel_plan(*case).partition for case in cases]
    assert [p is not None and p.entries_per_sample != 0 for p in partitions] == [True, False, False]
    asked: list[int] = []

    def compute(words: np.ndarray, numbers: tuple, real: np.dtype, given: Sequence[Any]) -> bool:
        assert (real, numbers[0], len(given)) == (np.float64, 10, 3)
        asked.append(numbers[1])
        return False

    def whole(*given: Any) -> None:
        asked.append(0)

    monkeypatch.setattr(kernels, "_BLOCK_BYTES", 7 * 64)
    monkeypatch.setattr(kernels, "_THREADS", 1)
    given, out = np.arange(40.0).reshape(10, 4), np.empty((10, 4))
    shared, sliced = (
        kernels.SharedKernel(whole, whole, ("real:2", "real:2", "real:2"), codes)
        for codes in ("sws", "sss")
    )
    for kernel in (shared, sliced):
        monkeypatch.setattr(kernel, "compute", compute)
    shared((given, np.ones(4), out), 10, 8)
    assert asked.pop() == 2  # of 7 samples at most
    shared((given, np.ones((10, 4)), out), 10, 8)
    assert asked.pop() == 0  # what each part reads as a whole is as large
    sliced((given, given, out), 10, 12)
    assert asked.pop() == 3  # of 4 samples at most
    least = kernels.MIN_OPS_PER_THREAD
    for threads, work, count in [(2, least, 2), (99, 3 * least, 4), (99, 1e9, 10)]:
        monkeypatch.setattr(kernels, "_THREADS", threads)
        shared((given, np.ones(4), out), int(work))
        assert asked.pop() == count
    monkeypatch.setattr(kernels, "_THREADS", 3)
    shared((given, np.ones(4), out), 10**7, 8)
    assert asked.pop() == 3
    monkeypatch.setattr(kernels, "_BLOCK_BYTES", 64)
    shared((given, np.ones(4), out), 10**7, 8)
    assert asked.pop() == 6  # of two samples at most, as many parts for each thread
    monkeypatch.setattr(kernels, "_THREADS", 1)
    monkeypatch.setattr(kernels, "_BLAS_BLOCK_BYTES", 320)
    lengths = []
    for codes, options in [
        ("SwS", {}),
        ("awo", {}),
        ("awo", {"is_blas_bound": True}),
        ("awo", {"is_gram_bound": True}),
    ]:
        kernel = kernels.SharedKernel(whole, whole, shared.kinds, codes, **options)
        monkeypatch.setattr(kernel, "compute", compute)
        lengths.append(kernel.block_length((given, np.ones(2), out), 8, 1))
        kernel((given, np.ones(2), np.empty(4)), 10, 8)
    assert lengths == [2, 1, 5, 1]
    assert asked == [5, 1, 1, 0]  # one thread adds up blocks, but for a Gram matrix


def test_blocks_of_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiled loops over short parts, in several threads."""
    layer = dx.function("layer", [x, W], dx.softmax(W @ x), batch=[x])
    module = dx.compile(layer)
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", 3)
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_BLOCK_BYTES", 1 << 12)
    generator = np.random.default_rng(0)
    samples, weights = generator.normal(size=(60000, 6)), generator.normal(size=(4, 6))
    actual = module.value(samples, weights)
    expected = scipy.special.softmax(samples @ weights.T, axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert len(sharing(module, "value_kernel").addresses) == 1
    warmed(tmp_path, layer)


@pytest.mark.parametrize("position", [0, 59999])
def test_any_part_may_fail(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", 2)
    matrices = np.broadcast_to(np.eye(3), (60000, 3, 3)).copy()
    matrices[position] = 0
    with pytest.raises(np.linalg.LinAlgError, match="the matrix is singular"):
        module.value(matrices)


def test_callers_may_be_threads(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", 2)
    matrices = np.random.default_rng(0).normal(size=(4, 60000, 3, 3))
    result: dict[int, np.ndarray] = {}

    def work(part: int) -> None:
        for _ in range(20):
            result[part] = module.value(matrices[part])

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in range(4):
        identity = np.broadcast_to(np.eye(3), (60000, 3, 3))
        np.testing.assert_allclose(result[part] @ matrices[part], identity, atol=1e-6)


FORKING = """
import os, sys
import numpy as np
from generated import inverse
from generated._support.cpu import kernels
kernels._THREADS = 2
matrices = np.broadcast_to(np.eye(3), (60000, 3, 3)).copy()
inverse.value(matrices)
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(inverse.value(matrices), matrices) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own(tmp_path: Path) -> None:
    dx.build(inverse, tmp_path / "generated", verify=False)
    process = subprocess.run([sys.executable, "-c", FORKING], cwd=tmp_path, timeout=300)
    assert process.returncode == 0
