"""The sine, cosine and hyperbolic tangent of a matrix and their Fréchet derivatives, by the
exponential."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import empty, zeros
from .exponential import expm_blocks
from .frechet import (
    divide_blocks,
    frechet_blocks,
    largest_column,
    last_entries,
    multiply_blocks,
    scale_blocks,
)


@compiled(counted=True)
def rotations(x):
    """Fréchet blocks of exp([[0, -A], [A, 0]]) = [[cos A, -sin A], [sin A, cos A]], of which only
    the last entry is computed."""
    stack, count, n, _ = x.shape
    wide = zeros((stack, count, 2 * n, 2 * n), np.float64)
    result = empty(wide.shape, wide.dtype)
    for s in range(stack):
        for entry in range(count):
            for i in range(n):
                for j in range(n):
                    wide[s, entry, n + i, j] = x[s, entry, i, j]
                    wide[s, entry, i, n + j] = -x[s, entry, i, j]
        expm_blocks(wide[s], result[s], count - 1)
    return result


@compiled(counted=True)
def cosm(*arrays):
    """out (stack, n, n) = the k-th derivative of the cosine at A, for arrays A, E_1, ... E_k,
    out."""
    last_entries(rotations(frechet_blocks(arrays)), 0, arrays[-1])


@compiled(counted=True)
def sinm(*arrays):
    """out (stack, n, n) = the k-th derivative of the sine at A, for arrays A, E_1, ... E_k,
    out."""
    last_entries(rotations(frechet_blocks(arrays)), arrays[0].shape[1], arrays[-1])


@compiled(counted=True)
def ratio_of_blocks(factor, x, out):
    """out = tanh(y) = (exp(2 y) - I) inv(exp(2 y) + I) for y = factor * x. False at a pole."""
    power = empty(x.shape, x.dtype)
    scale_blocks(2 * factor, x, out)
    expm_blocks(out, power, 0)
    scale_blocks(1.0, power, out)
    for i in range(x.shape[1]):
        out[0, i, i] -= 1.0
        power[0, i, i] += 1.0
    return divide_blocks(out, power)


@compiled(counted=True)
def tanhm_blocks(x, out):
    """out = the hyperbolic tangent of Fréchet blocks. False at a pole.

    The argument is halved until its norm is at most 1, then tanh(2 y) = 2 tanh(y) / (1 +
    tanh(y)**2) doubles it: exponentials of the whole argument would lose digits where some are
    large and others small. Close to a pole of tanh(y), which need not be one of tanh(2 y),
    exponentials start anew."""
    norm = largest_column(x[0])
    doublings = int(np.ceil(np.log2(norm))) if 1 < norm < np.inf else 0
    if not ratio_of_blocks(0.5**doublings, x, out):
        return False
    square = empty(x.shape, x.dtype)
    while doublings > 0:
        doublings -= 1
        if largest_column(out[0]) > 32:
            if not ratio_of_blocks(0.5**doublings, x, out):
                return False
            continue
        multiply_blocks(out, out, square, 0)
        for i in range(x.shape[1]):
            square[0, i, i] += 1.0
        scale_blocks(2.0, out, out)
        if not divide_blocks(out, square):
            return False
    return True


@compiled(counted=True)
def tanhm(*arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out. False where A has an eigenvalue (j + 1/2) pi i, at a pole."""
    x = frechet_blocks(arrays)
    y = empty(x.shape, x.dtype)
    for s in range(x.shape[0]):
        if not tanhm_blocks(x[s], y[s]):
            return False
    last_entries(y, 0, arrays[-1])
    return True
