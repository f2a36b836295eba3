"""Operators and blocks in a text.

A vector is a column, a transposed one a row. A loose vector, such as X[0, :], is transposed where
it does not fit."""

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
MAX_POWER = 1000
"""Largest power of a number that is computed, exactly: 9^9^9 would take all memory."""
COMPLAINTS = {
    "+": "cannot add {1} to {0}",
    "-": "cannot subtract {1} from {0}",
    ".*": "cannot multiply {0} and {1} entry by entry",
    "./": "cannot divide {0} by {1} entry by entry",
    ".^": "cannot raise {0} to {1} entry by entry",
}
_VECTOR_PRODUCTS = "; x'*y is the inner product, x*y' the outer one, x.*y goes by entries"
_PRODUCT_HINTS = {
    ("column", "column"): _VECTOR_PRODUCTS,
    ("row", "row"): _VECTOR_PRODUCTS,
    ("column", "matrix"): "; a row times a matrix is a row: x'*A",
    ("matrix", "row"): "; a matrix times a column is a column: A*x",
}


class Algebra(Steps):
    """The steps of operators and blocks."""

    def combine(self, sign: Token, left: Value, right: Value) -> Value:
        """Apply an operator. Results of numbers and sizes are exact: they can be indices."""
        if left.literal is not None and right.literal is not None:
            span = Span(left.span.start, right.span.stop)
            if sign.kind in ("/", "./") and right.literal == 0:
                raise self.error("division by 0", sign.span)
            power = right.literal if sign.kind in ("^", ".^") else sympy.S.One
            if not power.is_number or abs(power) > MAX_POWER:
                raise self.error(
                    f"a power of a number or size is from -{MAX_POWER} to {MAX_POWER}",
                    right.span,
                )
            return self.number(span, ARITHMETIC[sign.kind](left.literal, right.literal))
        rules = {"*": self.product, "/": self.quotient, "^": self.power}
        return rules.get(sign.kind, self.entrywise)(sign, left, right)

    def entrywise(self, sign: Token, left: Value, right: Value) -> Value:
        """Combine two values entry by entry; a scalar is broadcast."""
        left, right = self.conformed(left, right, sign.span, COMPLAINTS[sign.kind])
        scalar, array = (right, left) if left.rank else (left, right)
        if sign.kind in "+-" and array.rank and not scalar.rank and scalar.literal is None:
            scalar_text = self.source.text[slice(*scalar.span)]
            place = f"every entry of {self.source.text[slice(*array.span)]}, {self.describe(array)}"
            self.remarks.append(f"{scalar_text} is a scalar, added to {place}")
        return self.broadcast(sign, ARITHMETIC[sign.kind], left, right)

    def broadcast(
        self, place: Token, function: Callable[[Array, Array], Array], left: Value, right: Value
    ) -> Value:
        """Record an entrywise step of two values of one shape, or of one and a scalar."""
        larger = left if left.rank else right
        span = Span(left.span.start, right.span.stop)
        with self.errors_at(place.span):
            step = self.add_step(place.span, function, left, right)
        loose = all(value.loose for value in (left, right) if value.rank)
        return Value(span, step, larger.shape, larger.row, loose)

    def conformed(self, left: Value, right: Value, place: Span, words: str) -> tuple[Value, Value]:
        """Equate the shapes of two operands of an entrywise function, unless one is a scalar; a
        loose vector is transposed to fit."""

        def complaint(hint: str = "") -> NotationError:
            message = words.format(self.describe(left), self.describe(right))
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
        for left_size, right_size in zip(left.shape, right.shape, strict=True):
            self.sizes.equate(left_size, right_size, complaint)
        return left, right

    def product(self, sign: Token, left: Value, right: Value) -> Value:
        """Multiply matrices and vectors; a column is n by 1, a row 1 by n."""
        if not (left.rank and right.rank):
            return self.broadcast(sign, operator.mul, left, right)
        if (left.kind, right.kind) in _PRODUCT_HINTS and (left.loose or right.loose):
            left, right = (left.transposed, right) if left.loose else (left, right.transposed)
        kinds = left.kind, right.kind
        span = Span(left.span.start, right.span.stop)
        if kinds == ("column", "row"):
            step = self.add_step(sign.span, library.outer, left, right)
            return Value(span, step, left.shape + right.shape)

        def complaint(hint: str) -> NotationError:
            words = f"cannot multiply {self.describe(left)} by {self.describe(right)}"
            return self.error(words + hint, sign.span)

        if kinds in _PRODUCT_HINTS or "tensor" in kinds:
            raise complaint(
                _PRODUCT_HINTS.get(kinds, "; products of tensors are written with einsum")
            )
        inner = left.shape[-1], right.shape[0]
        self.sizes.equate(
            *inner,
            lambda: complaint(
                f": the inner sizes {self.sizes.shown(inner[0])} and "
                f"{self.sizes.shown(inner[1])} differ"
            ),
        )
        step = self.add_step(sign.span, operator.matmul, left, right)
        shape = left.shape[:-1] + right.shape[1:]
        return Value(span, step, shape, row=left.row and len(shape) == 1)

    def quotient(self, sign: Token, left: Value, right: Value) -> Value:
        """Divide by a scalar. MATLAB's A/B of matrices is an error that says what to write."""
        if right.rank:
            hint = "write A*inv(B) or solve(B, A), or ./ to divide entry by entry"
            if right.rank != 2:
                hint = "write ./ to divide entry by entry"
            raise self.error(
                f"/ divides by a scalar, not by {self.describe(right)}; {hint}", sign.span
            )
        if right.literal == 0:
            raise self.error("division by 0", sign.span)
        return self.broadcast(sign, operator.truediv, left, right)

    def power(self, sign: Token, base: Value, exponent: Value) -> Value:
        """Raise a scalar or a square matrix to a scalar power."""
        if exponent.rank:
            raise self.error(
                f"^ takes a scalar as exponent, not {self.describe(exponent)}; "
                "entry by entry the power is .^",
                sign.span,
            )
        if not base.rank:
            return self.broadcast(sign, operator.pow, base, exponent)
        if base.rank != 2:
            raise self.error(
                f"^ is a power of a scalar or a square matrix, not of {self.describe(base)}; "
                "entry by entry the power is .^",
                sign.span,
            )
        self.sizes.equate(
            base.shape[0],
            base.shape[1],
            lambda: self.error(
                f"a matrix power needs a square matrix, not {self.describe(base)}", sign.span
            ),
        )
        span = Span(base.span.start, exponent.span.stop)
        step = self.add_step(sign.span, library.fractional_matrix_power, base, exponent)
        return Value(span, step, base.shape)

    def negate(self, span: Span, operand: Value) -> Value:
        if operand.literal is not None:
            return self.number(span, -operand.literal)
        value = self.apply(span, operator.neg, operand)
        return replace(value, row=operand.row, loose=operand.loose)

    def transpose(self, span: Span, operand: Value) -> Value:
        if not operand.rank and operand.literal is None:
            text = self.source.text[slice(*operand.span)]
            self.remarks.append(f"{text} is a scalar, so its transpose is {text}")
        if operand.rank > 2:
            raise self.error(
                f"cannot transpose {self.describe(operand)}; use einsum to order its axes", span
            )
        if operand.rank == 2:
            step = self.add_step(span, operator.attrgetter("mT"), operand)
            return Value(span, step, operand.shape[::-1])
        return replace(operand.transposed, span=span)

    def join_blocks(self, values: Sequence[Value], axis: int) -> Value:
        """Join blocks below each other (axis 0) or side by side (axis 1)."""
        if len(values) == 1:
            return values[0]
        across = 1 - axis
        # a loose vector is transposed to fit, so that the size of another block counts
        reference = next((value for value in values if not value.loose), values[0])
        width = self.sides(reference)[across]
        values = [
            value.transposed
            if value.loose and self.sizes.differ(width, self.sides(value)[across])
            else value
            for value in values
        ]
        sides = [self.sides(value) for value in values]
        for value, side in zip(values, sides, strict=True):
            self.sizes.equate(
                width, side[across], partial(self.block_error, reference, value, axis)
            )
        are_flat = {value.kind for value in values} <= {"scalar", "row" if axis else "column"}
        span = Span(values[0].span.start, values[-1].span.stop)
        rows = tuple(value.row for value in values)
        function = _join_vectors if are_flat else partial(_join, axis, rows)
        step = self.add_step(span, function, *values)
        total = sympy.expand(sympy.Add(*(side[axis] for side in sides)))
        if are_flat:
            return Value(span, step, (total,), row=axis == 1)
        return Value(span, step, (sides[0][0], total) if axis else (total, sides[0][1]))

    def block_error(self, reference: Value, value: Value, axis: int) -> NotationError:
        place = "beside" if axis else "below"
        message = f"{self.describe(value)} does not fit {place} {self.describe(reference)}"
        return self.error(message, value.span)

    def sides(self, value: Value) -> tuple[Dimension, Dimension]:
        """Return the numbers of rows and columns of a block."""
        if value.rank > 2:
            raise self.error(f"{self.describe(value)} is no block", value.span)
        if value.rank == 2:
            return value.shape[0], value.shape[1]
        if not value.rank:
            return sympy.S.One, sympy.S.One
        return (sympy.S.One, value.shape[0]) if value.row else (value.shape[0], sympy.S.One)


def _join_vectors(*parts: Array) -> Array:
    """Concatenate vectors and scalars to one vector."""
    return library.concatenate([part if part.ndim else part[None] for part in parts])


def _join(axis: int, are_rows: Sequence[bool], *parts: Array) -> Array:
    """Join blocks below each other (axis 0) or side by side. are_rows: for each block whether it is
    a row."""
    matrices = [_as_matrix(part, is_row) for part, is_row in zip(parts, are_rows, strict=True)]
    return library.concatenate(matrices, axis)


def _as_matrix(array: Array, is_row: bool) -> Array:
    if array.ndim == 2:
        return array
    if array.ndim == 0:
        return array[None, None]
    return array[None, :] if is_row else array[:, None]
