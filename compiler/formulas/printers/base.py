"""The base of all printers: precedence, parentheses, dispatch on the kind of a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.tree import Range, Tree
from derivatrix.compiler.ir.dimensions import Dimension

TEST, SUM, HADAMARD, PRODUCT, POWER, ATOM, PRIMARY = range(7)
"""Precedences, the weakest first; a text gets parentheses where a stronger one is needed. A call or
a letter without subscript is a primary, to which LaTeX attaches indices as it is."""

Text = tuple[str, int]
"""A text and its precedence."""


class Printer(ABC):
    """Writes trees as text, each kind by the method `show_<kind>`."""

    calls: ClassVar[Mapping[type[Tree], str]]
    """Kinds that are written as a call with their children, and the functions' names."""

    def text(self, tree: Tree, min_precedence: int = TEST) -> str:
        """Write a tree, in parentheses if its precedence is below `min_precedence`."""
        return self.enclosed(self.bare(tree), min_precedence)

    def bare(self, tree: Tree) -> Text:
        """Write a tree without parentheses; returns its precedence, too."""
        name = self.calls.get(type(tree))
        if name is not None:
            return self.call(name, [self.text(part) for part in tree.children])
        result: Text = getattr(self, f"show_{type(tree).__name__.lower()}")(tree)
        return result

    def enclosed(self, bare: Text, min_precedence: int) -> str:
        """Enclose a text in parentheses if its precedence is below `min_precedence`."""
        text, precedence = bare
        return text if precedence >= min_precedence else self.parentheses(text)

    def call(self, name: str, arguments: list[str]) -> Text:
        """Write a function of its arguments."""
        return name + self.parentheses(", ".join(arguments)), PRIMARY

    @abstractmethod
    def dimension(self, size: Dimension) -> str:
        """Write a size or an index, a polynomial in dimensions."""

    def range(self, part: Range | Dimension | None) -> str:
        """Write the range of an axis as a slice, or a single index."""
        if part is None:
            return ":"
        if not isinstance(part, tuple):
            return self.dimension(part)
        start, count, step, size = part
        stop = sympy.expand(start + step * count)
        to_end = stop == size if step > 0 else stop.is_negative
        first_text = "" if start == (0 if step > 0 else size - 1) else self.dimension(start)
        last_text = "" if to_end else self.dimension(stop)
        stride = f":{self.dimension(sympy.Integer(step))}" if step != 1 else ""
        return f"{first_text}:{last_text}{stride}"

    def parentheses(self, text: str) -> str:
        return f"({text})"


@dataclass(frozen=True)
class Style:
    """A style of formulas. by_index: each entry by its indices, without matrix notation; vec:
    Jacobians and Hessians with more than two axes as matrices, ∂vec Y/∂(vec X)ᵀ."""

    printer: Printer
    by_index: bool = False
    vec: bool = False
