"""Trees in normal form: one constructor a kind, with the rewriting that a writer would do.

Scalars come to the front, transposes are pushed to the names where that leaves fewer of them,
equal neighbours become powers, and broadcasting (`Spread`) is taken out of whatever works entry
by entry. The constructors call each other: a product of sums is a sum whose terms are products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

import sympy

from derivatrix.compiler.formulas import entrywise, order
from derivatrix.compiler.formulas.layout import grid
from derivatrix.compiler.formulas.rewrite import mapped
from derivatrix.compiler.formulas.tree import (
    Add,
    Block,
    Choice,
    Diag,
    Diagonal,
    Function,
    Hadamard,
    Identity,
    Indexed,
    Kronecker,
    Logic,
    Mask,
    Matmul,
    Name,
    Norm,
    Number,
    Ones,
    Over,
    Padded,
    Part,
    Positive,
    Power,
    Raise,
    Range,
    Relation,
    Rows,
    Scale,
    Spread,
    Total,
    Trace,
    Transpose,
    Tree,
    Triangle,
    Unit,
    Zeros,
    divisor,
    is_row,
)
from derivatrix.compiler.ir.dimensions import Dimension, Shape

ONE = sympy.S.One

P = ParamSpec("P")


def linear(
    build: Callable[Concatenate[Tree, P], Tree],
) -> Callable[Concatenate[Tree, P], Tree]:
    """A constructor that is linear in its first argument: the scalars in front of this stand in
    front of the result."""

    @wraps(build)
    def made(tree: Tree, /, *args: P.args, **kwargs: P.kwargs) -> Tree:
        if isinstance(tree, Scale) and tree.body is not None:
            return scale(tree.coefficient, tree.scalars, made(tree.body, *args, **kwargs))
        return build(tree, *args, **kwargs)

    return made


# Scalars stand in front, equal ones as powers


def scale(coefficient: sympy.Expr, scalars: Iterable[Tree], body: Tree | None = None) -> Tree:
    """coefficient * product of scalar trees * body."""
    pending = list(scalars)
    if isinstance(body, Spread):
        return entrywise.spread(scale(coefficient, pending, body.body), body.along, body.shape)
    if isinstance(body, Zeros):
        return body
    if body is not None and body.rank == 0:
        pending.append(body)
        body = None
    powers: dict[Tree, sympy.Expr] = {}
    while pending or isinstance(body, Scale):
        if isinstance(body, Scale):
            factor: Tree = Scale(body.coefficient, body.scalars, None)
            body = body.body
        else:
            factor = pending.pop(0)
        if isinstance(factor, Scale):
            coefficient *= factor.coefficient
            pending[:0] = factor.scalars
        elif isinstance(factor, Number) and (factor.value.is_Rational or factor.value.is_Float):
            coefficient *= factor.value
        else:
            multiply_in(powers, factor)
    return _with_scalars(coefficient, powers, body)


def _with_scalars(
    coefficient: sympy.Expr, powers: dict[Tree, sympy.Expr], body: Tree | None
) -> Tree:
    if coefficient.is_Float and float(coefficient).is_integer():
        coefficient = sympy.Integer(int(coefficient))
    kept = [raised(base, Number(exponent)) for base, exponent in powers.items()]
    kept.sort(key=order.scalar_order)
    if body is None and not kept:
        return Number(coefficient)
    if coefficient == 1 and not kept and body is not None:
        return body
    if coefficient == 1 and body is None and len(kept) == 1:
        return kept[0]
    return Scale(coefficient, tuple(kept), body)


def multiply_in(powers: dict[Tree, sympy.Expr], factor: Tree) -> None:
    """Collect equal factors, as numeric powers."""
    base, exponent = factor, ONE
    if isinstance(factor, Raise) and isinstance(factor.exponent, Number):
        base, exponent = factor.body, factor.exponent.value
    powers[base] = powers.get(base, sympy.S.Zero) + exponent
    if powers[base] == 0:
        del powers[base]


# Products and powers entry by entry


def hadamard(factors: Sequence[Tree], rank: int) -> Tree:
    """The product, entry by entry, of trees of this rank or scalars."""
    return entrywise.entrywise(_multiplied, factors, rank)


def _multiplied(factors: Sequence[Tree], rank: int) -> Tree:
    scalars: list[Tree] = []
    powers: dict[Tree, sympy.Expr] = {}
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        if factor.rank == 0:
            scalars.append(factor)
        elif isinstance(factor, Scale) and factor.body is not None:
            scalars.append(Scale(factor.coefficient, factor.scalars, None))
            pending.insert(0, factor.body)
        elif isinstance(factor, Hadamard):
            pending[:0] = factor.factors
        elif isinstance(factor, Spread) and isinstance(factor.body, Scale) and factor.body.body:
            inner = factor.body
            scalars.append(Scale(inner.coefficient, inner.scalars, None))
            pending.insert(0, Spread(factor.body.body, factor.along, factor.shape))
        elif isinstance(factor, Zeros):
            return factor
        else:
            multiply_in(powers, factor)
    arrays = [raised(base, Number(exponent)) for base, exponent in powers.items()]
    return scale(ONE, scalars, _masked(arrays, rank))


def _masked(arrays: list[Tree], rank: int) -> Tree | None:
    """The product of arrays; the mask of a triangle takes that triangle."""
    for mask in arrays:
        base = mask.body if isinstance(mask, Transpose) else mask
        upper = base is not mask
        if isinstance(base, Mask) and len(arrays) > 1:
            rest = _masked([array for array in arrays if array is not mask], rank)
            assert rest is not None
            return Triangle(rest, not upper, base.offset if upper else -base.offset)
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    return Hadamard(rank, tuple(sorted(arrays, key=order.factor_order)))


def raised(body: Tree, exponent: Tree) -> Tree:
    """A power entry by entry, or of a scalar."""
    rank = max(body.rank, exponent.rank)
    return entrywise.entrywise(
        lambda parts, axes: _raised(parts[0], parts[1], axes), (body, exponent), rank
    )


def _raised(body: Tree, exponent: Tree, rank: int) -> Tree:
    if not isinstance(exponent, Number):
        return Raise(rank, body, exponent)
    value = exponent.value
    if value.is_Float and float(2 * value).is_integer():
        value = sympy.Rational(int(2 * value), 2)
        exponent = Number(value)
    if value == 1:
        return body
    if isinstance(body, Number) and (body.value**value).is_Rational:
        return Number(body.value**value)
    if value.is_Integer and isinstance(body, Raise) and isinstance(body.exponent, Number):
        return _raised(body.body, Number(body.exponent.value * value), rank)
    if value.is_Integer and isinstance(body, Scale):
        scalars = [raised(scalar, exponent) for scalar in body.scalars]
        inner = None if body.body is None else raised(body.body, exponent)
        return scale(body.coefficient**value, scalars, inner)
    root = _square_root(body) if (2 * value).is_Integer and not value.is_Integer else None
    if root is not None:
        return _raised(root, Number(2 * value), rank)
    return Raise(rank, body, exponent)


def _square_root(tree: Tree) -> Tree | None:
    """The norm whose square `tree` is."""
    if isinstance(tree, Raise) and isinstance(tree.body, Norm) and tree.exponent == Number(2 * ONE):
        return tree.body
    if isinstance(tree, Matmul) and len(tree.factors) == 2:
        row, column = tree.factors
        if is_row(row) and row.body == column:
            return norm(column)
    return None


# Sums, with the terms in the order of writing


def add(terms: Sequence[Tree], rank: int, shape: Shape = ()) -> Tree:
    """The sum of terms of this rank or scalars; no terms: zeros of `shape`."""
    flat: list[Tree] = []
    for term in terms:
        flat += term.terms if isinstance(term, Add) else (term,)
    flat = [t for t in flat if not isinstance(t, Zeros) and t != Number(sympy.S.Zero)]
    if not flat:
        return Zeros(shape) if shape else Number(sympy.S.Zero)
    if not any(term.rank for term in flat) and rank:
        return entrywise.spread(add(flat, 0), (), shape) if shape else add(flat, 0)
    return entrywise.entrywise(_ordered, flat, rank)


def _ordered(terms: Sequence[Tree], rank: int) -> Tree:
    """Diagonal matrices as one, and parts as blocks; a positive term comes first."""
    if len(terms) > 1:
        terms = blocks(_diagonals(terms))
    if len(terms) == 1:
        return terms[0]
    ordered = sorted(terms, key=order.term_order)
    first = next((term for term in ordered if not term.is_negative), ordered[0])
    ordered.remove(first)
    return Add(rank, (first, *ordered))


def _diagonals(terms: Sequence[Tree]) -> list[Tree]:
    found = [term for term in terms if _is_diagonal(term)]
    if len(found) < 2:
        return list(terms)
    one = diag(add([diagonal(term) for term in found], 1))
    return [*(term for term in terms if not _is_diagonal(term)), one]


def _is_diagonal(term: Tree) -> bool:
    return isinstance(term, Diag) or (isinstance(term, Scale) and isinstance(term.body, Diag))


# Chains of matrix products


def power(body: Tree, exponent: int) -> Tree:
    """A matrix power with integer exponent."""
    if isinstance(body, Power):
        return power(body.body, body.exponent * exponent)
    if isinstance(body, Identity) or exponent == 1:
        return body
    number = Number(sympy.Integer(exponent))
    if isinstance(body, Scale) and body.body is not None:
        scalars = [raised(scalar, number) for scalar in body.scalars]
        return scale(body.coefficient**exponent, scalars, power(body.body, exponent))
    if isinstance(body, Diag):
        return Diag(raised(body.body, number))
    return Power(body, exponent)


def matmul(*factors: Tree) -> Tree:
    """A chain of matrices, possibly starting with a row (a transposed vector) or ending with a
    column."""
    scalars: list[Tree] = []
    chain: list[Tree] = []
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        opened = _opened(factor)
        if opened is None:
            _append(chain, factor)
        else:
            scalars.append(opened[0])
            pending[:0] = opened[1]
    if len(chain) > 1:
        chain = [factor for factor in chain if not isinstance(factor, Identity)] or chain[:1]
    return scale(ONE, scalars, embedded(chain) or _closed(chain))


def _opened(factor: Tree) -> tuple[Tree, list[Tree]] | None:
    """A compound factor as a scalar and simpler factors; None for a simple one."""
    one = Number(ONE)
    match factor:
        case Matmul():
            return one, list(factor.factors)
        case Scale() if factor.body is not None:
            return Scale(factor.coefficient, factor.scalars, None), [factor.body]
        case Padded():
            return one, selections(factor)
        case Add() if all(term.is_negative for term in factor.terms):
            negative = [scale(-ONE, [], term) for term in factor.terms]
            return Number(-ONE), [add(negative, factor.rank)]
        case Spread():
            rows, columns = Ones(factor.shape[0]), Ones(factor.shape[-1])
            if factor.rank == 1:
                return factor.body, [rows]
            if not factor.along:
                return factor.body, [rows, Transpose(columns)]
            if factor.along == (0,):
                return one, [factor.body, Transpose(columns)]
            return one, [rows, Transpose(factor.body)]
        case Transpose() if is_row(factor):
            inner = _opened(factor.body)
            return None if inner is None else (inner[0], flipped(inner[1]))
    return None


def _append(chain: list[Tree], factor: Tree) -> None:
    """Append to a chain, joining neighbours."""
    joined = _neighbours(chain[-1], factor) if chain else None
    if joined is None:
        chain.append(factor)
    else:
        chain.pop()
        _append(chain, joined)


def _neighbours(left: Tree, right: Tree) -> Tree | None:
    """The product of two neighbours as one factor, where there is a way to write that."""
    if isinstance(left, Diag) and isinstance(right, Diag):
        return Diag(hadamard([left.body, right.body], 1))
    if isinstance(left, Diag) and right.rank == 1 and not is_row(right):
        return hadamard([left.body, right], 1)
    if isinstance(right, Diag) and is_row(left):
        return Transpose(hadamard([left.body, right.body], 1))
    if isinstance(left, Diag) or isinstance(right, Diag):
        return None
    if left.rank == right.rank == 2:
        (base, first), (other, second) = _as_power(left), _as_power(right)
        if base == other and first * second > 0:
            return Power(base, first + second)
    return selected(left, right)


def _as_power(tree: Tree) -> tuple[Tree, int]:
    return (tree.body, tree.exponent) if isinstance(tree, Power) else (tree, 1)


def _closed(chain: list[Tree]) -> Tree:
    """A chain as a tree."""
    if len(chain) == 1:
        return chain[0]
    if is_row(chain[0]) and chain[-1].rank == 1 and not is_row(chain[-1]):
        return _scalar(min(chain, flipped(chain), key=order.chain_order))
    return Matmul(tuple(chain))


def _scalar(chain: list[Tree]) -> Tree:
    """A chain from a row to a column, in the direction in which it is to be written."""
    row, *middle, last = chain
    assert is_row(row)
    first = row.body
    if not middle:
        return _inner(first, last)
    if isinstance(first, Ones) and isinstance(last, Ones):
        return total(matmul(*middle))
    half = len(chain) // 2
    if len(chain) % 2 == 0 and flipped(chain[half:]) == chain[:half]:
        return Raise(0, norm(matmul(*chain[half:])), Number(2 * ONE))
    return Matmul(tuple(chain))


def _inner(first: Tree, last: Tree) -> Tree:
    if isinstance(first, Ones):
        return total(last)
    if isinstance(last, Ones):
        return total(first)
    for unit, other in ((first, last), (last, first)):
        if isinstance(unit, Unit):
            return part(other, (unit.position,))
    if first == last and not isinstance(first, (Name, Indexed)):
        return Raise(0, norm(first), Number(2 * ONE))
    return Matmul((Transpose(first), last))


# Slices and entries, and products with rows of the identity


def selected(left: Tree, right: Tree) -> Tree | None:
    """Products with rows of the identity, written as slices and entries."""
    if isinstance(right, Ones) and isinstance(left, Transpose) and isinstance(left.body, Rows):
        rows = left.body
        return Unit(rows.size, rows.start) if rows.count == 1 else None
    if isinstance(left, Rows) and not is_row(right):
        if isinstance(right, Transpose) and isinstance(right.body, Rows):
            return None
        return part(right, (left.taken, None) if right.rank == 2 else (left.taken,))
    if is_row(left) and isinstance(left.body, Unit) and right.rank == 2:
        return Transpose(part(right, (left.body.position, None)))
    if isinstance(right, Unit) and left.rank == 2:
        return part(left, (None, right.position))
    if isinstance(right, Transpose) and isinstance(right.body, Rows):
        if is_row(left):
            return Transpose(part(left.body, (right.body.taken,)))
        return part(left, (None, right.body.taken)) if left.rank == 2 else None
    return None


def part(body: Tree, ranges: tuple[Range | Dimension | None, ...]) -> Tree:
    """Entries of a matrix or vector."""
    if isinstance(body, Ones) and isinstance(ranges[0], tuple):
        return Ones(ranges[0][1])
    if isinstance(body, Part):
        own = iter(ranges)
        merged = [
            next(own) if old is None or isinstance(old, tuple) else old for old in body.ranges
        ]
        kept = [old for old in body.ranges if old is None or isinstance(old, tuple)]
        if all(old is None or new is None for old, new in zip(kept, ranges, strict=True)):
            both = [
                new if new is not None else old
                for old, new in zip(body.ranges, merged, strict=True)
            ]
            return Part(body.body, tuple(both))
    if isinstance(body, Transpose) and len(ranges) == 2 and body.rank == 2:
        inner = part(body.body, ranges[::-1])
        return transpose(inner) if inner.rank == 2 else inner
    return Part(body, ranges)


@linear
def padded(body: Tree, ranges: Sequence[Range | None]) -> Tree:
    """`body` put into zeros."""
    body = _identity_in_zeros(body) or body
    if isinstance(body, Padded):
        free = all(old is None or new is None for old, new in zip(body.ranges, ranges, strict=True))
        if free:
            both = tuple(old or new for old, new in zip(body.ranges, ranges, strict=True))
            return Padded(body.body, both)
    return Padded(body, tuple(ranges))


def embedded(chain: Sequence[Tree]) -> Tree | None:
    """A chain that starts or ends with a contiguous selection, as what is put into zeros."""
    if len(chain) < 2:
        return None
    first, last = chain[0], chain[-1]
    if isinstance(first, Transpose) and isinstance(first.body, Rows) and first.body.step == 1:
        body = matmul(*chain[1:])
        return padded(body, (first.body.taken, None)[: body.rank])
    if isinstance(last, Rows) and last.step == 1:
        if len(chain) == 2 and is_row(chain[0]):
            return Transpose(padded(chain[0].body, (last.taken,)))
        body = matmul(*chain[:-1])
        return padded(body, (None, last.taken)) if body.rank == 2 else None
    return None


def selections(tree: Padded) -> list[Tree]:
    """What is put into zeros as a product with selections."""
    rows = [None if taken is None else _rows(taken) for taken in tree.ranges]
    left = [] if rows[0] is None else [Transpose(rows[0])]
    right = rows[1:] if tree.rank == 2 else []
    return [*left, tree.body, *(part for part in right if part is not None)]


def _rows(taken: Range) -> Rows:
    start, count, step, size = taken
    return Rows(count, size, start, step)


def blocks(terms: Sequence[Tree]) -> list[Tree]:
    """The terms of a sum, with those that are parts put into zeros joined as blocks, where they
    lie on a grid."""
    found = {id(term): cell for term in terms if (cell := _cell(term)) is not None}
    if len(found) < 2:
        return list(terms)
    joined = grid(list(found.values()))
    if joined is None:
        return list(terms)
    return [*(term for term in terms if id(term) not in found), joined]


def _cell(term: Tree) -> Padded | None:
    """A term as a part put into zeros."""
    match term:
        case Padded():
            return term
        case Scale(body=Tree() as body) if (cell := _cell(body)) is not None:
            return Padded(scale(term.coefficient, term.scalars, cell.body), cell.ranges)
    return _identity_in_zeros(term)


def _identity_in_zeros(term: Tree) -> Padded | None:
    match term:
        case Rows(step=1):
            return Padded(Identity(term.count), (None, term.taken))
        case Transpose(body=Rows(step=1) as rows):
            return Padded(Identity(rows.count), (rows.taken, None))
    return None


# Diagonals, sums of entries, traces and norms


@linear
def diag(vector: Tree) -> Tree:
    """The diagonal matrix of a vector."""
    if isinstance(vector, Spread):
        return scale(ONE, [vector.body], Identity(vector.shape[0]))
    return Identity(vector.size) if isinstance(vector, Ones) else Diag(vector)


@linear
def diagonal(matrix: Tree) -> Tree:
    """The diagonal of a square matrix."""
    if isinstance(matrix, Spread):
        return entrywise.spread(matrix.body, (0,) if matrix.along else (), matrix.shape[:1])
    if isinstance(matrix, Transpose):
        return diagonal(matrix.body)
    return matrix.body if isinstance(matrix, Diag) else Diagonal(matrix)


@linear
def triangle(matrix: Tree, lower: bool, offset: int) -> Tree:
    """The entries of one triangle, zeros elsewhere."""
    return Triangle(matrix, lower, offset)


@linear
def total(tree: Tree) -> Tree:
    """The sum of all entries."""
    if isinstance(tree, (Transpose, Diag)):
        return total(tree.body)
    if isinstance(tree, Raise) and tree.exponent == Number(2 * ONE) and tree.rank <= 2:
        if tree.rank == 1:
            return matmul(Transpose(tree.body), tree.body)
        return Raise(0, norm(tree.body), tree.exponent)
    if isinstance(tree, Hadamard) and len(tree.factors) == 2 and tree.rank <= 2:
        first, second = tree.factors
        if divisor(second) is None:
            return contracted(first, second)
    return Total(tree)


def contracted(first: Tree, second: Tree) -> Tree:
    """The sum of the products of the entries of two vectors or matrices."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Padded):
            return contracted(one.body, part(other, one.ranges))
    if first.rank == 1:
        return matmul(Transpose(first), second)
    return trace(matmul(transpose(first), second))


