"""Operations: all that the compiler knows of one is in its record.

The record gives shapes, values, differential, text and kernel. Everything elementwise is a SymPy
expression (see `scalar_functions`), and everything multilinear an `Einsum`; the registry holds what
is left: inverses, determinants, softmax, equations, ...
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from derivatrix.compiler.ir.content import Keyed, content_digest
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.identifiers import require_identifier
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

if TYPE_CHECKING:
    from derivatrix.compiler.ir.arrays import Array
    from derivatrix.compiler.ir.nodes import Apply, Leaf, Node
    from derivatrix.compiler.operations.unrolled import Unrolled

Parameters = tuple[Hashable, ...]
Arrays = Sequence[np.ndarray]
Value = Callable[[Arrays, Parameters], tuple[np.ndarray, ...]]
Single = Callable[[Sequence["Array"], Sequence[frozenset[str]]], tuple["Array", ...] | None]
EquationTerms = Sequence[tuple["Array | None", "Array | None"]]
Kernel = str | Callable[..., bool | None]
"""A helper kernel: "file.function" of the target's support, or a user's own function."""


def kernel_name(kernel: Kernel) -> str:
    """Return the name of a helper kernel in kernels. Raises UnsupportedError for lambdas."""
    name = kernel.rpartition(".")[2] if isinstance(kernel, str) else kernel.__name__
    if not name.isidentifier():
        raise UnsupportedError(f"{name}: a kernel is defined at the top level of its file")
    return name


@dataclass(frozen=True)
class Point:
    """The point at which a rule is evaluated: the operation's `arguments`, their `tangents` (zeros
    where an argument does not vary), its `results` and `parameters`, without stacked axes."""

    arguments: tuple[Array, ...]
    tangents: tuple[Array, ...]
    results: tuple[Array, ...]
    parameters: Parameters = ()

    @property
    def result(self) -> Array:
        return self.results[0]


@dataclass(frozen=True)
class Equation:
    """The equation that an operation solves.

    unknown: the unknown as a vector (N,)
    given: the operation's arguments, the start first, of which the following two are expressions
    residual: (N,), zero at the solution
    jacobian: (N, N), of the residual by the unknown
    fails: whether it is an error, instead of nan, if no root is found
    iterations: the most Newton steps
    """

    unknown: Leaf
    given: tuple[Leaf, ...]
    residual: Node
    jacobian: Node
    fails: bool
    iterations: int


@dataclass(frozen=True)
class _Record:
    """A dataclass whose instances are made again from the values of their fields."""

    @property
    def fields(self) -> tuple[Any, ...]:
        """The values of all fields, in order."""
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Loop(_Record):
    """The loop over time that an operation runs: carries[t + 1] = following(carries[t], slices[t]).

    The operation's arguments are the carries at the start, an array of the slices at all times for
    each slice, then the parameters; its results are the carries at all times, the start included.

    carries, slices, parameters: placeholders for the arguments in one step
    following: the carries after the step
    length: the number of steps
    injections: for each of the first slices, the position of the carry that it is added to, in a
        loop that is linear in the carries and in these slices together; None for other loops
    is_reversed: whether the loop runs from the last slice to the first
    names: of the operands in formulas, in order
    singular: squares of lengths at whose zeros a step of the function's own loop has no finite
        slope; derivatives of the loop have those of the loop
    """

    carries: tuple[Leaf, ...]
    slices: tuple[Leaf, ...]
    parameters: tuple[Leaf, ...]
    following: tuple[Node, ...]
    length: Dimension
    injections: tuple[int, ...] | None
    is_reversed: bool
    names: tuple[str, ...]
    singular: tuple[Node, ...]

    @property
    def operands(self) -> tuple[Leaf, ...]:
        """The placeholders of all arguments, in order."""
        return self.carries + self.slices + self.parameters


@dataclass(frozen=True)
class Segments(_Record):
    """The loop over segments of series that an operation runs.

    Only the carries between segments are kept. What lies within a segment is computed from them,
    again where a derivative needs it: one level of checkpoints (Griewank, Optimization Methods and
    Software 1, 1992).

    The operation's arguments are the carries at the start; the carries of `forward` at its start;
    whole series; parameters. Its results are the carries at the end, series, and sums.

    carries, series, parameters: placeholders for the arguments in one segment. A series has as many
        entries as the segment has steps
    following: the carries after a segment, outputs: its part of the series that result, sums: its
        part of the sums over all segments; for any number of steps, so also for all of them
    length: the size that stands for the number of steps in all of these
    steps: the number of steps of a segment; the last segment has what is left
    is_reversed: whether the loop runs from the last segment to the first
    forward: the operation of the loop whose carries at the start of each segment are kept for this
        loop; its placeholders are also those of this loop. None if no carries are
    """

    carries: tuple[Leaf, ...]
    series: tuple[Leaf, ...]
    parameters: tuple[Leaf, ...]
    following: tuple[Node, ...]
    outputs: tuple[Node, ...]
    sums: tuple[Node, ...]
    length: Dimension
    steps: int
    is_reversed: bool
    forward: Operation | None = None

    @property
    def forward_carries(self) -> tuple[Leaf, ...]:
        """The placeholders of the carries of `forward` at the start of a segment."""
        forward = self.forward and self.forward.segments
        return forward.carries if forward else ()

    @property
    def operands(self) -> tuple[Leaf, ...]:
        """The placeholders of all arguments, in order."""
        return self.carries + self.forward_carries + self.series + self.parameters

    @property
    def results(self) -> tuple[Node, ...]:
        """The expressions of all results, in order."""
        return self.following + self.outputs + self.sums


@dataclass(frozen=True, eq=False)
class Operation(Keyed):
    """One operation.

    Identity
    name: its name in `derivatrix`, as in NumPy or SciPy
    outputs: the names of the outputs, where there are several
    description: for users: result, conventions (sign, order, gauge) and errors

    Meaning
    ranks: the number of core axes of each argument; leading axes are stacked
    shapes: core shapes of the arguments, parameters -> core shapes of the outputs; raises
        ShapeError
    requires: core shapes -> the dimensions (differences of sizes) that must not be negative
    prepare: the change that the public function makes to its arrays before it applies the
        operation, as taking the symmetric part; may raise ShapeError
    value: NumPy arrays (leading stacked axes broadcast as in NumPy), parameters -> the outputs
    numpy: texts of the arguments, parameters, output number -> a NumPy/SciPy expression that any
        operator can stand beside: a call, or in parentheses. It has each argument once: a lambda
        names an argument that it needs repeatedly. Of loops that have several outputs it is the
        tuple of all of them
    facts: facts of each argument, output number -> structure facts of that output
    domain: for each argument the structure of the points drawn for it ("" for any)
    equation: the equation that it solves, instead of a kernel
    loop: the loop over time that it runs, instead of a kernel
    segments: the loop over segments of series that it runs, instead of a kernel
    matrix_equation: the equation Σ L X R = C that it solves for X: all arguments but the last, C ->
        pairs L, R, None for an identity. Without a kernel Schur forms of L and R solve L X + X R
    states: the structure that it asserts of its argument, which it returns unchanged
    is_mask: whether it multiplies its only argument, entry by entry, by constants
    is_selector: whether its results are weights: products with a weight 0 are 0, even if another
        factor is infinite
    is_inverse: whether it inverts a square matrix: formulas have the power -1, and kernels solve
        equations in place of products with it
    is_matrix_function: whether it is f(A) for a function f of a square matrix, so that it
        commutes with A

    Derivatives
    differential: a point -> the tangents of the outputs, linear in the tangents (Magnus and
        Neudecker's dY)
    transposes: position of an argument in which the operation is linear -> a rule
        (point, cotangent of the result) -> cotangent of that argument
    adjoint: for an operation that is linear in several arguments together, in place of
        `transposes`: (point, cotangents of all outputs) -> position of an argument -> its cotangent
    rules: rules of the simplifier for its nodes: a node -> its simpler form, or None

    Formulas
    unicode, latex: format strings of the arguments, as "inv({0})", one for each output if there
        are several; by default a call of the name in the text notation, or of `name`
    notation: its name in the text notation, one for each output; "" or nothing for none
    title: its name in derivations, as "an inverse"; by default `name`
    letters: the letters of its outputs in books, as "Q" and "R"; "" for none

    Kernels
    kernel: the kernel that fills the outputs: "file.function" in `templates/support/cpu`, or a
        Python function of yours that Numba compiles
    factor_kernel: instead of a kernel, that of `plan.solvers` for a factorised argument: "inverse",
        "det", "logdet" or "logabsdet"
    columns: the kernel for one argument and one output whose only stacked axis is last in memory
    failure: the error when the kernel returns False; "" for a kernel that returns nothing
    reads: "lower" if the kernel reads only the lower triangle of its argument
    follows_from: operations on the same arguments -> a rule, their point -> the result of this
        one; where a kernel has several of these operations, the other one computes them all
    unrolled: the outputs entry by entry, for small arguments whose sizes are numbers
    single: entries of arguments with one entry each, their facts -> the entry of each output;
        may return None
    """

    name: str
    ranks: tuple[int, ...]
    shapes: Callable[[Sequence[Shape], Parameters], tuple[Shape, ...]]
    value: Value
    differential: Callable[[Point], tuple[Array, ...]]
    numpy: Callable[[Sequence[str], Parameters, int], str]
    unicode: str | tuple[str, ...] = ""
    latex: str | tuple[str, ...] = ""
    transposes: dict[int, Callable[[Point, Array], Array]] = field(default_factory=dict)
    kernel: Kernel | None = None
    factor_kernel: str = ""
    columns: Kernel | None = None
    failure: str = ""
    reads: str = "whole"
    follows_from: Mapping[Operation, Callable[[Point], Array]] = field(default_factory=dict)
    unrolled: Unrolled | None = None
    single: Single | None = None
    facts: Callable[[Sequence[frozenset[str]], int], frozenset[str]] = lambda arguments, output: (
        frozenset()
    )
    domain: tuple[str, ...] = ()
    prepare: Callable[[Sequence[Array]], Sequence[Array]] = lambda arrays: arrays
    requires: Callable[[Sequence[Shape]], Sequence[Dimension]] = lambda cores: ()
    outputs: tuple[str, ...] = ()
    notation: tuple[str, ...] = ()
    title: str = ""
    letters: tuple[str, ...] = ()
    description: str = ""
    equation: Equation | None = None
    loop: Loop | None = None
    segments: Segments | None = None
    matrix_equation: Callable[..., EquationTerms] | None = None
    adjoint: Callable[[Point, Sequence[Array]], dict[int, Array]] | None = None
    states: str = ""
    is_mask: bool = False
    is_selector: bool = False
    is_inverse: bool = False
    is_matrix_function: bool = False
    rules: tuple[Callable[[Apply], Node | None], ...] = ()

    maker: ClassVar[tuple[Callable[..., Operation], tuple[Any, ...]] | None] = None
    """The function and arguments that create an unregistered operation, as that of an equation,
    again in another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        if OPERATIONS.get(self.name) is self:
            return registered, (self.name,)
        if self.maker is None:
            raise PicklingError(
                f"the operation {self.name} is not registered, and other processes cannot know it; "
                "register it with `derivatrix.register`, there as here"
            )
        return self.maker

    def __post_init__(self) -> None:
        arguments = ", ".join(f"{{{position}}}" for position in range(len(self.ranks)))
        for style, form in {"unicode": "{}", "latex": r"\operatorname{{{{{}}}}}"}.items():
            names = self.notation or (self.name,) * max(1, len(self.outputs))
            calls = [f"{form.format(name)}({arguments})" for name in names]
            if not getattr(self, style):
                object.__setattr__(self, style, tuple(calls) if self.outputs else calls[0])

    @cached_property
    def key(self) -> str:
        """The name, and a digest of all fields and of the code of their functions. Raises
        DeclarationError where a function refers to a value that cannot be read."""
        try:
            return f"{self.name}.{content_digest(self)}"
        except DeclarationError as error:
            raise DeclarationError(f"{self.name}: {error}") from error

    @property
    def has_tuple_text(self) -> bool:
        """True if `numpy` writes the tuple of all outputs."""
        is_loop = self.loop is not None or self.segments is not None
        return is_loop and len(self.outputs) > 1

    def formula(self, style: str, output: int) -> str:
        """Return the format string of an output, for the style "unicode" or "latex"."""
        text: str | tuple[str, ...] = getattr(self, style)
        return text if isinstance(text, str) else text[output]


OPERATIONS: dict[str, Operation] = {}


def registered(name: str) -> Operation:
    """Return the operation of this name. Raises DeclarationError if none is registered."""
    if name not in OPERATIONS:
        raise DeclarationError(
            f"no operation is called {name!r} in this process; import the file that registers it"
        )
    return OPERATIONS[name]


def register(operation: Operation) -> Operation:
    """Register an operation, which is then `derivatrix.<name>`. Raises DeclarationError for other
    values, and for names that are no identifiers or taken."""
    if not isinstance(operation, Operation):
        raise DeclarationError(f"register takes an Operation, not {type(operation).__name__}")
    for name in (operation.name, *operation.outputs):
        require_identifier(name, "an operation or output")
    if operation.name in OPERATIONS:
        raise DeclarationError(
            f"an operation is called {operation.name!r} already; choose another name"
        )
    OPERATIONS[operation.name] = operation
    return operation
