"""Interpretation of a tree: names, functions and indices.

`eye` is a square matrix of unknown size; `ones` is a column, or if that does not fit a matrix, or a
row.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derivatrix.compiler.frontends import arrays as library
from derivatrix.compiler.frontends.notation import functions, syntax
from derivatrix.compiler.frontends.notation.loops import Loops
from derivatrix.compiler.frontends.notation.tokens import Source, Span, Token
from derivatrix.compiler.frontends.notation.values import Unsized, Value
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError

KINDS = ("column", "matrix", "row")
"""The possible shapes of `ones`, in the order of preference."""
NORMS = {(1, ""): "norm2", (1, "2"): "norm2", (1, "1"): "norm1", (2, "F"): "normF"}
"""Rank of x, and the subscript of ||x|| -> the function that it means."""


class Meaning(Loops):
    """One reading of a text.

    inputs, numbers: the arrays, and the sizes and other numbers, by name; choice: the kinds of the
    `ones` in their order, further ones are columns.
    """

    def __init__(
        self,
        source: Source,
        inputs: Mapping[str, Array],
        numbers: Mapping[str, sympy.Expr],
        choice: Sequence[str] = (),
    ) -> None:
        super().__init__(source)
        self.inputs = inputs
        self.numbers = numbers
        self.choice = list(choice)
        self.used: set[str] = set()

    def read(self, tree: syntax.Tree) -> Value:
        """Return the value of a tree. Raises NotationError."""
        match tree:
            case syntax.Number():
                return self.number(tree.span, tree.value)
            case syntax.Name():
                return self.name(tree)
            case syntax.Negative():
                return self.negate(tree.span, self.read(tree.operand))
            case syntax.Chain():
                return self.chain(tree)
            case syntax.Transposed():
                return self.transpose(tree.span, self.read(tree.operand))
            case syntax.Indexed():
                return self.indexed(tree)
            case syntax.Call():
                return self.call(tree)
            case syntax.Block():
                return self.block(tree)
            case syntax.Bars():
                return self.bars(tree)
            case syntax.Clause():
                raise self.error(f"an argument with {tree.sign} is for scan alone", tree.span)
            case syntax.Text():
                raise self.error("a text in quotation marks is for einsum alone", tree.span)
            case syntax.Slice():
                raise self.error("a slice stands in an index alone", tree.span)
        raise TypeError(f"no meaning for {tree!r}")

    def name(self, tree: syntax.Name) -> Value:
        """Look up a name: of a loop around it, an input, a size or number, `eye` or `ones`."""
        name = tree.name
        if name in self.bound:
            return self.bound_value(tree)
        if name in self.inputs:
            self.used.add(name)
            array = self.inputs[name]
            step = self.add_step(tree.span, lambda: array)
            return Value(tree.span, step, array.node.shape)
        if name in self.numbers:
            return self.number(tree.span, self.numbers[name])
        if name in functions.UNSIZED:
            return self.unsized_array(tree)
        if functions.is_name(name):
            raise self.error(f"{name} is a function; write {name}(...)", tree.span)
        names = [*self.bound, *self.inputs, *self.numbers, *functions.UNSIZED]
        raise self.unknown_name_error(tree, names)

    def unsized_array(self, tree: syntax.Name) -> Value:
        """`eye` or `ones` with unknown sizes."""
        size = self.sizes.unknown()
        shape: Shape = (size, size)
        kind = "matrix"
        if tree.name == "ones":
            number = sum(array.name == "ones" for array in self.unsized)
            self.choice[number:] = self.choice[number:] or KINDS[:1]
            kind = self.choice[number]
            shape = (size, self.sizes.unknown()) if kind == "matrix" else (size,)
        self.unsized.append(Unsized(tree.span, tree.name, shape))
        step = self.add_step(tree.span, partial(self.make, tree.name, shape))
        return Value(tree.span, step, shape, row=kind == "row")

    def make(self, name: str, shape: Shape) -> Array:
        sizes = self.sizes.known(shape)
        return library.eye(sizes[0]) if name == "eye" else library.ones(*sizes)

    def chain(self, tree: syntax.Chain) -> Value:
        """Apply operators from left to right, in a loop: a sum may have thousands of terms."""
        has_input_t = "T" in {*self.bound, *self.inputs, *self.numbers}
        value = self.read(tree.operand)
        for sign, operand in tree.operations:
            if syntax.is_transpose_sign(sign, operand) and not has_input_t:
                value = self.transpose(tree.span, value)
            elif sign.kind == "\\":
                value = self.solution(sign, value, self.read(operand))
            else:
                value = self.combine(sign, value, self.read(operand))
        return replace(value, span=tree.span)

    def bars(self, tree: syntax.Bars) -> Value:
        """|s| and ||x||. Raises NotationError where bars have several meanings."""
        value = self.read(tree.operand)
        inner = self.source.text[slice(*tree.operand.span)]
        if tree.sign == "||":
            return self.norm(tree.span, value, tree.kind, inner)
        if value.rank:
            meanings = {
                1: f"norm2({inner}) for its length, or abs({inner}) entry by entry",
                2: f"det({inner}) for its determinant, or abs({inner}) entry by entry",
            }
            raise self.error(
                f"| | of {self.describe(value)} has several meanings; write "
                f"{meanings.get(value.rank, f'abs({inner})')}",
                tree.span,
            )
        return self.apply(tree.span, abs, value)

    def norm(self, span: Span, value: Value, kind: str, inner: str) -> Value:
        """Return the norm of a value in bars. kind: the subscript, which a matrix needs. inner: the
        text in the bars, for errors."""
        name = NORMS.get((value.rank, kind))
        if name is None:
            choices = {
                0: f"abs({inner})",
                1: f"norm2({inner}) or norm1({inner})",
                2: f"normF({inner}), normspec({inner}) or normnuc({inner})",
            }
            raise self.error(
                f"{self.describe(value)} has several norms; write "
                f"{choices.get(value.rank, f'normF({inner})')}",
                span,
            )
        return self.apply(span, functions.rule(name).function, value)

    def call_norm(self, tree: syntax.Call) -> Value:
        (value,) = self.arguments(tree, 1)
        return self.norm(tree.span, value, "", self.source.text[slice(*value.span)])

    def indexed(self, tree: syntax.Indexed) -> Value:
        operand = self.read(tree.operand)
        if len(tree.indices) > operand.rank:
            count = len(tree.indices)
            raise self.error(
                f"{count} {'index' if count == 1 else 'indices'} for {self.describe(operand)}",
                tree.indices[operand.rank].span,
            )
        positions = self.positions(tree)
        if positions is not None:
            return self.apply(tree.span, lambda array, table: array[table], operand, positions)
        index = tuple(self.index(part) for part in tree.indices)
        value = self.apply(tree.span, lambda array: array[index], operand)
        vector = value.rank == 1
        return replace(value, row=operand.row and vector, loose=operand.rank > 1 and vector)

    def positions(self, tree: syntax.Indexed) -> Value | None:
        """Return the vector that is the single index, None for other indices."""
        index = tree.indices[0]
        if len(tree.indices) > 1 or isinstance(index, syntax.Slice):
            return None
        value = self.read(index)
        return value if value.rank == 1 else None

    def index(self, tree: syntax.Tree) -> Any:
        """Convert an index to Python's: an integer, arithmetic of sizes, or a slice of these."""
        if isinstance(tree, syntax.Slice):
            parts = (tree.start, tree.stop, tree.step)
            return slice(*(None if part is None else self.index(part) for part in parts))
        position = self.read(tree).literal
        if position is None or not position.is_integer:
            raise self.error(
                "an index is an integer, arithmetic of integers and sizes, or a vector of "
                "positions alone",
                tree.span,
            )
        return int(position) if position.is_Integer else position

    def block(self, tree: syntax.Block) -> Value:
        rows = [self.join_blocks([self.read(part) for part in row], axis=1) for row in tree.rows]
        return replace(self.join_blocks(rows, axis=0), span=tree.span)

    def call(self, tree: syntax.Call) -> Value:
        name = tree.function.name
        if name in self.inputs or name in self.numbers:
            raise self.error(
                f"{name} is no function; products are written with *, indices with [ ]",
                tree.function.span,
            )
        if name in functions.UNSIZED:
            raise self.error(
                f"{name} takes no size: it has the one that fits; write {name}", tree.span
            )
        if name in functions.SPECIAL:
            return getattr(self, f"call_{name}")(tree)
        if name in functions.DERIVATIVES:
            return self.derivative(tree)
        if not functions.is_name(name):
            raise self.unknown_name_error(tree.function, functions.names())
        rule = functions.rule(name)
        values = self.arguments(tree, rule.arity)
        if rule.choices:
            self.match_shapes(tree.function.name, values, rule.choices)
        value = self.apply(tree.span, rule.function, *values)
        literal = values[0].literal
        if name == "sqrt" and literal is not None:  # stays exact, as the results of operators do
            return self.number(tree.span, sympy.sqrt(literal))
        if rule.kind == "same":
            first = next((part for part in values if not part.loose), values[0])
            if any(part.row != first.row for part in values if not part.loose):
                raise self.error(
                    f"{name} of a row and a column; their product is the outer one, x*y'",
                    tree.function.span,
                )
            return replace(value, row=first.row, loose=first.loose)
        return replace(value, row=rule.kind == "row", loose=rule.kind == "row")

    def arguments(self, tree: syntax.Call, count: int) -> list[Value]:
        self.require_count(tree, count)
        return [self.read(argument) for argument in tree.arguments]

    def require_count(self, tree: syntax.Call, count: int) -> None:
        if len(tree.arguments) != count:
            raise self.error(
                f"{tree.function.name} takes {count} argument{'s' * (count != 1)}, "
                f"came {len(tree.arguments)}",
                tree.function.span,
            )

    def match_shapes(
        self, name: str, values: Sequence[Value], choices: Sequence[functions.Shapes]
    ) -> None:
        """Equate the arguments' shapes with those of the matching signature."""
        ranks = [value.rank for value in values]
        fits = [choice for choice in choices if [len(shape) for shape in choice] == ranks]
        if not fits:
            self.raise_rank_error(name, values, choices)
        letters: dict[str, tuple[Dimension, Value]] = {}
        for value, shape in zip(values, fits[0], strict=True):
            for size, letter in zip(value.shape, shape, strict=True):
                if letter.isdigit():
                    letters.setdefault(letter, (sympy.Integer(letter), value))
                letter_size, earlier = letters.setdefault(letter, (size, value))
                self.sizes.equate(
                    letter_size,
                    size,
                    partial(self.argument_error, name, letter, earlier, value, shape),
                )

    def raise_rank_error(
        self, name: str, values: Sequence[Value], choices: Sequence[functions.Shapes]
    ) -> None:
        """Raise NotationError for an argument whose rank no signature has."""
        for position, value in enumerate(values):
            expected = dict.fromkeys(_expected(choice[position]) for choice in choices)
            ranks = {len(choice[position]) for choice in choices}
            if value.rank not in ranks or position == len(values) - 1:
                raise self.error(
                    f"{name} takes {' or '.join(expected)} here, not {self.describe(value)}",
                    value.span,
                )

    def argument_error(
        self, name: str, letter: str, earlier: Value, value: Value, shape: tuple[str, ...]
    ) -> NotationError:
        if earlier is value:
            expected = f"a vector of {letter}" if letter.isdigit() else _expected(shape)
            message = f"{name} takes {expected}, not {self.describe(value)}"
        else:
            message = f"{name}: {self.describe(value)} does not fit {self.describe(earlier)}"
        return self.error(message, value.span)

    def derivative(self, tree: syntax.Call) -> Value:
        """Differentiate an expression by an input."""
        name = tree.function.name
        expression, symbol = self.arguments(tree, 2)
        if not isinstance(tree.arguments[1], syntax.Name) or tree.arguments[1].name not in {
            *self.bound,
            *self.inputs,
        }:
            raise self.error(f"{name} takes the name of an input here", symbol.span)
        shapes = {"expr": expression.shape, "X": symbol.shape}
        shape = tuple(size for side in functions.DERIVATIVES[name] for size in shapes[side])
        step = self.add_step(tree.span, library.FUNCTIONS[name], expression, symbol)
        return Value(tree.span, step, shape)

    def call_max(self, tree: syntax.Call) -> Value:
        """Take the larger or, as `call_min`, the smaller of two values, entry by entry."""
        function = library.maximum if tree.function.name == "max" else library.minimum
        left, right = self.arguments(tree, 2)
        place = Token(tree.function.name, tree.function.name, tree.function.span)
        words = f"{place.kind} of {{0}} and {{1}}: shapes differ"
        left, right = self.conformed(left, right, place.span, words)
        return replace(self.broadcast(place, function, left, right), span=tree.span)

    call_min = call_max

    def call_solve(self, tree: syntax.Call) -> Value:
        matrix, right = self.arguments(tree, 2)
        sign = Token("*", "solve", tree.function.span)
        return replace(self.solution(sign, matrix, right), span=tree.span)

    def solution(self, sign: Token, matrix: Value, right: Value) -> Value:
        """solve(A, B) or A \\ B, as `sign` says."""
        self.match_shapes(sign.text, [matrix], functions.shapes("n n"))
        inverse = self.apply(sign.span, library.inv, matrix)
        if right.row and right.loose:
            right = right.transposed
        if not right.rank or right.row:
            raise self.error(
                f"{sign.text} takes a column or a matrix here, not {self.describe(right)}",
                right.span,
            )
        product = self.product(Token("*", sign.text, sign.span), inverse, right)
        return replace(product, span=Span(matrix.span.start, right.span.stop))

    def call_pinv(self, tree: syntax.Call) -> Value:
        """Return the pseudoinverse of a matrix of full rank, or of the rank in the second
        argument."""
        matrix, *ranks = self.arguments(tree, max(1, min(2, len(tree.arguments))))
        self.match_shapes(tree.function.name, [matrix], functions.shapes("p k"))
        if not ranks:
            return self.apply(tree.span, library.pinv, matrix)
        if ranks[0].literal is None or not ranks[0].literal.is_integer:
            raise self.error("the rank of pinv is an integer or a size", ranks[0].span)
        return self.apply(tree.span, partial(library.pinv, rank=ranks[0].literal), matrix)

    def call_besseli(self, tree: syntax.Call) -> Value:
        order, array = self.arguments(tree, 2)
        if order.literal is None or not order.literal.is_Integer or order.literal < 0:
            raise self.error("the order of besseli is an integer from 0 up", order.span)
        value = self.apply(tree.span, partial(library.besseli, int(order.literal)), array)
        return replace(value, row=array.row, loose=array.loose)

    def call_einsum(self, tree: syntax.Call) -> Value:
        subscripts = tree.arguments[0] if tree.arguments else tree
        if not isinstance(subscripts, syntax.Text):
            raise self.error(
                'einsum begins with its indices in quotation marks: einsum("ij,j->i", A, x)',
                subscripts.span,
            )
        terms = subscripts.text.replace(" ", "").partition("->")[0].split(",")
        self.require_count(tree, len(terms) + 1)
        values = [self.read(argument) for argument in tree.arguments[1:]]
        for term, value in zip(terms, values, strict=True):
            if len(term) != value.rank:
                raise self.error(
                    f"einsum: the indices {shown(term)} are for {len(term)} axes, this is "
                    f"{self.describe(value)}",
                    value.span,
                )
        self.match_shapes(tree.function.name, values, (tuple(tuple(term) for term in terms),))
        value = self.apply(subscripts.span, partial(library.einsum, subscripts.text), *values)
        return replace(value, span=tree.span)

    def unknown_name_error(self, tree: syntax.Name, names: Sequence[str]) -> NotationError:
        close = difflib.get_close_matches(tree.name, names, n=1, cutoff=0.5)
        if not close:
            lowered = {name.lower(): name for name in names}
            close = [lowered[tree.name.lower()]] if tree.name.lower() in lowered else []
        hint = f"; did you mean {close[0]}?" if close else ""
        if "ᵀ" in tree.name:
            hint = "; the transpose is written '"
        if tree.name in functions.ADVICE:
            hint = f"; write {functions.ADVICE[tree.name]}"
        return self.error(f"{shown(tree.name)} is not known here{hint}", tree.span)


def _expected(shape: tuple[str, ...]) -> str:
    """Describe the shape of an argument in a signature."""
    if len(shape) == 2:
        return "a square matrix" if shape[0] == shape[1] else "a matrix"
    return {0: "a scalar", 1: "a vector"}.get(len(shape), f"{len(shape)} axes")
