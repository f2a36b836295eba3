"""Scalars, indices and conditions as infix text; a target spells names and numbers its own way."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.steps import Load, Name, Number, Operate, Scalar, Test, Whole

CHOOSE, OR, AND, NOT, COMPARE, ADD, MULTIPLY, NEGATE, POWER, ATOM = range(10)
"""Precedence of operators in infix texts, the loosest first."""
COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
CHAINS = {"mul": (" * ", MULTIPLY), "and": (" and ", AND), "or": (" or ", OR)}


class Infix:
    """A printer of scalars in mathematical notation, for comments; targets override its parts."""

    functions: Mapping[str, str] = {}
    """Operator -> the function that it is written as, for those without a sign of their own."""
    nothing = ""
    """The index of an array of rank 0."""

    def number(self, value: sympy.Expr) -> str:
        """Print a number, or arithmetic of sizes in floating point."""
        return str(value).replace(" ", "")

    def index(self, expression: sympy.Basic) -> str:
        """Print arithmetic of sizes and loop indices, or a condition on them."""
        return index(expression)

    def load(self, load: Load) -> str:
        """Print an entry of an array."""
        return f"{load.buffer.name}[{', '.join(map(self.index, load.indices)) or self.nothing}]"

    def function(self, operator: str) -> str:
        """Print the name of an operator's function."""
        return self.functions.get(operator, operator)

    def text(self, scalar: Scalar, outer: int = CHOOSE) -> str:
        """Print a scalar; in parentheses if it binds less tightly than `outer`, the precedence of
        the operator around it."""
        inner, text = self._print(scalar)
        return f"({text})" if inner < outer else text

    def _print(self, scalar: Scalar) -> tuple[int, str]:
        """Return the precedence and the text of a scalar."""
        match scalar:
            case Name() | Whole():
                return ATOM, str(scalar)
            case Number(value):
                text = self.number(value)
                return (ATOM if text.isalnum() or text[-1] == ")" else CHOOSE), text
            case Load():
                return ATOM, self.load(scalar)
            case Test(condition):
                return AND, self.index(condition)
            case Operate(operator, operands):
                return self._operate(operator, operands)

    def _operate(self, operator: str, operands: tuple[Scalar, ...]) -> tuple[int, str]:
        if operator == "add":
            return ADD, self._sum(operands)
        if operator == "times" and operator not in self.functions:
            operator = "mul"
        if operator in CHAINS:
            sign, level = CHAINS[operator]
            return level, sign.join(self.text(operand, level + 1) for operand in operands)
        if operator in COMPARISONS:
            left_side, right_side = (self.text(operand, ADD) for operand in operands)
            return COMPARE, f"{left_side} {COMPARISONS[operator]} {right_side}"
        if operator == "neg":
            return NEGATE, f"-{self.text(operands[0], MULTIPLY)}"
        if operator == "not":
            return NOT, f"not {self.text(operands[0], NOT)}"
        if operator == "div":
            above, below = operands
            return MULTIPLY, f"{self.text(above, MULTIPLY)} / {self.text(below, NEGATE)}"
        if operator == "pow":
            base, exponent = operands
            return POWER, f"{self.text(base, ATOM)}**{self._exponent(exponent)}"
        if operator == "choose":
            test, value, otherwise = operands
            value_text = self.text(value, OR)
            return CHOOSE, f"{value_text} if {self.text(test, OR)} else {self.text(otherwise, OR)}"
        if operator in ("maximum", "minimum") and len(operands) > 2:
            *leading, final = operands
            return self._operate(operator, (Operate(operator, tuple(leading)), final))
        arguments = ", ".join(self.text(operand) for operand in operands)
        return ATOM, f"{self.function(operator)}({arguments})"

    def _exponent(self, exponent: Scalar) -> str:
        if isinstance(exponent, Number) and exponent.value.is_Integer:
            return str(exponent.value)
        return self.text(exponent, ATOM)

    def _sum(self, terms: tuple[Scalar, ...]) -> str:
        text = self.text(terms[0], ADD)
        for term in terms[1:]:
            if isinstance(term, Operate) and term.operator == "neg":
                text += f" - {self.text(term.operands[0], MULTIPLY)}"
            else:
                text += f" + {self.text(term, ADD)}"
        return text


def infix_text(scalar: Scalar) -> str:
    """Print a scalar in mathematical notation, for comments."""
    return Infix().text(scalar)
