"""Emission: a module's text from its description, through the templates.

Templates receive strings and flat records. The text depends on nothing but the description:
no date, no path, no hash order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import jinja2
import sympy

from derivatrix.compiler.dimensions import LENGTH
from derivatrix.compiler.indices import index
from derivatrix.compiler.kernels import (
    base,
    blas,
    boundary,
    linear_map,
    lu,
    newton,
    operators,
    parts,
    workspace,
)
from derivatrix.compiler.kernels.source import Sources
from derivatrix.compiler.plan.names import Names
from derivatrix.compiler.plan.parts import OPERATIONS
from derivatrix.compiler.plan.rows import GAIN, rows_name
from derivatrix.compiler.plan.sizes import product
from derivatrix.compiler.plan.steps import Gemm, Newton, Plan, Size
from derivatrix.compiler.printer import KernelText, kernel_text, newton_text, rows_text
from derivatrix.compiler.structured import Structured
from derivatrix.compiler.structured.text import operator_lines
from derivatrix.runtime.errors import DeclarationError

WIDTH = 100
BOUNDARY = (
    "_ndarray",
    "_empty",
    "_FLOAT32",
    "_FLOAT64",
    "_real",
    "_coerced",
    "_refuse",
    "_destinations",
    "_delivered",
)
"""What public functions refer to, apart from their kernels."""
OPERATOR = ("_Operator", "_tri", "_packed")
"""What functions that return operators refer to besides."""
Result = str | tuple[tuple[str, "Result"], ...]
"""The name of one of a plan's outputs, or (field name, result) pairs for a named tuple."""


@dataclass(frozen=True)
class FunctionDescription:
    """A public function: its kernel's plan (whose arguments are its own), and what it returns."""

    name: str
    summary: str
    plan: Plan
    result: Result


@dataclass(frozen=True)
class OperatorDescription:
    """The public function that returns operators. `function`: it, with the kernel that computes
    their arrays; its result is made of the names of operators, those of `structured` in order."""

    function: FunctionDescription
    structured: Structured


@dataclass(frozen=True)
class ModuleDescription:
    """A generated module.

    name: the declared function's name, for messages. docstring: the module's. facts: the
    public constants (INPUTS, OUTPUT, FORMULAS, ...), literals of Python. requirements: conditions
    on the sizes, such as "n >= 2". functions: in the order to be written, `operator` after them.
    """

    name: str
    docstring: str
    facts: Mapping[str, object]
    functions: Sequence[FunctionDescription]
    requirements: Sequence[str] = ()
    operator: OperatorDescription | None = None

    @property
    def everything(self) -> tuple[FunctionDescription, ...]:
        """All functions, that of the operators last."""
        return (*self.functions, *([self.operator.function] if self.operator else []))


