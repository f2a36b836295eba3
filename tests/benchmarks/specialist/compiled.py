"""Compilation of the kernels. Numba's cache identifies a kernel by its file: after a change to a
function that kernels of other files call, delete the `.nbi` files in `__pycache__`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config, extending, njit

Function = Callable[..., Any]

intrinsic: Any = extending.intrinsic
"""Numba's, whose types say that the intrinsic takes what its compiler takes."""

THREADS: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]

FREE = {"reassoc", "contract", "nsz", "arcp"}
"""Freedoms of the compiler with sums and products: NaN and infinity keep their meaning."""


def kernel(function: Function) -> Function:
    """A kernel, or a part of one that is called once."""
    compiled: Function = njit(cache=True, error_model="numpy", fastmath=FREE)(function)
    return compiled


def inlined(function: Function) -> Function:
    """A part of a kernel's loops: Numba would call it from them and vectorise nothing."""
    compiled: Function = njit(cache=True, error_model="numpy", fastmath=FREE, forceinline=True)(
        function
    )
    return compiled


def exact(function: Function) -> Function:
    """Inline a function as `inlined` does, but keep its roundings."""
    compiled: Function = njit(
        cache=True, error_model="numpy", fastmath={"contract"}, forceinline=True
    )(function)
    return compiled


def parallel(function: Function) -> Function:
    """A kernel whose prange loops run in Numba's threads."""
    compiled: Function = njit(cache=True, error_model="numpy", fastmath=FREE, parallel=True)(
        function
    )
    return compiled
