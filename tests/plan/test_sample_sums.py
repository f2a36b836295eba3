"""Kernels called by several threads, each of which adds up a part of the samples."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.special

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan import sample_sums
from derivatrix.compiler.plan.steps import Gemm, Partition, Plan
from derivatrix.compiler.plan.visit import buffers
from tests.packages import sharing, support_file, warmed, with_threads
from tests.plain import check_plain

N, n, m = dx.dims("N n m")
X, Y, W = dx.matrix("X", N, n), dx.matrix("Y", N, m), dx.matrix("W", m, n)
w, x, y = dx.vector("w", n), dx.vector("x", N), dx.vector("y", N)
V = dx.matrix("V", n, n, structure="spd")
logistic = dx.mean(dx.softplus(X @ w) - y * (X @ w)) + dx.sum(w**2)
F = dx.tensor("F", m, n, n)
distances = dx.sum((X[:, None] - W) ** 2, axis=2)
scaled = dx.sum(dx.einsum("kij,skj->ski", F, X[:, None] - W) ** 2, axis=2)
whitened = dx.sum(dx.solve(V, w) * w) * dx.sum(dx.exp(X @ w))

ADDED = {
    "logistic": (dx.function("logistic", [X, w, y], logistic, wrt=[w]), "value_and_gradient"),
    "by samples too": (dx.function("both", [X, w], dx.sum(dx.tanh(X @ w)), wrt=[X, w]), "vjp"),
    "mixture": (
        dx.function("mixture", [X, W], dx.sum(dx.logsumexp(-distances, axis=1)), wrt=[W]),
        "gradient",
    ),
    "stack of products": (
        dx.function("full", [X, W, F], dx.sum(dx.logsumexp(-scaled, axis=1)), wrt=[W, F]),
        "gradient",
    ),
    "batch": (dx.function("layer", [w, W], dx.tanh(W * w), batch=[w]), "vjp"),
    "number": (dx.function("number", [x, y], dx.mean((x - y / N) ** 2) + 1 / N), "value"),
    "solved": (dx.function("solved", [X, w, V], whitened, wrt=[w, V]), "gradient"),
    "layers": (
        dx.function("layers", [X, W, w], dx.sum(dx.tanh(dx.tanh(X @ W.T) @ W) @ w), wrt=[W]),
        "gradient",
    ),
    "moments": (
        dx.function("moments", [x, y], dx.stack([dx.sum(x), dx.sum(x * y), dx.sum(y**2)])),
        "value",
    ),
}
TOGETHER = {
    "deviation": (dx.function("deviation", [x, y], dx.sqrt(dx.mean((x - y) ** 2))), "value"),
    "square": (dx.function("square_of_sum", [x], dx.sum(dx.tanh(x)) ** 2 + dx.mean(x)), "value"),
    "centred": (dx.function("centred", [X], dx.sum(dx.exp(X - dx.mean(X, axis=0)))), "value"),
    "softmax": (dx.function("weights", [x, X], dx.softmax(x) @ X), "value"),
    "twice": (dx.function("twice", [x], dx.sum(dx.exp(x - dx.sum(x)))), "value"),
    "products": (dx.function("products", [X, Y], dx.sum((X.T @ Y) ** 2)), "value"),
    "last axis": (dx.function("turned", [X], dx.sum(dx.exp(X.T), axis=1) + X[0]), "value"),
    "pairs": (dx.function("pairs", [x], dx.sum(dx.exp(x[:, None] - x[None, :]))), "value"),
    "neighbours": (dx.function("steps", [x], dx.sum(dx.tanh(x[1:] - x[:-1]))), "value"),
}


def planned(function: Function, kind: str) -> Plan:
    return kernel_plan(function.derivatives, kind)


def sums_of(function: Function, kind: str) -> Partition:
    """The partition of a kernel whose parts are added up."""
    (partition,) = planned(function, kind).partitions
    assert partition.has_sums
    return partition


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("sizes", [{"N": 7, "n": 3, "m": 2}, {"N": 1, "n": 2, "m": 4}])
@pytest.mark.parametrize("reuse", [0, sample_sums.MIN_OPS_PER_READ])
def test_parts_add_up(
    name: str, sizes: dict[str, int], reuse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as plain Python, with parts of different lengths, the last one first; also with the
    samples as the last axis in memory, if that is possible."""
    monkeypatch.setattr(sample_sums, "MIN_OPS_PER_READ", reuse)
    function, kind = ADDED[name]
    assert sums_of(function, kind).has_sums
    check_plain(function, kind, {**sizes, "batch": sizes["N"]})


