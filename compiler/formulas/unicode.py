"""Trees as one line of Unicode text. `latex` follows the same order of business."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas.divisors import divisor, split_divisors
from derivatrix.compiler.formulas.layout import surrounded
from derivatrix.compiler.formulas.names import unicode_name
from derivatrix.compiler.formulas.tree import (
    Add,
    Arranged,
    Block,
    Bracket,
    Call,
    Choice,
    Contraction,
    Diag,
    Diagonal,
    Differential,
    Function,
    Hadamard,
    Identity,
    Indexed,
    Kronecker,
    Literal,
    Logic,
    Mask,
    Matmul,
    Merged,
    Name,
    Norm,
    Number,
    Ones,
    Over,
    Padded,
    Part,
    Picked,
    Positive,
    Power,
    Raise,
    Relation,
    Rows,
    Scale,
    Size,
    Spread,
    Total,
    Trace,
    Transpose,
    Tree,
    Triangle,
    Unit,
    Unvectorised,
    Vectorised,
    Zeros,
)
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.divided_differences import Differences

SUM, HADAMARD, PRODUCT, POWER, ATOM = range(5)
"""How tightly a text holds together."""

Text = tuple[str, int]

FRACTIONS = {
    (1, 2): "½", (1, 3): "⅓", (2, 3): "⅔", (1, 4): "¼", (3, 4): "¾", (1, 5): "⅕", (1, 6): "⅙",
    (1, 8): "⅛",
}  # fmt: skip

SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

OPPOSITE = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}

HEADS = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "loggamma": "gammaln",
    "ceiling": "ceil",
    "Max": "max",
    "Min": "min",
}
"""SymPy's names of functions as NumPy and SciPy spell them."""


