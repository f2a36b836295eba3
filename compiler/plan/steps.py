"""The imperative representation: what a kernel does, step by step, for whatever target.

A kernel is a list of steps: `Allocate`, `Reuse`, `Fill`, `Gemm`, `Call`, `LoopNest` (loops over
scalar statements), `BlockCooperative`. Sizes, indices and conditions are SymPy expressions over the
names of sizes and loop indices; values are `Scalar` trees. `str` of each is what `explain --stage
plan` prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import Literal

import numpy as np
import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.ir.operation import Kernel, kernel_name


@dataclass(frozen=True)
class Buffer:
    """An array in memory, C-contiguous. `role`: "argument", "output", "work" or "constant";
    `kind`: "real" (the precision of the outputs) or "integer" (int32, pivots)."""

    name: str
    shape: tuple[sympy.Expr, ...]
    role: str = "work"
    kind: str = "real"

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Name:
    """A scalar named before."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Whole:
    """All of a buffer, as an operand of `inner_product` or `sum_entries`."""

    buffer: Buffer

    def __str__(self) -> str:
        return self.buffer.name


@dataclass(frozen=True)
class Number:
    """A number, or arithmetic of sizes and loop indices."""

    value: sympy.Expr

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Load:
    """An entry of a buffer."""

    buffer: Buffer
    indices: tuple[sympy.Expr, ...]

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Operate:
    """`operator` applied to operands: add, mul, div, neg, pow, or the name of a function;
    choose (condition, then, else); a comparison; and, or, not."""

    operator: str
    operands: tuple[Scalar, ...]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Test:
    """A condition on sizes and loop indices, as a scalar."""

    condition: Boolean

    def __str__(self) -> str:
        return str(self.condition)


Scalar = Name | Whole | Number | Load | Operate | Test


@dataclass(frozen=True)
class Let:
    """Name a scalar."""

    name: str
    value: Scalar

    def lines(self) -> list[str]:
        return [f"{self.name} = {self.value}"]


@dataclass(frozen=True)
class Start:
    """Start a sum at zero."""

    name: str

    def lines(self) -> list[str]:
        return [f"{self.name} = 0"]


@dataclass(frozen=True)
class Accumulate:
    """Add to a sum."""

    name: str
    value: Scalar

    def lines(self) -> list[str]:
        return [f"{self.name} += {self.value}"]


@dataclass(frozen=True)
class Store:
    """Write, or add to, an entry of a buffer."""

    target: Load
    value: Scalar
    accumulate: bool

    def lines(self) -> list[str]:
        return [f"{self.target} {'+=' if self.accumulate else '='} {self.value}"]


@dataclass(frozen=True)
class Clear:
    """Set the entries of a buffer to zero whose first indices are these."""

    target: Load

    def lines(self) -> list[str]:
        return [f"{self.target} = 0"]


@dataclass(frozen=True)
class Loop:
    """`index` from `start` to `extent` - 1. A reduction's rounds add to the same entries."""

    index: sympy.Symbol
    extent: sympy.Expr
    reduction: bool
    body: tuple[Statement, ...]
    start: sympy.Expr = sympy.S.Zero

    def lines(self) -> list[str]:
        word = "reduce" if self.reduction else "for"
        first = f"{self.start} <= " if self.start != 0 else ""
        return [f"{word} {first}{self.index} < {self.extent}", *_indented(self.body)]


@dataclass(frozen=True)
class Guard:
    """The body only where the condition holds, of sizes and indices or of numbers."""

    condition: Boolean | Scalar
    body: tuple[Statement, ...]

    def lines(self) -> list[str]:
        return [f"if {self.condition}", *_indented(self.body)]


@dataclass(frozen=True)
class Require:
    """Raise unless the condition holds; `failure` says what is wrong."""

    condition: Scalar
    failure: str

    def lines(self) -> list[str]:
        return [f"require {self.condition} or raise {self.failure!r}"]


Statement = Let | Start | Accumulate | Store | Clear | Loop | Guard | Require


def _indented(body: tuple[Statement, ...]) -> list[str]:
    return ["  " + line for statement in body for line in statement.lines()]


@dataclass(frozen=True)
class Allocate:
    """Make work buffers, their entries undefined."""

    buffers: tuple[Buffer, ...]

    def __str__(self) -> str:
        return f"allocate {', '.join(f'{buffer} {buffer.kind}' for buffer in self.buffers)}"


@dataclass(frozen=True)
class Reuse:
    """Let a work buffer have the memory of another of its shape, which is read no more."""

    buffer: Buffer
    place: Buffer

    def __str__(self) -> str:
        return f"reuse {self.place.name} as {self.buffer.name}"


@dataclass(frozen=True)
class Fill:
    """Set all entries to zero."""

    buffer: Buffer

    def __str__(self) -> str:
        return f"fill {self.buffer.name} = 0"


@dataclass(frozen=True)
class LoopNest:
    """A loop nest: loops and scalar statements. `comment`: what they compute, in index notation;
    `straight`: whether they are straight-line code, a scalar for each entry of small arrays."""

    comment: str
    body: tuple[Statement, ...]
    straight: bool = False

    def __str__(self) -> str:
        return "\n".join([f"nest {self.comment}", *_indented(self.body)])


