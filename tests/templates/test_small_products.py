"""Products by BLAS or by loops: when, and that they are the product."""

import ctypes
import itertools

import numba
import numpy as np
import pytest
from llvmlite import binding
from numba.extending import get_cython_function_address

from derivatrix.templates.support.cpu import blas
from derivatrix.templates.support.internals import arithmetic, functions

ROUTINE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
REALS = [np.float64, np.float32]
WHOLE = [(6, 6, 6), (129, 1, 1), (100, 100, 100), (31, 200, 300), (256, 250, 256)]
TINY = [(1, 1, 1), (2, 2, 2), (5, 5, 5), (3, 7, 6), (1, 128, 1), (64, 1, 2), (4, 0, 5), (0, 3, 2)]


class Recorder:
    """SciPy's gemm, which keeps in mind what it was asked for: a letter that says how its first
    factor lies, which is the second one of `product`, and the number of multiplications."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.routines = [self.routine(prefix) for prefix in "sd"]

    def register(self, name: str, function: "ctypes._CFunctionType") -> None:
        binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)

    def routine(self, prefix: str) -> "ctypes._CFunctionType":
        library = "scipy.linalg.cython_blas"
        gemm = ROUTINE(get_cython_function_address(library, f"{prefix}gemm"))

        def recorded(*arguments: int) -> None:
            m, n, k = (ctypes.c_int.from_address(size).value for size in arguments[2:5])
            letter = ctypes.c_char.from_address(arguments[0]).value.decode()
            self.calls.append((letter, m * n * k))
            gemm(*arguments)

        made = ROUTINE(recorded)
        self.register(f"{prefix}gemm_recorded", made)
        return made


@numba.njit
def product(alpha: float, a: np.ndarray, b: np.ndarray, flags: tuple, beta: float, c: np.ndarray):
    blas.gemm(alpha, a, flags[0], b, flags[1], beta, c)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    """Record the routines that `product` calls, compiled for both precisions."""
    made = Recorder()

    @functions.compiled()
    def recorded(pointers: tuple) -> None:
        arithmetic.multiply(pointers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arithmetic, "loops_or_call", recorded)
        patch.setattr(arithmetic, "GEMM", "gemm_recorded")
        for real in (np.float64, np.float32):
            one = np.ones((1, 1), real)
            product(1.0, one, one, (False, False), 0.0, np.empty_like(one))
    return made


def calls(
    recorder: Recorder, shape: tuple[int, int, int], real: type, flags: tuple[bool, bool]
) -> list[tuple[str, int]]:
    """Compare a product with NumPy's and return its calls."""
    random = np.random.default_rng(0)
    rows, inner, columns = shape
    a, b = random.normal(size=(rows, inner)), random.normal(size=(inner, columns))
    c = random.normal(size=(rows, columns))
    left, right = (
        np.ascontiguousarray(x.T if flag else x, real)
        for x, flag in zip((a, b), flags, strict=True)
    )
    tolerance = 1e3 * np.finfo(real).eps
    whole = np.full((rows, columns), np.nan, real)
    recorder.calls.clear()
    product(1.0, left, right, flags, 0.0, whole)
    made = list(recorder.calls)
    np.testing.assert_allclose(whole, a @ b, atol=tolerance, rtol=tolerance)
    whole = c.astype(real)
    product(2.0, left, right, flags, -0.5, whole)
    np.testing.assert_allclose(whole, 2 * a @ b - c / 2, atol=tolerance, rtol=tolerance)
    return made


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("shape", WHOLE)
def test_products_by_blas(recorder: Recorder, shape: tuple[int, int, int], real: type) -> None:
    assert calls(recorder, shape, real, (False, False)) == [("N", np.prod(shape))]


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("shape", TINY)
def test_loops(
    recorder: Recorder, shape: tuple[int, int, int], flags: tuple[bool, bool], real: type
) -> None:
    assert calls(recorder, shape, real, flags) == []
