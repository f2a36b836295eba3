"""Emission of modules for CUDA devices, from their descriptions, by the templates."""

from __future__ import annotations

from derivatrix.compiler.emit.cuda.host import Device, host_name
from derivatrix.compiler.emit.description import ModuleDescription
from derivatrix.compiler.emit.imports import Imports
from derivatrix.compiler.emit.public_functions import (
    PublicFunction,
    definitions,
    indented,
    size_lines,
)
from derivatrix.compiler.emit.skeleton import check_names, data_text, rendered
from derivatrix.compiler.emit.texts import assignment, literal
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.ir.python_text import tuple_text
from derivatrix.compiler.plan.visit import can_fail
from derivatrix.compiler.targets import cuda

FUNCTIONS = (
    *(f"shares.{name}" for name in ("reduced", "SUM", "MAXIMUM", "quotient", "remainder")),
    *("shares.natural", "shares.turns"),
    "rows.log_of_sum",
    "base.THREADS",
)
"""Helpers that lines of kernels can call, besides functions of numbers."""


def emit(module: ModuleDescription) -> tuple[str, str, tuple[str, ...]]:
    """Write the text of a module and its second file, and list the support files that they need.
    Raises DeclarationError for an input with a name that the module itself needs, UnsupportedError
    for a node without a kernel for devices."""
    device = Device()
    for function in module.functions:
        device.add(function.plan)
    kernels = list(device.kernels.values())
    imports = _imports(device, set().union(*(kernel.names for kernel in kernels)))
    constants = {name: array for plan in device.plans for name, array in plan.constants}
    text = rendered(
        "cuda.py.jinja",
        module,
        imports,
        constants,
        kernels=kernels,
        host_functions=device.host_functions,
        failures=literal(tuple(device.checks)) if device.checks else "",
        functions=assignment([f.name for f in module.functions], "generated.functions()"),
    )
    names = ["KERNELS", "SIGNATURES", "FAILURES", *(kernel.name for kernel in kernels)]
    names += [function.name for function in device.host_functions]
    check_names(module, imports, device.plans, names)
    functions = [PublicFunction(function, module) for function in module.functions]
    bodies = [(function, _function_lines(function)) for function in functions]
    lines = definitions(bodies, {"KERNELS": "_KERNELS"})
    return text, *data_text(module, imports, {}, lines, ["cuda.arguments._Call"])


def _function_lines(function: PublicFunction) -> list[str]:
    """Write the body of a public function, whose results a host function computes."""
    inputs, outputs = tuple_text(function.inputs), tuple_text(function.outputs)
    failures = "_FAILURES" if can_fail(function.plan) else "()"
    lines = [
        f"_axes, {inputs} = _run.take()",
        *size_lines(function.plan),
        *function.shape_check("_run.refuse()"),
        f"_results = _run.results({function.out}, {tuple_text(function.result_shapes)})",
        f"{outputs} = {function.kernel_results}",
        f"_{host_name(function.plan)}({', '.join(['_run', *function.inputs, *function.outputs])})",
        f"{outputs} = _run.delivered(_results)",
        f"return {function.returned}",
    ]
    return [f"with _Call({function.expected}, {inputs}, {failures}) as _run:", *indented(lines)]


def _imports(device: Device, names: set[str]) -> Imports:
    """Collect the imports of a module whose kernels read `names`."""
    imports = Imports()
    imports.add("cuda.base.kernel")
    imports.add("cuda.base.all_kernels")
    imports.add("common.module.Module")
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
