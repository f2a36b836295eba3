"""The helper kernels against NumPy and SciPy, in both precisions."""

import ast
import importlib
import inspect
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import numba
import numpy as np
import pytest
import scipy.linalg
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.driver.support_package import support_texts
from derivatrix.compiler.emit.imports import (
    Imports,
    _defined_names,
    all_files,
    support_files,
    support_text,
)
from derivatrix.compiler.ir.operation import Operation, kernel_name
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.compiler.operations.softmax import SOFTMAX_AND_LOG_SOFTMAX, SOFTMAX_AND_LOGSUMEXP
from derivatrix.compiler.targets.cpu import SCALARS
from derivatrix.templates import support
from derivatrix.templates.support import cpu
from derivatrix.templates.support.cpu import (
    batch_last,
    blas,
    cholesky,
    eigen,
    extrema,
    lu,
    panels,
    rows,
    special,
    sylvester,
    triangular,
)
from derivatrix.templates.support.internals.memory import MAX_STACK_BYTES, give_back, work_arrays
from tests.packages import write_files
from tests.plain import helper

SPECIAL = sorted(
    kernel_name(path) for path in SCALARS.values() if path.startswith("cpu.special.scipy_")
)
DOUBLE, SINGLE = (np.float64, 1e-10), (np.float32, 1e-3)
BOTH = pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["float64", "float32"])
"""Both precisions, for kernels that depend on them by names of routines or sizes of blocks."""


@pytest.fixture(
    params=[DOUBLE, pytest.param(SINGLE, marks=pytest.mark.thorough)], ids=["float64", "float32"]
)
def precision(request: pytest.FixtureRequest) -> tuple[type, float]:
    return request.param


