"""Fusion of steps for devices: nests over the same points, and steps along the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.block_cooperative import block_cooperative
from derivatrix.compiler.emit.cuda.launches import chain
from derivatrix.compiler.plan.fuse import independent
from derivatrix.compiler.plan.steps import Loop, LoopNest, Statement, Step
from derivatrix.compiler.plan.visit import renamed


def fuse(steps: Sequence[Step]) -> list[Step]:
    """Fuse neighbouring nests that read only the same point's entries of each other's results, then
    steps along the same rows."""
    fused: list[Step] = []
    for step in steps:
        previous = fused[-1] if fused else None
        nest = None
        if isinstance(previous, LoopNest) and isinstance(step, LoopNest):
            nest = _fused_nests(previous, step)
        if nest is None:
            fused.append(step)
        else:
            fused[-1] = nest
    return block_cooperative(fused)


def _fused_nests(first: LoopNest, second: LoopNest) -> LoopNest | None:
    points, body = chain(first.body)
    other_points, other_body = chain(second.body)
    extents = [extent for _, extent in points]
    if not points or extents != [extent for _, extent in other_points]:
        return None
    if any(isinstance(part, Loop) for part in (*body, *other_body)):
        return None
    renames = {old: new for (old, _), (new, _) in zip(other_points, points, strict=True)}
    renamed_body = renamed(other_body, renames)
    if not all(independent(body, renamed_body, symbol) for symbol, _ in points):
        return None
    statements: tuple[Statement, ...] = (*body, *renamed_body)
    for symbol, extent in reversed(points):
        statements = (Loop(symbol, extent, False, statements),)
    return LoopNest(f"{first.comment}; {second.comment}", statements)
