"""The matrix exponential and its Fréchet derivatives, by scaling and squaring with a Padé
approximant (Higham 2005)."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import empty, give_back, work_arrays
from .blas import gemm
from .frechet import (
    combine_blocks,
    divide_blocks,
    frechet_blocks,
    largest_column,
    last_entries,
    multiply_blocks,
    scale_blocks,
)

MAX_NORMS = 1.08e-2, 0.2, 0.783, 4.74
"""Largest 1-norms for which the approximants of degree 3, 5, 7 and 13 suffice, also for the
derivatives (Al-Mohy and Higham 2009, "Computing the Fréchet derivative of the matrix
exponential")."""


@compiled()
def superfluous_halvings(terms, halvings, sums, product):
    """Count the halvings that the approximant of degree 13 does not need (Al-Mohy and
    Higham 2009, algorithm 6.1).

    The powers of a matrix far from normal grow more slowly than those of its norm, which has set
    the number of halvings. terms: Fréchet blocks of the powers 0, 2, 4, 6 of the halved matrix, a
    work array, and that matrix; sums, product: work vectors."""
    bound = max_superfluous_halvings(terms[5, 0], sums, product)
    if bound < 1:
        return 0
    growth = 0.0
    for i in range(2, 4):
        growth = max(growth, largest_column(terms[i, 0]) ** (0.5 / i))
    later = 0.0
    for i in range(2, 4):
        gemm(1.0, terms[2, 0], False, terms[i, 0], False, 0.0, terms[4, 0])
        later = max(later, largest_column(terms[4, 0]) ** (0.5 / (2 + i)))
    growth = min(growth, later)
    superfluous = halvings
    if growth * 2.0**halvings > MAX_NORMS[3]:
        superfluous = int(np.floor(np.log2(MAX_NORMS[3] / growth)))
    return int(min(superfluous, bound))


@compiled()
def max_superfluous_halvings(a, sums, product):
    """Return the largest number of superfluous halvings for which the error of the approximant
    stays within rounding: it is bounded by 2**-116.45 times the norm of abs(a)**27, relative to
    that of abs(a).

    If the column sums of a power are between r and R times those of the power before, then so are
    those of all later powers (Collatz 1942): most often a few powers decide.
    """
    n = a.shape[0]
    sums[:] = 1.0
    log_bound = 116.45 - 53 + np.log2(largest_column(a))
    for power in range(1, 28):
        product[:] = 0.0
        for i in range(n):
            factor = sums[i]
            for j in range(n):
                product[j] += factor * abs(a[i, j])
        largest = 0.0
        for j in range(n):
            largest = max(largest, product[j])
        if largest == 0:
            return np.inf
        log_bound -= np.log2(largest)
        if power % 4 == 3 and power < 27:
            low, high = np.inf, 0.0
            for j in range(n):
                low, high = min(low, product[j] / sums[j]), max(high, product[j] / sums[j])
            steps = 27 - power
            halvings = np.floor((log_bound - steps * np.log2(high)) / 26)
            if halvings == np.floor((log_bound - steps * np.log2(low)) / 26):
                return halvings
        for j in range(n):
            sums[j] = product[j] / largest
    return np.floor(log_bound / 26)


@compiled()
def expm_blocks(x, out, first_entry):
    """out = the exponential of Fréchet blocks, from the entry `first_entry` on.

    The norm chooses the degree of the approximant; a matrix of a larger norm is halved until degree
    13 suffices."""
    norm = largest_column(x[0])
    squarings = int(np.ceil(np.log2(norm / MAX_NORMS[3]))) if MAX_NORMS[3] < norm < np.inf else 0
    degree = 13
    if norm <= MAX_NORMS[2]:
        degree = 3 if norm <= MAX_NORMS[0] else 5 if norm <= MAX_NORMS[1] else 7
    n = x.shape[1]
    terms, pade, weights, sums, product, memory = work_arrays(
        x, ((8, *x.shape), (15,), (7,), (n,), (n,)), ()
    )  # terms: powers 0, 2, 4, 6, a product, x, even and odd part
    terms[0] = pade[:] = weights[:] = 0.0
    for i in range(n):
        terms[0, 0, i, i] = 1.0
    scale_blocks(0.5**squarings, x, terms[5])
    multiply_blocks(terms[5], terms[5], terms[1], 0)
    for i in range(2, min(degree // 2, 3) + 1):
        multiply_blocks(terms[i - 1], terms[1], terms[i], 0)
    if squarings > 0:
        superfluous = superfluous_halvings(terms, squarings, sums, product)
        squarings -= superfluous
        if superfluous > 0:  # the factors of the powers, 4**superfluous and so on, may overflow
            scale_blocks(2.0**superfluous, terms[5], terms[5])
            multiply_blocks(terms[5], terms[5], terms[1], 0)
            multiply_blocks(terms[1], terms[1], terms[2], 0)
            multiply_blocks(terms[2], terms[1], terms[3], 0)
    pade[0] = 1.0
    for j in range(1, degree + 1):
        pade[j] = pade[j - 1] * (degree + 1 - j) / (j * (2 * degree + 1 - j))
    for odd in range(2):
        if degree == 13:
            for i in range(1, 4):
                weights[i] = pade[6 + odd + 2 * i]
            weights[0] = weights[4] = 0.0
            combine_blocks(weights, terms, terms[6 + odd])
            multiply_blocks(terms[3], terms[6 + odd], terms[4], 0)
            weights[4] = 1.0
        for i in range(4):
            weights[i] = pade[odd + 2 * i]
        combine_blocks(weights, terms, terms[6 + odd])
    multiply_blocks(terms[5], terms[7], terms[4], 0)
    weights[:4] = 0.0
    weights[4] = 1.0
    weights[6] = 1.0
    combine_blocks(weights, terms, out)
    weights[4] = -1.0
    combine_blocks(weights, terms, terms[7])
    divide_blocks(out, terms[7])
    power, square = out, terms[4]
    for remaining in range(squarings, 0, -1):
        multiply_blocks(power, power, square, 0 if remaining > 1 else first_entry)
        power, square = square, power
    if squarings % 2 == 1:
        scale_blocks(1.0, power[first_entry:], out[first_entry:])
    give_back(memory)


@compiled(counted=True)
def expm(*arrays):
    """out (stack, n, n) = the k-th derivative of the exponential at A, for arrays A, E_1, ...
    E_k, out."""
    x = frechet_blocks(arrays)
    y = empty(x.shape, x.dtype)
    for s in range(x.shape[0]):
        expm_blocks(x[s], y[s], x.shape[1] - 1)
    last_entries(y, 0, arrays[-1])