@dataclass(frozen=True)
class ResultText:
    """An array that a public function returns: its local name and its shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class FunctionText:
    """A public function, as texts for the template.

    parameters: the names of the arguments; signature: with `out`. ready: the conditions, a line
    each, under which the arguments can go to the kernel as they are. inputs: a tuple of the
    arguments; targets: the same, to be assigned to. expected: the name of the constant that says
    which shapes they have. block: the entries of all results, where there are several that can be
    large. real: the dtype of the results; `retyped` says it of arguments that
    were not ready, `typed` of all. lengths: the axes of the arguments, to be read from their
    shapes; sizes: what follows from them; conditions: true if the shapes are others than
    expected. call: of the kernel. unpacked: the results, to be assigned to; inner: a tuple of
    them. value, delivered: what is returned without `out` and with it. run: the name of the run of
    a call, on a device.
    """

    name: str
    summary: str
    parameters: str
    signature: str
    out: str
    ready: tuple[str, ...]
    inputs: str
    targets: str
    expected: str
    retyped: str
    typed: str
    lengths: tuple[str, ...]
    sizes: tuple[str, ...]
    conditions: str
    real: str
    block: str
    results: tuple[ResultText, ...]
    shapes: str
    call: str
    unpacked: str
    inner: str
    value: str
    delivered: str
    run: str


@dataclass(frozen=True)
class OperatorText:
    """The function that returns operators, as texts: `function` as for others (but `value`, and
    `inner`, which has the inputs that are parts too), the name of its tuple of arrays, and for
    each operator its local name and the lines of the expression for it."""

    function: FunctionText
    parts: str
    operators: tuple[tuple[str, tuple[str, ...]], ...]


def emit(module: ModuleDescription) -> str:
    """The text of the generated module. Raises DeclarationError for an input whose name is
    one that the module itself needs."""
    kernels, aliases = _kernels(module)
    equations = _equations([function.plan for function in module.everything])
    plans = [plan for f in module.everything for plan in (f.plan, *f.plan.variants)]
    plans += [plan for equation in equations for plan in (equation.residual, equation.jacobian)]
    constants = {name: a for plan in plans for name, a in plan.constants}
    inner = [
        kernel_text(plan, module.name, f"The {word} of an equation, for `{equation.name}`.")
        for equation in equations
        for word, plan in (("residual", equation.residual), ("Jacobian", equation.jacobian))
    ]
    tuples: dict[str, tuple[str, ...]] = {}
    functions = [function_text(function, module, tuples) for function in module.functions]
    operator = _operator(module.operator, module, tuples) if module.operator else None
    expected = [(f"_{f.name.upper()}", expected_text(f, module)) for f in module.everything]
    check_names(module, tuples, (*BOUNDARY, *OPERATOR))
    sources = _sources(plans, [*inner, *kernels])
    if any(plan.parts is not None for plan in plans):
        sources.add(parts, "_in_parts")
    if any(function.plan.rows is not None for function in module.everything):
        sources.add(parts, "_by_rows")
    if equations:
        for helper in (lu.lu_factor, lu.lu_invertible, lu.lu_solve_rows, newton.largest):
            sources.add_function(helper)
        sources.add_function(newton.close)
    if operator:
        for name in OPERATOR:
            sources.add(linear_map, name)
    if tuples:
        sources.require("collections", "namedtuple")
    return (
        environment()
        .get_template("module.py.jinja")
        .render(
            docstring=quoted(module.docstring),
            imports=sources.import_lines(),
            facts=[(name, literal(value)) for name, value in module.facts.items()],
            constants=[(name, literal(a.tolist())) for name, a in sorted(constants.items())],
            helpers=sources.blocks(),
            tuples=[(name, " ".join(fields)) for name, fields in tuples.items()],
            inner=inner,
            equations=[newton_text(equation) for equation in equations],
            kernels=kernels,
            aliases=aliases,
            parted=[
                (
                    _parted(f.plan),
                    f.plan.name,
                    _tuple(map(repr, f.plan.parts.sliced)),
                    f.plan.short_parts,
                )
                for f in module.everything
                if f.plan.parts is not None
            ],
            by_rows=[
                (_parted(f.plan), f.plan.rows.plan.name)
                for f in module.everything
                if f.plan.rows is not None
            ],
            expected=expected,
            functions=functions,
            operator=operator,
            module=module.name,
        )
    )


def _equations(plans: Iterable[Plan]) -> list[Newton]:
    """The equations that the plans solve, each once, those that others need before them."""
    found: dict[str, Newton] = {}
    for plan in plans:
        for equation in (*plan.equations, *_equations(plan.variants)):
            for inner in _equations([equation.residual, equation.jacobian]):
                found.setdefault(inner.name, inner)
            found.setdefault(equation.name, equation)
    return list(found.values())


def _sources(plans: Sequence[Plan], kernels: Sequence[KernelText]) -> Sources:
    """The helpers that a module needs, and its imports."""
    sources = Sources()
    for name in BOUNDARY:
        sources.add(boundary, name)
    sources.add(base, "compiled")
    sources.add(base, "require_arrays")
    for plan in plans:
        for kernel in plan.kernels:
            sources.add_function(kernel)
        for step in plan.steps:
            if isinstance(step, Gemm):
                sources.add(blas, step.routine)
    lines = [line for kernel in kernels for step in kernel.steps for line in step.lines]
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    if "math" in words:
        sources.require("math")
    if "work_arrays" in words:
        sources.add(workspace, "work_arrays")
    for module in operators.MODULES:
        for name in module.KERNELS.values():
            if name in words:
                sources.add(module, name)
    sources.require("numpy", alias="np")
    return sources


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
    module: ModuleDescription, tuples: Mapping[str, tuple[str, ...]], needed: Iterable[str]
) -> None:
    """An argument may not hide what its function's body refers to (`needed`, and names of the
    module's own), and has to be a field's name where a named tuple is returned."""
    for fields in tuples.values():
        for name in fields:
            if name.startswith("_"):
                raise DeclarationError(
                    f"{module.name}: an input with derivatives cannot be called {name}; "
                    "names of results do not start with an underscore"
                )
    expected = [f"_{function.name.upper()}" for function in module.everything]
    kernels = {function.plan.name for function in module.everything}
    hidden = {*needed, *kernels, *tuples, *expected}
    hidden |= {"ValueError", "float", "isinstance", "type"}
    for function in module.everything:
        for argument in function.plan.arguments:
            if argument.name in hidden:
                raise DeclarationError(
                    f"{module.name}: an input cannot be called {argument.name}; "
                    "the generated module needs this name"
                )


def _kernels(module: ModuleDescription) -> tuple[list[KernelText], list[tuple[str, str]]]:
    """The kernels, and the names of those that do the same as one before, each with that one's
    name: as the gradient of a scalar function, which is its Jacobian."""
    kernels: list[KernelText] = []
    names: dict[tuple[KernelText, ...], str] = {}
    aliases = []
    for function in module.everything:
        if not function.plan.outputs:
            continue
        summary = f"One order of multiplication for `{function.name}`."
        texts = [kernel_text(plan, module.name, summary) for plan in function.plan.variants]
        texts.append(kernel_text(function.plan, module.name, _kernel_summary(function)))
        work = tuple(replace(text, name="", summary="") for text in (texts[:-1] or texts))
        if function.plan.rows is not None:
            texts.append(rows_text(function.plan, module.name))
        first = names.setdefault(work, function.plan.name)
        if first == function.plan.name:
            kernels += texts
        else:
            aliases.append((function.plan.name, first))
            if function.plan.rows is not None:
                aliases.append((rows_name(function.plan.name), rows_name(first)))
    return kernels, aliases


def _kernel_summary(function: FunctionDescription) -> str:
    filled = " and ".join(f"`{name}`" for name, _ in function.plan.outputs)
    return f"The kernel of `{function.name}`: fills {filled}."


def expected_text(function: FunctionDescription, module: ModuleDescription) -> str:
    """The names and shapes of a function's arguments, then the conditions on sizes, then the
    names of what `out` holds."""
    shapes = tuple(
        (argument.name, tuple(index(size) for size in argument.shape))
        for argument in function.plan.arguments
    )
    places = dict(_places(function.result, "out"))
    names = tuple(places.get(output, output) for output, _ in function.plan.outputs)
    return literal((shapes, tuple(module.requirements), names))


def _places(result: Result, path: str) -> Iterator[tuple[str, str]]:
    """Each output with where it is in a function's result, as in "out.gradient.A"."""
    if isinstance(result, str):
        yield result, path
    else:
        for name, part in result:
            yield from _places(part, f"{path}.{name}")


