"""Which helper kernels factorise, solve and invert, by what is known of the matrix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.operation import Kernel, kernel_name
from derivatrix.compiler.plan.contraction_order import is_inverse


@dataclass(frozen=True)
class Solver:
    """Helper kernels for one kind of matrix.

    factor: in place on a copy of the matrices, and `pivots`; None where nothing is to be done.
    invertible: (factored matrices) -> whether there are inverses; None where there always are.
    failure: what is wrong where there are none, or where `factor` returns False.
    solve_rows, solve_columns: (factored matrices, right-hand sides, flags), in place; solve_few:
    as `solve_rows`, for few rows.
    reductions: by the operation's name, (factored matrices, out).
    flags: before the `transposed` flag, if there is one.
    """

    factor: Kernel | None
    pivots: bool
    invertible: Kernel | None
    failure: str
    solve_rows: Kernel
    solve_columns: Kernel
    inverse: Kernel
    reductions: dict[str, Kernel]
    flags: tuple[bool, ...] = ()
    symmetric: bool = False
    solve_few: Kernel | None = None


LU = Solver(
    "lu.lu_factor",
    True,
    "lu.lu_invertible",
    "the matrix is singular",
    "lu.lu_solve_rows",
    "lu.lu_solve_columns",
    "lu.lu_inverse",
    {"det": "lu.lu_det", "logdet": "lu.lu_logdet", "logabsdet": "lu.lu_logabsdet"},
    solve_few="lu.lu_solve_each_row",
)
CHOLESKY = Solver(
    "cholesky.cholesky_factor",
    False,
    None,
    "the matrix is not positive definite",
    "cholesky.cholesky_solve_rows",
    "cholesky.cholesky_solve_columns",
    "cholesky.cholesky_inverse",
    {
        "det": "cholesky.cholesky_det",
        "logdet": "cholesky.cholesky_logdet",
        "logabsdet": "cholesky.cholesky_logdet",
    },
    symmetric=True,
    solve_few="cholesky.cholesky_solve_few_rows",
)
TRIANGULAR = {
    fact: Solver(
        None,
        False,
        "triangular.triangular_invertible",
        "the matrix is singular",
        "triangular.triangular_solve_rows",
        "triangular.triangular_solve_columns",
        "triangular.triangular_inverse",
        {
            "det": "triangular.triangular_det",
            "logdet": "triangular.triangular_logdet",
            "logabsdet": "triangular.triangular_logabsdet",
        },
        flags=(fact == "lower",),
    )
    for fact in ("lower", "upper")
}
LU_BATCH_LAST = Solver(
    "batch_last.lu_factor_batch_last",
    True,
    "batch_last.lu_invertible_batch_last",
    LU.failure,
    "batch_last.lu_solve_batch_last",
    "batch_last.lu_solve_batch_last",
    "batch_last.lu_inverse_batch_last",
    {
        "det": "batch_last.lu_det_batch_last",
        "logdet": "batch_last.lu_logdet_batch_last",
        "logabsdet": "batch_last.lu_logabsdet_batch_last",
    },
)
CHOLESKY_BATCH_LAST = Solver(
    "batch_last.cholesky_factor_batch_last",
    False,
    None,
    CHOLESKY.failure,
    "batch_last.cholesky_solve_batch_last",
    "batch_last.cholesky_solve_batch_last",
    "batch_last.cholesky_inverse_batch_last",
    {
        "det": "batch_last.cholesky_det_batch_last",
        "logdet": "batch_last.cholesky_logdet_batch_last",
        "logabsdet": "batch_last.cholesky_logdet_batch_last",
    },
    symmetric=True,
)
FACTORED = frozenset({"inv", *LU.reductions})
"""Operations that stand on a factorisation of their argument."""


BY_SCHUR_FORMS = frozenset({"solve_sylvester", "solve_continuous_lyapunov"})
"""Operations that stand on the Schur forms of their arguments but the last."""


def choose_solver(known: frozenset[str], batch_last: bool) -> Solver:
    """The cheapest way that is right for a matrix, or a stack of them, by the facts about it;
    batch_last: whether there is a stack, which is the last axis in memory."""
    if batch_last:
        return CHOLESKY_BATCH_LAST if "spd" in known else LU_BATCH_LAST
    for fact in ("lower", "upper"):
        if fact in known:
            return TRIANGULAR[fact]
    if "spd" in known:
        return CHOLESKY
    return LU


@dataclass(frozen=True)
class Solve:
    """A product with an inverse, as the solution of equations.

    inverse: the `inv` node; stack: its stacked labels; solved: the label of the unknowns;
    contracted: that of the equations; right: the other factor; transposed: whether it is the
    inverse's transpose.
    """

    inverse: ir.Apply
    stack: ir.Labels
    solved: int
    contracted: int
    right: ir.Factor
    transposed: bool


def match_solve(einsum: ir.Einsum) -> Solve | None:
    """`einsum` as a solve, if it is inv(A) or its transpose times something."""
    if len(einsum.factors) != 2 or len(einsum.contracted) != 1:
        return None
    contracted = einsum.contracted[0]
    for (node, labels), right in (einsum.factors, einsum.factors[::-1]):
        if not is_inverse(node) or len(set(labels)) != len(labels):
            continue
        *stack, first, second = labels
        solved = second if contracted == first else first
        other = right[1]
        if contracted in (first, second) and contracted in other and solved not in other:
            return Solve(node, tuple(stack), solved, contracted, right, contracted == first)  # type: ignore[arg-type]
    return None


def helper_names(roots: Iterable[ir.Node]) -> set[str]:
    """The names of the helper kernels that a plan of these nodes may call."""
    kernels: list[Kernel] = [
        "batch_last.samples_first",
        "batch_last.samples_last",
        "blas.gram",
        "blas.spread_triangles",
        "blas.structured_gemm",
        "blas.symmetric_gemm",
        "blas.weighted_gram",
        "sylvester.schur",
        "sylvester.schur_sylvester",
    ]
    for solver in (LU, LU_BATCH_LAST, CHOLESKY, CHOLESKY_BATCH_LAST, *TRIANGULAR.values()):
        kernels += [solver.solve_rows, solver.solve_columns, solver.inverse]
        kernels += solver.reductions.values()
        others = (solver.factor, solver.invertible, solver.solve_few)
        kernels += [kernel for kernel in others if kernel is not None]
    for node in ir.topological(roots):
        if isinstance(node, ir.Apply):
            own = node.operation.kernel, node.operation.columns
            kernels += [kernel for kernel in own if kernel is not None]
    flags = ("LOWER", "UPPER", "WHOLE")
    return {"gemm", "shaped", "work_arrays", *flags, *map(kernel_name, kernels)}
