"""Trees as NumPy and SciPy expressions, with only `np`, `scipy` and the names in scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, TypeGuard

import sympy
from sympy.printing.codeprinter import PrintMethodNotImplementedError

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.printers.base import (
    ATOM,
    POWER,
    PRODUCT,
    SUM,
    TEST,
    Printer,
    Text,
)
from derivatrix.compiler.formulas.tree import (
    Range,
    Tree,
    divided_in_turn,
    divisor,
    is_row,
    kind,
    negated,
    split_divisors,
)
from derivatrix.compiler.ir import numpy_spelling as spelling
from derivatrix.compiler.ir.dimensions import Dimension, Shape, symbol
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.numpy_spelling import scalar_text
from derivatrix.compiler.ir.numpy_text import Sizes
from derivatrix.compiler.ir.python_text import NUMPY_EXTREMES, index
from derivatrix.runtime.errors import UnsupportedError


@kind
class Solve(Tree):
    """The inverse of `matrix` times `right`."""

    matrix: Tree
    right: Tree

    @property
    def rank(self) -> int:
        return self.right.rank


@kind
class AxisSum(kinds.Vector):
    """The sum of a matrix over one axis."""

    body: Tree
    axis: int


class NumPy(Printer):
    """Writes trees as expressions: `text` an array of exactly the tree's shape, `loose` one that
    broadcasts to it. sizes: readings of dimensions (their names by default)."""

    calls: ClassVar = {
        kinds.Diag: "np.diag",
        kinds.Diagonal: "np.diagonal",
        kinds.Norm: "np.linalg.norm",
        kinds.Total: "np.sum",
        kinds.Trace: "np.trace",
        Solve: "np.linalg.solve",
    }

    def __init__(self, sizes: Sizes | None = None) -> None:
        self.sizes = dict(sizes or {})

    def loose(self, tree: Tree, min_precedence: int = TEST) -> str:
        """Write an array that broadcasts to the tree's shape."""
        return self.enclosed(self._loosely(tree), min_precedence)

    def _loosely(self, tree: Tree) -> Text:
        tree = _scale_spread(tree)
        return self._indexed(tree) if isinstance(tree, kinds.Spread) else self.bare(tree)

    # Sizes

    def dimension(self, size: Dimension) -> str:
        read = {s: self.sizes.get(s.name, s) for s in size.free_symbols}
        return index(size.xreplace(read), extremes=NUMPY_EXTREMES)

    def shape(self, shape: Shape) -> str:
        """Write a shape as a tuple."""
        texts = [self.dimension(size) for size in shape]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def show_size(self, tree: kinds.Size) -> Text:
        size = self.sizes.get(tree.name, symbol(tree.name))
        return self.dimension(size), ATOM if size.is_Symbol else TEST

    # Names and numbers

    def show_name(self, tree: kinds.Name) -> Text:
        return tree.python, ATOM

    def show_number(self, tree: kinds.Number) -> Text:
        value = tree.value
        if value.is_Integer:
            return str(value), PRODUCT if value < 0 else ATOM
        if value.is_Rational:
            return f"{value.p} / {value.q}", PRODUCT
        if value.is_Float:
            return repr(float(value)), PRODUCT if value < 0 else ATOM
        return str(scalar_text(value)), TEST

    def real(self, tree: Tree) -> str:
        """Write a tree, an integer as a float."""
        if isinstance(tree, kinds.Number) and tree.value.is_finite:
            return repr(float(tree.value))
        return self.loose(tree)

    def show_literal(self, tree: kinds.Literal) -> Text:
        if tree.array.size == 0:
            return f"np.zeros({tree.array.shape})", ATOM
        return f"np.array({tree.array.tolist()!r})", ATOM

    def show_zeros(self, tree: kinds.Zeros) -> Text:
        return f"np.zeros({self.shape(tree.shape)})", ATOM

    def show_identity(self, tree: kinds.Identity) -> Text:
        return f"np.eye({self.dimension(tree.size)})", ATOM

    def show_ones(self, tree: kinds.Ones) -> Text:
        return f"np.ones({self.dimension(tree.size)})", ATOM

    def show_unit(self, tree: kinds.Unit) -> Text:
        return f"np.eye({self.dimension(tree.size)})[{self.dimension(tree.position)}]", ATOM

    def show_mask(self, tree: kinds.Mask) -> Text:
        sizes = f"{self.dimension(tree.rows)}, {self.dimension(tree.columns)}"
        offset = f", {-tree.offset}" if tree.offset else ""
        return f"np.tri({sizes}{offset})", ATOM

    def show_reshaped(self, tree: kinds.Reshaped) -> Text:
        outer, inner = (f"({self.dimension(size)})" for size in (tree.outer, tree.inner))
        count = f"{outer} * {inner}"
        text = f"np.eye({count}).reshape({count}, {outer}, {inner})"
        return (f"{text}[np.tri{outer}.ravel() > 0]" if tree.packed else text), ATOM

    def show_gathered(self, tree: kinds.Gathered) -> Text:
        return f"np.eye({self.dimension(tree.size)})[{list(tree.table)}]", ATOM

    def show_rows(self, tree: kinds.Rows) -> Text:
        count, size, start = (self.dimension(part) for part in (tree.count, tree.size, tree.start))
        if tree.step == 1:
            return f"np.eye({count}, {size}, {start})", ATOM
        return f"np.eye({size})[{start}::{tree.step}][:{count}]", ATOM

    # Broadcasting

    def show_spread(self, tree: kinds.Spread) -> Text:
        shape = self.shape(tree.shape)
        if not isinstance(tree.body, kinds.Number):
            return f"np.broadcast_to({self._indexed(tree)[0]}, {shape})", ATOM
        if tree.body.value == 1:
            return f"np.ones({shape})", ATOM
        return f"np.full({shape}, {self.real(tree.body)})", ATOM

    def _indexed(self, tree: kinds.Spread) -> Text:
        missing = [axis for axis in range(tree.rank) if axis not in tree.along]
        if not tree.along or max(missing) < min(tree.along):
            return self._loosely(tree.body)
        places = [
            ":" if axis in tree.along else "None" for axis in range(min(tree.along), tree.rank)
        ]
        return f"{self.text(tree.body, ATOM)}[{', '.join(places)}]", ATOM

    def show_arranged(self, tree: kinds.Arranged) -> Text:
        array = spelling.arranged(_operand(self.bare(tree.body)), tree.places)
        return array.within(spelling.ATOM), ATOM

    def show_resized(self, tree: kinds.Resized) -> Text:
        return f"{self.text(tree.body, ATOM)}.reshape{self.shape(tree.shape)}", ATOM

    # Matrices

    def show_transpose(self, tree: kinds.Transpose) -> Text:
        return f"{self.text(tree.body, ATOM)}.T", ATOM

    def show_power(self, tree: kinds.Power) -> Text:
        if tree.exponent == -1:
            return f"np.linalg.inv({self.text(tree.body)})", ATOM
        if tree.exponent == 2 and isinstance(tree.body, (kinds.Name, kinds.Transpose)):
            base = self.text(tree.body, ATOM)
            return f"{base} @ {base}", PRODUCT
        return f"np.linalg.matrix_power({self.text(tree.body)}, {tree.exponent})", ATOM

    def show_matmul(self, tree: kinds.Matmul) -> Text:
        """Split the chain between a column and the row after it: into at most two arrays, whose
        outer product it is, and scalars."""
        segments: list[list[Tree]] = [[]]
        for factor in tree.factors:
            if segments[-1] and _is_column(segments[-1][-1]):
                segments.append([])
            segments[-1].append(factor)
        scalars = [
            segment for segment in segments if is_row(segment[0]) and _is_column(segment[-1])
        ]
        arrays = [segment for segment in segments if segment not in scalars]
        if len(arrays) == 2:
            column, row = (self._chain(segment)[0] for segment in arrays)
            product: Text = (f"np.outer({column}, {row})", ATOM)
        else:
            product = self._chain(arrays[0] if arrays else scalars.pop())
        texts = [self.enclosed(self._chain(segment), POWER) for segment in scalars]
        return (" * ".join([*texts, self.enclosed(product, POWER)]), PRODUCT) if texts else product

    def _chain(self, factors: Sequence[Tree]) -> Text:
        """Write a chain without an outer product; diagonal matrices scale rows or columns."""
        leading, *factors = _prepared(list(factors))
        if not factors:
            return self._vector_or_matrix(leading)
        scales_rows = isinstance(leading, kinds.Diag)
        if isinstance(leading, kinds.Diag):
            is_vector = _is_column(factors[0])
            text = self.text(leading.body, POWER if is_vector else ATOM)
            text += "" if is_vector else "[:, None]"
        else:
            text = self.enclosed(self._vector_or_matrix(leading), PRODUCT)
        for factor in factors:
            if isinstance(factor, kinds.Diag):
                text += f" * {self.loose(factor.body, POWER)}"
            else:
                is_square = isinstance(factor, kinds.Power) and factor.exponent == 2
                bare = self._vector_or_matrix(factor)
                text += " * " if scales_rows else " @ "
                # X @ X needs no parentheses on the right, as products are associative.
                text += self.enclosed(bare, PRODUCT if is_square else POWER)
            scales_rows = False
        return text, PRODUCT

    def _vector_or_matrix(self, factor: Tree) -> Text:
        """Write a factor; NumPy's vectors are both rows and columns."""
        return self.bare(factor.body if is_row(factor) else factor)

    def show_axissum(self, tree: AxisSum) -> Text:
        return f"np.sum({self.text(tree.body)}, axis={tree.axis})", ATOM

    def show_lengths(self, tree: kinds.Lengths) -> Text:
        axis = tree.summed[0] if len(tree.summed) == 1 else tree.summed
        where = f", axis={axis if tree.rank else None}" if tree.body.rank > 1 else ""
        return f"np.hypot.reduce({self.text(tree.body)}{where})", ATOM

    def show_contraction(self, tree: kinds.Contraction) -> Text:
        parts = [repr(tree.subscripts), *(self.text(operand) for operand in tree.operands)]
        if len(tree.operands) > 2:  # else NumPy runs one loop nest over all labels
            parts.append("optimize=True")
        return f"np.einsum({', '.join(parts)})", ATOM

    def show_part(self, tree: kinds.Part) -> Text:
        text = f"{self.text(tree.body, ATOM)}[{', '.join(map(self.range, tree.ranges))}]"
        axis_ranges = [part for part in tree.ranges if part is None or isinstance(part, tuple)]
        axis_slices = ["::-1" if part and _increasing(part) else ":" for part in axis_ranges]
        return (f"{text}[{', '.join(axis_slices)}]" if "::-1" in axis_slices else text), ATOM

    def range(self, part: Range | Dimension | None) -> str:
        return super().range((_increasing(part) or part) if isinstance(part, tuple) else part)

    def show_padded(self, tree: kinds.Padded) -> Text:
        widths = []
        for axis_range in tree.ranges:
            start, count, _, size = axis_range or (sympy.S.Zero,) * 4
            after = sympy.expand(size - start - count)
            widths.append(f"({self.dimension(start)}, {self.dimension(after)})")
        width = widths[0] if len(widths) == 1 else f"({', '.join(widths)})"
        return f"np.pad({self.text(tree.body)}, {width})", ATOM

    def show_block(self, tree: kinds.Block) -> Text:
        cells = [cell for row in tree.rows for cell in row]
        if any(isinstance(cell, kinds.Zeros) and cell.rank < tree.rank for cell in cells):
            return " + ".join(self.show_padded(cell)[0] for cell in tree.cells), SUM
        if tree.rank == 1:
            return f"np.concatenate([{', '.join(map(self.text, cells))}])", ATOM
        rows = (f"[{', '.join(map(self.text, row))}]" for row in tree.rows)
        return f"np.block([{', '.join(rows)}])", ATOM

    def show_vectorised(self, tree: kinds.Vectorised) -> Text:
        if tree.packed:
            body = self.text(tree.body, ATOM)
            return f"{body}[np.tril_indices_from({self.text(tree.body)})]", ATOM
        if isinstance(tree.body, kinds.Transpose):
            return f"{self.text(tree.body.body, ATOM)}.ravel()", ATOM
        return f"{self.text(tree.body, ATOM)}.T.ravel()", ATOM

    def show_unvectorised(self, tree: kinds.Unvectorised) -> Text:
        rows, columns = self.dimension(tree.rows), self.dimension(tree.columns)
        if not tree.packed:
            return f"{self.text(tree.body, ATOM)}.reshape({columns}, {rows}).T", ATOM
        reshaped, _ = self.show_reshaped(kinds.Reshaped(tree.rows, tree.columns, True))
        return f"np.tensordot({self.text(tree.body)}, {reshaped}, 1)", ATOM

    def show_kronecker(self, tree: kinds.Kronecker) -> Text:
        parts = [self._as_rank(part, tree.rank) for part in (tree.left, tree.right)]
        return self.call("np.kron", parts)

    def _as_rank(self, tree: Tree, rank: int) -> str:
        """Write a factor; a column or row as a matrix if the other factor is one."""
        if tree.rank == rank:
            return self.text(tree)
        if is_row(tree):
            return f"{self.text(tree.body, ATOM)}[None, :]"
        return f"{self.text(tree, ATOM)}[:, None]"

    def show_commutation(self, tree: kinds.Commutation) -> Text:
        rows, columns = self.dimension(tree.rows), self.dimension(tree.columns)
        count = f"({rows}) * ({columns})"
        swapped = f"np.eye({count}).reshape({columns}, {rows}, {count}).swapaxes(0, 1)"
        return f"{swapped}.reshape({count}, {count})", ATOM

    def show_duplication(self, tree: kinds.Duplication) -> Text:
        upper, _ = self.show_elimination(kinds.Elimination(tree.size))
        return f"np.maximum({self._lower_rows(tree.size)}, {upper}).T", ATOM

    def show_elimination(self, tree: kinds.Elimination) -> Text:
        size = self.dimension(tree.size)
        matrices = f"{self._lower_rows(tree.size)}.reshape(-1, {size}, {size})"
        return f"{matrices}.swapaxes(1, 2).reshape(-1, ({size})**2)", ATOM

    def _lower_rows(self, size: Dimension) -> str:
        """Write the rows of the identity that select the lower triangle of a flat matrix."""
        text = self.dimension(size)
        return f"np.eye(({text})**2)[(np.tri({text}) > 0).ravel()]"

    def show_diagonals(self, tree: kinds.Diagonals) -> Text:
        size = self.dimension(tree.size)
        return f"np.eye(({size})**2)[:, :: {size} + 1]", ATOM

    def show_positive(self, tree: kinds.Positive) -> Text:
        return f"np.heaviside({self.loose(tree.body)}, 0.5)", ATOM

    def show_triangle(self, tree: kinds.Triangle) -> Text:
        offset = f", {tree.offset}" if tree.offset else ""
        return f"np.{'tril' if tree.lower else 'triu'}({self.text(tree.body)}{offset})", ATOM

    # Products and sums

    def show_scale(self, tree: kinds.Scale) -> Text:
        if tree.is_negative:
            return f"-{self.bare(negated(tree))[0]}", PRODUCT
        scalars, scalar_divisors = split_divisors(tree.scalars)
        factors = [self.text(factor, POWER) for factor in scalars]
        divisors = self._divisors(scalar_divisors)
        if tree.body is not None:
            factors.append(self.loose(tree.body, PRODUCT))
        numerator, denominator = tree.coefficient, sympy.S.One
        if numerator.is_Rational:
            numerator, denominator = numerator.as_numer_denom()
        if numerator != 1:
            number = str(numerator) if numerator.is_Rational else repr(float(numerator))
            factors[:1] = [" * ".join([number, *factors[:1]])]
        if denominator != 1:
            divisors[:1] = [f"({denominator} * {divisors[0]})" if divisors else str(denominator)]
        return _quotient(factors, divisors)

    def show_hadamard(self, tree: kinds.Hadamard) -> Text:
        factors, divisors = split_divisors(tree.factors)
        texts = [self.loose(factor, POWER) for factor in factors]
        return _quotient(texts, self._divisors(divisors))

    def _divisors(self, trees: Sequence[Tree]) -> list[str]:
        return [self.loose(part, POWER) for tree in trees for part in divided_in_turn(tree)]

    def show_raise(self, tree: kinds.Raise) -> Text:
        exponent = tree.exponent
        reciprocal = divisor(tree)
        if reciprocal is not None:
            return f"1 / {self.loose(reciprocal, POWER)}", PRODUCT
        if exponent == kinds.Number(sympy.S.Half) and isinstance(tree.body, kinds.Size):
            # np.sqrt would be a NumPy scalar, which makes float32 arrays float64.
            return f"{self.text(tree.body, ATOM)}**0.5", POWER
        if exponent == kinds.Number(sympy.S.Half):
            return f"np.sqrt({self.loose(tree.body)})", ATOM
        if isinstance(tree.body, kinds.Norm) and exponent == kinds.Number(sympy.Integer(2)):
            return f"np.sum({self.text(tree.body.body, ATOM)}**2)", ATOM
        return f"{self.loose(tree.body, ATOM)}**{self.loose(exponent, ATOM)}", POWER

    def show_add(self, tree: kinds.Add) -> Text:
        leading, *further_terms = map(_scale_spread, tree.terms)
        text = self.loose(leading, PRODUCT)
        for term in further_terms:
            sign, part = ("-", negated(term)) if term.is_negative else ("+", term)
            text += f" {sign} {self.loose(part, PRODUCT)}"
        return text, SUM

    # Functions

    def show_function(self, tree: kinds.Function) -> Text:
        values = [
            argument.value if isinstance(argument, kinds.Number) else slot(position)
            for position, argument in enumerate(tree.arguments)
        ]
        operands: dict[sympy.Symbol, spelling.Text] = {}
        for position, argument in enumerate(tree.arguments):
            operands[slot(position)] = _operand(self._loosely(argument))
        try:
            result = scalar_text(tree.function(*values, evaluate=False), operands)
        except PrintMethodNotImplementedError as error:
            message = f"{tree.head} has no formula in NumPy: neither NumPy nor SciPy has it"
            raise UnsupportedError(message) from error
        return str(result), ATOM

    def show_relation(self, tree: Tree) -> Text:
        return f"np.where({self.condition(tree)}, 1.0, 0.0)", ATOM

    show_logic = show_relation

    def show_choice(self, tree: kinds.Choice) -> Text:
        parts = (self.condition(tree.condition), self.real(tree.yes), self.real(tree.no))
        return f"np.where({', '.join(parts)})", ATOM

    def condition(self, tree: Tree) -> str:
        """Write a condition as an array of booleans."""
        if isinstance(tree, kinds.Relation):
            return f"{self.loose(tree.left, SUM)} {tree.symbol} {self.loose(tree.right, SUM)}"
        if not isinstance(tree, kinds.Logic):
            return f"{self.loose(tree, SUM)} != 0"
        text, *further_texts = [self.condition(part) for part in tree.parts]
        if tree.word == "not":
            return f"np.logical_not({text})"
        for part in further_texts:
            text = f"np.logical_{tree.word}({text}, {part})"
        return text

    def show_call(self, tree: kinds.Call) -> Text:
        arguments = [self.text(argument) for argument in tree.arguments]
        text = tree.operation.numpy(arguments, tree.parameters, tree.output)
        return f"{text}[{tree.output}]" if tree.operation.has_tuple_text else text, ATOM


