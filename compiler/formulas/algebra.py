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
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.layout import grid
from derivatrix.compiler.formulas.rewrite import mapped
from derivatrix.compiler.formulas.tree import Range, Tree, divisor, is_row
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
        if isinstance(tree, kinds.Scale) and tree.body is not None:
            return scale(tree.coefficient, tree.scalars, made(tree.body, *args, **kwargs))
        return build(tree, *args, **kwargs)

    return made


# Scalars stand in front, equal ones as powers


def scale(coefficient: sympy.Expr, scalars: Iterable[Tree], body: Tree | None = None) -> Tree:
    """coefficient * product of scalar trees * body."""
    pending = list(scalars)
    if isinstance(body, kinds.Spread):
        return entrywise.spread(scale(coefficient, pending, body.body), body.along, body.shape)
    if isinstance(body, kinds.Zeros):
        return body
    if body is not None and body.rank == 0:
        pending.append(body)
        body = None
    powers: dict[Tree, sympy.Expr] = {}
    while pending or isinstance(body, kinds.Scale):
        if isinstance(body, kinds.Scale):
            factor: Tree = kinds.Scale(body.coefficient, body.scalars, None)
            body = body.body
        else:
            factor = pending.pop(0)
        if isinstance(factor, kinds.Scale):
            coefficient *= factor.coefficient
            pending[:0] = factor.scalars
        elif isinstance(factor, kinds.Number) and (
            factor.value.is_Rational or factor.value.is_Float
        ):
            coefficient *= factor.value
        else:
            multiply_in(powers, factor)
    return _with_scalars(coefficient, powers, body)


def _with_scalars(
    coefficient: sympy.Expr, powers: dict[Tree, sympy.Expr], body: Tree | None
) -> Tree:
    if coefficient.is_Float and float(coefficient).is_integer():
        coefficient = sympy.Integer(int(float(coefficient)))  # it may be a digit below
    kept = [raised(base, kinds.Number(exponent)) for base, exponent in powers.items()]
    kept.sort(key=order.scalar_order)
    if body is None and not kept:
        return kinds.Number(coefficient)
    if coefficient == 1 and not kept and body is not None:
        return body
    if coefficient == 1 and body is None and len(kept) == 1:
        return kept[0]
    return kinds.Scale(coefficient, tuple(kept), body)


def multiply_in(powers: dict[Tree, sympy.Expr], factor: Tree) -> None:
    """Collect equal factors, as numeric powers."""
    base, exponent = factor, ONE
    if isinstance(factor, kinds.Raise) and isinstance(factor.exponent, kinds.Number):
        base, exponent = factor.body, factor.exponent.value
    powers[base] = powers.get(base, sympy.S.Zero) + exponent
    if powers[base] == 0:
        del powers[base]


# Products and powers entry by entry


def hadamard(factors: Sequence[Tree]) -> Tree:
    """The product, entry by entry, of trees of one rank and scalars."""
    return entrywise.entrywise(_multiplied, factors)


def _multiplied(factors: Sequence[Tree], rank: int) -> Tree:
    scalars: list[Tree] = []
    powers: dict[Tree, sympy.Expr] = {}
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        if factor.rank == 0:
            scalars.append(factor)
        elif isinstance(factor, kinds.Scale) and factor.body is not None:
            scalars.append(kinds.Scale(factor.coefficient, factor.scalars, None))
            pending.insert(0, factor.body)
        elif isinstance(factor, kinds.Hadamard):
            pending[:0] = factor.factors
        elif (
            isinstance(factor, kinds.Spread)
            and isinstance(factor.body, kinds.Scale)
            and factor.body.body
        ):
            inner = factor.body
            scalars.append(kinds.Scale(inner.coefficient, inner.scalars, None))
            pending.insert(0, kinds.Spread(factor.body.body, factor.along, factor.shape))
        elif isinstance(factor, kinds.Zeros):
            return factor
        else:
            multiply_in(powers, factor)
    arrays = [raised(base, kinds.Number(exponent)) for base, exponent in powers.items()]
    return scale(ONE, scalars, _masked(arrays, rank))


