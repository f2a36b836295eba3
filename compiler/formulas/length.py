"""How long formulas are to read, which is all that a formula's own text decides: the shorter of two
ways to write it is taken, and what is long and repeated gets a name."""

from derivatrix.compiler.formulas.printers.mathematics import UNICODE
from derivatrix.compiler.formulas.tree import Tree


def length(tree: Tree) -> int:
    """The number of characters of a tree in Unicode, whatever the style it is meant for."""
    return len(UNICODE.text(tree))


def shortest_first(tree: Tree) -> tuple[int, str]:
    """A key to sort by: the shorter first, those of one length by the alphabet."""
    return length(tree), UNICODE.text(tree)
