"""The stages of the compiler in order: declare, lower, differentiate, simplify, plan, emit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from derivatrix import __version__
from derivatrix.compiler.differentiate.derivatives import Derivatives, Key
from derivatrix.compiler.differentiate.linearise import differentials
from derivatrix.compiler.differentiate.projection import PROJECTED
from derivatrix.compiler.emit.description import (
    FunctionDescription,
    ModuleDescription,
    OperatorDescription,
    Result,
)
from derivatrix.compiler.emit.stub import stub_text
from derivatrix.compiler.emit.targets import find_target
from derivatrix.compiler.emit.texts import wrapped
from derivatrix.compiler.formulas import STYLES, render
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.limits import stated_depth
from derivatrix.compiler.ir.content import content
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.listing import listing
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.plan import Plan, threaded_plan
from derivatrix.compiler.structured import Structured, structured
from derivatrix.runtime.errors import DeclarationError, UnsupportedError


@dataclass(frozen=True)
class Generated:
    """A generated module. name: the stem of its file. support: the support files that it needs, as
    "cpu/blas.py". data, types: the texts of the files with these."""

    name: str
    text: str
    digest: str
    support: tuple[str, ...]
    data: str
    types: str

    @property
    def texts(self) -> dict[str, str]:
        """The text of each of its files, by the path in a generated package."""
        return {
            f"_formulas/{self.name}.py": self.data,
            f"{self.name}.py": self.text,
            f"{self.name}.pyi": self.types,
        }


def generate(function: Function, target: str = "cpu") -> Generated:
    """Generate the module of a function. Raises UnsupportedError for an unknown target, and for an
    operation without a kernel for it."""
    record = find_target(target)
    name = module_name(function.name, target)
    with stated_depth(function.name):
        try:
            text, data, support = record.emit(module := describe(function, target))
        except UnsupportedError as error:
            raise UnsupportedError(f"{function.name}: {error}") from error
    types = stub_text(name, module, record)
    return Generated(name, text, str(module.facts["DIGEST"]), support, data, types)


def module_name(name: str, target: str) -> str:
    """Return the name of a function's module for a target: square, square_cuda."""
    return name + find_target(target).suffix


def kernel_plan(derivatives: Derivatives, kind: str, target: str = "cpu") -> Plan:
    """Plan the kernel that computes one kind of derivative."""
    return kernel_plans(derivatives, [kind], target)[kind]


def kernel_plans(derivatives: Derivatives, kinds: Iterable[str], target: str) -> dict[str, Plan]:
    """Plan the kernels of kinds of derivatives: one kernel for kinds that compute the same, as the
    gradient of a scalar function is its Jacobian."""
    plan_kernel = find_target(target).plan
    plan_by_outputs: dict[object, Plan] = {}
    plans: dict[str, Plan] = {}
    for kind in kinds:
        arguments, results = derivatives.kernel(kind)
        names = output_names(results)
        outputs = tuple((names[key], node) for key, node in results.items())
        computed = tuple(arguments), outputs
        if computed not in plan_by_outputs:
            plan_by_outputs[computed] = plan_kernel(f"{kind}_kernel", arguments, outputs)
        plans[kind] = plan_by_outputs[computed]
    return plans


def operator_plan(derivatives: Derivatives, operators: Structured) -> Plan:
    """Plan the kernel that computes the arrays of the operators."""
    kind = operators.kind
    arguments, _ = derivatives.kernel(kind)
    return threaded_plan(f"{kind}_parts_kernel", arguments, list(operators.computed.items()))


def output_names(keys: Iterable[Key]) -> dict[Key, str]:
    """Name the output arrays of a kernel: out; or, of several, out_value, out_X, out_X_y, where
    underscores make a name distinct, as for an input called `value`."""
    keys = list(keys)
    if len(keys) == 1:
        return {keys[0]: "out"}
    names: dict[Key, str] = {}
    for key in keys:
        name = "_".join(["out", *key]) if key else "out_value"
        while name in names.values():
            name += "_"
        names[key] = name
    return names


def describe(function: Function, target: str = "cpu") -> ModuleDescription:
    """Describe the contents of a module, from which a target makes its text."""
    derivatives = function.derivatives
    plans = kernel_plans(derivatives, function.kinds, target)
    functions = [
        FunctionDescription(
            name=kind,
            formulas=_equations(derivatives, kind),
            plan=plans[kind],
            result=_result(derivatives, kind),
            cotangents=len(function.output_names) if kind == "vjp" else 0,
        )
        for kind in function.kinds
    ]
    has_operator = function.operator and find_target(target).operators
    operator = _operator(derivatives, function.kinds) if has_operator else None
    parts = operator.function.plan.outputs if operator else ()
    return ModuleDescription(
        name=function.name,
        docstring=_docstring(function, target, operator.structured if operator else None),
        facts={
            **interface(function),
            "OPERATOR": operator.function.name if operator else "",
            "PARTS": tuple(len(buffer.shape) for _, buffer in parts),
            "TARGET": target,
            "DECLARATION": _of_outputs(function.declarations),
            "DIGEST": digest(function, target),
            **({"PRIMAL": digest(function.primal, target)} if function.primal else {}),
        },
        formulas=_formulas(derivatives, _shown_kinds(function)),
        functions=functions,
        operator=operator,
    )