def norm(tree: Tree) -> Tree:
    """The Euclidean or Frobenius norm."""
    turned = transpose(tree) if tree.rank == 2 else tree
    return Norm(turned if turned.counts[Transpose] < tree.counts[Transpose] else tree)


@linear
def trace(matrix: Tree) -> Tree:
    """The trace, with the factors of a product turned so that it reads best."""
    match matrix:
        case Transpose():
            return trace(matrix.body)
        case Diag():
            return total(matrix.body)
        case Spread():
            return total(diagonal(matrix))
        case Matmul():
            return _trace_of_product(matrix)
        case Power(body=Transpose() as body):
            return Trace(Power(body.body, matrix.exponent))
    return Trace(matrix)


def _trace_of_product(matrix: Matmul) -> Tree:
    for position, factor in enumerate(matrix.factors):
        if is_row(factor):
            return matmul(*matrix.factors[position:], *matrix.factors[:position])
    candidates = []
    for factors in (list(matrix.factors), flipped(matrix.factors)):
        for turn in range(len(factors)):
            candidates.append(matmul(*factors[turn:], *factors[:turn]))
    best = min(candidates, key=order.trace_order)
    if (
        isinstance(best, Matmul)
        and len(best.factors) == 2
        and best.factors[0] == transpose(best.factors[1])
    ):
        return Raise(0, norm(best.factors[1]), Number(2 * ONE))
    return Trace(best) if isinstance(best, (Matmul, Power)) else trace(best)


