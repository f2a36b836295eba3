"""Loops over time in a text: scan(h = tanh(W*h + U*x), x in X, h = h0)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from derivatrix.compiler.frontends.notation import functions, syntax
from derivatrix.compiler.frontends.notation.algebra import Algebra
from derivatrix.compiler.frontends.notation.tokens import Source
from derivatrix.compiler.frontends.notation.values import Step, Value
from derivatrix.compiler.frontends.scans import run_scan
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError

EXAMPLE = "scan(h = tanh(W*h + U*x), x in X, h = h0)"


@dataclass
class Recursion:
    """The clauses of a loop, by name.

    equations: of a step, the first is the result; starts: of the states; sequences: of which a step
    has one entry. length: the number of steps, None where the sequences give it.
    """

    equations: dict[str, syntax.Tree] = field(default_factory=dict)
    starts: dict[str, syntax.Tree] = field(default_factory=dict)
    sequences: dict[str, syntax.Tree] = field(default_factory=dict)
    length: syntax.Tree | None = None
    is_reversed: bool = False

    @property
    def names(self) -> set[str]:
        """The names that the equations of a step may use."""
        return {*self.equations, *self.sequences}


def recursion(source: Source, call: syntax.Call) -> Recursion:
    """Read the clauses of a loop. Raises NotationError."""
    result = Recursion()
    for argument in call.arguments:
        if isinstance(argument, syntax.Name) and argument.name == "reverse":
            result.is_reversed = True
        elif not isinstance(argument, syntax.Clause):
            raise source.error(f"this is no clause of scan; write {EXAMPLE}", argument.span)
        elif argument.sign == "=" and argument.name.name == "length":
            result.length = argument.value
        else:
            _add_clause(source, result, argument)
    if not result.equations:
        raise source.error(f"scan has no equation of a step; write {EXAMPLE}", call.span)
    if not result.sequences and result.length is None:
        raise source.error(
            "scan has neither a sequence nor a length; write x in X, or length = T", call.span
        )
    _refuse_unread_definitions(source, result, call)
    return result


def _refuse_unread_definitions(source: Source, clauses: Recursion, call: syntax.Call) -> None:
    """Raise NotationError for a definition that no equation reads, such as a mistyped option."""
    result, *definition_names = clauses.equations
    read_names = {name for tree in clauses.equations.values() for name in free_names(source, tree)}
    for clause in call.arguments:
        name = clause.name.name if isinstance(clause, syntax.Clause) else ""
        if name in {*definition_names} - {*clauses.starts} - read_names:
            raise source.error(
                f"no equation reads {shown(name)}, and the result is {result}; the options of scan "
                "are length = T and reverse",
                clause.span,
            )


def _add_clause(source: Source, result: Recursion, clause: syntax.Clause) -> None:
    """Add a sequence, the equation of a step, or for a name that has one its start."""
    name = clause.name.name
    if functions.is_name(name):
        raise source.error(
            f"{shown(name)} is a function of the notation; rename it", clause.name.span
        )
    is_taken = name in result.sequences or name in result.starts
    if is_taken or (clause.sign == "in" and name in result.equations):
        raise source.error(
            f"{shown(name)} has another clause already; a state has an equation and a start, "
            "a sequence has neither",
            clause.name.span,
        )
    if clause.sign == "in":
        result.sequences[name] = clause.value
    elif name in result.equations:
        result.starts[name] = clause.value
    else:
        result.equations[name] = clause.value


def definitions(source: Source, clauses: Recursion) -> list[str]:
    """List the names with an equation and no start, each after those that it reads. Raises
    NotationError for one that reads itself."""
    names = [name for name in clauses.equations if name not in clauses.starts]
    # lists, not sets, whose order would differ between runs
    dependencies = {
        name: [n for n in free_names(source, clauses.equations[name]) if n in names]
        for name in names
    }
    try:
        return [*TopologicalSorter(dependencies).static_order()]
    except CycleError as error:
        name = error.args[1][0]
        raise source.error(
            f"{shown(name)} reads itself and has no start; a state has one: "
            f"{name} = {name}0 after its equation",
            clauses.equations[name].span,
        ) from error


def free_names(source: Source, tree: Any) -> Iterator[str]:
    """Yield the names in a tree, or in parts of one, without those that loops in it bind, and
    without the sizes in lengths of loops."""
    if isinstance(tree, syntax.Name):
        yield tree.name
    elif isinstance(tree, syntax.Call) and tree.function.name == "scan":
        clauses = recursion(source, tree)
        for clause in tree.arguments:
            if isinstance(clause, syntax.Clause) and clause.value is not clauses.length:
                is_equation = clause.value is clauses.equations.get(clause.name.name)
                bound = clauses.names if is_equation else ()
                yield from (n for n in free_names(source, clause.value) if n not in bound)
    elif isinstance(tree, syntax.Clause):
        yield from free_names(source, tree.value)
    elif isinstance(tree, syntax.Chain):
        yield from free_names(source, tree.operand)
        for sign, operand in tree.operations:
            if not syntax.is_transpose_sign(sign, operand):
                yield from free_names(source, operand)
    elif isinstance(tree, tuple):
        for part in tree:
            yield from free_names(source, part)
    elif isinstance(tree, syntax.Tree):
        for part in fields(tree):
            yield from free_names(source, getattr(tree, part.name))


class Loops(Algebra, ABC):
    """The steps of loops."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.bound: dict[str, tuple[Value, dict[str, Array]]] = {}
        """The names that the loops around a place bind: their values in one step of the loop, and
        where the step's arrays are by name when it is performed."""

    @abstractmethod
    def read(self, tree: syntax.Tree) -> Value:
        """Return the value of a tree. Raises NotationError."""

    def bound_value(self, tree: syntax.Name) -> Value:
        """Return the value of a name that a loop binds."""
        value, arrays = self.bound[tree.name]
        if value.literal is not None:
            return self.number(tree.span, value.literal)
        step = self.add_step(tree.span, lambda: arrays[tree.name])
        return replace(value, span=tree.span, step=step)

    def call_scan(self, tree: syntax.Call) -> Value:
        """Read a loop: its value is that of the first equation. For a state these are all states,
        the start included, otherwise the values in all steps."""
        clauses = recursion(self.source, tree)
        starts = {name: self.read(value) for name, value in clauses.starts.items()}
        sequences = {name: self.read(value) for name, value in clauses.sequences.items()}
        length = self._step_count(clauses, sequences)
        arrays: dict[str, Array] = {}
        values, steps = self._read_step(clauses, starts, sequences, arrays)
        result, *_ = clauses.equations
        is_state = result in starts

        def step(carry: dict[str, Array], entries: dict[str, Array] | None) -> tuple[Any, Any]:
            arrays.update(carry, **(entries or {}))
            performed = self.perform(steps)
            output = None if is_state else performed[values[result].step]
            return {name: performed[values[name].step] for name in starts}, output

        def loop(*operands: Array) -> Array:
            init = dict(zip(starts, operands, strict=False))
            xs = dict(zip(sequences, operands[len(starts) :], strict=True))
            (count,) = self.sizes.known((length,))
            _, states, outputs = run_scan(
                step, init, xs or None, None if xs else count, clauses.is_reversed
            )
            return states[[*starts].index(result)] if is_state else outputs

        number = self.add_step(tree.span, loop, *starts.values(), *sequences.values())
        shape = (starts if is_state else values)[result].shape
        return Value(tree.span, number, (length + 1 if is_state else length, *shape))

    def _read_step(
        self,
        clauses: Recursion,
        starts: dict[str, Value],
        sequences: dict[str, Value],
        arrays: dict[str, Array],
    ) -> tuple[dict[str, Value], list[Step]]:
        """Read the equations of a step: their values by name, and what computes these, which finds
        the states and the entries of the sequences in `arrays`."""
        outer_steps, outer_bound = self.steps, self.bound
        entries = {
            name: replace(value, shape=value.shape[1:], row=False, loose=value.rank == 2)
            for name, value in sequences.items()
        }
        bound = {name: replace(value, literal=None) for name, value in (starts | entries).items()}
        self.steps = []
        self.bound = outer_bound | {name: (value, arrays) for name, value in bound.items()}
        values: dict[str, Value] = {}
        try:
            for name in definitions(self.source, clauses):
                values[name] = value = self.read(clauses.equations[name])
                self.add_step(value.span, partial(arrays.setdefault, name), value)
                self.bound[name] = value, arrays
            for name, start in starts.items():
                values[name] = self.read(clauses.equations[name])
                self._refuse_changed_state(name, start, values[name])
            return values, self.steps
        finally:
            self.steps, self.bound = outer_steps, outer_bound

    def _step_count(self, clauses: Recursion, sequences: dict[str, Value]) -> Dimension:
        """Return the number of steps."""
        lengths: list[Dimension] = []
        if clauses.length is not None:
            value = self.read(clauses.length)
            number = value.literal
            if number is None or not number.is_integer or number.is_negative:
                raise self.error("the length of scan is an integer from 0 up", value.span)
            lengths.append(number)
        for name, value in sequences.items():
            if not value.rank:
                raise self.error(f"{name} is in a scalar, which has no entries", value.span)
            lengths.append(value.shape[0])
            self.sizes.equate(
                lengths[0], value.shape[0], partial(self._length_error, name, lengths[0], value)
            )
        return lengths[0]

    def _length_error(self, name: str, length: Dimension, value: Value) -> NotationError:
        sizes = self.sizes.shown(value.shape[0]), self.sizes.shown(length)
        return self.error("{} has {} entries, the loop {} steps".format(name, *sizes), value.span)

    def _refuse_changed_state(self, name: str, start: Value, value: Value) -> None:
        """Raise NotationError if a step changes the shape of a state."""

        def complaint() -> NotationError:
            hint = "; 0*ones has the size that fits" if not start.rank else ""
            return self.error(
                f"a step makes {name} {self.describe(value)}, and it starts as "
                f"{self.describe(start)}{hint}",
                value.span,
            )

        is_transposed = start.row != value.row and not (start.loose or value.loose)
        if start.rank != value.rank or (value.rank == 1 and is_transposed):
            raise complaint()
        for start_size, size in zip(start.shape, value.shape, strict=True):
            self.sizes.equate(start_size, size, complaint)
