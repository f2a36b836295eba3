"""Descriptions of generated modules, from which targets write their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from derivatrix.compiler.plan.steps import Plan
from derivatrix.compiler.structured import Structured

Result = str | tuple[tuple[str, "Result"], ...]
"""The name of one of a plan's outputs, or (field name, result) pairs for a named tuple."""


@dataclass(frozen=True)
class FunctionDescription:
    """A public function.

    formulas: of its results; plan: of its kernel, which has the function's arguments; functions
    that compute the same have the same plan. result: the structure of the returned value;
    cotangents: how many of the last arguments the function takes as one tuple, the cotangents of
    several outputs.
    """

    name: str
    formulas: tuple[str, ...]
    plan: Plan
    result: Result
    cotangents: int = 0


@dataclass(frozen=True)
class OperatorDescription:
    """The public function that returns operators. function: its kernel computes the operators'
    arrays, its result has the names of the operators of `structured`, in order."""

    function: FunctionDescription
    structured: Structured


@dataclass(frozen=True)
class ModuleDescription:
    """A generated module.

    name: the name of the declared function, for messages; docstring: of the module; facts: the
    public constants (INPUTS, OUTPUT, ...), as Python literals; functions: in the order of the text,
    followed by `operator`; formulas: kind -> inputs -> style -> text.
    """

    name: str
    docstring: str
    facts: Mapping[str, object]
    functions: Sequence[FunctionDescription]
    operator: OperatorDescription | None = None
    formulas: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def everything(self) -> tuple[FunctionDescription, ...]:
        """All functions; the one that returns operators is last."""
        return (*self.functions, *([self.operator.function] if self.operator else []))
