"""Parameters of kernels for a CUDA device: the arrays, sizes and scalars in their statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy
from sympy.core.function import AppliedUndef

from derivatrix.compiler.emit.cuda.block_cooperative import Phase
from derivatrix.compiler.plan.infix import CHAINS, COMPARISONS
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Guard,
    Let,
    Load,
    Loop,
    Name,
    Number,
    Operate,
    Require,
    Start,
    Store,
    Test,
)
from derivatrix.compiler.plan.visit import walk
from derivatrix.compiler.targets import cuda
from derivatrix.runtime.errors import UnsupportedError

INFIX_OPERATORS = frozenset(
    {"add", "mul", "times", "neg", "div", "pow", "choose", "not", *CHAINS, *COMPARISONS}
)
"""Operators that are printed without a function."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a kernel: buffers, tables (constant arrays of indices), sizes and numbers;
    failures: whether it has the array in which failures are recorded."""

    buffers: tuple[Buffer, ...]
    tables: tuple[str, ...]
    sizes: tuple[str, ...]
    numbers: tuple[str, ...]
    failures: bool

    @property
    def typed(self) -> Iterator[tuple[str, str]]:
        """The names of the parameters and their Numba types."""
        for buffer in self.buffers:
            axes = ", ".join([":"] * (len(buffer.shape) - 1) + ["::1"])
            yield buffer.name, f"{'int32' if buffer.kind == 'integer' else 'real'}[{axes}]"
        yield from ((name, "int64[::1]") for name in self.tables)
        yield from ((name, "int64") for name in self.sizes)
        yield from ((name, "real") for name in self.numbers)
        if self.failures:
            yield "failures", "int32[::1]"


def parameters(phases: Sequence[Phase]) -> Parameters:
    """Collect the parameters of a kernel with these phases. Raises UnsupportedError for an operator
    without a function for devices."""
    buffers: dict[Buffer, None] = {}
    tables: dict[str, None] = {}
    symbols: dict[str, None] = {}
    names: dict[str, None] = {}
    indices = {symbol.name for phase in phases for symbol, _ in (*phase.points, *phase.terms)}
    defined = {name for phase in phases for name in phase.sums}
    failures = False

    def mention(*expressions: sympy.Basic) -> None:
        for expression in expressions:
            for applied in sorted(expression.atoms(AppliedUndef), key=str):
                tables[applied.func.__name__] = None
            symbols.update(dict.fromkeys(sorted(map(str, expression.free_symbols))))

    for phase in phases:
        mention(*(extent for _, extent in (*phase.points, *phase.terms)))
        mention(*phase.conditions, *phase.inner_conditions)
        for part in walk(phase.statements):
            match part:
                case Buffer():
                    buffers[part] = None
                case Load(_, places) | Store(Load(_, places)):
                    mention(*places)
                case Number(value) | Test(value):
                    mention(value)
                case Name(name):
                    names[name] = None
                case Operate(operator):
                    if operator not in INFIX_OPERATORS and operator not in cuda.SPELLED:
                        text = f"there is no function for CUDA devices of {operator}"
                        raise UnsupportedError(text)
                case Let(name) | Start(name) | Accumulate(name):
                    defined.add(name)
                case Require():
                    failures = True
                case Loop(index, extent):
                    mention(extent)
                    indices.add(index.name)
                case Guard(condition):
                    mention(condition)
    return Parameters(
        tuple(buffers),
        tuple(tables),
        tuple(name for name in symbols if name not in indices),
        tuple(name for name in names if name not in defined),
        failures,
    )
