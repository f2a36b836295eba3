"""The matrix logarithm and its Fréchet derivatives, by inverse scaling and squaring (Higham,
Functions of Matrices, 2008, section 11.5): square roots until Gauss-Legendre quadrature
suffices."""

# mypy: allow-untyped-defs

import numpy as np

from .frechet import combine_blocks, divide_blocks, frechet_blocks, last_entries, scaled_blocks
from .norms import precision_of
from .roots import principal_schur, roots_of_blocks
from .shares import clear
from .sylvester import from_basis, in_basis_of

NODES = np.polynomial.legendre.leggauss(8)[0] / 2 + 0.5
WEIGHTS = np.polynomial.legendre.leggauss(8)[1] / 2
MAX_ROOTS = 1000
"""Largest number of square roots."""


def integrated(run, z):
    """The logarithm of Fréchet blocks I + Z: the integral of Z inv(I + t Z) over t from 0 to 1. For
    norms of Z up to 1/4, eight nodes give an error below 1e-17."""
    total = None
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        part = combine_blocks(run, 0.0, [(float(weight), z)])
        divide_blocks(run, part, combine_blocks(run, 1.0, [(float(node), z)]))
        if total is None:
            total = part
        else:
            combine_blocks(run, 0.0, [(1.0, total), (1.0, part)], total)
    return total


def logm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the principal logarithm at A, for arrays A, E_1,
    ... E_k, out, failure. Fails where an eigenvalue of A lies on the closed negative real axis."""
    *operands, out, failure = arrays
    run = run.in_double()
    x = frechet_blocks(run, operands)
    stack, n, _ = out.shape
    block = run.empty((len(x), stack, n, n), np.complex128)
    form, *inner = [run.part(block, number) for number in range(len(x))]
    vectors = principal_schur(run, x[0], form, precision_of(out.dtype), failure)
    for direction, part in zip(x[1:], inner, strict=True):
        if direction is None:
            direction = run.empty(form.shape)
            clear(run, direction)
        in_basis_of(run, vectors, direction, vectors, part)
    roots = roots_of_blocks(run, block, 0, MAX_ROOTS, failure)
    root = [run.empty(form.shape) for _ in x]
    for part, target in zip((form, *inner), root, strict=True):
        from_basis(run, vectors, part, vectors, target)
    result = integrated(run, combine_blocks(run, -1.0, [(1.0, root)]))
    last_entries(run, scaled_blocks(run, result, run.to_host(roots)), out)
