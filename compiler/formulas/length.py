"""The length of formulas, which decides between two ways to write them, and on definitions."""

from derivatrix.compiler.formulas.printers.mathematics import UNICODE
from derivatrix.compiler.formulas.tree import Tree


def length(tree: Tree) -> int:
    """Count the characters of a tree in Unicode, which serves for all styles."""
    return len(UNICODE.text(tree))


def shortest_first(tree: Tree) -> tuple[int, str]:
    """Return a sort key: by length, then by the alphabet."""
    return length(tree), UNICODE.text(tree)
