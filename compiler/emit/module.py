"""Emission: a module's text from its description, through the templates.

Templates receive strings and flat records. The text depends on nothing but the description:
no date, no path, no hash order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import jinja2

from derivatrix.compiler.emit.cpu.kernel import KernelText, kernel_text, newton_text
from derivatrix.compiler.emit.cpu.threads import blocks_text, rows_texts, shared_text
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import Imports, support_digest
from derivatrix.compiler.emit.public_functions import (
    calls_blas,
    expected_text,
    function_text,
    literal,
    operator_text,
    parted,
    quoted,
    sharing,
)
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.steps import Gemm, Newton, Plan
from derivatrix.compiler.targets import cpu
from derivatrix.runtime.errors import DeclarationError

BOUNDARY = (
    "_ndarray",
    "_empty",
    "_len",
    "_FLOAT32",
    "_FLOAT64",
    "_real",
    "_coerced",
    "_refuse",
    "_destinations",
    "_delivered",
    "_UNREADY",
    "_ready",
    "_remember",
)
"""What public functions refer to, apart from their kernels."""
OPERATOR = ("_Operator", "_tri", "_packed", "_ratio")
"""What functions that return operators refer to besides."""
NEWTON = (
    "lu.lu_factor",
    "lu.lu_invertible",
    "lu.lu_solve_each_row",
    "newton.largest",
    "newton.close",
)
"""What solves an equation."""


def emit(module: ModuleDescription) -> tuple[str, tuple[str, ...]]:
    """The text of the generated module, and the files of the support that it needs. Raises DeclarationError for an input whose name is
    one that the module itself needs."""
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
    tuples: dict[str, tuple[str, ...]] = {}
    functions = [function_text(function, module, tuples) for function in module.functions]
    operator = operator_text(module.operator, module, tuples) if module.operator else None
    expected = [(f"_{f.name.upper()}", expected_text(f, module)) for f in module.everything]
    usual = [function.plan for function in module.everything]
    columns = [plan.parts.columns.kernel for plan in usual if plan.parts and plan.parts.columns]
    blocks = list(filter(None, map(blocks_text, usual)))
    shared = [
        (plan, text)
        for plan in (*usual, *columns)
        if (text := shared_text(plan, module.name, plan in columns)) is not None
    ]
    lines = [line for kernel in (*inner, *kernels) for step in kernel.steps for line in step.lines]
    lines += [line for _, text in shared for line in text.head]
    imports = _imports(plans, lines)
    if any(plan.parts is not None for plan in plans):
        imports.add("cpu.parts._in_parts")
    if any(plan.parts is not None and plan.parts.columns is not None for plan in plans):
        imports.add("cpu.parts._in_columns")
    if any(f.plan.rows is not None and f.plan.rows.phases for f in module.everything):
        imports.add("cpu.parts._by_rows")
        imports.add("cpu.parts.border")
    if any(function.plan.sums is not None for function in module.everything):
        imports.add("cpu.parts._by_sums")
        imports.add("cpu.parts.add_onto")
        _add_work_arrays(imports)
    if any(map(calls_blas, usual)):
        imports.add("cpu.pool._CREW")
    if shared:
        imports.add("cpu.crew.part_of")
        imports.add("cpu.crew.share")
        imports.add("cpu.crew._Shared")
    if equations:
        for helper in NEWTON:
            imports.add(f"cpu.{helper}")
        _add_work_arrays(imports)
    if operator:
        for name in OPERATOR:
            imports.add(f"common.linear_map.{name}")
    if tuples:
        imports.require("collections", "namedtuple")
    written = (
        environment()
        .get_template("module.py.jinja")
        .render(
            docstring=quoted(module.docstring),
            packages=imports.package_lines(),
            support_digest=support_digest(),
            support=imports.support_lines(),
            facts=[(name, literal(value)) for name, value in module.facts.items()],
            constants=[(name, literal(a.tolist())) for name, a in sorted(constants.items())],
            definitions=imports.texts.values(),
            tuples=[(name, " ".join(fields)) for name, fields in tuples.items()],
            inner=inner,
            equations=[newton_text(equation) for equation in equations],
            kernels=kernels,
            aliases=aliases,
            blocks=blocks,
            shared=[text for _, text in shared],
            parted=[(parted(p), _caller(p, p in columns)) for p, _ in shared],
            expected=expected,
            functions=functions,
            operator=operator,
            module=module.name,
        )
    )
    check_names(module, written, imports.names)
    return written, imports.files


def _caller(plan: Plan, columns: bool) -> str:
    """What calls a kernel in parts; columns: whether it has the samples last in memory."""
    alone = plan.rows.alone if plan.rows else None
    kernels = f"{(alone or plan).name}, {sharing(plan)}"
    if columns:
        return f"_in_columns({kernels})"
    if plan.parts is not None:
        return f"_in_parts({kernels}, {plan.parts.sliced}, {plan.short_parts})"
    if plan.sums is None:
        return f"_by_rows({kernels})"
    sums = plan.sums
    return f"_by_sums({kernels}, {sums.sliced}, {sums.least}, {sums.products})"


def _equations(plans: Iterable[Plan]) -> list[Newton]:
    """The equations that the plans solve, each once, those that others need before them."""
    found: dict[str, Newton] = {}
    for plan in plans:
        for equation in (*plan.equations, *_equations(plan.inner)):
            for inner in _equations([equation.residual, equation.jacobian]):
                found.setdefault(inner.name, inner)
            found.setdefault(equation.name, equation)
    return list(found.values())


def _imports(plans: Sequence[Plan], lines: Iterable[str]) -> Imports:
    """The helpers that a module needs for its plans, and for lines of its kernels, and its
    imports."""
    imports = Imports()
    for name in BOUNDARY:
        imports.add(f"common.boundary.{name}")
    imports.add("cpu.base.compiled")
    imports.add("cpu.base.require_arrays")
    imports.add("cpu.base.require_shapes")
    for plan in plans:
        for kernel in plan.kernels:
            imports.add_kernel(kernel)
        for step in plan.steps:
            if isinstance(step, Gemm):
                imports.add(f"cpu.blas.{step.routine}")
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    if "math" in words:
        imports.require("math")
    if "shaped" in words:
        imports.add("cpu.base.shaped")
    if "work_arrays" in words:
        _add_work_arrays(imports)
    if "stream" in words:
        imports.add("cpu.workspace.stream")
    for path in cpu.SCALARS.values():
        if kernel_name(path) in words:
            imports.add(f"cpu.{path}")
    imports.require("numpy", alias="np")
    return imports


def _add_work_arrays(imports: Imports) -> None:
    imports.add("cpu.workspace.work_arrays")
    imports.add("cpu.workspace.give_back")


@cache
def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("derivatrix.templates", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def check_names(
    module: ModuleDescription, text: str, helpers: Iterable[str], taken: Iterable[str] = ()
) -> None:
    """Raise DeclarationError where a name of the declaration hides what a function of the text
    calls so. Helpers, which are not looked at, are read by kernels, and by public functions only
    where they start with an underscore, as no name of a declaration does. taken: what kernels take
    under the module's own name for it."""
    public = {function.name for function in module.everything}
    body = [each for each in ast.parse(text).body if getattr(each, "name", "") not in helpers]
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    made = {name for each in body if each not in imports for name in _bound(each)}
    made -= {*module.facts, *public, *taken, *helpers}
    read = {*made, *helpers, *(name for each in imports for name in _bound(each))}
    for function in body:
        if not isinstance(function, ast.FunctionDef):
            continue
        parameters = {each.arg for each in function.args.args}
        names = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
        assigned = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        if function.name in public:
            hidden = (parameters | assigned) & made
        else:
            hidden = (parameters | assigned) & read | parameters & assigned
        for name in sorted(hidden):
            raise DeclarationError(
                f"{module.name}: no input or size can be called {name}; the generated module needs "
                "this name"
            )


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level of a module gives something."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names)
    elif isinstance(statement, ast.Assign):
        yield from (each.id for each in statement.targets if isinstance(each, ast.Name))


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
            order = f"One order of multiplication for `{function.name}`."
            texts = [kernel_text(each, module.name, order, plan) for each in plan.variants]
            required = module.requirements if plan is function.plan else ()
            texts.append(kernel_text(plan, module.name, summary, requirements=required))
            work = tuple(replace(text, name="", summary="") for text in (texts[:-1] or texts))
            if plan.rows is not None:
                texts += rows_texts(plan, module.name)
            first = names.setdefault(work, plan.name)
            if first == plan.name:
                kernels += texts
            else:
                aliases.append((plan.name, first))
                for each in plan.rows.plans if plan.rows else ():
                    aliases.append((each.name, first + each.name.removeprefix(plan.name)))
    return kernels, aliases


def _summaries(function: FunctionDescription) -> Iterator[tuple[Plan, str]]:
    """The kernels of a function, but for variants and shares of rows, with what they do."""
    filled = " and ".join(f"`{name}`" for name, _ in function.plan.outputs)
    yield function.plan, f"The kernel of `{function.name}`: fills {filled}."
    if function.plan.parts is not None and function.plan.parts.columns is not None:
        columns = function.plan.parts.columns.kernel
        yield columns, f"`{function.name}` for many samples, which come last in memory."
    if function.plan.sums is not None:
        yield function.plan.sums.part, f"Sums over a part of the samples for `{function.name}`."
        yield function.plan.sums.rest, f"The results of `{function.name}` from sums."
