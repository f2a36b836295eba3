"""Chains of matrix products."""

from __future__ import annotations

import sympy

from derivatrix.compiler.formulas.algebra import (
    coefficients,
    order,
    parts,
    products,
    reductions,
    sums,
    transposition,
)
from derivatrix.compiler.formulas.tree import (
    Add,
    Diag,
    Identity,
    Indexed,
    Matmul,
    Name,
    Number,
    Ones,
    Padded,
    Power,
    Raise,
    Scale,
    Spread,
    Transpose,
    Tree,
    Unit,
    is_row,
)

ONE = sympy.S.One


def power(body: Tree, exponent: int) -> Tree:
    """A matrix power with integer exponent."""
    if isinstance(body, Power):
        return power(body.body, body.exponent * exponent)
    if isinstance(body, Identity) or exponent == 1:
        return body
    number = Number(sympy.Integer(exponent))
    if isinstance(body, Scale) and body.body is not None:
        scalars = [products.raised(scalar, number) for scalar in body.scalars]
        return coefficients.scale(body.coefficient**exponent, scalars, power(body.body, exponent))
    if isinstance(body, Diag):
        return Diag(products.raised(body.body, number))
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
    return coefficients.scale(ONE, scalars, parts.embedded(chain) or _closed(chain))


def _opened(factor: Tree) -> tuple[Tree, list[Tree]] | None:
    """A compound factor as a scalar and simpler factors; None for a simple one."""
    one = Number(ONE)
    match factor:
        case Matmul():
            return one, list(factor.factors)
        case Scale() if factor.body is not None:
            return Scale(factor.coefficient, factor.scalars, None), [factor.body]
        case Padded():
            return one, parts.selections(factor)
        case Add() if all(map(order.is_negative, factor.terms)):
            negative = [coefficients.scale(-ONE, [], term) for term in factor.terms]
            return Number(-ONE), [sums.add(negative, factor.rank)]
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
            return None if inner is None else (inner[0], transposition.flipped(inner[1]))
    return None


def _append(chain: list[Tree], factor: Tree) -> None:
    """Append to a chain, joining neighbours."""
    joined = _joined(chain[-1], factor) if chain else None
    if joined is None:
        chain.append(factor)
    else:
        chain.pop()
        _append(chain, joined)


def _joined(left: Tree, right: Tree) -> Tree | None:
    """The product of two neighbours as one factor, where there is a way to write that."""
    if isinstance(left, Diag) and isinstance(right, Diag):
        return Diag(products.hadamard([left.body, right.body], 1))
    if isinstance(left, Diag) and right.rank == 1 and not is_row(right):
        return products.hadamard([left.body, right], 1)
    if isinstance(right, Diag) and is_row(left):
        return Transpose(products.hadamard([left.body, right.body], 1))
    if isinstance(left, Diag) or isinstance(right, Diag):
        return None
    if left.rank == right.rank == 2:
        (base, first), (other, second) = _as_power(left), _as_power(right)
        if base == other and first * second > 0:
            return Power(base, first + second)
    return parts.selected(left, right)


def _as_power(tree: Tree) -> tuple[Tree, int]:
    return (tree.body, tree.exponent) if isinstance(tree, Power) else (tree, 1)


def _closed(chain: list[Tree]) -> Tree:
    """A chain as a tree."""
    if len(chain) == 1:
        return chain[0]
    if is_row(chain[0]) and chain[-1].rank == 1 and not is_row(chain[-1]):
        return _scalar(min(chain, transposition.flipped(chain), key=order.chain_order))
    return Matmul(tuple(chain))


def _scalar(chain: list[Tree]) -> Tree:
    """A chain from a row to a column, in the direction in which it is to be written."""
    row, *middle, last = chain
    assert is_row(row)
    first = row.body
    if not middle:
        return _inner(first, last)
    if isinstance(first, Ones) and isinstance(last, Ones):
        return reductions.total(matmul(*middle))
    half = len(chain) // 2
    if len(chain) % 2 == 0 and transposition.flipped(chain[half:]) == chain[:half]:
        return Raise(0, reductions.norm(matmul(*chain[half:])), Number(2 * ONE))
    return Matmul(tuple(chain))


def _inner(first: Tree, last: Tree) -> Tree:
    if isinstance(first, Ones):
        return reductions.total(last)
    if isinstance(last, Ones):
        return reductions.total(first)
    for unit, other in ((first, last), (last, first)):
        if isinstance(unit, Unit):
            return parts.part(other, (unit.position,))
    if first == last and not isinstance(first, (Name, Indexed)):
        return Raise(0, reductions.norm(first), Number(2 * ONE))
    return Matmul((Transpose(first), last))
