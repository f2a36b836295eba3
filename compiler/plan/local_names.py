"""Short, readable names for the variables of a kernel, each used once."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from itertools import chain, count, islice

import sympy

from derivatrix.compiler.targets.names import helper_names

RESERVED = frozenset(
    {
        *helper_names(),
        *("np", "math", "real", "range", "abs", "int", "float"),
        *("part", "parts", "row", "first"),
        *("words", "addresses", "address", "length", "failed", "step", "work"),
        *("memory", "shaped", "times", "scaled", "unscaled"),
        *keyword.kwlist,
    }
)
INDICES = ("i", "j", "k", "l", "p", "q", "r", "s", "u", "v")


class Names:
    """A supply of identifiers, each handed out once."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = set(RESERVED) | set(reserved)
        self._indices: set[str] = set()

    def _is_taken(self, name: str) -> bool:
        return name in self._used or name in self._indices

    def exact(self, wish: str) -> str:
        """Return `wish`, with underscores appended until it is free."""
        while self._is_taken(wish):
            wish += "_"
        self._used.add(wish)
        return wish

    def numbered(self, stem: str) -> str:
        """Return the first free name of stem0, stem1, ..."""
        return self.exact(next(f"{stem}{n}" for n in count() if f"{stem}{n}" not in self._used))

    def lettered(self, letter: str) -> str:
        """Return `letter`, with a number if it is taken; t0, t1, ... if it is empty."""
        if not letter:
            return self.numbered("t")
        names = chain([letter], (f"{letter}{number}" for number in count(2)))
        return self.exact(next(name for name in names if not self._is_taken(name)))

    def indices(self, number: int) -> list[sympy.Symbol]:
        """Return loop indices i, j, k, ...; every nest uses the same ones again."""
        letters = (name for name in INDICES if name not in self._used)
        further = (f"i{n}" for n in count() if f"i{n}" not in self._used)
        names = [*islice(chain(letters, further), number)]
        self._indices.update(names)
        return [sympy.Symbol(name, integer=True, nonnegative=True) for name in names]
