"""Loops over whole arrays that are printed as calls.

A call is one line with its formula beside it, and its loop is compiled once for all modules. The
arrays are C-contiguous, so that a call needs one loop over all entries, whatever their axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.plan.steps import (
    Buffer,
    Let,
    Load,
    Loop,
    Operate,
    Scalar,
    Statement,
    Store,
)
from derivatrix.compiler.plan.visit import buffers, symbols

FUNCTIONS = {1: "set_multiple", 2: "set_combination"}
"""Number of terms -> the function that sets an array to the sum of the terms."""


@dataclass(frozen=True)
class Combination:
    """A loop nest that sets an array to a sum of one or two multiples of arrays, or adds a multiple
    to it. lets: the statements before the loops; terms: numbers and names of arrays."""

    lets: Sequence[Statement]
    terms: Sequence[tuple[Scalar, str]]
    target: str
    accumulate: bool

    @property
    def function(self) -> str:
        return "add_multiple" if self.accumulate else FUNCTIONS[len(self.terms)]

    @property
    def signed_terms(self) -> Iterator[tuple[str, Scalar, str]]:
        """The sign, the number without it, and the array of each term."""
        for number, array in self.terms:
            match number:
                case Operate("neg", (size,)):
                    yield "-", size, array
                case _:
                    yield "+", number, array


def combination(body: tuple[Statement, ...]) -> Combination | None:
    """Match a loop nest that is a `Combination`; None for other loops."""
    lets, (loops, inside) = body[:-1], split_loops(body[-1:])
    if not loops or not all(isinstance(let, Let) for let in lets):
        return None
    extents = tuple(loop.extent for loop in loops if loop.start == 0)
    match inside:
        case (Store(Load(target, indices), value, accumulate),) if (
            indices == tuple(loop.index for loop in loops) and target.shape == extents
        ):
            is_sum = isinstance(value, Operate) and value.operator == "add" and not accumulate
            values = value.operands if isinstance(value, Operate) and is_sum else (value,)
            terms = [*filter(None, (_multiple(term, indices, target) for term in values))]
            if len(terms) == len(values) <= 2:
                return Combination(lets, terms, target.name, accumulate)
    return None


def _multiple(
    value: Scalar, indices: tuple[sympy.Expr, ...], target: Buffer
) -> tuple[Scalar, str] | None:
    """Split a product of numbers and an entry of an array of the target's shape into the number and
    the name of the array; None for other values."""
    match value:
        case Operate("neg", (Operate("mul") as product,)):
            multiple = _multiple(product, indices, target)
            return multiple and (Operate("neg", multiple[:1]), multiple[1])
        case Operate("mul", factors):
            arrays = [
                part for part in factors if isinstance(part, Load) and part.indices == indices
            ]
            numbers = tuple(part for part in factors if part not in arrays)
            if len(numbers) + 1 != len(factors) or len(arrays) != 1:
                return None
            (array,) = (load.buffer for load in arrays)
            if (
                array.shape == target.shape
                and array.role != "constant"  # a double in kernels of singles, too
                and not {*indices} & symbols(numbers)
                and target not in buffers(numbers)  # the call reads numbers before it writes
            ):
                return Operate("mul", numbers) if len(numbers) > 1 else numbers[0], array.name
    return None


def copied(body: tuple[Statement, ...]) -> tuple[str, list[str]] | None:
    """Match a loop nest that copies an array, or one of three axes in another order; return the
    function that does the same and its arguments, None for other loops."""
    loops, inside = split_loops(body)
    indices = tuple(loop.index for loop in loops)
    match inside:
        case (Store(Load(target, at), Load(source, of), accumulate=False),) if (
            loops
            and source.role != "constant"  # a double in kernels of singles, too
            and at == indices
            and target.shape == tuple(loop.extent for loop in loops)
            and len(of) == len(indices)  # else it is a diagonal
            and {*of} == {*indices}
            and source.shape == tuple(target.shape[indices.index(symbol)] for symbol in of)
        ):
            arrays = [source.name, target.name]
            if of == indices:
                return "copy_entries", arrays
            if len(of) == 3:
                return "copy_permuted", [*arrays, *(str(of.index(symbol)) for symbol in indices)]
    return None


def split_loops(body: tuple[Statement, ...]) -> tuple[list[Loop], tuple[Statement, ...]]:
    """Split a body that is one loop, of one loop, ..., into these loops and the innermost body."""
    loops: list[Loop] = []
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    return loops, body
