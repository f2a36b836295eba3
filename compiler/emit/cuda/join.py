"""Fewer kernels: neighbouring nests over the same points as one, and groups for rows."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.block_cooperative import block_cooperative
from derivatrix.compiler.emit.cuda.launches import chain
from derivatrix.compiler.plan.fuse import independent
from derivatrix.compiler.plan.steps import Loop, LoopNest, Statement, Step
from derivatrix.compiler.plan.visit import renamed


def join(steps: Sequence[Step]) -> list[Step]:
    """The steps, with neighbouring nests in one where what each does at a point needs no more of
    the other than the same point's entries, and with groups."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        joined = None
        if isinstance(before, LoopNest) and isinstance(step, LoopNest):
            joined = _joined(before, step)
        if joined is None:
            found.append(step)
        else:
            found[-1] = joined
    return block_cooperative(found)


def _joined(first: LoopNest, second: LoopNest) -> LoopNest | None:
    points, body = chain(first.body)
    others, other_body = chain(second.body)
    extents = [extent for _, extent in points]
    if not points or extents != [extent for _, extent in others]:
        return None
    if any(isinstance(part, Loop) for part in (*body, *other_body)):
        return None
    renames = {theirs: own for (theirs, _), (own, _) in zip(others, points, strict=True)}
    moved = renamed(other_body, renames)
    if not all(independent(body, moved, symbol) for symbol, _ in points):
        return None
    together: tuple[Statement, ...] = (*body, *moved)
    for symbol, extent in reversed(points):
        together = (Loop(symbol, extent, False, together),)
    return LoopNest(f"{first.comment}; {second.comment}", together)
