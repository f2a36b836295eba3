"""The host code of a plan: which kernels are launched, on which arrays, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sympy

from derivatrix.compiler.emit.cuda.block_cooperative import Phase, phases, reduced_rows
from derivatrix.compiler.emit.cuda.block_cooperative_text import block_cooperative_text
from derivatrix.compiler.emit.cuda.kernel import KernelText, check, count, finish_text, kernel_text
from derivatrix.compiler.emit.cuda.launches import Launch, defined, launches, renamed
from derivatrix.compiler.emit.cuda.parameters import parameters
from derivatrix.compiler.emit.cuda.stacks import in_one_order
from derivatrix.compiler.emit.cuda.tiles import THREADS, tiled
from derivatrix.compiler.emit.imports import is_defined
from derivatrix.compiler.emit.statements import Printer
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.operation import Kernel, kernel_name
from derivatrix.compiler.ir.python_text import tuple_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import (
    Allocate,
    BlockCooperative,
    Buffer,
    Call,
    Choose,
    Fill,
    Gemm,
    LoopNest,
    Newton,
    Operand,
    Plan,
    Require,
    Reuse,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import all_names, buffers, names_read, walk
from derivatrix.runtime.errors import UnsupportedError

SCHUR = "sylvester.schur"
"""The kernel that fills arrays with Schur forms and their vectors."""


@dataclass
class HostFunction:
    """The host function of a plan: its name, parameters after `run`, and lines."""

    name: str
    summary: str
    parameters: str
    lines: list[str]


@dataclass
class Device:
    """What the `plans` of a module become: kernels, by what they do, host functions, what can fail
    (in order), and the helper functions called, each "file.function"."""

    plans: list[Plan] = field(default_factory=list)
    kernels: dict[KernelText, KernelText] = field(default_factory=dict)
    host_functions: list[HostFunction] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    helpers: dict[str, None] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        """Add a plan, after those that it calls."""
        for inner in inner_plans(plan):
            if host_name(inner) not in {each.name for each in self.host_functions}:
                self.add(inner)
        self.plans.append(plan)
        self.host_functions.append(_HostWriter(plan, self).host_function())

    def entered(self, kernel: KernelText) -> str:
        """The name of a kernel, or of the one before that does the same."""
        return self.kernels.setdefault(replace(kernel, name="", summary=""), kernel).name


def host_name(plan: Plan) -> str:
    """The name of a plan's host function."""
    return f"_{plan.name}"


def inner_plans(plan: Plan) -> tuple[Plan, ...]:
    """The plans that a plan calls: those that it chooses from, and those of its equations."""
    inner = (part for each in plan.equations for part in (each.residual, each.jacobian))
    return (*plan.variants, *inner)


def can_fail(plan: Plan) -> bool:
    """Whether a plan has checks."""
    return any(map(_fails, walk(plan.steps))) or any(map(can_fail, inner_plans(plan)))


def _fails(part: Any) -> bool:
    return isinstance(part, Require) or (isinstance(part, Call | Newton) and bool(part.failure))


def counterpart(kernel: Kernel) -> str:
    """The host function that does for a device what a helper kernel does, "file.function": it has
    the same name. Raises UnsupportedError where there is none."""
    if not isinstance(kernel, str) or not is_defined(f"cuda.{kernel}"):
        raise UnsupportedError(f"there is no kernel for CUDA devices of {kernel_name(kernel)}")
    return kernel


