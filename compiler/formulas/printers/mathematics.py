"""The printer of all styles for reading, which writes trees as mathematics does."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import fields, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar

import sympy

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.layout import surrounded
from derivatrix.compiler.formulas.names import split_name
from derivatrix.compiler.formulas.printers.base import (
    ATOM,
    HADAMARD,
    POWER,
    PRIMARY,
    PRODUCT,
    SUM,
    TEST,
    Text,
)
from derivatrix.compiler.formulas.printers.spelling import Spelling
from derivatrix.compiler.formulas.signs import SIGNS
from derivatrix.compiler.formulas.tree import Indices, Tree, divisor, negated, split_divisors
from derivatrix.compiler.ir.divided_differences import Differences

OPPOSITE = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}

HEADS = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh", "loggamma": "gammaln", "ceiling": "ceil", "Max": "max",
    "Min": "min",
}  # fmt: skip
"""NumPy's and SciPy's names of functions, by SymPy's."""

SIZED_MATRICES: dict[type[Tree], str] = {
    kinds.Commutation: "K",
    kinds.Duplication: "D",
    kinds.Elimination: "L",
    kinds.Diagonals: "Ψ",
}
"""Letters of matrices that only depend on sizes."""

CONSTANTS = {sympy.pi: "π", sympy.EulerGamma: "γ"}
"""Letters of numbers; Euler's e is exp(1) in a formula with a name e."""


_HEADED = re.compile(
    r"(?:\\mathrm\{\{D\}\}(?:\^\{\{\d+\}\})?)?"
    r"(\w+|\\[a-zA-Z]+|\\operatorname\{\{(?:\w|\\_)+\}\})\([^()]*\)(?:\[[^][]*\])?"
)
"""Format string of an operation that is a call, or a derivative of one."""

_ENCLOSED = re.compile(r"(?:[(\[|‖]|, )\{(\d+)\}")
"""An argument in a format string that needs no parentheses."""


