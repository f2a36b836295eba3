"""Operators and blocks, on parts of a text.

Vectors are columns, and a transposed one is a row. A loose vector, as X[0, :] is, becomes the other
of these where it does not fit as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derivatrix.compiler.frontends import arrays as library
from derivatrix.compiler.frontends.notation.tokens import Span, Token
from derivatrix.compiler.frontends.notation.values import Steps, Value
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.runtime.errors import NotationError

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    ".*": operator.mul,
    "/": operator.truediv,
    "./": operator.truediv,
    "^": operator.pow,
    ".^": operator.pow,
}
LARGEST_POWER = 1000
"""Powers of numbers are computed exactly, up to this one."""
WORDS = {
    "+": "cannot add {1} to {0}",
    "-": "cannot subtract {1} from {0}",
    ".*": "cannot multiply {0} and {1} entry by entry",
    "./": "cannot divide {0} by {1} entry by entry",
    ".^": "cannot raise {0} to {1} entry by entry",
}
_INNER = "; x'*y is the inner product, x*y' the outer one, x.*y goes by entries"
_NO_PRODUCT = {
    ("column", "column"): _INNER,
    ("row", "row"): _INNER,
    ("column", "matrix"): "; a row times a matrix is a row: x'*A",
    ("matrix", "row"): "; a matrix times a column is a column: A*x",
}


class Algebra(Steps):
    """Steps for the operators."""

    def combined(self, sign: Token, left: Value, right: Value) -> Value:
        if left.literal is not None and right.literal is not None:
            span = Span(left.span.start, right.span.stop)
            if sign.kind in ("/", "./") and right.literal == 0:
                raise self.error("division by 0", sign.span)
            power = right.literal if sign.kind in ("^", ".^") else sympy.S.One
            if not power.is_number or abs(power) > LARGEST_POWER:
                raise self.error(
                    f"a power of a number or size is from -{LARGEST_POWER} to {LARGEST_POWER}",
                    right.span,
                )
            return self.number(span, ARITHMETIC[sign.kind](left.literal, right.literal))
        rules = {"*": self.product, "/": self.quotient, "^": self.power}
        return rules.get(sign.kind, self.entrywise)(sign, left, right)

    def entrywise(self, sign: Token, left: Value, right: Value) -> Value:
        """Entry by entry; a scalar goes with every entry."""
        left, right = self.agreeing(left, right, sign.span, WORDS[sign.kind])
        return self.broadcast(sign, ARITHMETIC[sign.kind], left, right)

    def broadcast(
        self, place: Token, function: Callable[[Array, Array], Array], left: Value, right: Value
    ) -> Value:
        larger = left if left.rank else right
        span = Span(left.span.start, right.span.stop)
        with self.explained(place.span):
            step = self.note(place.span, function, left, right)
        loose = all(value.loose for value in (left, right) if value.rank)
        return Value(span, step, larger.shape, larger.row, loose)

    def agreeing(self, left: Value, right: Value, place: Span, words: str) -> tuple[Value, Value]:
        """Two values for one function of their entries: shapes equated where both have axes."""

        def complaint(hint: str = "") -> NotationError:
            message = words.format(self.described(left), self.described(right))
            return self.error(message + hint, place)

        if not (left.rank and right.rank):
            return left, right
        if left.rank != right.rank:
            vectors = {left.rank, right.rank} == {1, 2}
            hint = "; x*ones' repeats a column, ones*x' a row" if vectors else ""
            raise complaint(hint)
        if left.row != right.row:
            if not (left.loose or right.loose):
                raise complaint("; transpose one of them")
            left, right = (left.transposed, right) if left.loose else (left, right.transposed)
        for one, other in zip(left.shape, right.shape, strict=True):
            self.sizes.equate(one, other, complaint)
        return left, right

    def product(self, sign: Token, left: Value, right: Value) -> Value:
        """The matrix product, where a column is n by 1 and a row 1 by n."""
        if not (left.rank and right.rank):
            return self.broadcast(sign, operator.mul, left, right)
        if (left.kind, right.kind) in _NO_PRODUCT and (left.loose or right.loose):
            left, right = (left.transposed, right) if left.loose else (left, right.transposed)
        kinds = left.kind, right.kind
        span = Span(left.span.start, right.span.stop)
        if kinds == ("column", "row"):
            step = self.note(sign.span, library.outer, left, right)
            return Value(span, step, left.shape + right.shape)

        def complaint(hint: str) -> NotationError:
            words = f"cannot multiply {self.described(left)} by {self.described(right)}"
            return self.error(words + hint, sign.span)

        if kinds in _NO_PRODUCT or "tensor" in kinds:
            raise complaint(_NO_PRODUCT.get(kinds, "; products of tensors are written with einsum"))
        inner = left.shape[-1], right.shape[0]
        self.sizes.equate(
            *inner,
            lambda: complaint(
                f": the inner sizes {self.sizes.shown(inner[0])} and "
                f"{self.sizes.shown(inner[1])} differ"
            ),
        )
        step = self.note(sign.span, operator.matmul, left, right)
        shape = left.shape[:-1] + right.shape[1:]
        return Value(span, step, shape, row=left.row and len(shape) == 1)

    def quotient(self, sign: Token, left: Value, right: Value) -> Value:
        if right.rank:
            hint = "write A*inv(B) or solve(B, A), or ./ to divide entry by entry"
            if right.rank != 2:
                hint = "write ./ to divide entry by entry"
            raise self.error(
                f"/ divides by a scalar, not by {self.described(right)}; {hint}", sign.span
            )
        if right.literal == 0:
            raise self.error("division by 0", sign.span)
        return self.broadcast(sign, operator.truediv, left, right)

    def power(self, sign: Token, base: Value, exponent: Value) -> Value:
        if exponent.rank:
            raise self.error(
                f"^ takes a scalar as exponent, not {self.described(exponent)}; "
                "entry by entry the power is .^",
                sign.span,
            )
        if not base.rank:
            return self.broadcast(sign, operator.pow, base, exponent)
        if base.rank != 2:
            raise self.error(
                f"^ is a power of a scalar or a square matrix, not of {self.described(base)}; "
                "entry by entry the power is .^",
                sign.span,
            )
        self.sizes.equate(
            base.shape[0],
            base.shape[1],
            lambda: self.error(
                f"a matrix power needs a square matrix, not {self.described(base)}", sign.span
            ),
        )
        span = Span(base.span.start, exponent.span.stop)
        step = self.note(sign.span, library.fractional_matrix_power, base, exponent)
        return Value(span, step, base.shape)

    def negative(self, span: Span, operand: Value) -> Value:
        if operand.literal is not None:
            return self.number(span, -operand.literal)
        value = self.mapped(span, operator.neg, operand)
        return replace(value, row=operand.row, loose=operand.loose)

    def transposed(self, span: Span, operand: Value) -> Value:
        if operand.rank > 2:
            raise self.error(
                f"cannot transpose {self.described(operand)}; use einsum to order its axes", span
            )
        if operand.rank == 2:
            step = self.note(span, operator.attrgetter("mT"), operand)
            return Value(span, step, operand.shape[::-1])
        return replace(operand.transposed, span=span)

    def joined(self, values: Sequence[Value], axis: int) -> Value:
        """Blocks in one, below each other (axis 0) or side by side (axis 1)."""
        if len(values) == 1:
            return values[0]
        across = 1 - axis
        first = next((value for value in values if not value.loose), values[0])
        width = self.sides(first)[across]
        values = [
            value.transposed
            if value.loose and self.sizes.differ(width, self.sides(value)[across])
            else value
            for value in values
        ]
        sides = [self.sides(value) for value in values]
        for value, side in zip(values, sides, strict=True):
            self.sizes.equate(width, side[across], partial(self.unfit, first, value, axis))
        flat = {value.kind for value in values} <= {"scalar", "row" if axis else "column"}
        span = Span(values[0].span.start, values[-1].span.stop)
        rows = tuple(value.row for value in values)
        function = _end_to_end if flat else partial(_joined, axis, rows)
        step = self.note(span, function, *values)
        total = sympy.expand(sympy.Add(*(side[axis] for side in sides)))
        if flat:
            return Value(span, step, (total,), row=axis == 1)
        return Value(span, step, (sides[0][0], total) if axis else (total, sides[0][1]))

    def unfit(self, first: Value, value: Value, axis: int) -> NotationError:
        place = "beside" if axis else "below"
        message = f"{self.described(value)} does not fit {place} {self.described(first)}"
        return self.error(message, value.span)

    def sides(self, value: Value) -> tuple[Dimension, Dimension]:
        """How many rows and columns a block has."""
        if value.rank > 2:
            raise self.error(f"{self.described(value)} is no block", value.span)
        if value.rank == 2:
            return value.shape[0], value.shape[1]
        if not value.rank:
            return sympy.S.One, sympy.S.One
        return (sympy.S.One, value.shape[0]) if value.row else (value.shape[0], sympy.S.One)


def _end_to_end(*parts: Array) -> Array:
    """Vectors and scalars as one vector."""
    return library.concatenate([part if part.ndim else part[None] for part in parts])


def _joined(axis: int, rows: Sequence[bool], *parts: Array) -> Array:
    """Blocks below each other (axis 0) or side by side; `rows` says which vectors are rows."""
    matrices = [_as_matrix(part, row) for part, row in zip(parts, rows, strict=True)]
    return library.concatenate(matrices, axis)


def _as_matrix(array: Array, row: bool) -> Array:
    if array.ndim == 2:
        return array
    if array.ndim == 0:
        return array[None, None]
    return array[None, :] if row else array[:, None]
