"""What a generated module says of its kernels and public functions, for its support to make."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache

import sympy

from derivatrix.compiler.emit.cpu.rows import shares
from derivatrix.compiler.emit.description import FunctionDescription, OperatorDescription
from derivatrix.compiler.emit.imports import Imports, uses
from derivatrix.compiler.emit.signatures import array_text, local_sizes, returns_text, signature
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.row_shares import PART
from derivatrix.compiler.plan.steps import (
    Buffer,
    Columns,
    Gemm,
    Newton,
    Plan,
    Rows,
    Sums,
)
from derivatrix.compiler.plan.visit import renamed
from derivatrix.compiler.structured.operator_text import operator_lines


def function_arguments(function: FunctionDescription) -> list[str]:
    """The arguments of `generated.function` for a public function, its parts where one is long."""
    found = [f'"{function.name}"', function.plan.name]
    if not isinstance(function.result, str):
        found.append(f'returns="{returns_text(function)}"')
    return found


def kernel_arguments(plan: Plan) -> list[str]:
    """The arguments of `generated.kernel` but those that say how it is compiled, its parts where
    one is long."""
    first, *named = signature(plan)
    blas = ["blas=True"] if calls_blas(plan) else []
    return [first, *parallel_arguments(plan), *blas, *named]


def size_text(plan: Plan, polynomial: sympy.Expr) -> str:
    """Arithmetic of sizes, in a kernel's own names."""
    return index(sympy.factor_terms(polynomial.xreplace(local_sizes(plan))))


def calls_blas(plan: Plan) -> bool:
    """Whether a kernel calls BLAS or LAPACK."""
    plans = (plan, *plan.inner)
    steps = [step for each in plans for step in each.every_step]
    return any(isinstance(step, Gemm | Newton) for step in steps) or any(
        _registers(kernel) for each in plans for kernel in each.kernels
    )


@cache
def _registers(kernel: Kernel) -> bool:
    """Whether a helper kernel needs a routine of BLAS or LAPACK."""
    imports = Imports()
    imports.add_kernel(kernel)
    return any(uses(f"{file}.{name}", "register") for name, file in imports.support.items())


# How threads share the work


def one_body(plan: Plan) -> bool:
    """Whether a share of the rows, one of one, is what the kernel does by itself."""
    rows = plan.rows
    if rows is None or rows.work or rows.phases > 1:
        return False
    bounds = {
        bound: bound.args[0] * bound.args[1].xreplace({PART: sympy.S.Zero})
        for bound in shares(rows.kernel)
    }
    return bool(renamed(rows.kernel.steps, bounds) == plan.steps)


def parallel_arguments(plan: Plan) -> list[str]:
    """How threads share the work of a kernel: the parts of a call of one of
    `support.cpu.parallel`'s, none where they do not."""
    if plan.rows is not None:
        return _nested("by_rows", _rows(plan, plan.rows))
    if plan.parts is not None:
        given = [f'"{size_text(plan, plan.parts.work)}"', f'"{_cut(plan, plan.parts.sliced)}"']
        given += ["short=True"] if plan.short_parts else []
        if plan.parts.columns:
            first, *others = _nested("columns", _columns(plan, plan.parts.columns))
            given += [f"columns={first}", *others]
        return _nested("by_samples", given)
    return _nested("by_sums", _sums(plan, plan.sums)) if plan.sums is not None else []


def sharing(plan: Plan) -> list[str]:
    """The functions of `support.cpu.parallel` that say how threads share the work."""
    columns = plan.parts.columns if plan.parts else None
    functions = {"by_rows": plan.rows, "by_samples": plan.parts, "by_sums": plan.sums}
    return [name for name, how in {**functions, "columns": columns}.items() if how is not None]


def _nested(name: str, arguments: list[str]) -> list[str]:
    """The parts of a call."""
    first, *others = arguments
    *rest, last = [f"{name}({first}", *others]
    return [*rest, f"{last})"]


def _rows(plan: Plan, rows: Rows) -> list[str]:
    given = [f'"{size_text(plan, rows.gain)}"']
    if not one_body(plan):
        given.append(f"share={rows.kernel.name}")
    if rows.phases > 1:
        given.append(f"phases={rows.phases}")
    for name, kind in (("work", "real"), ("integers", "integer")):
        if made := [buffer for buffer in rows.work if buffer.kind == kind]:
            given.append(f'{name}="{_arrays(plan, made)}"')
    return given


def _columns(plan: Plan, columns: Columns) -> list[str]:
    limits = map(str, (columns.least, columns.each, columns.most))
    return [columns.kernel.name, f'"{size_text(plan, columns.entries)}"', *limits]


def _sums(plan: Plan, sums: Sums) -> list[str]:
    outputs = [buffer.name for _, buffer in plan.outputs]
    divided = " ".join(itertools.compress(outputs, sums.divided))
    alone = " ".join(itertools.compress(outputs, sums.alone))
    costs = (sums.entries, sums.work, sums.fixed)
    given = [f'"{" ".join(filter(None, [_cut(plan, sums.sliced), divided]))}"']
    given += [f'"{size_text(plan, cost)}"' for cost in costs]
    given += [f"least={sums.least}"] if sums.least != 1 else []
    given += ["products=True"] if sums.products else []
    given += [f'alone="{alone}"'] if alone else []
    return given if sums.own else [*given, f"part={sums.part.name}"]


def _arrays(plan: Plan, buffers: Iterable[Buffer]) -> str:
    return ", ".join(array_text(each.name, each.shape, local_sizes(plan)) for each in buffers)


def _cut(plan: Plan, flags: Iterable[bool]) -> str:
    """The arguments whose flags are set."""
    pairs = zip(plan.arguments, flags, strict=True)
    return " ".join(argument.local for argument, flag in pairs if flag)


# Operators


def operator_arguments(
    operator: OperatorDescription, owner: str
) -> tuple[list[str], list[str], set[str]]:
    """The arguments of `generated.operators`, the lines of the operators, made of `_parts`,
    `_dtype` and sizes, and the names that these read."""
    function, found = operator.function, operator.structured
    plan = function.plan
    first, *named = signature(plan)
    buffers = {name: buffer.name for name, buffer in plan.outputs}
    parts = [
        buffers.get(f"part_{number}") or local_name(plan, node.name)  # type: ignore[attr-defined]
        for number, node in enumerate(found.parts)
    ]
    returned = returns_text(function) if not isinstance(function.result, str) else "operator"
    local = local_sizes(plan)
    lines: list[str] = []
    names: set[str] = set()
    for each in found.operators:
        name = f"{owner}: {found.title(each)}"
        made = operator_lines(name, each, found, lambda size: size.xreplace(local), names)
        lines += [*made[:-1], f"{made[-1]},"]
    given = [
        f'"{function.name}"',
        first,
        f'"{" ".join(parts)}"',
        f"_{function.name}",
        f'"{returned}"',
        *([f"kernel={plan.name}"] if plan.outputs else []),
        *named,
    ]
    return given, lines, names


def local_name(plan: Plan, name: str) -> str:
    """The name of an argument within a kernel."""
    return next(argument.local for argument in plan.arguments if argument.name == name)
