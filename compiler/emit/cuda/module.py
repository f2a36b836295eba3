"""Emission of modules for CUDA devices, from their descriptions, by the templates."""

from __future__ import annotations

from derivatrix.compiler.emit.cuda.host import Device, host_name
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import Imports
from derivatrix.compiler.emit.signatures import returned, signature
from derivatrix.compiler.emit.skeleton import check_names, data_text, rendered
from derivatrix.compiler.emit.texts import call_lines, literal
from derivatrix.compiler.ir.operation import kernel_name
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
    """Write the text of a module and its data file, and list the support files that they need.
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
        functions=[
            call_lines(f"{function.name} = generated.function", _public(function))
            for function in module.functions
        ],
    )
    names = ["KERNELS", "SIGNATURES", "FAILURES", *(kernel.name for kernel in kernels)]
    names += [function.name for function in device.host_functions]
    check_names(module, imports, device.plans, names)
    return text, data_text(module, imports.files, {}, Imports(), operators=None), imports.files


def _public(function: FunctionDescription) -> list[str]:
    """Write the arguments of `generated.function` for a public function."""
    arguments = [f'"{function.name}"', host_name(function.plan), repr(returned(function))]
    keywords = [f"{name}={value!r}" for name, value in signature(function.plan).items()]
    return [*arguments, *(["failures=FAILURES"] if can_fail(function.plan) else []), *keywords]


def _imports(device: Device, names: set[str]) -> Imports:
    """Collect the imports of a module whose kernels read `names`."""
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
