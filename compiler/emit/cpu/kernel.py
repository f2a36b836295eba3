"""Steps of a plan as lines of Python for Numba on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.emit.statements import Statements, number
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.ir.python_text import condition_text, index, tuple_text
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Allocate,
    Buffer,
    Call,
    Choose,
    Fill,
    Gemm,
    Guard,
    Loop,
    Nest,
    Newton,
    Operand,
    Plan,
    Reuse,
    Statement,
    Step,
    Store,
    Team,
)
from derivatrix.compiler.plan.visit import operations
from derivatrix.compiler.targets import cpu

FUNCTIONS = {
    "asin": "np.arcsin",
    "acos": "np.arccos",
    "atan": "np.arctan",
    "atan2": "np.arctan2",
    "asinh": "np.arcsinh",
    "acosh": "np.arccosh",
    "atanh": "np.arctanh",
    "sqrt": "np.sqrt",
    "sign": "np.sign",
    "floor": "np.floor",
    "ceil": "np.ceil",
    "mod": "np.mod",
    "maximum": "np.maximum",
    "minimum": "np.minimum",
    "abs": "abs",
    "gamma": "math.gamma",
    "lgamma": "math.lgamma",
    **{operator: kernel_name(path) for operator, path in cpu.SCALARS.items()},
}
"""How Numba spells the operators of `steps.Operate`."""

WIDTH = 92
REDUCING = 'fastmath={"reassoc"}'
EXACT = ""
STRAIGHT = 'fastmath={"contract", "reassoc"}'
POLYNOMIAL = 'fastmath={"contract", "nsz", "reassoc"}'
"""Sums and products only: nothing but the sign of a result that is zero depends on a zero's."""


@dataclass(frozen=True)
class StepText:
    """A step as a comment and its lines."""

    comment: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class KernelText:
    """A kernel: decorator, name, parameters, lines that read sizes, steps, and lines after them."""

    decorator: str
    name: str
    summary: str
    parameters: str
    head: tuple[str, ...]
    steps: tuple[StepText, ...]
    tail: tuple[str, ...] = ()


def kernel_text(
    plan: Plan,
    owner: str,
    summary: str,
    chosen_by: Plan | None = None,
    requirements: Sequence[str] = (),
) -> KernelText:
    """The kernel of a plan, in parts that a template joins. `owner`: the declared function's
    name, for messages; `chosen_by`: what chooses it among variants, and is compiled with them;
    `requirements`: conditions on sizes that it checks."""
    steps = _steps(plan, owner)
    checks = [*_shapes_checked(plan, owner), *_sizes_checked(plan, owner, requirements)]
    lines = [*checks, *(line for step in steps for line in step.lines)]
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    sizes = []
    for size in reversed(plan.sizes):
        if size.local in words:
            value = size.value.xreplace({LENGTH: _axis(size.argument.local, size.axis)})
            sizes.append(f"{size.local} = {index(value)}")
            words.update(re.findall(r"\w+", sizes[-1]))
    outputs = [buffer.name for _, buffer in plan.outputs]
    head = [*_types_checked(plan, owner), *reversed(sizes), *checks]
    if "real" in words:
        head.append(f"real = {outputs[0]}.dtype.type")
    return KernelText(
        _decorator(chosen_by or plan, inline=chosen_by is not None),
        plan.name,
        summary,
        passed(plan),
        tuple(head),
        steps,
        _leaving(plan),
    )


@dataclass(frozen=True)
class NewtonText:
    """A function that solves an equation: its parameters but the last, `out`; `start`: the first
    of them; `sample`: those of one index of the stack; the names of its two kernels."""

    name: str
    summary: str
    parameters: str
    start: str
    sample: str
    residual: str
    jacobian: str
    iterations: int


def newton_text(step: Newton) -> NewtonText:
    """The function of an equation, in parts that a template joins."""
    names = [f"argument_{position}" for position in range(len(step.arguments))]
    return NewtonText(
        step.name,
        f"out[s] = {step.comment}, for each index s; False if one was not found.",
        ", ".join(names),
        names[0],
        ", ".join(f"{name}[s]" for name in names),
        step.residual.name,
        step.jacobian.name,
        step.iterations,
    )


def _types_checked(plan: Plan, owner: str) -> list[str]:
    """The check of a kernel's arrays while it is compiled."""
    return _called("require_arrays", _arrays(plan, owner))


