"""What all printers share: precedence, parentheses, and one method a kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.tree import Range, Tree
from derivatrix.compiler.ir.dimensions import Dimension

TEST, SUM, HADAMARD, PRODUCT, POWER, ATOM = range(6)
"""Precedence: a text gets parentheses where a higher one is needed than it has."""

Text = tuple[str, int]
"""A text and its precedence."""


class Printer(ABC):
    """Trees as text. For each kind of tree there is a method `show_<kind>`."""

    calls: ClassVar[Mapping[type[Tree], str]]
    """The kinds that are written as functions of their parts, and the names of these."""

    def text(self, tree: Tree, least: int = TEST) -> str:
        """The text of a tree, in parentheses if its precedence is below `least`."""
        return self.enclosed(self.shown(tree), least)

    def shown(self, tree: Tree) -> Text:
        """The text of a tree without parentheses, and its precedence."""
        name = self.calls.get(type(tree))
        if name is not None:
            return self.call(name, [self.text(part) for part in tree.children]), ATOM
        found: Text = getattr(self, f"show_{type(tree).__name__.lower()}")(tree)
        return found

    def enclosed(self, shown: Text, least: int) -> str:
        """A text, in parentheses if its precedence is below `least`."""
        text, precedence = shown
        return text if precedence >= least else self.parentheses(text)

    def call(self, name: str, arguments: list[str]) -> str:
        """A function of its arguments."""
        return name + self.parentheses(", ".join(arguments))

    @abstractmethod
    def dimension(self, size: Dimension) -> str:
        """A size or an index, a polynomial in dimensions."""

    def range(self, part: Range | Dimension | None) -> str:
        """The entries that are taken along an axis, as a slice, or one as its index."""
        if part is None:
            return ":"
        if not isinstance(part, tuple):
            return self.dimension(part)
        start, count, step, size = part
        stop = sympy.expand(start + step * count)
        to_end = stop == size if step > 0 else stop.is_negative
        first = "" if start == (0 if step > 0 else size - 1) else self.dimension(start)
        last = "" if to_end else self.dimension(stop)
        stride = f":{self.dimension(sympy.Integer(step))}" if step != 1 else ""
        return f"{first}:{last}{stride}"

    def parentheses(self, text: str) -> str:
        return f"({text})"


@dataclass(frozen=True)
class Style:
    """A style of formulas. by_index: each entry by its indices, without matrix notation; vec:
    Jacobians and Hessians with more than two axes as matrices, ∂vec Y/∂(vec X)ᵀ."""

    printer: Printer
    by_index: bool = False
    vec: bool = False
