"""Eigenvalues and eigenvectors: of symmetric matrices, and of others with a real spectrum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.ir.nodes import Apply, Node
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.gaps import over_gaps
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import (
    ORTHONORMAL_COLUMNS,
    columns_scaled,
    diagonal_of,
    each_matrix,
    symmetric_part,
)
from derivatrix.compiler.operations.shapes import square
from derivatrix.compiler.operations.signs import SIGNS, signs

NOT_CONVERGED = "the eigenvalues did not converge, or an entry is not finite"
NOT_REAL = "the eigenvalues are not all real, or the eigenvectors are linearly dependent"


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    values, vectors = np.linalg.eigh(arguments[0])
    return values, vectors * signs(vectors)


def _differential(at: Point) -> tuple[Array, ...]:
    """dλ = diag(B) and dV = V (F ∘ B), B = Vᵀ dA V, F_ij = 1/(λ_j - λ_i) (Magnus 1985)."""
    values, vectors = at.results
    inner = vectors.mT @ at.tangents[0] @ vectors
    return diagonal_of(inner), vectors @ over_gaps(values, inner)


def _values_differential(at: Point) -> tuple[Array, ...]:
    """dλ = diag(Vᵀ dA V)."""
    vectors = apply(EIGH, at.arguments[0], output=1)
    return (diagonal_of(vectors.mT @ at.tangents[0] @ vectors),)


def _numpy(arguments: Sequence[str], parameters: Parameters, output: int) -> str:
    if output == 0:
        return f"np.linalg.eigvalsh({arguments[0]})"
    return f"(lambda v: v * {SIGNS.format('v')})(np.linalg.eigh({arguments[0]})[1])"


EIGH = register(
    Operation(
        name="eigh",
        ranks=(2,),
        shapes=lambda cores, parameters: (cores[0][:1], square("eigh", cores[0])),
        prepare=lambda arrays: [symmetric_part("eigh", arrays[0])],
        value=_value,
        differential=_differential,
        numpy=_numpy,
        unicode=("eigvalsh({0})", "eighV({0})"),
        latex=(r"\lambda({0})", r"V({0})"),
        kernel="eigen.symmetric_eigen",
        single=lambda numbers, facts: (numbers[0], asarray(1)),
        failure=NOT_CONVERGED,
        facts=lambda arguments, output: ORTHONORMAL_COLUMNS if output else frozenset(),
        outputs=("eigenvalues", "eigenvectors"),
        notation=("", "eighV"),
        letters=("", "V"),
        description="""The eigenvalues and eigenvectors of a symmetric matrix: A V = V diag(λ).

A: a symmetric matrix, with leading stacked axes if any; of any other square matrix the symmetric
part (A + Aᵀ)/2 is taken. The eigenvalues ascend. The eigenvectors are the columns of V, of unit
length, each with its largest entry positive (the first of them, if several are equally large).
Where an eigenvalue is repeated up to rounding, its vectors have no derivative, and what depends
on their derivative is nan. V diag(h(λ)) Vᵀ for a smooth function h, entry by entry, has
derivatives of every order everywhere, made of divided differences, and so has what is made of
such products; h may hold a softmax and numbers that do not depend on the order of eigenvalues.
V diag(c h(λ)) Vᵀ with c of numbers, slices and signs, as V[:, :k] V[:, :k]ᵀ, has them wherever
eigenvalues of different c are apart.""",
    )
)

EIGVALSH = register(
    Operation(
        name="eigvalsh",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("eigvalsh", cores[0])[:1],),
        prepare=lambda arrays: [symmetric_part("eigvalsh", arrays[0])],
        value=lambda arguments, parameters: (np.linalg.eigvalsh(arguments[0]),),
        differential=_values_differential,
        numpy=lambda arguments, *_: f"np.linalg.eigvalsh({arguments[0]})",
        latex=r"\lambda({0})",
        kernel="eigen.symmetric_eigenvalues",
        follows_from={EIGH: lambda at: at.results[0]},
        single=lambda numbers, facts: (numbers[0],),
        failure=NOT_CONVERGED,
        notation=("eigvalsh",),
        description="""The eigenvalues of a symmetric matrix, ascending.

