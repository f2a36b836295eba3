"""The letters that stand for what a formula repeats: those that books have for such parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.names import SPELLED, unicode_name
from derivatrix.compiler.formulas.rewrite import occurrences, replaced
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.ir.dimensions import BATCH, Shape

SCALARS = "αβκμνρτω"
"""Letters for scalars, but for those that stand for more: δ for Kronecker's, λ for eigenvalues."""

PROBABILITIES = ("softmax", "sigmoid", "logistic")


@dataclass(frozen=True)
class Definition:
    """`name` stands for `tree`; `indices` are those that the left side shows, where it has any for
    axes of these sizes."""

    name: kinds.Name
    tree: Tree
    indices: Indices
    shape: Shape = ()

    @property
    def names(self) -> frozenset[str]:
        """Its name, and those in its tree."""
        return self.name.names | self.tree.names

    @property
    def rank(self) -> int:
        """The rank of what it stands for, without a batch axis."""
        return self.name.rank - (BATCH in self.shape[:1])


Formula = tuple[Tree, list[Definition]]


def unnamed(rank: int, number: int, symmetric: bool) -> kinds.Name:
    """What stands for a definition until all of them are known."""
    return kinds.Name(rank, f"T{number}", f"<{number}>", symmetric=symmetric)


def named_like(rank: int, letter: str) -> kinds.Name:
    """A name as long as that of a part of this rank and letter."""
    if not rank:
        return kinds.Name(0, SCALARS[0], SPELLED[SCALARS[0]])
    return kinds.Name(rank, letter or "T1", letter or "t1")


def letter_of(part: Tree, inverted: bool) -> str:
    """The letter that books have for a matrix like this, whose inverse occurs or not; "" where
    there is none."""
    match part:
        case kinds.Call(operation=operation) if operation.name in PROBABILITIES:
            return "P"
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
    """Whether a sum is the difference of an input and other arrays that do not move."""
    moves = any(isinstance(own, kinds.Name) and own.accent for own in occurrences(part.terms))
    signs = {own.is_negative for own in part.terms}
    arrays = all(own.rank == part.rank and own.counts[kinds.Name] for own in part.terms)
    return len(signs) == 2 and arrays and not moves and any(map(_is_input, part.terms))


def _is_input(term: Tree) -> bool:
    while isinstance(term, kinds.Scale | kinds.Transpose | kinds.Part | kinds.Indexed):
        if term.body is None or (isinstance(term, kinds.Scale) and term.scalars):
            return False
        term = term.body
    return isinstance(term, kinds.Name) and term.rank > 0


def lettered(
    tree: Tree, definitions: Sequence[Definition], inverted: Set[Tree], taken: Set[str]
) -> Formula:
    """The same with letters in place of the definitions' names, in the order in which they stand.

    inverted: the names of matrices whose inverses occur; taken: names that stand for something.
    """
    letters = [
        _cased(letter_of(part.tree, part.name in inverted), part.rank) for part in definitions
    ]
    table: dict[Tree, kinds.Name] = {}
    used = {*taken, *(unicode_name(name, "") for name in taken)}
    numbers = count(1)
    for part, letter in zip(definitions, letters, strict=True):
        own = _candidates(letter, letters.count(letter) > 1, part.rank, used, numbers)
        base, python = next(
            names for names in own if not used & {*names, unicode_name(names[0], "")}
        )
        used |= {base, python}
        table[part.name] = replace(part.name, base=base, python=python)
    return replaced(tree, table), [
        replace(part, name=table[part.name], tree=replaced(part.tree, table))
        for part in definitions
    ]


def _cased(letter: str, rank: int) -> str:
    return letter if rank > 1 else letter.lower()


def _candidates(
    letter: str, several: bool, rank: int, used: Set[str], numbers: Iterator[int]
) -> Iterator[tuple[str, str]]:
    """Names as they are shown and in NumPy, the best first: Greek letters for scalars, the letter
    that books have, with numbers if there are several, and in the end T₁, T₂, ... (t₁, ...)."""
    if not rank:
        yield from ((own, SPELLED[own]) for own in SCALARS)
    elif letter and several and letter not in used:
        yield from ((f"{letter}{number}",) * 2 for number in range(1, 10))
    elif letter:
        yield letter, letter
    stem = next((own for own in ("TUVWZ" if rank > 1 else "tuvwz") if own not in used), "part_")
    yield from ((f"{stem}{number}", f"t{number}") for number in numbers)
