"""Steps of a plan as lines of Python for Numba on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy

from derivatrix.compiler.emit.cpu.array_calls import Combination, combination, copied, split_loops
from derivatrix.compiler.emit.signatures import operand_names
from derivatrix.compiler.emit.statements import Statements
from derivatrix.compiler.emit.structured_arguments import structured_arguments
from derivatrix.compiler.emit.texts import call_lines, wrapped
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.plan.infix import MULTIPLY
from derivatrix.compiler.plan.inner_products import with_inner_products
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.row_shares import borders
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Allocate,
    BlockCooperative,
    Buffer,
    Call,
    Choose,
    Fill,
    Gemm,
    Guard,
    Let,
    Loop,
    LoopNest,
    Newton,
    Only,
    Operand,
    Plan,
    Range,
    Recurrence,
    Reuse,
    Segment,
    Size,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import all_names, buffers, operations, renamed
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
    "times": "times",
    "gamma": "math.gamma",
    "lgamma": "math.lgamma",
    **{operator: kernel_name(path) for operator, path in cpu.SCALARS.items()},
}
"""Spelling of the operators of `steps.Operate` in kernels, for those not called by their own name.
"times" is among them because LLVM may reorder what is written as `*`."""

MAX_LINE_LENGTH = 96
"""Most characters of a line in a kernel, without its indentation."""
REDUCTION_FLAGS = 'fastmath={"reassoc"}'
"""Flags for loops that add up numbers: LLVM vectorises a sum only if it may reorder its terms."""
STRAIGHT_LINE_FLAGS = 'fastmath={"contract", "reassoc"}'
"""Flags for straight-line code, which LLVM may compute by fused multiply-adds."""
POLYNOMIAL_FLAGS = 'fastmath={"contract", "nsz", "reassoc"}'
"""Flags for sums and products only, where the sign of a zero affects only the sign of a zero."""


@dataclass(frozen=True)
class StepText:
    """A step as a comment and its lines."""

    comment: str
    lines: tuple[str, ...]

    @property
    def comment_lines(self) -> list[str]:
        return [f"# {line}" for line in wrapped(self.comment, MAX_LINE_LENGTH - 6)]


@dataclass(frozen=True)
class KernelText:
    """The text of a kernel.

    heading: the lines of its decorator and parameters. summary: those of the docstring. checked:
    the call that checks the arguments, none for a kernel that only other kernels call. head: lines
    before the steps, which read sizes. tail: lines after the steps, which give back memory. names:
    the names that the kernel reads.
    """

    name: str
    heading: tuple[str, ...]
    summary: tuple[str, ...]
    checked: tuple[str, ...]
    head: tuple[str, ...]
    steps: tuple[StepText, ...]
    tail: tuple[str, ...] = ()
    names: frozenset[str] = field(default=frozenset(), compare=False)


def kernel_text(plan: Plan, owner: str, summary: str, checked: str | None = None) -> KernelText:
    """Print the kernel of a plan, in parts that a template joins.

    owner: the name of the declared function, for messages. checked: the signature, for readers, of
    a kernel that checks its arguments; None for a kernel that only other kernels call.
    """
    bounds = _named_borders(plan)
    plan = with_inner_products(replace(plan, steps=renamed(plan.steps, bounds)))
    writer = _Writer(plan, owner)
    steps = writer.steps(plan.steps)
    shares = [f"{name} = {writer.index(bound)}" for bound, name in bounds.items()]
    sizes = _size_lines(plan, writer.names)
    real_type = f"{writer.output}.dtype.type"
    real = [f"real = {real_type}"] if "real" in writer.names else []
    factors = [
        f"{name} = {'real' if real else real_type}({text})" for text, name in writer.factors.items()
    ]
    fast_math = _fast_math([step for step in plan.every_step if isinstance(step, LoopNest)])
    decorator = writer.named("compiled") if checked is None else _decorator(plan, bounds)
    heading = [f"@{decorator}({fast_math})"]
    if checked is not None:
        heading = _commented(heading[0], checked)
    heading += call_lines(f"def {plan.name}", parameters(plan), ":")
    check = call_lines(f"check_{plan.name}", operand_names(plan))
    return KernelText(
        plan.name,
        tuple(heading),
        tuple(wrapped(f'"""{summary}"""', MAX_LINE_LENGTH)),
        tuple(check if checked is not None else ()),
        (*writer.projections, *sizes, *real, *factors, *shares),
        steps,
        writer.leaving,
        frozenset(writer.names),
    )


def _decorator(plan: Plan, bounds: Mapping[sympy.Basic, sympy.Basic]) -> str:
    """Name the decorator of a kernel that programs call, or of a share or part of one."""
    if not plan.part_parameters:
        return "generated.kernel"
    return "generated.share" if bounds else "generated.part"


def _named_borders(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Name the bounds of loops over a share of the rows. LLVM makes vector code only if variables
    hold them."""
    bounds = borders(plan)
    if not bounds:
        return {}
    used_names = [*(a.local for a in plan.arguments), *(size.local for size in plan.sizes)]
    used_names += [kernel_name(kernel) for kernel in plan.kernels]
    names = Names([*used_names, *(buffer.name for step in plan.steps for buffer in buffers(step))])
    return {bound: sympy.Symbol(names.numbered("row"), integer=True) for bound in bounds}


