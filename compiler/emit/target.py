"""What a module can be generated for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from derivatrix.compiler.emit.description import ModuleDescription
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.compiler.plan.steps import Plan

Outputs = Sequence[tuple[str, Node]]


@dataclass(frozen=True)
class Target:
    """What a module can be generated for.

    name: as users give it, and as TARGET says; suffix: of the modules' names. place: where modules
    run, for their docstring, as in " for CUDA devices"; conventions: of their kernels, a line each.
    plan: a kernel's name, its arguments and its outputs -> its steps.
    emit: a description -> the module's text, and the files of the support that it needs, as
    "cpu/blas.py"; raises DeclarationError for an input whose name is one that the module itself
    needs, UnsupportedError for what has no kernel.
    operators: whether modules have functions that return operators.
    """

    name: str
    suffix: str
    place: str
    conventions: tuple[str, ...]
    plan: Callable[[str, Sequence[Leaf], Outputs], Plan]
    emit: Callable[[ModuleDescription], tuple[str, tuple[str, ...]]]
    operators: bool = False
