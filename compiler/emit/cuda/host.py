"""Host functions of plans: which kernels are launched, on which arrays, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import sympy

from derivatrix.compiler.emit.cuda.block_cooperative import Phase, phases, reduced_rows
from derivatrix.compiler.emit.cuda.block_cooperative_text import block_cooperative_text
from derivatrix.compiler.emit.cuda.kernel import (
    KernelText,
    check,
    count,
    finish_text,
    kernel_text,
)
from derivatrix.compiler.emit.cuda.launches import Launch, defined, launches, with_stored_scalars
from derivatrix.compiler.emit.cuda.parameters import parameters
from derivatrix.compiler.emit.cuda.stacks import in_one_order
from derivatrix.compiler.emit.cuda.tiles import THREADS, tiled
from derivatrix.compiler.emit.cuda.time_loops import in_one_kernel
from derivatrix.compiler.emit.imports import is_defined
from derivatrix.compiler.emit.public_functions import indented
from derivatrix.compiler.emit.signatures import operand_names
from derivatrix.compiler.emit.statements import Printer
from derivatrix.compiler.emit.structured_arguments import structured_arguments
from derivatrix.compiler.emit.texts import call_lines
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
    Range,
    Recurrence,
    Reuse,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import all_names, buffers, names_read, walk
from derivatrix.runtime.errors import UnsupportedError

SCHUR = "sylvester.schur"
"""The kernel that computes Schur forms and Schur vectors."""


@dataclass
class HostFunction:
    """The host function of a plan: its name, parameters after `run`, and lines."""

    name: str
    summary: str
    parameters: str
    lines: list[str]


@dataclass
class Device:
    """The device code of a module's `plans`. kernels: each kernel without its name -> the kernel;
    checks: messages of possible failures; helpers: called functions, each "file.function"."""

    plans: list[Plan] = field(default_factory=list)
    kernels: dict[KernelText, KernelText] = field(default_factory=dict)
    host_functions: list[HostFunction] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    helpers: dict[str, None] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        """Add a plan after those that it calls, unless it was added before."""
        if host_name(plan) not in {function.name for function in self.host_functions}:
            function = _HostWriter(plan, self).host_function()
            self.plans.append(plan)
            self.host_functions.append(function)

    def entered(self, kernel: KernelText) -> str:
        """Add a kernel; return its name, or that of an equal kernel that was added before."""
        return self.kernels.setdefault(replace(kernel, name="", summary=""), kernel).name


def host_name(plan: Plan) -> str:
    """Return the name of a plan's host function."""
    return f"_{plan.name}"


def counterpart(kernel: Kernel) -> str:
    """Return the "file.function" of the host function that replaces a helper kernel on devices: it
    has the same name. Raises UnsupportedError if there is none."""
    if not isinstance(kernel, str) or not is_defined(f"cuda.{kernel}"):
        raise UnsupportedError(f"there is no kernel for CUDA devices of {kernel_name(kernel)}")
    return kernel


