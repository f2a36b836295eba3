"""Helper kernels of linear algebra and of rows in the simulator, against NumPy and SciPy.

Run with NUMBA_ENABLE_CUDASIM=1, as `pytest tests/devices/linear_algebra.py`.
"""

import inspect

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from numba import cuda

from derivatrix.compiler.operations import OPERATIONS
from derivatrix.templates.support.cuda import (
    adjugate,
    blas,
    cholesky,
    eigen,
    extrema,
    factors,
    gaps,
    gathers,
    libraries,
    lu,
    pivots,
    products,
    rows,
    shares,
    singular,
    skew,
    sorting,
    triangular,
)
from derivatrix.templates.support.cuda.base import _Run
from tests.devices import fake_libraries

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TOLERANCES = {"float64": 1e-9, "float32": 5e-3}
FACTORS = (blas, libraries, lu, cholesky, triangular, factors)


class Device:
    """A run in one precision, and arrays of it."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.run = _Run(np.dtype(dtype), cuda.default_stream(), 1)
        self.random = np.random.default_rng(1)

    def normal(self, *shape):
        """Random numbers in the precision of the run."""
        return self.random.normal(size=shape).astype(self.dtype)

    def put(self, array, dtype=None):
        """A copy on the device."""
        return cuda.to_device(np.array(array, dtype or self.dtype, order="C"))

    def call(self, kernel, *arguments, out):
        """Call a helper with the array `out`, or one of this shape full of nan, and return the
        result."""
        target = self.put(np.full(out, np.nan) if isinstance(out, tuple) else out)
        kernel(self.run, *arguments[0], target, *arguments[1:])
        return target.copy_to_host()

    def close(self, found, expected):
        """Assert that arrays are equal up to rounding."""
        tolerance = TOLERANCES[self.dtype]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, tolerance, tolerance)

    @property
    def failed(self):
        """True if a check failed since the last query."""
        result = bool(self.run.failures.copy_to_host()[0])
        self.run.failures = self.put([0], np.int32)
        return result


@pytest.fixture(params=["float64", "float32"])
def device(request):
    """A run in each precision."""
    return Device(request.param)


@pytest.fixture(params=["own kernels", "libraries", "libraries one by one"])
def way(request, monkeypatch):
    """The implementation: our kernels, or libraries for all matrices with more than one entry."""
    if request.param != "own kernels":
        monkeypatch.setattr(libraries, "MAX_KERNEL_ROWS", 1)
        fake_libraries.use(monkeypatch, *FACTORS)
    if request.param.endswith("one"):
        monkeypatch.setattr(libraries, "MAX_BATCHED_ROWS", 1)
    return request.param


stacks = pytest.mark.parametrize("stack, n", [(1, 1), (3, 2), (2, 5), (0, 2), (2, 0)])


def turned(array):
    """Transposed matrices."""
    return np.swapaxes(array, -1, -2)


@pytest.mark.parametrize("by", ["entries", "library"])
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("sizes", [(2, 3, 0), (0, 2, 2), (3, 2, 18)])
@pytest.mark.parametrize("which", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("shared", [None, 0, 1, 2])
def test_gemm(device, monkeypatch, by, beta, sizes, which, shared):
    if by == "library":
        monkeypatch.setattr(blas, "MAX_KERNEL_OPS", 0)
        fake_libraries.use(monkeypatch, blas, libraries)
    m, n, k = sizes
    first, second = device.normal(2, m, k), device.normal(2, k, n)
    first = first if shared in (0, 2) else first[0]
    second = second if shared in (1, 2) else second[0]
    kept = device.normal(2, m, n) if shared is not None else device.normal(m, n)
    expected = 1.5 * first @ second + beta * kept
    left = device.put(turned(first) if which[0] else first)
    right = device.put(turned(second) if which[1] else second)
    target = device.put(kept if beta else np.full(kept.shape, np.nan))
    blas.symmetric_gemm(device.run, 1.5, left, bool(which[0]), right, bool(which[1]), beta, target)
    device.close(target.copy_to_host(), expected)


def test_gemm_of_several_blocks(device):
    first, second = device.normal(66, 20), device.normal(70, 20)
    target = device.put(np.full((66, 70), np.nan))
    blas.gemm(device.run, 1.0, device.put(first), False, device.put(second), True, 0.0, target)
    device.close(target.copy_to_host(), first @ second.T)


@stacks
def test_lu(device, way, stack, n):
    a = device.normal(stack, n, n)
    matrices, pivots = device.put(a), device.put(np.zeros((stack, n)), np.int32)
    lu.lu_factor(device.run, matrices, pivots)
    for s in range(stack if n else 0):
        expected, exchanges = scipy.linalg.lu_factor(a[s].T)
        device.close(matrices.copy_to_host()[s], expected.T)
        assert (pivots.copy_to_host()[s] == exchanges + 1).all()
    lu.lu_invertible(device.run, matrices, 0)
    assert not device.failed
    factored = matrices, pivots
    determinants = np.linalg.det(a)
    device.close(device.call(lu.lu_det, factored, out=(stack,)), determinants)
    logarithms = device.call(lu.lu_logabsdet, factored, out=(stack,))
    device.close(logarithms, np.log(abs(determinants)))
    device.close(device.call(lu.lu_logdet, factored, out=(stack,)), np.log(determinants))
    inverse = np.linalg.inv(a.astype(float))
    device.close(device.call(lu.lu_inverse, factored, out=a.shape), inverse)
    check_solves(
        device, lu.lu_solve_rows, lu.lu_solve_columns, factored, inverse, [(False,), (True,)]
    )


@stacks
def test_adjugate(device, way, stack, n):
    a, change = device.normal(stack, n, n) + 2 * np.eye(n), device.normal(stack, n, n)
    for name, given in (
        ("adjugate", (a,)),
        ("adjugate_derivative", (a, change)),
        ("adjugate_jacobian", (a,)),
    ):
        (expected,) = OPERATIONS[name].value([array.astype(float) for array in given], ())
        arrays = [device.put(array) for array in given]
        actual = device.call(getattr(adjugate, name), arrays, 0, out=expected.shape)
        assert not device.failed
        scale = max(1.0, np.abs(expected).max(initial=0))
        device.close(actual / scale, expected / scale)


def check_solves(device, by_rows, by_columns, factored, inverse, flags):
    """Both solvers, for one right-hand side and for some; flags: the last says which inverse."""
    stack, n, _ = inverse.shape
    for count in (0, 1, 18):
        for flag in flags:
            used = turned(inverse) if flag and flag[-1] else inverse
            b = device.normal(stack, n, count)
            expected = used @ b
            device.close(device.call(by_columns, factored, *flag, out=b), expected)
            actual = device.call(by_rows, factored, *flag, out=turned(b))
            device.close(actual, turned(expected))


@pytest.mark.parametrize("bad", [[[1, 2], [2, 4]], [[0, 0], [0, 0]]])
def test_singular(device, way, bad):
    a, pivots = device.put([np.eye(2), bad]), device.put(np.zeros((2, 2)), np.int32)
    lu.lu_factor(device.run, a, pivots)
    lu.lu_invertible(device.run, a, 0)
    assert device.failed
    device.close(device.call(lu.lu_det, (a, pivots), out=(2,)), np.array([1, 0]))
    device.close(device.call(lu.lu_logdet, (a, pivots), out=(2,)), np.array([0, -np.inf]))


@stacks
def test_cholesky(device, way, stack, n):
    a = device.normal(stack, n, n)
    a = a @ turned(a) + np.eye(n)
    lower = device.put(a)
    cholesky.cholesky_factor(device.run, lower, 0)
    assert not device.failed
    device.close(np.tril(lower.copy_to_host()), np.linalg.cholesky(a))
    determinants = np.linalg.det(a)
    device.close(device.call(cholesky.cholesky_det, (lower,), out=(stack,)), determinants)
    result = device.call(cholesky.cholesky_logdet, (lower,), out=(stack,))
    device.close(result, np.log(determinants))
    inverse = np.linalg.inv(a)
    result = device.call(cholesky.cholesky_inverse, (lower,), out=a.shape)
    device.close(result, inverse)
    assert (result == turned(result)).all()
    solvers = cholesky.cholesky_solve_rows, cholesky.cholesky_solve_columns
    check_solves(device, *solvers, (lower,), inverse, [()])


@pytest.mark.parametrize("entry", [-1, 0, np.nan])
def test_not_positive_definite(device, way, entry):
    a = device.put([np.eye(3), np.diag([1, entry, 2])])
    result = device.call(factors.lower_factor, (a,), 0, out=(2, 3, 3))
    assert device.failed == (entry <= 0)
    device.close(result[0], np.eye(3))
    assert np.isnan(result[1, 1, 1]) or entry <= 0


@stacks
@pytest.mark.parametrize("lower", [True, False])
def test_triangular(device, way, stack, n, lower):
    a = device.normal(stack, n, n) + 3 * np.eye(n)
    triangle = np.tril(a) if lower else np.triu(a)
    matrices = device.put(a)
    triangular.triangular_invertible(device.run, matrices, 0)
    assert not device.failed
    determinants = np.linalg.det(triangle)
    for name, expected in (
        ("det", determinants),
        ("logabsdet", np.log(abs(determinants))),
        ("logdet", np.log(determinants)),
    ):
        reduce = getattr(triangular, f"triangular_{name}")
        device.close(device.call(reduce, (matrices,), out=(stack,)), expected)
    inverse = np.linalg.inv(triangle)
    actual = device.call(triangular.triangular_inverse, (matrices,), lower, out=a.shape)
    device.close(actual, inverse)
    solvers = triangular.triangular_solve_rows, triangular.triangular_solve_columns
    check_solves(device, *solvers, (matrices,), inverse, [(lower, False), (lower, True)])


@pytest.mark.parametrize("entry, expected", [(0, -np.inf), (-1, np.nan)])
def test_triangular_without_logarithm(device, entry, expected):
    a = device.put([np.eye(3), np.diag([1, entry, 2])])
    triangular.triangular_invertible(device.run, a, 0)
    assert device.failed == (entry == 0)
    actual = device.call(triangular.triangular_logdet, (a,), out=(2,))
    device.close(actual, np.array([0, expected]))


@pytest.mark.parametrize("stack, n", [(1, 1), (2, 5), (0, 2)])
def test_triangular_factors(device, way, stack, n):
    a = device.normal(stack, n, n)
    positive = a @ turned(a) + np.eye(n)
    junk = np.tril(positive) + np.triu(a, 1)
    result = device.call(factors.lower_factor, (device.put(junk),), 0, out=a.shape)
    device.close(result, np.linalg.cholesky(positive))
    result = device.call(factors.half_lower, (device.put(a),), out=a.shape)
    device.close(result, np.tril(a, -1) + a * np.eye(n) / 2)
    a = a + 4 * np.eye(n)
    lower, upper = device.run.empty(a.shape), device.run.empty(a.shape)
    factors.unpivoted_lu(device.run, device.put(a), lower, upper, 0)
    assert not device.failed
    lower, upper = lower.copy_to_host(), upper.copy_to_host()
    device.close(lower @ upper, a)
    assert (lower == np.tril(lower, -1) + np.eye(n)).all() and (upper == np.triu(upper)).all()


@pytest.mark.parametrize("bad", [[[0, 1], [1, 0]], [[1, 1], [1, 1]], [[np.nan, 1], [1, 1]]])
def test_without_factors(device, way, bad):
    a = device.put([np.eye(2), bad])
    factors.unpivoted_lu(device.run, a, device.run.empty(a.shape), device.run.empty(a.shape), 0)
    assert device.failed


@pytest.mark.parametrize("stack, p, k", [(1, 1, 1), (2, 5, 3), (1, 20, 2), (0, 2, 2), (2, 3, 0)])
def test_qr(device, way, stack, p, k):
    a = device.normal(stack, p, k)
    q, r = device.run.empty((stack, p, k)), device.run.empty((stack, k, k))
    factors.thin_qr(device.run, device.put(a), q, r, 0)
    q, r = q.copy_to_host(), r.copy_to_host()
    device.close(q @ r, a)
    device.close(turned(q) @ q, np.broadcast_to(np.eye(k), r.shape))
    assert (r == np.triu(r)).all() and (np.einsum("sii->si", r) > 0).all()
    for matrix in (a, turned(a)):
        result = device.call(
            factors.full_rank_pinv, (device.put(matrix),), 0, out=turned(matrix).shape
        )
        device.close(result, np.linalg.pinv(matrix))
    assert not device.failed


def test_qr_of_large_and_small_columns(device):
    """Squares of their entries overflow and underflow."""
    exponents = np.array([1, -1]) * (600 if device.dtype == "float64" else 90)
    a = device.normal(2, 4, 2)
    scaled = np.ldexp(a, exponents)
    q, r = device.run.empty(a.shape), device.run.empty((2, 2, 2))
    factors.thin_qr(device.run, device.put(scaled), q, r, 0)
    device.close(q.copy_to_host() @ np.ldexp(r.copy_to_host(), -exponents), a)
    for exponent in exponents:
        result = device.call(
            factors.full_rank_pinv, (device.put(np.ldexp(a, exponent)),), 0, out=(2, 2, 4)
        )
        device.close(np.ldexp(result, exponent), np.linalg.pinv(a))
    assert not device.failed


@pytest.mark.parametrize(
    "what, kernel, shapes",
    [
        ("an LU factorisation", lu.lu_factor, [(33, 33), (33,)]),
        ("a linear system", lu.lu_solve_rows, [(33, 33), (33,), (2, 33)]),
        ("a linear system", lu.lu_solve_columns, [(33, 33), (33,), (33, 2)]),
        ("a linear system", lu.lu_inverse, [(33, 33), (33,), (33, 33)]),
        ("a Cholesky factor", cholesky.cholesky_factor, [(33, 33)]),
        ("a Cholesky factor", factors.lower_factor, [(33, 33), (33, 33)]),
        ("a triangular system", cholesky.cholesky_solve_rows, [(33, 33), (2, 33)]),
        ("a triangular system", triangular.triangular_inverse, [(33, 33), (33, 33)]),
        ("a QR factorisation", factors.thin_qr, [(33, 2), (33, 2), (2, 2)]),
        ("a QR factorisation", factors.full_rank_pinv, [(2, 33), (33, 2)]),
        ("an eigenvalue decomposition", eigen.symmetric_eigenvalues, [(33, 33), (33,)]),
        ("a singular value decomposition", singular.polar_factor, [(2, 33), (2, 33)]),
    ],
)
def test_large_matrices_take_libraries(device, what, kernel, shapes):
    """Matrices with one row more than our kernels take need the libraries."""
    arrays = [device.put(np.zeros((1, *shape))) for shape in shapes]
    device.run.function = "square"
    taken = len(inspect.signature(kernel).parameters) - 1 - len(arrays)
    expected = f"square: {what} of matrices with 33 rows needs .* pip install 'derivatrix.cuda.'"
    with pytest.raises(RuntimeError, match=expected):
        kernel(device.run, *arrays, *([0] * taken))


@pytest.mark.parametrize("stack, n", [(2, 32)])
def test_the_largest_own_matrices(device, stack, n):
    a = device.normal(stack, n, n) + 6 * np.eye(n)
    a = a.astype(device.dtype)
    matrices, pivots = device.put(a), device.put(np.zeros((stack, n)), np.int32)
    lu.lu_factor(device.run, matrices, pivots)
    inverse = np.linalg.inv(a.astype(float))
    device.close(device.call(lu.lu_inverse, (matrices, pivots), out=a.shape), inverse)
    lower = device.put(a @ turned(a))
    cholesky.cholesky_factor(device.run, lower, 0)
    device.close(np.tril(lower.copy_to_host()), np.linalg.cholesky(a @ turned(a)))
    assert not device.failed


@pytest.mark.parametrize("fill", [1, 0, np.nan])
@pytest.mark.parametrize("p, k", [(3, 2), (1, 2)])
def test_dependent_columns(device, way, fill, p, k):
    a = device.put(np.full((1, p, k), fill))
    factors.thin_qr(device.run, a, device.run.empty(a.shape), device.run.empty((1, k, k)), 0)
    assert device.failed


def test_columns_that_are_dependent_up_to_rounding(device, way):
    """Also where rounding errors of more than one column are on the diagonal of R."""
    for _ in range(40):
        a = device.put(device.normal(1, 5, 3) @ device.normal(3, 4))
        factors.thin_qr(device.run, a, device.run.empty(a.shape), device.run.empty((1, 4, 4)), 0)
        assert device.failed


SPECIAL = [[], [np.nan], [-np.inf], [np.inf], [np.inf, np.nan], [np.inf, np.inf], [-np.inf] * 9]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("stack, n", [(1, 1), (3, 2), (0, 3), (2, 0), (2, 9), (1, 33)])
def test_powers_of_rows(device, monkeypatch, long, stack, n):
    if long:
        monkeypatch.setattr(rows, "PART_ENTRIES", 4)
        monkeypatch.setattr(rows, "MAX_PARTS", 3)
        for file in (rows, shares):
            monkeypatch.setattr(file, "THREADS", 32)
    for special in SPECIAL if n == 9 else [[]]:
        x = 1000 * device.normal(stack, n)
        x[:1, : len(special)] = special
        largest = x.max(axis=1, keepdims=True, initial=-np.inf)
        with np.errstate(all="ignore"):
            powers = np.exp(x - largest)
            expected = powers / powers.sum(axis=1, keepdims=True)
            logarithms = (x - largest) - np.log(powers.sum(axis=1, keepdims=True))
            total = scipy.special.logsumexp(x, axis=1) if n else np.full(stack, -np.inf)
        device.close(device.call(rows.softmax, (device.put(x),), out=x.shape), expected)
        device.close(device.call(rows.log_softmax, (device.put(x),), out=x.shape), logarithms)
        device.close(device.call(rows.logsumexp, (device.put(x),), out=(stack,)), total)
        actual = device.call(extrema.row_maxima, (device.put(x),), out=(stack,))
        device.close(actual, largest[:, 0])


@pytest.mark.parametrize("stack, n", [(1, 1), (3, 2), (0, 3), (2, 0), (2, 9), (1, 33)])
def test_rows(device, stack, n):
    x = device.normal(stack, n)
    x[:, ::3] = x[:, :1]
    arrays = (device.put(x),)
    largest = x == x.max(axis=1, keepdims=True, initial=-np.inf)
    actual = device.call(extrema.shares_of_maximum, arrays, out=x.shape)
    device.close(actual, largest / np.maximum(largest.sum(axis=1, keepdims=True), 1))
    actual = device.call(products.row_products, arrays, out=(stack,))
    device.close(actual, x.prod(axis=1))
    others = [np.delete(x, i, axis=1).prod(axis=1) for i in range(n)]
    actual = device.call(products.products_of_others, arrays, out=x.shape)
    device.close(actual, np.array(others, device.dtype).reshape(n, stack).T)
    least = 10 * n * np.finfo(device.dtype).eps * abs(x).max(axis=1, initial=0)[:, None, None]
    levels = device.call(gaps.rounding_levels, (device.put(x),), out=(stack,))
    device.close(levels, least[:, 0, 0])
    for kernel, sign in ((gaps.reciprocal_gaps, -1), (gaps.reciprocal_sums, 1)):
        total = x[:, None, :] + sign * x[:, :, None]
        with np.errstate(all="ignore"):
            expected = np.where(abs(total) > least, 1 / total, np.nan)
        if sign < 0:
            expected[:, np.arange(n), np.arange(n)] = 0
        device.close(device.call(kernel, arrays, out=(stack, n, n)), expected)


@pytest.mark.parametrize("stack, n", [(1, 1), (0, 3), (2, 0), (3, 9), (2, 40)])
def test_orders_of_rows(device, stack, n):
    x, keys = device.normal(stack, n), device.normal(stack, n).round()
    keys[:, 1::7] = np.nan
    order = np.argsort(keys, kind="stable")
    expected = np.take_along_axis(x, order, -1)
    found = device.call(sorting.rows_sorted_by, (device.put(x), device.put(keys)), out=x.shape)
    np.testing.assert_array_equal(found, expected)
    arguments = device.put(expected), device.put(keys)
    np.testing.assert_array_equal(device.call(sorting.rows_unsorted_by, arguments, out=x.shape), x)
    found = device.call(sorting.sorted_rows, (device.put(keys),), out=x.shape)
    np.testing.assert_array_equal(found, np.sort(keys))


@pytest.mark.parametrize("stack, n, k", [(1, 1, 1), (0, 2, 3), (2, 3, 0), (3, 4, 9)])
def test_rows_at_positions(device, stack, n, k):
    x, values, positions = (
        device.normal(stack, n, 3),
        device.normal(stack, k, 3),
        5 * device.normal(stack, k),
    )
    positions[:, 4:5] = np.nan
    chosen = np.floor(positions)[..., None] % n == np.arange(n)
    chosen = np.where(np.isfinite(positions)[..., None], chosen, np.nan)
    arguments = device.put(x), device.put(positions)
    device.close(device.call(gathers.rows_at, arguments, out=values.shape), chosen @ x)
    arguments = device.put(values), device.put(positions), device.put(np.ones((stack, n)))
    expected = np.swapaxes(chosen, -1, -2) @ values
    device.close(device.call(gathers.sums_at, arguments, out=x.shape), expected)


def test_nan_has_all_shares(device):
    result = device.call(extrema.shares_of_maximum, (device.put([[1, np.nan]]),), out=(1, 2))
    assert np.isnan(result).all()


@pytest.mark.parametrize("stack", [0, 1, 3])
def test_skew(device, stack):
    vectors, matrices = device.normal(stack, 3), device.normal(stack, 3, 3)
    actual = device.call(skew.skew, (device.put(vectors),), out=(stack, 3, 3))
    other = device.normal(3)
    device.close(actual @ other, np.cross(vectors, other))
    actual = device.call(skew.axial, (device.put(matrices),), out=(stack, 3))
    unit = np.array([np.cross(v, np.eye(3)).T for v in np.eye(3)])
    expected = np.einsum("sij,kij->sk", matrices, unit)
    device.close(actual, expected)


@pytest.mark.parametrize("entry", [2.0, 0.0, -1.0, np.nan])
def test_pivots(device, entry):
    x = np.array([1.0, entry, 3.0])
    for check, holds in ((pivots.positive_pivot, entry > 0), (pivots.nonzero_pivot, entry != 0)):
        device.close(device.call(check, (device.put(x),), 0, out=(3,)), x)
        assert device.failed == (not holds)
