"""SIMD blocking: straight-line code for a block of samples at a time, by vector instructions.

A sample's entries lie together in memory, and those of the next sample behind them, where vector
instructions do not reach. So the entries of `LANES` samples are copied first, the same entry of all
of them side by side; the code runs in a loop over the lanes; and its results are copied to where
they belong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import sympy

from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Guard,
    Let,
    Load,
    Loop,
    LoopNest,
    Number,
    Operate,
    Require,
    Scalar,
    Statement,
    Store,
    Test,
)
from derivatrix.compiler.plan.straight_line import CHEAP
from derivatrix.compiler.plan.visit import accesses, operations, rebuilt, renamed
from derivatrix.compiler.targets import cpu

LANES = 16
"""Samples a block: several vector registers full, and all of their entries in the nearest cache."""
GAIN = 4
"""The least number of sums and products for each copied number."""
FUNCTION = 20
"""How many of these a function takes as long as, about."""
VECTORS = frozenset(
    {
        *CHEAP,
        *("div", "sqrt", "abs", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"),
        *cpu.VECTORISED,
    }
)
"""Operators for which there are vector instructions, or functions made of these."""
ZERO, ONE = Number(sympy.S.Zero), Number(sympy.S.One)


def simd_blocked(nest: LoopNest, names: Names) -> LoopNest:
    """The nest with its loops over samples as loops over blocks of them, where that gains."""
    body: list[Statement] = []
    for statement in nest.body:
        if isinstance(statement, Loop) and _gains(statement):
            body.append(_SimdBlocks(statement, names).loop())
        else:
            body.append(statement)
    return dataclasses.replace(nest, body=tuple(body))


def _gains(loop: Loop) -> bool:
    """Whether a loop computes enough on entries apart from each other, by vector instructions."""
    if not all(isinstance(part, Let | Require | Store | Accumulate) for part in loop.body):
        return False
    used = list(operations(loop.body))
    apart = {load for load in _moving(loop) if len(load.indices) > 1}
    work = sum(1 if value.operator in CHEAP else FUNCTION for value in used)
    return all(map(_is_vector, used)) and work >= GAIN * len(apart) > 0


def _is_vector(value: Operate) -> bool:
    if value.operator == "pow":
        exponent = value.operands[1]
        return isinstance(exponent, Number) and exponent.value.is_Integer is True
    return value.operator in VECTORS


def _moving(loop: Loop) -> Iterator[Load]:
    """The entries of a sample that a loop reads and writes."""
    for load, _ in accesses(loop.body):
        if any(loop.index in index.free_symbols for index in load.indices):
            yield load


class _SimdBlocks:
    """A loop over samples as one over blocks of them."""

    def __init__(self, loop: Loop, names: Names) -> None:
        self._loop = loop
        self._block, self._lane = names.indices(2)
        self._sample = LANES * self._block + self._lane
        self._exists = sympy.Lt(self._sample, loop.extent)
        written = {part.target for part in loop.body if isinstance(part, Store)}
        read = dict.fromkeys(load for load in _moving(loop) if load not in written)
        self._rows = {load: row for row, load in enumerate(read)}
        self._made: list[Statement] = []
        results = sum(isinstance(part, Store | Require) for part in loop.body)
        self._given, self._results = (
            Buffer(names.numbered("t"), (sympy.Integer(LANES * count),))
            for count in (len(read), results)
        )

    def loop(self) -> Loop:
        """The loop over the blocks: copy, compute, copy back."""
        given = tuple(
            Store(self._place(self._given, row), self._moved(load), False)
            for load, row in self._rows.items()
        )
        computed = tuple(map(self._statement, self._loop.body))
        made = tuple(self._made)
        rounds = (
            *([self._over((Guard(self._exists, given),))] if given else []),
            self._over(computed),
            *([self._over((Guard(self._exists, made),))] if made else []),
        )
        blocks = sympy.ceiling(self._loop.extent / LANES)
        return Loop(self._block, blocks, self._loop.reduction, rounds)

    def _over(self, body: tuple[Statement, ...]) -> Loop:
        reduction = any(isinstance(part, Accumulate) for part in body)
        return Loop(self._lane, sympy.Integer(LANES), reduction, body)

    def _statement(self, statement: Statement) -> Statement:
        """What is done for all lanes, those without a sample too; of these nothing is kept."""
        match statement:
            case Let(name, value):
                return Let(name, self._scalar(value))
            case Accumulate(name, value):
                kept = Test(self._exists), self._scalar(value), ZERO
                return Accumulate(name, Operate("where", kept))
            case Store(target, value, accumulate):
                place = self._place(self._results, len(self._made))
                self._made.append(Store(self._moved(target), place, accumulate))
                return Store(place, self._scalar(value), False)
            case Require(condition, failure):
                place = self._place(self._results, len(self._made))
                self._made.append(Require(Operate("ne", (place, ZERO)), failure))
                return Store(place, Operate("where", (self._scalar(condition), ONE, ZERO)), False)
        raise TypeError(statement)

    def _place(self, buffer: Buffer, row: int) -> Load:
        return Load(buffer, (self._lane + LANES * row,))

    def _moved(self, load: Load) -> Load:
        return renamed(load, {self._loop.index: self._sample})

    def _scalar(self, value: Scalar) -> Scalar:
        return rebuilt(value, self._changed)

    def _changed(self, part: Any) -> Scalar | None:
        match part:
            case Load() if part in self._rows:
                return self._place(self._given, self._rows[part])
            case Operate("choose", operands):
                return Operate("where", tuple(map(self._scalar, operands)))
        return None
