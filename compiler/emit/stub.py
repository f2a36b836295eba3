"""Stubs: the types of a generated module, for type checkers and editors.

Arguments are values of real numbers. Results are arrays of float64; of float32 if all arrays are;
or of the type of `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription, Result
from derivatrix.compiler.emit.signatures import inner_title, title
from derivatrix.compiler.emit.skeleton import environment
from derivatrix.compiler.emit.target import Target
from derivatrix.compiler.emit.texts import literal
from derivatrix.compiler.ir.dimensions import BATCH, Shape
from derivatrix.compiler.plan.steps import Plan
from derivatrix.templates.support.common.module import FACTS
from derivatrix.version import VERSION

METHODS = ("count", "index")
"""Methods of tuples, which a field of the same name hides."""


@dataclass(frozen=True)
class TupleText:
    """The class of a named tuple; fields: (name, type, whether it hides a method)."""

    name: str
    bases: str
    fields: Sequence[tuple[str, str, bool]]


def stub_text(name: str, module: ModuleDescription, target: Target) -> str:
    """Render the stub of the module called `name`."""
    on_host = target.kernel_functions
    classes = _tuples(module, on_host)
    names = [function.name for function in module.everything]
    kernels = [f"{function.name}_kernel" for function in module.functions if on_host]
    kernels += ["KERNELS"] if target.kernel_table else []
    public = [*FACTS, *kernels, *names, *(named_tuple.name for named_tuple in classes)]
    rows = [named_tuple.fields for named_tuple in classes if named_tuple.name.endswith("Row")]
    has_outputs = not isinstance(module.facts["DECLARATION"], str)
    shapes = [a.shape for function in module.everything for a in function.plan.arguments]
    return (
        environment()
        .get_template("stub.pyi.jinja")
        .render(
            version=VERSION,
            name=name,
            on_host=on_host,
            kernel_table=target.kernel_table,
            public=literal(sorted(public)),
            operators=module.operator is not None,
            declaration_type="dict[str, str]" if has_outputs else "str",
            ranks=max(map(len, shapes)),
            sample_ranks=sorted({len(shape) - 1 for shape in shapes if shape[:1] == (BATCH,)}),
            row_types=[f"_{place}" for place in range(max(map(len, rows), default=0))],
            tuples=classes,
            functions=_functions(module) if on_host else _untyped(module),
        )
    )


# Named tuples


@dataclass(frozen=True)
class _Leaves:
    """The types of the arrays in a result: `array`, or `number` for those of rank 0. bare: whether
    named tuples have no type parameters."""

    ranks: Mapping[str, int]
    array: str
    number: str
    bare: bool = False

    def leaf(self, name: str) -> str:
        return self.array if self.ranks.get(name, 1) else self.number

    def type(self, result: Result, path: str) -> str:
        """Write the type of a result whose named tuple is called `path`."""
        if isinstance(result, str):
            return self.leaf(result)
        if self.bare:
            return path
        kinds = [self.array, self.number]
        if path.endswith("Row"):
            kinds = [self.leaf(part) for _, part in result if isinstance(part, str)]
        return f"{path}[{', '.join(kinds)}]"


OPERATORS = _Leaves({}, "_Operator", "", bare=True)
UNTYPED = _Leaves({}, "Any", "", bare=True)


def _tuples(module: ModuleDescription, on_host: bool) -> list[TupleText]:
    """List the classes of all named tuples, inner ones first."""
    classes: dict[str, TupleText] = {}

    def add(result: Result, path: str, leaves: _Leaves) -> None:
        if isinstance(result, str):
            return
        for _, part in result:
            add(part, inner_title(path), leaves)
        row = path.endswith("Row") and not leaves.bare
        types = [
            f"_{place}" if row else leaves.type(part, inner_title(path))
            for place, (_, part) in enumerate(result)
        ]
        varying = types if row else [leaves.array, leaves.number]
        bases = "NamedTuple" if leaves.bare else f"NamedTuple, Generic[{', '.join(varying)}]"
        fields = [(n, t, n in METHODS) for (n, _), t in zip(result, types, strict=True)]
        classes.setdefault(path, TupleText(path, bases, fields))

    for function in module.everything:
        if function not in module.functions:
            leaves = OPERATORS
        elif on_host:
            leaves = _Leaves(_ranks(function.plan), "_Array", "_Number")
        else:
            leaves = UNTYPED
        add(function.result, title(function.name), leaves)
    return list(classes.values())


def _ranks(plan: Plan) -> dict[str, int]:
    """Map the results to their ranks."""
    return {name: len(buffer.shape) for name, buffer in plan.outputs}


# Functions


def _functions(module: ModuleDescription) -> Iterator[str]:
    """Write the kernels and public functions for the CPU."""
    for function in module.functions:
        plan = function.plan
        inputs = [(a.local, "NDArray[_Real]" if a.shape else "_Rank0") for a in plan.arguments]
        outputs = [(buffer.name, "NDArray[_Real]") for _, buffer in plan.outputs]
        yield _definition(f"{function.name}_kernel", [*inputs, *outputs], "", "None")
    for function in module.functions:
        yield from _overloads(function)
    if module.operator is not None:
        function = module.operator.function
        result_type = OPERATORS.type(function.result, title(function.name))
        yield _definition(function.name, _parameters(function), "", result_type)


def _overloads(function: FunctionDescription) -> Iterator[str]:
    """Write the overloads of a public function: for float32, for float64, and with `out`."""
    plan, ranks, path = function.plan, _ranks(function.plan), title(function.name)
    without_out = "out: None = None"
    arrays = any(argument.shape for argument in plan.arguments)
    exact = "NDArray[np.float32]" if arrays else "np.float32"
    narrow = _parameters(function, lambda kind: exact if kind != "_Rank0" or not arrays else kind)
    result = function.result
    single = _Leaves(ranks, "NDArray[np.float32]", "np.float32").type(result, path)
    double = _Leaves(ranks, "NDArray[np.float64]", "np.float64").type(result, path)
    out_result = _Leaves(ranks, "NDArray[_Real]", "NDArray[_Real]").type(result, path)
    with_out = f"out: {_nested(result)}"
    yield "@overload"
    yield _definition(function.name, narrow, without_out, single)
    yield "@overload"
    yield _definition(function.name, _parameters(function), without_out, double)
    yield "@overload"
    yield _definition(function.name, _parameters(function), with_out, out_result)


def _untyped(module: ModuleDescription) -> Iterator[str]:
    """Write the public functions for devices, whose arrays are CuPy's."""
    for function in module.functions:
        inputs = [(name, "Any") for name, _ in _parameters(function)]
        result_type = UNTYPED.type(function.result, title(function.name))
        yield _definition(function.name, inputs, "out: Any = None", result_type)