class _HostWriter(Printer):
    """The printer of the host function of one plan. NumPy computes coefficients, which are infinite
    or nan as on a device, where functions of `math` would raise.

    kept_scalars: those that earlier kernels have stored. allocated: arrays that the lines allocate.
    complex: Schur forms and vectors, whose real forms would have blocks of two rows. escaping:
    scalars that one nest computes and another reads.
    """

    real = "np.float64"
    library = "np"

    def __init__(self, plan: Plan, device: Device) -> None:
        super().__init__()
        self._plan = plan
        self._device = device
        sizes = [size.local for size in plan.sizes]
        self._names = Names([*operand_names(plan), *sizes, *all_names(plan.steps)])
        self._constants = {name for name, _ in plan.constants}
        self._kept_scalars: set[str] = set()
        allocations = [step for step in plan.steps if isinstance(step, Allocate | Reuse)]
        self._allocated = set(buffers(allocations))
        self._complex = {
            operand.buffer
            for step in plan.steps
            if isinstance(step, Call) and step.kernel == SCHUR
            for operand in step.arguments[1:]
            if isinstance(operand, Operand)
        }
        self._kernel_count = 0
        nests = [step for step in walk(plan.steps) if isinstance(step, LoopNest)]
        self._escaping = frozenset(
            name
            for nest in nests
            for name in defined(nest)
            if any(name in set(names_read(another)) for another in nests if another is not nest)
        )

    def host_function(self) -> HostFunction:
        plan = self._plan
        body = [*self._projections()]
        body += [line for step in plan.steps for line in self._step(step)]
        filled = ", ".join(f"`{name}`" for name, _ in plan.outputs)
        return HostFunction(
            host_name(plan),
            f"Launch the kernels that fill {filled}.",
            ", ".join(["run", *operand_names(plan)]),
            [*self._sizes(), *body] or ["pass"],
        )

    def _projections(self) -> Iterator[str]:
        """Write the lines that replace structured arguments by the nearest arrays."""
        for name, part in structured_arguments(self._plan).items():
            self._use("structures", part)
            yield f"{name} = {part}(run, {name})"

    def _sizes(self) -> list[str]:
        """Write the sizes that the lines read, from the arguments' shapes."""
        lines: list[str] = []
        for size in reversed(self._plan.sizes):
            if size.local in self.names:
                axis = sympy.Symbol(f"{size.argument.local}.shape[{size.axis}]", integer=True)
                lines.append(f"{size.local} = {self.index(size.value.xreplace({LENGTH: axis}))}")
        return lines[::-1]

    def _step(self, step: Step) -> Iterator[str]:
        match step:
            case Allocate(buffers_allocated):
                for buffer in buffers_allocated:
                    yield self._allocation(buffer)
            case Reuse(buffer, place):
                same_type = (buffer in self._complex) == (place in self._complex)
                reused = f"{buffer.name} = {place.name}  # reuse the memory"
                yield reused if same_type else self._allocation(buffer)
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
                for _, _, variant in variants:
                    self._device.add(variant)
                yield from self.choice(variants, _host_call)
            case Newton():
                yield self._newton(step)
            case Range(buffer, source, start):
                yield f"{buffer.name} = {self._range(source, start, buffer.shape[0])}"
            case Recurrence():
                yield from self._recurrence(step)

    def _allocation(self, buffer: Buffer) -> str:
        """Write the allocation of an array."""
        kind = ", np.int32" if buffer.kind == "integer" else ""
        kind = ", np.complex128" if buffer in self._complex else kind
        return f"{buffer.name} = run.empty({self._shape(buffer.shape)}{kind})"

    # Nests

    def _nest(self, nest: LoopNest) -> Iterator[str]:
        nest_with_loads = with_stored_scalars(nest, self._kept_scalars)
        for launch in launches(nest_with_loads, self._escaping, self._fresh):
            yield from self._allocations_of_kept(launch)
            yield from self._launch(launch)
        self._kept_scalars |= set(defined(nest)) & self._escaping

    def _fresh(self) -> str:
        return self._names.numbered("s")

    def _allocations_of_kept(self, launch: Launch) -> Iterator[str]:
        """Write the allocations of the scalars that a kernel stores for others."""
        for statement in launch.statements:
            if isinstance(statement, Store):
                buffer = statement.target.buffer
                if buffer.role == "work" and buffer not in self._allocated:
                    self._allocated.add(buffer)
                    yield self._allocation(buffer)

    def _next_kernel(self) -> str:
        self._kernel_count += 1
        return f"{self._plan.name}_{self._kernel_count}"

    def _launch(self, launch: Launch) -> Iterator[str]:
        """Write the launch of a kernel."""
        name = self._next_kernel()
        device = self._device
        tiles = tiled(launch)
        kernel = device.entered(kernel_text(name, launch, tiles, device.checks))
        points, arguments = self.index(count(launch.points)), self._launch_arguments([launch])
        if not launch.terms:
            method, max_threads = (
                ("launch", THREADS[0]) if tiles is None else ("launch_samples", tiles.threads)
            )
            yield f"run.{method}({kernel}, {points}, {arguments}, max_threads={max_threads})"
            return
        self._use("shares", "sums")
        finish = device.entered(finish_text(f"{name}_finish", launch, device.checks))
        form = f"{points}, {self.index(count(launch.terms))}, {launch.along}, {len(launch.sums)}"
        yield f"sums(run, {kernel}, {finish}, {form}, {arguments})"

    def _launch_arguments(self, kernel_phases: Sequence[Phase]) -> str:
        """Write the arguments of a kernel that runs `kernel_phases`."""
        names = parameters(kernel_phases)
        arguments = [
            *(self._array(buffer) for buffer in names.buffers),
            *(f"run.constant({table}, np.int64)" for table in names.tables),
            *map(self.named, names.sizes),
            *names.numbers,
            *(["run.failures"] if names.failures else []),
        ]
        return ", ".join(arguments)

    def _block_cooperative(self, steps: Sequence[Step]) -> Iterator[str]:
        """Launch one kernel for all steps, or one for each step if rows are few and long."""
        separate = [line for step in steps for line in self._step(step)]
        name = self._next_kernel()
        stages = phases(with_stored_scalars(steps, self._kept_scalars), self._fresh)
        rows = next(filter(None, map(reduced_rows, stages)))
        lengths = (count((*stage.points[len(rows) :], *stage.terms)) for stage in stages)
        longest = self.index(sympy.Max(*lengths))
        text = block_cooperative_text(name, stages, rows, self._device.checks)
        kernel = self._device.entered(text)
        self._use("shares", "row_by_row")
        self._use("shares", "each_row")
        sizes = f"{self.index(count(rows))}, {longest}"
        yield f"if row_by_row({sizes}):"
        yield f"    each_row(run, {kernel}, {sizes}, {self._launch_arguments(stages)})"
        yield "else:"
        yield from (f"    {line}" for line in separate)

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
        self._device.add(step.residual)
        self._device.add(step.jacobian)
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

    def _recurrence(self, step: Recurrence) -> Iterator[str]:
        """Write the launch of a kernel for a loop over time, or a loop on the host, each step of
        which launches its kernels."""
        if (launch := in_one_kernel(step, self._fresh)) is not None:
            yield from self._launch(launch)
            return
        self._device.add(step.step)
        operands = (self._operand(operand) for operand in (*step.arguments, *step.targets))
        yield self.time_loop(step)
        yield from indented(call_lines(host_name(step.step), ["run", *operands]))

    def _range(self, source: Buffer, start: sympy.Expr, length: sympy.Expr) -> str:
        return f"run.range({source.name}, {self.index(start)}, {self.index(start + length)})"

    def _shape(self, shape: Sequence[sympy.Expr]) -> str:
        return tuple_text([self.index(size) for size in shape] or ["1"])

    def _operand(self, operand: Operand) -> str:
        """Write an operand; a number is an array of one entry, which is not copied to the host."""
        if not operand.shape:
            (entry,) = operand.index
            return self._range(operand.buffer, sympy.sympify(entry), sympy.S.One)
        leading = [self.index(part) for part in operand.index]
        name = operand.buffer.name
        text = f"run.part({', '.join([name, *leading])})" if leading else name
        if operand.buffer.shape[len(leading) :] == operand.shape:
            return text
        return f"{text}.reshape({self._shape(operand.shape)})"


def _host_call(plan: Plan) -> str:
    return f"{host_name(plan)}({', '.join(['run', *operand_names(plan)])})"
