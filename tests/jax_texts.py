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
    scope = {"np": _NUMPY, "scipy": jax.scipy}
    return lambda values: jax.numpy.real(eval(code, {**scope, **values}))


class _Numpy:
    """JAX's `numpy`, with what it lacks of NumPy's parameters."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax.numpy, name)

    def vectorize(self, function: Callable[..., Any], otypes: str = "", **options: Any) -> Any:
        return jax.numpy.vectorize(function, **options)

    def argsort(self, array: Any, axis: int = -1, kind: str = "stable") -> Any:
        return jax.numpy.argsort(array, axis, stable=kind == "stable")

    def min(self, array: Any, *arguments: Any, **options: Any) -> Any:
        return jax.numpy.min(jax.numpy.asarray(array), *arguments, **options)

    def max(self, array: Any, *arguments: Any, **options: Any) -> Any:
        return jax.numpy.max(jax.numpy.asarray(array), *arguments, **options)


_NUMPY = _Numpy()
