"""The imperative representation of a kernel as steps, for all targets.

The steps are `Allocate`, `Reuse`, `Range`, `Fill`, `Gemm`, `Call`, `LoopNest` (loops over scalar
statements), `BlockCooperative`, `Only`, `Newton`, `Recurrence` and `Choose`. Sizes, indices and
conditions are SymPy expressions over the names of sizes and loop indices; values are `Scalar`
trees. `explain --stage plan` prints the `str` of steps.
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
    """The name of a scalar."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Whole:
    """A buffer, as an operand of `inner_product` or `sum_entries`."""

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
    """Set entries of a buffer to zero: all those with the leading indices of `target`."""

    target: Load

    def lines(self) -> list[str]:
        return [f"{self.target} = 0"]


@dataclass(frozen=True)
class Loop:
    """A loop of `index` from `start` to `extent` - 1. `reduction`: rounds add to the same entry."""

    index: sympy.Symbol
    extent: sympy.Expr
    reduction: bool
    body: tuple[Statement, ...]
    start: sympy.Expr = sympy.S.Zero

    def lines(self) -> list[str]:
        word = "reduce" if self.reduction else "for"
        lower_bound = f"{self.start} <= " if self.start != 0 else ""
        return [f"{word} {lower_bound}{self.index} < {self.extent}", *_indented(self.body)]


@dataclass(frozen=True)
class Guard:
    """Run the body if a condition holds, on sizes and indices or on numbers."""

    condition: Boolean | Scalar
    body: tuple[Statement, ...]

    def lines(self) -> list[str]:
        return [f"if {self.condition}", *_indented(self.body)]


@dataclass(frozen=True)
class Require:
    """Raise an error with the message `failure` unless the condition holds."""

    condition: Scalar
    failure: str

    def lines(self) -> list[str]:
        return [f"require {self.condition} or raise {self.failure!r}"]


Statement = Let | Start | Accumulate | Store | Clear | Loop | Guard | Require


def _indented(body: tuple[Statement, ...]) -> list[str]:
    return ["  " + line for statement in body for line in statement.lines()]


@dataclass(frozen=True)
class Allocate:
    """Allocate work buffers, with undefined entries."""

    buffers: tuple[Buffer, ...]

    def __str__(self) -> str:
        return f"allocate {', '.join(f'{buffer} {buffer.kind}' for buffer in self.buffers)}"


@dataclass(frozen=True)
class Reuse:
    """Give a work buffer the memory of another one of its shape, which is read no more."""

    buffer: Buffer
    place: Buffer

    def __str__(self) -> str:
        return f"reuse {self.place.name} as {self.buffer.name}"


@dataclass(frozen=True)
class Range:
    """Name the part of `source` that begins at `start` along the first axis and has the shape of
    `buffer`."""

    buffer: Buffer
    source: Buffer
    start: sympy.Expr

    def __str__(self) -> str:
        return f"range {self.source.name} from {self.start} as {self.buffer}"


@dataclass(frozen=True)
class Fill:
    """Set all entries to zero."""

    buffer: Buffer

    def __str__(self) -> str:
        return f"fill {self.buffer.name} = 0"


@dataclass(frozen=True)
class LoopNest:
    """Loops and scalar statements. `comment`: their result in index notation; `straight`: whether
    they are straight-line code, with a scalar for each entry of small arrays."""

    comment: str
    body: tuple[Statement, ...]
    straight: bool = False

    def __str__(self) -> str:
        return "\n".join([f"nest {self.comment}", *_indented(self.body)])


@dataclass(frozen=True)
class Segment:
    """A part of an axis: `length` entries from `start` on, or as many as there are."""

    start: sympy.Expr
    length: sympy.Expr

    def __str__(self) -> str:
        return f"{self.start} : {self.start + self.length}"


@dataclass(frozen=True)
class Operand:
    """A matrix, or a stack of matrices, within a buffer: `index` fixes leading axes, or selects a
    part of the first one, and the other axes are read as `shape`, merged in order."""

    buffer: Buffer
    shape: tuple[sympy.Expr, ...]
    index: tuple[sympy.Expr | Segment | Literal[":"], ...] = ()

    def __str__(self) -> str:
        index = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.buffer.name}{index}({', '.join(map(str, self.shape))})"


@dataclass(frozen=True)
class Gemm:
    """target = coefficient * op(left) @ op(right), or += ; op transposes if the flag is set.

    batch: (index, extent) of loops around the product; triangles: "lower", "upper" or "whole" for
    op(left) and op(right), by their known zeros; part: the entries to compute, "whole", "lower", or
    "symmetric" if the product is known to be."""

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
        """The name of the function that computes only the entries that are needed."""
        if self.part == "symmetric":
            is_gram = self.left == self.right and self.left_transposed != self.right_transposed
            return "gram" if is_gram and {*self.triangles} == {"whole"} else "symmetric_gemm"
        return "gemm" if {*self.triangles, self.part} == {"whole"} else "structured_gemm"

    def __str__(self) -> str:
        left = f"{self.left}{chr(39) if self.left_transposed else ''}"
        right = f"{self.right}{chr(39) if self.right_transposed else ''}"
        sign = "+=" if self.accumulate else "="
        loops = "".join(f" for {index} < {extent}" for index, extent in self.batch)
        note = f" ({' @ '.join(self.triangles)}: {self.part})" if self.routine != "gemm" else ""
        return f"gemm {self.target} {sign} {self.coefficient} * {left} @ {right}{loops}{note}"