def function_text(
    function: FunctionDescription,
    module: ModuleDescription,
    tuples: dict[str, tuple[str, ...]],
) -> FunctionText:
    plan = function.plan
    parameters = [argument.name for argument in plan.arguments]
    names = Names(parameters)
    out = names.exact("out")
    real = names.exact("dtype")
    sizes = _Sizes(plan, names)
    single = len(plan.outputs) == 1
    results = {
        name: names.exact("result" if single else name.removeprefix("out_"))
        for name, _ in plan.outputs
    }
    scalars = {results[name] for name, buffer in plan.outputs if not buffer.shape}
    locals_ = list(results.values())
    shapes = [sizes.shape(buffer.shape) for _, buffer in plan.outputs]
    refused = [f"not {sizes.condition(requirement)}" for requirement in module.requirements]
    title = "".join(word.capitalize() for word in function.name.split("_"))
    delivered = _result(function.result, title, results, tuples)
    return FunctionText(
        name=function.name,
        summary=function.summary,
        parameters=", ".join(parameters),
        signature=", ".join([*parameters, "*", f"{out}=None"]),
        out=out,
        ready=tuple(_ready(plan, real)),
        inputs=_tuple(parameters),
        targets=_targets(parameters),
        expected=f"_{function.name.upper()}",
        retyped="" if _mixed(plan) else f"{real} = {_real(plan)}",
        typed=f"{real} = {_real(plan)}" if _mixed(plan) else "",
        lengths=sizes.lengths,
        sizes=sizes.lines,
        conditions=" or ".join([*sizes.conditions, *refused]),
        real=real,
        block=_block(plan, sizes),
        results=tuple(map(ResultText, locals_, shapes)),
        shapes=_tuple(shapes),
        call=f"{_called(plan, sizes)}({', '.join([*parameters, *locals_])})",
        unpacked=_targets(locals_),
        inner=_tuple(locals_),
        value=_result(
            function.result,
            title,
            {key: f"{name}[()]" if name in scalars else name for key, name in results.items()},
            tuples,
        ),
        delivered=delivered,
        run=names.exact("run"),
    )