@pytest.mark.parametrize("name", TOGETHER)
def test_what_is_not_added_part_by_part(name: str) -> None:
    """Samples that need others first; results that are not linear in sums; products of matrices,
    which have threads of their own."""
    assert not any(partition.has_sums for partition in planned(*TOGETHER[name]).partitions)


def test_what_is_cut() -> None:
    sums = sums_of(*ADDED["by samples too"])
    assert sums.sliced == (True, False, False, True, False)
    assert sums.summed == (False, False, False, False, True)
    sums = sums_of(*ADDED["logistic"])
    assert sums.sliced == (True, False, True, False, False)
    assert sums.summed == (False, False, False, True, True)


def test_the_order_of_axes() -> None:
    """Samples come last in memory where what is read is used often; short axes then do no harm."""
    mixture, linear = (sums_of(*ADDED[name]) for name in ("mixture", "logistic"))
    assert mixture.kernel is not None and (mixture.is_batch_last, linear.is_batch_last) == (1, 0)
    assert mixture.min_samples == sample_sums.MIN_SAMPLES_BATCH_LAST and linear.min_samples == 1
    made = [buffer for step in mixture.kernel.steps for buffer in buffers(step)]
    assert "softmax_columns" in set(map(kernel_name, mixture.kernel.kernels))
    work = [buffer.shape for buffer in made if buffer.role == "work" and len(buffer.shape) > 1]
    assert work and all(str(shape[-1]) == "N_part" for shape in work if len(shape) > 1)


def test_a_stack_of_products_with_the_samples_last() -> None:
    """BLAS multiplies without copies."""
    sums = sums_of(*ADDED["stack of products"])
    assert sums.kernel is not None and sums.min_samples == sample_sums.MIN_SAMPLES_BATCH_LAST
    products = [step for step in sums.kernel.steps if isinstance(step, Gemm)]
    assert len(products) == 2
    work = {buffer for step in products for buffer in buffers(step) if buffer.role == "work"}
    assert [str(buffer.shape[-1]) for buffer in work] == ["N_part"] * 3


