"""What a style for reading has to say: its signs, and how it writes what is more than a sign."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.printers.base import ATOM, Printer, Text
from derivatrix.compiler.formulas.tree import Choice, Literal, Tree
from derivatrix.compiler.ir.dimensions import Dimension


class Spelling(Printer):
    """The signs of a style, and how it puts texts together. Where an argument is a text, it has the
    parentheses that it needs."""

    minus: ClassVar[str]
    ones: ClassVar[str]
    """The vector of ones."""
    hadamard_sign: ClassVar[str]
    """Between factors of a product entry by entry, with its spaces."""
    division_sign: ClassVar[str]
    """Between an array and what it is divided by, entry by entry, with its spaces."""
    kronecker_sign: ClassVar[str]
    transposed: ClassVar[str]
    """The format string of a transposed matrix."""
    inverse_transposed: ClassVar[str]
    bracket: ClassVar[str]
    """That of a condition as a number, 1 where it holds; and of a divided difference's points."""
    fraction_bar: ClassVar[bool]
    """Whether fractions have a bar, which makes parentheses over and under it needless."""
    relations: ClassVar[Mapping[str, str]]
    """What is written for a comparison; those that are not in it are written as in Python."""
    words: ClassVar[Mapping[str, str]]
    """The signs for "and", "or" and "not", with their spaces."""
    operations: ClassVar[str]
    """Whose format strings of operations are used: "unicode" or "latex"."""
    left_sides: ClassVar[Mapping[str, str]]
    """For a kind of derivative, the format string of its name: of the value's and the inputs'."""

    # Names and numbers

    @abstractmethod
    def word(self, name: str, accent: str = "") -> str:
        """A name with the accent "bar", "dot" or none."""

    @abstractmethod
    def verbatim(self, name: str, accent: str) -> str:
        """Write a name letter by letter, where `word` writes another name alike."""

    @abstractmethod
    def distinguished(self, sign: str) -> str:
        """A sign or the name of a function, as no name of an array is written."""

    def title(self, text: str) -> str:
        """Words of English on the right side of an equation."""
        return text

    def head(self, name: str) -> str:
        """The name of a function, before its arguments."""
        return name

    @abstractmethod
    def rational(self, over: int, under: int) -> Text:
        """A positive rational number."""

    @abstractmethod
    def constant(self, value: sympy.Expr) -> str:
        """A number such as the square root of pi."""

    def operation(self, form: str) -> str:
        """The format string of an operation."""
        return form

    @abstractmethod
    def show_literal(self, tree: Literal) -> Text:
        """A constant array."""

    @abstractmethod
    def unit(self, position: Dimension) -> str:
        """The vector with a 1 at a position."""

    @abstractmethod
    def differential(self, body: str) -> str:
        """The differential of a part of a derivation."""

    # Powers and fractions

    @abstractmethod
    def subscript(self, base: str, text: str) -> str:
        """A letter with a subscript."""

    @abstractmethod
    def superscript(self, base: str, exponent: str) -> str:
        """A power of a matrix or scalar."""

    @abstractmethod
    def entrywise_power(self, base: str, exponent: str) -> str:
        """A power entry by entry."""

    @abstractmethod
    def root(self, tree: Tree) -> Text:
        """The square root of a scalar, or of all entries."""

    @abstractmethod
    def fraction(self, over: str, under: str) -> str:
        """A scalar or array divided by a scalar."""

    # Brackets, indices, sums

    @abstractmethod
    def norm(self, body: str, rank: int) -> str:
        """The norm of a vector or matrix."""

    @abstractmethod
    def absolute(self, body: str, rank: int) -> str:
        """The absolute value of a scalar, or of the entries of an array."""

    @abstractmethod
    def blocks(self, rows: list[list[str]]) -> str:
        """A matrix of blocks."""

    @abstractmethod
    def indices(self, base: str, indices: list[str]) -> str:
        """An entry, by the texts of its indices."""

    def entry(self, body: Tree, indices: list[str]) -> str:
        """An entry of what a tree stands for."""
        return self.indices(self.text(body, ATOM), indices)

    @abstractmethod
    def delta(self, left: str, right: str) -> str:
        """Kronecker's delta."""

    @abstractmethod
    def total(self, letters: tuple[str, ...], body: str) -> str:
        """The sum over index letters."""

    @abstractmethod
    def choice(self, tree: Choice) -> Text:
        """What is one thing where a condition holds, and else another."""

    # Equations

    @abstractmethod
    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        """A formula and the definitions it uses, on one line."""

    @abstractmethod
    def equations(self, lines: list[tuple[str, str]]) -> str:
        """An equation and the definitions it uses, on lines of their own."""