def matrices(real: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(real)


def transposed(a: np.ndarray, yes: bool) -> np.ndarray:
    return a.swapaxes(1, 2) if yes else a


@numba.njit
def product(alpha: float, a: np.ndarray, b: np.ndarray, flags: tuple, beta: float, c: np.ndarray):
    blas.gemm(alpha, a, flags[0], b, flags[1], beta, c)


@numba.njit
def numbers_in_work_arrays(like: np.ndarray, n: int, m: int, places: np.ndarray, sums: np.ndarray):
    """Report the addresses and strides of four work arrays, and the sums of their entries."""
    shapes = (n, m), (m,), (n, 2, m)
    a, b, c, d, memory = work_arrays(like, shapes, ((n, m),))
    a[...], b[...], c[...], d[...] = 1, 2, 3, 4
    sums[0], sums[1], sums[2], sums[3] = a.sum(), b.sum(), c.sum(), d.sum()
    places[0, 0], places[1, 0] = a.ctypes.data, b.ctypes.data
    places[2, 0], places[3, 0] = c.ctypes.data, d.ctypes.data
    places[0, 1], places[1, 1] = a.size * a.itemsize, b.size * b.itemsize
    places[2, 1], places[3, 1] = c.size * c.itemsize, d.size * d.itemsize
    give_back(memory)
    return a.strides, b.strides, c.strides, d.strides, a.shape, b.shape, c.shape, d.shape, memory


@BOTH
def test_work_arrays(precision: tuple[type, float]) -> None:
    """They are writable, apart, and begin with a cache line, on the stack and elsewhere."""
    like, places, sums = np.empty(0, precision[0]), np.empty((4, 2), np.int64), np.empty(4)
    for n, m in ((3, 5), (16, 64), (0, 4), (1, 1), (300, 200)):
        *layout, memory = numbers_in_work_arrays(like, n, m, places, sums)
        shapes = [(n, m), (m,), (n, 2, m), (n, m)]
        kinds = [*[precision[0]] * 3, np.int32]
        arrays = [np.empty(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
        assert layout[4:] == shapes
        assert n == 0 or layout[:4] == [array.strides for array in arrays]
        np.testing.assert_array_equal(sums, [n * m, 2 * m, 6 * n * m, 4 * n * m])
        assert not (places[:, 0] % 64).any()
        assert (places[:-1].sum(1) <= places[1:, 0]).all()
        assert places[:, 1].tolist() == [array.nbytes for array in arrays]
        assert (memory == 0) == (places[:, 1].sum() < MAX_STACK_BYTES // 2)


FAULTS = """
import resource
import numba
import numpy as np
from derivatrix.templates.support.internals.memory import give_back, work_arrays

@numba.njit
def fill(out):
    work, memory = work_arrays(out, (out.shape,), ())
    work[...] = 2
    out[...] = work
    give_back(memory)

def call():
    out = np.empty((400, 400))
    fill(out)

for _ in range(5):
    call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="asks how glibc's malloc keeps memory"
)
def test_memory_of_work_arrays_and_results_is_kept_between_calls() -> None:
    """Not page by page taken anew, 600 of them in each call."""
    process = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) < 1000


LEAKS = """
import resource
import numpy as np
import derivatrix as dx

n = dx.dims("n")
A, S, b = dx.matrix("A", n, n), dx.matrix("S", n, n, structure="spd"), dx.vector("b", n)
module = dx.compile(dx.function("both", [A, S, b], dx.solve(A, b) + dx.solve(S, b), wrt=[b]))
good, vector = np.eye(300), np.ones(300)

def call(*matrices):
    try:
        module.vjp(*matrices, vector, vector)
        return 0
    except np.linalg.LinAlgError:
        return 1

failed = 0
for count in (5, 300):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        failed += call(good, good) + call(0 * good, good) + call(good, -good)
assert failed == 610
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="asks Linux for the memory of a process")
def test_kernels_give_their_memory_back_whether_they_fail_or_not() -> None:
    """Not 400 MB of it."""
    process = subprocess.run([sys.executable, "-c", LEAKS], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) < 20_000


@pytest.mark.parametrize("size", [2**28, 2**40, 2**62, 2**63 - 1])
def test_work_arrays_that_no_memory_holds(size: int) -> None:
    with pytest.raises(MemoryError):
        numbers_in_work_arrays(np.empty(0), 2**33, size, np.empty((4, 2), np.int64), np.empty(4))


@BOTH
def test_gemm(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, b, c = matrices(real, 4, 3), matrices(real, 5, 3), matrices(real, 4, 5)
    expected = 2 * a @ b.T + c
    product(2.0, a, b, (False, True), 1.0, c)
    np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance)
    c[...] = np.nan
    product(1.0, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), (True, False), 0.0, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=tolerance, atol=tolerance)
    product(1.0, a[:, :0].copy(), b[:, :0].copy(), (False, True), 0.0, c)
    assert not c.any()
    product(1.0, a[:0], b, (False, True), 0.0, c[:0])
    wide = matrices(real, 5, 9)
    product(1.0, a, wide[:3, 2:7], (False, False), 0.0, c)
    np.testing.assert_allclose(c, a @ wide[:3, 2:7], rtol=tolerance, atol=tolerance)


FLAGS = [(True, False), (False, True), (False, False), (True, True)]
TRIANGLES = {blas.WHOLE: np.asarray, blas.LOWER: np.tril, blas.UPPER: np.triu}


@BOTH
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(
    "n, inner", [(1, 30), (40, 30), (97, 500), (192, 30), (250, 300), (530, 90)]
)
def test_symmetric_gemm(
    n: int, inner: int, flags: tuple[bool, bool], precision: tuple[type, float]
) -> None:
    real, tolerance = precision
    a, weights = matrices(real, inner, n), matrices(real, inner, 1)
    left = np.ascontiguousarray(a if flags[0] else a.T)
    right = weights * a
    right = np.ascontiguousarray(right.T if flags[1] else right)
    c = np.full((n, n), np.nan, real)
    whole = blas.WHOLE, blas.WHOLE
    blas.symmetric_gemm(1.0, left, flags[0], right, flags[1], 0.0, c, *whole)
    expected = a.T @ (weights * a)
    close = {"rtol": tolerance, "atol": tolerance * np.abs(expected).max()}
    np.testing.assert_allclose(c, expected, **close)
    assert np.array_equal(c, c.T) or n < 192
    blas.symmetric_gemm(2.0, left, flags[0], right, flags[1], 1.0, c, *whole)
    np.testing.assert_allclose(c, 3 * expected, **close)


GRAMS = [(0, 5), (5, 0), (30, 0), (1, 30), (97, 500), (390, 90), (385, 600), (400, 260)]
"""Rows and samples; from 384 rows on, BLAS has a routine."""


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("n, inner", GRAMS)
def test_gram(n: int, inner: int, transposed: bool, precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a = matrices(real, inner, n)
    factor = a if transposed else np.ascontiguousarray(a.T)
    c = np.full((n, n), np.nan, real)
    expected = a.T @ a
    close = {"rtol": tolerance, "atol": tolerance * np.abs(expected).max(initial=0)}
    blas.gram(1.0, factor, transposed, 0.0, c)
    np.testing.assert_allclose(c, expected, **close)
    blas.gram(2.0, factor, transposed, 1.0, c)
    np.testing.assert_allclose(c, 3 * expected, **close)


@pytest.mark.parametrize("signs", ["positive", "negative", "both"])
@pytest.mark.parametrize("n, samples", GRAMS)
def test_weighted_gram(n: int, samples: int, signs: str, precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, weights = matrices(real, samples, n), matrices(real, samples)
    if signs != "both":
        weights = abs(weights) if signs == "positive" else -abs(weights)
    c = np.full((n, n), np.nan, real)
    expected = a.T @ (weights[:, None] * a)
    close = {"rtol": tolerance, "atol": tolerance * np.abs(expected).max(initial=0)}
    blas.weighted_gram(a, weights, False, c)
    np.testing.assert_allclose(c, expected, **close)
    blas.weighted_gram(a, weights, True, c)
    np.testing.assert_allclose(c, 2 * expected, **close)
    assert np.array_equal(c, c.T) or n < 192


@pytest.mark.parametrize("stack, n", [(0, 3), (1, 0), (1, 1), (4, 2), (3, 9)])
def test_spread_triangles(stack: int, n: int, precision: tuple[type, float]) -> None:
    full_matrices = matrices(precision[0], stack, n, n)
    full_matrices += full_matrices.swapaxes(1, 2)
    rows, columns = np.tril_indices(n)
    spread = np.full((stack, n, n), np.nan, full_matrices.dtype)
    blas.spread_triangles(np.ascontiguousarray(full_matrices[:, rows, columns]), spread)
    np.testing.assert_array_equal(spread, full_matrices)


@BOTH
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("n", [0, 1, 23, 24, 49, 200])
@pytest.mark.parametrize("left", TRIANGLES)
@pytest.mark.parametrize("right", TRIANGLES)
def test_structured_gemm(
    left: int, right: int, n: int, flags: tuple[bool, bool], precision: tuple[type, float]
) -> None:
    real, tolerance = precision
    a, b = TRIANGLES[left](matrices(real, n, n)), TRIANGLES[right](matrices(real, n, n).T)
    given = [
        np.ascontiguousarray(matrix.T if flag else matrix)
        for matrix, flag in zip((a, b), flags, strict=True)
    ]
    c = np.full((n, n), np.nan, real)
    product = 2 * a @ b
    blas.structured_gemm(
        2.0, given[0], flags[0], given[1], flags[1], 0.0, c, left, right, blas.WHOLE
    )
    np.testing.assert_allclose(c, product, rtol=tolerance, atol=n * tolerance)
    for part, expected in ((blas.WHOLE, 2 * product), (blas.LOWER, np.tril(3 * product))):
        blas.structured_gemm(2.0, given[0], flags[0], given[1], flags[1], 1.0, c, left, right, part)
        actual = c if part == blas.WHOLE else np.tril(c)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=n * tolerance)
    c[...] = np.nan
    blas.structured_gemm(
        2.0, given[0], flags[0], given[1], flags[1], 0.0, c, left, right, blas.LOWER
    )
    np.testing.assert_allclose(np.tril(c), np.tril(product), rtol=tolerance, atol=n * tolerance)


@pytest.mark.parametrize("shape", [(3, 90), (90, 3), (90, 200), (0, 90), (90, 0)])
def test_structured_gemm_of_other_shapes(shape: tuple[int, int]) -> None:
    rows, columns = shape
    square, wide = matrices(np.float64, rows, rows), matrices(np.float64, rows, columns)
    for triangle in (blas.LOWER, blas.UPPER):
        known = TRIANGLES[triangle](square)
        out = np.full((rows, columns), np.nan)
        blas.structured_gemm(
            1.0, known, False, wide, False, 0.0, out, triangle, blas.WHOLE, blas.WHOLE
        )
        np.testing.assert_allclose(out, known @ wide, atol=1e-10)
        turned = np.full((columns, rows), np.nan)
        blas.structured_gemm(
            1.0, wide, True, known, False, 0.0, turned, blas.WHOLE, triangle, blas.WHOLE
        )
        np.testing.assert_allclose(turned, wide.T @ known, atol=1e-10)


@pytest.mark.parametrize("n", [1, 5, 31, 32, 33, 70, 130])
def test_inverses_block_by_block(n: int, precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a = matrices(real, 2, n, n)
    definite = a @ a.swapaxes(1, 2) / n + np.eye(n, dtype=real)
    factor, out, identity = definite.copy(), np.empty_like(definite), np.eye(n)
    assert cholesky.cholesky_factor(factor)
    cholesky.cholesky_inverse(factor, out)
    np.testing.assert_allclose(out[1] @ definite[1], identity, atol=10 * tolerance)
    for part in (np.tril, np.triu):
        given = factor if part is np.tril else np.ascontiguousarray(factor.swapaxes(1, 2))
        triangular.triangular_inverse(given, out, part is np.tril)
        assert np.array_equal(out, part(out))
        np.testing.assert_allclose(out[1] @ part(given[1]), identity, atol=10 * tolerance)


SYSTEMS = [(1, 1), (5, 3), (8, 1), (9, 1), (9, 3), (9, 20), (64, 9), (150, 1), (150, 30), (20, 0)]
SYSTEMS += [(40, 300), (260, 2), (12, 2), (13, 2), (32, 3), (33, 1)]
"""Sizes with numbers of right-hand sides: by loops, by BLAS and LAPACK, and by blocks."""


def dominant(a: np.ndarray) -> np.ndarray:
    """The matrices, with a large diagonal."""
    n = a.shape[-1]
    return np.ascontiguousarray(a + (n if n > 5 else 1) * np.eye(n, dtype=a.dtype))


@BOTH
@pytest.mark.parametrize(("n", "sides"), SYSTEMS)
@pytest.mark.parametrize("flip", [False, True])
def test_lu(precision: tuple[type, float], flip: bool, n: int, sides: int) -> None:
    real, tolerance = precision
    a, b = dominant(matrices(real, 2, n, n)), matrices(real, 2, n, sides)
    a = np.ascontiguousarray(a[:, np.random.default_rng(0).permutation(n)])
    factors, pivots = a.copy(), np.empty((2, n), np.int32)
    lu.lu_factor(factors, pivots)
    columns = b.copy()
    lu.lu_solve_columns(factors, pivots, columns, flip)
    np.testing.assert_allclose(transposed(a, flip) @ columns, b, atol=tolerance)
    for solve in (lu.lu_solve_rows, lu.lu_solve_each_row):
        by_rows = np.array(b.swapaxes(1, 2), order="C")
        solve(factors, pivots, by_rows, flip)
        np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=tolerance)


LIMITS = [
    lu.MAX_LU_LOOP_ROWS,
    panels.MAX_NARROW_PANEL_ROWS,
    panels.MAX_MIDDLE_PANEL_ROWS,
    lu.MAX_SERIAL_ROWS,
    lu.MAX_LU_PANEL_ROWS,
]
FACTORED = [1, 2, 5, *LIMITS, *(limit + 1 for limit in LIMITS)]


@pytest.mark.parametrize("n", FACTORED)
def test_factors(precision: tuple[type, float], n: int) -> None:
    """Their product is the matrix with its rows exchanged so that no multiplier is above one; a
    zero pivot stays."""
    real, tolerance = precision
    a, zero = matrices(real, 2, n, n), n // 4
    a[1, zero] = 0
    factors, pivots = a.copy(), np.empty((2, n), np.int32)
    lu.lu_factor(factors, pivots)
    both, exchanged = factors[0].T.astype(np.float64), a[0].T.astype(np.float64)
    for row, other in enumerate(pivots[0] - 1):
        exchanged[[row, other]] = exchanged[[other, row]]
    lower = np.tril(both, -1)
    assert abs(lower).max() <= 1 + tolerance
    product = (lower + np.eye(n)) @ np.triu(both)
    np.testing.assert_allclose(product, exchanged, atol=tolerance)
    assert lu.lu_invertible(factors[:1]) and not lu.lu_invertible(factors[1:])
    assert factors[1, zero, zero] == 0


@pytest.mark.parametrize("n", [3, lu.MAX_LU_LOOP_ROWS + 1])
def test_systems_with_a_nan_have_nan_solutions(n: int) -> None:
    for place in [(0, 0), (1, 1), (n - 1, n - 1), (0, 1), (1, 0)]:
        a = dominant(matrices(np.float64, n, n))
        a[place] = np.nan
        factors, pivots = a[None].copy(), np.empty((1, n), np.int32)
        lu.lu_factor(factors, pivots)
        last, last_pivots = np.array(a[..., None]), np.empty((n, 1), np.int32)
        batch_last.lu_factor_batch_last(last, last_pivots)
        for flip in (False, True):
            row, column = np.ones((1, 1, n)), np.ones((n, 1, 1))
            lu.lu_solve_each_row(factors, pivots, row, flip)
            batch_last.lu_solve_batch_last(last, last_pivots, column, flip)
            assert np.isnan(row).all() and np.isnan(column).all()


def test_factors_of_numbers_without_reciprocals(precision: tuple[type, float]) -> None:
    real, _ = precision
    unit = np.finfo(real).smallest_subnormal
    a = np.array([[[1, 2, 4], [8, 2, 4], [2, 2, 8]]], real) * unit
    factors, pivots = a.copy(), np.empty((1, 3), np.int32)
    lu.lu_factor(factors, pivots)
    expected, exchanges = scipy.linalg.lu_factor(a[0].T / unit)
    np.testing.assert_array_equal(pivots[0] - 1, exchanges)
    np.testing.assert_allclose(np.tril(factors[0].T, -1), np.tril(expected, -1), rtol=0.1)


@BOTH
@pytest.mark.parametrize("n", [4, lu.MAX_LU_LOOP_ROWS, lu.MAX_LU_LOOP_ROWS + 1])
def test_inverses_and_determinants(precision: tuple[type, float], n: int) -> None:
    real, tolerance = precision
    a = matrices(real, 3, n, n)
    a[0] = np.eye(n)[[1, 0, *range(2, n)]] * 2
    factors, pivots = a.copy(), np.empty((3, n), np.int32)
    lu.lu_factor(factors, pivots)
    out, numbers = np.empty_like(a), np.empty(3, real)
    lu.lu_inverse(factors, pivots, out)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(n), a.shape), atol=tolerance)
    lu.lu_det(factors, pivots, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    signs, logarithms = np.linalg.slogdet(a)
    lu.lu_logabsdet(factors, pivots, numbers)
    np.testing.assert_allclose(numbers, logarithms, atol=tolerance)
    lu.lu_logdet(factors, pivots, numbers)
    expected = np.where(signs > 0, logarithms, np.nan)
    np.testing.assert_allclose(numbers, expected, atol=tolerance)


@pytest.mark.parametrize(("n", "sides"), SYSTEMS)
def test_cholesky_systems(precision: tuple[type, float], n: int, sides: int) -> None:
    real, tolerance = precision
    a, b = matrices(real, 2, n, n), matrices(real, 2, n, sides)
    a = dominant(a @ a.swapaxes(1, 2) / n)
    factor = a.copy()
    assert cholesky.cholesky_factor(factor)
    lower = np.tril(factor)
    np.testing.assert_allclose(lower @ lower.swapaxes(1, 2), a, atol=10 * tolerance * n)
    columns, by_rows = b.copy(), np.array(b.swapaxes(1, 2), order="C")
    cholesky.cholesky_solve_columns(factor, columns)
    cholesky.cholesky_solve_rows(factor, by_rows)
    np.testing.assert_allclose(a @ columns, b, atol=10 * tolerance)
    np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=10 * tolerance)


LIMITS = [
    cholesky.MAX_CHOLESKY_LOOP_ROWS,
    cholesky.MIN_CHOLESKY_PANEL_ROWS - 1,
    panels.MAX_NARROW_PANEL_ROWS,
    cholesky.MAX_CHOLESKY_PANEL_ROWS,
]


@pytest.mark.parametrize("n", [1, *LIMITS, *(limit + 1 for limit in LIMITS)])
def test_cholesky_factors(precision: tuple[type, float], n: int) -> None:
    """The upper triangle is not read, and a matrix that is not definite from a middle row on
    fails."""
    real, tolerance = precision
    a = matrices(real, 1, n, n)
    a = np.tril(dominant(a @ a.swapaxes(1, 2) / n))
    factor = a + np.triu(np.full((n, n), np.nan, real), 1)
    assert cholesky.cholesky_factor(factor)
    expected = np.linalg.cholesky(a.astype(np.float64))
    np.testing.assert_allclose(np.tril(factor), expected, atol=tolerance)
    row = 2 * n // 3
    a[0, row, row] = np.sum(expected[0, row, :row] ** 2) - 1
    assert not cholesky.cholesky_factor(a)


@pytest.mark.parametrize("n", [1, 3, 8, 9, 80])
def test_what_is_not_definite(precision: tuple[type, float], n: int) -> None:
    real, _ = precision
    for wrong in (0, -1):
        a = np.broadcast_to(np.eye(n, dtype=real), (2, n, n)).copy()
        a[1, n - 1, n - 1] = wrong
        assert not cholesky.cholesky_factor(a)
    a[1, n - 1, n - 1] = np.nan
    assert cholesky.cholesky_factor(a)
    assert np.isnan(a[1, n - 1, n - 1])


@BOTH
def test_cholesky(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a = matrices(real, 2, 5, 5)
    a = a @ a.swapaxes(1, 2) + np.eye(5, dtype=real)
    factor = a.copy()
    cholesky.cholesky_factor(factor)
    out, numbers = np.empty_like(a), np.empty(2, real)
    cholesky.cholesky_inverse(factor, out)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(5), a.shape), atol=10 * tolerance)
    cholesky.cholesky_det(factor, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    cholesky.cholesky_logdet(factor, numbers)
    np.testing.assert_allclose(numbers, np.linalg.slogdet(a)[1], rtol=tolerance)


@pytest.mark.parametrize(("n", "sides"), SYSTEMS)
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems(precision: tuple[type, float], lower: bool, n: int, sides: int) -> None:
    real, tolerance = precision
    full = dominant(matrices(real, 2, n, n))
    a, b = (np.tril if lower else np.triu)(full), matrices(real, 2, n, sides)
    for flip in (False, True):
        columns, by_rows = b.copy(), np.array(b.swapaxes(1, 2), order="C")
        triangular.triangular_solve_columns(full, columns, lower, flip)
        triangular.triangular_solve_rows(full, by_rows, lower, flip)
        np.testing.assert_allclose(transposed(a, flip) @ columns, b, atol=tolerance)
        np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=tolerance)


