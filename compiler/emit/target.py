"""Targets: the machines that modules are generated for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from derivatrix.compiler.emit.description import ModuleDescription
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.compiler.plan.steps import Plan

Outputs = Sequence[tuple[str, Node]]


@dataclass(frozen=True)
class Target:
    """A kind of machine that modules are generated for.

    name: the public name, also TARGET in modules; suffix: of the names of modules.
    place: words for the docstring of a module, as " for CUDA devices".
    conventions: sentences for that docstring on the kernels.
    plan: plans a kernel, from its name, arguments and outputs.
    emit: writes the text of a module and its second file, and lists the files of the support that
    they need, as "cpu/blas.py"; raises DeclarationError for an input with a name that the module
    itself needs, UnsupportedError for a node without a kernel.
    operators: whether modules have functions that return operators.
    kernel_functions: whether each kernel is a public function for arrays of NumPy.
    kernel_table: whether modules have all kernels in the tables KERNELS and SIGNATURES.
    """

    name: str
    suffix: str
    place: str
    conventions: tuple[str, ...]
    plan: Callable[[str, Sequence[Leaf], Outputs], Plan]
    emit: Callable[[ModuleDescription], tuple[str, str, tuple[str, ...]]]
    operators: bool = False
    kernel_functions: bool = False
    kernel_table: bool = False
