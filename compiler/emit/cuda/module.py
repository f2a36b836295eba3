"""Emission of a module for CUDA devices: its text from its description, through the templates."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.emit.cuda.host import Device, can_fail, host_name, inner_plans
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import Imports
from derivatrix.compiler.emit.signatures import returns_text, signature, tuples
from derivatrix.compiler.emit.skeleton import check_names, rendered
from derivatrix.compiler.emit.texts import call_lines, literal
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.steps import Plan
from derivatrix.compiler.targets import cuda

FUNCTIONS = (
    *(f"shares.{name}" for name in ("reduced", "SUM", "MAXIMUM", "quotient", "remainder")),
    *("shares.natural", "shares.turns"),
    "rows.log_of_sum",
    "base.THREADS",
)
"""What lines of kernels may refer to, apart from functions of numbers."""


def emit(module: ModuleDescription) -> tuple[str, tuple[str, ...]]:
    """The text of the generated module, and the files of the support that it needs. Raises
    DeclarationError for an input whose name is one that the module itself needs, UnsupportedError
    for what has no kernel for devices."""
    device = Device()
    for function in module.functions:
        device.add(function.plan)
    kernels = list(device.kernels.values())
    imports = _imports(device, set().union(*(kernel.names for kernel in kernels)))
    named = tuples(module.functions)
    if named:
        imports.require("collections", "namedtuple")
    constants = {n: a for f in module.functions for n, a in _constants(f.plan).items()}
    text = rendered(
        "cuda.py.jinja",
        module,
        imports,
        constants,
        tuples=named.items(),
        kernels=kernels,
        host_functions=device.host_functions,
        failures=literal(tuple(device.checks)) if device.checks else "",
        functions=[
            call_lines(f"{function.name} = generated.function", _public(function))
            for function in module.functions
        ],
    )
    names = [*named, "KERNELS", "SIGNATURES", "FAILURES", *(kernel.name for kernel in kernels)]
    names += [function.name for function in device.host_functions]
    check_names(module, imports, device.plans, names)
    return text, imports.files


def _public(function: FunctionDescription) -> list[str]:
    """The arguments of `generated.function` for a public function."""
    first, *named = signature(function.plan)
    found = [f'"{function.name}"', first, host_name(function.plan)]
    if not isinstance(function.result, str):
        found.append(f'returns="{returns_text(function)}"')
    return [*found, *(["failures=FAILURES"] if can_fail(function.plan) else []), *named]


def _constants(plan: Plan) -> dict[str, np.ndarray]:
    """The constant arrays of a plan and of those it calls."""
    found = dict(plan.constants)
    for other in inner_plans(plan):
        found |= _constants(other)
    return found


def _imports(device: Device, names: set[str]) -> Imports:
    """The helpers that a module needs for its names, and its imports."""
    imports = Imports()
    imports.add("cuda.base.kernel")
    imports.add("cuda.base.all_kernels")
    imports.add("cuda.functions.Module")
    for path in (*FUNCTIONS, *cuda.SCALARS.values()):
        if kernel_name(path) in names:
            imports.add(f"cuda.{path}")
    for path in device.helpers:
        imports.add(f"cuda.{path}")
    if "math" in names:
        imports.require("math")
    imports.require("numba", "cuda")
    imports.require("numpy", alias="np")
    return imports
