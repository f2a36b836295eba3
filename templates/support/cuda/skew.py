"""Skew-symmetric matrices of order 3 and their axial vectors."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel


def skew(run, vectors, out):
    """out[s] @ v is the cross product of vectors[s] and v; vectors (stack, 3)."""
    run.launch(skew_entries, vectors.shape[0] * 9, vectors, out)


def axial(run, matrices, out):
    """out[s] . v is the sum of the products of the entries of matrices[s] and skew(v)."""
    run.launch(axial_entries, matrices.shape[0] * 3, matrices, out)


@kernel("real[:, ::1], real[:, :, ::1]")
def skew_entries(vectors, out):
    """Skew-symmetric matrices, a thread for each entry."""
    for entry in range(cuda.grid(1), out.shape[0] * 9, cuda.gridsize(1)):
        s, i, j = entry // 9, entry // 3 % 3, entry % 3
        if i == j:
            out[s, i, j] = 0
        elif (j - i) % 3 == 1:
            out[s, i, j] = -vectors[s, 3 - i - j]
        else:
            out[s, i, j] = vectors[s, 3 - i - j]


@kernel("real[:, :, ::1], real[:, ::1]")
def axial_entries(matrices, out):
    """Axial vectors, a thread for each entry."""
    for entry in range(cuda.grid(1), out.shape[0] * 3, cuda.gridsize(1)):
        s, i = entry // 3, entry % 3
        j, k = (i + 1) % 3, (i + 2) % 3
        out[s, i] = matrices[s, k, j] - matrices[s, j, k]