@BOTH
@pytest.mark.parametrize("lower", [False, True])
def test_triangular(precision: tuple[type, float], lower: bool) -> None:
    real, tolerance = precision
    full = matrices(real, 2, 4, 4) + 3 * np.eye(4, dtype=real)
    a = (np.tril if lower else np.triu)(full)
    out, numbers = np.empty_like(a), np.empty(2, real)
    triangular.triangular_inverse(full, out, lower)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(4), a.shape), atol=tolerance)
    triangular.triangular_det(full, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    triangular.triangular_logdet(-full[:, :3, :3].copy(), numbers)
    assert np.isnan(numbers).all()


@BOTH
def test_sylvester(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, b, c = matrices(real, 2, 5, 5), matrices(real, 2, 3, 3), matrices(real, 2, 5, 3)
    a, b = a + 4 * np.eye(5, dtype=real), b + 4 * np.eye(3, dtype=real)
    out = np.empty_like(c)
    forms = [np.empty_like(m) for m in (a, a, b, b)]
    assert sylvester.schur(a, forms[0], forms[1])
    assert sylvester.schur(b, forms[2], forms[3])
    assert sylvester.schur_sylvester(*forms, c, out, False, False)
    expected = [scipy.linalg.solve_sylvester(*equation) for equation in zip(a, b, c, strict=True)]
    np.testing.assert_allclose(out, expected, atol=tolerance)
    assert sylvester.schur_sylvester(*forms, c, out, True, True)
    residual = a.swapaxes(1, 2) @ out + out @ b.swapaxes(1, 2) - c
    np.testing.assert_allclose(residual, 0, atol=10 * tolerance)


@BOTH
def test_rows_with_infinite_entries(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, 1000], [-inf, 0, 1], [0, nan, 1], [-1000, -1001, -1000]], real)
    out, numbers = np.empty_like(x), np.empty(4, real)
    rows.softmax(x, out)
    np.testing.assert_allclose(out, scipy.special.softmax(x, axis=1), atol=tolerance)
    rows.log_softmax(x, out)
    np.testing.assert_allclose(out, scipy.special.log_softmax(x, axis=1), atol=1000 * tolerance)
    rows.logsumexp(x, numbers)
    np.testing.assert_allclose(numbers, scipy.special.logsumexp(x, axis=1), rtol=tolerance)
    rows_of_both = np.array([[-inf, -inf], [inf, 0.0]], real)
    rows.logsumexp(rows_of_both, numbers[:2])
    np.testing.assert_array_equal(numbers[:2], [-inf, inf])


