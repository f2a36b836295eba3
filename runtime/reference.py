"""Evaluation of the NumPy texts in a generated module (DECLARATION, FORMULAS)."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

import numpy as np
import scipy

Values = Mapping[str, "np.ndarray | int"]

MAX_QUICK_ENTRIES = 4096
"""Above this size SciPy's logsumexp is as quick as NumPy's logaddexp, 30 ns an entry."""


class OutOfDomain(ValueError):
    """The text has no finite real value at a point."""


class BrokenText(ValueError):
    """The text cannot be evaluated at all."""


class _Special:
    """scipy.special with a quick logsumexp for small arrays: SciPy's takes 120 us for a vector,
    and is called in each step of a loop over time, for each sample."""

    @staticmethod
    def logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
        if np.size(x) < MAX_QUICK_ENTRIES:
            return np.logaddexp.reduce(x, axis)
        return scipy.special.logsumexp(x, axis)

    def __getattr__(self, name: str) -> Any:
        return getattr(scipy.special, name)


class _SciPy:
    special = _Special()

    def __getattr__(self, name: str) -> Any:
        return getattr(scipy, name)


# NumPy's C code imports modules through the calling frame's builtins.
_SCOPE = {"np": np, "scipy": _SciPy(), "__builtins__": {"__import__": __import__}}


class Text:
    """A NumPy expression. Only `np`, `scipy` and the names given at the call are in its scope."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._code = _compiled(text)

    def __call__(self, values: Values, shape: tuple[int, ...]) -> np.ndarray:
        """Evaluate the text to a float64 array of `shape`; rank-0 arrays are bound as numbers.

        Raises OutOfDomain if the result is not finite or not real, or linear algebra fails;
        BrokenText if the text itself is at fault."""
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(self._evaluate(values))
        except (ArithmeticError, IndexError, ValueError) as error:
            raise OutOfDomain(f"{type(error).__name__}: {error}") from error
        except (AttributeError, ImportError, KeyError, NameError, TypeError) as error:
            raise BrokenText(f"{type(error).__name__}: {error}, in {self.text}") from error
        return _real(result, shape)

    def overflows(self, values: Values) -> bool:
        """Return whether an operation of NumPy overflows on the way to the value."""
        try:
            with np.errstate(all="ignore", over="raise"):
                self._evaluate(values)
        except FloatingPointError:
            return True
        return False

    def _evaluate(self, values: Values) -> Any:
        scope = {
            name: value[()] if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }
        return eval(self._code, {**_SCOPE, **scope})


def _compiled(text: str) -> CodeType:
    try:
        return compile(f"(\n{text}\n)", "<formula>", "eval")
    except (SyntaxError, ValueError) as error:
        raise BrokenText(f"not a Python expression ({error}): {text}") from error


def _real(result: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if result.shape != shape:
        raise OutOfDomain(f"the text gives shape {result.shape}, expected {shape}")
    if result.dtype.kind not in "biufc":
        raise BrokenText(f"the text gives an array of {result.dtype}")
    if result.dtype.kind == "c":
        # Some of SciPy's matrix functions return real results as complex, with rounding errors.
        if np.abs(result.imag).max(initial=0.0) > 1e-13 * np.abs(result).max(initial=0.0):
            raise OutOfDomain("the value is complex")
        result = result.real
    result = result.astype(np.float64)
    if not np.isfinite(result).all():
        raise OutOfDomain("the value is not finite")
    return result
