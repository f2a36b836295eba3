"""Products of stacks of matrices by one call, which needs leading axes in one order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy

from derivatrix.compiler.plan.steps import (
    Buffer,
    Gemm,
    Load,
    Loop,
    LoopNest,
    Operand,
    Statement,
    Store,
)


def in_one_order(gemm: Gemm, fresh: Callable[[], str]) -> tuple[list[LoopNest], Gemm]:
    """Copy factors whose leading axes have another order than the result's. Returns the copies, and
    the product of them; fresh: returns a new name for a copy."""
    extents = dict(gemm.batch)
    order = gemm.target.index
    copies: list[LoopNest] = []
    factors: list[Operand] = []
    for factor in (gemm.left, gemm.right):
        if factor.index != order:
            leading = tuple(extents[symbol] for symbol in order)
            copy = Buffer(fresh(), (*leading, *factor.buffer.shape[len(order) :]))
            copies.append(_copy(factor, copy, order))
            factor = replace(factor, buffer=copy, index=order)
        factors.append(factor)
    left, right = factors
    batch = tuple((symbol, extents[symbol]) for symbol in order)
    return copies, replace(gemm, left=left, right=right, batch=batch)


def _copy(factor: Operand, copy: Buffer, order: tuple[sympy.Expr, ...]) -> LoopNest:
    """Copy a factor with its leading axes in another order."""
    inner = copy.shape[len(order) :]
    within = tuple(
        sympy.Symbol(f"entry_{axis}", integer=True, nonnegative=True) for axis in range(len(inner))
    )
    target = Load(copy, (*order, *within))
    source = Load(factor.buffer, (*factor.index, *within))
    body: tuple[Statement, ...] = (Store(target, source, accumulate=False),)
    for symbol, extent in reversed([*zip((*order, *within), copy.shape, strict=True)]):
        body = (Loop(symbol, extent, False, body),)
    return LoopNest(f"{target} = {source}", body)