TOGETHER = (SOFTMAX_AND_LOGSUMEXP, SOFTMAX_AND_LOG_SOFTMAX)
COLUMNS = [operation for operation in (*OPERATIONS.values(), *TOGETHER) if operation.columns]


@pytest.mark.parametrize("operation", COLUMNS, ids=lambda operation: operation.name)
def test_columns_are_as_rows(operation: Operation, precision: tuple[type, float]) -> None:
    real, tolerance = precision
    inf, nan = np.inf, np.nan
    edges = [[1, 2, 1000], [-inf, 0, 1], [0, nan, 1], [nan, 1, 2], [1, -nan, inf], [-inf] * 3]
    many = np.random.default_rng(0).normal(size=(70, 3)).round(1)
    x = np.concatenate([np.array(edges), [[inf, 0, inf], [2, 2, 2]], many]).astype(real)
    assert operation.kernel is not None and operation.columns is not None
    for length in (3, 1, 0):
        given = x[:, :length].copy()
        cores = operation.shapes([(sympy.Integer(length),)], ())
        outputs = [np.full((len(x), *map(int, core)), nan, real) for core in cores]
        turned = [np.full(out.T.shape, nan, real) for out in outputs]
        helper(operation.kernel)(given, *outputs)
        helper(operation.columns)(given.T.copy(), *turned)
        parts = operation.outputs if operation in TOGETHER else ()
        for column_output, out in zip(turned, outputs, strict=True):
            np.testing.assert_allclose(column_output.T, out, rtol=tolerance)
        for name, out in zip(parts, outputs, strict=False):
            single_output = np.empty_like(out)
            helper(f"rows.{name}")(given, single_output)
            np.testing.assert_allclose(out, single_output, rtol=tolerance)