class MathPrinter(Spelling):
    """Writes formulas with the signs of its `Spelling`, by default in Unicode."""

    calls: ClassVar = {
        kinds.Diag: "diag",
        kinds.Diagonal: "diagonal",
        kinds.Trace: "tr",
        kinds.Total: "sum",
    }

    def bare(self, tree: Tree) -> Text:
        if self not in tree.texts:
            tree.texts[self] = super().bare(tree)
        return tree.texts[self]

    def beside(self, names: Set[str]) -> MathPrinter:
        """Return the printer for formulas in which these names occur."""
        return _beside(self, frozenset(names))

    # Left sides

    def left_side(self, base: Text, indices: Indices) -> str:
        """Write the left side of an equation, with the indices of the right side."""
        texts = [self.dimension(index) for index in indices if index is not None]
        return self.indices(base, texts, base[1] >= ATOM) if texts else base[0]

    def derivative(self, kind: str, value: str, inputs: Sequence[str]) -> Text:
        """Name the derivative of a value by inputs."""
        if kind == "vjp":
            return self.accented(inputs[0], "bar")
        if kind in ("value", "jvp"):
            return self.accented(value, "dot" if kind == "jvp" else "")
        names = map(self.name, (value, *inputs))
        text = self.left_sides[kind].format(*names, d=self.sign("d"))
        return text, PRODUCT if self.fraction_bar else ATOM

    def accented(self, name: str, accent: str) -> Text:
        """Write a name; one with a subscript is no primary."""
        return self.name(name, accent), ATOM if split_name(name)[1] else PRIMARY

    def vec_derivative(
        self, kind: str, value: str, inputs: Sequence[str], sides: Sequence[str]
    ) -> Text:
        """Name a Jacobian or Hessian in vec form. sides: the vectorisation, "vec", "vech", ... or
        "" for none, of the value, or the first input, and of the last input."""
        names = map(self.name, [value, *inputs][-2:])
        row, column = map(self._side, sides, names)
        denominator = self.transposed.format(self.parentheses(column) if sides[1] else column)
        if kind == "jacobian":
            return self.left_sides[kind].format(row, denominator), ATOM
        return self.left_sides["vec hessian"].format(self.name(value), row, denominator), ATOM

    def _side(self, operator: str, name: str) -> str:
        if operator == "vech of the transpose":
            return f"{self.function('vech')} {self.transposed.format(name)}"
        return f"{self.function(operator)} {name}" if operator else name

    # Names and numbers

    def show_name(self, tree: kinds.Name) -> Text:
        return self.accented(tree.base, tree.accent)

    def show_differential(self, tree: kinds.Differential) -> Text:
        return self.differential(tree.body)

    def differential(self, body: Tree) -> Text:
        """Write the differential of a subexpression."""
        text, precedence = self.bare(body)
        is_spaced = precedence == PRIMARY
        if isinstance(body, kinds.Name):
            is_spaced = self.is_word(body.base)
        text = self.differential_sign(is_spaced) + self.enclosed((text, precedence), ATOM)
        return text, ATOM if precedence == ATOM else PRIMARY

    def show_number(self, tree: kinds.Number) -> Text:
        if tree.is_negative:
            return f"{self.minus}{self.text(negated(tree), ATOM)}", SUM
        value = tree.value
        if value.is_Rational:
            return self.enclosed(self.rational(int(value.p), int(value.q)), ATOM), ATOM
        if value.is_Float:
            return f"{float(value):.15g}", ATOM
        letter = CONSTANTS.get(value)
        if letter:
            return self.sign(letter), ATOM
        if value == sympy.E:
            return self.call("exp", ["1"]) if "e" in self.occupied else ("e", ATOM)
        return self.constant(value), ATOM

    def show_size(self, tree: kinds.Size) -> Text:
        return self.name(tree.name), ATOM

    def show_zeros(self, tree: kinds.Zeros) -> Text:
        return "0", ATOM

    def show_identity(self, tree: kinds.Identity) -> Text:
        return self.sign("I"), ATOM

    def show_ones(self, tree: kinds.Ones) -> Text:
        return self.ones, ATOM

    def show_unit(self, tree: kinds.Unit) -> Text:
        return self.unit(tree.position), ATOM

    def show_mask(self, tree: kinds.Mask) -> Text:
        ones = f"{self.ones} {self.transposed.format(self.ones)}"
        return self.call("tril", [ones, *self._offset(-tree.offset)])

    def _offset(self, offset: int) -> list[str]:
        return [str(offset).replace("-", self.minus)] if offset else []

    def show_triangle(self, tree: kinds.Triangle) -> Text:
        name = "tril" if tree.lower else "triu"
        return self.call(name, [self.text(tree.body), *self._offset(tree.offset)])

    def show_reshaped(self, tree: kinds.Reshaped) -> Text:
        sizes = [self.dimension(tree.outer), self.dimension(tree.inner)]
        return self.call("pack" if tree.packed else "merge", sizes)

    def show_gathered(self, tree: kinds.Gathered) -> Text:
        return self.call("gather", [str(entry) for entry in tree.table])

    def show_rows(self, tree: kinds.Rows) -> Text:
        return f"{self.sign('I')}[{self.range(tree.range)}, :]", ATOM

    def show_padded(self, tree: kinds.Padded) -> Text:
        return self.show_block(surrounded(tree))

    def show_block(self, tree: kinds.Block | kinds.Entries) -> Text:
        return self.blocks([[self.text(cell) for cell in row] for row in tree.rows]), ATOM

    show_entries = show_block

    def show_kronecker(self, tree: kinds.Kronecker) -> Text:
        parts = (
            self.matrix(part, SUM if isinstance(part, kinds.Kronecker) else POWER)
            for part in (tree.left, tree.right)
        )
        return self.kronecker_sign.join(parts), SUM

    def _sized_matrix(self, tree: Tree) -> Text:
        """Write a matrix that only depends on sizes: its letter with these as subscripts."""
        letter = SIZED_MATRICES[type(tree)]
        sizes = list(dict.fromkeys(getattr(tree, part.name) for part in fields(tree)))
        texts = [self.dimension(size) for size in sizes]
        subscript = ("," if any(len(text) > 1 for text in texts) else "").join(texts)
        plain = self.subscript(self.word(letter), subscript)
        is_distinct = plain not in self.occupied and not all(size.is_number for size in sizes)
        return plain if is_distinct else self.subscript(self.sign(letter), subscript), ATOM

    show_commutation = show_duplication = show_elimination = show_diagonals = _sized_matrix

    def show_vectorised(self, tree: kinds.Vectorised) -> Text:
        return self.call("vech" if tree.packed else "vec", [self.text(tree.body)])

    def show_unvectorised(self, tree: kinds.Unvectorised) -> Text:
        return self.call("unvech" if tree.packed else "unvec", [self.text(tree.body)])

    def show_positive(self, tree: kinds.Positive) -> Text:
        return self.bracket.format(self._comparison(">", tree.body)), ATOM

    def _comparison(self, symbol: str, difference: Tree) -> str:
        """Write `difference` > 0 with the negative terms on the right side."""
        terms = difference.terms if isinstance(difference, kinds.Add) else (difference,)
        left = " + ".join(self.text(term) for term in terms if not term.is_negative)
        right = " + ".join(self.text(negated(term)) for term in terms if term.is_negative)
        if not left:
            return self._compared({">": "<", ">=": "<="}[symbol], right, "0")
        return self._compared(symbol, left, right or "0")

    def _compared(self, symbol: str, left: str, right: str) -> str:
        return f"{left} {self.relations.get(symbol, symbol)} {right}"

    def show_part(self, tree: kinds.Part) -> Text:
        ranges = [self.range(part) for part in tree.ranges]
        if tree.rank:
            return f"{self.text(tree.body, ATOM)}[{', '.join(ranges)}]", ATOM
        return self.entry(tree.body, ranges), ATOM

    # Products

    def show_matmul(self, tree: kinds.Matmul) -> Text:
        return " ".join(self.matrix(factor, POWER) for factor in tree.factors), PRODUCT

    def show_transpose(self, tree: kinds.Transpose) -> Text:
        if isinstance(tree.body, kinds.Rows):
            return f"{self.sign('I')}[:, {self.range(tree.body.range)}]", ATOM
        return self.transposed.format(self.matrix(tree.body, ATOM)), POWER

    def show_power(self, tree: kinds.Power) -> Text:
        if isinstance(tree.body, kinds.Transpose) and tree.exponent == -1:
            return self.inverse_transposed.format(self.matrix(tree.body.body, ATOM)), POWER
        return self.superscript(self.matrix(tree.body, ATOM), str(tree.exponent)), POWER

    def show_scale(self, tree: kinds.Scale) -> Text:
        if tree.is_negative:
            return self.minus + self.bare(negated(tree))[0], SUM
        scalars, divisors = split_divisors(tree.scalars)
        coefficient = tree.coefficient
        numbers: list[str] = []
        if coefficient.is_Rational and divisors:
            numbers = [str(coefficient.p)] * (coefficient.p != 1)
            if coefficient.q != 1:
                divisors = [kinds.Number(sympy.Integer(coefficient.q)), *divisors]
        elif coefficient != 1:
            numbers = [self.text(kinds.Number(coefficient), POWER)]
        array_divisors = [] if divisors else self._array_divisors(tree.body)
        if array_divisors:
            numerator = self._numerator(numbers, scalars, None, True)
            text = self._entrywise_quotient(numerator, array_divisors)
        else:
            text = self._numerator(numbers, scalars, tree.body, bool(divisors))
        if divisors:
            return self.fraction(text, self._denominator(divisors)), PRODUCT
        is_entrywise = bool(array_divisors) or isinstance(tree.body, kinds.Hadamard)
        return text, HADAMARD if is_entrywise or tree.counts[kinds.Over] else PRODUCT

    def _array_divisors(self, body: Tree | None) -> list[Tree]:
        """List the divisors of an array that has no other factors."""
        if body is None or not body.rank:
            return []
        factors = body.factors if isinstance(body, kinds.Hadamard) else (body,)
        numerator, divisors = split_divisors(factors)
        return [] if numerator else divisors

    def _numerator(
        self, numbers: list[str], scalars: list[Tree], body: Tree | None, is_divided: bool
    ) -> str:
        parts = scalars if body is None else [*scalars, body]
        min_precedence = PRODUCT if is_divided else HADAMARD
        if not numbers and len(parts) == 1:
            return self.text(parts[0], SUM if is_divided and self.fraction_bar else min_precedence)
        texts = numbers + [self.text(part, POWER) for part in scalars]
        if body is not None:
            texts.append(self.text(body, min_precedence))
        elif scalars and (len(scalars) == 1 or isinstance(scalars[-1], kinds.Over)):
            texts[-1] = self.text(scalars[-1], min_precedence)
        return " ".join(texts) or "1"

    def _denominator(self, divisors: list[Tree]) -> str:
        if len(divisors) == 1:
            return self.text(divisors[0], SUM if self.fraction_bar else POWER)
        text = " ".join(self.text(part, POWER) for part in divisors)
        return text if self.fraction_bar else self.parentheses(text)

    def show_hadamard(self, tree: kinds.Hadamard) -> Text:
        factors, divisors = split_divisors(tree.factors)
        numerator = self.hadamard_sign.join(self.entrywise(factor, POWER) for factor in factors)
        return self._entrywise_quotient(numerator, divisors), HADAMARD

    def _entrywise_quotient(self, numerator: str, divisors: list[Tree]) -> str:
        if not divisors:
            return numerator
        denominator = self.hadamard_sign.join(self.entrywise(part, POWER) for part in divisors)
        if len(divisors) > 1:
            denominator = self.parentheses(denominator)
        return (numerator or "1") + self.division_sign + denominator

    def show_raise(self, tree: kinds.Raise) -> Text:
        exponent = tree.exponent
        reciprocal = divisor(tree)
        if reciprocal is not None:
            if tree.rank:
                return self._entrywise_quotient("", [reciprocal]), HADAMARD
            return self.fraction("1", self._denominator([reciprocal])), PRODUCT
        if exponent == kinds.Number(sympy.S.Half):
            return self.root(tree.body)
        base = self.entrywise(tree.body, ATOM)
        power = self._exponent(exponent)
        if tree.rank:
            return self.entrywise_power(base, power), POWER
        return self.superscript(base, power), POWER

    def _exponent(self, tree: Tree) -> str:
        if isinstance(tree, kinds.Number) and tree.value.is_Rational and not tree.is_negative:
            return self.rational(int(tree.value.p), int(tree.value.q))[0]
        return self.entrywise(tree)

    # Sums

    def show_add(self, tree: kinds.Add) -> Text:
        arrays = [term for term in tree.terms if term.rank]
        return self._sum(tree.terms, tree.rank == 2 and any(map(_is_matrix_algebra, arrays)))

    def _sum(self, terms: Sequence[Tree], spread_scalars: bool) -> Text:
        """Write a sum. spread_scalars: write a scalar term, which is added to every entry, as a
        multiple of the matrix of ones; beside a matrix, it would be read as one of the identity."""
        leading, *further_terms = terms
        text = self._term(leading, spread_scalars, SUM if leading.is_negative else HADAMARD)
        for term in further_terms:
            sign, part = (self.minus, negated(term)) if term.is_negative else ("+", term)
            text += f" {sign} {self._term(part, spread_scalars, HADAMARD)}"
        return text, SUM

    def _term(self, term: Tree, spread_scalars: bool, min_precedence: int) -> str:
        if term.rank or not spread_scalars:
            return self.text(term, min_precedence)
        if term.is_negative:
            return self.minus + self._term(negated(term), spread_scalars, HADAMARD)
        return self.text(kinds.Spread(term, (), (sympy.S.One,) * 2), min_precedence)

    def entrywise(self, tree: Tree, min_precedence: int = TEST) -> str:
        """Write an argument of an entrywise function or product, where a scalar term of a sum can
        only be added to every entry."""
        if isinstance(tree, kinds.Add):
            return self.enclosed(self._sum(tree.terms, False), min_precedence)
        return self.text(tree, min_precedence)

    def matrix(self, tree: Tree, min_precedence: int = TEST) -> str:
        """Write an operand of matrix algebra."""
        if isinstance(tree, kinds.Add) and tree.rank == 2:
            return self.enclosed(self._sum(tree.terms, True), min_precedence)
        return self.text(tree, min_precedence)

    def show_spread(self, tree: kinds.Spread) -> Text:
        if tree.rank > 2:
            return self.call("broadcast", [self.text(tree.body)])
        row = self.transposed.format(self.ones)
        if tree.along == (1,):
            return f"{self.ones} {self.transposed.format(self.text(tree.body, ATOM))}", PRODUCT
        is_product = isinstance(tree.body, kinds.Scale) and not split_divisors(tree.body.scalars)[1]
        is_one = tree.body == kinds.Number(sympy.S.One)
        body = [] if is_one else [self.text(tree.body, PRODUCT if is_product else POWER)]
        column = [] if tree.along else [self.ones]
        return " ".join([*body, *column, *([row] if tree.rank == 2 else [])]), PRODUCT

    def show_over(self, tree: kinds.Over) -> Text:
        return self.total(tree.over, self.text(tree.body, HADAMARD)), HADAMARD

    # Functions

    def show_norm(self, tree: kinds.Norm | kinds.Lengths) -> Text:
        return self.norm(self.text(tree.body), tree.body.rank)

    def show_function(self, tree: kinds.Function) -> Text:
        arguments = [self.entrywise(argument) for argument in tree.arguments]
        if tree.head == "Abs":
            return self.absolute(arguments[0], tree.rank)
        if tree.head == "polygamma" and tree.arguments[0] == kinds.Number(sympy.S.Zero):
            return self.call("digamma", arguments[1:])
        name = HEADS.get(tree.head, tree.head.lower())
        if issubclass(tree.function, Differences):
            return self.function(name) + self.bracket.format(", ".join(arguments)), PRIMARY
        return self.call(name, arguments)

    def condition(self, tree: Tree) -> str:
        """Write a condition without its bracket."""
        if isinstance(tree, kinds.Relation):
            if tree.symbol in (">", ">=") and tree.right == kinds.Number(sympy.S.Zero):
                return self._comparison(tree.symbol, tree.left)
            left, right = self.entrywise(tree.left), self.entrywise(tree.right)
            return self._compared(tree.symbol, left, right)
        if isinstance(tree, kinds.Logic):
            word = self.words[tree.word]
            parts = [self.parentheses(self.condition(part)) for part in tree.parts]
            return word + parts[0] if tree.word == "not" else word.join(parts)
        return self.text(tree)

    def show_relation(self, tree: Tree) -> Text:
        return self.bracket.format(self.condition(tree)), ATOM

    show_logic = show_relation

    def show_choice(self, tree: kinds.Choice) -> Text:
        zero, one = kinds.Number(sympy.S.Zero), kinds.Number(sympy.S.One)
        condition = tree.condition
        if (tree.yes, tree.no) == (one, zero):
            return self.show_relation(condition)
        if (tree.yes, tree.no) == (zero, one) and isinstance(condition, kinds.Relation):
            return self.show_relation(replace(condition, symbol=OPPOSITE[condition.symbol]))
        yes, no = self.text(tree.yes), self.text(tree.no)
        return self.choice(self.condition(condition), yes, no)

    def show_call(self, tree: kinds.Call) -> Text:
        form = tree.operation.formula(self.operations, tree.output)
        enclosed = set(map(int, _ENCLOSED.findall(form)))
        arguments = [
            self.matrix(argument, TEST if position in enclosed else ATOM)
            for position, argument in enumerate(tree.arguments)
        ]
        headed = _HEADED.fullmatch(form)
        text = self.operation(form).format(*arguments)
        if headed is None:
            return text, POWER
        name = re.sub(r"\\operatorname|[\\{}]", "", headed[1])
        if self.word(name) in self.occupied:
            text = self.distinguished(name) + text[len(headed[1].format()) :]
        return text, PRIMARY

    # Indices

    def show_indexed(self, tree: kinds.Indexed) -> Text:
        indices = list(tree.indices)
        while indices[-1] is None and len(tree.indices) - tree.rank == 1:
            indices.pop()
        letters = [":" if index is None else self.dimension(index) for index in indices]
        return self.entry(tree.body, letters), ATOM

    # Kinds of NumPy texts only: `order` sorts the terms of their sums, too, by these texts.

    show_lengths = show_norm

    def show_contraction(self, tree: kinds.Contraction) -> Text:
        operands = [self.text(operand) for operand in tree.operands]
        return self.call("einsum", [tree.subscripts, *operands])

    def show_resized(self, tree: kinds.Resized) -> Text:
        return self.call("reshape", [self.text(tree.body), *map(self.dimension, tree.shape)])

    def show_arranged(self, tree: kinds.Arranged) -> Text:
        return self.call("transpose", [self.text(tree.body), str(tree.places)])

    def show_bracket(self, tree: kinds.Bracket) -> Text:
        left, right = self.dimension(tree.left), self.dimension(tree.right)
        if tree.symbol == "δ":
            return self.delta(left, right), ATOM
        return self.bracket.format(self._compared(tree.symbol, left, right)), ATOM


