"""A NumPy interpreter of formula trees, so that what is printed for reading can be checked."""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from derivatrix.compiler.formulas import formula, render, render_equation
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.definitions import Definition
from derivatrix.compiler.formulas.factoring import IDENTITY
from derivatrix.compiler.formulas.indexing import index_texts
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.printers.base import PRIMARY
from derivatrix.compiler.formulas.printers.numpy import AxisSum, Solve
from derivatrix.compiler.formulas.rewrite import occurrences
from derivatrix.compiler.formulas.tree import Tree, is_row
from derivatrix.compiler.ir import dimensions, scalar_functions
from derivatrix.compiler.ir.nodes import Node, leaves, slot

Array = np.ndarray
STEP = 1e-5
RELATIONS: dict[str, Callable[..., Any]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def formula_value(
    node: Node, values: Mapping[str, Array], sizes: Mapping[str, int], by_index: bool
) -> Array:
    """The array that the formula of `node` stands for."""
    root, indices, definitions = formula(node, (), by_index)
    check_letters(node, by_index)
    reader = Reader(values, sizes, definitions)
    shape = tuple(reader.size(size) for size in node.shape)
    return reader.array(root, indices, shape)


def check_letters(node: Node, by_index: bool) -> None:
    """No sum of a node's formula has a letter of a sum around it or of the left side."""

    def check_sums(tree: Tree, scope: Set[str]) -> None:
        letters = set(tree.over) if isinstance(tree, kinds.Over) else set()
        assert not letters & scope, f"{letters & scope} in {tree}"
        for part in tree.children if tree.counts[kinds.Over] else ():
            check_sums(part, scope | letters)

    root, indices, definitions = formula(node, (), by_index)
    for tree, left in [(root, indices), *((part.tree, part.indices) for part in definitions)]:
        check_sums(tree, index_texts(left))


def text_of(node: Node, style: str) -> str:
    """The text of a node: as an equation in the styles that have these."""
    return (
        render_equation(("Z", PRIMARY), node, style)
        if style in math_printers()
        else render(node, style)
    )


def check_text(node: Node, style: str) -> None:
    """The text of a node has all inputs of its tree, and all kinds of brackets close."""
    check_letters(node, style == "index")
    text = text_of(node, style)
    for left, right in (("(", ")"), ("{", "}"), ("\\left", "\\right"), ("\\begin", "\\end")):
        assert text.count(left) == text.count(right), text
    root, _, definitions = formula(node, (), False)
    parts = occurrences([root, *(part.tree for part in definitions)])
    names = {part.python for part in parts if isinstance(part, kinds.Name)}
    for leaf in leaves([node]):
        if leaf.role == "input" and leaf.name in names:
            assert leaf.name[0] in text, text


class Reader:
    """Evaluates trees. Each method is named after a kind. `direction`: how inputs move where
    there are differentials, which are taken by central differences."""

    def __init__(
        self,
        values: Mapping[str, Array],
        sizes: Mapping[str, int],
        definitions: Sequence[Definition] = (),
        direction: Mapping[str, Array] | None = None,
    ) -> None:
        self.values = values
        self.sizes = sizes
        self.definitions = definitions
        self.direction = direction or {}
        self.names: dict[Tree, Array] = {}
        for part in definitions:
            moving = {kinds.Differential} & {type(inner) for inner in occurrences([part.tree])}
            later = {inner.name for inner in definitions} - set(self.names)
            if self.direction or not (moving or later & set(occurrences([part.tree]))):
                shape = tuple(self.size(size) for size in part.shape)
                self.names[part.name] = self.array(part.tree, part.indices, shape)

    def of_differential(self, tree: kinds.Differential, at: Mapping[str, int]) -> Any:
        results = []
        for step in (STEP, -STEP):
            values = dict(self.values)
            for name, direction in self.direction.items():
                values[name] = values[name] + step * direction
            results.append(Reader(values, self.sizes, self.definitions).value(tree.body, at))
        return (results[0] - results[1]) / (2 * STEP)

    def size(self, size: Any) -> int:
        return int(dimensions.evaluate(size, self.sizes))

    def array(self, tree: Tree, indices: kinds.Indices, shape: Any) -> Array:
        """The array of a right side, over all values of the left side's indices."""
        letters = [str(index) for index in indices if index is not None]
        if not letters:
            return np.asarray(self.value(tree, {}))
        places = [axis for axis, index in enumerate(indices) if index is not None]
        result = np.zeros(shape)
        for position in product(*(range(shape[axis]) for axis in places)):
            at: list[Any] = [slice(None)] * len(shape)
            for axis, value in zip(places, position, strict=True):
                at[axis] = value
            result[tuple(at)] = self.value(tree, dict(zip(letters, position, strict=True)))
        return result

    def value(self, tree: Tree, at: Mapping[str, int]) -> Any:
        return getattr(self, f"of_{type(tree).__name__.lower()}")(tree, at)

    def index(self, index: Any, at: Mapping[str, int]) -> int:
        numbers = {**self.sizes, **at}
        return int(index.subs({s: numbers[s.name] for s in index.free_symbols}))

    def all(self, trees: Sequence[Tree], at: Mapping[str, int]) -> list[Any]:
        return [self.value(tree, at) for tree in trees]

    def of_name(self, tree: kinds.Name, at: Mapping[str, int]) -> Any:
        return self.names[tree] if tree in self.names else self.values[tree.python]

    def of_number(self, tree: kinds.Number, at: Mapping[str, int]) -> Any:
        return float(tree.value)

    def of_size(self, tree: kinds.Size, at: Mapping[str, int]) -> Any:
        return self.sizes[tree.name]

    def of_literal(self, tree: kinds.Literal, at: Mapping[str, int]) -> Any:
        return tree.array

    def of_zeros(self, tree: kinds.Zeros, at: Mapping[str, int]) -> Any:
        return np.zeros([self.size(size) for size in tree.shape])

    def of_identity(self, tree: kinds.Identity, at: Mapping[str, int]) -> Any:
        return np.eye(self.size(tree.size))

    def of_ones(self, tree: kinds.Ones, at: Mapping[str, int]) -> Any:
        return np.ones(self.size(tree.size))

    def of_unit(self, tree: kinds.Unit, at: Mapping[str, int]) -> Any:
        return np.eye(self.size(tree.size))[self.index(tree.position, at)]

    def of_mask(self, tree: kinds.Mask, at: Mapping[str, int]) -> Any:
        return np.tri(self.size(tree.rows), self.size(tree.columns), -tree.offset)

    def of_rows(self, tree: kinds.Rows, at: Mapping[str, int]) -> Any:
        return np.eye(self.size(tree.size))[self.places(tree.range, at)]

    def of_gathered(self, tree: kinds.Gathered, at: Mapping[str, int]) -> Any:
        return np.eye(self.size(tree.size))[list(tree.table)]

    def of_reshaped(self, tree: kinds.Reshaped, at: Mapping[str, int]) -> Any:
        outer, inner = self.size(tree.outer), self.size(tree.inner)
        identity = np.eye(outer * inner).reshape(-1, outer, inner)
        return identity[np.tri(outer).ravel() > 0] if tree.packed else identity

    def of_lengths(self, tree: kinds.Lengths, at: Mapping[str, int]) -> Any:
        return np.sqrt(np.sum(self.value(tree.body, at) ** 2, axis=tree.summed))

    def of_contraction(self, tree: kinds.Contraction, at: Mapping[str, int]) -> Any:
        return np.einsum(tree.subscripts, *self.all(tree.operands, at))

    def of_arranged(self, tree: kinds.Arranged, at: Mapping[str, int]) -> Any:
        old = [axis for axis in tree.places if axis is not None]
        new = [place for place, axis in enumerate(tree.places) if axis is None]
        return np.expand_dims(np.transpose(self.value(tree.body, at), old), new)

    def of_resized(self, tree: kinds.Resized, at: Mapping[str, int]) -> Any:
        return self.value(tree.body, at).reshape([self.size(size) for size in tree.shape])

    def of_solve(self, tree: Solve, at: Mapping[str, int]) -> Any:
        return np.linalg.solve(self.value(tree.matrix, at), self.value(tree.right, at))

    def of_axissum(self, tree: AxisSum, at: Mapping[str, int]) -> Any:
        return np.sum(self.value(tree.body, at), axis=tree.axis)

    def places(self, selection: Any, at: Mapping[str, int]) -> Any:
        start, count, step, _ = selection
        return self.index(start, at) + step * np.arange(self.size(count))

    def of_part(self, tree: kinds.Part, at: Mapping[str, int]) -> Any:
        value = self.value(tree.body, at)
        axis = 0
        for selection in tree.ranges:
            if isinstance(selection, tuple):
                value = value.take(self.places(selection, at), axis)
            elif selection is not None:
                value = value.take(self.index(selection, at), axis)
            axis += selection is None or isinstance(selection, tuple)
        return value

    def of_padded(self, tree: kinds.Padded, at: Mapping[str, int]) -> Any:
        body = self.value(tree.body, at)
        axes = zip(tree.ranges, body.shape, strict=True)
        result = np.zeros(
            [n if selection is None else self.size(selection[3]) for selection, n in axes]
        )
        all_axes = zip(tree.ranges, body.shape, strict=True)
        places = [
            np.arange(n) if selection is None else self.places(selection, at)
            for selection, n in all_axes
        ]
        result[np.ix_(*places)] = body
        return result

    def of_entries(self, tree: kinds.Entries, at: Mapping[str, int]) -> Any:
        rows = np.array([self.all(row, at) for row in tree.rows])
        return rows if tree.axes == 2 else rows[:, 0]

    def of_block(self, tree: kinds.Block, at: Mapping[str, int]) -> Any:
        """Join the cells; zeros have the sizes of their neighbours."""
        rows = [[self.value(cell, at) for cell in row] for row in tree.rows]
        if tree.rank == 1:
            return np.concatenate([row[0] for row in rows])
        total = sum(self.of_padded(cell, at) for cell in tree.cells)
        top = 0
        for row, cells in zip(rows, tree.rows, strict=True):
            left = 0
            sizes = [cell.shape for cell in row if cell.ndim == 2]
            height = sizes[0][0] if sizes else self.size(cells[0].shape[0])
            for column, cell in enumerate(row):
                own = [r[column].shape[1] for r in rows if r[column].ndim == 2]
                width = own[0] if own else total.shape[1]
                inside = total[top : top + height, left : left + width]
                np.testing.assert_array_equal(inside, cell if cell.ndim == 2 else 0 * inside)
                left += width
            top += height
        return total

    def of_kronecker(self, tree: kinds.Kronecker, at: Mapping[str, int]) -> Any:
        parts = self.all([tree.left, tree.right], at)
        for place, part in enumerate((tree.left, tree.right)):
            if part.rank < tree.rank:
                parts[place] = parts[place][None, :] if is_row(part) else parts[place][:, None]
        return np.kron(*parts)

    def of_commutation(self, tree: kinds.Commutation, at: Mapping[str, int]) -> Any:
        rows, columns = self.size(tree.rows), self.size(tree.columns)
        result = np.zeros((rows * columns, rows * columns))
        for i, j in np.ndindex(rows, columns):
            result[j + columns * i, i + rows * j] = 1
        return result

    def of_duplication(self, tree: kinds.Duplication, at: Mapping[str, int]) -> Any:
        size = self.size(tree.size)
        result = np.zeros((size * size, size * (size + 1) // 2))
        for place, (i, j) in enumerate(zip(*np.tril_indices(size), strict=True)):
            result[i + size * j, place] = result[j + size * i, place] = 1
        return result

    def of_elimination(self, tree: kinds.Elimination, at: Mapping[str, int]) -> Any:
        size = self.size(tree.size)
        result = np.zeros((size * (size + 1) // 2, size * size))
        for place, (i, j) in enumerate(zip(*np.tril_indices(size), strict=True)):
            result[place, i + size * j] = 1
        return result

    def of_diagonals(self, tree: kinds.Diagonals, at: Mapping[str, int]) -> Any:
        size = self.size(tree.size)
        return np.stack([np.diag(row).ravel() for row in np.eye(size)], axis=1)

    def of_vectorised(self, tree: kinds.Vectorised, at: Mapping[str, int]) -> Any:
        body = self.value(tree.body, at)
        return body[np.tril_indices(len(body))] if tree.packed else body.ravel(order="F")

    def of_unvectorised(self, tree: kinds.Unvectorised, at: Mapping[str, int]) -> Any:
        body, shape = self.value(tree.body, at), (self.size(tree.rows), self.size(tree.columns))
        if not tree.packed:
            return body.reshape(shape, order="F")
        result = np.zeros(shape)
        result[np.tril_indices(shape[0])] = body
        return result

    def of_transpose(self, tree: kinds.Transpose, at: Mapping[str, int]) -> Any:
        return self.value(tree.body, at).T

    def of_power(self, tree: kinds.Power, at: Mapping[str, int]) -> Any:
        return np.linalg.matrix_power(self.value(tree.body, at), tree.exponent)

    def of_matmul(self, tree: kinds.Matmul, at: Mapping[str, int]) -> Any:
        """Rows and columns as matrices with one row or column."""
        result: Any = None
        scalar = 1.0
        for factor in tree.factors:
            value = self.value(factor, at)
            if is_row(factor):
                value = value[None, :]
            elif value.ndim == 1:
                value = value[:, None]
            result = value if result is None else result @ value
            if result.shape == (1, 1) and factor is not tree.factors[-1] and not is_row(factor):
                scalar, result = scalar * result[0, 0], None
        if tree.rank == 2:
            return scalar * result
        if tree.rank == 1:
            return scalar * result[:, 0]
        return scalar * (1.0 if result is None else result[0, 0])

    def of_diag(self, tree: kinds.Diag, at: Mapping[str, int]) -> Any:
        return np.diag(self.value(tree.body, at))

    def of_diagonal(self, tree: kinds.Diagonal, at: Mapping[str, int]) -> Any:
        return np.diagonal(self.value(tree.body, at))

    def of_triangle(self, tree: kinds.Triangle, at: Mapping[str, int]) -> Any:
        return (np.tril if tree.lower else np.triu)(self.value(tree.body, at), tree.offset)

    def of_trace(self, tree: kinds.Trace, at: Mapping[str, int]) -> Any:
        return np.trace(self.value(tree.body, at))

    def of_total(self, tree: kinds.Total, at: Mapping[str, int]) -> Any:
        return np.sum(self.value(tree.body, at))

    def of_norm(self, tree: kinds.Norm, at: Mapping[str, int]) -> Any:
        return np.linalg.norm(self.value(tree.body, at))

    def of_scale(self, tree: kinds.Scale, at: Mapping[str, int]) -> Any:
        """The product; 0 where a condition in it is false, even if another factor has no value."""
        brackets = [factor for factor in tree.scalars if isinstance(factor, kinds.Bracket)]
        if not all(self.all(brackets, at)):
            with suppress(IndexError):
                return 0.0 if tree.body is None else 0.0 * self.value(tree.body, at)
            return 0.0
        result: Any = float(tree.coefficient)
        for value in self.all(tree.scalars, at):
            result = result * value
        return result if tree.body is None else result * self.value(tree.body, at)

    def of_hadamard(self, tree: kinds.Hadamard, at: Mapping[str, int]) -> Any:
        result: Any = 1.0
        for value in self.all(tree.factors, at):
            result = result * value
        return result

    def of_raise(self, tree: kinds.Raise, at: Mapping[str, int]) -> Any:
        return np.asarray(self.value(tree.body, at)) ** self.value(tree.exponent, at)

    def of_add(self, tree: kinds.Add, at: Mapping[str, int]) -> Any:
        """The sum; an identity matrix without a size has that of the others."""
        units = [term for term in tree.terms if IDENTITY in (term, getattr(term, "body", None))]
        result: Any = sum(self.value(term, at) for term in tree.terms if term not in units)
        for term in units:
            result = result + float(getattr(term, "coefficient", 1)) * np.eye(len(result))
        return result

    def of_spread(self, tree: kinds.Spread, at: Mapping[str, int]) -> Any:
        shape = [self.size(size) for size in tree.shape]
        wide = [n if axis in tree.along else 1 for axis, n in enumerate(shape)]
        return np.broadcast_to(np.reshape(self.value(tree.body, at), wide), shape)

    def of_function(self, tree: kinds.Function, at: Mapping[str, int]) -> Any:
        slots = [slot(i) for i in range(len(tree.arguments))]
        arguments = self.all(tree.arguments, at)
        numbers = {
            variable: part.value
            for variable, part in zip(slots, tree.arguments, strict=True)
            if isinstance(part, kinds.Number)
        }
        expression = tree.function(*(numbers.get(variable, variable) for variable in slots))
        return scalar_functions.evaluate(expression, arguments)

    def of_positive(self, tree: kinds.Positive, at: Mapping[str, int]) -> Any:
        return np.heaviside(self.value(tree.body, at), 0.5)

    def of_relation(self, tree: kinds.Relation, at: Mapping[str, int]) -> Any:
        return 1.0 * RELATIONS[tree.symbol](*self.all([tree.left, tree.right], at))

    def of_logic(self, tree: kinds.Logic, at: Mapping[str, int]) -> Any:
        parts = [np.asarray(part) != 0 for part in self.all(tree.parts, at)]
        if tree.word == "not":
            return 1.0 * ~parts[0]
        join = np.logical_and if tree.word == "and" else np.logical_or
        return 1.0 * reduce(join, parts)

    def of_choice(self, tree: kinds.Choice, at: Mapping[str, int]) -> Any:
        condition, yes, no = self.all([tree.condition, tree.yes, tree.no], at)
        return np.where(condition != 0, yes, no)

    def of_call(self, tree: kinds.Call, at: Mapping[str, int]) -> Any:
        return tree.operation.value(self.all(tree.arguments, at), tree.parameters)[tree.output]

    def of_indexed(self, tree: kinds.Indexed, at: Mapping[str, int]) -> Any:
        body = self.value(tree.body, at)
        return body[tuple(slice(None) if i is None else self.index(i, at) for i in tree.indices)]

    def of_bracket(self, tree: kinds.Bracket, at: Mapping[str, int]) -> Any:
        symbol = "==" if tree.symbol == "δ" else tree.symbol
        left, right = (self.index(i, at) for i in (tree.left, tree.right))
        return float(RELATIONS[symbol](left, right))

    def of_over(self, tree: kinds.Over, at: Mapping[str, int]) -> Any:
        letters = tree.over
        ranges = [range(self.size(size)) for size in tree.sizes]
        return sum(
            self.value(tree.body, {**at, **dict(zip(letters, place, strict=True))})
            for place in product(*ranges)
        )
