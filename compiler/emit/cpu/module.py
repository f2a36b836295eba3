"""Emission: a module's text from its description, through the templates.

Templates receive strings and flat records. The text depends on nothing but the description:
no date, no path, no hash order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from derivatrix.compiler.emit.cpu.kernel import (
    KernelText,
    kernel_text,
    newton_text,
)
from derivatrix.compiler.emit.cpu.public_functions import (
    function_arguments,
    kernel_arguments,
    one_body,
    operator_arguments,
    sharing,
)
from derivatrix.compiler.emit.cpu.rows import rows_text, share_text
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import Imports
from derivatrix.compiler.emit.signatures import tuples
from derivatrix.compiler.emit.skeleton import check_names, rendered
from derivatrix.compiler.emit.structured_arguments import NEAREST
from derivatrix.compiler.emit.texts import call_lines
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.inner_products import CALLS
from derivatrix.compiler.plan.steps import Gemm, Newton, Plan
from derivatrix.compiler.targets import cpu

USED = (
    *("internals.functions.compiled", "internals.memory.shaped", "cpu.parts.border"),
    *(f"internals.memory.{name}" for name in ("copy_entries", "give_back", "work_arrays")),
    *(f"internals.arithmetic.{name}" for name in ("times", "scaled", "unscaled")),
    *(f"cpu.sums.{name}" for name in CALLS.values()),
    *(f"cpu.structures.{name}" for name in sorted({*NEAREST.values()})),
    "cpu.newton.NotConverged",
    *(f"cpu.base.{name}" for name in ("LOWER", "UPPER", "WHOLE")),
    *(f"common.linear_map.{n}" for n in ("_Operator", "_tri", "_packed", "_ratio", "_nonzero")),
)
"""What a module's text may refer to, apart from kernels and functions of numbers."""
SHORT = 90
"""How long a formula may be to be shown beside the kernel that computes it."""
NEWTON = (
    *(f"cpu.lu.{name}" for name in ("lu_factor", "lu_invertible", "lu_solve_each_row")),
    *("cpu.newton.max_magnitude", "cpu.newton.step_tolerance"),
    *("internals.memory.work_arrays", "internals.memory.give_back"),
)
"""What solves an equation."""


def emit(module: ModuleDescription) -> tuple[str, tuple[str, ...]]:
    """The text of the generated module, and the files of the support that it needs. Raises
    DeclarationError for an input whose name is one that the module itself needs."""
    kernels, aliases = _kernels(module)
    equations = _equations([function.plan for function in module.everything])
    plans = [plan for f in module.everything for plan in (f.plan, *f.plan.inner)]
    plans += [plan for equation in equations for plan in (equation.residual, equation.jacobian)]
    constants = {name: a for plan in plans for name, a in plan.constants}
    inner = [
        kernel_text(plan, module.name, f"The {word} of an equation, for `{equation.name}`.")
        for equation in equations
        for word, plan in (("residual", equation.residual), ("Jacobian", equation.jacobian))
    ]
    operator = _operator(module)
    read = set().union(*(kernel.names for kernel in (*inner, *kernels)))
    read |= operator.names if operator else set()
    imports = _imports(plans, read)
    if equations:
        for helper in NEWTON:
            imports.add(helper)
    if any(equation.failure for equation in equations):
        imports.add("cpu.newton.note")
    if constants or equations:
        imports.require("numpy", alias="np")
    named = tuples(module.everything)
    if named:
        imports.require("collections", "namedtuple")
    written = rendered(
        "module.py.jinja",
        module,
        imports,
        constants,
        tuples=named.items(),
        inner=inner,
        equations=[newton_text(equation) for equation in equations],
        kernels=kernels,
        aliases=aliases,
        functions=[
            call_lines(f"{f.name} = generated.function", function_arguments(f))
            for f in module.functions
        ],
        operator=operator,
    )
    names = [*named, *dict(aliases), *(kernel.name for kernel in (*inner, *kernels))]
    names += [equation.name for equation in equations]
    check_names(module, imports, plans, names)
    return written, imports.files


@dataclass(frozen=True)
class OperatorText:
    """A function that returns operators: that which makes them, by its parameters, the lines of
    what it returns and the names that these read; and the call that makes the public one."""

    name: str
    parameters: str
    lines: list[str]
    names: set[str]
    call: list[str]


