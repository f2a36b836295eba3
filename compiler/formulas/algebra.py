"""Constructors of trees in normal form, one a kind, which rewrite as a writer would.

Scalars are moved to the front, transposes are pushed to names where that leaves fewer of them,
equal neighbours become powers, and broadcasting (`Spread`) is moved out of entrywise operations.
The constructors call each other: a product of sums is a sum whose terms are products.
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
    """Make a constructor that is linear in its first argument move the scalars in front of this to
    the front of the result."""

    @wraps(build)
    def constructor(tree: Tree, /, *args: P.args, **kwargs: P.kwargs) -> Tree:
        if isinstance(tree, kinds.Scale) and tree.body is not None:
            return scale(tree.coefficient, tree.scalars, constructor(tree.body, *args, **kwargs))
        return build(tree, *args, **kwargs)

    return constructor


# Scalars, moved to the front, equal ones as powers


def scale(coefficient: sympy.Expr, scalars: Iterable[Tree], body: Tree | None = None) -> Tree:
    """Multiply coefficient * product of scalar trees * body."""
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
    if coefficient.is_Float and float(coefficient).is_integer():
        # SymPy's number may differ from the integer in its last digit.
        coefficient = sympy.Integer(int(float(coefficient)))
    factors = [raised(base, kinds.Number(exponent)) for base, exponent in powers.items()]
    factors.sort(key=order.scalar_order)
    if body is None and not factors:
        return kinds.Number(coefficient)
    if coefficient == 1 and not factors and body is not None:
        return body
    if coefficient == 1 and body is None and len(factors) == 1:
        return factors[0]
    return kinds.Scale(coefficient, tuple(factors), body)


def negative(tree: Tree) -> Tree:
    """Negate a tree, a sum term by term."""
    terms = tree.terms if isinstance(tree, kinds.Add) else (tree,)
    return add([scale(-ONE, [], term) for term in terms])


def multiply_in(powers: dict[Tree, sympy.Expr], factor: Tree) -> None:
    """Multiply a product, given as the exponent of each base, by `factor`."""
    base, exponent = factor, ONE
    if isinstance(factor, kinds.Raise) and isinstance(factor.exponent, kinds.Number):
        base, exponent = factor.body, factor.exponent.value
    powers[base] = powers.get(base, sympy.S.Zero) + exponent
    if powers[base] == 0:
        del powers[base]


# Products and powers entry by entry


def hadamard(factors: Sequence[Tree]) -> Tree:
    """Multiply trees of one rank and scalars entry by entry."""
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
    """Multiply arrays; a product with the mask of a triangle is that triangle."""
    for mask in arrays:
        base = mask.body if isinstance(mask, kinds.Transpose) else mask
        is_upper = base is not mask
        if isinstance(base, kinds.Mask) and len(arrays) > 1:
            product = _masked([array for array in arrays if array is not mask], rank)
            assert product is not None
            offset = base.offset if is_upper else -base.offset
            return kinds.Triangle(product, not is_upper, offset)
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    return kinds.Hadamard(rank, tuple(sorted(arrays, key=order.factor_order)))


def raised(body: Tree, exponent: Tree) -> Tree:
    """Raise a scalar, or each entry of an array, to a power."""
    return entrywise.entrywise(
        lambda parts, rank: _raised(parts[0], parts[1], rank), (body, exponent)
    )


def _raised(body: Tree, exponent: Tree, rank: int) -> Tree:
    if not isinstance(exponent, kinds.Number):
        return kinds.Raise(rank, body, exponent)
    value = exponent.value
    if value.is_Float and float(2 * value).is_integer():
        value = sympy.Rational(int(float(2 * value)), 2)  # see `scale`
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
    """Return the norm whose square `tree` is; None if it is not one."""
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
    """Add terms of one rank and scalars. shape: that of the sum, if there may be no terms, or only
    scalars."""
    flat: list[Tree] = []
    for term in terms:
        flat += term.terms if isinstance(term, kinds.Add) else (term,)
    flat = [t for t in flat if not isinstance(t, kinds.Zeros) and t != kinds.Number(sympy.S.Zero)]
    if not flat:
        return kinds.Zeros(shape) if shape else kinds.Number(sympy.S.Zero)
    total = entrywise.entrywise(_ordered, flat)
    return total if total.rank else entrywise.spread(total, (), shape)


def _ordered(terms: Sequence[Tree], rank: int) -> Tree:
    """Add the terms in their order: a positive one first. Diagonal matrices are joined, and parts
    put into zeros become blocks."""
    if len(terms) > 1:
        terms = blocks(_join_diagonals(terms))
    if len(terms) == 1:
        return terms[0]
    ordered = sorted(terms, key=order.term_order)
    leading = next((term for term in ordered if not term.is_negative), ordered[0])
    ordered.remove(leading)
    return kinds.Add(rank, (leading, *ordered))


def _join_diagonals(terms: Sequence[Tree]) -> list[Tree]:
    diagonals = [diagonal(term) for term in terms if _is_diagonal(term)]
    if len(diagonals) < 2:
        return list(terms)
    return [*(term for term in terms if not _is_diagonal(term)), diag(add(diagonals))]


def _is_diagonal(term: Tree) -> bool:
    return isinstance(term, kinds.Diag) or (
        isinstance(term, kinds.Scale) and isinstance(term.body, kinds.Diag)
    )


# Chains of matrix products


def power(body: Tree, exponent: int, symmetric: bool = False) -> Tree:
    """Raise a matrix to an integer power; symmetric: the matrix is known to be symmetric."""
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
    """Multiply a chain of matrices, which may start with a row (a transposed vector) or end with a
    column."""
    scalars: list[Tree] = []
    chain: list[Tree] = []
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        parts = _split_factor(factor)
        if parts is None:
            _append(chain, factor)
        else:
            scalars.append(parts[0])
            pending[:0] = parts[1]
    if len(chain) > 1:  # of identities alone, one is left
        chain = [factor for factor in chain if not isinstance(factor, kinds.Identity)] or chain[:1]
    return scale(ONE, scalars, embedded(chain) or _chain_product(chain))


def _split_factor(factor: Tree) -> tuple[Tree, list[Tree]] | None:
    """Split a compound factor into a scalar and simpler factors; None for a simple one."""
    one = kinds.Number(ONE)
    match factor:
        case kinds.Matmul():
            return one, list(factor.factors)
        case kinds.Scale() if factor.body is not None:
            return kinds.Scale(factor.coefficient, factor.scalars, None), [factor.body]
        case kinds.Padded():
            return one, selections(factor)
        case kinds.Add() if all(term.is_negative for term in factor.terms):
            return kinds.Number(-ONE), [negative(factor)]
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
            inner = _split_factor(factor.body)
            return None if inner is None else (inner[0], flipped(inner[1]))
    return None


def _append(chain: list[Tree], factor: Tree) -> None:
    """Append `factor` to a chain; join it with the last factor if possible."""
    product = _product_of_neighbours(chain[-1], factor) if chain else None
    if product is None:
        chain.append(factor)
    else:  # which may be joined with the factor before it, in turn
        chain.pop()
        _append(chain, product)


def _product_of_neighbours(left: Tree, right: Tree) -> Tree | None:
    """Multiply two neighbours if the result is one factor; else None."""
    if isinstance(left, kinds.Diag) and isinstance(right, kinds.Diag):
        return kinds.Diag(hadamard([left.body, right.body]))
    if isinstance(left, kinds.Diag) and right.rank == 1 and not is_row(right):
        return hadamard([left.body, right])
    if isinstance(right, kinds.Diag) and is_row(left):
        return kinds.Transpose(hadamard([left.body, right.body]))
    if isinstance(left, kinds.Diag) or isinstance(right, kinds.Diag):
        return None
    if left.rank == right.rank == 2:
        (base, exponent), (right_base, right_exponent) = _as_power(left), _as_power(right)
        if base == right_base and exponent * right_exponent > 0:
            powers = [side for side in (left, right) if isinstance(side, kinds.Power)]
            symmetric = any(side.symmetric for side in powers)
            return kinds.Power(base, exponent + right_exponent, symmetric)
    return selected(left, right)


def _as_power(tree: Tree) -> tuple[Tree, int]:
    return (tree.body, tree.exponent) if isinstance(tree, kinds.Power) else (tree, 1)


def _chain_product(chain: list[Tree]) -> Tree:
    """Build the product of a chain whose neighbours are joined."""
    if len(chain) == 1:
        return chain[0]
    if is_row(chain[0]) and chain[-1].rank == 1 and not is_row(chain[-1]):
        return _scalar_product(min(chain, flipped(chain), key=order.chain_order))
    return kinds.Matmul(tuple(chain))


def _scalar_product(chain: list[Tree]) -> Tree:
    """Build the product of a chain from a row to a column, which is not to be flipped."""
    row, *middle, column = chain
    assert is_row(row)
    left = row.body
    if not middle:
        return _inner_product(left, column)
    if isinstance(left, kinds.Ones) and isinstance(column, kinds.Ones):
        return total(matmul(*middle))
    half = len(chain) // 2
    if len(chain) % 2 == 0 and flipped(chain[half:]) == chain[:half]:
        return kinds.Raise(0, norm(matmul(*chain[half:])), kinds.Number(2 * ONE))
    return kinds.Matmul(tuple(chain))


def _inner_product(left: Tree, right: Tree) -> Tree:
    for special, vector in ((left, right), (right, left)):
        if isinstance(special, kinds.Ones):
            return total(vector)
    for special, vector in ((left, right), (right, left)):
        if isinstance(special, kinds.Unit):
            return part(vector, (special.position,))
    if left == right and not isinstance(left, (kinds.Name, kinds.Indexed)):
        return kinds.Raise(0, norm(left), kinds.Number(2 * ONE))
    return kinds.Matmul((kinds.Transpose(left), right))


# Slices and entries, and products with rows of the identity


def selected(left: Tree, right: Tree) -> Tree | None:
    """Write a product with rows of the identity as a slice or entry; None for other products."""
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
        return part(right, (left.range, None) if right.rank == 2 else (left.range,))
    if is_row(left) and isinstance(left.body, kinds.Unit) and right.rank == 2:
        return kinds.Transpose(part(right, (left.body.position, None)))
    if isinstance(right, kinds.Unit) and left.rank == 2:
        return part(left, (None, right.position))
    if isinstance(right, kinds.Transpose) and isinstance(right.body, kinds.Rows):
        if is_row(left):
            return kinds.Transpose(part(left.body, (right.body.range,)))
        return part(left, (None, right.body.range)) if left.rank == 2 else None
    return None


def part(body: Tree, ranges: tuple[Range | Dimension | None, ...]) -> Tree:
    """Take entries of a matrix or vector; a part of a part is one part where axes differ."""
    if isinstance(body, kinds.Ones) and isinstance(ranges[0], tuple):
        return kinds.Ones(ranges[0][1])
    if isinstance(body, kinds.Part):
        is_axis = [inner is None or isinstance(inner, tuple) for inner in body.ranges]
        axis_ranges = [
            inner for inner, has_axis in zip(body.ranges, is_axis, strict=True) if has_axis
        ]
        pairs = zip(axis_ranges, ranges, strict=True)
        if all(inner is None or outer is None for inner, outer in pairs):
            outer_ranges = iter(ranges)
            merged = []
            for inner, has_axis in zip(body.ranges, is_axis, strict=True):
                outer = next(outer_ranges) if has_axis else None
                merged.append(inner if outer is None else outer)
            return kinds.Part(body.body, tuple(merged))
    if isinstance(body, kinds.Transpose) and len(ranges) == 2 and body.rank == 2:
        inner = part(body.body, ranges[::-1])
        return transpose(inner) if inner.rank == 2 else inner
    return kinds.Part(body, ranges)


@linear
def padded(body: Tree, ranges: Sequence[Range | None]) -> Tree:
    """Put `body` into zeros."""
    body = _identity_in_zeros(body) or body
    if isinstance(body, kinds.Padded):
        pairs = list(zip(body.ranges, ranges, strict=True))
        if all(inner is None or outer is None for inner, outer in pairs):
            return kinds.Padded(body.body, tuple(inner or outer for inner, outer in pairs))
    return kinds.Padded(body, tuple(ranges))


def embedded(chain: Sequence[Tree]) -> Tree | None:
    """Write a chain that starts or ends with a contiguous selection as an array put into zeros."""
    if len(chain) < 2:
        return None
    match chain[0]:
        case kinds.Transpose(body=kinds.Rows(step=1) as rows):
            body = matmul(*chain[1:])
            return padded(body, (rows.range, None)[: body.rank])
    match chain[-1]:
        case kinds.Rows(step=1) as rows:
            if len(chain) == 2 and is_row(chain[0]):
                return kinds.Transpose(padded(chain[0].body, (rows.range,)))
            body = matmul(*chain[:-1])
            return padded(body, (None, rows.range)) if body.rank == 2 else None
    return None


def selections(tree: kinds.Padded) -> list[Tree]:
    """Write an array put into zeros as a product with rows of the identity."""
    factors = [tree.body]
    for axis, axis_range in enumerate(tree.ranges):
        if axis_range is not None:
            start, count, step, size = axis_range
            rows = kinds.Rows(count, size, start, step)
            factors = [*factors, rows] if axis else [kinds.Transpose(rows), *factors]
    return factors


def blocks(terms: Sequence[Tree]) -> list[Tree]:
    """Join the terms of a sum that are parts put into zeros as blocks, if they lie on a grid."""
    cells = {id(term): cell for term in terms if (cell := _cell(term)) is not None}
    block = grid(list(cells.values())) if len(cells) > 1 else None
    if block is None:
        return list(terms)
    return [*(term for term in terms if id(term) not in cells), block]


def _cell(term: Tree) -> kinds.Padded | None:
    """Read a term as an array put into zeros; None if it is none."""
    match term:
        case kinds.Padded():
            return term
        case kinds.Scale(body=Tree() as body) if (cell := _cell(body)) is not None:
            return kinds.Padded(scale(term.coefficient, term.scalars, cell.body), cell.ranges)
    return _identity_in_zeros(term)


def _identity_in_zeros(term: Tree) -> kinds.Padded | None:
    match term:
        case kinds.Rows(step=1):
            return kinds.Padded(kinds.Identity(term.count), (None, term.range))
        case kinds.Transpose(body=kinds.Rows(step=1) as rows):
            return kinds.Padded(kinds.Identity(rows.count), (rows.range, None))
    return None


# Diagonals, sums of entries, traces and norms


@linear
def diag(vector: Tree) -> Tree:
    """Make the diagonal matrix of a vector."""
    if isinstance(vector, kinds.Spread):
        return scale(ONE, [vector.body], kinds.Identity(vector.shape[0]))
    return kinds.Identity(vector.size) if isinstance(vector, kinds.Ones) else kinds.Diag(vector)


@linear
def diagonal(matrix: Tree) -> Tree:
    """Take the diagonal of a square matrix."""
    if isinstance(matrix, kinds.Spread):
        return entrywise.spread(matrix.body, (0,) if matrix.along else (), matrix.shape[:1])
    if isinstance(matrix, kinds.Transpose):
        return diagonal(matrix.body)
    return matrix.body if isinstance(matrix, kinds.Diag) else kinds.Diagonal(matrix)


@linear
def triangle(matrix: Tree, lower: bool, offset: int) -> Tree:
    """Take the entries of one triangle, zeros elsewhere."""
    return kinds.Triangle(matrix, lower, offset)


@linear
def total(tree: Tree) -> Tree:
    """Add all entries."""
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


def contracted(left: Tree, right: Tree) -> Tree:
    """Contract two vectors or matrices over all axes: their inner product."""
    for padded_tree, array in ((left, right), (right, left)):
        if isinstance(padded_tree, kinds.Padded):
            return contracted(padded_tree.body, part(array, padded_tree.ranges))
    if left.rank == 1:
        return matmul(kinds.Transpose(left), right)
    return trace(matmul(transpose(left), right))


def norm(tree: Tree) -> Tree:
    """Take the Euclidean or Frobenius norm of `tree` or its transpose, if that has fewer ones."""
    transposed = transpose_if_matrix(tree)
    is_simpler = transposed.counts[kinds.Transpose] < tree.counts[kinds.Transpose]
    return kinds.Norm(transposed if is_simpler else tree)


@linear
def trace(matrix: Tree) -> Tree:
    """Take the trace; rotate and flip the factors of a product so that it reads best."""
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
        for start in range(len(factors)):
            candidates.append(matmul(*factors[start:], *factors[:start]))
    best = min(candidates, key=order.trace_order)
    if (
        isinstance(best, kinds.Matmul)
        and len(best.factors) == 2
        and best.factors[0] == transpose(best.factors[1])
    ):
        return kinds.Raise(0, norm(best.factors[1]), kinds.Number(2 * ONE))
    return kinds.Trace(best) if isinstance(best, (kinds.Matmul, kinds.Power)) else trace(best)


# Transposes, pushed to names where that leaves fewer of them


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
"""Entrywise kinds: each entry depends on the same entries of the children, or on scalars."""


@linear
def transpose(tree: Tree) -> Tree:
    """Transpose a matrix."""
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
            cells = [kinds.Padded(transpose(cell.body), cell.ranges[::-1]) for cell in tree.cells]
            rows = [tuple(map(transpose, column)) for column in zip(*tree.rows, strict=True)]
            return kinds.Block(2, tuple(rows), tuple(cells))
        case kinds.Kronecker():
            return kinds.Kronecker(transpose(tree.left), transpose(tree.right))
        case kinds.Rows() if tree.step == -1 and tree.count == tree.size:
            return tree
    if getattr(tree, "symmetric", False):
        return tree
    is_stacked = isinstance(tree, kinds.Indexed) and tree.indices[-2:] == (None, None)
    if isinstance(tree, kinds.Indexed) and is_stacked and getattr(tree.body, "symmetric", False):
        return tree
    if isinstance(tree, ENTRYWISE):
        pushed = _normal_form(mapped(tree, transpose_if_matrix))
        has_few = pushed.counts[kinds.Transpose] <= 1 + tree.counts[kinds.Transpose]
        if has_few and pushed.rank == 2:
            return pushed
    return kinds.Transpose(tree)


def _normal_form(tree: Tree) -> Tree:
    """Build an entrywise tree, whose children are matrices or scalars, by its constructor."""
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


def transpose_if_matrix(tree: Tree) -> Tree:
    """Transpose a matrix; return any other tree itself."""
    return transpose(tree) if tree.rank == 2 else tree


def row_or_transpose(tree: Tree) -> Tree:
    """Transpose a matrix, a column (to a row) or a row (to a column)."""
    if is_row(tree):
        return tree.body
    return kinds.Transpose(tree) if tree.rank == 1 else transpose(tree)


def flipped(factors: Sequence[Tree]) -> list[Tree]:
    """List the factors of the transpose of a product."""
    return [row_or_transpose(factor) for factor in reversed(factors)]