def _commented(line: str, comment: str) -> list[str]:
    """Write a comment behind a line, or before it if it is long."""
    text = f"{line}  # {comment}"
    if len(text) <= MAX_LINE_LENGTH:
        return [text]
    return [*(f"# {part}" for part in wrapped(comment, MAX_LINE_LENGTH)), line]


def _size_lines(plan: Plan, names: set[str]) -> list[str]:
    """Print the lines that read the sizes in `names`: first those that are lengths of axes, then
    those that are computed from other sizes. Add the latter's sizes to `names`."""
    sizes_read: list[Size] = []
    for size in reversed(plan.sizes):
        if size.local in names:
            sizes_read.insert(0, size)
            names.update(map(str, size.value.free_symbols))
    lengths = [size for size in sizes_read if size.value == LENGTH]
    computed = [f"{size.local} = {_size_text(size)}" for size in sizes_read if size not in lengths]
    axes = [(size.argument, size.axis) for size in lengths]
    values = ", ".join(map(_size_text, lengths))
    if len(axes) > 1 and axes == [(axes[0][0], axis) for axis in range(len(axes[0][0].shape))]:
        values = f"{axes[0][0].local}.shape"
    assignments = [f"{', '.join(size.local for size in lengths)} = {values}"] if lengths else []
    return [*assignments, *computed]


def _size_text(size: Size) -> str:
    axis = f"{size.argument.local}.shape[{size.axis}]"
    length = sympy.Symbol(axis, integer=True, nonnegative=True)
    return index(size.value.xreplace({LENGTH: length}))


@dataclass(frozen=True)
class NewtonText:
    """The text of a function that solves an equation for each index of a stack.

    parameters: all but the last one, `out`. start: the first parameter, where iterations start.
    sample: the arguments for one index of the stack. residual, jacobian: names of kernels. fails:
    whether the function reports the iteration if no root is found.
    """

    name: str
    summary: str
    parameters: str
    start: str
    sample: str
    residual: str
    jacobian: str
    iterations: int
    fails: bool


def newton_text(step: Newton) -> NewtonText:
    """Print the function of an equation, in parts that a template joins."""
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
        bool(step.failure),
    )


def _fast_math(nests: Sequence[LoopNest]) -> str:
    """Choose the flags of inexact arithmetic that LLVM may use in a kernel; none ("") without sums:
    then reordering gains nothing."""
    if any(nest.straight for nest in nests):
        operators = {operation.operator for nest in nests for operation in operations(nest.body)}
        return POLYNOMIAL_FLAGS if operators <= {"add", "mul", "neg"} else STRAIGHT_LINE_FLAGS
    return REDUCTION_FLAGS if any(_reduces(nest.body) for nest in nests) else ""


def _reduces(body: Iterable[Statement]) -> bool:
    """Return whether a loop accumulates a scalar."""
    for statement in body:
        if isinstance(statement, Accumulate):
            return True
        if isinstance(statement, Loop | Guard) and _reduces(statement.body):
            return True
    return False


def parameters(plan: Plan) -> list[str]:
    """List the parameters of a kernel."""
    return [*operand_names(plan), *plan.part_parameters]


