"""SIMD blocking: straight-line code for a block of samples at a time, by vector instructions.

The entries of one sample are contiguous, so one entry of many samples is not, and vector
instructions cannot load it. Therefore each block first copies the entries of `LANES` samples, the
same entry of all samples side by side; then the code runs in a loop over the lanes; then its
results are copied to the outputs.
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
"""Samples in a block: they fill several vector registers, and their entries fit the L1 cache."""
MIN_OPS_PER_ENTRY = 4
"""Fewest sums and products for each copied entry: products of 3 by 3 matrices gain nothing."""
FUNCTION_OPS = 20
"""Cost of a function, in sums and products."""
VECTOR_OPERATORS = frozenset(
    {
        *CHEAP,
        *("div", "sqrt", "abs", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"),
        *cpu.VECTORISED,
    }
)
"""Operators with vector instructions, or with functions made of these."""
ZERO, ONE = Number(sympy.S.Zero), Number(sympy.S.One)


def simd_blocked(nest: LoopNest, names: Names) -> LoopNest:
    """Split into blocks those loops over samples that compute enough to gain from it."""
    body: list[Statement] = []
    for statement in nest.body:
        if isinstance(statement, Loop) and _gains(statement):
            body.append(_SimdBlocks(statement, names).loop())
        else:
            body.append(statement)
    return dataclasses.replace(nest, body=tuple(body))


def _gains(loop: Loop) -> bool:
    """Return whether a loop has only vector instructions, and enough of them for each entry that
    must be copied."""
    if not all(isinstance(part, Let | Require | Store | Accumulate) for part in loop.body):
        return False
    operators = list(operations(loop.body))
    strided_entries = {load for load in _entries_of_sample(loop) if len(load.indices) > 1}
    ops = sum(1 if value.operator in CHEAP else FUNCTION_OPS for value in operators)
    return all(map(_is_vector, operators)) and ops >= MIN_OPS_PER_ENTRY * len(strided_entries) > 0


def _is_vector(value: Operate) -> bool:
    if value.operator == "pow":
        exponent = value.operands[1]
        return isinstance(exponent, Number) and exponent.value.is_Integer is True
    return value.operator in VECTOR_OPERATORS


def _entries_of_sample(loop: Loop) -> Iterator[Load]:
    """Yield the entries of a sample that a loop reads and writes."""
    for load, _ in accesses(loop.body):
        if any(loop.index in index.free_symbols for index in load.indices):
            yield load


class _SimdBlocks:
    """A loop over samples, split into blocks."""

    def __init__(self, loop: Loop, names: Names) -> None:
        self._loop = loop
        self._block, self._lane = names.indices(2)
        self._sample = LANES * self._block + self._lane
        self._exists = sympy.Lt(self._sample, loop.extent)
        targets = {part.target for part in loop.body if isinstance(part, Store)}
        loads = dict.fromkeys(load for load in _entries_of_sample(loop) if load not in targets)
        self._rows = {load: row for row, load in enumerate(loads)}
        self._copies_back: list[Statement] = []
        results = sum(isinstance(part, Store | Require) for part in loop.body)
        self._inputs, self._results = (
            Buffer(names.numbered("t"), (sympy.Integer(LANES * count),))
            for count in (len(loads), results)
        )

    def loop(self) -> Loop:
        """Make the loop over the blocks: copy, compute, copy back."""
        copies = tuple(
            Store(self._place(self._inputs, row), self._at_sample(load), False)
            for load, row in self._rows.items()
        )
        computed = tuple(map(self._statement, self._loop.body))
        copies_back = tuple(self._copies_back)
        rounds = (
            *([self._over_lanes((Guard(self._exists, copies),))] if copies else []),
            self._over_lanes(computed),
            *([self._over_lanes((Guard(self._exists, copies_back),))] if copies_back else []),
        )
        blocks = sympy.ceiling(self._loop.extent / LANES)
        return Loop(self._block, blocks, self._loop.reduction, rounds)

    def _over_lanes(self, body: tuple[Statement, ...]) -> Loop:
        reduction = any(isinstance(part, Accumulate) for part in body)
        return Loop(self._lane, sympy.Integer(LANES), reduction, body)

    def _statement(self, statement: Statement) -> Statement:
        """Translate a statement to one for all lanes. Lanes beyond the last sample compute, too;
        their results are dropped."""
        match statement:
            case Let(name, value):
                return Let(name, self._scalar(value))
            case Accumulate(name, value):
                masked = Test(self._exists), self._scalar(value), ZERO
                return Accumulate(name, Operate("where", masked))
            case Store(target, value, accumulate):
                place = self._place(self._results, len(self._copies_back))
                self._copies_back.append(Store(self._at_sample(target), place, accumulate))
                return Store(place, self._scalar(value), False)
            case Require(condition, failure):
                place = self._place(self._results, len(self._copies_back))
                self._copies_back.append(Require(Operate("ne", (place, ZERO)), failure))
                return Store(place, Operate("where", (self._scalar(condition), ONE, ZERO)), False)
        raise TypeError(statement)

    def _place(self, buffer: Buffer, row: int) -> Load:
        return Load(buffer, (self._lane + LANES * row,))

    def _at_sample(self, load: Load) -> Load:
        return renamed(load, {self._loop.index: self._sample})

    def _scalar(self, value: Scalar) -> Scalar:
        return rebuilt(value, self._changed)

    def _changed(self, part: Any) -> Scalar | None:
        match part:
            case Load() if part in self._rows:
                return self._place(self._inputs, self._rows[part])
            case Operate("choose", operands):
                return Operate("where", tuple(map(self._scalar, operands)))
        return None
