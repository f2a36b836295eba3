"""Arithmetic with Fréchet blocks, which gives functions of a matrix and their Fréchet derivatives.

Fréchet blocks of a stack of matrices are a list of 2**k float64 arrays (stack, n, n), or None for
zero: a polynomial in e_1 ... e_k with e_i e_i = 0, whose entry number S, a bit mask, is the
coefficient of the product of the e_i with i in S. The last entry of f(A + e_1 E_1 + ... + e_k E_k)
is the k-th Fréchet derivative of f at A in the directions E_1 ... E_k (Mathias 1996, Higham and
Relton 2014). The `run` is one in float64."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import kernel, position
from .blas import gemm, product
from .copies import copied, copy_block
from .lu import lu_factor, lu_invertible, lu_solve_rows


@kernel(
    "float64, float64, float64[:, :, ::1], float64, float64[:, :, ::1], float64, "
    "float64[:, :, ::1], float64, float64[:, :, ::1], float64[:, :, ::1]"
)
def combine_four(diagonal, p, a, q, b, r, c, t, d, out):
    """out = diagonal I + p a + q b + r c + t d. Terms of weight zero are not read."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        total = diagonal if i == j else 0.0
        if p != 0:
            total += p * a[s, i, j]
        if q != 0:
            total += q * b[s, i, j]
        if r != 0:
            total += r * c[s, i, j]
        if t != 0:
            total += t * d[s, i, j]
        out[s, i, j] = total


@kernel("float64[:, :, ::1], int32[::1], float64[:, :, ::1]")
def scale_by_powers(a, exponents, out):
    """out[s] = a[s] 2**exponents[s]."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        out[s, i, j] = math.ldexp(a[s, i, j], exponents[s])


def combined(run, diagonal, *pairs, out=None):
    """diagonal I + the sum of weight * array for at most four pairs (weight, array), in a new array
    or in `out`."""
    target = run.empty(pairs[0][1].shape) if out is None else out
    padding = [(0.0, pairs[0][1])] * (4 - len(pairs))
    arguments = [value for pair in (*pairs, *padding) for value in pair]
    run.launch(combine_four, target.size, diagonal, *arguments, target)
    return target


def widened(run, a):
    """The array itself if it is float64, else a float64 copy."""
    return a if a.dtype == np.float64 else copied(run, a, np.float64)


def frechet_blocks(run, arrays):
    """The Fréchet blocks of A, E_1, ... E_k, all (stack, n, n)."""
    blocks = [widened(run, arrays[0])]
    for array in arrays[1:]:
        blocks = [*blocks, widened(run, array), *([None] * (len(blocks) - 1))]
    return blocks


def combine_blocks(run, diagonal, terms, out=None):
    """diagonal I + the sum of weight * blocks for at most four pairs (weight, blocks), in new
    arrays or in the blocks `out`."""
    result: list = []
    for entry, _ in enumerate(terms[0][1]):
        present = [(weight, blocks[entry]) for weight, blocks in terms if blocks[entry] is not None]
        entry_diagonal = 0.0 if entry else diagonal
        target = None if out is None else out[entry]
        result.append(combined(run, entry_diagonal, *present, out=target) if present else None)
    return result


def scaled_blocks(run, x, exponents):
    """x 2**exponents in new arrays, for integers (stack,) of the host."""
    powers = run.to_device(exponents, np.int32)
    result = []
    for entry in x:
        if entry is not None:
            scaled = run.empty(entry.shape)
            run.launch(scale_by_powers, entry.size, entry, powers, scaled)
            entry = scaled
        result.append(entry)
    return result


def subsets(mask):
    """Yield all subsets of a bit mask, itself first."""
    part = mask
    while part > 0:
        yield part
        part = (part - 1) & mask
    yield 0


def multiply_blocks(run, x, y):
    """The product of Fréchet blocks, in new arrays."""
    result: list = []
    for mask in range(len(x)):
        target = None
        for part in subsets(mask):
            left, right = x[part], y[mask ^ part]
            if left is not None and right is not None:
                if target is None:
                    target = product(run, left, False, right, False)
                else:
                    gemm(run, 1.0, left, False, right, False, 1.0, target)
        result.append(target)
    return result


def divide_blocks(run, y, x, failure=None):
    """Replace y, which has no entry None, by y inv(x), and x[0] by its LU factors. With `failure`,
    fails where x has no inverse."""
    pivots = run.empty(x[0].shape[:2], np.int32)
    lu_factor(run, x[0], pivots)
    if failure is not None:
        lu_invertible(run, x[0], failure)
    for mask in range(len(y)):
        for part in subsets(mask):
            if part > 0 and x[part] is not None:
                gemm(run, -1.0, y[mask ^ part], False, x[part], False, 1.0, y[mask])
        lu_solve_rows(run, x[0], pivots, y[mask], True)


def last_entries(run, blocks, out, top=0):
    """out (stack, n, n) = the block at row `top` and column 0 of the last entry."""
    copy_block(run, blocks[-1], out, top=top)
