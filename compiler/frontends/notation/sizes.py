"""Unknown sizes, of `eye` and `ones`, and the equations that determine them."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.runtime.errors import NotationError

Complaint = Callable[[], NotationError]
"""Makes the error for two sizes that turn out to differ."""


class Sizes:
    """Unknown sizes and their equations.

    An equation that determines an unknown size is used at once, others when more is known:
    kron(eye, A) gives only a product a*n at first."""

    def __init__(self) -> None:
        self._values: dict[sympy.Symbol, Dimension] = {}
        self._pending: list[tuple[Dimension, Complaint]] = []
        self._count = 0

    def copy(self) -> Sizes:
        """Copy the state, so that what is equated afterwards can be given up."""
        copied = Sizes()
        copied._values, copied._pending = self._values, [*self._pending]
        copied._count = self._count
        return copied

    def unknown(self) -> sympy.Symbol:
        """Create an unknown size. A name with "?" cannot occur in a text."""
        self._count += 1
        return dimensions.symbol(f"?{self._count}")

    def known(self, shape: Shape) -> Shape:
        """Substitute the unknowns that are determined."""
        return tuple(sympy.expand(size.xreplace(self._values)) for size in shape)

    def missing(self, shape: Shape) -> bool:
        """Check whether a size of the shape is still unknown."""
        return any(_unknowns(size) for size in self.known(shape))

    def shown(self, size: Dimension) -> str:
        """Write a size in error messages."""
        (value,) = self.known((size,))
        return "?" if _unknowns(value) else str(value)

    def differ(self, left: Dimension, right: Dimension) -> bool:
        """Check whether two sizes are known to differ."""
        (difference,) = self.known((left - right,))
        return difference != 0 and not _unknowns(difference)

    def equate(self, left: Dimension, right: Dimension, complaint: Complaint) -> None:
        """State that two sizes are equal. Raises the complaint if they cannot be."""
        if left == right:
            return
        self._pending.append((left - right, complaint))
        progress = True
        while progress:
            progress = False
            for entry in list(self._pending):
                if self._use(*entry):
                    self._pending.remove(entry)
                    progress = True

    def _use(self, difference: Dimension, complaint: Complaint) -> bool:
        """Use the equation difference = 0; return False if it determines nothing yet."""
        (difference,) = self.known((difference,))
        unknowns = _unknowns(difference)
        if not unknowns:
            if difference != 0:
                raise complaint()
            return True
        is_only_unknown = len(unknowns) == 1
        for unknown in unknowns:
            factor = difference.coeff(unknown, 1)
            remainder = sympy.expand(difference - factor * unknown)
            is_unit = factor in (1, -1)
            if factor == 0 or unknown in remainder.free_symbols:
                continue
            if not (is_unit or is_only_unknown):
                continue  # 2 a + 3 b = 12 determines neither a nor b
            value = sympy.expand(sympy.cancel(-remainder / factor))
            if value.is_polynomial() and value.is_positive and (is_unit or value.is_integer):
                replacement = {unknown: value}
                values = {old: size.xreplace(replacement) for old, size in self._values.items()}
                self._values = values | replacement
                return True
            if is_only_unknown:
                raise complaint()
        return False


def _unknowns(size: Dimension) -> list[sympy.Symbol]:
    return sorted((symbol for symbol in size.free_symbols if symbol.name.startswith("?")), key=str)