def test_products_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are added up part by part, where the arrays of all samples do not stay in the cache, by
    one thread or by several: BLAS has one for each part."""
    function, kind = ADDED["layers"]
    sums = sums_of(function, kind)
    assert sums.is_blas_bound and sums.min_samples == 1
    module = dx.compile(function)
    generator = np.random.default_rng(0)
    samples, weights = generator.normal(size=(5000, 30)), 0.1 * generator.normal(size=(20, 30))
    vector = generator.normal(size=30)
    addresses, result = sharing(module, "gradient_kernel").addresses, []
    for threads in (2, 1):
        monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", threads)
        result.append(module.gradient(samples, weights, vector))
        assert addresses
        addresses.clear()
    np.testing.assert_allclose(*result, rtol=1e-9)


def test_weighted_gram_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread computes the one of its samples, by one thread of BLAS."""
    function = ADDED["logistic"][0]
    sums = sums_of(function, "hessian")
    assert sums.is_gram_bound and not sums.is_blas_bound
    module = dx.compile(function)
    generator = np.random.default_rng(0)
    samples, targets = generator.normal(size=(4000, 40)), generator.normal(size=4000)
    weights = 0.1 * generator.normal(size=40)
    p = scipy.special.expit(samples @ weights)
    expected = samples.T @ ((p * (1 - p))[:, None] * samples) / 4000 + 2 * np.eye(40)
    addresses = sharing(module, "hessian_kernel").addresses
    for threads in (1, 2, 3):
        monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", threads)
        np.testing.assert_allclose(module.hessian(samples, weights, targets), expected, rtol=1e-9)
        assert bool(addresses) == (threads > 1)


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return dx.compile(ADDED["by samples too"][0])


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_threads(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: int, real: type
) -> None:
    pool = with_threads(monkeypatch, module, threads)
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_BLOCK_BYTES", 1 << 14)
    samples = np.random.default_rng(0).normal(size=(40001, 30)).astype(real)
    weights = np.linspace(-1, 1, 30).astype(real)
    module.gradient(samples[:20], weights)
    assert not pool.helpers
    by_sample, by_weight = module.gradient(samples, weights)
    assert len(pool.helpers) == threads - 1
    slopes = 1 / np.cosh(samples @ weights) ** 2
    tolerance = 1e-11 if real is np.float64 else 1e-3
    np.testing.assert_allclose(by_sample, np.outer(slopes, weights), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(by_weight, slopes @ samples, rtol=tolerance, atol=tolerance)
    assert by_weight.dtype == real
    out = (np.full_like(samples, np.nan), np.full_like(weights, np.nan))
    module.gradient(samples, weights, out=out)
    np.testing.assert_array_equal(out[0], by_sample)
    np.testing.assert_array_equal(out[1], by_weight)


def test_inputs_called_as_what_adds_them_up() -> None:
    names = ("first", "last", "start", "stop", "step", "add_onto", "more_0", "sum_0", "given")
    names += ("words", "parts", "length", "failed", "part", "share", "parallel_for", "memory")
    names += ("addresses", "address", "phase", "work", "give_back", "kernel", "shaped")
    inputs = [dx.vector(name, N) for name in names]
    columns = dx.matrix("softmax_columns", m, n)
    spread = dx.sum((X[:, None] - columns) ** 2, axis=2)
    weights = dx.sum(dx.softmax(spread, axis=1)[:, 0] * sum(inputs[1:], inputs[0]))
    module = dx.compile(dx.function("named", [X, columns, *inputs], weights, wrt=[columns]))
    generator = np.random.default_rng(0)
    points, centres = generator.normal(size=(5000, 3)), generator.normal(size=(4, 3))
    values = generator.normal(size=(len(names), 5000))
    result = module.gradient(points, centres, *values)
    out = np.empty_like(centres)
    module.gradient_kernel(points, centres, *values, out)
    np.testing.assert_allclose(result, out, rtol=1e-9, atol=1e-9)
    assert len(sharing(module, "gradient_kernel", "batch_last").addresses) == 1


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("samples", [20, 64, 999, 30011])
def test_samples_last_in_memory(real: type, samples: int) -> None:
    """Few samples, one thread's, and those of several."""
    module = dx.compile(ADDED["mixture"][0])
    points = np.random.default_rng(0).normal(size=(samples, 5)).astype(real)
    means = np.random.default_rng(1).normal(size=(7, 5)).astype(real)
    differences = points[:, None].astype(float) - means
    shares = scipy.special.softmax(-(differences**2).sum(axis=2), axis=1)
    expected = 2 * np.einsum("nk,nkd->kd", shares, differences)
    actual = module.gradient(points, means)
    assert actual.dtype == real
    np.testing.assert_allclose(actual, expected, rtol=1e-10 if real is np.float64 else 1e-3)


def test_a_part_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    module = dx.compile(ADDED["solved"][0])
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", 2)
    samples = np.zeros((200000, 3))
    with pytest.raises(np.linalg.LinAlgError, match="solved"):
        module.gradient(samples, np.ones(3), np.zeros((3, 3)))


def test_a_part_may_make_arrays() -> None:
    """Numba has to count references to these, also where a part is compiled with its blocks."""
    A, B, Q = dx.matrix("A", n, n), dx.matrix("B", n, m), dx.matrix("Q", n, n, "spd")
    solution = dx.solve_continuous_are(A, B, Q, dx.eye(m))
    module = dx.compile(dx.function("regulators", [A, B, Q], solution, wrt=[A], batch=[B]))
    random = np.random.default_rng(0)
    shapes = (4, 4), (2000, 4, 3), (2000, 4, 4)
    a, b, cotangents = (random.normal(size=shape) for shape in shapes)
    assert sharing(module, "vjp_kernel").codes == "wawaoflb"
    result = module.vjp(a, b, np.eye(4), cotangents)
    few = range(0, 2000, 5)
    singly = [module.vjp(a, b[i : i + 5], np.eye(4), cotangents[i : i + 5]) for i in few]
    np.testing.assert_allclose(result, sum(singly), rtol=1e-9)


def test_what_is_compiled_beforehand(tmp_path: Path) -> None:
    """The types that callers' arrays have, in both precisions: calls compile nothing more."""
    module = warmed(tmp_path, ADDED["by samples too"][0])
    kernels = sharing(module, "gradient_kernel").part.for_kernels(), module.gradient_kernel
    assert [len(kernel.signatures) for kernel in kernels] == [2, 2]
    for real in (np.float64, np.float32):
        module.gradient(np.ones((80000, 30), real), np.ones(30, real))
    assert [len(kernel.signatures) for kernel in kernels] == [2, 2]
