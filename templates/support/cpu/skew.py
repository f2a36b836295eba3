"""Skew-symmetric matrices of order 3 and their axial vectors."""

# mypy: allow-untyped-defs

from ..internals.functions import compiled


@compiled()
def skew(vectors, out):
    """out[s] @ v is the cross product of vectors[s] and v."""
    for s in range(len(vectors)):
        x, y, z = vectors[s, 0], vectors[s, 1], vectors[s, 2]
        out[s, 0, 0], out[s, 0, 1], out[s, 0, 2] = 0, -z, y
        out[s, 1, 0], out[s, 1, 1], out[s, 1, 2] = z, 0, -x
        out[s, 2, 0], out[s, 2, 1], out[s, 2, 2] = -y, x, 0


@compiled()
def axial(matrices, out):
    """out[s] . v is the sum of the products of the entries of matrices[s] and skew(v)."""
    for s in range(len(matrices)):
        a = matrices[s]
        out[s, 0] = a[2, 1] - a[1, 2]
        out[s, 1] = a[0, 2] - a[2, 0]
        out[s, 2] = a[1, 0] - a[0, 1]