class Unicode:
    """The printer. Each method named after a kind gives its text and how tightly that holds."""

    style = "unicode"
    minus = "−"
    ones = "𝟏"
    identity = "I"
    hadamard_sign = " ⊙ "
    kronecker_sign = " ⊗ "
    relations: ClassVar = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}
    words: ClassVar = {"and": " ∧ ", "or": " ∨ ", "not": "¬"}

    def text(self, tree: Tree, least: int = SUM) -> str:
        """The text of a tree, in parentheses if it holds less tightly than `least`."""
        if self.style not in tree.texts:
            method = getattr(self, f"show_{type(tree).__name__.lower()}")
            tree.texts[self.style] = method(tree)
        text, holds = tree.texts[self.style]
        return text if holds >= least else self.parentheses(text)

    # What LaTeX writes differently

    def parentheses(self, text: str) -> str:
        return f"({text})"

    def superscript(self, base: str, exponent: str) -> str:
        if set(exponent) <= set("-−0123456789"):
            return base + exponent.translate(SUPERSCRIPTS)
        return f"{base}^{exponent}" if exponent.isalnum() else f"{base}^({exponent})"

    def transposed(self, base: str) -> str:
        return f"{base}ᵀ"

    def inverse_transposed(self, base: str) -> str:
        return f"{base}⁻ᵀ"

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

    def rational(self, over: int, under: int) -> str:
        if under == 1:
            return str(over)
        return FRACTIONS.get((over, under)) or f"({over}/{under})"

    def norm(self, body: str, rank: int) -> str:
        return f"‖{body}‖_F" if rank == 2 else f"‖{body}‖"

    def call(self, name: str, arguments: list[str]) -> str:
        return f"{name}({', '.join(arguments)})"

    def difference(self, name: str, points: list[str]) -> str:
        return f"{name}[{', '.join(points)}]"

    def indices(self, base: str, indices: list[str]) -> str:
        return f"{base}[{','.join(indices)}]"

    def entry(self, body: Tree, indices: list[str]) -> str:
        return self.indices(self.text(body, ATOM), indices)

    def bracket(self, condition: str) -> str:
        return f"[{condition}]"

    def total(self, letters: tuple[str, ...], body: str) -> str:
        below = letters[0] if len(letters) == 1 else f"{{{','.join(letters)}}}"
        return f"Σ_{below} {body}"

    def dimension(self, size: Dimension) -> str:
        """A polynomial in dimensions."""
        text = re.sub(r"floor\(([^()]*)\)", r"⌊\1⌋", str(size))
        text = re.sub(r"Mod\(([^(),]*), ([^(),]*)\)", r"\1 mod \2", text)
        text = re.sub(r"Wrapped\(([^(),]*), ([^()]*)\)", r"(\1 mod \2)", text)
        return text.replace("**", "^").replace("*", " ").replace("-", self.minus)

    def unit(self, position: Dimension) -> str:
        if position.is_Integer:
            return f"e{str(position).translate(SUBSCRIPTS)}"
        text = self.dimension(position)
        return f"e_{text}" if text.isalnum() else f"e[{text}]"

    def operation(self, tree: Call, arguments: list[str]) -> str:
        return tree.operation.formula("unicode", tree.output).format(*arguments)

    def name(self, tree: Name) -> str:
        return unicode_name(tree.base, tree.accent)

    def size_name(self, name: str) -> str:
        return unicode_name(name, "")

    def choice(self, tree: Choice) -> Text:
        parts = [self.condition(tree.condition), self.text(tree.yes), self.text(tree.no)]
        return self.call("where", parts), ATOM

    def where(self, text: str, definitions: list[tuple[str, str]]) -> str:
        """A formula and the definitions it uses, on one line."""
        return f"{text}  where {', '.join(f'{left} = {right}' for left, right in definitions)}"

    def equations(self, lines: list[tuple[str, str]]) -> str:
        """An equation and the definitions it uses, on lines of their own."""
        (left, right), *definitions = lines
        text = f"{left} = {right}"
        for position, (name, part) in enumerate(definitions):
            text += f"\n  {'where' if position == 0 else '     '} {name} = {part}"
        return text

    # Names and numbers

    def show_name(self, tree: Name) -> Text:
        return self.name(tree), ATOM

    def show_differential(self, tree: Differential) -> Text:
        return self.differential(self.text(tree.body, ATOM)), ATOM

    def differential(self, body: str) -> str:
        word = re.match(r"\w{2,}", body)
        return f"d {body}" if word else f"d{body}"

    def show_number(self, tree: Number) -> Text:
        value = tree.value
        if value.is_Rational:
            text = self.rational(abs(int(value.p)), int(value.q))
        elif value.is_Float:
            text = f"{abs(float(value)):.15g}"
        else:
            return self.constant(value), ATOM
        return (f"{self.minus}{text}", SUM) if value.is_negative else (text, ATOM)

    def constant(self, value: sympy.Expr) -> str:
        return {"pi": "π", "E": "e", "oo": "∞", "EulerGamma": "γ"}.get(str(value), str(value))

    def show_size(self, tree: Size) -> Text:
        return self.size_name(tree.name), ATOM

    def show_literal(self, tree: Literal) -> Text:
        array = tree.array
        if array.size > 16:
            return self.call("constant", ["×".join(map(str, array.shape))]), ATOM
        return str(array.tolist()).replace(".0", "").replace("-", self.minus), ATOM

    def show_zeros(self, tree: Zeros) -> Text:
        return "0", ATOM

    def show_identity(self, tree: Identity) -> Text:
        return self.identity, ATOM

    def show_ones(self, tree: Ones) -> Text:
        return self.ones, ATOM

    def show_unit(self, tree: Unit) -> Text:
        return self.unit(tree.position), ATOM

    def show_mask(self, tree: Mask) -> Text:
        ones = f"{self.ones} {self.transposed(self.ones)}"
        return self.call("tril", [ones, *self._offset(-tree.offset)]), ATOM

    def _offset(self, offset: int) -> list[str]:
        return [str(offset).replace("-", self.minus)] if offset else []

    def show_triangle(self, tree: Triangle) -> Text:
        name = "tril" if tree.lower else "triu"
        return self.call(name, [self.text(tree.body), *self._offset(tree.offset)]), ATOM

    def show_merged(self, tree: Merged) -> Text:
        sizes = [self.dimension(tree.outer), self.dimension(tree.inner)]
        return self.call("pack" if tree.packed else "merge", sizes), ATOM

    def show_picked(self, tree: Picked) -> Text:
        return self.call("pick", [str(entry) for entry in tree.table]), ATOM

    def show_rows(self, tree: Rows) -> Text:
        taken = self._range((tree.start, tree.count, tree.step, tree.size))
        return f"{self.identity}[{taken}, :]", ATOM

    def show_padded(self, tree: Padded) -> Text:
        return self.show_block(surrounded(tree))

    def show_block(self, tree: Block) -> Text:
        return self.blocks([[self.text(cell) for cell in row] for row in tree.rows]), ATOM

    def blocks(self, rows: list[list[str]]) -> str:
        return f"[{'; '.join(', '.join(row) for row in rows)}]"

    def show_kronecker(self, tree: Kronecker) -> Text:
        return (
            f"{self.text(tree.left, POWER)}{self.kronecker_sign}{self.text(tree.right, POWER)}",
            HADAMARD,
        )

    def show_vectorised(self, tree: Vectorised) -> Text:
        return self.call("vech" if tree.packed else "vec", [self.text(tree.body)]), ATOM

    def show_unvectorised(self, tree: Unvectorised) -> Text:
        return self.call("unvech" if tree.packed else "unvec", [self.text(tree.body)]), ATOM

    def show_positive(self, tree: Positive) -> Text:
        return self.bracket(self._order(">", tree.body)), ATOM

    def _order(self, symbol: str, difference: Tree) -> str:
        """`difference` > 0, with what is subtracted on the right."""
        terms = difference.terms if isinstance(difference, Add) else (difference,)
        right = [t for t in terms if self.text(t).startswith(self.minus)]
        left = [t for t in terms if t not in right]
        if not left:
            turned = {">": "<", ">=": "<="}[symbol]
            return self._compared(turned, self._negated(right), "0")
        return self._compared(symbol, " + ".join(map(self.text, left)), self._negated(right) or "0")

    def _negated(self, terms: list[Tree]) -> str:
        return " + ".join(self.text(term).removeprefix(self.minus) for term in terms)

    def _compared(self, symbol: str, left: str, right: str) -> str:
        return f"{left} {self.relations.get(symbol, symbol)} {right}"

    def show_part(self, tree: Part) -> Text:
        ranges = [self._range(part) for part in tree.ranges]
        body = self.text(tree.body, ATOM)
        if tree.rank:
            return f"{body}[{', '.join(ranges)}]", ATOM
        return self.indices(body, ranges), ATOM

    def _range(self, part: object) -> str:
        if part is None:
            return ":"
        if isinstance(part, tuple):
            start, count, step, size = part
            stop = sympy.expand(start + step * count)
            to_end = stop == size if step > 0 else stop.is_negative
            last = "" if to_end else self.dimension(stop)
            first = "" if start == (0 if step > 0 else size - 1) else self.dimension(start)
            stride = f":{self.dimension(sympy.Integer(step))}" if step != 1 else ""
            return f"{first}:{last}{stride}"
        return self.dimension(part)

    # Products

    def show_matmul(self, tree: Matmul) -> Text:
        return " ".join(self.text(factor, POWER) for factor in tree.factors), PRODUCT

    def show_transpose(self, tree: Transpose) -> Text:
        if isinstance(tree.body, Rows):
            rows = tree.body
            taken = self._range((rows.start, rows.count, rows.step, rows.size))
            return f"{self.identity}[:, {taken}]", ATOM
        return self.transposed(self.text(tree.body, ATOM)), POWER

    def show_power(self, tree: Power) -> Text:
        if isinstance(tree.body, Transpose) and tree.exponent == -1:
            return self.inverse_transposed(self.text(tree.body.body, ATOM)), POWER
        return self.superscript(self.text(tree.body, ATOM), str(tree.exponent)), POWER

    def show_scale(self, tree: Scale) -> Text:
        over, under = split_divisors(tree.scalars)
        coefficient = abs(tree.coefficient)
        numbers: list[str] = []
        if coefficient.is_Rational and under:
            numbers = [str(coefficient.p)] if coefficient.p != 1 else []
            under = ([Number(sympy.Integer(coefficient.q))] if coefficient.q != 1 else []) + under
        elif coefficient != 1:
            numbers = [self.text(Number(coefficient), POWER)]
        inverted = None if under else self._inverted(tree.body)
        if inverted:
            upper = self._numerator(numbers, over, None, True)
            upper = self.entrywise_quotient(upper, *inverted)
        else:
            upper = self._numerator(numbers, over, tree.body, bool(under))
        if under:
            upper = self.fraction(upper, self._denominator(under))
        loose = isinstance(tree.body, Hadamard) or "Over(" in tree.order
        holds = HADAMARD if (loose or inverted) and not under else PRODUCT
        return (self.minus + upper, SUM) if tree.coefficient.is_negative else (upper, holds)

    def _inverted(self, body: Tree | None) -> tuple[str, bool] | None:
        """What an array that is nothing but divisors divides by, and whether these are several."""
        if body is None or not body.rank:
            return None
        over, under = split_divisors(body.factors if isinstance(body, Hadamard) else (body,))
        lower = self.hadamard_sign.join(self.text(factor, POWER) for factor in under)
        return None if over else (lower, len(under) > 1)

    def _numerator(
        self, numbers: list[str], over: list[Tree], body: Tree | None, divided: bool
    ) -> str:
        parts = over if body is None else [*over, body]
        if not numbers and len(parts) == 1:
            return self.text(parts[0], PRODUCT if divided else HADAMARD)
        texts = numbers + [self.text(part, POWER) for part in over]
        if body is not None:
            texts.append(self.text(body, PRODUCT if divided else HADAMARD))
        elif over and (len(over) == 1 or isinstance(over[-1], Over)):
            texts[-1] = self.text(over[-1], PRODUCT if divided else HADAMARD)
        return self.joined(texts) or "1"

    def joined(self, texts: list[str]) -> str:
        """Factors side by side."""
        return " ".join(texts)

    def _denominator(self, under: list[Tree]) -> str:
        if len(under) == 1:
            return self.text(under[0], POWER)
        return self.parentheses(self.joined([self.text(part, POWER) for part in under]))

    def show_hadamard(self, tree: Hadamard) -> Text:
        over, under = split_divisors(tree.factors)
        upper = self.hadamard_sign.join(self.text(factor, POWER) for factor in over)
        if not under:
            return upper, HADAMARD
        lower = self.hadamard_sign.join(self.text(factor, POWER) for factor in under)
        return self.entrywise_quotient(upper, lower, len(under) > 1), HADAMARD

    def entrywise_quotient(self, upper: str, lower: str, several: bool) -> str:
        return f"{upper or '1'} ⊘ {self.parentheses(lower) if several else lower}"

    def show_raise(self, tree: Raise) -> Text:
        exponent = tree.exponent
        under = divisor(tree)
        if under is not None:
            if tree.rank:
                return self.entrywise_quotient("", self.text(under, POWER), False), HADAMARD
            return self.fraction("1", self.text(under, POWER)), PRODUCT
        if exponent == Number(sympy.S.Half):
            return self.root(tree.body)
        base = self.text(tree.body, ATOM)
        power = self.text(exponent)
        if isinstance(exponent, Number):
            power = power.removeprefix("(").removesuffix(")")
        if tree.rank:
            return self.entrywise_power(base, power), POWER
        return self.superscript(base, power), POWER

    # Sums

    def show_add(self, tree: Add) -> Text:
        text = ""
        for term in tree.terms:
            part = self.text(term, HADAMARD)
            if self.text(term).startswith(self.minus):
                negative = self.text(term)
                text += f" {self.minus} {negative[len(self.minus) :]}" if text else negative
            else:
                text += f" + {part}" if text else part
        return text, SUM

    def show_spread(self, tree: Spread) -> Text:
        plain = isinstance(tree.body, Scale) and not split_divisors(tree.body.scalars)[1]
        body = self.text(tree.body, PRODUCT if plain else POWER)
        row = self.transposed(self.ones)
        if tree.rank > 2:
            return self.call("broadcast", [self.text(tree.body)]), ATOM
        if tree.rank == 1:
            parts = [body, self.ones]
        elif tree.along == (0,):
            parts = [body, row]
        elif tree.along == (1,):
            parts = [self.ones, self.transposed(self.text(tree.body, ATOM))]
        else:
            parts = [body, self.ones, row]
        return " ".join(part for part in parts if part != "1"), PRODUCT

    def show_over(self, tree: Over) -> Text:
        return self.total(tree.over, self.text(tree.body, HADAMARD)), HADAMARD

    # Functions

    def show_diag(self, tree: Diag) -> Text:
        return self.call("diag", [self.text(tree.body)]), ATOM

    def show_diagonal(self, tree: Diagonal) -> Text:
        return self.call("diagonal", [self.text(tree.body)]), ATOM

    def show_trace(self, tree: Trace) -> Text:
        return self.call("tr", [self.text(tree.body)]), ATOM

    def show_total(self, tree: Total) -> Text:
        return self.call("sum", [self.text(tree.body)]), ATOM

    def show_norm(self, tree: Norm) -> Text:
        return self.norm(self.text(tree.body), tree.body.rank), ATOM

    def show_function(self, tree: Function) -> Text:
        arguments = [self.text(argument) for argument in tree.arguments]
        if tree.head == "Abs" and tree.rank == 0:
            return f"|{arguments[0]}|", ATOM
        if tree.head == "polygamma" and arguments[0] == "0":
            return self.call("digamma", arguments[1:]), ATOM
        name = HEADS.get(tree.head, tree.head.lower())
        if issubclass(tree.function, Differences):
            return self.difference(name, arguments), ATOM
        return self.call(name, arguments), ATOM

    def condition(self, tree: Tree) -> str:
        """A condition without its bracket."""
        if isinstance(tree, Relation):
            if tree.symbol in (">", ">=") and tree.right == Number(sympy.S.Zero):
                return self._order(tree.symbol, tree.left)
            left, right = self.text(tree.left), self.text(tree.right)
            return f"{left} {self.relations.get(tree.symbol, tree.symbol)} {right}"
        if isinstance(tree, Logic):
            word = self.words[tree.word]
            parts = [self.parentheses(self.condition(part)) for part in tree.parts]
            return word + parts[0] if tree.word == "not" else word.join(parts)
        return self.text(tree)

    def show_relation(self, tree: Relation) -> Text:
        return self.bracket(self.condition(tree)), ATOM

    def show_logic(self, tree: Logic) -> Text:
        return self.bracket(self.condition(tree)), ATOM

    def show_choice(self, tree: Choice) -> Text:
        zero, one = Number(sympy.S.Zero), Number(sympy.S.One)
        if (tree.yes, tree.no) == (one, zero):
            return self.bracket(self.condition(tree.condition)), ATOM
        opposite = OPPOSITE.get(getattr(tree.condition, "symbol", ""))
        if isinstance(tree.condition, Relation) and opposite and (tree.yes, tree.no) == (zero, one):
            return self.bracket(self.condition(replace(tree.condition, symbol=opposite))), ATOM
        return self.choice(tree)

    def show_call(self, tree: Call) -> Text:
        text = self.operation(tree, [self.text(argument) for argument in tree.arguments])
        return text, ATOM

    # Indices

    def show_indexed(self, tree: Indexed) -> Text:
        letters = [":" if i is None else self.dimension(i) for i in tree.indices]
        while letters[-1] == ":" and len(tree.indices) - tree.rank == 1:
            letters.pop()
        return self.entry(tree.body, letters), ATOM

    def show_contraction(self, tree: Contraction) -> Text:
        operands = [self.text(operand) for operand in tree.operands]
        return self.call("einsum", [tree.subscripts, *operands]), ATOM

    def show_arranged(self, tree: Arranged) -> Text:
        return self.call("transpose", [self.text(tree.body), str(tree.places)]), ATOM

    def show_bracket(self, tree: Bracket) -> Text:
        left, right = self.dimension(tree.left), self.dimension(tree.right)
        if tree.symbol == "δ":
            return self.delta(left, right), ATOM
        symbol = self.relations.get(tree.symbol, tree.symbol)
        return self.bracket(f"{left} {symbol} {right}"), ATOM

    def delta(self, left: str, right: str) -> str:
        return f"δ[{left},{right}]"


UNICODE = Unicode()
