"""The public functions of generated modules, as texts for the templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import sympy

from derivatrix.compiler.emit.description import (
    FunctionDescription,
    ModuleDescription,
    OperatorDescription,
    Result,
)
from derivatrix.compiler.emit.sources import Sources
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import condition_text, index, tuple_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import Columns, Gemm, Newton, Plan, Size, Sums
from derivatrix.compiler.structured.operator_text import operator_lines
from derivatrix.templates.support.common.limits import _LARGE, _SHARED

WIDTH = 100
HELD = 120_000
"""So many numbers in memory at once stay in the cache."""
DENSE = 40
"""Where each is used in so many operations, it is no gain that they do."""
FEW = 344
"""How many samples are computed at a time, side by side, where they are no work for threads."""


@dataclass(frozen=True)
class ResultText:
    """An array that a public function returns: its local name and its shape."""

    name: str
    shape: str


@dataclass(frozen=True)
class FunctionText:
    """A public function, as texts for the template.

    parameters: the names of the arguments; signature: with `out`. quick: what a call with arrays
    as the kernel takes them needs. inputs: a tuple of the arguments; targets: the same, to be
    assigned to. expected: the name of the constant that says which shapes they have. real: the name
    of the dtype of the results, which is `dtype`. lengths: the axes of the arguments, to be read
    from their shapes; sizes: what follows from them; conditions: true if the shapes are others than
    expected. results: the arrays; shapes: a tuple of their shapes. call: of the kernel. unpacked:
    the results, to be assigned to; inner: a tuple of them. value, delivered: what is returned
    without `out` and with it. run: the name of the run of a call, on a device.
    """

    name: str
    summary: str
    parameters: str
    signature: str
    out: str
    quick: QuickText
    inputs: str
    targets: str
    expected: str
    real: str
    dtype: str
    lengths: tuple[str, ...]
    sizes: tuple[str, ...]
    conditions: str
    results: tuple[ResultText, ...]
    shapes: str
    call: tuple[str, ...]
    unpacked: str
    inner: str
    value: str
    delivered: str
    run: str


@dataclass(frozen=True)
class QuickText:
    """A call with nothing before the kernel but what it takes to have arrays for the results.

    sizes: lines that read them from the arguments; few: the condition under which there is so
    little to do that it pays, "" for always; plain: that the arrays of `out` are NumPy's own.
    before: true if the kernel is to be called, "" for
    always. ready: the name of the kernel that refuses what it is not compiled for; passed: what it
    is called with. kernels: the names of those for which there is such a one, and its name.
    unpacked: the arrays of `out`, to be assigned to.
    """

    sizes: tuple[str, ...]
    few: str
    plain: str
    before: str
    ready: str
    kernels: tuple[tuple[str, str], ...]
    passed: str
    unpacked: str


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
    required = [sizes.condition(requirement) for requirement in module.requirements]
    title = "".join(word.capitalize() for word in function.name.split("_"))
    passed = ", ".join([*parameters, *locals_])
    few, _ = _shared(plan, sizes, passed)
    columns = plan.parts.columns if plan.parts else None
    before = _by_columns(plan, sizes, passed)
    kernels = [(plan.name, ready(plan))]
    if before:
        last = columns.kernel if columns else plan
        kernels.append((f"{last.name}_shared", f"{sharing(last)}_ready"))
    little = _little(plan.sums, sizes) if plan.sums else few
    conditions = [*required, *_small(plan, sizes), *([little] if little else [])]
    return FunctionText(
        name=function.name,
        summary=function.summary,
        parameters=", ".join(parameters),
        signature=", ".join([*parameters, "*", f"{out}=None"]),
        out=out,
        quick=QuickText(
            sizes=sizes.needed([*shapes, *conditions]),
            few=" and ".join(
                [
                    *_plain(argument.name for argument in plan.arguments if argument.shape),
                    *conditions,
                ]
            ),
            plain="".join(_plain(locals_)),
            before=before,
            ready=ready(plan),
            kernels=tuple(kernels),
            passed=passed,
            unpacked=_pattern(function.result, results),
        ),
        inputs=tuple_text(parameters),
        targets=_targets(parameters),
        expected=f"_{function.name.upper()}",
        real=real,
        dtype=_real(plan),
        lengths=sizes.lengths,
        sizes=sizes.lines,
        conditions=" or ".join([*sizes.conditions, *(f"not {each}" for each in required)]),
        results=tuple(map(ResultText, locals_, shapes)),
        shapes=tuple_text(shapes),
        call=_call(plan, sizes, passed),
        unpacked=_targets(locals_),
        inner=tuple_text(locals_),
        value=_result(
            function.result,
            title,
            {key: f"{name}[()]" if name in scalars else name for key, name in results.items()},
            tuples,
        ),
        delivered=_result(function.result, title, results, tuples),
        run=names.exact("run"),
    )


def _plain(names: Iterable[str]) -> Iterator[str]:
    """That arrays are of no class of their own: Numba takes a masked array for its numbers."""
    if types := [f"type({name})" for name in names]:
        yield f"{' is '.join(types)} is _ndarray"


def ready(plan: Plan) -> str:
    """The name of the kernel that refuses what it is not compiled for."""
    return f"_{plan.name}_ready"


def sharing(plan: Plan) -> str:
    """The name of what threads share the work of a kernel by."""
    return f"_{plan.name}_shared"


def _small(plan: Plan, sizes: _Sizes) -> Iterator[str]:
    """That all outputs have few entries, where there are several whose sizes are not known; where
    BLAS is called, all arguments and outputs together."""
    counts = [product(buffer.shape) for _, buffer in plan.outputs]
    blas = calls_blas(plan)
    if blas:
        counts += [product(argument.shape) for argument in plan.arguments]
    if sum(not count.is_number for count in counts) > (0 if blas else 1):
        yield f"{sizes.text(sympy.Add(*counts))} <= {_LARGE}"


def calls_blas(plan: Plan) -> bool:
    """Whether a kernel calls BLAS or LAPACK."""
    plans = (plan, *plan.inner)
    steps = [step for each in plans for step in each.steps]
    return any(isinstance(step, Gemm | Newton) for step in steps) or any(
        _registers(kernel) for each in plans for kernel in each.kernels
    )


@cache
def _registers(kernel: Kernel) -> bool:
    """Whether a helper kernel needs a routine of BLAS or LAPACK."""
    sources = Sources()
    sources.add_kernel(kernel)
    return "register" in sources.texts


def parted(plan: Plan) -> str:
    """The name of what calls a kernel in parts."""
    return f"_{plan.name}_in_parts"


def _shared(plan: Plan, sizes: _Sizes, passed: str) -> tuple[str, str]:
    """The condition under which one thread does the work of a kernel, and the call of what has
    threads share it; "", "" where nothing does."""
    if plan.parts is not None:
        work = sizes.text(plan.parts.work)
        return f"{work} < {_SHARED}", f"{parted(plan)}({work}, {passed})"
    if plan.rows is not None:
        gain = sizes.text(plan.rows.gain)
        few = f"{gain} < {plan.rows.enough}"
        if plan.rows.phases:
            return few, f"{parted(plan)}({gain}, {passed})"
        return few, _alone(plan, plan.rows.plans[0], passed)
    if plan.sums is None:
        return "", ""
    sums = plan.sums
    few = f"{sizes.text(sums.samples)} < {sums.least}"
    if sums.least == 1:
        few = _little(sums, sizes)
    costs = [sizes.text(cost) for cost in (sums.entries, sums.work, sums.fixed)]
    return few, f"{parted(plan)}({', '.join([*costs, passed])})"


def _little(sums: Sums, sizes: _Sizes) -> str:
    """That one thread adds up all samples, at once."""
    if sums.products:
        held, dense = sizes.text(sums.entries * sums.samples), sizes.text(DENSE * sums.entries)
        return f"({held} < {HELD} or {sizes.text(sums.work)} > {dense})"
    return f"{sizes.text(sums.work * sums.samples)} < {_SHARED}"


def _by_columns(plan: Plan, sizes: _Sizes, passed: str) -> str:
    """What is tried before the kernel is called, where samples last in memory are better: true if
    that is to be called."""
    if plan.sums is not None and plan.sums.least > 1:
        samples, name = sizes.text(plan.sums.samples), sharing(plan)
        unsuited = f"{samples} < {plan.sums.least}"
        given = f"1, {samples}, {passed}, {samples}"
    elif plan.parts is not None and (columns := plan.parts.columns):
        samples, name = sizes.text(columns.samples), sharing(columns.kernel)
        unsuited = _unsuited(columns, sizes)
        given = f"1 + {samples} // {FEW}, {samples}, {passed}"
    else:
        return ""
    return f"{unsuited} or {name}_ready(_CREW.alone, {name}.addresses, {given})"


def _unsuited(columns: Columns, sizes: _Sizes) -> str:
    """That samples last in memory are not better: they are few, or each takes too much of it."""
    samples, entries = sizes.text(columns.samples), sizes.text(columns.entries)
    most = f"min({columns.each}*{samples}, {columns.most})"
    return f"{samples} < {columns.least} or {entries} > {most}"


def _alone(plan: Plan, kernel: Plan, passed: str) -> str:
    """The call of a kernel of a plan that is for one thread: counted where it calls BLAS."""
    if calls_blas(plan):
        return f"_CREW.run({kernel.name}, {passed})"
    return f"{kernel.name}({passed})"


def _call(plan: Plan, sizes: _Sizes, passed: str) -> tuple[str, ...]:
    """The call of the kernel, or of what has threads share it where that gains."""
    few, among = _shared(plan, sizes, passed)
    alone = _alone(plan, plan, passed)
    if not few:
        return (alone,)
    choice = (f"if {few}:", f"    {alone}", "else:", f"    {among}")
    if plan.parts is None or (columns := plan.parts.columns) is None:
        return choice
    costs = f"{sizes.text(columns.entries)}, {sizes.text(plan.parts.work)}"
    abreast = f"{parted(columns.kernel)}({costs}, {passed})"
    return (
        f"if {_unsuited(columns, sizes)}:",
        *(f"    {line}" for line in choice),
        "else:",
        f"    {abreast}",
    )


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
        self._read = [(size, self.local[size.name]) for size in plan.sizes]
        self.conditions = [
            f"{self._axes[a.name, axis]} != {index(length.xreplace(self._renames))}"
            for a in arguments
            for axis, length in enumerate(a.shape)
            if (a.name, axis) not in read
        ]

    def _line(self, size: Size) -> str:
        return self._reading(size, self._axes[size.argument.name, size.axis])

    def _reading(self, size: Size, axis: str) -> str:
        value = size.value.xreplace({**self._renames, LENGTH: sympy.Symbol(axis)})
        return f"{self.local[size.name]} = {index(value)}"

    def needed(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Lines that read the sizes that are in the texts from the arguments."""
        words = set(re.findall(r"\w+", " ".join(texts)))
        lines: list[str] = []
        for size, local in reversed(self._read):
            if local in words:
                name, axis = size.argument.name, size.axis
                length = f"{name}.shape[{axis}]" if axis else f"_len({name})"
                lines.insert(0, self._reading(size, length))
                words.update(re.findall(r"\w+", lines[0]))
        return tuple(lines)

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
        return condition_text(text, self.local)


def _real(plan: Plan) -> str:
    """The dtype of the results, from arguments as kernels take them."""
    arrays = [argument.name for argument in plan.arguments if argument.shape]
    return f"{arrays[0]}.dtype" if arrays else f"_real({plan.arguments[0].name})"


def _result(
    result: Result, path: str, results: Mapping[str, str], tuples: dict[str, tuple[str, ...]]
) -> str:
    """What a function returns: the text of an output, or a named tuple called `path`."""
    if isinstance(result, str):
        return results[result]
    tuples[path] = tuple(name for name, _ in result)
    inner = "Gradient" if path == "ValueAndGradient" else f"{path}Row"
    parts = [_result(part, inner, results, tuples) for _, part in result]
    return f"_named({path}, {tuple_text(parts)})"


def _pattern(result: Result, results: Mapping[str, str]) -> str:
    """The locals of the outputs, to be assigned to, as they are in a function's result."""
    if isinstance(result, str):
        return results[result]
    parts = [
        text if isinstance(part, str) else f"({text})"
        for _, part in result
        for text in [_pattern(part, results)]
    ]
    return _targets(parts)


def _targets(names: list[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")


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
