"""Letters for the definitions of a formula, those of books where these have some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.names import SPELLED, unicode_name
from derivatrix.compiler.formulas.rewrite import replaced
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir.dimensions import BATCH, Shape

SCALARS = "αβκμνρτω"
"""Letters for scalars, without those that are read otherwise: δ as Kronecker's, λ as eigenvalue."""

PROBABILITIES = ("sigmoid", "logistic")


@dataclass(frozen=True)
class Definition:
    """The equation `name` = `tree`. indices: those of the left side; shape: that of the node, if
    it is the definition of one; letter: the name to take, if it is known."""

    name: kinds.Name
    tree: Tree
    indices: Indices
    shape: Shape = ()
    letter: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The defined name, and the names in the tree."""
        return self.name.names | self.tree.names

    @property
    def rank(self) -> int:
        """The rank without a batch axis."""
        return self.name.rank - (BATCH in self.shape[:1])


DefinedTree = tuple[Tree, list[Definition]]
"""A tree, and the definitions that it uses."""


def provisional_name(rank: int, number: int, symmetric: bool) -> kinds.Name:
    """Make the name of a definition until all definitions are known."""
    return kinds.Name(rank, f"T{number}", f"<{number}>", symmetric=symmetric)


def typical_name(rank: int, letter: str) -> kinds.Name:
    """Make a name as long as that of a definition of this rank and letter."""
    if not rank:
        return kinds.Name(0, SCALARS[0], SPELLED[SCALARS[0]])
    return kinds.Name(rank, letter or "T1", letter or "t1")


def letter_of(part: Tree, inverted: bool) -> str:
    """Return the letter that books have for such a matrix, "" if none. inverted: its inverse
    occurs."""
    match part:
        case kinds.Call(output=output, operation=operation) if output < len(operation.letters):
            return operation.letters[output]
        case _ if inverted:
            return "M"
        case kinds.Function(head=head):
            return "P" if head in PROBABILITIES else "E" if head == "exp" else "H"
        case kinds.Add() if _is_residual(part):
            return "R"
        case kinds.Scale(scalars=(), body=kinds.Add() as body):
            return letter_of(body, False)
    return ""


def _is_residual(part: kinds.Add) -> bool:
    """Tell whether a sum is the difference of an input and other arrays, without cotangents and
    tangents."""
    signs = {term.is_negative for term in part.terms}
    are_arrays = all(term.rank == part.rank and term.counts[kinds.Name] for term in part.terms)
    is_primal = part.accent_position is None
    return len(signs) == 2 and are_arrays and is_primal and any(map(_is_input, part.terms))


def _is_input(term: Tree) -> bool:
    """Tell whether a term is an array's name, up to a number, a transpose, or a selection."""
    while isinstance(term, kinds.Scale | kinds.Transpose | kinds.Part | kinds.Indexed):
        if term.body is None or (isinstance(term, kinds.Scale) and term.scalars):
            return False
        term = term.body
    return isinstance(term, kinds.Name) and term.rank > 0


def assign_letters(
    tree: Tree, definitions: Sequence[Definition], inverted: Set[Tree], reserved: Set[str]
) -> DefinedTree:
    """Replace the provisional names of definitions by letters, in the order of the definitions.

    inverted: the names of matrices whose inverses occur; reserved: names with another meaning.
    """
    letters: dict[kinds.Name, str] = {}
    for definition in definitions:
        letter = letter_of(definition.tree, definition.name in inverted)
        letter = letter if definition.rank > 1 else letter.lower()
        letters.setdefault(definition.name, definition.letter or letter)
    ranks = {definition.name: definition.rank for definition in definitions}
    table: dict[Tree, kinds.Name] = {}
    used_names = {*reserved, *(unicode_name(name, "") for name in reserved)}
    numbers = count(1)
    for name, letter in letters.items():
        is_shared = [*letters.values()].count(letter) > 1
        candidates = _candidates(letter, is_shared, ranks[name], used_names, numbers)
        base, python = next(
            names for names in candidates if not used_names & {*names, unicode_name(names[0], "")}
        )
        used_names |= {base, python}
        table[name] = replace(name, base=base, python=python)
    return replaced(tree, table), [
        replace(definition, name=table[definition.name], tree=replaced(definition.tree, table))
        for definition in definitions
    ]


def _candidates(
    letter: str, is_shared: bool, rank: int, used_names: Set[str], numbers: Iterator[int]
) -> Iterator[tuple[str, str]]:
    """Yield names, as shown and in NumPy, the best first: Greek letters for scalars, the letter of
    books, with numbers if several definitions have it, and finally T₁, T₂, ... (t₁, ...)."""
    if not rank:
        yield from ((greek, SPELLED[greek]) for greek in SCALARS)
    elif letter and is_shared and letter not in used_names:
        yield from ((f"{letter}{number}",) * 2 for number in range(1, 10))
    elif letter:
        yield letter, letter
    stems = "TUVWZ" if rank > 1 else "tuvwz"
    stem = next((stem for stem in stems if stem not in used_names), "part_")
    yield from ((f"{stem}{number}", f"t{number}") for number in numbers)