def _block(plan: Plan, sizes: _Sizes) -> str:
    """The number of entries of all outputs, where there are several whose sizes are not known."""
    counts = [product(buffer.shape) for _, buffer in plan.outputs]
    if sum(not count.is_number for count in counts) < 2:
        return ""
    return index(sympy.factor_terms(sizes.renamed(sympy.Add(*counts))))


def _parted(plan: Plan) -> str:
    """The name of what calls a kernel in parts."""
    return f"_{plan.name}_in_parts"


def _called(plan: Plan, sizes: _Sizes) -> str:
    """What a public function calls: the kernel, or what has threads share it where that gains."""
    if plan.parts is not None:
        work, enough = plan.parts.work, OPERATIONS
    elif plan.rows is not None:
        work, enough = plan.rows.gain, GAIN
    else:
        return plan.name
    found = index(sympy.factor_terms(sizes.renamed(work)))
    return f"({plan.name} if {found} < {enough} else {_parted(plan)})"


def _operator(
    operator: OperatorDescription,
    module: ModuleDescription,
    tuples: dict[str, tuple[str, ...]],
) -> OperatorText:
    function, found = operator.function, operator.structured
    plan = function.plan
    plain = replace(function, result=tuple((name, name) for name, _ in plan.outputs))
    text = function_text(plain, module, {})
    names = Names([*(argument.name for argument in plan.arguments), text.out, text.real])
    sizes = _Sizes(plan, names)
    for result in text.results:
        names.exact(result.name)
    made = {name: each.name for (name, _), each in zip(plan.outputs, text.results, strict=True)}
    arrays = [
        made.get(f"part_{number}") or f"{node.name}.copy()"  # type: ignore[attr-defined]
        for number, node in enumerate(found.parts)
    ]
    every = names.exact("parts")
    outputs = [output for output, _ in _places(function.result, "")]
    local = {output: names.exact(output) for output in outputs}
    lines = [
        operator_lines(
            f"{module.name}: {found.title(each)}", each, found, sizes.renamed, every, text.real
        )
        for each in found.operators
    ]
    title = "".join(word.capitalize() for word in function.name.split("_"))
    value = _result(function.result, title, local, tuples)
    return OperatorText(
        replace(text, value=value, inner=_tuple(arrays)),
        every,
        tuple(zip(local.values(), lines, strict=True)),
    )