class _HostWriter(Printer):
    """The printer of the host function of one plan. As on a device, coefficients are infinite or
    nan where Python's functions would raise."""

    real = "np.float64"
    library = "np"

    def __init__(self, plan: Plan, device: Device) -> None:
        super().__init__()
        self._plan = plan
        self._device = device
        taken = [argument.local for argument in plan.arguments]
        taken += [size.local for size in plan.sizes]
        taken += [buffer.name for _, buffer in plan.outputs]
        self._names = Names([*taken, *all_names(plan.steps)])
        self._constants = {name for name, _ in plan.constants}
        self._kept: set[str] = set()
        made = [step for step in plan.steps if isinstance(step, Allocate | Reuse)]
        self._allocated = set(buffers(made))
        self._complex = {
            found.buffer
            for step in plan.steps
            if isinstance(step, Call) and step.kernel == SCHUR
            for found in step.arguments[1:]
            if isinstance(found, Operand)
        }
        self._number = 0
        nests = [step for step in walk(plan.steps) if isinstance(step, LoopNest)]
        self._escaping = frozenset(
            name
            for nest in nests
            for name in defined(nest)
            if any(name in set(names_read(other)) for other in nests if other is not nest)
        )

    def host_function(self) -> HostFunction:
        plan = self._plan
        body = [line for step in plan.steps for line in self._step(step)]
        outputs = [buffer.name for _, buffer in plan.outputs]
        names = [*(argument.local for argument in plan.arguments), *outputs]
        made = ", ".join(f"`{name}`" for name, _ in plan.outputs)
        return HostFunction(
            host_name(plan),
            f"Launch the kernels that fill {made}.",
            ", ".join(["run", *names]),
            [*self._sizes(), *body] or ["pass"],
        )

    def _sizes(self) -> list[str]:
        """The sizes that lines mention, from the arguments' shapes."""
        lines: list[str] = []
        for size in reversed(self._plan.sizes):
            if size.local in self.names:
                axis = sympy.Symbol(f"{size.argument.local}.shape[{size.axis}]", integer=True)
                lines.append(f"{size.local} = {self.index(size.value.xreplace({LENGTH: axis}))}")
        return lines[::-1]

    def _step(self, step: Step) -> Iterator[str]:
        match step:
            case Allocate(made):
                for buffer in made:
                    yield self._made(buffer)
            case Reuse(buffer, place):
                alike = (buffer in self._complex) == (place in self._complex)
                yield f"{buffer.name} = {place.name}" if alike else self._made(buffer)
            case Fill(buffer):
                self._use("shares", "clear")
                yield f"clear(run, {self._array(buffer)})"
            case LoopNest():
                yield from self._nest(step)
            case Gemm():
                copies, ordered = in_one_order(step, partial(self._names.numbered, "copy"))
                for copy in copies:
                    yield from self._nest(copy)
                yield from self._gemm(ordered)
            case Call(_, kernel, arguments, failure):
                path = counterpart(kernel)
                self._device.helpers[path] = None
                texts = [self._operand(a) if isinstance(a, Operand) else repr(a) for a in arguments]
                if failure:
                    texts.append(str(check(self._device.checks, failure)))
                yield f"{kernel_name(path)}({', '.join(['run', *texts])})"
            case BlockCooperative(steps):
                yield from self._block_cooperative(steps)
            case Choose(variants):
                yield from self.choice(variants, _called)
            case Newton():
                yield self._newton(step)

    def _made(self, buffer: Buffer) -> str:
        """A line that makes an array; Schur forms and their vectors are complex on devices."""
        kind = ", np.complex128" if buffer in self._complex else ""
        return f"{buffer.name} = run.empty({self._empty(buffer)}{kind})"

    # Nests

    def _nest(self, nest: LoopNest) -> Iterator[str]:
        for launch in launches(self._reading(nest), self._escaping, self._fresh):
            yield from self._keeping(launch)
            yield from self._launch(launch)
        self._kept |= set(defined(nest)) & self._escaping

    def _reading(self, nest: LoopNest) -> LoopNest:
        """A nest that reads scalars where kernels before have kept them."""
        result: LoopNest = renamed(nest, self._kept)
        return result

    def _fresh(self) -> str:
        return self._names.numbered("s")

    def _keeping(self, launch: Launch) -> Iterator[str]:
        """Arrays for the scalars that a kernel leaves to others."""
        for statement in launch.statements:
            if isinstance(statement, Store):
                buffer = statement.target.buffer
                if buffer.role == "work" and buffer not in self._allocated:
                    self._allocated.add(buffer)
                    yield f"{buffer.name} = run.empty({self._empty(buffer)})"

    def _launch(self, launch: Launch) -> Iterator[str]:
        self._number += 1
        name = f"{self._plan.name}_{self._number}"
        device = self._device
        tiles = tiled(launch)
        made = device.entered(kernel_text(name, launch, tiles, device.checks))
        points, given = self.index(count(launch.points)), self._given([launch])
        if not launch.terms:
            method, most = (
                ("launch", THREADS[0]) if tiles is None else ("launch_samples", tiles.threads)
            )
            yield f"run.{method}({made}, {points}, {given}, max_threads={most})"
            return
        self._use("shares", "sums")
        finish = device.entered(finish_text(f"{name}_finish", launch, device.checks))
        form = f"{points}, {self.index(count(launch.terms))}, {launch.along}, {len(launch.sums)}"
        yield f"sums(run, {made}, {finish}, {form}, {given})"

    def _given(self, done: Sequence[Phase]) -> str:
        """What a kernel is given that does this."""
        found = parameters(done)
        arguments = [
            *(self._array(buffer) for buffer in found.buffers),
            *(f"run.constant({table}, np.int64)" for table in found.tables),
            *map(self.named, found.sizes),
            *found.numbers,
            *(["run.failures"] if found.failures else []),
        ]
        return ", ".join(arguments)

    def _block_cooperative(self, steps: Sequence[Step]) -> Iterator[str]:
        """One kernel row by row, or, where rows are few and long, one kernel a step."""
        alone = [line for step in steps for line in self._step(step)]
        self._number += 1
        name = f"{self._plan.name}_{self._number}"
        given = [self._reading(step) if isinstance(step, LoopNest) else step for step in steps]
        done = phases(given, self._fresh)
        rows = next(filter(None, map(reduced_rows, done)))
        longest = self.index(sympy.Max(*(count((*p.points[len(rows) :], *p.terms)) for p in done)))
        made = self._device.entered(block_cooperative_text(name, done, rows, self._device.checks))
        self._use("shares", "row_by_row")
        self._use("shares", "each_row")
        sizes = f"{self.index(count(rows))}, {longest}"
        yield f"if row_by_row({sizes}):"
        yield f"    each_row(run, {made}, {sizes}, {self._given(done)})"
        yield "else:"
        yield from (f"    {line}" for line in alone)

    def _use(self, file: str, name: str) -> None:
        self._device.helpers[f"{file}.{name}"] = None

    def _array(self, buffer: Buffer) -> str:
        return f"run.constant({buffer.name})" if buffer.name in self._constants else buffer.name

    # Products, choices, equations

    def _gemm(self, step: Gemm) -> Iterator[str]:
        self._use("blas", "gemm")
        stack = (product(tuple(extent for _, extent in step.batch)),) if step.batch else ()
        operands = (step.left, step.right, step.target)
        left, right, target = (
            self._operand(Operand(o.buffer, (*stack, *o.shape))) for o in operands
        )
        texts = [
            f"float({self.coefficient(step.coefficient)})",
            *(left, repr(step.left_transposed), right, repr(step.right_transposed)),
            *("1.0" if step.accumulate else "0.0", target),
        ]
        yield f"gemm(run, {', '.join(texts)})"

    def _newton(self, step: Newton) -> str:
        self._use("newton", "newton")
        operands = ", ".join(self._operand(operand) for operand in step.arguments)
        texts = [
            "run",
            host_name(step.residual),
            host_name(step.jacobian),
            str(step.iterations),
            f"({operands},)",
            self._operand(step.target),
            str(check(self._device.checks, step.failure)) if step.failure else "-1",
        ]
        return f"newton({', '.join(texts)})"

    def _empty(self, buffer: Buffer) -> str:
        shape = self._shape(buffer.shape)
        return f"{shape}, np.int32" if buffer.kind == "integer" else shape

    def _shape(self, shape: Sequence[sympy.Expr]) -> str:
        return tuple_text([self.index(size) for size in shape] or ["1"])

    def _operand(self, operand: Operand) -> str:
        fixed = [self.index(part) for part in operand.index]
        name = operand.buffer.name
        text = f"run.part({', '.join([name, *fixed])})" if fixed else name
        if operand.buffer.shape[len(fixed) :] == operand.shape:
            return text
        return f"{text}.reshape({self._shape(operand.shape)})"


def _called(plan: Plan) -> str:
    names = [argument.local for argument in plan.arguments]
    names += [buffer.name for _, buffer in plan.outputs]
    return f"{host_name(plan)}({', '.join(['run', *names])})"