def _equations(derivatives: Derivatives, kind: str) -> tuple[str, ...]:
    """List the formulas of one kind, with their left-hand sides."""
    kinds = ("value", "gradient") if kind == "value_and_gradient" else (kind,)
    return tuple(
        line for kind in kinds for line in derivatives.equation_lines(kind, on_one_line=True)
    )


def interface(function: Function) -> dict[str, object]:
    """Return the constants of a module that describe its function's inputs and output."""
    return {
        "INPUTS": tuple(_input(function, leaf) for leaf in function.inputs),
        "OUTPUT": _of_outputs(
            {
                name: {
                    "shape": tuple(index(size) for size in node.shape),
                    "batched": bool(function.batch),
                }
                for name, node in function.outputs
            }
        ),
        "WRT": function.wrt,
        "REQUIREMENTS": function.requirements,
        "FUNCTIONS": function.kinds,
    }


def _of_outputs(values: Mapping[str, object]) -> object:
    """Return the value for the only output without a name, or all by the names of the outputs."""
    return values.get("", values)


def _operator(derivatives: Derivatives, kinds: Collection[str]) -> OperatorDescription:
    """Describe the function that returns the Jacobian's or the Hessian's operators."""
    operators = structured(derivatives, kinds)
    kind = operators.kind
    result = _with_prefix(_result(derivatives, kind), "operator")
    plan = operator_plan(derivatives, operators)
    function = FunctionDescription(f"{kind}_operator", (), plan, result)
    return OperatorDescription(function, operators)


def _with_prefix(result: Result, prefix: str) -> Result:
    """Replace the prefix "out" in the names of a result."""
    if isinstance(result, str):
        return prefix + result.removeprefix("out")
    return tuple((name, _with_prefix(part, prefix)) for name, part in result)


def _result(derivatives: Derivatives, kind: str) -> Result:
    """Nest the names of a kernel's outputs as the public function returns them: by outputs, then by
    inputs; of a Hessian by two inputs."""
    function, names = derivatives.function, derivatives.function.wrt
    outputs = output_names(derivatives.results(kind))
    if kind == "value_and_gradient":
        gradient = _by_input(outputs, (), names)
        return (("value", outputs[()]), ("gradient", gradient))
    if kind == "hessian" and len(names) == 1:
        return outputs[*names, *names]
    columns = () if kind in ("value", "jvp") else names
    rows = function.output_names if kind != "vjp" else ()
    rows = names if kind == "hessian" else rows
    if not rows:
        return _by_input(outputs, (), columns)
    return tuple((row, _by_input(outputs, (row,), columns)) for row in rows)


def _by_input(outputs: Mapping[Key, str], row: Key, columns: Sequence[str]) -> Result:
    """Nest the names of a row of results by inputs; the array itself if there is only one."""
    if len(columns) > 1:
        return tuple((column, outputs[*row, column]) for column in columns)
    return outputs[*row, *columns]


def _input(function: Function, leaf: Leaf) -> dict[str, object]:
    return {
        "name": leaf.name,
        "shape": tuple(str(size) for size in leaf.shape),
        "structure": leaf.structure,
        "batched": leaf.name in function.batch,
        "wrt": leaf.name in function.wrt,
        "domain": function.domains.get(leaf.name, ""),
    }


def _shown_kinds(function: Function) -> list[str]:
    """List the kinds with formulas in a module: the gradient for `value_and_gradient`."""
    kinds = {"gradient" if kind == "value_and_gradient" else kind for kind in function.kinds}
    return [kind for kind in function.derivatives.kinds if kind in kinds]