def _masked(arrays: list[Tree], rank: int) -> Tree | None:
    """The product of arrays; the mask of a triangle takes that triangle."""
    for mask in arrays:
        base = mask.body if isinstance(mask, kinds.Transpose) else mask
        upper = base is not mask
        if isinstance(base, kinds.Mask) and len(arrays) > 1:
            rest = _masked([array for array in arrays if array is not mask], rank)
            assert rest is not None
            return kinds.Triangle(rest, not upper, base.offset if upper else -base.offset)
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    return kinds.Hadamard(rank, tuple(sorted(arrays, key=order.factor_order)))


def raised(body: Tree, exponent: Tree) -> Tree:
    """A power entry by entry, or of a scalar."""
    return entrywise.entrywise(
        lambda parts, rank: _raised(parts[0], parts[1], rank), (body, exponent)
    )


def _raised(body: Tree, exponent: Tree, rank: int) -> Tree:
    if not isinstance(exponent, kinds.Number):
        return kinds.Raise(rank, body, exponent)
    value = exponent.value
    if value.is_Float and float(2 * value).is_integer():
        value = sympy.Rational(int(float(2 * value)), 2)  # as above
        exponent = kinds.Number(value)
    if value == 1:
        return body
    if isinstance(body, kinds.Number) and (body.value**value).is_Rational:
        return kinds.Number(body.value**value)
    if (
        value.is_Integer
        and isinstance(body, kinds.Raise)
        and isinstance(body.exponent, kinds.Number)
    ):
        return _raised(body.body, kinds.Number(body.exponent.value * value), rank)
    if value.is_Integer and isinstance(body, kinds.Scale):
        scalars = [raised(scalar, exponent) for scalar in body.scalars]
        inner = None if body.body is None else raised(body.body, exponent)
        return scale(body.coefficient**value, scalars, inner)
    root = _square_root(body) if (2 * value).is_Integer and not value.is_Integer else None
    if root is not None:
        return _raised(root, kinds.Number(2 * value), rank)
    return kinds.Raise(rank, body, exponent)


def _square_root(tree: Tree) -> Tree | None:
    """The norm whose square `tree` is."""
    if (
        isinstance(tree, kinds.Raise)
        and isinstance(tree.body, kinds.Norm)
        and tree.exponent == kinds.Number(2 * ONE)
    ):
        return tree.body
    if isinstance(tree, kinds.Matmul) and len(tree.factors) == 2:
        row, column = tree.factors
        if is_row(row) and row.body == column:
            return norm(column)
    return None


# Sums, with the terms in the order of writing


def add(terms: Sequence[Tree], shape: Shape = ()) -> Tree:
    """The sum of terms of one rank and scalars. shape: that of the sum, where the terms may be none
    or scalars only."""
    flat: list[Tree] = []
    for term in terms:
        flat += term.terms if isinstance(term, kinds.Add) else (term,)
    flat = [t for t in flat if not isinstance(t, kinds.Zeros) and t != kinds.Number(sympy.S.Zero)]
    if not flat:
        return kinds.Zeros(shape) if shape else kinds.Number(sympy.S.Zero)
    total = entrywise.entrywise(_ordered, flat)
    return total if total.rank else entrywise.spread(total, (), shape)


def _ordered(terms: Sequence[Tree], rank: int) -> Tree:
    """Diagonal matrices as one, and parts as blocks; a positive term comes first."""
    if len(terms) > 1:
        terms = blocks(_diagonals(terms))
    if len(terms) == 1:
        return terms[0]
    ordered = sorted(terms, key=order.term_order)
    first = next((term for term in ordered if not term.is_negative), ordered[0])
    ordered.remove(first)
    return kinds.Add(rank, (first, *ordered))


def _diagonals(terms: Sequence[Tree]) -> list[Tree]:
    found = [term for term in terms if _is_diagonal(term)]
    if len(found) < 2:
        return list(terms)
    one = diag(add([diagonal(term) for term in found]))
    return [*(term for term in terms if not _is_diagonal(term)), one]