def _parameters(
    function: FunctionDescription, type_of: Callable[[str], str] = lambda kind: kind
) -> list[tuple[str, str]]:
    """Return the names and types of the public parameters, where the cotangents of several outputs
    are one tuple. type_of: replaces types such as "_Rank1" by others."""
    arguments = function.plan.arguments
    parameters = [(a.name, type_of(_parameter_type(a.shape))) for a in arguments]
    if not function.cotangents:
        return parameters
    types = ", ".join(f"{kind} | None" for _, kind in parameters[-function.cotangents :])
    return [*parameters[: -function.cotangents], ("cotangent", f"tuple[{types}]")]


def _parameter_type(shape: Shape) -> str:
    return f"_Batch{len(shape) - 1}" if shape[:1] == (BATCH,) else f"_Rank{len(shape)}"


def _nested(result: Result) -> str:
    """Write the type of `out`: arrays in tuples of the structure of the result."""
    if isinstance(result, str):
        return "NDArray[_Real]"
    return f"tuple[{', '.join(_nested(part) for _, part in result)}]"


def _definition(name: str, inputs: list[tuple[str, str]], keyword: str, result: str) -> str:
    parameters = [f"{argument}: {kind}" for argument, kind in inputs]
    parameters += [f"*, {keyword}"] if keyword else []
    return f"def {name}({', '.join(parameters)}) -> {result}: ..."
