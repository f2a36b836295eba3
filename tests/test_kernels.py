"""The helper kernels against NumPy and SciPy, in both precisions."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from derivatrix.compiler.kernels import blas, cholesky, lu, rows, sylvester, triangular
from derivatrix.compiler.kernels.source import Sources

PRECISIONS = [(np.float64, 1e-10), (np.float32, 1e-3)]


@pytest.fixture(params=PRECISIONS, ids=["float64", "float32"])
def precision(request: pytest.FixtureRequest) -> tuple[type, float]:
    return request.param


def matrices(real: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(real)


def transposed(a: np.ndarray, yes: bool) -> np.ndarray:
    return a.swapaxes(1, 2) if yes else a


def test_gemm(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, b, c = matrices(real, 4, 3), matrices(real, 5, 3), matrices(real, 4, 5)
    expected = 2 * a @ b.T + c
    blas.gemm(2.0, a, False, b, True, 1.0, c)
    np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance)
    c[...] = np.nan
    blas.gemm(1.0, np.ascontiguousarray(a.T), True, np.ascontiguousarray(b.T), False, 0.0, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=tolerance, atol=tolerance)
    blas.gemm(1.0, a[:, :0].copy(), False, b[:, :0].copy(), True, 0.0, c)
    assert not c.any()
    blas.gemm(1.0, a[:0], False, b, True, 0.0, c[:0])


@pytest.mark.parametrize("flip", [False, True])
def test_lu(precision: tuple[type, float], flip: bool) -> None:
    real, tolerance = precision
    a, b = matrices(real, 2, 5, 5), matrices(real, 2, 5, 3)
    factors, pivots = a.copy(), np.empty((2, 5), np.int32)
    lu.lu_factor(factors, pivots)
    columns = b.copy()
    lu.lu_solve_columns(factors, pivots, columns, flip)
    np.testing.assert_allclose(transposed(a, flip) @ columns, b, atol=tolerance)
    by_rows = np.ascontiguousarray(b.swapaxes(1, 2))
    lu.lu_solve_rows(factors, pivots, by_rows, flip)
    np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=tolerance)


def test_inverses_and_determinants(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a = matrices(real, 3, 4, 4)
    a[0] = np.eye(4)[[1, 0, 2, 3]] * 2
    factors, pivots = a.copy(), np.empty((3, 4), np.int32)
    lu.lu_factor(factors, pivots)
    out, numbers = np.empty_like(a), np.empty(3, real)
    lu.lu_inverse(factors, pivots, out)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(4), a.shape), atol=tolerance)
    lu.lu_det(factors, pivots, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    signs, logarithms = np.linalg.slogdet(a)
    lu.lu_logabsdet(factors, pivots, numbers)
    np.testing.assert_allclose(numbers, logarithms, atol=tolerance)
    lu.lu_logdet(factors, pivots, numbers)
    expected = np.where(signs > 0, logarithms, np.nan)
    np.testing.assert_allclose(numbers, expected, atol=tolerance)


def test_cholesky(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, b = matrices(real, 2, 5, 5), matrices(real, 2, 5, 3)
    a = a @ a.swapaxes(1, 2) + np.eye(5, dtype=real)
    factor = a.copy()
    cholesky.cholesky_factor(factor)
    columns, by_rows = b.copy(), np.ascontiguousarray(b.swapaxes(1, 2))
    cholesky.cholesky_solve_columns(factor, columns)
    cholesky.cholesky_solve_rows(factor, by_rows)
    np.testing.assert_allclose(a @ columns, b, atol=10 * tolerance)
    np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=10 * tolerance)
    out, numbers = np.empty_like(a), np.empty(2, real)
    cholesky.cholesky_inverse(factor, out)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(5), a.shape), atol=10 * tolerance)
    cholesky.cholesky_det(factor, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    cholesky.cholesky_logdet(factor, numbers)
    np.testing.assert_allclose(numbers, np.linalg.slogdet(a)[1], rtol=tolerance)


@pytest.mark.parametrize("lower", [False, True])
def test_triangular(precision: tuple[type, float], lower: bool) -> None:
    real, tolerance = precision
    full = matrices(real, 2, 4, 4) + 3 * np.eye(4, dtype=real)
    a, b = (np.tril if lower else np.triu)(full), matrices(real, 2, 4, 3)
    for flip in (False, True):
        columns, by_rows = b.copy(), np.ascontiguousarray(b.swapaxes(1, 2))
        triangular.triangular_solve_columns(full, columns, lower, flip)
        triangular.triangular_solve_rows(full, by_rows, lower, flip)
        np.testing.assert_allclose(transposed(a, flip) @ columns, b, atol=tolerance)
        np.testing.assert_allclose(by_rows.swapaxes(1, 2), columns, atol=tolerance)
    out, numbers = np.empty_like(a), np.empty(2, real)
    triangular.triangular_inverse(full, out, lower)
    np.testing.assert_allclose(out @ a, np.broadcast_to(np.eye(4), a.shape), atol=tolerance)
    triangular.triangular_det(full, numbers)
    np.testing.assert_allclose(numbers, np.linalg.det(a), rtol=tolerance)
    triangular.triangular_logdet(-full[:, :3, :3].copy(), numbers)
    assert np.isnan(numbers).all()


def test_sylvester(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    a, b, c = matrices(real, 2, 5, 5), matrices(real, 2, 3, 3), matrices(real, 2, 5, 3)
    a, b = a + 4 * np.eye(5, dtype=real), b + 4 * np.eye(3, dtype=real)
    out = np.empty_like(c)
    sylvester.sylvester(a, b, c, out)
    expected = [scipy.linalg.solve_sylvester(*equation) for equation in zip(a, b, c, strict=True)]
    np.testing.assert_allclose(out, expected, atol=tolerance)
    forms = [np.empty_like(m) for m in (a, a, b, b)]
    sylvester.schur(a, forms[0], forms[1])
    sylvester.schur(b, forms[2], forms[3])
    sylvester.schur_sylvester(*forms, c, out, True)
    residual = a.swapaxes(1, 2) @ out + out @ b.swapaxes(1, 2) - c
    np.testing.assert_allclose(residual, 0, atol=10 * tolerance)


def test_rows_with_infinite_entries(precision: tuple[type, float]) -> None:
    real, tolerance = precision
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, 1000], [-inf, 0, 1], [0, nan, 1], [-1000, -1001, -1000]], real)
    out, numbers = np.empty_like(x), np.empty(4, real)
    rows.softmax(x, out)
    np.testing.assert_allclose(out, scipy.special.softmax(x, axis=1), atol=tolerance)
    rows.logsumexp(x, numbers)
    np.testing.assert_allclose(numbers, scipy.special.logsumexp(x, axis=1), rtol=tolerance)
    whole = np.array([[-inf, -inf], [inf, 0.0]], real)
    rows.logsumexp(whole, numbers[:2])
    np.testing.assert_array_equal(numbers[:2], [-inf, inf])


def test_singular_matrices_raise(precision: tuple[type, float]) -> None:
    real, _ = precision
    a, b = np.ones((1, 2, 2), real), np.ones((1, 2, 1), real)
    factors, pivots = a.copy(), np.empty((1, 2), np.int32)
    lu.lu_factor(factors, pivots)
    determinant = np.empty(1, real)
    lu.lu_det(factors, pivots, determinant)
    assert determinant[0] == 0
    lu.lu_logdet(factors, pivots, determinant)
    assert determinant[0] == -np.inf
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        lu.lu_solve_columns(factors, pivots, b, False)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        lu.lu_inverse(factors, pivots, a)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky.cholesky_factor(-a)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        triangular.triangular_solve_columns(np.zeros((1, 2, 2), real), b, True, False)
    with pytest.raises(np.linalg.LinAlgError, match="share an eigenvalue"):
        sylvester.sylvester(a, -a, a, np.empty_like(a))


def test_sources_come_with_all_that_they_need() -> None:
    sources = Sources()
    sources.add_function(lu.lu_solve_columns)
    names = list(sources.texts)
    assert names.index("lu_require") < names.index("lu_solve_columns")
    assert {"compiled", "routine", "blas_trsm", "swap_rows", "UNIT"} <= set(names)
    assert "lapack_getri" not in names
    assert "from numba import njit, types" in sources.import_lines()
    scope: dict = {}
    exec("\n".join([*sources.import_lines(), *sources.blocks()]), scope)
    b = np.ones((1, 1, 1))
    scope["lu_solve_columns"](np.full((1, 1, 1), 2.0), np.ones((1, 1), np.int32), b, False)
    assert b.item() == 0.5