def _is_diagonal(term: Tree) -> bool:
    return isinstance(term, kinds.Diag) or (
        isinstance(term, kinds.Scale) and isinstance(term.body, kinds.Diag)
    )


# Chains of matrix products


def power(body: Tree, exponent: int, symmetric: bool = False) -> Tree:
    """A matrix power with integer exponent; symmetric: whether the matrix is known to be."""
    if isinstance(body, kinds.Power):
        return power(body.body, body.exponent * exponent, symmetric or body.symmetric)
    if isinstance(body, kinds.Identity) or exponent == 1:
        return body
    number = kinds.Number(sympy.Integer(exponent))
    if isinstance(body, kinds.Scale) and body.body is not None:
        scalars = [raised(scalar, number) for scalar in body.scalars]
        return scale(body.coefficient**exponent, scalars, power(body.body, exponent, symmetric))
    if isinstance(body, kinds.Diag):
        return kinds.Diag(raised(body.body, number))
    return kinds.Power(body, exponent, symmetric)


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
        chain = [factor for factor in chain if not isinstance(factor, kinds.Identity)] or chain[:1]
    return scale(ONE, scalars, embedded(chain) or _closed(chain))


def _opened(factor: Tree) -> tuple[Tree, list[Tree]] | None:
    """A compound factor as a scalar and simpler factors; None for a simple one."""
    one = kinds.Number(ONE)
    match factor:
        case kinds.Matmul():
            return one, list(factor.factors)
        case kinds.Scale() if factor.body is not None:
            return kinds.Scale(factor.coefficient, factor.scalars, None), [factor.body]
        case kinds.Padded():
            return one, selections(factor)
        case kinds.Add() if all(term.is_negative for term in factor.terms):
            negative = [scale(-ONE, [], term) for term in factor.terms]
            return kinds.Number(-ONE), [add(negative)]
        case kinds.Spread():
            rows, columns = kinds.Ones(factor.shape[0]), kinds.Ones(factor.shape[-1])
            if factor.rank == 1:
                return factor.body, [rows]
            if not factor.along:
                return factor.body, [rows, kinds.Transpose(columns)]
            if factor.along == (0,):
                return one, [factor.body, kinds.Transpose(columns)]
            return one, [rows, kinds.Transpose(factor.body)]
        case kinds.Transpose() if is_row(factor):
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
    if isinstance(left, kinds.Diag) and isinstance(right, kinds.Diag):
        return kinds.Diag(hadamard([left.body, right.body]))
    if isinstance(left, kinds.Diag) and right.rank == 1 and not is_row(right):
        return hadamard([left.body, right])
    if isinstance(right, kinds.Diag) and is_row(left):
        return kinds.Transpose(hadamard([left.body, right.body]))
    if isinstance(left, kinds.Diag) or isinstance(right, kinds.Diag):
        return None
    if left.rank == right.rank == 2:
        (base, first), (other, second) = _as_power(left), _as_power(right)
        if base == other and first * second > 0:
            powers = [side for side in (left, right) if isinstance(side, kinds.Power)]
            return kinds.Power(base, first + second, any(side.symmetric for side in powers))
    return selected(left, right)


def _as_power(tree: Tree) -> tuple[Tree, int]:
    return (tree.body, tree.exponent) if isinstance(tree, kinds.Power) else (tree, 1)


def _closed(chain: list[Tree]) -> Tree:
    """A chain as a tree."""
    if len(chain) == 1:
        return chain[0]
    if is_row(chain[0]) and chain[-1].rank == 1 and not is_row(chain[-1]):
        return _scalar(min(chain, flipped(chain), key=order.chain_order))
    return kinds.Matmul(tuple(chain))


def _scalar(chain: list[Tree]) -> Tree:
    """A chain from a row to a column, in the direction in which it is to be written."""
    row, *middle, last = chain
    assert is_row(row)
    first = row.body
    if not middle:
        return _inner(first, last)
    if isinstance(first, kinds.Ones) and isinstance(last, kinds.Ones):
        return total(matmul(*middle))
    half = len(chain) // 2
    if len(chain) % 2 == 0 and flipped(chain[half:]) == chain[:half]:
        return kinds.Raise(0, norm(matmul(*chain[half:])), kinds.Number(2 * ONE))
    return kinds.Matmul(tuple(chain))


