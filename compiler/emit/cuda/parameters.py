"""What kernels for a CUDA device take, from what their statements mention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from derivatrix.compiler.targets import cuda
from derivatrix.runtime.errors import UnsupportedError

SIGNS = frozenset({"add", "mul", "neg", "div", "pow", "choose", "not", *CHAINS, *COMPARISONS})
"""Operators that need no function."""


@dataclass(frozen=True)
class Parameters:
    """What a kernel takes: arrays, tables of indices, sizes, and numbers."""

    buffers: tuple[Buffer, ...]
    tables: tuple[str, ...]
    sizes: tuple[str, ...]
    numbers: tuple[str, ...]
    failures: bool

    @property
    def typed(self) -> Iterator[tuple[str, str]]:
        """Names and Numba's types."""
        for buffer in self.buffers:
            axes = ", ".join([":"] * (len(buffer.shape) - 1) + ["::1"])
            yield buffer.name, f"{'int32' if buffer.kind == 'integer' else 'real'}[{axes}]"
        yield from ((name, "int64[::1]") for name in self.tables)
        yield from ((name, "int64") for name in self.sizes)
        yield from ((name, "real") for name in self.numbers)
        if self.failures:
            yield "failures", "int32[::1]"


def parameters(phases: Sequence[Phase]) -> Parameters:
    """What a kernel takes that does one phase after the other."""
    found = _Found()
    for each in phases:
        found.visit(each.points)
        found.visit(each.conditions)
        found.visit(each.terms)
        found.visit(each.inner_conditions)
        found.visit(each.statements)
        found.defined.update(each.sums)
    return Parameters(
        tuple(found.buffers),
        tuple(found.tables),
        tuple(name for name in found.symbols if name not in found.indices),
        tuple(name for name in found.names if name not in found.defined),
        found.failures,
    )


class _Found:
    """What statements mention, in order."""

    def __init__(self) -> None:
        self.buffers: dict[Buffer, None] = {}
        self.tables: dict[str, None] = {}
        self.symbols: dict[str, None] = {}
        self.indices: set[str] = set()
        self.names: dict[str, None] = {}
        self.defined: set[str] = set()
        self.failures = False

    def visit(self, part: Any) -> None:
        match part:
            case sympy.Symbol():
                self.symbols[part.name] = None
            case sympy.Basic():
                self._arithmetic(part)
            case tuple():
                for item in part:
                    self.visit(item)
                if len(part) == 2 and isinstance(part[0], sympy.Symbol):
                    self.indices.add(part[0].name)
            case Name(name):
                self.names[name] = None
            case Number(value) | Test(value):
                self.visit(value)
            case Load(buffer, indices):
                self.buffers[buffer] = None
                self.visit(indices)
            case Operate(operator, operands):
                if operator not in SIGNS and operator not in cuda.SPELLED:
                    raise UnsupportedError(f"there is no function for CUDA devices of {operator}")
                self.visit(operands)
            case Start(name):
                self.defined.add(name)
            case Let(name, value) | Accumulate(name, value):
                self.visit(value)
                self.defined.add(name)
            case Store(target, value, _):
                self.visit(target)
                self.visit(value)
            case Require(condition, _):
                self.visit(condition)
                self.failures = True
            case Loop(symbol, extent, _, body):
                self.visit(extent)
                self.indices.add(symbol.name)
                self.visit(body)
            case Guard(condition, body):
                self.visit(condition)
                self.visit(body)

    def _arithmetic(self, part: sympy.Basic) -> None:
        for applied in sorted(part.atoms(AppliedUndef), key=str):
            self.tables[applied.func.__name__] = None
        for symbol in sorted(part.free_symbols, key=str):
            self.symbols[str(symbol)] = None