def _is_matrix_algebra(tree: Tree) -> bool:
    """Tell whether beside this term of a sum, readers take a number for a multiple of the
    identity."""
    while isinstance(tree, kinds.Scale) and tree.body is not None:
        tree = tree.body
    return isinstance(
        tree,
        (kinds.Identity, kinds.Matmul, kinds.Power, kinds.Kronecker, kinds.Diag, kinds.Call),
    )


@lru_cache(maxsize=256)
def _beside(printer: MathPrinter, names: frozenset[str]) -> MathPrinter:
    """Copy a printer for formulas with these names, if any looks like a sign or like another."""
    bases = {split_name(name)[0] for name in names}
    differentials = {name[:1] for name in names if name[1:] in names}
    letters = {printer.word(letter) for letter in SIGNS}
    words = {name: printer.word(name) for name in bases | names | ({"d"} & differentials)}
    occupied = frozenset(word for name, word in words.items() if len(name) > 1 or word in letters)
    texts = {
        pair: re.sub(r"\\mathrm\{(\w)\}", r"\1", printer.word(*pair))
        for pair in product(sorted(names), ("", "bar", "dot"))
    }
    counts = Counter(texts.values())
    ambiguous = frozenset(pair for pair, text in texts.items() if counts[text] > 1)
    if not occupied and not ambiguous:
        return printer
    copied = copy.copy(printer)
    copied.occupied, copied.ambiguous = occupied, ambiguous
    return copied


UNICODE = MathPrinter()