def _operand(bare: Text) -> spelling.Text:
    """Return a text for the functions of `numpy_spelling`, which only tell atoms from others."""
    text, precedence = bare
    return spelling.Text(text, spelling.ATOM if precedence >= ATOM else spelling.SUM)


def _quotient(factors: Sequence[str], divisors: Sequence[str]) -> Text:
    """Write a product that is divided after each factor, as long as there are divisors, and by all
    remaining ones after the last: x / z * y / z rather than x * y / z**2, whose square may be
    beyond the range of numbers."""
    text, remaining = "1", list(divisors)
    for position, factor in enumerate(factors):
        text = f"{text} * {factor}" if position else factor
        count = max(1, len(remaining) - (len(factors) - position - 1))
        text += "".join(f" / {divisor}" for divisor in remaining[:count])
        del remaining[:count]
    return "".join([text, *(f" / {divisor}" for divisor in remaining)]), PRODUCT


def _increasing(part: Range) -> Range | None:
    """Reverse a range of negative step that may end at entry 0: NumPy reads its stop, -1, as the
    last entry. None: the range can be written as it is."""
    start, count, step, size = part
    stop = sympy.expand(start + step * count)
    if step > 0 or stop.is_negative or stop.is_nonnegative:
        return None
    return sympy.expand(stop - step), count, -step, size


