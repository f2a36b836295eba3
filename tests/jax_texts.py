"""NumPy texts in JAX: evaluated with JAX's `numpy` and `scipy`, in float64, and differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

Arrays = dict[str, np.ndarray]
UNKNOWN = (AttributeError, NotImplementedError)
"""Errors of calling or differentiating a text without a counterpart in JAX."""


def jax_function(text: str) -> Callable[[Arrays], Any]:
    """The function of named arrays that a text stands for; JAX has complex numbers for some that
    are real."""
    code = compile(f"(\n{text}\n)", "<declaration>", "eval")
    return lambda values: jax.numpy.real(
        eval(code, {"np": jax.numpy, "scipy": jax.scipy, **values})
    )