def _shapes_checked(plan: Plan, owner: str) -> list[str]:
    """The check of their shapes and places when it is called."""
    locals_ = size_names(plan)
    arguments = [argument.shape for argument in plan.arguments if argument.shape]
    shapes = [*arguments, *(buffer.shape for _, buffer in plan.outputs)]
    texts = [tuple_text(index(size.xreplace(locals_)) for size in shape) for shape in shapes]
    checks = [*_arrays(plan, owner), tuple_text(texts), str(len(arguments))]
    return _called("require_shapes", checks)


def _sizes_checked(plan: Plan, owner: str, requirements: Sequence[str]) -> list[str]:
    """The check of conditions on sizes when it is called."""
    local = {size.name: size.local for size in plan.sizes}
    lines = []
    for requirement in requirements:
        message = f"{owner}: an argument of a kernel is too small; it needs {requirement}"
        lines.append(f"if not {condition_text(requirement, local)}:")
        lines.append(f"    raise ValueError({message!r})")
    return lines


def size_names(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """The names of sizes -> those within the kernel."""
    return {
        sympy.Symbol(size.name, integer=True, positive=True): sympy.Symbol(size.local)
        for size in plan.sizes
    }


def _arrays(plan: Plan, owner: str) -> list[str]:
    """The names of a kernel's owner and of its arrays, as text, and the arrays."""
    arguments = [argument for argument in plan.arguments if argument.shape]
    names = [*(argument.name for argument in arguments), *(name for name, _ in plan.outputs)]
    local = [*(argument.local for argument in arguments), *(b.name for _, b in plan.outputs)]
    return [repr(owner), repr(" ".join(names)), tuple_text(local)]


def _steps(plan: Plan, owner: str) -> tuple[StepText, ...]:
    """The steps, each with the names that it gives to memory as its first lines."""
    texts = []
    names: tuple[str, ...] = ()
    for step in plan.steps:
        text = _step(step, plan.outputs[0][1].name, Failing(owner, _leaving(plan)))
        if isinstance(step, Reuse):
            names += text.lines
        else:
            texts.append(StepText(text.comment, (*names, *text.lines)))
            names = ()
    return tuple(texts)


def _leaving(plan: Plan) -> tuple[str, ...]:
    """What a kernel does at its end, and before it raises."""
    made = any(isinstance(step, Allocate) for step in plan.steps)
    return ("give_back(memory)",) if made else ()


def _axis(name: str, axis: int) -> sympy.Symbol:
    return sympy.Symbol(f"{name}.shape[{axis}]", integer=True, nonnegative=True)


def _decorator(plan: Plan, inline: bool) -> str:
    """How a kernel, or one that it chooses, is compiled."""
    steps = [step for each in (plan, *plan.variants) for step in each.steps]
    allowed = _allowed([step for step in steps if isinstance(step, Nest)])
    counted = "counted=True" if any(map(_counted, steps)) else ""
    options = [counted, 'inline="always"' if inline else "", allowed]
    return f"@compiled({', '.join(filter(None, options))})"


def _counted(step: Step) -> bool:
    """Whether a step is compiled with the kernel and makes arrays."""
    if isinstance(step, Team):
        return any(map(_counted, step.steps))
    return isinstance(step, Call) and step.kernel in cpu.MAKING_ARRAYS


def _allowed(nests: Sequence[Nest]) -> str:
    """What the compiler may do with the sums and products of a kernel."""
    if any(nest.straight for nest in nests):
        used = {each.operator for nest in nests for each in operations(nest.body)}
        return POLYNOMIAL if used <= {"add", "mul", "neg"} else STRAIGHT
    return REDUCING if any(_reduces(nest.body) for nest in nests) else EXACT


def _reduces(body: Iterable[Statement]) -> bool:
    """Whether a scalar is summed over a loop."""
    for statement in body:
        if isinstance(statement, Accumulate):
            return True
        if isinstance(statement, Loop | Guard) and _reduces(statement.body):
            return True
    return False


@dataclass(frozen=True)
class Failing:
    """How a kernel raises: the declared function's name, and lines before."""

    owner: str
    leaving: tuple[str, ...]

    def lines(self, failure: str) -> list[str]:
        message = repr(f"{self.owner}: {failure}")
        return [*self.leaving, f"raise np.linalg.LinAlgError({message})"]


def _step(step: Step, output: str, failing: Failing) -> StepText:
    match step:
        case Allocate(buffers):
            return StepText("memory", tuple(_allocation(buffers, output)))
        case Reuse(buffer, place):
            return StepText("", (f"{buffer.name} = {place.name}",))
        case Fill(buffer):
            return StepText(f"{buffer.name}[...] = 0", (_zeroed(buffer),))
        case Nest(comment, body):
            return StepText(comment, tuple(_Statements(failing).lines(body)))
        case Gemm():
            return StepText(step.comment, tuple(_gemm(step)))
        case Call(comment, kernel, arguments, failure):
            texts = [_operand(a) if isinstance(a, Operand) else repr(a) for a in arguments]
            return StepText(comment, _guarded(kernel_name(kernel), texts, failure, failing))
        case Team(steps):
            texts = [line for each in steps for line in _step(each, output, failing).lines]
            return StepText("for each row", tuple(texts))
        case Choose(variants):
            return StepText("the cheapest order of multiplication", tuple(_choice(variants)))
        case Newton():
            texts = [_operand(operand) for operand in (*step.arguments, step.target)]
            return StepText(step.comment, _guarded(step.name, texts, step.failure, failing))


def _allocation(buffers: tuple[Buffer, ...], output: str) -> Iterator[str]:
    """Work arrays are one block of memory."""
    kinds = [[buffer for buffer in buffers if buffer.kind == kind] for kind in ("real", "integer")]
    names = ", ".join(buffer.name for kind in kinds for buffer in kind)
    shapes = [tuple_text(tuple_text(map(index, b.shape)) for b in kind) for kind in kinds]
    yield from _called(f"{names}, memory = work_arrays", [output, *shapes])


def _choice(variants: tuple[tuple[str, sympy.Expr, Plan], ...]) -> Iterator[str]:
    """The costs, then the call of the first kernel that costs no more than those after it."""
    for name, cost, _ in variants:
        yield f"{name} = {index(cost)}"
    *others, (_, _, last) = variants
    word = "if"
    for position, (name, _, variant) in enumerate(others, 1):
        later = [f"{name} <= {other}" for other, _, _ in variants[position:]]
        yield f"{word} {' and '.join(later)}:"
        yield f"    {_kernel_call(variant)}"
        word = "elif"
    yield "else:"
    yield f"    {_kernel_call(last)}"


def _kernel_call(plan: Plan) -> str:
    return f"{plan.name}({passed(plan)})"


def passed(plan: Plan) -> str:
    """The parameters of a kernel."""
    arguments = [argument.local for argument in plan.arguments]
    return ", ".join([*arguments, *(buffer.name for _, buffer in plan.outputs)])


def _guarded(name: str, arguments: list[str], failure: str, failing: Failing) -> tuple[str, ...]:
    """A call that raises where it returns False, if it can."""
    if not failure:
        return tuple(_called(name, arguments))
    lines = _called(f"if not {name}", arguments, ":")
    return (*lines, *(f"    {line}" for line in failing.lines(failure)))


def _called(name: str, arguments: list[str], end: str = "") -> list[str]:
    """A call, with an argument a line where it is too long for one line."""
    line = f"{name}({', '.join(arguments)}){end}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{name}(", *(f"    {argument}," for argument in arguments), f"){end}"]


