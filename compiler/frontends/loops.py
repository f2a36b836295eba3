"""Loops over time: scan, and running products and sums of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from derivatrix.compiler.frontends.elementwise import logaddexp
from derivatrix.compiler.frontends.rearrange import moveaxis
from derivatrix.compiler.frontends.reductions import cumsum
from derivatrix.compiler.frontends.scans import run_scan
from derivatrix.compiler.ir.arrays import Array, asarray, where
from derivatrix.compiler.ir.broadcasting import normalise_axis
from derivatrix.compiler.ir.nodes import full


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
    checkpoint: int | None = None,
) -> tuple[Any, Any]:
    """Loop over the leading axis of `xs`, as `jax.lax.scan` does: the carry after the last step,
    and the outputs of all steps, stacked.

    step: (carry, x) -> (carry, y), called once with symbols. Other symbols are simply used in it.
    init: the carry before the first step. xs: arrays whose leading axes have one length, symbolic
    or not, of which x has no leading axis; None: x is None, and `length` is the number of steps.
    reverse: whether the loop runs from the last x to the first. checkpoint: the number of steps of
    a segment; kernels then keep the carries between segments only, and compute the others again
    for derivatives, instead of all carries. Carry, x and y are arrays, or tuples or mappings of
    arrays; y may be None.

    Raises DeclarationError for a missing or wrong length, for a checkpoint that is no positive
    integer, and for a step that does not return a pair or changes the structure of the carry,
    ShapeError for xs of different lengths and for a step that changes the shape of the carry.
    """
    last, _, outputs = run_scan(step, init, xs, length, reverse, checkpoint)
    return last, outputs


def cumprod(array: Any, axis: int = -1) -> Array:
    """The running product along `axis`. Entries may be zero."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim)
    factors = moveaxis(operand, position, 0)

    def step(product: Array, factor: Array) -> tuple[Array, Array]:
        return product * factor, product * factor

    _, products = scan(step, Array(full(1, factors.node.shape[1:])), factors)
    return moveaxis(products, 0, position)


def logcumsumexp(array: Any, axis: int = -1) -> Array:
    """log(cumsum(exp(x))) along `axis`, without overflow."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim)
    terms = moveaxis(operand, position, 0)
    counts = cumsum(Array(full(1, terms.node.shape[:1])))  # 1, 2, 3, ...

    def step(total: Array, term: tuple[Array, Array]) -> tuple[Array, Array]:
        count, x = term
        # an empty sum has the logarithm -inf, and expressions hold finite constants only
        total = where(count < 2, x, logaddexp(total, x))
        return total, total

    _, sums = scan(step, Array(full(0, terms.node.shape[1:])), (counts, terms))
    return moveaxis(sums, 0, position)