class _Sizes:
    """The sizes that a public function reads from its arguments' shapes.

    lengths: the axes as they are assigned to, an argument each; lines: the sizes that are computed
    from them; conditions: for each axis that no size is read from, true if it is too short or long.
    """

    def __init__(self, plan: Plan, names: Names) -> None:
        self.local = {size.name: names.exact(size.name) for size in plan.sizes}
        self._renames = {
            sympy.Symbol(name, integer=True, positive=True): sympy.Symbol(local)
            for name, local in self.local.items()
        }
        read = {(s.argument.name, s.axis): self.local[s.name] for s in plan.sizes if s.exact}
        arguments = [argument for argument in plan.arguments if argument.shape]
        axes = [(a.name, axis) for a in arguments for axis in range(len(a.shape))]
        self._axes = {key: read.get(key) or names.exact(f"{key[0]}_{key[1]}") for key in axes}
        self.lengths = tuple(
            f"{_targets([self._axes[a.name, axis] for axis in range(len(a.shape))])} "
            f"= {a.name}.shape"
            for a in arguments
        )
        self.lines = tuple(self._line(size) for size in plan.sizes if not size.exact)
        self.conditions = [
            f"{self._axes[a.name, axis]} != {index(length.xreplace(self._renames))}"
            for a in arguments
            for axis, length in enumerate(a.shape)
            if (a.name, axis) not in read
        ]

    def _line(self, size: Size) -> str:
        axis = sympy.Symbol(self._axes[size.argument.name, size.axis])
        value = size.value.xreplace({**self._renames, LENGTH: axis})
        return f"{self.local[size.name]} = {index(value)}"

    def shape(self, shape: Iterable[sympy.Expr]) -> str:
        """A shape as a tuple of the local sizes."""
        return _tuple(index(self.renamed(size)) for size in shape)

    def renamed(self, size: sympy.Expr) -> sympy.Expr:
        """Arithmetic of sizes in the local names."""
        return size.xreplace(self._renames)

    def condition(self, text: str) -> str:
        """A condition on sizes, in the local names."""
        return re.sub(r"[^\W\d]\w*", lambda match: self.local[match[0]], text)


def _mixed(plan: Plan) -> bool:
    """Whether there are numbers among the arguments, which float32 arrays ask to be rounded."""
    return not all(argument.shape for argument in plan.arguments)


def _real(plan: Plan) -> str:
    """The dtype of the results, from arguments that are ready."""
    arrays = [argument.name for argument in plan.arguments if argument.shape]
    return f"{arrays[0]}.dtype" if arrays else f"_real({plan.arguments[0].name})"


def _ready(plan: Plan, real: str) -> Iterator[str]:
    """The conditions under which the arguments are as the kernel takes them.

    Their ranks are not among them: these are known when lengths are read from the shapes."""
    word = ""
    for argument in plan.arguments:
        name = argument.name
        if not argument.shape:
            yield f"{word}isinstance({name}, float)"
        elif _mixed(plan):
            yield f"{word}type({name}) is _ndarray and {name}.dtype is _FLOAT64"
        elif word:
            yield f"{word}type({name}) is _ndarray and {name}.dtype is {real}"
        else:
            yield f"type({name}) is _ndarray"
            yield f"and (({real} := {name}.dtype) is _FLOAT64 or {real} is _FLOAT32)"
        if argument.shape:
            yield f"and {name}.flags.carray"
        word = "and "


def _result(
    result: Result, path: str, results: Mapping[str, str], tuples: dict[str, tuple[str, ...]]
) -> str:
    """What a function returns: the text of an output, or a named tuple called `path`."""
    if isinstance(result, str):
        return results[result]
    tuples[path] = tuple(name for name, _ in result)
    inner = "Gradient" if path == "ValueAndGradient" else f"{path}Row"
    parts = [_result(part, inner, results, tuples) for _, part in result]
    return f"{path}({', '.join(parts)})"


def _targets(names: list[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")


def _tuple(parts: Iterable[str]) -> str:
    texts = list(parts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def quoted(text: str) -> str:
    """A text for between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def literal(value: object, indent: int = 0) -> str:
    """A Python literal, one entry a line where it is too long for one line."""
    text = repr(value)
    if len(text) + indent <= WIDTH - 20 or not isinstance(value, dict | tuple | list):
        return text
    space = " " * (indent + 4)
    if isinstance(value, dict):
        entries = [f"{space}{k!r}: {literal(v, indent + 4)},\n" for k, v in value.items()]
    else:
        entries = [f"{space}{literal(entry, indent + 4)},\n" for entry in value]
    empty = repr(type(value)())
    return f"{empty[0]}\n{''.join(entries)}{' ' * indent}{empty[1]}"
