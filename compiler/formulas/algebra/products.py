"""Products and powers entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.formulas.algebra import coefficients, entrywise, order, reductions
from derivatrix.compiler.formulas.tree import (
    Hadamard,
    Mask,
    Matmul,
    Norm,
    Number,
    Raise,
    Scale,
    Spread,
    Transpose,
    Tree,
    Triangle,
    Zeros,
    is_row,
)

ONE = sympy.S.One


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
            coefficients.multiply_in(powers, factor)
    arrays = [raised(base, Number(exponent)) for base, exponent in powers.items()]
    return coefficients.scale(ONE, scalars, _masked(arrays, rank))


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
        return coefficients.scale(body.coefficient**value, scalars, inner)
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
            return reductions.norm(column)
    return None
