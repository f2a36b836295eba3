"""Formulas as LaTeX, for a math environment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.names import SPELLED, latex_name, latex_verbatim
from derivatrix.compiler.formulas.printers.base import ATOM, POWER, PRIMARY, PRODUCT, Text
from derivatrix.compiler.formulas.printers.latex_prose import prose
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.tree import Literal, Tree
from derivatrix.compiler.ir.dimensions import Dimension

COMMANDS = {
    "exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan",
    "max", "min", "sec", "csc", "cot", "coth",
}  # fmt: skip

_BRACKET = re.compile(r"(?<!\\left)[(\[]|(?<!\\right)[)\]]")
_SIDES = {"(": r"\left", "[": r"\left", ")": r"\right", "]": r"\right"}


class Latex(MathPrinter):
    """The printer of LaTeX."""

    minus = "-"
    ones = r"\mathbf{1}"
    hadamard_sign = r" \odot "
    division_sign = r" \oslash "
    kronecker_sign = r" \otimes "
    transposed = r"{}^{{\top}}"
    inverse_transposed = r"{}^{{-\top}}"
    bracket = r"\left[{}\right]"
    fraction_bar = True
    relations: ClassVar = {">=": r"\ge", "<=": r"\le", "==": "=", "!=": r"\ne"}
    words: ClassVar = {"and": r" \land ", "or": r" \lor ", "not": r"\lnot "}
    operations = "latex"
    nabla = r"\nabla"
    partial = r"\partial "
    formula = "${}$"
    left_sides: ClassVar = {
        "jacobian": r"\frac{{\partial {0}}}{{\partial {1}}}",
        "gradient": r"\nabla_{{{1}}} {0}",
        "hessian": r"\nabla^2_{{{1},{2}}} {0}",
        "hvp": r"{d} \, \nabla_{{{1}}} {0}",
        "vec hessian": r"\frac{{\partial^2 {0}}}{{\partial {1} \, \partial {2}}}",
    }

    def prose(self, text: str) -> str:
        return prose(text)

    def inner(self, left: str, right: str) -> str:
        return rf"\langle {left}, {right} \rangle"

    def parentheses(self, text: str) -> str:
        return rf"\left({text}\right)"

    def word(self, name: str, accent: str = "") -> str:
        return latex_name(name, accent)

    def verbatim(self, name: str, accent: str) -> str:
        return latex_verbatim(name, accent)

    def distinguished(self, sign: str) -> str:
        if sign in SPELLED:
            return rf"\boldsymbol{{{self.word(sign)}}}"
        escaped = sign.replace("_", r"\_")
        return rf"\mathbf{{{escaped}}}"

    def title(self, text: str) -> str:
        return rf"\text{{{text}}}"

    def head(self, name: str) -> str:
        if name == "sigmoid":
            return self.sign("σ")
        if name in COMMANDS:
            return f"\\{name}"
        escaped = name.replace("_", r"\_")
        return rf"\operatorname{{{escaped}}}"

    def rational(self, over: int, under: int) -> Text:
        return (str(over) if under == 1 else rf"\frac{{{over}}}{{{under}}}"), ATOM

    def constant(self, value: sympy.Expr) -> str:
        return sympy.latex(value)

    def show_literal(self, tree: Literal) -> Text:
        if tree.array.size > 16 or tree.array.ndim > 2:
            return self.call("constant", [r" \times ".join(map(str, tree.array.shape))])
        rows = tree.array.reshape(-1, 1) if tree.array.ndim == 1 else tree.array
        return self.blocks([[f"{entry:.15g}" for entry in row] for row in rows.tolist()]), ATOM

    def dimension(self, size: Dimension) -> str:
        return sympy.latex(size)

    def unit(self, position: Dimension) -> str:
        return self.subscript(self.sign("e"), self.dimension(position))

    def is_word(self, name: str) -> bool:
        return False

    def differential_sign(self, is_spaced: bool) -> str:
        sign = self.sign("d")
        return (sign if sign != "d" else r"\mathrm{d}") + r"\," * is_spaced

    def operation(self, form: str) -> str:
        return _BRACKET.sub(lambda match: _SIDES[match[0]] + match[0], form)

    def subscript(self, base: str, text: str) -> str:
        return f"{base}_{{{text}}}"

    def superscript(self, base: str, exponent: str) -> str:
        return f"{base}^{{{exponent}}}"

    def entrywise_power(self, base: str, exponent: str) -> str:
        return rf"{base}^{{\circ {exponent}}}"

    def root(self, tree: Tree) -> Text:
        if tree.rank:
            return self.entrywise_power(self.text(tree, ATOM), "1/2"), POWER
        return rf"\sqrt{{{self.text(tree)}}}", ATOM

    def fraction(self, over: str, under: str) -> str:
        return rf"\frac{{{over}}}{{{under}}}"

    def norm(self, body: str, rank: int) -> Text:
        text = rf"\left\| {body} \right\|"
        return f"{text}_{{F}}" if rank == 2 else text, ATOM

    def absolute(self, body: str, rank: int) -> Text:
        return rf"\left|{body}\right|", PRIMARY

    def blocks(self, rows: list[list[str]]) -> str:
        body = r" \\ ".join(" & ".join(row) for row in rows)
        return rf"\begin{{bmatrix}} {body} \end{{bmatrix}}"

    def indices(self, base: Text, indices: list[str], is_flat: bool = True) -> str:
        text, precedence = base
        if precedence < PRIMARY:
            text = f"[{text}]" if is_flat else rf"\left[{text}\right]"
        separator = "" if all(len(i) == 1 and i.isalpha() for i in indices) else ","
        return f"{text}_{{{separator.join(indices)}}}"

    def delta(self, left: str, right: str) -> str:
        separator = "" if len(left + right) == 2 else ","
        return self.subscript(self.sign("δ"), f"{left}{separator}{right}")

    def total(self, letters: tuple[str, ...], body: str) -> str:
        return rf"\sum_{{{','.join(letters)}}} {body}"

    def choice(self, condition: str, yes: str, no: str) -> Text:
        rows = rf"{yes} & {condition} \\ {no} & \text{{otherwise}}"
        return rf"\begin{{cases}} {rows} \end{{cases}}", PRODUCT

    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        equations = r",\; ".join(f"{left} = {right}" for left, right in definitions)
        return rf"{text} \quad\text{{where}}\quad {equations}"

    def equations(self, lines: list[tuple[str, str]]) -> str:
        (left, right), *definitions = lines
        if not definitions:
            return f"{left} = {right}"
        rows = [f"{left} &= {right}"]
        rows += [rf"\text{{where }} {name} &= {body}" for name, body in definitions[:1]]
        rows += [f"{name} &= {body}" for name, body in definitions[1:]]
        body = r" \\ ".join(rows)
        return rf"\begin{{aligned}} {body} \end{{aligned}}"


def aligned(lines: Iterable[str]) -> str:
    """Write lines below each other, as a notebook shows them."""
    rows = r" \\ ".join(f"& {line}" for line in lines)
    return rf"$$\begin{{aligned}} {rows} \end{{aligned}}$$"