@dataclass(frozen=True)
class Call:
    """A call of a helper kernel (see `templates.support.cpu`). `failure`: the message of the error
    if it returns False; "" for a kernel that cannot fail."""

    comment: str
    kernel: Kernel
    arguments: tuple[Operand | bool, ...]
    failure: str = ""

    def __str__(self) -> str:
        failure = f" or raise {self.failure!r}" if self.failure else ""
        return f"call {kernel_name(self.kernel)}({', '.join(map(str, self.arguments))}){failure}"


@dataclass(frozen=True)
class BlockCooperative:
    """A block-cooperative kernel: steps that read only the same row of each other's results. The
    threads of a block share the row, and run one step after the other for it."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(["block-cooperative", *(indent(str(step), "  ") for step in self.steps)])


@dataclass(frozen=True)
class Only:
    """Steps that run only if `condition`, a parameter in `Plan.part_parameters`, is true: in the
    call for the first part of the samples."""

    condition: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"if {self.condition}", *(indent(str(step), "  ") for step in self.steps)]
        )


@dataclass(frozen=True)
class Newton:
    """Solve an equation by Newton's method, once for each index of the stack.

    name: the name of the generated function; comment: the formula of the operation.
    residual, jacobian: kernels of (arguments of one index, unknown as a vector).
    iterations: the largest number of steps; arguments: the start, then the parameters of the
    equation; target: the place of the root.
    failure: the message of the error if no root is found; "" to return nan instead.
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
        arguments = ", ".join(map(str, self.arguments))
        parts = "\n".join(indent(str(part), "  ") for part in (self.residual, self.jacobian))
        return f"newton {self.target} from {arguments}\n{parts}"


@dataclass(frozen=True)
class Recurrence:
    """Run a kernel for each time, or for each segment of times, one after the other.

    step: the kernel of one step; index: the time; length: the number of steps; is_reversed: whether
    time runs backwards. arguments, targets: operands that the kernel reads and writes, at `index`.
    """

    comment: str
    step: Plan
    index: sympy.Symbol
    length: sympy.Expr
    is_reversed: bool
    arguments: tuple[Operand, ...]
    targets: tuple[Operand, ...]

    @property
    def name(self) -> str:
        """The name of the kernel of a step; equal loops share it."""
        return self.step.name

    def __str__(self) -> str:
        arguments, targets = (", ".join(map(str, part)) for part in (self.arguments, self.targets))
        direction = " backwards" if self.is_reversed else ""
        head = f"for {self.index} < {self.length}{direction}: {arguments} -> {targets}"
        return f"{head}\n{indent(str(self.step), '  ')}"


@dataclass(frozen=True)
class Choose:
    """Call the kernel of the cheapest of several plans for the same outputs. `variants`: (name of
    the cost, cost as a polynomial of sizes, plan)."""

    variants: tuple[tuple[str, sympy.Expr, Plan], ...]

    def __str__(self) -> str:
        parts = (indent(f"at cost {cost}\n{plan}", "  ") for _, cost, plan in self.variants)
        return "\n".join(["choose the cheapest", *parts])


Step = (
    Allocate
    | Reuse
    | Range
    | Fill
    | LoopNest
    | Gemm
    | Call
    | BlockCooperative
    | Only
    | Newton
    | Recurrence
    | Choose
)


@dataclass(frozen=True)
class Argument:
    """A parameter of a kernel: a scalar for inputs of rank 0, else an array. `name` is its public
    name, `local` its name within the kernel, `structure` the declared one."""

    name: str
    local: str
    shape: tuple[sympy.Expr, ...]
    structure: str = "general"


@dataclass(frozen=True)
class Size:
    """A named size, read off the length of an argument's axis.

    value: the size, in terms of `dimensions.LENGTH` (the length) and sizes before it; exact:
    whether the division by which it is computed never leaves a remainder; local: the name within
    the kernel."""

    name: str
    local: str
    argument: Argument
    axis: int
    value: sympy.Expr
    exact: bool


