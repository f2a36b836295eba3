"""Public functions for the CPU, as text of the second file of a module.

A call whose arguments are as the kernel takes them, which is small and for whose types the kernel
is compiled, takes the shortest way, within `try`. For all others the arguments are converted first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivatrix.compiler.emit.cpu.kernel_calls import KernelCall, kernel_call
from derivatrix.compiler.emit.description import OperatorDescription
from derivatrix.compiler.emit.public_functions import (
    PublicFunction,
    if_lines,
    indented,
    size_lines,
    sizes_of,
    wrapped_code,
)
from derivatrix.compiler.emit.signatures import local_sizes
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.compiler.ir.python_text import tuple_text
from derivatrix.compiler.structured import operator_text

HELPERS = (
    *(f"cpu.kernels.{name}" for name in ("SharedKernel", "_CONVERSION_ERRORS", "_nearest")),
    *("cpu.kernels.add_onto", "cpu.thread_pool._THREAD_POOL"),
    *("internals.functions.ready", "internals.memory._require_arrays"),
    *(f"internals.memory.{n}" for n in ("_require_shapes", "give_back", "shaped", "work_arrays")),
)
"""Functions of the support that public functions and calls of kernels refer to."""


def function_lines(function: PublicFunction, call: KernelCall) -> list[str]:
    """Write a public function that allocates and fills the results of a kernel."""
    return [
        "try:  # arrays as the kernel takes them",
        *indented(_direct_lines(function, call)),
        "except _LinAlgError:",
        "    raise",
        "except _CONVERSION_ERRORS:  # arguments of other types, or errors to be said in full",
        "    pass",
        *coercion_lines(function),
        f"_results = _destinations({function.expected}, {function.out}, "
        f"{tuple_text(function.result_shapes)}, _dtype, {tuple_text(function.inputs)})",
        f"{tuple_text(function.outputs)} = {function.kernel_results}",
        *call.lines,
        *(f"{name}_ready.remember()" for name in call.compiled),
        f"{tuple_text(function.outputs)} = _deliver({function.out}, _results)",
        f"return {function.returned}",
    ]


def _direct_lines(function: PublicFunction, call: KernelCall) -> list[str]:
    """Write the lines for arguments that need no conversion. They raise for all others."""
    dtype = "_dtype" if len(function.outputs) > 1 else function.dtype
    type_lines = [f"_dtype = {function.dtype}"] if dtype == "_dtype" else []
    unpacking = [
        f"{function.pattern} = {function.out}",
        f"if not ({_are_plain(function.outputs)}):",
        "    raise TypeError",
    ]
    is_new, to_numbers = f"{function.out} is None", [f"{s} = {s}[()]" for s in function.scalars]
    lines = [
        *if_lines(is_new, [*type_lines, *allocation_lines(function, dtype)], unpacking),
        *call.direct,
        *(if_lines(is_new, to_numbers) if to_numbers else []),
        f"return {function.returned}",
    ]
    plain = [_are_plain(function.array_inputs)] if function.array_inputs else []
    conditions = " and ".join([*plain, *call.direct_conditions])
    # `len` is faster than the shape, and refuses numbers
    sizes = size_lines(function.plan, sizes_of(function.plan, call.counts), "len({})")
    return [*sizes, *(if_lines(conditions, lines) if conditions else lines)]


def _are_plain(names: Sequence[str]) -> str:
    """Write the condition that arrays have no subclass: Numba ignores the mask of one."""
    return f"{' is '.join(f'type({name})' for name in names)} is _ndarray"


def coercion_lines(function: PublicFunction) -> list[str]:
    """Write the lines that convert the arguments to arrays that kernels take, or raise."""
    inputs = tuple_text(function.inputs)
    return [
        f"_given = {inputs}",
        f"_axes, {inputs} = _coerce({function.expected}, _given)",
        f"_dtype = {function.dtype}",
        *size_lines(function.plan),
        *function.shape_check(f"_raise_shape_error({function.expected}, _given)"),
    ]


def allocation_lines(function: PublicFunction, dtype: str) -> list[str]:
    """Write the lines that allocate the results."""
    pairs = zip(function.outputs, function.output_shapes, strict=True)
    return [f"{name} = _empty({shape}, {dtype})" for name, shape in pairs]


def operator_lines(
    operator: OperatorDescription, function: PublicFunction
) -> tuple[list[str], list[str], list[str]]:
    """Write the function `_make_operators`, and the body of the public function, which returns
    Jacobians or Hessians as operators; list the functions of the support that they refer to."""
    plan, structured, names = function.plan, operator.structured, set[str]()
    local, expressions = local_sizes(plan), list[str]()
    for item in structured.operators:
        heading = f"{function.module.name}: {structured.title(item)}"
        text = operator_text.operator_lines(
            heading, item, structured, lambda size: size.xreplace(local), names
        )
        expressions += [*text[:-1], f"{text[-1]},"]
    sizes = [size for size in plan.sizes if size.local in names]
    derivatives = ["_derivatives"] if "_derivatives" in names else []
    parameters = ", ".join(["_parts", "_dtype", *derivatives, *(size.local for size in sizes)])
    factory = [
        f"def _make_operators({parameters}):",
        "    return (",
        *indented(indented(expressions)),
        "    )",
        "",
    ]
    arguments = dict(zip((a.name for a in plan.arguments), function.inputs, strict=True))

    def nearest(leaf: Node) -> str:
        assert isinstance(leaf, Leaf)
        return f"_nearest({leaf.structure!r}, {arguments[leaf.name]})"

    parts = [
        function.variables.get(f"part_{number}") or nearest(node)
        for number, node in enumerate(structured.parts)
    ]
    passed = [tuple_text(parts), "_dtype", *derivatives, *(size.name for size in sizes)]
    operators = tuple_text(function.result_variables)
    split = [f"for _operator in {operators}:", "    _operator.split_batch(_axes)"]
    body = [
        *coercion_lines(function),
        *allocation_lines(function, "_dtype"),
        *(kernel_call(plan).lines if plan.outputs else []),
        *([f"_derivatives = {_derivatives(function)}"] if derivatives else []),
        f"{operators} = _make_operators({', '.join(passed)})",
        *(split if function.has_batch else []),
        f"return {function.returned}",
    ]
    helpers = [f"{file}.{name}" for name, file in operator_text.HELPERS.items() if name in names]
    return wrapped_code(factory), body, helpers


def _derivatives(function: PublicFunction) -> str:
    """Write the fields of `_LoopDerivatives`, by which operators run loops: the public functions
    that multiply by them, at the arguments."""
    facts: Any = function.module.facts
    names = [argument.name for argument in function.plan.arguments]
    places = {name: names.index(name) for name in facts["WRT"]}
    outputs = tuple(n for n, entry in facts["OUTPUT"].items() if isinstance(entry, dict))
    multiply = ("jvp", "vjp") if "jacobian" in function.name else ("hvp", "")
    functions = [f"_public[{name!r}]" if name else "None" for name in multiply]
    point = tuple_text(f"{name}.copy()" for name in function.inputs)
    return tuple_text([*functions, point, repr(places), repr(outputs)])
