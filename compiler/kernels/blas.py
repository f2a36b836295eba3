"""BLAS: its routines, each named once, and matrix products through it."""

# mypy: allow-untyped-defs

from derivatrix.compiler.kernels.base import NO, TRANSPOSED, compiled, routine

blas_gemm = routine("blas", "gemm")
blas_trsm = routine("blas", "trsm")


@compiled()
def gemm(alpha, a, transpose_a, b, transpose_b, beta, c):
    """c = alpha * op(a) @ op(b) + beta * c, for matrices whose rows are contiguous."""
    rows, columns = c.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    if rows == 0 or columns == 0:
        return
    real = c.dtype.type
    blas_gemm(
        (
            TRANSPOSED if transpose_b else NO,
            TRANSPOSED if transpose_a else NO,
            columns,
            rows,
            inner,
            real(alpha),
            b,
            max(b.strides[0] // b.itemsize, b.shape[1], 1),
            a,
            max(a.strides[0] // a.itemsize, a.shape[1], 1),
            real(beta),
            c,
            max(c.strides[0] // c.itemsize, c.shape[1]),
        )
    )
