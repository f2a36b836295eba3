"""Solutions of matrix equations as matrices that act on the vec of the right-hand side."""

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
"""Pairs A, B of the equation Σ A X B = C; None is the identity."""


def _polar(matrix: Tree) -> Terms:
    """Return the terms of Y ↦ X Wᵀ Y + Y Wᵀ X, where W is the polar factor of X."""
    polar = OPERATIONS["polar_factor"]
    factor = algebra.transpose(kinds.Call(2, polar.key, (matrix,), (), 0, False, polar))
    return (algebra.matmul(matrix, factor), None), (None, algebra.matmul(factor, matrix))


EQUATIONS: dict[str, Callable[..., Terms]] = {
    "solve_sylvester": lambda left, right: ((left, None), (None, right)),
    "solve_continuous_lyapunov": lambda a: ((a, None), (None, algebra.transpose(a))),
    "solve_discrete_lyapunov": lambda a: (
        (None, None),
        (algebra.scale(-sympy.S.One, [], a), algebra.transpose(a)),
    ),
    "solve_polar": _polar,
}
"""Terms of the equation that an operation solves for its last argument C, from the others."""


def solving_matrix(name: str, arguments: Sequence[Tree], shape: Shape) -> Tree:
    """Build M with vec X = M vec C for the solution X, of this shape, of Σ A X B = C: the inverse
    of Σ Bᵀ ⊗ A."""
    rows, columns = map(kinds.Identity, shape)
    terms: list[Tree] = []
    for left, right in EQUATIONS[name](*arguments):
        if left is None and right is None:
            terms.append(kinds.Identity(sympy.expand(shape[0] * shape[1])))
        else:
            second = columns if right is None else algebra.transpose(right)
            terms.append(kronecker(second, rows if left is None else left))
    return algebra.power(algebra.add(terms), -1)