@dataclass(frozen=True)
class Operand:
    """A matrix, or a stack of them, within a buffer: `index` fixes leading axes, and what is
    left is read as `shape` (its axes merged in order)."""

    buffer: Buffer
    shape: tuple[sympy.Expr, ...]
    index: tuple[sympy.Expr | Literal[":"], ...] = ()

    def __str__(self) -> str:
        index = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.buffer.name}{index}({', '.join(map(str, self.shape))})"


@dataclass(frozen=True)
class Gemm:
    """target = coefficient * op(left) @ op(right), or += ; repeated for each of `batch`.

    triangles: what op(left) and op(right) are known to be, "lower", "upper" or "whole"; part: what
    is wanted of the product, "whole", "lower", or "symmetric" where it is known to be."""

    comment: str
    coefficient: sympy.Expr
    left: Operand
    left_transposed: bool
    right: Operand
    right_transposed: bool
    accumulate: bool
    target: Operand
    batch: tuple[tuple[sympy.Symbol, sympy.Expr], ...] = ()
    triangles: tuple[str, str] = ("whole", "whole")
    part: str = "whole"

    @property
    def routine(self) -> str:
        """The name of the function that leaves out what need not be computed."""
        if self.part == "symmetric":
            turned = self.left == self.right and self.left_transposed != self.right_transposed
            return "gram" if turned and {*self.triangles} == {"whole"} else "symmetric_gemm"
        return "gemm" if {*self.triangles, self.part} == {"whole"} else "structured_gemm"

    def __str__(self) -> str:
        left = f"{self.left}{chr(39) if self.left_transposed else ''}"
        right = f"{self.right}{chr(39) if self.right_transposed else ''}"
        sign = "+=" if self.accumulate else "="
        over = "".join(f" for {index} < {extent}" for index, extent in self.batch)
        known = f" ({' @ '.join(self.triangles)}: {self.part})" if self.routine != "gemm" else ""
        return f"gemm {self.target} {sign} {self.coefficient} * {left} @ {right}{over}{known}"


@dataclass(frozen=True)
class Call:
    """A helper kernel (see `templates.support.cpu`) on operands and flags. `failure`: what is wrong
    where it returns False; "" for a kernel that cannot fail."""

    comment: str
    kernel: Kernel
    arguments: tuple[Operand | bool, ...]
    failure: str = ""

    def __str__(self) -> str:
        failure = f" or raise {self.failure!r}" if self.failure else ""
        return f"call {kernel_name(self.kernel)}({', '.join(map(str, self.arguments))}){failure}"


