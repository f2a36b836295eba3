"""The gradient of Σ tanh(x exp(-x²))."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.elementary import vexp


@kernel
def chain_part(x, out):
    """|x exp(-x²)| is at most 0.43, where this polynomial in
    its square is 1 - tanh² to all digits."""
    for i in range(len(x)):
        square = x[i] * x[i]
        bell = vexp(-square)
        t = square * bell * bell
        p = 0.0013145332232492972
        p = p * t - 0.004253901581913493
        p = p * t + 0.009961864259410244
        p = p * t - 0.021827245560109492
        p = p * t + 0.04669666804973559
        p = p * t - 0.09749552842751752
        p = p * t + 0.1968253943812163
        p = p * t - 0.37777777772180204
        p = p * t + 0.666666666666008
        p = p * t - 0.999999999999997
        p = p * t + 1.0
        out[i] = p * (1.0 - 2.0 * square) * bell


@parallel
def chain_parts(parts, x, out):
    n = len(x)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        chain_part(x[start:stop], out[start:stop])


def chain_gradient(x: np.ndarray) -> np.ndarray:
    """x and the result: (n,)."""
    out = np.empty(len(x))
    if THREADS > 1 and len(x) > 20_000:
        chain_parts(THREADS, x, out)
    else:
        chain_part(x, out)
    return out


KERNELS = {"Σ tanh(x exp(-x²)) gradient": chain_gradient}
