"""Steps that work along rows, each row by a group of threads: one kernel instead of one a step.

Softmax, sums over a row and what is made of them read a row several times; its group finds it in
the cache. That is attention's derivative between its products of matrices, and a classifier's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.emit.cuda.launches import Launch, Loops, launches
from derivatrix.compiler.plan.fuse import independent
from derivatrix.compiler.plan.steps import (
    BlockCooperative,
    Buffer,
    Call,
    Gemm,
    Guard,
    Load,
    Loop,
    LoopNest,
    Operand,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import buffers, renamed


@dataclass(frozen=True)
class Softmax:
    """target = the softmax of the rows of `source`, or their logsumexp.

    points: the loops over rows; terms: the one along a row.
    """

    comment: str
    points: Loops
    terms: Loops
    source: Load
    target: Load
    conditions: tuple[()] = ()
    inner_conditions: tuple[()] = ()
    sums: tuple[()] = ()

    @property
    def normalised(self) -> bool:
        """Whether it is the softmax."""
        return len(self.target.indices) == len(self.source.indices)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What is read and written."""
        return (Store(self.target, self.source, accumulate=False),)


Phase = Launch | Softmax


def phase(step: Step, fresh: Callable[[], str]) -> Phase | None:
    """What a step would do at its rows; None where it has another form. fresh: makes names for
    sums."""
    match step:
        case LoopNest(_, (Loop(reduction=False),)):
            found = launches(step, frozenset(), fresh)
            return found[0] if len(found) == 1 else None
        case Call(comment, "rows.softmax" | "rows.logsumexp", (Operand() as one, Operand() as two)):
            return _softmax(comment, one, two)
    return None


def _softmax(comment: str, one: Operand, two: Operand) -> Softmax | None:
    shape, target = one.buffer.shape, two.buffer.shape
    if one.index or two.index or one.shape[-1:] != shape[-1:] or target not in (shape, shape[:-1]):
        return None
    loops = tuple(
        (sympy.Symbol(f"row_{axis}", integer=True, nonnegative=True), size)
        for axis, size in enumerate(shape)
    )
    indices = tuple(symbol for symbol, _ in loops)
    source = Load(one.buffer, indices)
    return Softmax(
        comment, loops[:-1], loops[-1:], source, Load(two.buffer, indices[: len(target)])
    )


def reduced_rows(found: Phase | None) -> Loops:
    """The loops over the rows that threads share the terms of; () where there are none."""
    if found is None or not found.terms or (isinstance(found, Launch) and not found.along):
        return ()
    return found.points


def aligned(found: Phase | None, over: Loops) -> Phase | None:
    """A phase with the names of the loops over rows that are its own; None where they are not."""
    if found is None or [size for _, size in found.points[: len(over)]] != [s for _, s in over]:
        return None
    if found.terms and (len(found.points) > len(over) or not reduced_rows(found)):
        return None
    if len(found.points) == len(over) and any(
        isinstance(s, Loop | Guard) for s in found.statements
    ):
        return None  # one thread would do it all
    theirs = [symbol for symbol, _ in found.points[: len(over)]]
    own = [symbol for symbol, _ in over]
    spare = [symbol for symbol in theirs if symbol not in own]
    renames = dict(zip(theirs, own, strict=True))
    renames |= dict(zip([symbol for symbol in own if symbol not in theirs], spare, strict=True))
    return renamed(found, renames)


def phases(steps: Sequence[Step], fresh: Callable[[], str]) -> list[Phase]:
    """What a group does at each row, with one name for each loop over rows."""
    found = [phase(step, fresh) for step in steps]
    over = next(filter(None, map(reduced_rows, found)))
    for each in found:
        if isinstance(each, Launch):  # names of a nest rather than of `Softmax`
            over = each.points[: len(over)]
    same = [aligned(each, over) for each in found]
    return [each for each in same if each is not None]


def block_cooperative(steps: Sequence[Step]) -> list[Step]:
    """The steps, with those that work along the same rows together; softmax and logsumexp of rows
    are such kernels also alone."""
    found: list[Step] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        over = reduced_rows(phase(step, _some_sum))
        if not over:
            found.append(step)
            continue
        group = [step]
        while found and _fits(found[-1], group, over, before=True):
            group.insert(0, found.pop())
        products, used = _following(rest, group, over)
        whole = len(group) > 1 or isinstance(step, Call)
        found += [*products, BlockCooperative(tuple(group)) if whole else step]
        rest = rest[used:]
    return found


def _some_sum() -> str:
    return "s"


def _following(rest: Sequence[Step], group: list[Step], over: Loops) -> tuple[list[Step], int]:
    """Enter what fits in the group. Products of matrices between that need nothing of it come
    before it: these, and how many steps they and the group's new ones are."""
    products: list[Step] = []
    passed: list[Step] = []
    used = 0
    for position, step in enumerate(rest, 1):
        if _fits(step, group, over, before=False):
            group.append(step)
            products += passed
            passed, used = [], position
        elif isinstance(step, Gemm) and not _common(step, group):
            passed.append(step)
        else:
            break
    return products, used


def _common(step: Step, others: Sequence[Step]) -> set[Buffer]:
    """The arrays that a step and others have in common, without arguments."""
    own = {buffer for buffer in buffers(step) if buffer.role in ("work", "output")}
    return own & set(buffers(tuple(others)))


def _fits(step: Step, group: Sequence[Step], over: Loops, before: bool) -> bool:
    """Whether a step needs no more of those of a group, and they of it, than the same row."""
    own = aligned(phase(step, _some_sum), over)
    if own is None or not _common(step, group):
        return False
    for other in group:
        theirs = aligned(phase(other, _some_sum), over)
        assert theirs is not None
        pair = (own, theirs) if before else (theirs, own)
        first, second = (each.statements for each in pair)
        if not all(independent(first, second, symbol) for symbol, _ in over):
            return False
    return True
