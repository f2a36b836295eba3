"""Operations that solve a matrix equation for their last argument, as matrices between vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.kronecker import kronecker
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.operation import OPERATIONS

Terms = Sequence[tuple[Tree | None, Tree | None]]
"""Pairs A, B: the sum of A X B is the last argument; None stands for the identity."""


def _polar(matrix: Tree) -> Terms:
    """X Wᵀ Y + Y Wᵀ X, where W is the polar factor of X."""
    polar = OPERATIONS["polar_factor"]
    factor = algebra.transpose(kinds.Call(2, polar.key, (matrix,), (), 0, False, polar))
    return (algebra.matmul(matrix, factor), None), (None, algebra.matmul(factor, matrix))


EQUATIONS: dict[str, Callable[..., Terms]] = {
    "solve_sylvester": lambda left, right: ((left, None), (None, right)),
    "solve_continuous_lyapunov": lambda own: ((own, None), (None, algebra.transpose(own))),
    "solve_discrete_lyapunov": lambda own: (
        (None, None),
        (algebra.scale(-sympy.S.One, [], own), algebra.transpose(own)),
    ),
    "solve_polar": _polar,
}
"""By an operation's name, the terms of its equation, given its other arguments."""


def solving_matrix(name: str, arguments: Sequence[Tree], shape: Shape) -> Tree:
    """M with vec X = M vec C for the solution X, of this shape, of an equation with C on the right:
    the inverse of the sum of Bᵀ ⊗ A."""
    rows, columns = map(kinds.Identity, shape)
    terms: list[Tree] = []
    for left, right in EQUATIONS[name](*arguments):
        if left is None and right is None:
            terms.append(kinds.Identity(sympy.expand(shape[0] * shape[1])))
        else:
            second = columns if right is None else algebra.transpose(right)
            terms.append(kronecker(second, rows if left is None else left))
    return algebra.power(algebra.add(terms), -1)