def _inner(first: Tree, last: Tree) -> Tree:
    if isinstance(first, kinds.Ones):
        return total(last)
    if isinstance(last, kinds.Ones):
        return total(first)
    for unit, other in ((first, last), (last, first)):
        if isinstance(unit, kinds.Unit):
            return part(other, (unit.position,))
    if first == last and not isinstance(first, (kinds.Name, kinds.Indexed)):
        return kinds.Raise(0, norm(first), kinds.Number(2 * ONE))
    return kinds.Matmul((kinds.Transpose(first), last))


# Slices and entries, and products with rows of the identity


def selected(left: Tree, right: Tree) -> Tree | None:
    """Products with rows of the identity, written as slices and entries."""
    if (
        isinstance(right, kinds.Ones)
        and isinstance(left, kinds.Transpose)
        and isinstance(left.body, kinds.Rows)
    ):
        rows = left.body
        return kinds.Unit(rows.size, rows.start) if rows.count == 1 else None
    if isinstance(left, kinds.Rows) and not is_row(right):
        if isinstance(right, kinds.Transpose) and isinstance(right.body, kinds.Rows):
            return None
        return part(right, (left.taken, None) if right.rank == 2 else (left.taken,))
    if is_row(left) and isinstance(left.body, kinds.Unit) and right.rank == 2:
        return kinds.Transpose(part(right, (left.body.position, None)))
    if isinstance(right, kinds.Unit) and left.rank == 2:
        return part(left, (None, right.position))
    if isinstance(right, kinds.Transpose) and isinstance(right.body, kinds.Rows):
        if is_row(left):
            return kinds.Transpose(part(left.body, (right.body.taken,)))
        return part(left, (None, right.body.taken)) if left.rank == 2 else None
    return None


def part(body: Tree, ranges: tuple[Range | Dimension | None, ...]) -> Tree:
    """Entries of a matrix or vector."""
    if isinstance(body, kinds.Ones) and isinstance(ranges[0], tuple):
        return kinds.Ones(ranges[0][1])
    if isinstance(body, kinds.Part):
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
            return kinds.Part(body.body, tuple(both))
    if isinstance(body, kinds.Transpose) and len(ranges) == 2 and body.rank == 2:
        inner = part(body.body, ranges[::-1])
        return transpose(inner) if inner.rank == 2 else inner
    return kinds.Part(body, ranges)


@linear
def padded(body: Tree, ranges: Sequence[Range | None]) -> Tree:
    """`body` put into zeros."""
    body = _identity_in_zeros(body) or body
    if isinstance(body, kinds.Padded):
        free = all(old is None or new is None for old, new in zip(body.ranges, ranges, strict=True))
        if free:
            both = tuple(old or new for old, new in zip(body.ranges, ranges, strict=True))
            return kinds.Padded(body.body, both)
    return kinds.Padded(body, tuple(ranges))


def embedded(chain: Sequence[Tree]) -> Tree | None:
    """A chain that starts or ends with a contiguous selection, as what is put into zeros."""
    if len(chain) < 2:
        return None
    first, last = chain[0], chain[-1]
    if (
        isinstance(first, kinds.Transpose)
        and isinstance(first.body, kinds.Rows)
        and first.body.step == 1
    ):
        body = matmul(*chain[1:])
        return padded(body, (first.body.taken, None)[: body.rank])
    if isinstance(last, kinds.Rows) and last.step == 1:
        if len(chain) == 2 and is_row(chain[0]):
            return kinds.Transpose(padded(chain[0].body, (last.taken,)))
        body = matmul(*chain[:-1])
        return padded(body, (None, last.taken)) if body.rank == 2 else None
    return None


def selections(tree: kinds.Padded) -> list[Tree]:
    """What is put into zeros as a product with selections."""
    rows = [None if taken is None else _rows(taken) for taken in tree.ranges]
    left = [] if rows[0] is None else [kinds.Transpose(rows[0])]
    right = rows[1:] if tree.rank == 2 else []
    return [*left, tree.body, *(part for part in right if part is not None)]


