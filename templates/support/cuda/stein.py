"""The discrete Lyapunov equation X - A X A' = Q, as a continuous one by Cayley's transform of A."""

# mypy: allow-untyped-defs

import numpy as np

from .blas import product
from .frechet import combined, widened
from .lu import lu_factor, lu_inverse, lu_invertible
from .norms import precision_of
from .sylvester import from_basis, in_basis_of, schur_of, solve_triangular_sylvester


def cayley(run, a, q, failure):
    """New arrays F = inv(A + I) (A - I) and C such that F X + X F' = C has the solution of
    X - A X A' = Q. Fails where A has the eigenvalue -1: then the solution is not unique."""
    total, inverse = combined(run, 1.0, (1.0, a)), run.empty(a.shape)
    pivots = run.empty(a.shape[:2], np.int32)
    lu_factor(run, total, pivots)
    lu_invertible(run, total, failure)
    lu_inverse(run, total, pivots, inverse)
    half = product(run, inverse, False, q, False, -2.0)
    return combined(run, 1.0, (-2.0, inverse)), product(run, half, False, inverse, True)


def lyapunov(run, f, c, out, precision, failure):
    """out (stack, n, n) = the X with F X + X F' = C; returns the Schur form of F. Fails where two
    eigenvalues of F have the sum 0, up to the given precision."""
    form, vectors = schur_of(run, f, failure)
    y = run.empty(c.shape, np.complex128)
    in_basis_of(run, vectors, c, vectors, y)
    solve_triangular_sylvester(run, form, form, y, False, True, precision, failure)
    from_basis(run, vectors, y, vectors, out)
    return form


def discrete_lyapunov(run, a, q, out, failure):
    """out (stack, n, n) = the X with A X A' - X + Q = 0. It fails where the product of two
    eigenvalues of A is 1, or no Schur form is found."""
    run = run.in_double()
    f, c = cayley(run, widened(run, a), widened(run, q), failure)
    lyapunov(run, f, c, out, 4 * precision_of(out.dtype), failure)
