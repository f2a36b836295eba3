"""Trees as LaTeX, for a math environment."""

from __future__ import annotations

import re
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.names import latex_name
from derivatrix.compiler.formulas.tree import Call, Choice, Function, Literal, Name, Tree
from derivatrix.compiler.formulas.unicode import ATOM, POWER, Text, Unicode
from derivatrix.compiler.ir.dimensions import Dimension

COMMANDS = {
    "exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan",
    "max", "min", "sec", "csc", "cot", "coth",
}  # fmt: skip


class Latex(Unicode):
    """The printer."""

    style = "latex"
    minus = "-"
    ones = r"\mathbf{1}"
    hadamard_sign = r" \odot "
    kronecker_sign = r" \otimes "
    relations: ClassVar = {">=": r"\ge", "<=": r"\le", "==": "=", "!=": r"\ne"}
    words: ClassVar = {"and": r" \land ", "or": r" \lor ", "not": r"\lnot "}

    def parentheses(self, text: str) -> str:
        return rf"\left({text}\right)"

    def superscript(self, base: str, exponent: str) -> str:
        return f"{base}^{{{exponent}}}"

    def transposed(self, base: str) -> str:
        return rf"{base}^{{\top}}"

    def inverse_transposed(self, base: str) -> str:
        return rf"{base}^{{-\top}}"

    def entrywise_power(self, base: str, exponent: str) -> str:
        return rf"{base}^{{\circ {exponent}}}"

    def root(self, tree: Tree) -> Text:
        if tree.rank:
            return self.entrywise_power(self.text(tree, ATOM), "1/2"), POWER
        return rf"\sqrt{{{self.text(tree)}}}", ATOM

    def fraction(self, over: str, under: str) -> str:
        return rf"\frac{{{_bare(over)}}}{{{_bare(under)}}}"

    def rational(self, over: int, under: int) -> str:
        return str(over) if under == 1 else rf"\frac{{{over}}}{{{under}}}"

    def entrywise_quotient(self, upper: str, lower: str, several: bool) -> str:
        return rf"{upper or '1'} \oslash {self.parentheses(lower) if several else lower}"

    def norm(self, body: str, rank: int) -> str:
        text = rf"\left\| {body} \right\|"
        return f"{text}_{{F}}" if rank == 2 else text

    def call(self, name: str, arguments: list[str]) -> str:
        return rf"{self.head(name)}\left({', '.join(arguments)}\right)"

    def difference(self, name: str, points: list[str]) -> str:
        return rf"{self.head(name)}\left[{', '.join(points)}\right]"

    def head(self, name: str) -> str:
        if re.search("[×_]", name):
            name = name.replace("_", r"\_")
        return f"\\{name}" if name in COMMANDS else rf"\operatorname{{{name}}}"

    def indices(self, base: str, indices: list[str]) -> str:
        separator = "" if all(len(i) == 1 and i.isalpha() for i in indices) else ","
        base = f"[{base}]" if re.search(r"[_^ ]|\\frac", base) else base
        return f"{base}_{{{separator.join(indices)}}}"

    def entry(self, body: Tree, indices: list[str]) -> str:
        text = self.text(body)
        if isinstance(body, Call):
            return text + self.indices("", indices)
        return self.indices(text, indices)

    def bracket(self, condition: str) -> str:
        return rf"\left[{condition}\right]"

    def total(self, letters: tuple[str, ...], body: str) -> str:
        return rf"\sum_{{{','.join(letters)}}} {body}"

    def dimension(self, size: Dimension) -> str:
        return sympy.latex(size)

    def differential(self, body: str) -> str:
        return rf"\mathrm{{d}}{body}"

    def blocks(self, rows: list[list[str]]) -> str:
        body = r" \\ ".join(" & ".join(row) for row in rows)
        return rf"\begin{{bmatrix}} {body} \end{{bmatrix}}"

    def unit(self, position: Dimension) -> str:
        return f"e_{{{self.dimension(position)}}}"

    def operation(self, tree: Call, arguments: list[str]) -> str:
        return tree.operation.formula("latex", tree.output).format(*arguments)

    def name(self, tree: Name) -> str:
        return latex_name(tree.base, tree.accent)

    def size_name(self, name: str) -> str:
        return latex_name(name, "")

    def constant(self, value: sympy.Expr) -> str:
        return sympy.latex(value)

    def choice(self, tree: Choice) -> Text:
        condition = self.condition(tree.condition)
        rows = rf"{self.text(tree.yes)} & {condition} \\ {self.text(tree.no)} & \text{{otherwise}}"
        return rf"\begin{{cases}} {rows} \end{{cases}}", ATOM

    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        parts = r",\; ".join(f"{left} = {right}" for left, right in definitions)
        return rf"{text} \quad\text{{where}}\quad {parts}"

    def equations(self, lines: list[tuple[str, str]]) -> str:
        (left, right), *definitions = lines
        if not definitions:
            return f"{left} = {right}"
        rows = [f"{left} &= {right}"]
        rows += [rf"\text{{where }} {name} &= {part}" for name, part in definitions[:1]]
        rows += [f"{name} &= {part}" for name, part in definitions[1:]]
        body = r" \\ ".join(rows)
        return rf"\begin{{aligned}} {body} \end{{aligned}}"

    def show_literal(self, tree: Literal) -> Text:
        if tree.array.size > 16 or tree.array.ndim > 2:
            shape = r" \times ".join(map(str, tree.array.shape))
            return rf"\operatorname{{constant}}\left({shape}\right)", ATOM
        rows = tree.array.reshape(-1, 1) if tree.array.ndim == 1 else tree.array
        body = r" \\ ".join(" & ".join(f"{entry:.15g}" for entry in row) for row in rows.tolist())
        return rf"\begin{{bmatrix}} {body} \end{{bmatrix}}", ATOM

    def show_function(self, tree: Function) -> Text:
        arguments = [self.text(argument) for argument in tree.arguments]
        if tree.head == "Abs":
            return rf"\left|{arguments[0]}\right|", ATOM
        if tree.head == "sigmoid":
            return rf"\sigma\left({arguments[0]}\right)", ATOM
        return super().show_function(tree)

    def delta(self, left: str, right: str) -> str:
        return (
            rf"\delta_{{{left}{right}}}"
            if len(left + right) == 2
            else rf"\delta_{{{left},{right}}}"
        )


def _bare(text: str) -> str:
    """A text without the parentheses that the fraction bar replaces."""
    if not (text.startswith(r"\left(") and text.endswith(r"\right)")):
        return text
    depth = 0
    for match in re.finditer(r"\\(left|right)(?![a-zA-Z])", text):
        depth += 1 if match.group(1) == "left" else -1
        if depth == 0:
            return (
                text[len(r"\left(") : -len(r"\right)")]
                if match.start() == len(text) - len(r"\right)")
                else text
            )
    return text


LATEX = Latex()
