"""Trees of formulas, which the printers write.

A tree is an array of rank 0, 1 or 2 in matrix notation (a vector is a column), or an entrywise
expression of any rank. The kinds only hold their parts; `algebra` builds them in normal form. Trees
compare by value, and their `repr` is the same in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard, TypeVar, dataclass_transform

import numpy as np
import sympy

from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.scalar_values import divided_powers

if TYPE_CHECKING:
    from derivatrix.compiler.ir.operation import Operation

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def kind(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that caches its hash, as trees are deep and looked up often."""
    frozen = dataclass(frozen=True, repr=False)(cls)
    compute_hash = frozen.__hash__

    def cached_hash(self: T) -> int:
        if "hash" not in self.__dict__:
            self.__dict__["hash"] = compute_hash(self)
        return self.__dict__["hash"]

    frozen.__hash__ = cached_hash  # type: ignore[method-assign, assignment]
    return frozen


@kind
class Tree:
    """Base of all kinds."""

    @property
    def rank(self) -> int:
        return 0

    @cached_property
    def texts(self) -> dict[object, tuple[str, int]]:
        """Printed texts and their precedence, by printer."""
        return {}

    @cached_property
    def children(self) -> tuple[Tree, ...]:
        """The trees among the fields."""
        return tuple(_trees(tuple(getattr(self, part.name) for part in fields(self))))

    @cached_property
    def counts(self) -> Counter[type[Tree]]:
        """The number of nodes of each kind, this one included."""
        counts: Counter[type[Tree]] = Counter({type(self): 1})
        for child in self.children:
            counts.update(child.counts)
        return counts

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters of free indices."""
        return frozenset().union(*(part.letters for part in self.children))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of arrays and sizes."""
        return frozenset().union(*(part.names for part in self.children))

    @cached_property
    def accent_position(self) -> int | None:
        """The position of the first cotangent or tangent among the names, if there is one."""
        before = 0
        for part in self.children:
            if part.accent_position is not None:
                return before + part.accent_position
            before += part.counts[Name]
        return None

    @property
    def is_negative(self) -> bool:
        """True if the text starts with a minus sign."""
        return False

    @cached_property
    def sort_key(self) -> str:
        """The tree's `repr`."""
        values = [f"{part.name}={getattr(self, part.name)!r}" for part in fields(self) if part.repr]
        return f"{type(self).__qualname__}({', '.join(values)})"

    def __repr__(self) -> str:
        return self.sort_key


def _trees(value: object) -> Iterator[Tree]:
    if isinstance(value, Tree):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _trees(item)


@kind
class Ranked(Tree):
    """A kind that carries its rank."""

    axes: int

    @property
    def rank(self) -> int:
        return self.axes


@kind
class Vector(Tree):
    """A kind that is always a vector."""

    @property
    def rank(self) -> int:
        return 1


@kind
class Matrix(Tree):
    """A kind that is always a matrix."""

    @property
    def rank(self) -> int:
        return 2


@kind
class Name(Ranked):
    """An input, cotangent, tangent or definition. `base`: the name for reading, with the `accent`
    "bar", "dot" or ""; `python`: the name in NumPy texts."""

    base: str
    python: str
    accent: str = ""
    symmetric: bool = False

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset({self.base})

    @cached_property
    def accent_position(self) -> int | None:
        return 0 if self.accent else None


@kind
class Differential(Ranked):
    """dY for a subexpression Y of a derivation."""

    body: Tree
    symmetric: bool


@kind
class Number(Tree):
    """A number without dimensions, as SymPy has it: 1/2, 0.1, pi, ..."""

    value: sympy.Expr

    @property
    def is_negative(self) -> bool:
        return bool(self.value.is_extended_negative)


@kind
class Size(Tree):
    """A dimension's name, used as a number."""

    name: str

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


@kind
class Literal(Ranked):
    """A constant array."""

    key: str
    array: np.ndarray = field(repr=False, compare=False)


