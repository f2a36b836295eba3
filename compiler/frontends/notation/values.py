"""Values in a text with their shapes, and the steps that build their arrays.

Reading a text determines shapes only: it equates sizes and records steps. The steps build arrays
once all sizes are known. A list of steps needs no recursion along a long sum or product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.frontends.notation.sizes import Sizes
from derivatrix.compiler.frontends.notation.tokens import Source, Span
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.literals import MAX_FLOAT
from derivatrix.compiler.ir.nodes import Leaf, full
from derivatrix.runtime.errors import DerivatrixError, NotationError


@dataclass(frozen=True)
class Value:
    """The value of a part of the text.

    step: the number of the step that builds it; row: whether a vector is a row, not a column;
    loose: whether a vector may be transposed where it does not fit; literal: the number, for a
    value that depends on no input."""

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
        """A row as a column, and a column as a row; other values unchanged."""
        return replace(self, row=self.rank == 1 and not self.row)

    @property
    def kind(self) -> str:
        """The kind: "scalar", "column", "row", "matrix" or "tensor"."""
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
    """An `eye` or `ones` in the text, with unknown sizes in its shape."""

    span: Span
    name: str
    shape: Shape


class Steps:
    """The steps of one text, and its sizes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sizes = Sizes()
        self.steps: list[Step] = []
        self.unsized: list[Unsized] = []
        self.remarks: list[str] = []
        """Remarks on what often is a mistake, as a scalar that is added to every entry."""

    def add_step(self, span: Span, function: Callable[..., Array], *operands: Value) -> int:
        """Record a step and return its number."""
        self.steps.append(Step(span, function, tuple(operand.step for operand in operands)))
        return len(self.steps) - 1

    def apply(self, span: Span, function: Callable[..., Array], *operands: Value) -> Value:
        """Record a step. The shape of its value is found by applying `function` to placeholders."""
        stand_ins = []
        for operand in operands:
            text = self.source.text[slice(*operand.span)]
            leaf = Array(Leaf(text, self.sizes.known(operand.shape)))
            stand_ins.append(leaf if operand.literal is None else constant(operand.literal))
        with self.errors_at(span):
            shape = function(*stand_ins).node.shape
        return Value(span, self.add_step(span, function, *operands), shape)

    def number(self, span: Span, value: sympy.Expr) -> Value:
        """Record a number, or an expression of numbers and sizes."""
        if not (value.is_finite and value.is_real):
            raise self.error(f"this is {value}, which is no real number", span)
        if value.is_number and abs(value) > MAX_FLOAT:
            raise self.error("this is no finite number of float64", span)
        if value.free_symbols and not dimensions.has_few_terms(value):
            raise self.error("this has too many terms, or too high powers, of sizes", span)
        return Value(span, self.add_step(span, lambda: constant(value)), (), literal=value)

    def build(self, value: Value) -> Array:
        """Perform the steps. Raises NotationError for a size that is still unknown."""
        for unsized in self.unsized:
            if self.sizes.missing(unsized.shape):
                raise self.error(
                    f"the size of {unsized.name} does not follow from the expression around it",
                    unsized.span,
                )
        return self.perform(self.steps)[value.step]

    def perform(self, steps: Sequence[Step]) -> list[Array]:
        """Return the array of each step."""
        arrays: list[Array] = []
        for step in steps:
            with self.errors_at(step.span):
                arrays.append(step.function(*(arrays[operand] for operand in step.operands)))
        return arrays

    def error(self, message: str, span: Span) -> NotationError:
        return self.source.error(message, span)

    @contextmanager
    def errors_at(self, span: Span) -> Iterator[None]:
        """Replace errors of derivatrix by NotationErrors that point at `span`."""
        try:
            yield
        except NotationError:
            raise
        except DerivatrixError as error:
            raise self.error(str(error), span) from error

    def describe(self, value: Value) -> str:
        """Describe a value in error messages, as in "a matrix (m, n)"."""
        if not value.rank:
            return "a scalar"
        sizes = tuple(sympy.Symbol(self.sizes.shown(size)) for size in value.shape)
        return f"a {value.kind} {shape_text(sizes)}"


def constant(value: sympy.Expr) -> Array:
    """Convert a number to an array."""
    return Array(full(value))