def _rows(taken: Range) -> kinds.Rows:
    start, count, step, size = taken
    return kinds.Rows(count, size, start, step)


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


def _cell(term: Tree) -> kinds.Padded | None:
    """A term as a part put into zeros."""
    match term:
        case kinds.Padded():
            return term
        case kinds.Scale(body=Tree() as body) if (cell := _cell(body)) is not None:
            return kinds.Padded(scale(term.coefficient, term.scalars, cell.body), cell.ranges)
    return _identity_in_zeros(term)


def _identity_in_zeros(term: Tree) -> kinds.Padded | None:
    match term:
        case kinds.Rows(step=1):
            return kinds.Padded(kinds.Identity(term.count), (None, term.taken))
        case kinds.Transpose(body=kinds.Rows(step=1) as rows):
            return kinds.Padded(kinds.Identity(rows.count), (rows.taken, None))
    return None


# Diagonals, sums of entries, traces and norms


@linear
def diag(vector: Tree) -> Tree:
    """The diagonal matrix of a vector."""
    if isinstance(vector, kinds.Spread):
        return scale(ONE, [vector.body], kinds.Identity(vector.shape[0]))
    return kinds.Identity(vector.size) if isinstance(vector, kinds.Ones) else kinds.Diag(vector)


@linear
def diagonal(matrix: Tree) -> Tree:
    """The diagonal of a square matrix."""
    if isinstance(matrix, kinds.Spread):
        return entrywise.spread(matrix.body, (0,) if matrix.along else (), matrix.shape[:1])
    if isinstance(matrix, kinds.Transpose):
        return diagonal(matrix.body)
    return matrix.body if isinstance(matrix, kinds.Diag) else kinds.Diagonal(matrix)


@linear
def triangle(matrix: Tree, lower: bool, offset: int) -> Tree:
    """The entries of one triangle, zeros elsewhere."""
    return kinds.Triangle(matrix, lower, offset)


@linear
def total(tree: Tree) -> Tree:
    """The sum of all entries."""
    if isinstance(tree, (kinds.Transpose, kinds.Diag)):
        return total(tree.body)
    if isinstance(tree, kinds.Raise) and tree.exponent == kinds.Number(2 * ONE) and tree.rank <= 2:
        if tree.rank == 1:
            return matmul(kinds.Transpose(tree.body), tree.body)
        return kinds.Raise(0, norm(tree.body), tree.exponent)
    if isinstance(tree, kinds.Hadamard) and len(tree.factors) == 2 and tree.rank <= 2:
        first, second = tree.factors
        if divisor(second) is None:
            return contracted(first, second)
    return kinds.Total(tree)