class _Writer(Statements):
    """The printer of one kernel.

    output: the name of an array of the kernel's precision. factors: numbers computed from sizes
    alone, as 1/n, with their names. projections: lines that replace structured arguments by the
    nearest arrays. leaving: lines that give back memory, at the end of the kernel and before it
    raises.
    """

    functions = FUNCTIONS

    def __init__(self, plan: Plan, owner: str) -> None:
        super().__init__()
        self.output = plan.outputs[0][1].name
        self.factors: dict[str, str] = {}
        self._sizes = {*(size.local for size in plan.sizes), *parameters(plan)}
        self._new_names = Names([*self._sizes, *all_names(plan.steps)])
        parts = structured_arguments(plan)
        self.projections = [
            f"{name}, _memory_of_{name} = {self.named(part)}({name})"
            for name, part in parts.items()
        ]
        memory = [f"_memory_of_{name}" for name in parts]
        memory += ["memory"] * any(isinstance(step, Allocate) for step in plan.steps)
        self.leaving = tuple(self._call("give_back", memory)) if memory else ()
        self._owner = owner

    def number(self, value: sympy.Expr) -> str:
        if not value.free_symbols or not {*map(str, value.free_symbols)} <= self._sizes:
            return super().number(value)
        if value.could_extract_minus_sign():
            return f"-{self.number(-value)}"
        text = self.coefficient(value)
        if text not in self.factors:
            self.factors[text] = self._new_names.numbered("c")
        return self.factors[text]

    def steps(self, steps: Iterable[Step]) -> tuple[StepText, ...]:
        """Print steps; lines that rename reused memory come first in the step that follows them."""
        texts = []
        names: tuple[str, ...] = ()
        for step in steps:
            text = self._step(step)
            if isinstance(step, Reuse):
                names += text.lines
            else:
                texts.append(StepText(text.comment, (*names, *text.lines)))
                names = ()
        return tuple(texts)

    def raised(self, failure: str, error: str = "np.linalg.LinAlgError") -> list[str]:
        message = repr(f"{self._owner}: {failure}")
        return [*self.leaving, f"raise {self.named(error)}({message})"]

    def _step(self, step: Step) -> StepText:
        match step:
            case Allocate(buffers):
                return StepText("", tuple(self._allocation(buffers)))
            case Reuse(buffer, place):
                return StepText("", (f"{buffer.name} = {place.name}  # reuse the memory",))
            case Range(buffer, source, start):
                end = self.index(start + buffer.shape[0])
                line = f"{buffer.name} = {source.name}[{self.index(start)} : {end}]"
                return StepText("", (line,))
            case Fill(buffer):
                zeroed = f"{buffer.name}[{'...' if buffer.shape else '()'}] = 0"
                return StepText(f"{buffer.name}[...] = 0", (zeroed,))
            case LoopNest(comment, body):
                if copy := copied(body):
                    is_plain = copy[0] == "copy_entries"
                    return StepText("" if is_plain else comment, tuple(self._call(*copy)))
                if combined := combination(body):
                    return StepText("", tuple(self._combined(combined)))
                _, inside = split_loops(body)
                is_its_formula = len(inside) == 1 and isinstance(inside[0], Store | Let)
                return StepText("" if is_its_formula else comment, tuple(self.lines(body)))
            case Gemm():
                return StepText("", tuple(self._gemm(step)))
            case Call(comment, kernel, arguments, failure):
                texts = [self._operand(a) if isinstance(a, Operand) else repr(a) for a in arguments]
                lines = self._guarded(kernel_name(kernel), texts, failure)
                return StepText("" if comment == kernel_name(kernel) else comment, lines)
            case BlockCooperative(steps):
                texts = [line for row_step in steps for line in self._step(row_step).lines]
                return StepText("for each row", tuple(texts))
            case Only(condition, steps):
                inner = [self._step(conditional) for conditional in steps]
                texts = [line for text in inner for line in (*text.comment_lines, *text.lines)]
                return StepText("", (f"if {condition}:", *(f"    {line}" for line in texts)))
            case Choose(variants):
                lines = tuple(
                    self.choice(
                        variants, lambda plan: f"{plan.name}({', '.join(parameters(plan))})"
                    )
                )
                return StepText("the cheapest order of multiplication", lines)
            case Newton():
                texts = [self._operand(operand) for operand in (*step.arguments, step.target)]
                lines = self._guarded(step.name, texts, step.failure, "NotConverged")
                return StepText(step.comment, lines)
            case Recurrence():
                return self._recurrence(step)

    def _recurrence(self, step: Recurrence) -> StepText:
        """Print a loop that calls the kernel of a step."""
        targets = []
        for target in step.targets:
            text = self._operand(target)
            (at, *_) = target.index or (None,)
            if not target.shape and isinstance(at, sympy.Expr):  # an entry of a vector of states
                text = f"{target.buffer.name}[{self.index(at)} : {self.index(at + 1)}]"
            targets.append(text)
        call = self._call(step.step.name, [*map(self._operand, step.arguments), *targets])
        lines = (self.time_loop(step), *(f"    {line}" for line in call))
        return StepText(f"scan: {step.comment}", lines)

    def _combined(self, step: Combination) -> list[str]:
        """Print the call that combines arrays, after the statements that compute its numbers."""
        arguments = [text for number, x in step.terms for text in (self.text(number), x)]
        call = self._call(step.function, [*arguments, step.target])
        terms = [f"{sign} {self.text(n, MULTIPLY)} {x}" for sign, n, x in step.signed_terms]
        total = " ".join(terms).removeprefix("+ ")
        comment = f"# {step.target} {'+=' if step.accumulate else '='} {total}"
        return [*self.lines(step.lets), *call[:-1], f"{call[-1]}  {comment}"]

    def _call(self, name: str, arguments: Iterable[str]) -> list[str]:
        return call_lines(self.named(name), [*arguments])

    def _guarded(
        self, name: str, arguments: list[str], failure: str, error: str = "np.linalg.LinAlgError"
    ) -> tuple[str, ...]:
        """Print a call of a helper that returns False on failure, which raises then."""
        if not failure:
            return tuple(self._call(name, arguments))
        lines = call_lines(f"if not {self.named(name)}", arguments, ":")
        return (*lines, *(f"    {line}" for line in self.raised(failure, error)))

    def _allocation(self, buffers: tuple[Buffer, ...]) -> list[str]:
        """Print work arrays as one block of memory."""
        real, integer = (
            [buffer for buffer in buffers if buffer.kind == kind] for kind in ("real", "integer")
        )
        names = ", ".join(buffer.name for buffer in (*real, *integer))
        shapes = [tuple_text(self._shape(b.shape) for b in kind) for kind in (real, integer)]
        if len(shapes[0]) > MAX_LINE_LENGTH - 8:
            first, *others = (self._shape(buffer.shape) for buffer in real)
            shapes[:1] = [f"({first}", *others[:-1], f"{others[-1]})"]
        allocate = self.named("work_arrays")
        return call_lines(f"{names}, memory = {allocate}", [self.output, *shapes])

    def _gemm(self, step: Gemm) -> list[str]:
        lines = []
        indent = ""
        for symbol, extent in step.batch:
            lines.append(f"{indent}for {symbol} in range({self.index(extent)}):")
            indent += "    "
        is_number = step.coefficient.is_number
        arguments = [
            str(float(step.coefficient)) if is_number else self.number(step.coefficient),
            self._operand(step.left),
            repr(step.left_transposed),
            self._operand(step.right),
            repr(step.right_transposed),
            "1.0" if step.accumulate else "0.0",
            self._operand(step.target),
        ]
        if step.routine == "gram":
            del arguments[3:5]
        elif step.routine != "gemm":
            arguments += [self.named(triangle.upper()) for triangle in step.triangles]
        if step.routine == "structured_gemm":
            arguments.append(self.named(step.part.upper()))
        call = self._call(step.routine, arguments)
        comment = f"# {self._product(step)}"
        if len(call) == 1 and len(indent + call[0]) + len(comment) + 6 <= MAX_LINE_LENGTH:
            return [*lines, f"{indent}{call[0]}  {comment}"]
        return [*lines, *(f"{indent}{line}" for line in (comment, *call))]

    def _product(self, step: Gemm) -> str:
        """Print a product of matrices as a formula."""
        left, right, target = map(self._entry, (step.left, step.right, step.target))
        left += "ᵀ" if step.left_transposed else ""
        right += "ᵀ" if step.right_transposed else ""
        factor = "" if step.coefficient == 1 else f"{step.coefficient} "
        factor = "-" if step.coefficient == -1 else factor
        return f"{target} {'+=' if step.accumulate else '='} {factor}{left} {right}"

    def _entry(self, operand: Operand) -> str:
        """Print an operand with the axes that its buffer has."""
        indices = [self._position(part) for part in operand.index]
        return f"{operand.buffer.name}[{', '.join(indices)}]" if indices else operand.buffer.name

    def _operand(self, operand: Operand) -> str:
        text = self._entry(operand)
        if operand.buffer.shape[len(operand.index) :] == operand.shape:
            return text
        return f"{self.named('shaped')}({text}, {self._shape(operand.shape)})"

    def _position(self, part: sympy.Expr | Segment | Literal[":"]) -> str:
        if isinstance(part, Segment):
            return f"{self.index(part.start)} : {self.index(part.start + part.length)}"
        return self.index(part)

    def _shape(self, shape: Iterable[sympy.Expr]) -> str:
        return tuple_text(map(self.index, shape))