@kind
class Zeros(Tree):
    """All zeros."""

    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


@kind
class Identity(Matrix):
    """The identity matrix."""

    size: Dimension


@kind
class Ones(Vector):
    """The vector of ones."""

    size: Dimension


@kind
class Unit(Vector):
    """The vector with a 1 at `position` and zeros elsewhere."""

    size: Dimension
    position: Dimension

    @cached_property
    def letters(self) -> frozenset[str]:
        sizes = {symbol.name for symbol in self.position.free_symbols if symbol.is_positive}
        return _names(self.position) - sizes


@kind
class Mask(Matrix):
    """The matrix with ones where i >= j + offset."""

    rows: Dimension
    columns: Dimension
    offset: int


@kind
class Reshaped(Tree):
    """Ones where k == inner i + j: shape (outer inner, outer, inner); `packed`: where j <= i, k
    counting the lower triangle of an outer x outer matrix row by row."""

    outer: Dimension
    inner: Dimension
    packed: bool

    @property
    def rank(self) -> int:
        return 3


@kind
class Gathered(Matrix):
    """Rows of the identity of this size, by a table: shape (len(table), size)."""

    table: tuple[int, ...]
    size: Dimension


Range = tuple[Dimension, Dimension, int, Dimension]
"""Entries along an axis: start, count, step, and the size of the axis."""


@kind
class Rows(Matrix):
    """Rows start, start + step, ... of the identity: shape (count, size)."""

    count: Dimension
    size: Dimension
    start: Dimension
    step: int

    @cached_property
    def letters(self) -> frozenset[str]:
        return _names(self.start)

    @property
    def range(self) -> Range:
        """The entries that a product with these rows selects."""
        return self.start, self.count, self.step, self.size


@kind
class Part(Tree):
    """Entries of `body`: along each axis all (None), a range (start, count, step, size of
    the axis), or one index, which drops the axis."""

    body: Tree
    ranges: tuple[Range | Dimension | None, ...]

    @cached_property
    def letters(self) -> frozenset[str]:
        starts = (part[0] if isinstance(part, tuple) else part for part in self.ranges)
        return self.body.letters.union(*(_names(start) for start in starts if start is not None))

    @property
    def rank(self) -> int:
        return sum(part is None or isinstance(part, tuple) for part in self.ranges)


@kind
class Padded(Tree):
    """Zeros with `body` in them: along each axis all of it (None) or the range (start, count, 1,
    size of the axis)."""

    body: Tree
    ranges: tuple[Range | None, ...]

    @property
    def rank(self) -> int:
        return self.body.rank


@kind
class Block(Ranked):
    """A block matrix, row by row, or a vector of parts, one a row: the sum of `cells`. Zeros lack
    the sizes that their neighbours have."""

    rows: tuple[tuple[Tree, ...], ...]
    cells: tuple[Padded, ...]


@kind
class Entries(Ranked):
    """A small matrix by its entries, row by row, or a vector with one a row; only for reading."""

    rows: tuple[tuple[Tree, ...], ...]


@kind
class Kronecker(Tree):
    """The Kronecker product of two matrices or two vectors; in vec forms also of a matrix and a
    column or row (a transposed vector)."""

    left: Tree
    right: Tree

    @property
    def rank(self) -> int:
        return max(self.left.rank, self.right.rank)


@kind
class Commutation(Matrix):
    """K with K vec A = vec Aᵀ, where A has shape (rows, columns)."""

    rows: Dimension
    columns: Dimension


@kind
class Duplication(Matrix):
    """D with D vech S = vec S for a symmetric matrix S of this size."""

    size: Dimension


@kind
class Elimination(Matrix):
    """L with L vec A = vech A for a square matrix A of this size."""

    size: Dimension


@kind
class Diagonals(Matrix):
    """Ψ with Ψ v = vec diag(v) for a vector v of this size."""

    size: Dimension


