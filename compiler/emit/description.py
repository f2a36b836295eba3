"""What a generated module consists of, before it is text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from derivatrix.compiler.plan.steps import Plan
from derivatrix.compiler.structured import Structured

Result = str | tuple[tuple[str, "Result"], ...]
"""The name of one of a plan's outputs, or (field name, result) pairs for a named tuple."""


@dataclass(frozen=True)
class FunctionDescription:
    """A public function: the formulas of what it computes, its kernel's plan (whose arguments are
    its own), and what it returns."""

    name: str
    formulas: tuple[str, ...]
    plan: Plan
    result: Result


@dataclass(frozen=True)
class OperatorDescription:
    """The public function that returns operators. `function`: it, with the kernel that computes
    their arrays; its result is made of the names of operators, those of `structured` in order."""

    function: FunctionDescription
    structured: Structured


@dataclass(frozen=True)
class ModuleDescription:
    """A generated module.

    name: the declared function's name, for messages. docstring: the module's. facts: the
    public constants (INPUTS, OUTPUT, ...), literals of Python. functions: in the order to be
    written, `operator` after them. formulas: kind -> inputs -> style -> text.
    """

    name: str
    docstring: str
    facts: Mapping[str, object]
    functions: Sequence[FunctionDescription]
    operator: OperatorDescription | None = None
    formulas: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def everything(self) -> tuple[FunctionDescription, ...]:
        """All functions, that of the operators last."""
        return (*self.functions, *([self.operator.function] if self.operator else []))