# Transposes, pushed to the names where that leaves fewer of them


ENTRYWISE = (Add, Choice, Function, Hadamard, Logic, Positive, Raise, Relation)
"""Kinds whose entries depend on the same entries of their parts, all of them, or on scalars."""


@linear
def transpose(tree: Tree) -> Tree:
    """A matrix transposed."""
    match tree:
        case Identity() | Diag():
            return tree
        case Transpose():
            return tree.body
        case Matmul():
            return matmul(*flipped(tree.factors))
        case Power():
            return Power(transpose(tree.body), tree.exponent)
        case Spread():
            along = sorted(1 - axis for axis in tree.along)
            return entrywise.spread(tree.body, along, tree.shape[::-1])
        case Zeros():
            return Zeros(tree.shape[::-1])
        case Triangle():
            return Triangle(transpose(tree.body), not tree.lower, -tree.offset)
        case Over():
            return Over(tree.over, transpose(tree.body), tree.sizes)
        case Padded():
            return padded(transpose(tree.body), tree.ranges[::-1])
        case Block():
            return _block(tree)
        case Kronecker():
            return Kronecker(transpose(tree.left), transpose(tree.right))
        case Rows() if tree.step == -1 and tree.count == tree.size:
            return tree
    if getattr(tree, "symmetric", False):
        return tree
    last = isinstance(tree, Indexed) and tree.indices[-2:] == (None, None)
    if isinstance(tree, Indexed) and last and getattr(tree.body, "symmetric", False):
        return tree
    pushed = _pushed(tree)
    return pushed if pushed is not None else Transpose(tree)


