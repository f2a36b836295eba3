"""What all printers share: how tightly texts hold together, parentheses, and one method a kind."""

from __future__ import annotations

from dataclasses import dataclass

from derivatrix.compiler.formulas.tree import Tree

TEST, SUM, HADAMARD, PRODUCT, POWER, ATOM = range(6)
"""How tightly a text holds together: a text gets parentheses where more is needed than it has."""

Text = tuple[str, int]
"""A text, and how tightly it holds together."""


class Printer:
    """Trees as text. The method `show_<kind>` gives the text of a tree of that kind."""

    def text(self, tree: Tree, least: int = TEST) -> str:
        """The text of a tree, in parentheses if it holds less tightly than `least`."""
        return self.held(self.shown(tree), least)

    def shown(self, tree: Tree) -> Text:
        """The text of a tree without parentheses, and how tightly it holds together."""
        found: Text = getattr(self, f"show_{type(tree).__name__.lower()}")(tree)
        return found

    def held(self, shown: Text, least: int) -> str:
        """A text, in parentheses if it holds less tightly than `least`."""
        text, holds = shown
        return text if holds >= least else self.parentheses(text)

    def parentheses(self, text: str) -> str:
        return f"({text})"


@dataclass(frozen=True)
class Style:
    """A way of writing formulas. by_index: each entry by its indices, with no matrix notation."""

    name: str
    printer: Printer
    by_index: bool = False
