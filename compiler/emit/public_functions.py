"""Public functions of a module: their parameters, shapes and docstrings, for all targets.

They are functions of Python in the second file. A leading underscore is on all names that they read
and that are none of the declaration or of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy

from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription, Result
from derivatrix.compiler.emit.signatures import inner_title, lengths, title
from derivatrix.compiler.emit.texts import code_lines, quoted
from derivatrix.compiler.ir.dimensions import BATCH, LENGTH
from derivatrix.compiler.ir.dimensions import symbol as dimension_symbol
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.plan.steps import Plan, Size
from derivatrix.compiler.plan.visit import can_fail
from derivatrix.templates.support.common.module import BATCH_AXES

SUMMARIES = {
    "value": "The value.",
    "vjp": "The cotangents of the inputs, given the cotangent of the value.",
    "jvp": "The tangent of the value, given the tangents of the inputs.",
    "jacobian": "The Jacobian J[out..., in...], of shape (*out.shape, *in.shape).",
    "gradient": "The gradient.",
    "value_and_gradient": "The value and the gradient.",
    "hessian": "The Hessian H[in..., in...].",
    "hvp": "The Hessian times the tangents of the inputs.",
    "jacobian_operator": "The Jacobian as a linear map, an array only where it is asked for.",
    "hessian_operator": "The Hessian as a linear map, an array only where it is asked for.",
}
"""First lines of the docstrings."""


def variable(plan: Plan, name: str) -> str:
    """Return the local variable of a parameter; a size of its name has that name."""
    return f"_given_{name}" if name in {size.name for size in plan.sizes} else name


def size_lines(
    plan: Plan, sizes: Iterable[Size] | None = None, first: str = "{}.shape[0]"
) -> list[str]:
    """Write the assignments of sizes, of all by default, each of which refers to earlier ones.
    first: how the length of a first axis is read."""
    lines = []
    for size in plan.sizes if sizes is None else sizes:
        array = variable(plan, size.argument.name)
        text = f"{array}.shape[{size.axis}]" if size.axis else first.format(array)
        lines.append(f"{size.name} = {index(size.value.xreplace({LENGTH: sympy.Symbol(text)}))}")
    return lines


def sizes_of(plan: Plan, conditions: Iterable[sympy.Expr]) -> list[Size]:
    """List the sizes that results' shapes and conditions have, and those that these are read with,
    in the order in which they are read."""
    outputs = [length for _, buffer in plan.outputs for length in buffer.shape]
    needed = sympy.Tuple(*outputs, *conditions).free_symbols
    sizes: list[Size] = []
    for size in reversed(plan.sizes):
        if dimension_symbol(size.name) in needed:
            sizes.insert(0, size)
            needed |= size.value.free_symbols
    return sizes


class PublicFunction:
    """The texts that a public function is made of. The local variable of a size has its name, that
    of a result is `_array_NAME`; `_axes` are the batch axes, `_results` the results with these.

    kinds: those whose formulas it shows. requirements: conditions on sizes. inputs, outputs: local
    variables of what the kernel takes and fills; array_inputs, scalars: those with axes and
    without. output_shapes: of what the kernel fills; result_shapes: with all batch axes. out: the
    local variable of the parameter `out`. expected: the `_Expected` that conversions take. dtype:
    of the results, for converted arguments. returned: the return value, of `result_variables`;
    pattern: what unpacks `out`. result_types: the fields of the named tuples in it."""

    def __init__(self, function: FunctionDescription, module: ModuleDescription) -> None:
        plan, result, path = function.plan, function.result, title(function.name)
        self.function, self.module, self.plan, self.name = function, module, plan, function.name
        entries: Any = module.facts["INPUTS"]
        self.has_batch = any(entry["batched"] for entry in entries)
        self.requirements: Any = module.facts["REQUIREMENTS"]
        self.is_operator = self.name.endswith("_operator")
        self.kinds = self.name.removesuffix("_operator").split("_and_")
        self.inputs = [variable(plan, argument.name) for argument in plan.arguments]
        self.array_inputs = [variable(plan, a.name) for a in plan.arguments if a.shape]
        self.variables = {name: f"_array_{buffer.name}" for name, buffer in plan.outputs}
        self.outputs = [*self.variables.values()]
        self.scalars = [self.variables[name] for name, buffer in plan.outputs if not buffer.shape]
        shapes = [buffer.shape for _, buffer in plan.outputs]
        self.output_shapes = [tuple_text(lengths(shape)) for shape in shapes]
        self.result_shapes = [tuple_text(self._shape(shape, "*_axes")) for shape in shapes]
        self.out = variable(plan, "out")
        self.expected = f"_{self.name}_expected"
        arrays = self.array_inputs
        self.dtype = f"{arrays[0]}.dtype" if arrays else f"_real({self.inputs[0]})"
        self.result_variables = [self._pattern(name) for name, _ in _paths(result, "")]
        self.pattern, self.returned = self._pattern(result), self._returned(result, path)
        self.result_types = dict(_types(result, path))
        names = [argument.name for argument in plan.arguments]
        split = len(names) - function.cotangents
        self._inputs, self._cotangents = names[:split], self.inputs[split:]
        names[split:] = [name.replace("_", ".", 1) for name in names[split:]]
        shapes = [argument.shape for argument in plan.arguments]
        self._arguments = tuple(zip(names, map(self._shape, shapes), strict=True))

    def _shape(self, shape: Iterable[sympy.Expr], axes: str = BATCH_AXES) -> tuple[str, ...]:
        """Write the shape of an argument or a result with `axes` for all batch axes."""
        return tuple(axes if self.has_batch and n == BATCH else index(n) for n in shape)

    def _pattern(self, result: Result) -> str:
        if isinstance(result, str):
            return self.variables.get(result, f"_array_{result}")
        return tuple_text(self._pattern(part) for _, part in result)

    def _returned(self, result: Result, path: str) -> str:
        if isinstance(result, str):
            return self._pattern(result)
        parts = tuple_text(self._returned(part, inner_title(path)) for _, part in result)
        return f"_named(_{path}, {parts})"

    @property
    def kernel_results(self) -> str:
        """Views of the results as the kernel takes them, with one batch axis."""
        if self.output_shapes == self.result_shapes:
            return "_results"
        shapes = zip(self.output_shapes, self.result_shapes, strict=True)
        return tuple_text(
            f"_results[{position}]{'' if shape == full_shape else f'.reshape({shape})'}"
            for position, (shape, full_shape) in enumerate(shapes)
        )

    def shape_check(self, refusal: str) -> list[str]:
        """Write the lines that run `refusal` if a shape is not the expected one, or a requirement
        is not met."""
        shapes = [tuple_text(lengths(a.shape)) for a in self.plan.arguments if a.shape]
        pairs = zip(self.array_inputs, shapes, strict=True)
        conditions = [f"{name}.shape != {shape}" for name, shape in pairs]
        conditions += [f"not ({requirement})" for requirement in self.requirements]
        return if_lines(" or ".join(conditions), [refusal]) if conditions else []

    def definition(self, body: Iterable[str]) -> list[str]:
        """Write the function, and before it the `_Expected` by which arguments are converted."""
        paths = dict(_paths(self.function.result, "out"))
        places = tuple(paths.get(name, buffer.name) for name, buffer in self.plan.outputs)
        parameters = [*self._inputs, *(["cotangent"] if self._cotangents else [])]
        parameters += [] if self.is_operator else ["*", "out=None"]
        renamed = [name for name in (*self._inputs, "out") if variable(self.plan, name) != name]
        lines = [f"{variable(self.plan, name)} = {name}" for name in renamed]
        if self._cotangents:  # several outputs have one parameter
            inputs = tuple_text(self.inputs[: len(self._inputs)])
            split = f"_cotangents({self.expected}, {inputs}, cotangent)"
            lines.append(f"{tuple_text(self._cotangents)} = {split}")
        fields = repr(self.module.name), repr(self._arguments), "REQUIREMENTS", repr(places)
        docstring = quoted("\n".join(self._documentation()))
        return [
            *code_lines(f"{self.expected} = _Expected({', '.join(fields)})"),
            "",
            *code_lines(f"def {self.name}({', '.join(parameters)}):"),
            *indented(f'"""{docstring}\n"""'.split("\n")),
            *wrapped_code(indented([*lines, *body])),
            "",
        ]

    def _documentation(self) -> Iterator[str]:
        """Yield the lines of the docstring."""
        yield from (SUMMARIES[self.name], "")
        yield "Formulas, for one sample" if self.has_batch else "Formulas"
        for kind in self.kinds:
            for key, styles in self.module.formulas.get(kind, {}).items():
                yield f"    {f'by {key}' if key else kind}: {styles['unicode']}"
        yield from ("", "Arguments")
        yield from (f"    {name}: shape {tuple_text(shape)}" for name, shape in self._arguments)
        if self._cotangents:
            yield "    cotangent is a tuple of these; None stands for zeros"
        if not self.is_operator:
            yield from ("    out: where results are put; new arrays by default", "", "Result")
            paths = dict(_paths(self.function.result, "result"))
            for name, buffer in self.plan.outputs:
                shape = tuple_text(self._shape(buffer.shape))
                yield f"    {paths.get(name, buffer.name)}: shape {shape}"
        yield from ("", "Errors", "    TypeError: an argument holds no real numbers")
        requirements = "".join(f", or sizes without {text}" for text in self.requirements)
        yield f"    ValueError: an argument has another shape{requirements}"
        if can_fail(self.plan):
            yield "    numpy.linalg.LinAlgError: an operation fails, as for a singular matrix"


def definitions(
    bodies: Iterable[tuple[PublicFunction, list[str]]], kernels: Mapping[str, str]
) -> list[str]:
    """Write public functions, given with their bodies, the named tuples that they return, and
    `_public`, of what the module gets: these, and `kernels`."""
    functions, types, public = list[str](), dict[str, str](), dict(kernels)
    for function, body in bodies:
        functions += function.definition(body)
        public |= {function.name: function.name}
        for name, fields in function.result_types.items():
            types[name] = f"_{name} = namedtuple({name!r}, {fields!r}, module=__name__)"
            public[name] = f"_{name}"
    rows = [f"    {name!r}: {value}," for name, value in public.items()]
    heading = ["# Public functions", "", *types.values(), *([""] if types else [])]
    return [*heading, *functions, "_public = {", *rows, "}"]


def if_lines(
    condition: str, body: Sequence[str], alternative: Sequence[str] | None = None
) -> list[str]:
    """Print an if statement, with an else branch if there is an alternative. A long condition has
    parentheses, within which it can be wrapped."""
    text = condition if len(condition) < 80 else f"({condition})"
    branch = [] if alternative is None else ["else:", *indented(alternative)]
    return [f"if {text}:", *indented(body), *branch]


def indented(lines: Iterable[str]) -> list[str]:
    """Indent lines by one level."""
    return [f"    {line}" if line else line for line in lines]


def wrapped_code(lines: Iterable[str]) -> list[str]:
    """Break the lines of code that are too long."""
    return [piece for line in lines for piece in code_lines(line)]


def signature(plan: Plan) -> dict[str, object]:
    """Describe the parameters of a kernel, and how the sizes in their shapes are read."""
    return {
        "inputs": {variable(plan, a.name): lengths(a.shape) for a in plan.arguments},
        "outputs": {variable(plan, b.name): lengths(b.shape) for _, b in plan.outputs},
        "sizes": dict(line.split(" = ") for line in size_lines(plan)),
    }


def _paths(result: Result, path: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the arrays in a result, with their paths."""
    if isinstance(result, str):
        yield result, path
    else:
        for field, part in result:
            yield from _paths(part, f"{path}.{field}")


def _types(result: Result, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the names and fields of the named tuples in a result."""
    if not isinstance(result, str):
        yield path, tuple(field for field, _ in result)
        for _, part in result:
            yield from _types(part, inner_title(path))