@kind
class Vectorised(Vector):
    """vec of a matrix, which stacks columns; `packed`: vech, its lower triangle row by row."""

    body: Tree
    packed: bool


@kind
class Unvectorised(Matrix):
    """The matrix (rows, columns) whose vec is `body`; `packed`: the lower triangular one whose
    vech it is."""

    body: Tree
    rows: Dimension
    columns: Dimension
    packed: bool


@kind
class Transpose(Tree):
    """A transposed matrix; of a vector, a row, which occurs in `Matmul` and `Kronecker` only."""

    body: Tree

    @property
    def rank(self) -> int:
        return self.body.rank


@kind
class Power(Matrix):
    """An integer power of a square matrix, negative for its inverse. symmetric: True if the matrix
    is known to be symmetric, which a sum or product does not show."""

    body: Tree
    exponent: int
    symmetric: bool = False


@kind
class Matmul(Tree):
    """A product of matrices, which may start with a row, end with a column, and contain the outer
    product of a column and a row."""

    factors: tuple[Tree, ...]

    @property
    def rank(self) -> int:
        return (not is_row(self.factors[0])) + (
            self.factors[-1].rank == 2 or is_row(self.factors[-1])
        )


@kind
class Diag(Matrix):
    """The diagonal matrix of a vector."""

    body: Tree


@kind
class Diagonal(Vector):
    """The diagonal of a matrix."""

    body: Tree


@kind
class Triangle(Matrix):
    """The entries of a matrix with j <= i + offset (lower) or j >= i + offset, zeros elsewhere."""

    body: Tree
    lower: bool
    offset: int


@kind
class Trace(Tree):
    """The trace of a matrix."""

    body: Tree


@kind
class Total(Tree):
    """The sum of all entries."""

    body: Tree


@kind
class Norm(Tree):
    """The Euclidean norm of a vector or Frobenius norm of a matrix."""

    body: Tree


@kind
class Scale(Tree):
    """coefficient * product of the scalars * body (None: a scalar)."""

    coefficient: sympy.Expr
    scalars: tuple[Tree, ...]
    body: Tree | None

    @property
    def rank(self) -> int:
        return self.body.rank if self.body else 0

    @property
    def is_negative(self) -> bool:
        return bool(self.coefficient.is_negative)


@kind
class Hadamard(Ranked):
    """An entrywise product; factors that are negative powers (`Raise`) are divisors."""

    factors: tuple[Tree, ...]


@kind
class Raise(Ranked):
    """An entrywise power, or one of a scalar."""

    body: Tree
    exponent: Tree


@kind
class Add(Ranked):
    """A sum; scalar terms are added to every entry."""

    terms: tuple[Tree, ...]


@kind
class Spread(Tree):
    """`body` along some axes (increasing) of an array of `shape`, constant along the others."""

    body: Tree
    along: tuple[int, ...]
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


@kind
class Function(Ranked):
    """An entrywise function; `head`: the name of SymPy's class `function`."""

    head: str
    arguments: tuple[Tree, ...]
    function: type = field(repr=False, compare=False, default=sympy.Function)


@kind
class Relation(Ranked):
    """An entrywise comparison, ">", ">=", "<", "<=", "==" or "!="; 1 where it holds."""

    symbol: str
    left: Tree
    right: Tree


@kind
class Positive(Ranked):
    """1 where `body` > 0, 1/2 where it is 0, 0 where it is less."""

    body: Tree


@kind
class Logic(Ranked):
    """ "and", "or" or "not" of conditions, entry by entry."""

    word: str
    parts: tuple[Tree, ...]


@kind
class Choice(Ranked):
    """`yes` where the condition holds, else `no`."""

    condition: Tree
    yes: Tree
    no: Tree


@kind
class Call(Ranked):
    """An operation of the registry; `key` is the operation's."""

    key: str
    arguments: tuple[Tree, ...]
    parameters: tuple
    output: int
    symmetric: bool
    operation: Operation = field(repr=False, compare=False)


