"""Emission: a module's text from its description, through the templates.

Templates receive strings and flat records. The text depends on nothing but the description:
no date, no path, no hash order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derivatrix.compiler.emit.cpu.array_calls import FUNCTIONS
from derivatrix.compiler.emit.cpu.kernel import KernelText, kernel_text, newton_text
from derivatrix.compiler.emit.cpu.kernel_calls import check_lines, filled_entries, kernel_call
from derivatrix.compiler.emit.cpu.public_functions import HELPERS as HELPERS_OF_CALLS
from derivatrix.compiler.emit.cpu.public_functions import function_lines, operator_lines
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import Imports
from derivatrix.compiler.emit.public_functions import (
    PublicFunction,
    definitions,
    signature,
    wrapped_code,
)
from derivatrix.compiler.emit.signatures import signature_text
from derivatrix.compiler.emit.skeleton import check_names, data_text, rendered
from derivatrix.compiler.emit.structured_arguments import NEAREST
from derivatrix.compiler.emit.texts import assignment
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.inner_products import CALLS
from derivatrix.compiler.plan.steps import Gemm, Partition, Plan
from derivatrix.compiler.targets import cpu

HELPERS = (
    *("internals.functions.compiled", "internals.memory.shaped", "cpu.kernels.border"),
    *(f"internals.memory.{name}" for name in ("copy_entries", "give_back", "work_arrays")),
    *(f"internals.arithmetic.{name}" for name in ("times", "scaled", "unscaled")),
    "cpu.copies.copy_permuted",
    *(f"cpu.sums.{n}" for n in ("add_multiple", *FUNCTIONS.values(), *CALLS.values())),
    *(f"cpu.structures.{name}" for name in sorted({*NEAREST.values()})),
    "cpu.newton.NotConverged",
    *(f"cpu.blas.{name}" for name in ("LOWER", "UPPER", "WHOLE")),
)
"""Helpers that the text of a module may name, besides kernels and functions of numbers."""
MAX_SUMMARY_LENGTH = 90
"""Length up to which a formula is the summary of its kernel, in characters."""
NEWTON_HELPERS = (
    *(f"cpu.lu.{name}" for name in ("lu_factor", "lu_invertible", "lu_solve_each_row")),
    *("cpu.newton.max_magnitude", "cpu.newton.step_tolerance"),
    *("internals.memory.work_arrays", "internals.memory.give_back"),
)
"""Helpers of functions that solve equations."""


def emit(module: ModuleDescription) -> tuple[str, str, tuple[str, ...]]:
    """Print the generated module and its second file; also return the support files that they need.
    Raises DeclarationError for an input with a name that the module itself needs."""
    kernels = _kernels(module)
    plans = [plan for function in module.everything for plan in function.plan.with_callees]
    equations = list({e.name: e for plan in plans for e in plan.equations}.values())
    recurrences = list({loop.name: loop for plan in plans for loop in plan.recurrences}.values())
    constants = {name: a for plan in plans for name, a in plan.constants}
    inner = [
        kernel_text(plan, module.name, f"The {word} of an equation, for `{equation.name}`.")
        for equation in equations
        for word, plan in (("residual", equation.residual), ("Jacobian", equation.jacobian))
    ]
    inner += [
        kernel_text(loop.step, module.name, f"A step: {loop.comment}") for loop in recurrences
    ]
    imports = _imports(plans, set().union(*(kernel.names for kernel in (*inner, *kernels))))
    if equations:
        for helper in NEWTON_HELPERS:
            imports.add(helper)
    if any(equation.failure for equation in equations):
        imports.add("cpu.newton.note")
    if constants or equations:
        imports.require("numpy", alias="np")
    text = rendered(
        "module.py.jinja",
        module,
        imports,
        constants,
        inner=inner,
        equations=[newton_text(equation) for equation in equations],
        kernels=kernels,
        functions=assignment([f.name for f in module.everything], "generated.functions()"),
    )
    names = [kernel.name for kernel in (*inner, *kernels)]
    names += [equation.name for equation in equations]
    check_names(module, imports, plans, names)
    return text, *_data(module, imports)


def _data(module: ModuleDescription, imports: Imports) -> tuple[str, tuple[str, ...]]:
    """Print the second file, and list the support files that it and the module need."""
    functions = [PublicFunction(function, module) for function in module.everything]
    calls = {f.plan.name: kernel_call(f.plan) for f in functions if f.plan.outputs}
    lines = ["# Kernels", ""]
    for call in calls.values():
        check = check_lines(call.plan, module.name, functions[0].requirements)
        lines += wrapped_code([*check, *call.definitions, ""])
    of_arrays = functions[: len(module.functions)]
    bodies = [(f, function_lines(f, calls[f.plan.name])) for f in of_arrays]
    helpers = [*HELPERS_OF_CALLS]
    if module.operator:
        factory, body, operator_helpers = operator_lines(module.operator, functions[-1])
        helpers += operator_helpers
        lines += factory
        bodies.append((functions[-1], body))
    lines += definitions(bodies, {f"{f.name}_kernel": f"_{f.plan.name}" for f in of_arrays})
    filled = [function for function in functions if function.plan.outputs]
    facts = {
        "signatures": {name: signature(call.plan) for name, call in calls.items()},
        "conditions": {f.name: calls[f.plan.name].conditions for f in filled},
        "entries": {f.name: filled_entries(f.plan) for f in filled},
    }
    return data_text(module, imports, facts, lines, helpers)


def _imports(plans: Sequence[Plan], names: set[str]) -> Imports:
    """Collect the imports of a module from its plans and from the names in its text."""
    imports = Imports()
    imports.add("cpu.kernels.Module")
    for plan in plans:
        for kernel in plan.kernels:
            imports.add_kernel(kernel)
        for step in plan.every_step:
            if isinstance(step, Gemm):
                imports.add(f"cpu.blas.{step.routine}")
    for package, alias in {"math": "math", "numpy": "np"}.items():
        if alias in names:
            imports.require(package, alias=alias)
    for path in (*HELPERS, *cpu.SCALARS.values()):
        if kernel_name(path) in names:
            imports.add(path)
    return imports


def _kernels(module: ModuleDescription) -> list[KernelText]:
    """Print the kernels, each once: functions that compute the same share a plan."""
    kernels: list[KernelText] = []
    names: set[str] = set()
    for function in module.everything:
        if function.plan.name not in names and function.plan.outputs:
            names.add(function.plan.name)
            kernels += _texts(function.plan, True, module.name, function.name, _summary(function))
    return kernels


def _texts(plan: Plan, public: bool, owner: str, kind: str, summary: str) -> list[KernelText]:
    """Print the kernels of a plan: parts or shares, variants, and the kernel itself."""
    order = f"One order of multiplication for `{kind}`."
    checked = signature_text(plan) if public else None
    whole = plan.whole
    before = [kernel_text(variant, owner, order) for variant in whole.variants]
    match plan.batch_last:
        case Partition(kernel=Plan() as part):
            of_part = f"`{kind}` for a part of many samples, which come last in memory."
            before = [*_texts(part, False, owner, kind, of_part), *before]
    match plan.partition:
        case Partition(axis="samples", is_whole_kernel=True):
            part_kernel = kernel_text(whole, owner, summary, checked=checked)
            return [*before, replace(part_kernel, checked=())]
        case Partition(axis="rows", kernel=Plan() as share, is_whole_kernel=True):
            return [*before, kernel_text(replace(share, name=plan.name), owner, summary, checked)]
        case Partition(axis="rows", kernel=Plan() as share):
            before.append(kernel_text(share, owner, f"A share of `{plan.name}`: part of parts."))
    return [*before, kernel_text(plan, owner, summary, checked=checked)]


def _summary(function: FunctionDescription) -> str:
    """Summarise the kernel of a function: by its formula, if that is short."""
    formula = "; ".join(function.formulas)
    filled = " and ".join(f"`{name}`" for name, _ in function.plan.outputs)
    short = formula and len(formula) < MAX_SUMMARY_LENGTH
    return formula if short else f"The kernel of `{function.name}`: fills {filled}."