def _formulas(
    derivatives: Derivatives, kinds: Sequence[str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Map kinds to keys ("" for a value, "A, b" for a block of a Hessian) to styles to formulas,
    without the vec styles, which not all derivatives have."""
    return {
        kind: {
            ", ".join(key): {
                name: derivatives.formula(kind, key, name)
                for name, style in STYLES.items()
                if not style.vec
            }
            for key in derivatives.results(kind)
        }
        for kind in kinds
    }


def _docstring(function: Function, target: str, operators: Structured | None) -> str:
    derivatives = function.derivatives
    restrictions, kinds = [*_restrictions(function)], _shown_kinds(function)
    inputs = [f"{leaf.name}{list(leaf.shape) if leaf.ndim else ''}" for leaf in function.inputs]
    lines = [
        f"Generated by derivatrix {__version__} from the declaration of `{function.name}`"
        f"{find_target(target).place}. Do not edit.",
        "",
        f"{function.name}({', '.join(inputs)}) -> {function.result_text}"
        f"{' where ' if restrictions else ''}{', '.join(restrictions)}",
        "",
        "Formulas" + (", for one sample" if function.batch else ""),
        *(f"- {line}" for line in derivatives.equations(kinds=kinds, on_one_line=True)),
        *(f"- {line}" for line in (operators.lines() if operators else ())),
        "",
        "Conventions",
        *(f"- {line}" for line in _conventions(function, target)),
    ]
    return "\n".join(part for line in lines for part in wrapped(line, 100, "  ") or [""]) + "\n"


def _restrictions(function: Function) -> Iterator[str]:
    """Yield the structures of inputs, and which have batch axes."""
    for leaf in function.inputs:
        if leaf.structure != "general":
            yield f"{leaf.name} is {leaf.structure}"
    if function.batch:
        yield f"any number of batch axes comes before those of {' and '.join(function.batch)}"


def _conventions(function: Function, target: str) -> list[str]:
    lines = [
        "a bar marks a cotangent, a dot a tangent; a Jacobian is J[out..., in...]",
        "results are new arrays unless `out` is given, float32 if all arrays are, else float64",
        *find_target(target).conventions,
    ]
    if function.primal:
        lines.append(
            f"the value is the jvp of {function.primal.name}, for the directions after its inputs; "
            f"the vjp and jvp are second derivatives of {function.primal.name}"
        )
    projected = [
        f"{leaf.name} ({leaf.structure})" for leaf in function.inputs if leaf.structure in PROJECTED
    ]
    if projected:
        lines.append(
            f"derivatives by {', '.join(projected)} are projected on the structure: symmetric "
            "part, triangle, diagonal, or what is tangential to orthogonal matrices"
        )
        lines.append(
            "for a full array, functions read the nearest array of an input's structure (symmetric "
            "part, triangle, diagonal); they do not check whether it is definite or orthogonal"
        )
    if function.batch:
        lines.append(
            "everything is per sample, and batch axes broadcast; only the vjp of an input without "
            "batch axes is summed over the samples"
        )
    return lines


def digest(function: Function, target: str = "cpu") -> str:
    """Compute a digest of all that the module's text depends on: the declaration, the target and
    this compiler."""
    parts = (
        __version__,
        target,
        _compiler_digest(),
        function.name,
        function.inputs,
        function.outputs,
        function.wrt,
        function.batch,
        function.selection,
        digest(function.primal, target) if function.primal else "",
    )
    return hashlib.blake2b(content(parts).encode(), digest_size=16).hexdigest()


@cache
def _compiler_digest() -> str:
    """Compute a digest of the files of the compiler and the templates: any of them may change
    generated text."""
    state = hashlib.blake2b(digest_size=16)
    for package in ("derivatrix.compiler", "derivatrix.templates"):
        for name, text in sorted(_sources(resources.files(package), package)):
            state.update(name.encode())
            state.update(text)
    return state.hexdigest()


def _sources(folder: Traversable, name: str) -> list[tuple[str, bytes]]:
    sources = []
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith((".", "__")):
            sources += _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".jinja")):
            sources.append((f"{name}/{entry.name}", entry.read_bytes()))
    return sources


def _dump_declare(function: Function, target: str) -> str:
    inputs = [
        f"{leaf.name}: {shape_text(leaf.shape)} {leaf.structure}"
        + (" batch" if leaf.name in function.batch else "")
        + (" wrt" if leaf.name in function.wrt else "")
        for leaf in function.inputs
    ]
    outputs = [f"{name} = {render(node, 'unicode')}".lstrip() for name, node in function.outputs]
    return "\n".join([f"function {function.name}", *inputs, *outputs])


def _dump_differentiate(function: Function, target: str) -> str:
    derivatives = function.derivatives
    tangents: dict[Node, Node] = {leaf: derivatives.tangent(leaf) for leaf in derivatives.wrt}
    values = derivatives.results("value")
    jvps = differentials([*values.values()], tangents)
    return listing({" ".join(("jvp", *key)): jvp for key, jvp in zip(values, jvps, strict=True)})


def _dump_simplify(function: Function, target: str) -> str:
    derivatives = function.derivatives
    return "\n\n".join(
        listing(
            {derivatives.title(kind, key): node for key, node in derivatives.batched(kind).items()}
        )
        for kind in function.kinds
    )


def _dump_plan(function: Function, target: str) -> str:
    derivatives = function.derivatives
    plans = [kernel_plan(derivatives, kind, target) for kind in function.kinds]
    if function.operator and find_target(target).operators:
        operators = structured(derivatives, function.kinds)
        plans.append(operator_plan(derivatives, operators))
    return "\n\n".join(str(plan) for plan in plans if plan.outputs)


_DUMPS: Mapping[str, Callable[[Function, str], str]] = {
    "declare": _dump_declare,
    "lower": lambda function, target: listing(
        {name or "value": node for name, node in function.outputs}
    ),
    "differentiate": _dump_differentiate,
    "simplify": _dump_simplify,
    "plan": _dump_plan,
    "emit": lambda function, target: generate(function, target).text,
}

STAGES = tuple(_DUMPS)


def dump(function: Function, stage: str, target: str = "cpu") -> str:
    """Print the result of a stage for a function. Raises DeclarationError for an unknown stage."""
    if not isinstance(stage, str) or stage not in _DUMPS:
        raise DeclarationError(f"there is no stage {shown(stage)}; choose from {', '.join(STAGES)}")
    find_target(target)
    with stated_depth(function.name):
        return _DUMPS[stage](function, target)
