"""The derivative of the matrix exponential."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from tests.benchmarks.specialist.compiled import kernel
from tests.benchmarks.specialist.linear_algebra import (
    invert,
    product,
)

B = (
    *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0),
    *(129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0),
    *(40840800.0, 960960.0, 16380.0, 182.0, 1.0),
)
"""The coefficients of the Padé approximation of order 13."""

MOST = 4.74
"""The norm up to which it and its derivative are right to all digits."""


@kernel
def combine(a, X, b, Y, c, Z, out):
    """Set out to a X + b Y + c Z, of flat arrays."""
    for i in range(len(out)):
        out[i] = a * X[i] + b * Y[i] + c * Z[i]


@kernel
def scaled_inputs(X, cotangent, A, E):
    """A = Xᵀ / 2^s and E = cotangent / 2^s with the smallest s for the approximation."""
    n, norm, halvings, scale = len(X), 0.0, 0, 1.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += abs(X[i, j])
        norm = max(norm, total)
    while norm * scale > MOST:
        halvings += 1
        scale *= 0.5
    for i in range(n):
        for j in range(n):
            A[i, j] = scale * X[j, i]
            E[i, j] = scale * cotangent[i, j]
    return halvings


@kernel
def powers(A, E, even, tangents):
    """A², A⁴, A⁶ and their derivatives in direction E."""
    product(1.0, A, A, 0.0, even[0])
    product(1.0, A, E, 0.0, tangents[0])
    product(1.0, E, A, 1.0, tangents[0])
    product(1.0, even[0], even[0], 0.0, even[1])
    product(1.0, even[0], tangents[0], 0.0, tangents[1])
    product(1.0, tangents[0], even[0], 1.0, tangents[1])
    product(1.0, even[1], even[0], 0.0, even[2])
    product(1.0, even[1], tangents[0], 0.0, tangents[2])
    product(1.0, tangents[1], even[0], 1.0, tangents[2])


@kernel
def part(odd, even, tangents, high, by_high, out, by_out):
    """The odd coefficients' (over A) or the even ones' polynomial and its derivative."""
    n = len(out)
    p2, p4, p6 = even[0].reshape(-1), even[1].reshape(-1), even[2].reshape(-1)
    t2, t4, t6 = tangents[0].reshape(-1), tangents[1].reshape(-1), tangents[2].reshape(-1)
    combine(B[8 + odd], p2, B[10 + odd], p4, B[12 + odd], p6, high.reshape(-1))
    combine(B[8 + odd], t2, B[10 + odd], t4, B[12 + odd], t6, by_high.reshape(-1))
    combine(B[2 + odd], p2, B[4 + odd], p4, B[6 + odd], p6, out.reshape(-1))
    combine(B[2 + odd], t2, B[4 + odd], t4, B[6 + odd], t6, by_out.reshape(-1))
    for i in range(n):
        out[i, i] += B[odd]
    product(1.0, even[2], high, 1.0, out)
    product(1.0, even[2], by_high, 1.0, by_out)
    product(1.0, tangents[2], high, 1.0, by_out)


@kernel
def exponential_kernel(X, cotangent, out):
    """The Fréchet derivative at Xᵀ in direction cotangent, after A. Al-Mohy and N. Higham,
    Computing the Fréchet derivative of the matrix exponential (2009).

    With the odd part U and the even part V, R (V - U) = V + U, and its derivative
    L (V - U) = by_V + by_U - R (by_V - by_U).
    """
    n = len(X)
    work = np.empty((14, n, n))
    A, E, even, tangents = work[0], work[1], work[2:5], work[5:8]
    halvings = scaled_inputs(X, cotangent, A, E)
    powers(A, E, even, tangents)
    high, by_high, W, by_W, V, by_V = work[8], work[9], work[10], work[11], work[12], work[13]
    part(0, even, tangents, high, by_high, V, by_V)
    part(1, even, tangents, high, by_high, W, by_W)
    U, by_U = even[0], even[1]
    product(1.0, A, W, 0.0, U)
    product(1.0, A, by_W, 0.0, by_U)
    product(1.0, E, W, 1.0, by_U)
    R, bottom, difference, right, top = even[2], high, by_high, tangents[0], tangents[1]
    for i in range(n):
        for j in range(n):
            top[i, j] = V[i, j] + U[i, j]
            bottom[i, j] = V[i, j] - U[i, j]
            right[i, j] = by_V[i, j] + by_U[i, j]
            difference[i, j] = by_V[i, j] - by_U[i, j]
    inverse = invert(bottom)
    product(1.0, inverse, top, 0.0, R)
    product(-1.0, R, difference, 1.0, right)
    product(1.0, right, inverse, 0.0, out)
    for left in range(halvings, 0, -1):
        difference[:] = out
        product(1.0, R, difference, 0.0, out)
        product(1.0, difference, R, 1.0, out)
        if left > 1:
            W[:] = R
            product(1.0, W, W, 0.0, R)


def exponential_vjp(X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """All: (n, n)."""
    out = np.empty(X.shape)
    exponential_kernel(X, cotangent, out)
    return out


KERNELS = {"expm(X) vjp": exponential_vjp}