Indices = tuple[sympy.Expr | None, ...]


@kind
class Indexed(Tree):
    """Entries of `body` by an index for each axis (None: all of it)."""

    body: Tree
    indices: Indices

    @cached_property
    def letters(self) -> frozenset[str]:
        return self.body.letters.union(*(_names(i) for i in self.indices if i is not None))

    @property
    def rank(self) -> int:
        return self.indices.count(None)


@kind
class Bracket(Tree):
    """1 where the relation between two indices holds; "δ" marks Kronecker's delta."""

    left: sympy.Expr
    symbol: str
    right: sympy.Expr

    @cached_property
    def letters(self) -> frozenset[str]:
        return _names(self.left) | _names(self.right)


@kind
class Over(Tree):
    """The sum of `body` over index letters, each below its size."""

    over: tuple[str, ...]
    body: Tree
    sizes: Shape

    @cached_property
    def letters(self) -> frozenset[str]:
        return self.body.letters - set(self.over)

    @property
    def rank(self) -> int:
        return self.body.rank


@kind
class Contraction(Ranked):
    """`np.einsum(subscripts, *operands)`; only in NumPy texts."""

    subscripts: str
    operands: tuple[Tree, ...]


@kind
class Lengths(Ranked):
    """Square roots of sums of squares over the axes `summed`; only in NumPy texts."""

    body: Tree
    summed: tuple[int, ...]


@kind
class Resized(Tree):
    """The entries of `body`, row by row, as an array of this shape; only in NumPy texts."""

    body: Tree
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


@kind
class Arranged(Ranked):
    """The axes of `body` in the order `places`, with new axes of length 1 for None; only in NumPy
    texts."""

    body: Tree
    places: tuple[int | None, ...]


class Running(sympy.Symbol):
    """An index of the equations of a loop over time, the time or that of a stacked axis. Parts of a
    step that depend on it may be defined, unlike those with free indices."""


def index_of(letter: str) -> sympy.Symbol:
    """Make the index of a letter."""
    return sympy.Symbol(letter, integer=True)


def _names(index: sympy.Expr) -> frozenset[str]:
    symbols = (symbol for symbol in index.free_symbols if not isinstance(symbol, Running))
    return frozenset(symbol.name for symbol in symbols)


def negated(tree: Tree) -> Tree:
    """Remove the minus sign of a number or of a coefficient."""
    if isinstance(tree, Number):
        return Number(-tree.value)
    assert isinstance(tree, Scale)
    return replace(tree, coefficient=-tree.coefficient)


def is_row(tree: Tree) -> TypeGuard[Transpose]:
    """Tell whether a tree is a transposed vector."""
    return isinstance(tree, Transpose) and tree.body.rank == 1


def divisor(factor: Tree) -> Tree | None:
    """Return 1 / factor for a factor that is a negative power, else None."""
    if not isinstance(factor, Raise) or not isinstance(factor.exponent, Number):
        return None
    exponent = -factor.exponent.value
    if not exponent.is_positive:
        return None
    return factor.body if exponent == 1 else Raise(factor.axes, factor.body, Number(exponent))


def split_divisors(factors: tuple[Tree, ...]) -> tuple[list[Tree], list[Tree]]:
    """Split the factors of a product into those of the numerator and of the denominator."""
    numerator = [factor for factor in factors if divisor(factor) is None]
    return numerator, [d for factor in factors if (d := divisor(factor)) is not None]


def divided_in_turn(tree: Tree) -> list[Tree]:
    """Split a divisor that is a power, which may be beyond the range of numbers, into divisors to
    be applied one after the other."""
    if not isinstance(tree, Raise) or not isinstance(tree.exponent, Number):
        return [tree]
    parts = divided_powers(tree.exponent.value) if tree.exponent.value.is_positive else []
    powers = [tree.body if part == 1 else replace(tree, exponent=Number(part)) for part in parts]
    return powers or [tree]
