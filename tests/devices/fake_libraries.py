"""CuPy, cuBLAS and cuSOLVER as far as the kernels use them, by SciPy: arguments in the order and
with the meaning of CuPy's bindings, addresses of memory of the host."""

import contextlib
import types

import numpy as np
import scipy.linalg


def at(address, count, dtype):
    """The array of `count` numbers that begins at an address."""
    kind = np.ctypeslib.as_ctypes_type(dtype)
    return np.ctypeslib.as_array((kind * count).from_address(address))


class FakeArray:
    """An array of CuPy's."""

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype
        self.data = types.SimpleNamespace(ptr=array.ctypes.data)


cupy = types.SimpleNamespace(
    empty=lambda shape, dtype: FakeArray(np.empty(shape, dtype)),
    asarray=lambda array: array._ary,
    linalg=np.linalg,
    arange=lambda *bounds, dtype: FakeArray(np.arange(*bounds, dtype=dtype)),
    cuda=types.SimpleNamespace(
        Stream=types.SimpleNamespace(from_external=contextlib.nullcontext),
        device=types.SimpleNamespace(
            get_cublas_handle=lambda: "cublas", get_cusolver_handle=lambda: "cusolver"
        ),
    ),
)


class Routines:
    """The routines in one precision; their matrices are stored by columns."""

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)

    def matrix(self, address, rows, columns, step):
        """A view of a matrix whose columns begin `step` numbers apart."""
        assert step >= max(rows, 1)
        return at(address, step * columns, self.dtype).reshape(columns, step).T[:rows]

    def number(self, address):
        return at(address, 1, self.dtype)[0]

    def pointers(self, address, count):
        return at(address, count, np.uintp).tolist()

    def gemmStridedBatched(
        self, handle, turn_a, turn_b, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, *rest
    ):
        assert handle == "cublas"
        c, ldc, step_c, count = rest
        size = self.dtype.itemsize
        for s in range(count):
            x = self.matrix(a + s * step_a * size, *((k, m) if turn_a else (m, k)), lda)
            y = self.matrix(b + s * step_b * size, *((n, k) if turn_b else (k, n)), ldb)
            z = self.matrix(c + s * step_c * size, m, n, ldc)
            product = self.number(alpha) * (x.T if turn_a else x) @ (y.T if turn_b else y)
            z[...] = product + (self.number(beta) * z if self.number(beta) else 0)

    def trsm(self, handle, side, fill, turn, unit, m, n, alpha, a, lda, b, ldb):
        assert handle == "cublas"
        order = n if side else m
        x = self.matrix(a, order, order, lda)
        assert not unit and self.number(alpha) == 1
        y = self.matrix(b, m, n, ldb)
        routine = scipy.linalg.get_blas_funcs("trsm", (x,))
        y[...] = routine(1, x, y, side=side, lower=not fill, trans_a=turn)

    def trsmBatched(self, handle, side, fill, turn, unit, m, n, alpha, a, lda, b, ldb, count):
        settings = handle, side, fill, turn, unit, m, n, alpha
        for one, other in zip(self.pointers(a, count), self.pointers(b, count), strict=True):
            self.trsm(*settings, one, lda, other, ldb)

    def getrf_bufferSize(self, handle, m, n, a, lda):
        return 1

    def getrf(self, handle, m, n, a, lda, work, pivots, info):
        assert handle == "cusolver"
        self.factor(n, a, lda, pivots)

    def factor(self, n, a, lda, pivots):
        x = self.matrix(a, n, n, lda)
        x[...], exchanges = scipy.linalg.lu_factor(x)
        at(pivots, n, np.int32)[:] = exchanges + 1

    def getrfBatched(self, handle, n, a, lda, pivots, info, count):
        assert handle == "cublas"
        for s, one in enumerate(self.pointers(a, count)):
            self.factor(n, one, lda, pivots + s * n * 4)

    def solve(self, turn, n, count, a, lda, pivots, b, ldb):
        y = self.matrix(b, n, count, ldb)
        factors = self.matrix(a, n, n, lda), at(pivots, n, np.int32) - 1
        y[...] = scipy.linalg.lu_solve(factors, y, trans=turn)

    def getrs(self, handle, turn, n, count, a, lda, pivots, b, ldb, info):
        assert handle == "cusolver"
        self.solve(turn, n, count, a, lda, pivots, b, ldb)

    def getrsBatched(self, handle, turn, n, count, a, lda, pivots, b, ldb, info, stack):
        assert handle == "cublas"
        pairs = zip(self.pointers(a, stack), self.pointers(b, stack), strict=True)
        for s, (one, other) in enumerate(pairs):
            self.solve(turn, n, count, one, lda, pivots + s * n * 4, other, ldb)

    def potrf_bufferSize(self, handle, fill, n, a, lda):
        return 1

    def potrf(self, handle, fill, n, a, lda, work, size, info):
        assert handle == "cusolver"
        x = self.matrix(a, n, n, lda)
        routine = scipy.linalg.get_lapack_funcs("potrf", (x,))
        factor, told = routine(x, lower=not fill, clean=False)
        x[...] = factor
        at(info, 1, np.int32)[0] = told

    def potrfBatched(self, handle, fill, n, a, lda, info, count):
        for s, one in enumerate(self.pointers(a, count)):
            self.potrf(handle, fill, n, one, lda, None, 1, info + 4 * s)
            x = self.matrix(one, n, n, lda)
            x[np.tril_indices(n, -1) if fill else np.triu_indices(n, 1)] = 7


class Library:
    """Both libraries: routines by their names, and the constants of CuPy's bindings."""

    CUBLAS_SIDE_LEFT = 0
    CUBLAS_SIDE_RIGHT = 1
    CUBLAS_FILL_MODE_LOWER = 0
    CUBLAS_FILL_MODE_UPPER = 1
    CUBLAS_DIAG_NON_UNIT = 0

    def __getattr__(self, name):
        return getattr(Routines("float32" if name[0] == "s" else "float64"), name[1:])


def use(monkeypatch, *modules):
    """Let modules find the libraries, and take all matrices for large ones."""
    fakes = {"_cupy": cupy, "_cublas": Library(), "_cusolver": Library()}
    for module in modules:
        for name, fake in fakes.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
        if hasattr(module, "address"):
            monkeypatch.setattr(module, "address", lambda array: array._ary.ctypes.data)
