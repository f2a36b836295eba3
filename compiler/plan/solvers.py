"""Choice of the helper kernels that factorise, solve and invert, by the matrix's known facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.operation import Kernel, kernel_name
from derivatrix.compiler.plan.contraction_order import is_inverse


@dataclass(frozen=True)
class Solver:
    """Helper kernels for one kind of matrix; `kernel` names the one that does something.

    names: how they are called, with braces for what they do: "lu.lu_{}".
    failure: what is wrong where there is no inverse, or where "factor" returns False.
    factors: whether "factor" makes factors of a copy of the matrices, in place; pivots: whether it
    takes an array of pivots, too, as all others do then.
    checked: whether factored matrices may have no inverse, which "invertible" finds out.
    definite: whether matrices are positive definite. Those that are need no `transposed` flag.
    few_rows: what does "solve_rows" for few rows; "" if it does itself.
    flags: before the `transposed` flag, if there is one.
    """

    names: str
    failure: str
    factors: bool = True
    pivots: bool = False
    checked: bool = False
    definite: bool = False
    few_rows: str = ""
    flags: tuple[bool, ...] = ()

    def kernel(self, does: str) -> Kernel:
        """The kernel for "factor", (matrices, pivots); for "invertible", (factored matrices); for
        "solve_rows" and "solve_columns", (factored matrices, right-hand sides, flags), in place,
        or "solve" where the samples come last in memory; for "inverse" and the names of operations,
        (factored matrices, out)."""
        if self.definite and does == "logabsdet":
            does = "logdet"
        return self.names.format(does)


SINGULAR, INDEFINITE = "the matrix is singular", "the matrix is not positive definite"
LU = Solver("lu.lu_{}", SINGULAR, pivots=True, checked=True, few_rows="solve_each_row")
CHOLESKY = Solver("cholesky.cholesky_{}", INDEFINITE, definite=True, few_rows="solve_few_rows")
TRIANGULAR = {
    fact: Solver(
        "triangular.triangular_{}", SINGULAR, factors=False, checked=True, flags=(fact == "lower",)
    )
    for fact in ("lower", "upper")
}
LU_BATCH_LAST = replace(LU, names="batch_last.lu_{}_batch_last")
CHOLESKY_BATCH_LAST = replace(CHOLESKY, names="batch_last.cholesky_{}_batch_last")
FACTORED = frozenset({"inv", "det", "logdet", "logabsdet"})
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


def match_solve(einsum: ir.Node) -> Solve | None:
    """`einsum` as a solve, if it is inv(A) or its transpose times something."""
    if not isinstance(einsum, ir.Einsum) or len(einsum.factors) != 2 or len(einsum.contracted) != 1:
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


def kernel_names(roots: Iterable[ir.Node]) -> set[str]:
    """The names of the kernels of the operations in a plan of these nodes."""
    operations = (node.operation for node in ir.topological(roots) if isinstance(node, ir.Apply))
    kernels = (kernel for each in operations for kernel in (each.kernel, each.columns) if kernel)
    return set(map(kernel_name, kernels))