def _gemm(step: Gemm) -> list[str]:
    lines = []
    indent = ""
    for symbol, extent in step.batch:
        lines.append(f"{indent}for {symbol} in range({index(extent)}):")
        indent += "    "
    arguments = [
        str(float(step.coefficient)) if step.coefficient.is_number else number(step.coefficient),
        _operand(step.left),
        repr(step.left_transposed),
        _operand(step.right),
        repr(step.right_transposed),
        "1.0" if step.accumulate else "0.0",
        _operand(step.target),
    ]
    if step.routine == "gram":
        del arguments[3:5]
    elif step.routine != "gemm":
        arguments += [triangle.upper() for triangle in step.triangles]
    if step.routine == "structured_gemm":
        arguments.append(step.part.upper())
    return [*lines, *(f"{indent}{line}" for line in _called(step.routine, arguments))]


def _operand(operand: Operand) -> str:
    fixed = [index(part) for part in operand.index]
    text = f"{operand.buffer.name}[{', '.join(fixed)}]" if fixed else operand.buffer.name
    if operand.buffer.shape[len(fixed) :] == operand.shape:
        return text
    return f"shaped({text}, {tuple_text(map(index, operand.shape))})"


class _Statements(Statements):
    """Statements for the CPU."""

    def __init__(self, failing: Failing) -> None:
        super().__init__(FUNCTIONS)
        self._failing = failing

    def stored(self, store: Store) -> str:
        if not store.streamed:
            return super().stored(store)
        indices = tuple_text(map(self.index, store.target.indices))
        return f"stream({store.target.buffer.name}, {indices}, {self.scalar(store.value)})"

    def raised(self, failure: str) -> list[str]:
        return self._failing.lines(failure)


def _zeroed(buffer: Buffer) -> str:
    return f"{buffer.name}[{'...' if buffer.shape else '()'}] = 0"
