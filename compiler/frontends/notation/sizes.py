"""The sizes of `eye` and `ones`, found from what stands around them."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.runtime.errors import NotationError

Complaint = Callable[[], NotationError]
"""Makes the error for two sizes that differ, once it is known that they do."""


class Sizes:
    """Sizes that are not known yet, and what is known about them.

    An equation between sizes is used at once if it gives an unknown one, and kept until it does:
    kron(eye, A) says only that a*n equals something, until more is known.
    """

    def __init__(self) -> None:
        self._found: dict[sympy.Symbol, Dimension] = {}
        self._waiting: list[tuple[Dimension, Complaint]] = []
        self._count = 0

    def unknown(self) -> sympy.Symbol:
        """A new unknown size. Its name is none that a text can have."""
        self._count += 1
        return dimensions.symbol(f"?{self._count}")

    def known(self, shape: Shape) -> Shape:
        """The shape with every unknown that has been found."""
        return tuple(sympy.expand(size.xreplace(self._found)) for size in shape)

    def missing(self, shape: Shape) -> bool:
        """Whether a size of the shape is still unknown."""
        return any(_unknowns(size) for size in self.known(shape))

    def shown(self, size: Dimension) -> str:
        """The size as messages name it."""
        (known,) = self.known((size,))
        return "?" if _unknowns(known) else str(known)

    def differ(self, left: Dimension, right: Dimension) -> bool:
        """Whether two sizes are known not to be one."""
        (rest,) = self.known((left - right,))
        return rest != 0 and not _unknowns(rest)

    def equate(self, left: Dimension, right: Dimension, complaint: Complaint) -> None:
        """State that two sizes are one. Raises the complaint where they cannot be."""
        if left == right:
            return
        self._waiting.append((left - right, complaint))
        progress = True
        while progress:
            progress = False
            for entry in list(self._waiting):
                if self._use(*entry):
                    self._waiting.remove(entry)
                    progress = True

    def _use(self, difference: Dimension, complaint: Complaint) -> bool:
        """Use the equation difference = 0; False where it says nothing yet."""
        (rest,) = self.known((difference,))
        unknowns = _unknowns(rest)
        if not unknowns:
            if rest != 0:
                raise complaint()
            return True
        for unknown in unknowns:
            factor = rest.coeff(unknown, 1)
            other = sympy.expand(rest - factor * unknown)
            plain, alone = factor in (1, -1), len(unknowns) == 1
            if factor == 0 or unknown in other.free_symbols or not (plain or alone):
                continue
            value = sympy.expand(sympy.cancel(-other / factor))
            if value.is_polynomial() and value.is_positive and (plain or value.is_integer):
                self._set(unknown, value)
                return True
            if alone:
                raise complaint()
        return False

    def _set(self, unknown: sympy.Symbol, value: Dimension) -> None:
        found = {unknown: value}
        self._found = {old: size.xreplace(found) for old, size in self._found.items()} | found


def _unknowns(size: Dimension) -> list[sympy.Symbol]:
    found = [symbol for symbol in size.free_symbols if symbol.name.startswith("?")]
    return sorted(found, key=str)
