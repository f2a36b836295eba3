"""NumPy's methods of arrays, for symbolic ones: each calls NumPy's function of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from derivatrix.compiler.ir.hooks import hooks
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.compiler.ir.arrays import Array


def _method(name: str) -> Callable[..., Array]:
    """Return the method that calls NumPy's function of this name."""

    def method(self: Methods, *arguments: Any, **options: Any) -> Array:
        return getattr(np, name)(self, *arguments, **options)

    method.__name__ = name
    method.__doc__ = f"Call `numpy.{name}`."
    return method


class Methods:
    """The methods of NumPy's arrays that symbolic arrays have."""

    __slots__ = ()

    sum = _method("sum")
    mean = _method("mean")
    var = _method("var")
    std = _method("std")
    max = _method("max")
    min = _method("min")
    prod = _method("prod")
    cumsum = _method("cumsum")
    cumprod = _method("cumprod")
    trace = _method("trace")
    diagonal = _method("diagonal")
    dot = _method("dot")
    swapaxes = _method("swapaxes")
    squeeze = _method("squeeze")
    take = _method("take")
    ravel = _method("ravel")
    flatten = _method("ravel")

    def clip(self, min: Any = None, max: Any = None, **options: Any) -> Array:
        """Clip as `numpy.clip`."""
        return np.clip(self, min, max, **options)  # type: ignore[call-overload]

    def transpose(self, *axes: Any) -> Array:
        """Permute the axes; by default reverse them."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return np.transpose(self, order or None)  # type: ignore[call-overload]

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        """Reshape as `derivatrix.reshape`; one length may be -1."""
        lengths = shape[0] if len(shape) == 1 else shape
        return np.reshape(self, lengths, order=order)  # type: ignore[call-overload]

    def copy(self, order: str = "C") -> Self:
        """Return the array itself, which cannot change."""
        return self

    def conj(self) -> Self:
        """Return the array itself, which is real."""
        return self

    conjugate = conj

    @property
    def real(self) -> Self:
        """The array itself."""
        return self

    def diff(self, *symbols: Any, **options: Any) -> Any:
        """Refuse SymPy's derivative, which would be 0. Raises UnsupportedError."""
        raise UnsupportedError(
            "SymPy cannot differentiate symbolic arrays; declare derivatrix.function(name, inputs, "
            "expression) and ask for its derivatives; differences of neighbours are numpy.diff"
        )

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """Return the array itself: kernels work in the floating-point type of their inputs. Raises
        UnsupportedError for other types."""
        if np.dtype(dtype).kind != "f":
            raise UnsupportedError(
                f"astype({dtype!r}): a symbolic array stands for floating-point numbers; use "
                "where, floor or ceil"
            )
        return self

    def __round__(self, digits: int | None = None) -> Self:
        raise UnsupportedError(f"round has no rule for symbolic arrays{hint('round')}")

    if not TYPE_CHECKING:  # checkers are to find what is not there

        def __getattr__(self, name: str) -> Any:
            text = f"a symbolic array has no attribute {name!r}"
            if not name.startswith("_"):
                text += hint(name)
            raise AttributeError(text)


HINTS = {
    "I": "use derivatrix.inv",
    "H": "use .T; every array is real",
    "argmax": "positions have no derivative",
    "argmin": "positions have no derivative",
    "dtype": "kernels work in the floating-point type of their inputs",
    "fill": "use derivatrix.full",
    "imag": "every array is real",
    "item": "index it, as in x[0]",
    "round": "its derivative is 0; use floor or ceil if that is meant",
    "tolist": "it holds no numbers",
}
"""Replacements for some of NumPy's attributes, in error messages."""


def hint(name: str) -> str:
    """Return the replacement for NumPy's attribute or function `name`, after a semicolon; or ""."""
    if name in HINTS:
        return f"; {HINTS[name]}"
    return f"; use derivatrix.{name}" if hooks.function(name) else ""
