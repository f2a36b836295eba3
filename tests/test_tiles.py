"""Products tile by tile, or by loops: when, and that they are the whole product."""

import ctypes
import itertools

import numba
import numpy as np
import pytest
from numba.core.codegen import ll
from numba.extending import get_cython_function_address
from threadpoolctl import threadpool_info, threadpool_limits

from derivatrix.templates.support.cpu import blas, tiles

ROUTINE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
REALS = [np.float64, np.float32]
TILED = [(101, 100, 101), (128, 128, 128), (150, 201, 170), (33, 397, 303), (999, 33, 64)]
TILED += [(37, 34, 901), (300, 300, 300)]
WHOLE = [(100, 100, 100), (31, 200, 300), (300, 31, 200), (200, 300, 31), (401, 401, 401)]
WHOLE += [(256, 250, 256), (256, 256, 250), (250, 256, 256), (6, 6, 6), (129, 1, 1)]
TINY = [(1, 1, 1), (2, 2, 2), (5, 5, 5), (3, 7, 6), (1, 128, 1), (64, 1, 2), (4, 0, 5), (0, 3, 2)]
COPIED = [(18, 9, 8), (16, 8, 8), (33, 127, 129), (60, 7, 9), (40, 31, 130), (97, 97, 97)]
NOT_COPIED = [(15, 20, 100), (16, 7, 30), (31, 50, 25), (100, 1, 3)]


class Recorder:
    """SciPy's gemm, which keeps in mind what it was asked for: a letter that says how its first
    factor lies, which is the second one of `product`, and the number of multiplications."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.threads = 1
        self.count = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self.threads)
        self.routines = [self.routine(prefix) for prefix in "sd"]
        self.register("threads_recorded", self.count)

    def register(self, name: str, function: "ctypes._CFunctionType") -> None:
        ll.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)

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
    """What `product` calls, compiled here for both precisions."""
    made = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blas, "GEMM", "gemm_recorded")
        patch.setattr(tiles, "THREADS", ("threads_recorded",))
        for real in (np.float64, np.float32):
            one = np.ones((1, 1), real)
            product(1.0, one, one, (False, False), 0.0, np.empty_like(one))
    return made


def calls(
    recorder: Recorder, shape: tuple[int, int, int], real: type, flags: tuple[bool, bool]
) -> list[tuple[str, int]]:
    """What a product calls, after comparing it with NumPy's."""
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
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("shape", TILED)
def test_tiles(
    recorder: Recorder, shape: tuple[int, int, int], flags: tuple[bool, bool], real: type
) -> None:
    letters, work = zip(*calls(recorder, shape, real, flags), strict=True)
    assert len(work) > 1
    assert max(work) <= tiles.TILE_WORK
    assert sum(work) == np.prod(shape)
    assert set(letters) == {"T" if all(flags) else "N"}


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("shape", WHOLE)
def test_sizes_without_tiles(recorder: Recorder, shape: tuple[int, int, int], real: type) -> None:
    assert calls(recorder, shape, real, (False, False)) == [("N", np.prod(shape))]


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("shape", TINY)
def test_loops(
    recorder: Recorder, shape: tuple[int, int, int], flags: tuple[bool, bool], real: type
) -> None:
    assert calls(recorder, shape, real, flags) == []


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("shape", COPIED + NOT_COPIED)
def test_copies_of_transposed_factors(
    recorder: Recorder, shape: tuple[int, int, int], threads: int, real: type
) -> None:
    letter = "N" if threads and shape in COPIED else "T"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "threads", threads)
        letters, work = zip(*calls(recorder, shape, real, (False, True)), strict=True)
    assert set(letters) == {letter}
    assert sum(work) == np.prod(shape)


@pytest.mark.parametrize("flags", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("threads", [0, 2])
def test_no_tiles_with_other_threads(
    recorder: Recorder, threads: int, flags: tuple[bool, bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "threads", threads)
        assert calls(recorder, (150, 160, 170), np.float64, flags) == [
            ("T" if flags[1] else "N", 150 * 160 * 170)
        ]


@pytest.mark.parametrize("threads", [1, 2])
def test_number_of_threads(threads: int) -> None:
    """As another package sees it, for the library that SciPy's BLAS comes with."""
    with threadpool_limits(threads):
        used = [
            entry
            for entry in threadpool_info()
            if entry["internal_api"] == "openblas" and "scipy.libs" in entry["filepath"]
        ]
        expected = [
            entry["num_threads"]
            for entry in used
            if entry["architecture"].encode() in tiles.WITHOUT_COPIES
        ]
        assert ctypes.CFUNCTYPE(ctypes.c_int)(tiles.THREADS[1])() == (expected or [0])[0]


def test_no_threads() -> None:
    made = tiles.no_threads()
    assert ctypes.CFUNCTYPE(ctypes.c_int)(made[1])() == 0