def _operator(module: ModuleDescription) -> OperatorText | None:
    if module.operator is None:
        return None
    given, lines, names = operator_arguments(module.operator, module.name)
    name = module.operator.function.name
    sizes = [size.local for size in module.operator.function.plan.sizes if size.local in names]
    call = call_lines(f"{name} = generated.operators", given)
    return OperatorText(f"_{name}", ", ".join(["_parts", "_dtype", *sizes]), lines, names, call)


def _equations(plans: Iterable[Plan]) -> list[Newton]:
    """The equations that the plans solve, each once, those that others need before them."""
    found: dict[str, Newton] = {}
    for plan in plans:
        for equation in (*plan.equations, *_equations(plan.inner)):
            for inner in _equations([equation.residual, equation.jacobian]):
                found.setdefault(inner.name, inner)
            found.setdefault(equation.name, equation)
    return list(found.values())


def _imports(plans: Sequence[Plan], names: set[str]) -> Imports:
    """The helpers that a module needs for its plans and for names in its text, and its imports."""
    imports = Imports()
    imports.add("cpu.functions.Module")
    for plan in plans:
        for kernel in plan.kernels:
            imports.add_kernel(kernel)
        for step in plan.every_step:
            if isinstance(step, Gemm):
                imports.add(f"cpu.blas.{step.routine}")
    for package, alias in {"math": "math", "numpy": "np"}.items():
        if alias in names:
            imports.require(package, alias=alias)
    for path in (*USED, *cpu.SCALARS.values()):
        if kernel_name(path) in names:
            imports.add(path)
    for plan in plans:
        for name in sharing(plan):
            imports.add(f"cpu.parallel.{name}")
    return imports


def _kernels(module: ModuleDescription) -> tuple[list[KernelText], list[tuple[str, str]]]:
    """The kernels, and the names of those that do the same as one before, each with that one's
    name: as the gradient of a scalar function, which is its Jacobian."""
    kernels: list[KernelText] = []
    names: dict[tuple[KernelText, ...], str] = {}
    aliases = []
    for function in module.everything:
        if not function.plan.outputs:
            continue
        for plan, summary in _summaries(function):
            texts = _texts(plan, function.plan is plan, module.name, function.name, summary)
            variants = texts[: len(plan.variants)]  # where there are some, the kernel only chooses
            work = tuple(_unnamed(text, plan.name) for text in variants or texts)
            first = names.setdefault(work, plan.name)
            if first == plan.name:
                kernels += texts
            else:
                aliases.append((plan.name, first))
    return kernels, aliases


def _unnamed(text: KernelText, kernel: str) -> KernelText:
    """The text of a kernel, or of one that belongs to it, without its name."""
    decorator = " ".join(line.strip() for line in text.decorator).replace(kernel, "")
    return replace(text, decorator=(decorator,), name=text.name.removeprefix(kernel), summary="")


def _texts(plan: Plan, public: bool, owner: str, kind: str, summary: str) -> list[KernelText]:
    """The texts of a plan's kernels: variants, those for large results and shares, and itself."""
    order = f"One order of multiplication for `{kind}`."
    checked = kernel_arguments(plan) if public else None
    sums, before = plan.sums, []
    if sums is not None and sums.own:
        before = [kernel_text(each, owner, order) for each in sums.part.variants]
        own = kernel_text(sums.part, owner, summary, checked=checked)
        return [*before, replace(own, checked="")]
    if sums is not None:
        part = f"What a part of the samples adds to the results of `{kind}`."
        before = _texts(sums.part, False, owner, kind, part)
    before += [kernel_text(each, owner, order) for each in plan.variants]
    if plan.rows is not None and one_body(plan):
        share = replace(plan.rows.kernel, name=plan.name)
        return [*before, share_text(share, owner, summary, checked)]
    before += [rows_text(plan.rows, owner)] if plan.rows else []
    return [*before, kernel_text(plan, owner, summary, checked=checked)]


def _summaries(function: FunctionDescription) -> Iterator[tuple[Plan, str]]:
    """The kernels of a function, but for variants and shares of rows, with what they do."""
    formula = "; ".join(" ".join(each.split()) for each in function.formulas)
    filled = " and ".join(f"`{name}`" for name, _ in function.plan.outputs)
    short = formula and len(formula) < SHORT
    if function.plan.parts is not None and function.plan.parts.columns is not None:
        columns = function.plan.parts.columns.kernel
        yield columns, f"`{function.name}` for many samples, which come last in memory."
    yield function.plan, formula if short else f"The kernel of `{function.name}`: fills {filled}."