@dataclass(frozen=True)
class BlockCooperative:
    """A block-cooperative kernel: steps that need no more of each other than the same row. The
    threads of a device's block share the row, and do one step after the other for it."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(["block-cooperative", *(indent(str(step), "  ") for step in self.steps)])


@dataclass(frozen=True)
class Only:
    """Steps that are done only where a condition holds, of what the kernel is given (see
    `Plan.given`): with the first part of the samples, or in one phase."""

    condition: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"if {self.condition}", *(indent(str(step), "  ") for step in self.steps)]
        )


@dataclass(frozen=True)
class Newton:
    """Solve an equation by Newton's method, once for each index of the stacks.

    name: of the function that does it; residual, jacobian: kernels of (arguments of one index,
    unknown as a vector); arguments: the start, then what else they depend on. failure: what is
    wrong where no root is found; "" where the result is nan then.
    """

    name: str
    comment: str
    residual: Plan
    jacobian: Plan
    iterations: int
    arguments: tuple[Operand, ...]
    target: Operand
    failure: str

    def __str__(self) -> str:
        given = ", ".join(map(str, self.arguments))
        parts = "\n".join(indent(str(part), "  ") for part in (self.residual, self.jacobian))
        return f"newton {self.target} from {given}\n{parts}"


@dataclass(frozen=True)
class Choose:
    """Call the kernel of the cheapest of several plans, which all compute the same; each with its
    cost, a name and a polynomial of the sizes."""

    variants: tuple[tuple[str, sympy.Expr, Plan], ...]

    def __str__(self) -> str:
        parts = (indent(f"at cost {cost}\n{plan}", "  ") for _, cost, plan in self.variants)
        return "\n".join(["choose the cheapest", *parts])


Step = Allocate | Reuse | Fill | LoopNest | Gemm | Call | BlockCooperative | Only | Newton | Choose


@dataclass(frozen=True)
class Argument:
    """A parameter of a kernel: a scalar for rank 0 inputs, else an array. `name` is the public
    one, `local` that within the kernel."""

    name: str
    local: str
    shape: tuple[sympy.Expr, ...]


@dataclass(frozen=True)
class Size:
    """A named size: `value`, in terms of `dimensions.LENGTH` and sizes before it, is what the
    length of an argument's axis makes it; `exact` where no remainder can be left. `local` is
    its name within the kernel."""

    name: str
    local: str
    argument: Argument
    axis: int
    value: sympy.Expr
    exact: bool


@dataclass(frozen=True)
class Parts:
    """How a kernel's work is cut along the first axis of its outputs.

    sliced: which arguments are cut, as all outputs are.
    work: about how many operations it takes, by the sizes.
    fixed: whether each part does some work that does not depend on its length.
    columns: the kernel that has the samples last in memory; None where that gains nothing.
    """

    sliced: tuple[bool, ...]
    work: sympy.Expr
    fixed: bool
    columns: Columns | None = None


@dataclass(frozen=True)
class Columns:
    """A kernel that has the samples last in memory.

    entries: how many numbers each sample takes in memory, by the sizes.
    It is called for `least` samples or more, whose entries are at most `most`, and at most `each`
    times the number of samples.
    """

    kernel: Plan
    entries: sympy.Expr
    least: int
    each: int
    most: int


@dataclass(frozen=True)
class Rows:
    """A kernel for a share of the rows of the outputs.

    kernel: what threads call. It takes the arrays of `work` besides, which one phase makes for
    others, and whole numbers: where there are several phases, `phase`, the number of one, which all
    threads have to be done with before the next; and `part` and `parts`: which share, and of how
    many. gain: about how many operations a second thread takes over, by the sizes.
    """

    kernel: Plan
    phases: int
    work: tuple[Buffer, ...]
    gain: sympy.Expr


@dataclass(frozen=True)
class Sums:
    """How results are made of sums over samples.

    part: adds up a part of the samples. It takes the kernel's parameters, the number of all
    samples, and whether this is the first part, which brings all that is no sum over samples.
    own: whether the kernel does what `part` does with all samples, so that it needs no steps.
    sliced: which arguments are cut along their first axis. divided: which outputs come sample by
    sample, and are cut, too; alone: which ones have no sums, and come with the first part.
    work: about how many operations a sample takes, by the sizes; entries: how many numbers it
    takes in memory; fixed: how many operations each part takes besides.
    least: the least number of samples for which `part` is worth calling; 1 where it takes several
    threads for that. products: whether BLAS does most of the work, so that parts gain only where
    the arrays of all samples do not stay in the cache.
    """

    part: Plan
    own: bool
    sliced: tuple[bool, ...]
    divided: tuple[bool, ...]
    alone: tuple[bool, ...]
    work: sympy.Expr
    entries: sympy.Expr
    fixed: sympy.Expr
    least: int
    products: bool


@dataclass(frozen=True)
class Plan:
    """One kernel: its parameters are the arguments, then the outputs.

    outputs: their public names, and their buffers.
    sizes: where each comes from.
    given: names of numbers that say which part of the work it does: parameters besides.
    parts, rows, sums: how threads share the work, at most one of them.
    """

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[tuple[str, Buffer], ...]
    sizes: tuple[Size, ...]
    constants: tuple[tuple[str, np.ndarray], ...]
    steps: tuple[Step, ...]
    given: tuple[str, ...] = ()
    parts: Parts | None = None
    rows: Rows | None = None
    sums: Sums | None = None

    @property
    def variants(self) -> tuple[Plan, ...]:
        """The plans that this one chooses from when it is called."""
        choices = (step for step in self.steps if isinstance(step, Choose))
        return tuple(variant for choice in choices for _, _, variant in choice.variants)

    @property
    def inner(self) -> tuple[Plan, ...]:
        """The plans of the kernels that belong to this one: those that it chooses from, and those
        for parts of the samples."""
        added = [self.sums.part] if self.sums else []
        if self.parts and self.parts.columns:
            added.append(self.parts.columns.kernel)
        return (*self.variants, *(each for plan in added for each in (*plan.variants, plan)))

    @property
    def short_parts(self) -> bool:
        """Whether it pays to compute a part at a time whose arrays stay in the cache: where there
        are arrays of any size besides arguments and outputs."""
        steps = [step for plan in (self, *self.variants) for step in plan.steps]
        made = [buffer for step in steps if isinstance(step, Allocate) for buffer in step.buffers]
        held = any(size.free_symbols for buffer in made for size in buffer.shape)
        return self.parts is not None and not self.parts.fixed and held

    @property
    def every_step(self) -> tuple[Step, ...]:
        """The steps, those that are done under a condition, too."""
        pairs = ((step, *step.steps) if isinstance(step, Only) else (step,) for step in self.steps)
        return tuple(step for pair in pairs for step in pair)

    @property
    def equations(self) -> tuple[Newton, ...]:
        """The steps that solve equations."""
        return tuple(step for step in self.every_step if isinstance(step, Newton))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The helper kernels called, each once."""
        calls = (step.kernel for step in self.every_step if isinstance(step, Call))
        return tuple(dict.fromkeys(calls))

    def __str__(self) -> str:
        inputs = ", ".join(argument.name for argument in self.arguments)
        outputs = ", ".join(str(buffer) for _, buffer in self.outputs)
        parts = [indent(str(self.sums.part), "  ")] if self.sums and self.sums.own else []
        return "\n".join([f"{self.name}: {inputs} -> {outputs}", *parts, *map(str, self.steps)])