@dataclass(frozen=True)
class Partition:
    """A partition of a kernel's work into parts, which threads compute.

    axis: "rows" or "samples". By rows, the kernel of a part takes its number, `part`, and the
    number of parts, `parts`, and computes its share of the rows of the outputs. By samples, it gets
    slices of arrays along their first axis; if it sums over samples, also the number of all
    samples, and whether this part is the first, which adds all terms that are no sums over samples.
    kernel: the kernel of a part; None if it is the kernel itself, called for some of the samples.
    is_whole_kernel: whether the kernel for all of the work calls the one of a part, with all of it.
    is_batch_last: whether the kernel of a part copies its samples to the batch-last layout.

    Flags of arguments, then outputs:
    sliced: whether an array is sliced along its first axis.
    summed: whether the results of all parts are added up.

    Costs, by the sizes:
    ops: estimated scalar operations that parts divide.
    ops_per_part: estimated scalar operations that each part adds to those.
    entries_per_sample: memory of a sample, in numbers, if threads compute blocks of samples that
    fit in the cache; else 0.

    Limits:
    min_samples: fewest samples of a block, or for which the batch-last layout is used.
    is_blas_bound: whether BLAS does most of the work, so that parts pay only if the arrays of all
    samples exceed the cache.
    is_gram_bound: whether BLAS computes matrices A' diag(w) A for most of the work, which threads
    of ours share better than its own; `is_blas_bound` is for other products.
    """

    axis: Literal["rows", "samples"]
    kernel: Plan | None
    sliced: tuple[bool, ...]
    summed: tuple[bool, ...]
    ops: sympy.Expr
    ops_per_part: sympy.Expr = sympy.S.Zero
    entries_per_sample: sympy.Expr = sympy.S.Zero
    min_samples: int = 1
    is_whole_kernel: bool = False
    is_batch_last: bool = False
    is_blas_bound: bool = False
    is_gram_bound: bool = False

    @property
    def has_sums(self) -> bool:
        """Whether results of parts are added up."""
        return any(self.summed)


@dataclass(frozen=True)
class Plan:
    """One kernel: its parameters are the arguments, then the outputs.

    outputs: (public name, buffer); sizes: named sizes, read off the arguments.
    constants: (name, array) of tables that the module has as variables.
    part_parameters: names of further parameters, numbers that select a part of the work.
    partitions: how threads share the work, if they do: at most one of this kernel, and one of
    another that computes many samples in the batch-last layout.
    """

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[tuple[str, Buffer], ...]
    sizes: tuple[Size, ...]
    constants: tuple[tuple[str, np.ndarray], ...]
    steps: tuple[Step, ...]
    part_parameters: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()

    @property
    def variants(self) -> tuple[Plan, ...]:
        """The plans that this one chooses from when it is called."""
        choices = (step for step in self.steps if isinstance(step, Choose))
        return tuple(variant for choice in choices for _, _, variant in choice.variants)

    @property
    def inner(self) -> tuple[Plan, ...]:
        """The plans of the kernels that this one calls: its variants, and the kernels for parts of
        the samples."""
        parts = [part.kernel for part in self.partitions if part.kernel and part.axis == "samples"]
        return (*self.variants, *(plan for part in parts for plan in (*part.variants, part)))

    @property
    def partition(self) -> Partition | None:
        """How threads share the work of this kernel; None if they do not."""
        return next((part for part in self.partitions if not part.is_batch_last), None)

    @property
    def batch_last(self) -> Partition | None:
        """How threads share the work of the kernel for many samples; None if there is none."""
        return next((part for part in self.partitions if part.is_batch_last), None)

    @property
    def with_callees(self) -> tuple[Plan, ...]:
        """The plan after all plans whose kernels it calls, directly or indirectly."""
        solved = (part for step in self.equations for part in (step.residual, step.jacobian))
        callees = (*solved, *(step.step for step in self.recurrences), *self.inner)
        return (*(plan for callee in callees for plan in callee.with_callees), self)

    @property
    def whole(self) -> Plan:
        """The plan that has the steps of the kernel: this one, or that of a part if the kernel only
        calls the part, with all of the work."""
        match self.partition:
            case Partition(axis="samples", kernel=Plan() as part, is_whole_kernel=True):
                return part
        return self

    @property
    def every_step(self) -> tuple[Step, ...]:
        """The steps, including those that run under a condition."""
        pairs = ((step, *step.steps) if isinstance(step, Only) else (step,) for step in self.steps)
        return tuple(step for pair in pairs for step in pair)

    @property
    def equations(self) -> tuple[Newton, ...]:
        """The steps that solve equations."""
        return tuple(step for step in self.every_step if isinstance(step, Newton))

    @property
    def recurrences(self) -> tuple[Recurrence, ...]:
        """The loops over time."""
        return tuple(step for step in self.every_step if isinstance(step, Recurrence))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The helper kernels called, each once."""
        calls = (step.kernel for step in self.every_step if isinstance(step, Call))
        return tuple(dict.fromkeys(calls))

    def __str__(self) -> str:
        inputs = ", ".join(argument.name for argument in self.arguments)
        outputs = ", ".join(str(buffer) for _, buffer in self.outputs)
        parts = [indent(str(self.whole), "  ")] if self.whole is not self else []
        return "\n".join([f"{self.name}: {inputs} -> {outputs}", *parts, *map(str, self.steps)])
