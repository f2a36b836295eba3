"""The logarithm of jets: square roots until Gauss-Legendre quadrature of an integral suffices
(inverse scaling and squaring; Higham, Functions of Matrices, 2008, section 11.5)."""

# mypy: allow-untyped-defs

import numpy as np

from .blocks import entries
from .jacobi import precision_of
from .jets import (
    jet_combine,
    jet_divide,
    jets,
    scale_by_powers,
    zeros,
)
from .roots import (
    from_basis,
    in_basis_of,
    jet_roots,
    principal_schur,
)

NODES = np.polynomial.legendre.leggauss(8)[0] / 2 + 0.5
WEIGHTS = np.polynomial.legendre.leggauss(8)[1] / 2
MOST_ROOTS = 1000


def integrated(run, z):
    """The logarithm of a jet I + Z: the integral of Z inv(I + t Z) over t from 0 to 1; for norms
    of Z up to 1/4 eight nodes make an error below 1e-17."""
    total = None
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        part = jet_combine(run, 0.0, [(float(weight), z)])
        jet_divide(run, part, jet_combine(run, 1.0, [(float(node), z)]))
        if total is None:
            total = part
        else:
            jet_combine(run, 0.0, [(1.0, total), (1.0, part)], total)
    return total


def logm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the principal logarithm at A, for arrays A,
    E_1, ... E_k, out, and last the failure: where an eigenvalue of A lies on the closed negative
    real axis."""
    *operands, out, failure = arrays
    run = run.in_double()
    x = jets(run, operands)
    stack, n, _ = out.shape
    form, vectors = principal_schur(run, x[0], precision_of(out.dtype), failure)
    block = run.empty((len(x), stack, n, n))
    y = [run.part(block, number) for number in range(len(x))]
    inner = [zeros(run, form.shape) if e is None else in_basis_of(run, vectors, e) for e in x[1:]]
    jet_combine(run, 0.0, [(1.0, [form, *inner])], y)
    roots = jet_roots(run, block, 0, MOST_ROOTS, failure)
    result = integrated(run, jet_combine(run, -1.0, [(1.0, y)]))[-1]
    run.launch(scale_by_powers, *entries(result.size), result, roots, 1, result)
    from_basis(run, vectors, result, out)