def test_maxima_of_rows_with_nan(precision: tuple[type, float]) -> None:
    real, _ = precision
    inf, nan = np.inf, np.nan
    x = np.array([[1, 3, -2], [-0.0, -5, -inf], [-inf, -inf, -inf], [1, -nan, inf]], real)
    out = np.empty(4, real)
    extrema.row_maxima(x, out)
    np.testing.assert_array_equal(out, [3, 0, -inf, nan])
    extrema.row_maxima(x[:, :0].copy(), out)
    np.testing.assert_array_equal(out, -inf)


def test_kernels_say_where_a_matrix_does_not_do(precision: tuple[type, float]) -> None:
    real, _ = precision
    a = np.array([np.eye(2), np.ones((2, 2))], real)
    for part, good in ((a[:1], True), (a, False), (a[:, :0, :0].copy(), True)):
        factors, pivots = part.copy(), np.empty(part.shape[:2], np.int32)
        lu.lu_factor(factors, pivots)
        assert lu.lu_invertible(factors) == good
        assert cholesky.cholesky_factor(part.copy()) == good
        assert triangular.triangular_invertible(np.triu(part - part[:, :1])) == (part.size == 0)
    determinant = np.empty(1, real)
    factors, pivots = a[1:].copy(), np.empty((1, 2), np.int32)
    lu.lu_factor(factors, pivots)
    lu.lu_det(factors, pivots, determinant)
    assert determinant[0] == 0
    lu.lu_logdet(factors, pivots, determinant)
    assert determinant[0] == -np.inf
    forms = [np.empty_like(a) for _ in range(4)]
    assert sylvester.schur(a, forms[0], forms[1]) and sylvester.schur(-a, forms[2], forms[3])
    assert not sylvester.schur_sylvester(*forms, a, np.empty_like(a), False, False)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str) -> None:
    function, reference = getattr(special, name), name.removeprefix("scipy_")
    if name.endswith("v") and name != "scipy_erfinv":
        single = numba.njit(lambda order, x: function(order, x))
        orders = [0, 1, 2, 5, 0.5, -1.5]
    else:
        single = numba.njit(lambda x: function(x))
        orders = []
    x = np.concatenate([np.logspace(-3, 2, 40), [0.0, np.inf, np.nan]])
    for points in (x, -x, x.astype(np.float32)):
        for arguments in [(order,) for order in orders] or [()]:
            expected = getattr(scipy.special, reference)(*arguments, points.astype(np.float64))
            values = [single(*arguments, point) for point in points]
            np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("s", [2, 3, 4, 9, 40, 1.25, 6.5])
