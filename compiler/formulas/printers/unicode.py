"""Formulas as one line of Unicode text."""

from __future__ import annotations

import re
import unicodedata
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.names import ACCENTS, SUBSCRIPTS, unicode_name
from derivatrix.compiler.formulas.printers.base import ATOM, POWER, PRODUCT, Style, Text
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.signs import bold
from derivatrix.compiler.formulas.tree import Choice, Literal, Tree
from derivatrix.compiler.ir.dimensions import Dimension

FRACTIONS = {
    (1, 2): "½", (1, 3): "⅓", (2, 3): "⅔", (1, 4): "¼", (3, 4): "¾", (1, 5): "⅕", (1, 6): "⅙",
    (1, 8): "⅛",
}  # fmt: skip

WIDTH = 100
"""A line with a formula and the one definition that it uses is not longer than this."""

SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Unicode(MathPrinter):
    """The printer of the styles unicode and index."""

    minus = "−"
    ones = "𝟏"
    hadamard_sign = " ⊙ "
    division_sign = " ⊘ "
    kronecker_sign = " ⊗ "
    transposed = "{}ᵀ"
    inverse_transposed = "{}⁻ᵀ"
    bracket = "[{}]"
    fraction_bar = False
    relations: ClassVar = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}
    words: ClassVar = {"and": " ∧ ", "or": " ∨ ", "not": "¬"}
    operations = "unicode"
    left_sides: ClassVar = {
        "jacobian": "∂{0}/∂{1}",
        "gradient": "∇_{1} {0}",
        "hessian": "∂²{0}/∂{1}∂{2}",
        "hvp": "{d} ∇_{1} {0}",
        "vec hessian": "∂²{0}/∂{1} ∂{2}",
    }

    def word(self, name: str, accent: str = "") -> str:
        return unicode_name(name, accent)

    def verbatim(self, name: str, accent: str) -> str:
        if len(name) == 1 or not accent:
            return f"{name}_{accent}" if accent else name
        return unicodedata.normalize("NFC", name[0] + ACCENTS[accent]) + name[1:]

    def distinguished(self, sign: str) -> str:
        return bold(sign)

    def rational(self, over: int, under: int) -> Text:
        if under == 1:
            return str(over), ATOM
        text = FRACTIONS.get((over, under))
        return (text, ATOM) if text else (f"{over}/{under}", PRODUCT)

    def constant(self, value: sympy.Expr) -> str:
        return "∞" if value == sympy.oo else str(value)

    def show_literal(self, tree: Literal) -> Text:
        if tree.array.size > 16:
            return self.call("constant", ["×".join(map(str, tree.array.shape))]), ATOM
        return self._entries(tree.array.tolist()), ATOM

    def _entries(self, entries: object) -> str:
        if isinstance(entries, list):
            return f"[{', '.join(map(self._entries, entries))}]"
        return f"{entries:.15g}".replace("-", self.minus)

    def dimension(self, size: Dimension) -> str:
        text = re.sub(r"floor\(([^()]*)\)", r"⌊\1⌋", str(size))
        text = re.sub(r"Mod\(([^(),]*), ([^(),]*)\)", r"\1 mod \2", text)
        text = re.sub(r"Wrapped\(([^(),]*), ([^()]*)\)", r"(\1 mod \2)", text)
        return text.replace("**", "^").replace("*", " ").replace("-", self.minus)

    def unit(self, position: Dimension) -> str:
        if position.is_Integer:
            return self.sign("e") + str(position).translate(SUBSCRIPTS)
        text = self.dimension(position)
        return f"{self.sign('e')}_{text}" if text.isalnum() else f"{self.sign('e')}[{text}]"

    def differential(self, body: str) -> str:
        word = re.match(r"\w{2,}", body)
        return f"{self.sign('d')} {body}" if word else f"{self.sign('d')}{body}"

    def subscript(self, base: str, text: str) -> str:
        return f"{base}_{text}" if text.isalnum() else f"{base}_{{{text}}}"

    def superscript(self, base: str, exponent: str) -> str:
        if set(exponent) <= set("-−0123456789"):
            return base + exponent.translate(SUPERSCRIPTS)
        return f"{base}^{exponent}" if exponent.isalnum() else f"{base}^({exponent})"

    def entrywise_power(self, base: str, exponent: str) -> str:
        if set(exponent) <= set("0123456789"):
            return f"{base}∘{exponent.translate(SUPERSCRIPTS)}"
        return f"{base}^∘({exponent})"

    def root(self, tree: Tree) -> Text:
        if tree.rank:
            return f"sqrt({self.text(tree)})", ATOM
        return f"√{self.text(tree, ATOM)}", POWER

    def fraction(self, over: str, under: str) -> str:
        return f"{over} / {under}" if " " in over + under else f"{over}/{under}"

    def norm(self, body: str, rank: int) -> str:
        return f"‖{body}‖_F" if rank == 2 else f"‖{body}‖"

    def absolute(self, body: str, rank: int) -> str:
        return self.call("abs", [body]) if rank else f"|{body}|"

    def blocks(self, rows: list[list[str]]) -> str:
        return f"[{'; '.join(', '.join(row) for row in rows)}]"

    def indices(self, base: str, indices: list[str]) -> str:
        return f"{base}[{','.join(indices)}]"

    def delta(self, left: str, right: str) -> str:
        return f"{self.sign('δ')}[{left},{right}]"

    def total(self, letters: tuple[str, ...], body: str) -> str:
        below = letters[0] if len(letters) == 1 else f"{{{','.join(letters)}}}"
        return f"{self.sign('Σ')}_{below} {body}"

    def choice(self, tree: Choice) -> Text:
        parts = [self.condition(tree.condition), self.text(tree.yes), self.text(tree.no)]
        return self.call("where", parts), ATOM

    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        return f"{text}  where {', '.join(f'{left} = {right}' for left, right in definitions)}"

    def equations(self, lines: list[tuple[str, str]]) -> str:
        (left, right), *definitions = lines
        text = f"{left} = {right}"
        whole = self.where(text, definitions)
        if len(definitions) == 1 and len(whole) <= WIDTH:
            return whole
        for position, (name, part) in enumerate(definitions):
            text += f"\n  {'where' if position == 0 else '     '} {name} = {part}"
        return text


UNICODE = Unicode()
STYLE = Style("unicode", UNICODE)