def contracted(first: Tree, second: Tree) -> Tree:
    """The sum of the products of the entries of two vectors or matrices."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, kinds.Padded):
            return contracted(one.body, part(other, one.ranges))
    if first.rank == 1:
        return matmul(kinds.Transpose(first), second)
    return trace(matmul(transpose(first), second))


def norm(tree: Tree) -> Tree:
    """The Euclidean or Frobenius norm."""
    turned = transpose(tree) if tree.rank == 2 else tree
    return kinds.Norm(
        turned if turned.counts[kinds.Transpose] < tree.counts[kinds.Transpose] else tree
    )


@linear
def trace(matrix: Tree) -> Tree:
    """The trace, with the factors of a product turned so that it reads best."""
    match matrix:
        case kinds.Transpose():
            return trace(matrix.body)
        case kinds.Diag():
            return total(matrix.body)
        case kinds.Spread():
            return total(diagonal(matrix))
        case kinds.Matmul():
            return _trace_of_product(matrix)
        case kinds.Power(body=kinds.Transpose() as body):
            return kinds.Trace(kinds.Power(body.body, matrix.exponent))
    return kinds.Trace(matrix)


def _trace_of_product(matrix: kinds.Matmul) -> Tree:
    for position, factor in enumerate(matrix.factors):
        if is_row(factor):
            return matmul(*matrix.factors[position:], *matrix.factors[:position])
    candidates = []
    for factors in (list(matrix.factors), flipped(matrix.factors)):
        for turn in range(len(factors)):
            candidates.append(matmul(*factors[turn:], *factors[:turn]))
    best = min(candidates, key=order.trace_order)
    if (
        isinstance(best, kinds.Matmul)
        and len(best.factors) == 2
        and best.factors[0] == transpose(best.factors[1])
    ):
        return kinds.Raise(0, norm(best.factors[1]), kinds.Number(2 * ONE))
    return kinds.Trace(best) if isinstance(best, (kinds.Matmul, kinds.Power)) else trace(best)


# Transposes, pushed to the names where that leaves fewer of them


ENTRYWISE = (
    kinds.Add,
    kinds.Choice,
    kinds.Function,
    kinds.Hadamard,
    kinds.Logic,
    kinds.Positive,
    kinds.Raise,
    kinds.Relation,
)
"""Kinds whose entries depend on the same entries of their parts, all of them, or on scalars."""


@linear
def transpose(tree: Tree) -> Tree:
    """A matrix transposed."""
    match tree:
        case kinds.Identity() | kinds.Diag():
            return tree
        case kinds.Transpose():
            return tree.body
        case kinds.Matmul():
            return matmul(*flipped(tree.factors))
        case kinds.Power():
            return tree if tree.symmetric else kinds.Power(transpose(tree.body), tree.exponent)
        case kinds.Spread():
            along = sorted(1 - axis for axis in tree.along)
            return entrywise.spread(tree.body, along, tree.shape[::-1])
        case kinds.Zeros():
            return kinds.Zeros(tree.shape[::-1])
        case kinds.Triangle():
            return kinds.Triangle(transpose(tree.body), not tree.lower, -tree.offset)
        case kinds.Over():
            return kinds.Over(tree.over, transpose(tree.body), tree.sizes)
        case kinds.Padded():
            return padded(transpose(tree.body), tree.ranges[::-1])
        case kinds.Block():
            return _block(tree)
        case kinds.Kronecker():
            return kinds.Kronecker(transpose(tree.left), transpose(tree.right))
        case kinds.Rows() if tree.step == -1 and tree.count == tree.size:
            return tree
    if getattr(tree, "symmetric", False):
        return tree
    last = isinstance(tree, kinds.Indexed) and tree.indices[-2:] == (None, None)
    if isinstance(tree, kinds.Indexed) and last and getattr(tree.body, "symmetric", False):
        return tree
    pushed = _pushed(tree)
    return pushed if pushed is not None else kinds.Transpose(tree)


def _block(tree: kinds.Block) -> kinds.Block:
    cells = [kinds.Padded(transpose(cell.body), cell.ranges[::-1]) for cell in tree.cells]
    rows = [tuple(map(transpose, column)) for column in zip(*tree.rows, strict=True)]
    return kinds.Block(2, tuple(rows), tuple(cells))


def _pushed(tree: Tree) -> Tree | None:
    """The transpose taken inside, where that leaves no more transposes than one outside."""
    if not isinstance(tree, ENTRYWISE):
        return None
    result = _normal(mapped(tree, _turned))
    few = result.counts[kinds.Transpose] <= 1 + tree.counts[kinds.Transpose]
    return result if few and result.rank == 2 else None


def _normal(tree: Tree) -> Tree:
    """The normal form of what works entry by entry, its parts matrices or scalars."""
    match tree:
        case kinds.Add():
            return add(tree.terms)
        case kinds.Hadamard():
            return hadamard(tree.factors)
        case kinds.Raise():
            return raised(tree.body, tree.exponent)
        case kinds.Function():
            return entrywise.function(tree.function, tree.arguments)
    return tree


def _turned(tree: Tree) -> Tree:
    return transpose(tree) if tree.rank == 2 else tree


def _flip(factor: Tree) -> Tree:
    if is_row(factor):
        return factor.body
    return kinds.Transpose(factor) if factor.rank == 1 else transpose(factor)


def flipped(factors: Sequence[Tree]) -> list[Tree]:
    """The factors of a product's transpose."""
    return [_flip(factor) for factor in reversed(factors)]