def _prepared(factors: list[Tree]) -> list[Tree]:
    """Write products with ones as sums, and an inverse and the factors after it as a solve."""
    if len(factors) > 1 and isinstance(factors[-1], kinds.Ones) and factors[-2].rank == 2:
        factors[-2:] = _axis_sum(factors[-2], 1) or factors[-2:]
    leading = factors[0]
    if len(factors) > 1 and is_row(leading) and isinstance(leading.body, kinds.Ones):
        sums = _axis_sum(factors[1], 0) if factors[1].rank == 2 else []
        factors[:2] = [kinds.Transpose(tree) for tree in sums] or factors[:2]
    for position, factor in enumerate(factors[:-1]):
        if _is_inverse(factor):
            right = factors[position + 1 :]
            right_side = kinds.Matmul(tuple(right)) if len(right) > 1 else right[0]
            return [*factors[:position], Solve(factor.body, right_side)]
    return factors


def _axis_sum(matrix: Tree, axis: int) -> list[Tree]:
    """Sum a matrix over an axis; [] for an inverse, which is solved with the ones instead."""
    if is_row(matrix) or _is_inverse(matrix):
        return []
    if isinstance(matrix, kinds.Diag):
        return [matrix.body]
    if isinstance(matrix, kinds.Transpose):
        return [AxisSum(matrix.body, 1 - axis)]
    return [AxisSum(matrix, axis)]


def _is_inverse(tree: Tree) -> TypeGuard[kinds.Power]:
    return isinstance(tree, kinds.Power) and tree.exponent == -1


def _scale_spread(tree: Tree) -> Tree:
    """Write a broadcast multiple as a multiple of a broadcast array."""
    match tree:
        case kinds.Spread(body=kinds.Scale(body=Tree() as body) as inner):
            return replace(inner, body=replace(tree, body=body))
    return tree


def _is_column(tree: Tree) -> bool:
    return tree.rank == 1 and not is_row(tree)
