"""The public functions of generated modules, as texts for the templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.descriptions import (
    FunctionDescription,
    ModuleDescription,
    OperatorDescription,
    Result,
)
from derivatrix.compiler.dimensions import LENGTH
from derivatrix.compiler.indices import index
from derivatrix.compiler.plan.names import Names
from derivatrix.compiler.plan.parts import OPERATIONS
from derivatrix.compiler.plan.rows import GAIN
from derivatrix.compiler.plan.sizes import product
from derivatrix.compiler.plan.steps import Plan, Size
from derivatrix.compiler.structured.text import operator_lines

WIDTH = 100
LARGE_BLOCK = 16384
"""Results of more entries in all may be memory that malloc gives back to the system and asks for
again at each call."""


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
    large; that is more than `large`. real: the dtype of the results; `retyped` says it of arguments
    that were not ready, `typed` of all. lengths: the axes of the arguments, to be read from their
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
    large: int
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
        inputs=tuple_text(parameters),
        targets=_targets(parameters),
        expected=f"_{function.name.upper()}",
        retyped="" if _mixed(plan) else f"{real} = {_real(plan)}",
        typed=f"{real} = {_real(plan)}" if _mixed(plan) else "",
        lengths=sizes.lengths,
        sizes=sizes.lines,
        conditions=" or ".join([*sizes.conditions, *refused]),
        real=real,
        block=_block(plan, sizes),
        large=LARGE_BLOCK,
        results=tuple(map(ResultText, locals_, shapes)),
        shapes=tuple_text(shapes),
        call=_call(plan, sizes, ", ".join([*parameters, *locals_])),
        unpacked=_targets(locals_),
        inner=tuple_text(locals_),
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
    return sizes.text(sympy.Add(*counts))


def parted(plan: Plan) -> str:
    """The name of what calls a kernel in parts."""
    return f"_{plan.name}_in_parts"


def _call(plan: Plan, sizes: _Sizes, passed: str) -> str:
    """The call of the kernel, or of what has threads share it where that gains."""
    few = ""
    plain, among = f"{plan.name}({passed})", f"{parted(plan)}({passed})"
    if plan.parts is not None:
        work, enough = plan.parts.work, OPERATIONS
    elif plan.rows is not None:
        work, enough = plan.rows.gain, GAIN
    elif plan.sums is not None:
        sums = plan.sums
        work, enough = sums.work * sums.samples, sums.enough
        shapes = tuple_text(sizes.shape(shape) for shape in sums.shapes)
        costs = [sizes.text(cost) for cost in (sums.entries, sums.work, sums.fixed)]
        among = f"{parted(plan)}({', '.join([shapes, *costs, passed])})"
        if sums.least > 1:
            few = f"{sizes.text(sums.samples)} < {sums.least} or "
    else:
        return plain
    return f"{plain} if {few}{sizes.text(work)} < {enough} else {among}"


def operator_text(
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
        replace(text, value=value, inner=tuple_text(arrays)),
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
        return tuple_text(index(self.renamed(size)) for size in shape)

    def text(self, polynomial: sympy.Expr) -> str:
        """Arithmetic of sizes as text."""
        return index(sympy.factor_terms(self.renamed(polynomial)))

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


def tuple_text(parts: Iterable[str]) -> str:
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
