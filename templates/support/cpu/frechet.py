"""Functions of a matrix together with their Fréchet derivatives, by arithmetic on Fréchet blocks.

Fréchet blocks are an array (2**k, n, n), read as a polynomial in e_1 ... e_k with e_i e_i = 0:
entry number S, a bit mask, is the coefficient of the product of the e_i with i in S. For f of the
blocks A + e_1 E_1 + ... + e_k E_k the last entry is the k-th Fréchet derivative of f at A in the
directions E_1 ... E_k: it is the top right block of f of the block triangular matrix of Mathias
(1996) and of Higham and Relton (2014), whose blocks are these entries. They are float64.
"""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import literal_unroll

from ..internals.functions import compiled
from ..internals.memory import give_back, work_arrays
from .blas import gemm
from .lu import lu_factor, lu_inverse, lu_invertible

NEAR = 1024
"""Entries that are added up while they are in the nearest cache."""


@compiled(counted=True)
def frechet_blocks(arrays):
    """The Fréchet blocks (stack, 2**k, n, n) of A, E_1, ... E_k, all (stack, n, n); the last of
    `arrays`, where the result goes, is left out."""
    stack, n, _ = arrays[0].shape
    result = np.zeros((stack, 1 << (len(arrays) - 2), n, n))
    place = 0
    for array in literal_unroll(arrays):
        if place < result.shape[1]:
            for s in range(stack):
                for i in range(n):
                    for j in range(n):
                        result[s, place, i, j] = array[s, i, j]
        place = max(1, 2 * place)
    return result


@compiled()
def last_entries(results, row, column, out):
    """out (stack, n, n) = what is from `row` and `column` on in the last Fréchet blocks."""
    stack, n, _ = out.shape
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                out[s, i, j] = results[s, -1, row + i, column + j]


@compiled()
def multiply_blocks(x, y, out, first):
    """out = the product of Fréchet blocks, from the entry `first` on."""
    for s in range(first, x.shape[0]):
        t = s
        kept = 0.0
        while t >= 0:
            gemm(1.0, x[t], False, y[s ^ t], False, kept, out[s])
            kept = 1.0
            t = (t - 1) & s if t > 0 else -1


@compiled()
def divide_blocks(y, x):
    """Replace y by y inv(x), and x[0] by its factors. False where x has no inverse.

    Two products with the inverse take less than two solutions: LAPACK's solver is slow for many
    right-hand sides, and waits for threads."""
    lu = x[:1]
    inverse, rest, pivots, memory = work_arrays(x, (lu.shape, lu.shape), (lu.shape[:2],))
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
        scale_blocks(1.0, y[s : s + 1], rest)
        gemm(1.0, rest[0], False, inverse[0], False, 0.0, y[s])
    give_back(memory)
    return True


@compiled()
def combine_blocks(weights, terms, out):
    """out = the sum of weights[i] * terms[i] over the first len(weights) terms, of which those of
    weight zero are not read."""
    flat, entries = out.reshape(out.size), terms.reshape(len(terms), out.size)
    for start in range(0, flat.size, NEAR):
        own = flat[start : start + NEAR]
        own[:] = 0.0
        for k in range(len(weights)):
            if weights[k] != 0:
                factor, term = weights[k], entries[k, start : start + NEAR]
                for i in range(own.size):
                    own[i] += factor * term[i]


@compiled()
def scale_blocks(factor, x, out):
    """out = factor * x, from its first entry on if x has fewer."""
    flat, entries = out.reshape(out.size), x.reshape(x.size)
    for i in range(entries.size):
        flat[i] = factor * entries[i]


@compiled()
def largest_column(a):
    """The 1-norm of a matrix; nan if there is one in it."""
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