def test_zeta(s: float) -> None:
    q = np.concatenate([np.logspace(-6, 4, 60), [1e-300, np.inf, np.nan]])
    values = [special.zeta(s, number) for number in q]
    np.testing.assert_allclose(values, scipy.special.zeta(s, q), rtol=1e-13)
    q = np.array([-0.3, -7.75, -40.6, -3.0, 0.0, np.nan])
    values = [special.zeta(s, number) for number in q]
    expected = scipy.special.zeta(s, q)
    expected[3:5] = np.inf if s == int(s) else np.nan
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_targets_name_functions_that_there_are() -> None:
    assert all(callable(resolve_name(f"{support.__name__}.{path}")) for path in SCALARS.values())
    kernels = {record.kernel for record in OPERATIONS.values() if isinstance(record.kernel, str)}
    assert all(callable(helper(path)) for path in kernels)


def test_helpers_come_with_all_that_they_need(tmp_path: Path) -> None:
    imports = Imports()
    imports.add("cpu.lu.lu_solve_columns")
    assert imports.support_lines() == ["from ._support.cpu.lu import lu_solve_columns"]
    assert {"cpu/__init__.py", "cpu/blas.py", "cpu/lu.py"} <= {*imports.files}
    assert "cpu/eigen.py" not in imports.files
    write_files(tmp_path, support_texts(imports.files))
    package = ModuleType("only_what_lu_needs")
    package.__path__ = [str(tmp_path)]
    sys.modules[package.__name__] = package
    lu = importlib.import_module(f"{package.__name__}._support.cpu.lu")
    b = np.ones((1, 1, 1))
    lu.lu_solve_columns(np.full((1, 1, 1), 2.0), np.ones((1, 1), np.int32), b, False)
    assert b.item() == 0.5


