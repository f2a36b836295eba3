"""NumPy's methods of arrays, for symbolic ones: each is the function of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from derivatrix.compiler.ir.broadcasting import Axis
from derivatrix.compiler.ir.hooks import hooks
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.compiler.ir.arrays import Array


class Methods:
    """What a symbolic array can be asked for by NumPy's method names."""

    __slots__ = ()

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The sum over `axis` (all axes by default)."""
        return _call("sum", self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The mean over `axis` (all axes by default)."""
        return _call("mean", self, axis, keepdims=keepdims)

    def var(self, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Array:
        """The variance over `axis` (all axes by default); see `derivatrix.var`."""
        return _call("var", self, axis, ddof=ddof, keepdims=keepdims)

    def std(self, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Array:
        """The standard deviation over `axis` (all axes by default); see `derivatrix.std`."""
        return _call("std", self, axis, ddof=ddof, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The largest entry over `axis` (all axes by default); see `derivatrix.max`."""
        return _call("max", self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The least entry over `axis` (all axes by default); see `derivatrix.max`."""
        return _call("min", self, axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """The product over `axis` (all axes by default); see `derivatrix.prod`."""
        return _call("prod", self, axis, keepdims=keepdims)

    def cumsum(self, axis: int = -1) -> Array:
        """The running sum along `axis`."""
        return _call("cumsum", self, axis)

    def clip(self, low: object = None, high: object = None) -> Array:
        """Entries limited to low .. high."""
        return _call("clip", self, low, high)

    def trace(self, offset: int = 0) -> Array:
        """The sum of a diagonal of a matrix."""
        return _call("trace", self, offset)

    def diagonal(self, offset: int = 0) -> Array:
        """A diagonal of a matrix."""
        return _call("diagonal", self, offset)

    def dot(self, other: object) -> Array:
        """The matrix product, as `@`; scalars multiply."""
        return _call("dot", self, other)

    def transpose(self, *axes: Any) -> Array:
        """The axes in the order given (reversed by default)."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _call("transpose", self, order or None)

    def swapaxes(self, first: int, second: int) -> Array:
        """Two axes exchanged."""
        return _call("swapaxes", self, first, second)

    def squeeze(self, axis: Axis = None) -> Array:
        """Axes of literal length 1 removed (all of them by default)."""
        return _call("squeeze", self, axis)

    def reshape(self, *shape: Any) -> Array:
        """The same entries, in C order, in another shape; one length may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return _call("reshape", self, given)

    def ravel(self) -> Array:
        """All entries in C order, as a vector."""
        return _call("ravel", self)

    def flatten(self) -> Array:
        """All entries in C order, as a vector."""
        return _call("ravel", self)

    def copy(self) -> Self:
        """The array itself, which cannot change."""
        return self

    def conj(self) -> Self:
        """The array itself, which is real."""
        return self

    conjugate = conj

    @property
    def real(self) -> Self:
        """The array itself, which is real."""
        return self

    def astype(self, dtype: Any) -> Self:
        """The array itself: kernels work in the floating-point type of their inputs. Raises
        UnsupportedError for types that are not floating-point."""
        if np.dtype(dtype).kind != "f":
            raise UnsupportedError(
                f"astype({dtype!r}): a symbolic array stands for floating-point numbers; use "
                "where, floor or ceil"
            )
        return self

    def __round__(self, digits: int | None = None) -> Self:
        raise UnsupportedError(f"round has no rule for symbolic arrays{hint('round')}")

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
"""What to do instead of some of NumPy's attributes."""


def hint(name: str) -> str:
    """What to do instead of NumPy's attribute or function `name`, after a semicolon; or ""."""
    if name in HINTS:
        return f"; {HINTS[name]}"
    return f"; use derivatrix.{name}" if hooks.function(name) else ""


def _call(name: str, *arguments: Any, **options: Any) -> Array:
    """What the public function of this name returns."""
    function = hooks.function(name)
    assert function is not None
    return function(*arguments, **options)
