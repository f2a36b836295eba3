"""Parts of a text with their shapes, and the steps that build them.

While a text is read its parts have shapes only, sizes are equated, and every step is noted down;
when all sizes are known the steps are done. Nothing here recurses along a long sum or product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.frontends.notation.sizes import Sizes
from derivatrix.compiler.frontends.notation.tokens import Source, Span
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.literals import LARGEST
from derivatrix.compiler.ir.nodes import Leaf, full
from derivatrix.runtime.errors import DerivatrixError, NotationError


@dataclass(frozen=True)
class Value:
    """A part of the text with its shape.

    step: which step builds it; row: whether a vector is a row, else it is a column; loose: whether
    a vector may be taken as the other of these where it does not fit; literal: the number it is,
    where it depends on no input.
    """

    span: Span
    step: int
    shape: Shape
    row: bool = False
    loose: bool = False
    literal: sympy.Expr | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def transposed(self) -> Value:
        """A row as a column and the other way round; others as they are."""
        return replace(self, row=self.rank == 1 and not self.row)

    @property
    def kind(self) -> str:
        """One of scalar, column, row, matrix and tensor."""
        if self.rank == 1:
            return "row" if self.row else "column"
        return {0: "scalar", 2: "matrix"}.get(self.rank, "tensor")


@dataclass(frozen=True)
class Step:
    """One array to build: `function` of the arrays of earlier steps."""

    span: Span
    function: Callable[..., Array]
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Unsized:
    """An `eye` or `ones` in the text, whose sizes are to be found."""

    span: Span
    name: str
    shape: Shape


class Steps:
    """The steps of one text, and what is known of its sizes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sizes = Sizes()
        self.steps: list[Step] = []
        self.unsized: list[Unsized] = []

    def note(self, span: Span, function: Callable[..., Array], *operands: Value) -> int:
        """Add a step, to be done when all sizes are known."""
        self.steps.append(Step(span, function, tuple(operand.step for operand in operands)))
        return len(self.steps) - 1

    def mapped(self, span: Span, function: Callable[..., Array], *operands: Value) -> Value:
        """A step whose shape is what `function` makes of arrays of the operands' shapes."""
        stand_ins = []
        for operand in operands:
            text = self.source.text[slice(*operand.span)]
            leaf = Array(Leaf(text, self.sizes.known(operand.shape)))
            stand_ins.append(leaf if operand.literal is None else constant(operand.literal))
        with self.explained(span):
            shape = function(*stand_ins).node.shape
        return Value(span, self.note(span, function, *operands), shape)

    def number(self, span: Span, value: sympy.Expr) -> Value:
        """A number, or arithmetic of numbers and sizes."""
        if not (value.is_finite and value.is_real):
            raise self.error(f"this is {value}, which is no real number", span)
        if value.is_number and abs(value) > LARGEST:
            raise self.error("this is no finite number of float64", span)
        if value.free_symbols and not dimensions.has_few_terms(value):
            raise self.error("this has too many terms, or too high powers, of sizes", span)
        return Value(span, self.note(span, lambda: constant(value)), (), literal=value)

    def build(self, value: Value) -> Array:
        """Do the steps. Raises NotationError where a size has not come out."""
        for unsized in self.unsized:
            if self.sizes.missing(unsized.shape):
                raise self.error(
                    f"what stands around {unsized.name} does not tell its size", unsized.span
                )
        arrays: list[Array] = []
        for step in self.steps:
            with self.explained(step.span):
                arrays.append(step.function(*(arrays[operand] for operand in step.operands)))
        return arrays[value.step]

    def error(self, message: str, span: Span) -> NotationError:
        return self.source.error(message, span)

    @contextmanager
    def explained(self, span: Span) -> Iterator[None]:
        """Point at the place that other errors are about."""
        try:
            yield
        except NotationError:
            raise
        except DerivatrixError as error:
            raise self.error(str(error), span) from error

    def described(self, value: Value) -> str:
        """The value as messages name it: a matrix (m, n)."""
        if not value.rank:
            return "a scalar"
        sizes = tuple(sympy.Symbol(self.sizes.shown(size)) for size in value.shape)
        return f"a {value.kind} {shape_text(sizes)}"


def constant(value: sympy.Expr) -> Array:
    """A number as an array."""
    return Array(full(value))
