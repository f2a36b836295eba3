"""Spellings that differ between the styles for reading: signs, names, powers, indices, equations.

`Spelling` has those of Unicode, on one line; another style overrides what it writes otherwise.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import ClassVar

import sympy
from sympy.printing.str import StrPrinter

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.names import ACCENTS, SUBSCRIPTS, unicode_name
from derivatrix.compiler.formulas.printers.base import (
    ATOM,
    POWER,
    PRIMARY,
    PRODUCT,
    Printer,
    Text,
)
from derivatrix.compiler.formulas.signs import SIGNS, bold
from derivatrix.compiler.formulas.tree import Literal, Tree
from derivatrix.compiler.ir.dimensions import Dimension

FRACTIONS = {
    (1, 2): "½", (1, 3): "⅓", (2, 3): "⅔", (1, 4): "¼", (3, 4): "¾", (1, 5): "⅕", (1, 6): "⅙",
    (1, 8): "⅛",
}  # fmt: skip

FLAT = {
    *(kinds.Name, kinds.Size, kinds.Identity, kinds.Ones, kinds.Unit, kinds.Part, kinds.Indexed),
    *(kinds.Transpose, kinds.Power, kinds.Matmul),
}
"""Kinds whose texts are no taller than a line."""

MAX_LITERAL_ENTRIES = 16
"""Most entries of a constant array that is written out."""

MAX_LINE_LENGTH = 100
"""Longest line with a formula and its only definition; a longer one is broken before "where"."""

SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class _SizePrinter(StrPrinter):
    """Prints arithmetic of sizes with the signs of books for floor and remainder."""

    def _print_floor(self, floor: sympy.floor) -> str:
        return f"⌊{self._print(floor.args[0])}⌋"

    def _print_Mod(self, remainder: sympy.Mod) -> str:
        return " mod ".join(map(self._print, remainder.args))

    def _print_Wrapped(self, position: sympy.Expr) -> str:
        return f"({' mod '.join(map(self._print, position.args))})"


class Spelling(Printer):
    """The signs of a style, and how it composes texts. Arguments that are texts have the
    parentheses that they need."""

    minus: ClassVar[str] = "−"
    ones: ClassVar[str] = "𝟏"
    """The vector of ones."""
    hadamard_sign: ClassVar[str] = " ⊙ "
    division_sign: ClassVar[str] = " ⊘ "
    """Between an array and its divisor, entry by entry."""
    kronecker_sign: ClassVar[str] = " ⊗ "
    transposed: ClassVar[str] = "{}ᵀ"
    """Format string of a transposed matrix."""
    inverse_transposed: ClassVar[str] = "{}⁻ᵀ"
    bracket: ClassVar[str] = "[{}]"
    """Format string of an Iverson bracket, 1 where a condition holds; also of the points of a
    divided difference."""
    fraction_bar: ClassVar[bool] = False
    """True if fractions have a bar, which replaces parentheses over and under it."""
    relations: ClassVar[Mapping[str, str]] = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}
    """Signs of comparisons that are not written as in Python."""
    words: ClassVar[Mapping[str, str]] = {"and": " ∧ ", "or": " ∨ ", "not": "¬"}
    operations: ClassVar[str] = "unicode"
    """The kind of format strings of operations: "unicode" or "latex"."""
    nabla: ClassVar[str] = "∇"
    partial: ClassVar[str] = "∂"
    formula: ClassVar[str] = "{}"
    """Format string of a formula within a sentence."""
    left_sides: ClassVar[Mapping[str, str]] = {
        "jacobian": "∂{0}/∂{1}",
        "gradient": "∇_{1} {0}",
        "hessian": "∂²{0}/∂{1}∂{2}",
        "hvp": "{d} ∇_{1} {0}",
        "vec hessian": "∂²{0}/∂{1} ∂{2}",
    }
    """Format strings of derivatives, by kind: of the value (0) and the inputs (1, 2)."""

    occupied: frozenset[str] = frozenset()
    """Names in the formulas, without subscripts, as this style writes them."""
    ambiguous: frozenset[tuple[str, str]] = frozenset()
    """Pairs of name and accent that `word` writes like other such pairs."""

    # Names beside signs

    def word(self, name: str, accent: str = "") -> str:
        """Write a name with the accent "bar", "dot" or none."""
        return unicode_name(name, accent)

    def verbatim(self, name: str, accent: str) -> str:
        """Write a name letter by letter, which `word` writes like another one."""
        if len(name) == 1 or not accent:
            return f"{name}_{accent}" if accent else name
        return unicodedata.normalize("NFC", name[0] + ACCENTS[accent]) + name[1:]

    def name(self, name: str, accent: str = "") -> str:
        """Write a name so that it differs from every other name."""
        write = self.verbatim if (name, accent) in self.ambiguous else self.word
        return write(name, accent)

    def distinguished(self, sign: str) -> str:
        """Write a sign or the name of a function as no name of an array is written."""
        return bold(sign)

    def sign(self, letter: str) -> str:
        """Write a letter of `SIGNS` so that it differs from every name."""
        text = self.word(letter)
        return self.distinguished(letter) if text in self.occupied else text

    def head(self, name: str) -> str:
        """Write the name of a function."""
        return name

    def function(self, name: str) -> str:
        """Write the name of a function so that it differs from every name of an array."""
        return self.distinguished(name) if self.word(name) in self.occupied else self.head(name)

    def call(self, name: str, arguments: list[str]) -> Text:
        return super().call(self.function(name), arguments)

    def title(self, text: str) -> str:
        """Write English words on the right side of an equation."""
        return text

    def legend(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Explain the bold signs in `texts`: the left and right sides of equations."""
        pairs = ((self.distinguished(letter), title) for letter, title in SIGNS.items() if title)
        return [
            (sign, self.title(title))
            for sign, title in (pairs if self.occupied else ())
            if any(sign in text for text in texts)
        ]

    # Numbers, constant arrays

    def rational(self, numerator: int, denominator: int) -> Text:
        """Write a positive rational number."""
        if denominator == 1:
            return str(numerator), ATOM
        text = FRACTIONS.get((numerator, denominator))
        return (text, ATOM) if text else (f"{numerator}/{denominator}", PRODUCT)

    def constant(self, value: sympy.Expr) -> str:
        """Write a number such as the square root of pi."""
        return "∞" if value == sympy.oo else str(value)

    def dimension(self, size: Dimension) -> str:
        text = str(_SizePrinter().doprint(size))
        return text.replace("**", "^").replace("*", " ").replace("-", self.minus)

    def show_literal(self, tree: Literal) -> Text:
        if tree.array.size > MAX_LITERAL_ENTRIES:
            return self.call("constant", ["×".join(map(str, tree.array.shape))])
        return self._entries(tree.array.tolist()), ATOM

    def _entries(self, entries: object) -> str:
        if isinstance(entries, list):
            return f"[{', '.join(map(self._entries, entries))}]"
        return f"{entries:.15g}".replace("-", self.minus)

    def unit(self, position: Dimension) -> str:
        """Write the unit vector with a 1 at a position."""
        if position.is_Integer:
            return self.sign("e") + str(position).translate(SUBSCRIPTS)
        text = self.dimension(position)
        return f"{self.sign('e')}_{text}" if text.isalnum() else f"{self.sign('e')}[{text}]"

    # Differentials, operations, powers, fractions

    def is_word(self, name: str) -> bool:
        """Tell whether a name needs a space before it, as a function has it."""
        return len(name) > 1

    def differential_sign(self, is_spaced: bool) -> str:
        """Write the d of a differential, with a space after it or without."""
        return self.sign("d") + " " * is_spaced

    def operation(self, form: str) -> str:
        """Adapt the format string of an operation."""
        return form

    def subscript(self, base: str, text: str) -> str:
        return f"{base}_{text}" if text.isalnum() else f"{base}_{{{text}}}"

    def superscript(self, base: str, exponent: str) -> str:
        """Write a power of a matrix or scalar."""
        if set(exponent) <= set("-−0123456789"):
            return base + exponent.translate(SUPERSCRIPTS)
        return f"{base}^{exponent}" if exponent.isalnum() else f"{base}^({exponent})"

    def entrywise_power(self, base: str, exponent: str) -> str:
        if set(exponent) <= set("0123456789"):
            return f"{base}∘{exponent.translate(SUPERSCRIPTS)}"
        return f"{base}^∘({exponent})"

    def root(self, tree: Tree) -> Text:
        """Write the square root of a scalar, or of each entry."""
        if tree.rank:
            return f"sqrt({self.text(tree)})", PRIMARY
        return f"√{self.text(tree, ATOM)}", POWER

    def fraction(self, numerator: str, denominator: str) -> str:
        """Write a scalar or array divided by a scalar."""
        spaced = " " in numerator + denominator
        return f"{numerator} / {denominator}" if spaced else f"{numerator}/{denominator}"

    # Brackets, indices, sums

    def norm(self, body: str, rank: int) -> Text:
        """Write the norm of a vector or matrix."""
        return f"‖{body}‖_F" if rank == 2 else f"‖{body}‖", ATOM

    def absolute(self, body: str, rank: int) -> Text:
        """Write the absolute value of a scalar, or of each entry."""
        return self.call("abs", [body]) if rank else (f"|{body}|", ATOM)

    def inner(self, left: str, right: str) -> str:
        """Write an inner product."""
        return f"⟨{left}, {right}⟩"

    def blocks(self, rows: list[list[str]]) -> str:
        """Write a matrix by its blocks or entries."""
        return f"[{'; '.join(', '.join(row) for row in rows)}]"

    def indices(self, base: Text, indices: list[str], is_flat: bool = True) -> str:
        """Write an entry of `base`. is_flat: whether that is no taller than a line."""
        return f"{self.enclosed(base, ATOM)}[{','.join(indices)}]"

    def entry(self, body: Tree, indices: list[str]) -> str:
        """Write an entry of the array that a tree stands for."""
        return self.indices(self.bare(body), indices, body.counts.keys() <= FLAT)

    def delta(self, left: str, right: str) -> str:
        """Write Kronecker's delta of two indices."""
        return f"{self.sign('δ')}[{left},{right}]"

    def total(self, letters: tuple[str, ...], body: str) -> str:
        """Write the sum over index letters."""
        below = letters[0] if len(letters) == 1 else f"{{{','.join(letters)}}}"
        return f"{self.sign('Σ')}_{below} {body}"

    def choice(self, condition: str, yes: str, no: str) -> Text:
        """Write `yes` where a condition holds, else `no`."""
        return self.call("where", [condition, yes, no])

    # Equations and sentences

    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        """Write a formula and its definitions on one line."""
        return f"{text}  where {', '.join(f'{left} = {right}' for left, right in definitions)}"

    def on_one_line(self, lines: list[tuple[str, str]]) -> str:
        """Write an equation and its definitions on one line."""
        (left, right), *definitions = lines
        text = f"{left} = {right}"
        return self.where(text, definitions) if definitions else text

    def equations(self, lines: list[tuple[str, str]]) -> str:
        """Write an equation and its definitions, each on a line of its own."""
        (left, right), *definitions = lines
        text, one_line = f"{left} = {right}", self.on_one_line(lines)
        if len(definitions) == 1 and len(one_line) <= MAX_LINE_LENGTH:
            return one_line
        for position, (name, body) in enumerate(definitions):
            text += f"\n  {'where' if position == 0 else '     '} {name} = {body}"
        return text

    def prose(self, text: str) -> str:
        """Write an English sentence that contains formulas in Unicode."""
        return text