@pytest.mark.parametrize("file", all_files())
def test_files_of_the_support_come_with_those_that_they_import(file: str) -> None:
    files = support_files([file.removesuffix(".py").replace("/", ".")])
    for user in files:
        assert imported(user) <= {*files}, user


@cache
def imported(file: str) -> set[str]:
    """The files of the support that one of them imports from, anywhere in its text."""
    package = f"_support.{file.rpartition('/')[0]}"
    origins = [
        importlib.util.resolve_name(f"{'.' * node.level}{node.module or ''}", package)
        for node in ast.walk(ast.parse(support_text(file)))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    targets = {origin.removeprefix("_support").removeprefix(".") for origin in origins} - {""}
    return {f"{target.replace('.', '/')}.py" for target in targets}


def test_any_helpers_may_be_in_one_module() -> None:
    """No two that the compiler does not run itself have one name."""
    imports = Imports()
    for file in pkgutil.iter_modules(cpu.__path__):
        module = importlib.import_module(f"{cpu.__name__}.{file.name}")
        for statement in ast.parse(inspect.getsource(module)).body:
            for name in _defined_names(statement):
                imports.add(f"cpu.{file.name}.{name}")
    assert {"lu_factor", "cholesky_factor", "triangular_inverse", "combine_blocks"} <= imports.names


def test_factorisations_of_both_kinds_in_one_module() -> None:
    n = dx.dims("n")
    A, S = dx.matrix("A", n, n), dx.matrix("S", n, n, structure="spd")
    b = dx.vector("b", n)
    function = dx.function("both", [A, S, b], dx.solve(A, b) @ dx.solve(S, b), batch=[A, S, b])
    result = dx.compile(function).value(
        np.full((2, 1, 1), 2.0), np.ones((2, 1, 1)), np.ones((2, 1))
    )
    np.testing.assert_array_equal(result, 0.5)


def _wide(real: type, stack: int, size: int) -> list[np.ndarray]:
    tall = _tall(real, stack, size)
    return [np.ascontiguousarray(array.swapaxes(1, 2)) for array in tall]


def _tall(real: type, stack: int, size: int) -> list[np.ndarray]:
    return [np.random.default_rng(size).normal(size=(stack, size + 2, size)).astype(real)]


def _square(real: type, stack: int, size: int) -> list[np.ndarray]:
    """Matrices with eigenvalues that are real and apart."""
    noise = np.random.default_rng(size).normal(size=(stack, size, size))
    return [(np.diag(3.0 + 3 * np.arange(size)) + 0.3 * noise).astype(real)]


def _symmetric(real: type, stack: int, size: int) -> list[np.ndarray]:
    (square,) = _square(real, stack, size)
    return [(square + square.swapaxes(1, 2)) / 2]


def _vector(real: type, stack: int, size: int) -> list[np.ndarray]:
    return [np.random.default_rng(size).uniform(0.5, 3, (stack, size)).astype(real)]


def _two(real: type, stack: int, size: int) -> list[np.ndarray]:
    return [*_tall(real, stack, size), *_tall(real, stack, size)]


def _positioned(real: type, stack: int, size: int) -> list[np.ndarray]:
    """Draw matrices, and positions of rows within and beyond them, also nan."""
    positions = 5 * _vector(real, stack, size + 1)[0]
    positions[0, 0], positions[-1, 0] = np.nan, -np.inf
    return [*_square(real, stack, size), positions]


def _summed(real: type, stack: int, size: int) -> list[np.ndarray]:
    rows = np.concatenate(_square(real, stack, size + 1), -1)
    return [rows, _positioned(real, stack, size)[1], np.ones((stack, size), real)]


def _vectors(real: type, stack: int, size: int) -> list[np.ndarray]:
    """Draw vectors, and vectors with equal entries and nan to order them by."""
    keys = (2 * _vector(real, stack, size)[0]).round()
    keys[-1, size // 2 :] = np.nan
    return [*_vector(real, stack, size), keys]


def _scaled(real: type, stack: int, size: int) -> list[np.ndarray]:
    (square,) = _square(real, stack, size)
    return [square / real(3 * size)]


def _singular(real: type, stack: int, size: int) -> list[np.ndarray]:
    """Draw matrices of ranks size - 1, size - 2, ..."""
    (square,) = _scaled(real, stack, size)
    for number, matrix in enumerate(square):
        matrix[:, : number + 1] = matrix[:, number + 1 : number + 2].sum(1, keepdims=True)
    return [square]


def _changed(draw: Callable[..., list[np.ndarray]]) -> Callable[..., list[np.ndarray]]:
    """Add a tangent of each matrix."""
    return lambda *given: [*draw(*given), *_square(*given)]


RECORDS = {
    "cholesky": (_symmetric,),
    "half_lower": (_square,),
    "lu": (_square,),
    "eigh": (_symmetric,),
    "eigvalsh": (_symmetric,),
    "eig": (_square,),
    "eigvals": (_square,),
    "rounding_level": (_vector,),
    "reciprocal_gaps": (_vector,),
    "reciprocal_sums": (_vector,),
    "qr": (_tall,),
    "svd": (_tall, _wide, _square),
    "svdvals": (_tall, _wide, _square),
    "nuclear_norm": (_tall, _wide),
    "polar_factor": (_tall, _wide, _square),
    "solve_polar": (_two,),
    "pinv": (_tall, _wide, _square),
    "max": (_vector,),
    "shares_of_maximum": (_vector,),
    "prod": (_vector,),
    "rows_at": (_positioned,),
    "sums_at": (_summed,),
    "sort": (_vector,),
    "sorted_by": (_vectors,),
    "unsorted_by": (_vectors,),
    "products_of_others": (_vector,),
    "adjugate": (_scaled, _singular),
    "adjugate_derivative": (_changed(_scaled), _changed(_singular)),
    "adjugate_jacobian": (_scaled, _singular),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_kernel(precision: tuple[type, float], name: str) -> None:
    """The kernel of a record computes its value, gauge included, and leaves its arguments."""
    real, tolerance = precision
    record = OPERATIONS[name]
    for draw in RECORDS[name]:
        for size in (1, 2, 5):
            arguments = draw(real, 3, size)
            copies = [array.copy() for array in arguments]
            expected = record.value([array.astype(float) for array in arguments], ())
            results = [np.full(array.shape, np.nan, real) for array in expected]
            assert record.kernel is not None
            assert helper(record.kernel)(*arguments, *results) in (None, True)
            for result, value in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, value, rtol=tolerance, atol=tolerance)
            for before, after in zip(copies, arguments, strict=True):
                np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", [name for name in RECORDS if OPERATIONS[name].failure])
def test_kernels_that_fail(precision: tuple[type, float], name: str) -> None:
    """Kernels that can fail refuse arguments that are not finite, or return nan."""
    record = OPERATIONS[name]
    arguments = RECORDS[name][0](precision[0], 2, 3)
    results = [np.empty(part.shape, precision[0]) for part in record.value(arguments, ())]
    arguments[0][1, 0, 0] = np.nan
    assert record.kernel is not None
    succeeded = helper(record.kernel)(*arguments, *results)
    assert not succeeded or np.isnan(results[0][1]).any()


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_eigenvalues_of_large_and_small_matrices(real: type) -> None:
    """OpenBLAS scales such matrices, and not their eigenvalues back."""
    (stack,) = _square(real, 1, 4)
    expected, vectors = np.empty((1, 4), real), np.empty((1, 4, 4), real)
    assert eigen.real_eigenvectors(stack, expected, vectors)
    largest, tiny = np.finfo(real).max / 100, np.finfo(real).tiny
    for scale in (2.0**40, 2.0**-45, largest, tiny):
        scale = real(2.0 ** np.round(np.log2(scale)))
        values, scaled_vectors = np.empty_like(expected), np.empty_like(vectors)
        assert eigen.real_eigenvectors(stack * scale, values, scaled_vectors)
        np.testing.assert_allclose(values / scale, expected, rtol=50 * np.finfo(real).eps)
        np.testing.assert_allclose(scaled_vectors, vectors, atol=50 * np.finfo(real).eps)
    values = np.empty((1, 0), real)
    assert eigen.real_eigenvalues(np.empty((1, 0, 0), real), values)