def _block(tree: Block) -> Block:
    cells = [Padded(transpose(cell.body), cell.ranges[::-1]) for cell in tree.cells]
    rows = [tuple(map(transpose, column)) for column in zip(*tree.rows, strict=True)]
    return Block(2, tuple(rows), tuple(cells))


def _pushed(tree: Tree) -> Tree | None:
    """The transpose taken inside, where that leaves no more transposes than one outside."""
    if not isinstance(tree, ENTRYWISE):
        return None
    result = _normal(mapped(tree, _turned))
    few = result.counts[Transpose] <= 1 + tree.counts[Transpose]
    return result if few and result.rank == 2 else None


def _normal(tree: Tree) -> Tree:
    """The normal form of what works entry by entry, its parts matrices or scalars."""
    match tree:
        case Add():
            return add(tree.terms, 2)
        case Hadamard():
            return hadamard(tree.factors, 2)
        case Raise():
            return raised(tree.body, tree.exponent)
        case Function():
            return entrywise.function(tree.function, tree.arguments)
    return tree


def _turned(tree: Tree) -> Tree:
    return transpose(tree) if tree.rank == 2 else tree


def _flip(factor: Tree) -> Tree:
    if is_row(factor):
        return factor.body
    return Transpose(factor) if factor.rank == 1 else transpose(factor)


def flipped(factors: Sequence[Tree]) -> list[Tree]:
    """The factors of a product's transpose."""
    return [_flip(factor) for factor in reversed(factors)]
