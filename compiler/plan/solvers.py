"""Choice of the helper kernels that factorise, solve and invert, by the matrix's known facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.operation import Kernel, kernel_name
from derivatrix.compiler.plan.contraction_order import is_inverse


@dataclass(frozen=True)
class Solver:
    """The helper kernels for one kind of matrix; `kernel` returns them by task.

    names: their names, with braces for the task: "lu.lu_{}".
    failure: the message if a matrix has no inverse, or if "factor" returns False.
    factors: whether "factor" overwrites a copy of the matrices by factors.
    pivots: whether the kernels have an array of pivots as a parameter.
    checked: whether a factored matrix may have no inverse, which "invertible" tests.
    definite: whether matrices are positive definite; these kernels have no `transposed` flag.
    few_rows: the task that replaces "solve_rows" for few rows; "" if there is none.
    flags: further flags of the kernels, before `transposed`.
    """

    names: str
    failure: str
    factors: bool = True
    pivots: bool = False
    checked: bool = False
    definite: bool = False
    few_rows: str = ""
    flags: tuple[bool, ...] = ()

    def kernel(self, task: str) -> Kernel:
        """Return the kernel for a task. Tasks, with the parameters of the kernels:

        "factor" (matrices, pivots); "invertible" (factored matrices);
        "solve_rows", "solve_columns", or "solve" if the samples come last in memory (factored
        matrices, right-hand sides, flags), in place;
        `Operation.factor_kernel`, the task of an operation (factored matrices, out)."""
        if self.definite and task == "logabsdet":
            task = "logdet"
        return self.names.format(task)


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


def choose_solver(known_facts: frozenset[str], batch_last: bool) -> Solver:
    """Choose the cheapest solver that is valid for a matrix with these facts of structure;
    batch_last: whether a stack of matrices is the last axis in memory."""
    if batch_last:
        return CHOLESKY_BATCH_LAST if "spd" in known_facts else LU_BATCH_LAST
    for fact in ("lower", "upper"):
        if fact in known_facts:
            return TRIANGULAR[fact]
    if "spd" in known_facts:
        return CHOLESKY
    return LU


@dataclass(frozen=True)
class Solve:
    """A product with an inverse, as a solution of linear equations.

    inverse: the `inv` node; stack: its stacked labels; solved: the label of the unknowns;
    contracted: the label of the equations; right: the other factor; transposed: whether the inverse
    is transposed.
    """

    inverse: ir.Apply
    stack: ir.Labels
    solved: int
    contracted: int
    right: ir.Factor
    transposed: bool


def match_solve(einsum: ir.Node) -> Solve | None:
    """Match a product of inv(A), or its transpose, and another factor; None for other nodes."""
    if not isinstance(einsum, ir.Einsum) or len(einsum.factors) != 2 or len(einsum.contracted) != 1:
        return None
    contracted = einsum.contracted[0]
    for (node, labels), right in (einsum.factors, einsum.factors[::-1]):
        if not is_inverse(node) or len(set(labels)) != len(labels):
            continue
        *stack, row, column = labels
        solved = column if contracted == row else row
        axes = right[1]
        if contracted in (row, column) and contracted in axes and solved not in axes:
            return Solve(node, tuple(stack), solved, contracted, right, contracted == row)  # type: ignore[arg-type]
    return None


def kernel_names(roots: Iterable[ir.Node]) -> set[str]:
    """Collect the names of the kernels of operations below `roots`, and of the globals that users'
    kernels read: variables of a kernel with these names would hide them in a module."""
    operations = (node.operation for node in ir.topological(roots) if isinstance(node, ir.Apply))
    kernels = {kernel for op in operations for kernel in (op.kernel, op.columns) if kernel}
    read = (_globals_read(kernel) for kernel in kernels if not isinstance(kernel, str))
    return set(map(kernel_name, kernels)).union(*read)


def _globals_read(function: Any) -> set[str]:
    """Collect the globals that a function reads, directly or through other functions."""
    names: set[str] = set()
    waiting = [function]
    while waiting:
        plain = waiting.pop()
        plain = getattr(plain, "py_func", plain)  # a function that Numba has compiled
        if isinstance(plain, FunctionType):
            new_names = {*plain.__code__.co_names} & {*plain.__globals__} - names
            names |= new_names
            waiting += [plain.__globals__[name] for name in new_names]
    return names
