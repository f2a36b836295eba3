"""What an operation is: one record, in one place.

A record says how an operation is shaped, valued, differentiated, written and computed.
Everything elementwise is a SymPy expression (see `scalars`), and everything multilinear an
`Einsum`; the registry holds what is left: inverses, determinants, softmax, equations, ...
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
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
Kernel = str | Callable[..., bool | None]
"""A helper kernel: "file.function" of the target's support, or a user's own function."""


def kernel_name(kernel: Kernel) -> str:
    """The name by which kernels call a helper kernel. Raises UnsupportedError for a lambda."""
    name = kernel.rpartition(".")[2] if isinstance(kernel, str) else kernel.__name__
    if not name.isidentifier():
        raise UnsupportedError(f"{name} is no kernel: one is defined at the top level of its file")
    return name


@dataclass(frozen=True)
class Point:
    """Where a rule is evaluated: the operation's `arguments`, their `tangents` (zeros where an
    argument does not vary), its `results` and its `parameters`, all without stacked axes."""

    arguments: tuple[Array, ...]
    tangents: tuple[Array, ...]
    results: tuple[Array, ...]
    parameters: Parameters = ()

    @property
    def result(self) -> Array:
        return self.results[0]


@dataclass(frozen=True)
class Equation:
    """What an operation that solves an equation is planned from.

    unknown: the unknown as a vector; given: the operation's arguments, the start first, by
    which `residual` (N,) and `jacobian` (N, N) of the unknown are expressed. fails: whether a
    root that is not found in so many `iterations` is an error; else it is nan.
    """

    unknown: Leaf
    given: tuple[Leaf, ...]
    residual: Node
    jacobian: Node
    fails: bool
    iterations: int


@dataclass(frozen=True, eq=False)
class Operation(Keyed):
    """One operation.

    name: its name in `derivatrix`, as in NumPy or SciPy.
    ranks: the number of core axes of each argument.
    shapes: core shapes of the arguments and parameters -> core shapes of the outputs;
        raises ShapeError.
    value: NumPy arrays (with leading stacked axes, broadcast as NumPy does) and parameters ->
        the outputs.
    differential: the point -> the tangents of the outputs, linear in the tangents
        (Magnus and Neudecker's dY).
    transposes: for an argument in which the operation is linear, its position -> a rule
        (point, cotangent of the result) -> cotangent of that argument.
    numpy: texts of the arguments, parameters, output number -> a NumPy/SciPy expression.
    unicode, latex: the formula as a format string of the arguments, as in "inv({0})"; several
        outputs: one for each. If left out, a call of the name in the text notation, or of `name`.
    kernel: what computes the outputs: "file.function" in `templates/support/cpu`, or a Python
        function of your own that Numba compiles.
    columns: the same for a stack of one axis which comes last in memory, of one argument and one
        output; None where there is no such kernel.
    failure: what is wrong with an argument for which the kernel returns False; "" where it cannot
        fail and returns nothing.
    reads: "lower" where the kernel reads no more than the lower triangle of its argument.
    unrolled: the outputs entry by entry, for small arguments whose sizes are numbers; None where
        only the kernel computes them.
    single: the entry of each output, for arguments of one entry, given the entries of these and the
        facts of each, or None; None where no arguments have such a form.
    facts: structure facts of an output, given the facts of each argument and its number.
    domain: for each argument the structure its points need when it is an input ("" for any).
    prepare: what its public function does with the arrays it is given before all else, as taking
        the symmetric part; may raise ShapeError.
    requires: core shapes -> the dimensions (differences of sizes) that must not be negative.
    outputs: the names of the outputs, where there are several.
    notation: how the text notation calls it, one name for each output; "" or nothing where it
        has no name of its own there.
    title: what derivations call it, as "an inverse"; its name if it is left out.
    letters: the letters that its outputs have in books, as "Q" and "R"; "" for none.
    description: for users: what it computes, its conventions (sign, order, gauge) and errors.
    equation: of an operation that solves one, which needs no kernel then.
    states: the structure that an operation says its argument has, and changes nothing.
    rules: what the simplifier tries on a node of it: the node -> its simpler form, or None.
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
    columns: Kernel | None = None
    failure: str = ""
    reads: str = "whole"
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
    states: str = ""
    rules: tuple[Callable[[Apply], Node | None], ...] = ()

    maker: ClassVar[tuple[Callable[..., Operation], tuple[Any, ...]] | None] = None
    """For an operation that is not registered, as an equation's: the function that has made it, and
    its arguments, by which another process makes it again."""

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
            calls = [f"{form.format(n)}({arguments})" for n in self.notation or (self.name,)]
            if not getattr(self, style):
                object.__setattr__(self, style, tuple(calls) if self.outputs else calls[0])

    @cached_property
    def key(self) -> str:
        """What it is, as a text: its name, and a digest of all fields and of what its functions
        do. Raises DeclarationError where a function refers to what cannot be read."""
        try:
            return f"{self.name}.{content_digest(self)}"
        except DeclarationError as error:
            raise DeclarationError(f"{self.name}: {error}") from error

    def formula(self, style: str, output: int) -> str:
        """The format string of an output, for the style "unicode" or "latex"."""
        text: str | tuple[str, ...] = getattr(self, style)
        return text if isinstance(text, str) else text[output]


OPERATIONS: dict[str, Operation] = {}


def registered(name: str) -> Operation:
    """The operation of this name. Raises DeclarationError where none is registered."""
    if name not in OPERATIONS:
        raise DeclarationError(
            f"no operation is called {name!r} in this process; import the file that registers it"
        )
    return OPERATIONS[name]


def register(operation: Operation) -> Operation:
    """Add an operation: from now on it is `derivatrix.<name>`, and known to every stage.

    Raises DeclarationError when what is given is no Operation, it is called what is no
    identifier, or another has its name."""
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