A: a symmetric matrix, with leading stacked axes if any; of any other square matrix the symmetric
part (A + Aᵀ)/2 is taken. First derivatives of what does not depend on the order of equal
eigenvalues, as their sum, are right everywhere. So are higher derivatives of smooth functions of
sums of h(λ), of h(λ_i, λ_j), ... and of logsumexp(λ), which are made of divided differences; of
other expressions, as a product of them all, they are nan where they depend on an eigenvalue that
is repeated up to rounding.""",
    )
)


def _real(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    values, vectors = np.linalg.eig(matrix)
    if np.any(np.imag(values) != 0):
        raise np.linalg.LinAlgError(NOT_REAL)
    order = np.argsort(np.real(values))
    vectors = np.real(vectors)[:, order]
    # relative errors of V⁻¹ are up to cond(V) n eps: beyond this none of its digits is certain
    if len(matrix) and np.linalg.cond(vectors) * 10 * len(matrix) * np.finfo(vectors.dtype).eps > 1:
        raise np.linalg.LinAlgError(NOT_REAL)
    return np.real(values)[order], vectors * signs(vectors)


def _real_values(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    values = np.linalg.eigvals(matrix)
    if np.any(np.imag(values) != 0):
        raise np.linalg.LinAlgError(NOT_REAL)
    return (np.sort(np.real(values)),)


def _real_differential(at: Point) -> tuple[Array, ...]:
    """dλ = diag(B), B = V⁻¹ dA V; dV = V (F ∘ B) less its part along V, F_ij = 1/(λ_j - λ_i)."""
    values, vectors = at.results
    inner = apply(INVERSE, vectors) @ at.tangents[0] @ vectors
    change = vectors @ over_gaps(values, inner)
    along = diagonal_of(vectors.mT @ change)  # removed: the columns keep unit length
    return diagonal_of(inner), change - columns_scaled(vectors, along)


def _real_values_differential(at: Point) -> tuple[Array, ...]:
    """dλ = diag(V⁻¹ dA V)."""
    vectors = apply(EIG, at.arguments[0], output=1)
    return (diagonal_of(apply(INVERSE, vectors) @ at.tangents[0] @ vectors),)


def _real_values_text(argument: str) -> str:
    real = "np.where(np.imag(w) == 0, np.real(w), np.nan)"
    return f"(lambda w: np.sort({real}))(np.linalg.eigvals({argument}))"


def _real_text(arguments: Sequence[str], parameters: Parameters, output: int) -> str:
    if output == 0:
        return _real_values_text(arguments[0])
    columns = "np.take_along_axis(v, np.argsort(np.real(w))[..., None, :], -1)"
    real = f"(lambda v: np.where(np.imag(v) == 0, np.real(v), np.nan))({columns})"
    signed = f"(lambda v: v * {SIGNS.format('v')})({real})"
    return f"(lambda w, v: {signed})(*np.linalg.eig({arguments[0]}))"


def _of_symmetric(node: Apply) -> Node | None:
    """eig(S) = eigh(S), whose eigenvalues are real and well conditioned."""
    if "symmetric" not in facts(node.arguments[0][0]):
        return None
    symmetric = EIGH if node.operation is EIG else EIGVALSH
    return Apply(symmetric, node.arguments, node.stack, output=node.output)


EIG = register(
    Operation(
        name="eig",
        ranks=(2,),
        shapes=lambda cores, parameters: (cores[0][:1], square("eig", cores[0])),
        value=lambda arguments, parameters: each_matrix(_real, arguments),
        differential=_real_differential,
        numpy=_real_text,
        unicode=("eigvals({0})", "eigV({0})"),
        latex=(r"\lambda({0})", r"V({0})"),
        kernel="eigen.real_eigenvectors",
        single=lambda numbers, facts: (numbers[0], asarray(1)),
        failure=NOT_REAL,
        domain=("real spectrum",),
        outputs=("eigenvalues", "eigenvectors"),
        notation=("", "eigV"),
        letters=("", "V"),
        rules=(_of_symmetric,),
        description="""Eigenvalues and vectors of a matrix with a real spectrum: A V = V diag(λ).

A: a square matrix, with leading stacked axes if any. The eigenvalues ascend. The eigenvectors are
the columns of V, of unit length, each with its largest entry positive (the first of them, if
several are equally large). Raises LinAlgError where an eigenvalue is not real, or the eigenvectors
are linearly dependent up to rounding. Where an eigenvalue is repeated up to rounding, its vectors
have no derivative, and what depends on their derivative is nan. Of a matrix that is symmetric by
its construction they are those of `eigh`.""",
    )
)

EIGVALS = register(
    Operation(
        name="eigvals",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("eigvals", cores[0])[:1],),
        value=lambda arguments, parameters: each_matrix(_real_values, arguments),
        differential=_real_values_differential,
        numpy=lambda arguments, *_: _real_values_text(arguments[0]),
        latex=r"\lambda({0})",
        kernel="eigen.real_eigenvalues",
        follows_from={EIG: lambda at: at.results[0]},
        single=lambda numbers, facts: (numbers[0],),
        failure="an eigenvalue is not real",
        domain=("real spectrum",),
        notation=("eigvals",),
        rules=(_of_symmetric,),
        description="""The eigenvalues of a matrix with a real spectrum, ascending.

A: a square matrix, with leading stacked axes if any. Raises LinAlgError where an eigenvalue is not
real. Derivatives raise LinAlgError where the eigenvectors are linearly dependent up to rounding.
Second derivatives of smooth functions of sums of h(λ) are made of divided differences; of other
expressions they are nan where they depend on an eigenvalue that is repeated up to rounding.""",
    )
)
