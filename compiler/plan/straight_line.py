"""Scalars as straight-line statements, around loops over samples: each value once, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import sympy

from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.lengths import is_beyond_range
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.scalar_factoring import made_of
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
"""A value, the comparison with zero that has to hold, and what is wrong where it does not."""


class TooLarge(Exception):
    """A refusal of straight-line code: too long, costly to repeat, or of an unsupported form."""


class StraightLine:
    """Values as statements, around loops over the samples.

    A value "total" is the sum of another one over the samples, so what depends on it comes after
    the loop that makes it: stage k is what stands between loop k - 1 and loop k, and loop k.
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
        self._named: dict[int, str] = {}
        self._varying: dict[int, bool] = {}
        self._stage: dict[int, int] = {}
        roots = [value for _, value in self._places] + [v for v, _, _ in self._requirements]
        self._reachable = self._below(roots)
        self._spread = {v for place, v in self._places if self._moves(place)}
        for number in self._reachable:
            self._classify(number)

    def _plain(self, number: int) -> int:
        """The value that an "entry", which only marks one, stands for."""
        while self._entries[number][0] == "entry":
            number = self._entries[number][2][0]
        return number

    def _children(self, number: int) -> list[int]:
        """The operands of a value: of a length the sum of squares, which is read twice."""
        operator, _, children = self._entries[number]
        if operator == "length":
            children = children[:1] * 2
        return [self._plain(child) for child in children]

    def _below(self, roots: Iterable[int]) -> list[int]:
        return made_of(roots, self._children)

    def _moves(self, load: Load) -> bool:
        return any(self._sample in index.free_symbols for index in load.indices)

    def _classify(self, number: int) -> None:
        """Record whether a value depends on the sample, and after how many loops it is known."""
        operator, payload, _ = self._entries[number]
        children = self._children(number)
        stage = max((self._stage[child] for child in children), default=0)
        varying = any(self._varying[child] for child in children)
        if isinstance(payload, Load):
            varying = self._moves(payload)
        if operator == "total":
            varying, stage = False, stage + 1
        self._varying[number], self._stage[number] = varying, stage

    def statements(self) -> list[Statement]:
        """Statements that store every value in its place. Raises TooLarge where a later loop would
        compute functions again."""
        last = max(self._stage.values(), default=0)
        found: list[Statement] = []
        for stage in range(last + 1):
            found += self._between(stage)
            found += self._loop(stage)
        return found

    # Sections

    def _between(self, stage: int) -> list[Statement]:
        """What does not depend on the sample, after the loops before this stage."""
        own = {n for n in self._reachable if not self._varying[n] and self._stage[n] == stage}
        outside = {
            child
            for number in self._reachable
            if number not in own
            for child in self._children(number)
            if child in own
        }
        places = [(p, value) for p, value in self._places if value in own and not self._moves(p)]
        return self._section(own, outside | (self._spread & own), places, [])

    def _loop(self, stage: int) -> list[Statement]:
        """The loop over the samples for what can be known there, and not before."""
        totals = [
            number
            for number in self._reachable
            if self._entries[number][0] == "total" and self._stage[number] == stage + 1
        ]
        places = [
            (place, value)
            for place, value in self._places
            if self._moves(place) and self._stage[value] == stage
        ]
        if not totals and not places and not self._required(stage):
            return []
        assert self._samples is not None
        roots = [self._children(number)[0] for number in totals] + [value for _, value in places]
        roots += [value for value, _, _ in self._required(stage)]
        own = {number for number in self._below(roots) if self._varying[number]}
        again = (number for number in own if self._stage[number] < stage)
        if any(self._entries[number][0] not in CHEAP for number in again):
            raise TooLarge
        for number in totals:
            self._named[number] = self._names.numbered("s")
        starts: list[Statement] = [Start(self._named[number]) for number in totals]
        kept = dict(self._named)
        inside = self._section(own, set(), places, totals)
        self._named = kept
        return [*starts, Loop(self._index, self._samples, bool(totals), tuple(inside))]

    def _required(self, stage: int) -> list[Requirement]:
        return [
            requirement
            for requirement in self._requirements
            if self._varying[requirement[0]] and self._stage[requirement[0]] == stage
        ]

    def _section(
        self, own: set[int], outside: set[int], places: list[Place], totals: list[int]
    ) -> list[Statement]:
        """The values of `own`, named where they are used again or `outside`; then what is stored
        and added to totals."""
        uses: Counter[int] = Counter()
        for number in own:
            uses.update(child for child in self._children(number) if child in own)
        uses.update(value for _, value in places)
        uses.update(self._children(number)[0] for number in totals)
        required = {value: (test, text) for value, test, text in self._requirements if value in own}
        found: list[Statement] = []
        for number in sorted(own):
            if number in self._named or self._entries[number][0] in ("number", "name", "test"):
                continue
            is_length = self._entries[number][0] == "length"
            if uses[number] > 1 or number in outside or number in required or is_length:
                found += self._let(number)
            if number in required:
                test, text = required[number]
                zero = Number(sympy.S.Zero)
                found.append(Require(Operate(test, (self._scalar(number), zero)), text))
        found += [Store(self._renamed(place), self._scalar(v), False) for place, v in places]
        for number in totals:
            name, (value,) = self._named[number], self._children(number)
            found.append(Accumulate(name, self._scalar(value)))
        return found

    def _let(self, number: int) -> list[Statement]:
        """A value's name; a length beyond the range of numbers is computed once more."""
        operator, _, children = self._entries[number]
        name = self._names.numbered("a")
        if operator != "length":
            named: list[Statement] = [Let(name, self._made(number))]
        else:
            square, total = self._scalar(self._plain(children[0])), self._names.numbered("s")
            added = Accumulate(total, self._made(self._plain(children[1])))
            assert self._samples is not None
            loop = Loop(self._index, self._samples, True, (added,))
            length = Operate("unscaled", (Operate("sqrt", (Name(total),)), square))
            again = Guard(is_beyond_range(square), (Start(total), loop, Let(name, length)))
            named = [Let(name, Operate("sqrt", (square,))), again]
        self._named[number] = name
        return named

    # Scalars

    def _scalar(self, number: int) -> Scalar:
        return Name(self._named[number]) if number in self._named else self._made(number)

    def _made(self, number: int) -> Scalar:
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
