"""Arithmetic with Fréchet blocks, which gives functions of a matrix and their Fréchet derivatives.

Fréchet blocks are a float64 array (2**k, n, n): a polynomial in e_1 ... e_k with e_i e_i = 0, whose
entry number S, a bit mask, is the coefficient of the product of the e_i with i in S. The last entry
of f(A + e_1 E_1 + ... + e_k E_k) is the k-th Fréchet derivative of f at A in the directions E_1 ...
E_k: the top right block of f of the block triangular matrix of Mathias (1996) and of Higham and
Relton (2014), whose blocks are these entries."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import give_back, of_one_type, work_arrays, zeros
from .blas import gemm
from .lu import lu_factor, lu_inverse, lu_invertible

CHUNK_ENTRIES = 1024
"""Number of entries that are summed at a time, so that they stay in the L1 cache."""


@compiled(counted=True)
def frechet_blocks(arrays):
    """Make the Fréchet blocks (stack, 2**k, n, n) of A, E_1, ... E_k, all (stack, n, n). The last
    of `arrays` is the result's and is not read."""
    stack, n, _ = arrays[0].shape
    result = zeros((stack, 1 << (len(arrays) - 2), n, n), np.float64)
    inputs = of_one_type(arrays)
    for place in range(len(arrays) - 1):
        array, entry = inputs[place], (1 << place) >> 1
        for s in range(stack):
            for i in range(n):
                for j in range(n):
                    result[s, entry, i, j] = array[s, i, j]
    return result


@compiled()
def last_entries(results, top, out):
    """out (stack, n, n) = the block of the last entry of the Fréchet blocks `results` (stack, 2**k,
    ...) that begins at row `top` and column 0."""
    stack, n, _ = out.shape
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                out[s, i, j] = results[s, -1, top + i, j]


@compiled()
def multiply_blocks(x, y, out, first_entry):
    """out = the product of Fréchet blocks, from the entry `first_entry` on."""
    for s in range(first_entry, x.shape[0]):
        t = s
        beta = 0.0
        while t >= 0:
            gemm(1.0, x[t], False, y[s ^ t], False, beta, out[s])
            beta = 1.0
            t = (t - 1) & s if t > 0 else -1


@compiled()
def divide_blocks(y, x):
    """Replace y by y inv(x), and x[0] by its LU factors. False where x has no inverse.

    Products with the inverse take less time than solutions: LAPACK's solver is slow for many
    right-hand sides, and waits for threads."""
    lu = x[:1]
    inverse, numerator, pivots, memory = work_arrays(x, (lu.shape, lu.shape), (lu.shape[:2],))
    lu_factor(lu, pivots)
    if not lu_invertible(lu):
        give_back(memory)
        return False
    lu_inverse(lu, pivots, inverse)
    for s in range(x.shape[0]):
        t = s
        while t > 0:
            gemm(-1.0, y[s ^ t], False, x[t], False, 1.0, y[s])
            t = (t - 1) & s
        scale_blocks(1.0, y[s : s + 1], numerator)
        gemm(1.0, numerator[0], False, inverse[0], False, 0.0, y[s])
    give_back(memory)
    return True


@compiled()
def combine_blocks(weights, terms, out):
    """out = the sum of weights[i] * terms[i], a chunk at a time. Terms of weight zero are not read:
    they may be uninitialised."""
    flat, entries = out.reshape(out.size), terms.reshape(len(terms), out.size)
    for start in range(0, flat.size, CHUNK_ENTRIES):
        chunk = flat[start : start + CHUNK_ENTRIES]
        chunk[:] = 0.0
        for k in range(len(weights)):
            if weights[k] != 0:
                factor, term = weights[k], entries[k, start : start + CHUNK_ENTRIES]
                for i in range(chunk.size):
                    chunk[i] += factor * term[i]


@compiled()
def scale_blocks(factor, x, out):
    """out = factor * x, for the first len(x) entries of `out`."""
    flat, entries = out.reshape(out.size), x.reshape(x.size)
    for i in range(entries.size):
        flat[i] = factor * entries[i]


@compiled()
def largest_column(a):
    """Compute the 1-norm of a matrix; nan if an entry is nan."""
    totals, memory = work_arrays(a, ((a.shape[1],),), ())
    totals[:] = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            totals[j] += abs(a[i, j])
    largest = 0.0
    for total in totals:
        if not total <= largest:
            largest = total
    give_back(memory)
    return largest
