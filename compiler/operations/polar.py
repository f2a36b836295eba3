"""The orthogonal factor of the polar decomposition, and the equation its differential solves."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import (
    Arrays,
    EquationTerms,
    Operation,
    Parameters,
    Point,
    register,
)
from derivatrix.compiler.operations.shapes import same


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    u, _, vh = np.linalg.svd(arguments[0], full_matrices=False)
    return (u @ vh,)


def _differential(at: Point) -> tuple[Array, ...]:
    """Q dW + dW P = dX - W dXᵀ W, from X = W P with P = Wᵀ X and X = Q W with Q = X Wᵀ. The
    equation is regular for X of full rank, whatever singular values are repeated."""
    (matrix,), (change,) = at.arguments, at.tangents
    return (apply(SOLVE_POLAR, matrix, change - at.result @ change.mT @ at.result),)


POLAR = register(
    Operation(
        name="polar_factor",
        ranks=(2,),
        shapes=lambda cores, parameters: (cores[0],),
        value=_value,
        differential=_differential,
        numpy=lambda arguments, *_: (
            f"(lambda u, s, v: u @ v)(*np.linalg.svd({arguments[0]}, full_matrices=False))"
        ),
        kernel="singular.polar_factor",
        failure="the singular values did not converge, or an entry is not finite",
        notation=("polar",),
        description="""The orthogonal factor W = U Vᵀ of the polar decomposition, X = U diag(s) Vᵀ.

X: a matrix of any shape (p, q), with leading stacked axes if any. W has orthonormal columns, or
rows where there are fewer of them, and is the nearest such matrix to X. It is determined where X
is of full rank; elsewhere derivatives raise LinAlgError.""",
    )
)


def _solution(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    matrix, constant = arguments
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    if (s <= 10 * s.shape[-1] * np.finfo(s.dtype).eps * s[..., :1]).any():
        raise np.linalg.LinAlgError("the matrix is not of full rank")
    v, s = np.swapaxes(vh, -1, -2), s[..., None, :]
    inner = np.swapaxes(u, -1, -2) @ constant @ v
    within = u @ (inner / (s + np.swapaxes(s, -1, -2))) @ vh
    beyond_u = (constant @ v - u @ inner) / s @ vh
    beyond_v = u @ ((np.swapaxes(u, -1, -2) @ constant - inner @ vh) / np.swapaxes(s, -1, -2))
    return (within + beyond_u + beyond_v,)


def _solution_differential(at: Point) -> tuple[Array, ...]:
    """dY solves the same equation with the right-hand side dC - dQ Y - Y dP."""
    (matrix, _), (change, d_constant) = at.arguments, at.tangents
    factor = apply(POLAR, matrix)
    d_factor = apply(SOLVE_POLAR, matrix, change - factor @ change.mT @ factor)
    d_left = change @ factor.mT + matrix @ d_factor.mT
    d_right = factor.mT @ change + d_factor.mT @ matrix
    right_side = d_constant - d_left @ at.result - at.result @ d_right
    return (apply(SOLVE_POLAR, matrix, right_side),)


def _equation(matrix: Array) -> EquationTerms:
    factor = apply(POLAR, matrix)
    return (matrix @ factor.mT, None), (None, factor.mT @ matrix)


SOLVE_POLAR: Operation = register(
    Operation(
        name="solve_polar",
        ranks=(2, 2),
        shapes=lambda cores, parameters: (same("solve_polar", cores),),
        value=_solution,
        differential=_solution_differential,
        transposes={1: lambda at, cotangent: apply(SOLVE_POLAR, at.arguments[0], cotangent)},
        numpy=lambda arguments, *_: (
            "(lambda u, s, v, c: (lambda s: "
            "u @ ((u.mT @ c @ v.mT) / (s[..., None] + s[..., None, :])) @ v"
            " + (c @ v.mT - u @ (u.mT @ c @ v.mT)) / s[..., None, :] @ v"
            " + u @ ((u.mT @ c - (u.mT @ c @ v.mT) @ v) / s[..., None]))(np.where("
            "np.all(s > 10 * s.shape[-1] * np.finfo(s.dtype).eps * s[..., :1], -1, keepdims=True),"
            " s, np.nan)))"
            f"(*np.linalg.svd({arguments[0]}, full_matrices=False), {arguments[1]})"
        ),
        unicode="solvepolar({0}, {1})",
        latex=r"\operatorname{{solvepolar}}({0}, {1})",
        matrix_equation=_equation,
        kernel="singular.solve_polar",
        failure="the matrix is not of full rank",
        description="""The Y with X Wᵀ Y + Y Wᵀ X = C, where W is the polar factor of X.

X, C: matrices of one shape, with leading stacked axes if any. Raises LinAlgError where X is not of
full rank. With X = U diag(s) Vᵀ, the part of C within U and V is divided by s[i] + s[j], the rest
by s.""",
    )
)
