"""Straight-line code: scalars as statements around loops over the samples, each computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.lengths import is_beyond_range
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.scalar_factoring import with_operands
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Guard,
    Let,
    Load,
    Loop,
    Name,
    Number,
    Operate,
    Require,
    Scalar,
    Start,
    Statement,
    Store,
    Test,
)
from derivatrix.compiler.plan.visit import renamed

CHEAP = frozenset(
    {
        *("add", "mul", "times", "neg", "load", "number", "name", "choose", "where"),
        *("scaled", "unscaled"),
    }
)
"""Operators that are computed again in a later loop rather than kept for every sample."""

Place = tuple[Load, int]
"""An entry of a buffer and the value that belongs there."""
Requirement = tuple[int, str, str]
"""A value, the operator of its comparison with zero, and the message if that is false."""


class TooLarge(Exception):
    """The refusal of straight-line code that is too long, repeats costly functions, or has nodes
    that cannot be written out."""


class StraightLine:
    """Statements that compute values, around loops over the samples.

    A "total" is the sum of a value over the samples, so values that depend on it come after the
    loop that computes it: stage k is the code between loop k - 1 and loop k, and loop k.
    """

    def __init__(
        self,
        scalars: Scalars,
        places: Sequence[Place],
        requirements: Sequence[Requirement],
        sample: sympy.Symbol,
        samples: sympy.Expr | None,
        names: Names,
    ) -> None:
        self._entries = scalars.entries
        self._places = [(place, self._plain(value)) for place, value in places]
        self._requirements = [(self._plain(v), test, text) for v, test, text in requirements]
        self._sample = sample
        self._samples = samples
        self._names = names
        (self._index,) = names.indices(1)
        self._locals: dict[int, str] = {}
        self._varying: dict[int, bool] = {}
        self._stage: dict[int, int] = {}
        roots = [value for _, value in self._places] + [v for v, _, _ in self._requirements]
        self._reachable = with_operands(roots, self._children)
        self._spread = {v for place, v in self._places if self._varies(place)}
        for number in self._reachable:
            self._classify(number)
        assert all(self._varies(place) or not self._varying[value] for place, value in self._places)

    def _plain(self, number: int) -> int:
        """Return the value within an "entry", which only marks values that are not opened."""
        while self._entries[number][0] == "entry":
            number = self._entries[number][2][0]
        return number

    def _children(self, number: int) -> list[int]:
        """List the operands of a value; a length reads its sum of squares twice."""
        operator, _, children = self._entries[number]
        if operator == "length":
            children = children[:1] * 2
        return [self._plain(child) for child in children]

    def _varies(self, load: Load) -> bool:
        return any(self._sample in index.free_symbols for index in load.indices)

    def _classify(self, number: int) -> None:
        """Record whether a value depends on the sample, and after how many loops it is known."""
        operator, payload, _ = self._entries[number]
        children = self._children(number)
        stage = max((self._stage[child] for child in children), default=0)
        varying = any(self._varying[child] for child in children)
        if isinstance(payload, Load):
            varying = self._varies(payload)
        if operator == "total":
            varying, stage = False, stage + 1
        self._varying[number], self._stage[number] = varying, stage

    def statements(self) -> list[Statement]:
        """Write statements that store every value in its place. Raises TooLarge if a later loop
        would compute functions again."""
        last_stage = max(self._stage.values(), default=0)
        statements: list[Statement] = []
        for stage in range(last_stage + 1):
            statements += self._between(stage)
            statements += self._loop(stage)
        return statements

    # Sections

    def _between(self, stage: int) -> list[Statement]:
        """Compute the values of a stage that do not depend on the sample, before its loop."""
        members = {n for n in self._reachable if not self._varying[n] and self._stage[n] == stage}
        read_later = {
            child
            for number in self._reachable
            if number not in members
            for child in self._children(number)
            if child in members
        }
        places = [(p, v) for p, v in self._places if v in members and not self._varies(p)]
        return self._section(members, read_later | (self._spread & members), places, [])

    def _loop(self, stage: int) -> list[Statement]:
        """Write the loop of a stage, with the values that depend on the sample and are first known
        in this stage."""
        totals = [
            number
            for number in self._reachable
            if self._entries[number][0] == "total" and self._stage[number] == stage + 1
        ]
        places = [
            (place, value)
            for place, value in self._places
            if self._varies(place) and self._stage[value] == stage
        ]
        if not totals and not places and not self._required(stage):
            return []
        assert self._samples is not None
        roots = [self._children(number)[0] for number in totals] + [value for _, value in places]
        roots += [value for value, _, _ in self._required(stage)]
        loop_values = {n for n in with_operands(roots, self._children) if self._varying[n]}
        repeated = (number for number in loop_values if self._stage[number] < stage)
        if any(self._entries[number][0] not in CHEAP for number in repeated):
            raise TooLarge
        for number in totals:
            self._locals[number] = self._names.numbered("s")
        starts: list[Statement] = [Start(self._locals[number]) for number in totals]
        outer_names = dict(self._locals)
        inside = self._section(loop_values, set(), places, totals)
        self._locals = outer_names
        return [*starts, Loop(self._index, self._samples, bool(totals), tuple(inside))]

    def _required(self, stage: int) -> list[Requirement]:
        return [
            requirement
            for requirement in self._requirements
            if self._varying[requirement[0]] and self._stage[requirement[0]] == stage
        ]

    def _section(
        self, numbers: set[int], read_later: set[int], places: list[Place], totals: list[int]
    ) -> list[Statement]:
        """Compute the values `numbers`, named if used twice or in `read_later`; then write values
        to `places`, and add to `totals`."""
        uses: Counter[int] = Counter()
        for number in numbers:
            uses.update(child for child in self._children(number) if child in numbers)
        uses.update(value for _, value in places)
        uses.update(self._children(number)[0] for number in totals)
        required = {v: (test, text) for v, test, text in self._requirements if v in numbers}
        statements: list[Statement] = []
        for number in sorted(numbers):
            operator = self._entries[number][0]
            if number in self._locals or operator in ("number", "name", "test"):
                continue
            is_length = operator == "length"
            if uses[number] > 1 or number in read_later or number in required or is_length:
                statements += self._let(number)
            if number in required:
                test, text = required[number]
                zero = Number(sympy.S.Zero)
                statements.append(Require(Operate(test, (self._scalar(number), zero)), text))
        statements += [Store(self._renamed(place), self._scalar(v), False) for place, v in places]
        for number in totals:
            name, (value,) = self._locals[number], self._children(number)
            statements.append(Accumulate(name, self._scalar(value)))
        return statements

    def _let(self, number: int) -> list[Statement]:
        """Name a value; a length whose square is beyond the range of numbers is computed again."""
        operator, _, children = self._entries[number]
        name = self._names.numbered("a")
        if operator != "length":
            statements: list[Statement] = [Let(name, self._definition(number))]
        else:
            square, total = self._scalar(self._plain(children[0])), self._names.numbered("s")
            accumulate = Accumulate(total, self._definition(self._plain(children[1])))
            assert self._samples is not None
            loop = Loop(self._index, self._samples, True, (accumulate,))
            length = Operate("unscaled", (Operate("sqrt", (Name(total),)), square))
            recomputation = Guard(is_beyond_range(square), (Start(total), loop, Let(name, length)))
            statements = [Let(name, Operate("sqrt", (square,))), recomputation]
        self._locals[number] = name
        return statements

    # Scalars

    def _scalar(self, number: int) -> Scalar:
        return Name(self._locals[number]) if number in self._locals else self._definition(number)

    def _definition(self, number: int) -> Scalar:
        operator, payload, _ = self._entries[number]
        if isinstance(payload, Load):
            return self._renamed(payload)
        if operator == "name":
            return Name(str(payload))
        if isinstance(payload, sympy.Basic):
            return Number(payload) if operator == "number" else Test(payload)
        return Operate(operator, tuple(map(self._scalar, self._children(number))))

    def _renamed(self, load: Load) -> Load:
        return renamed(load, {self._sample: self._index})
