"""The sine, cosine and hyperbolic tangent of jets, through the exponential."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .exponential import jet_expm
from .jets import jet_divide, jet_multiply, jet_scale, jets, largest_column, last_entries


@compiled(counted=True)
def rotations(x):
    """The last entries of exponentials of the jets [[0, -A], [A, 0]]: of [[cos A, -sin A],
    [sin A, cos A]]."""
    stack, count, n, _ = x.shape
    wide = np.zeros((stack, count, 2 * n, 2 * n))
    result = np.empty_like(wide)
    for s in range(stack):
        for entry in range(count):
            for i in range(n):
                for j in range(n):
                    wide[s, entry, n + i, j] = x[s, entry, i, j]
                    wide[s, entry, i, n + j] = -x[s, entry, i, j]
        jet_expm(wide[s], result[s], count - 1)
    return result


@compiled(counted=True)
def cosm(*arrays):
    """out (stack, n, n) = the k-th derivative of the cosine at A, for arrays A, E_1, ... E_k,
    out."""
    last_entries(rotations(jets(arrays)), 0, 0, arrays[-1])


@compiled(counted=True)
def sinm(*arrays):
    """out (stack, n, n) = the k-th derivative of the sine at A, for arrays A, E_1, ... E_k,
    out."""
    last_entries(rotations(jets(arrays)), arrays[0].shape[1], 0, arrays[-1])


@compiled(counted=True)
def jet_ratio(factor, x, out):
    """out = (exp(2 y) - I) inv(exp(2 y) + I) for y = factor * x. False where it has a pole."""
    power = np.empty_like(x)
    jet_scale(2 * factor, x, out)
    jet_expm(out, power)
    jet_scale(1.0, power, out)
    for i in range(x.shape[1]):
        out[0, i, i] -= 1.0
        power[0, i, i] += 1.0
    return jet_divide(out, power)


@compiled(counted=True)
def jet_tanhm(x, out):
    """out = the hyperbolic tangent of a jet. False where it has a pole.

    From a fraction of the argument on by tanh(2 y) = 2 tanh(y) / (1 + tanh(y)**2), which loses
    nothing where exponentials are large and small at once; close to a pole of tanh(y), which
    need not be one of tanh(2 y), by exponentials again.
    """
    norm = largest_column(x[0])
    doublings = int(np.ceil(np.log2(norm))) if 1 < norm < np.inf else 0
    if not jet_ratio(0.5**doublings, x, out):
        return False
    square = np.empty_like(x)
    while doublings > 0:
        doublings -= 1
        if largest_column(out[0]) > 32:
            if not jet_ratio(0.5**doublings, x, out):
                return False
            continue
        jet_multiply(out, out, square)
        for i in range(x.shape[1]):
            square[0, i, i] += 1.0
        jet_scale(2.0, out, out)
        if not jet_divide(out, square):
            return False
    return True


@compiled(counted=True)
def tanhm(*arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out. False where A has an eigenvalue (j + 1/2) pi i, at a pole."""
    x = jets(arrays)
    y = np.empty_like(x)
    for s in range(x.shape[0]):
        if not jet_tanhm(x[s], y[s]):
            return False
    last_entries(y, 0, 0, arrays[-1])
    return True
