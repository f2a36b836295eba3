"""Signatures of kernels, as texts that the support parses, and results of functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import sympy

from derivatrix.compiler.emit.description import FunctionDescription, Result
from derivatrix.compiler.emit.texts import wrapped
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.steps import Plan


def signature(plan: Plan) -> dict[str, object]:
    """Write the signature of a plan: its arrays with their lengths, sizes that are no axis's
    length, and local names that differ from the public ones; see `_Signature` of the support."""
    local = local_sizes(plan)
    inputs = [array_text(a.local, a.shape, local) if a.shape else a.local for a in plan.arguments]
    outputs = [array_text(buffer.name, buffer.shape, local) for _, buffer in plan.outputs]
    names = {a.local: a.name for a in plan.arguments if a.local != a.name}
    names |= {size.local: size.name for size in plan.sizes if size.local != size.name}
    fields = {
        "signature": f"{', '.join(inputs)} -> {', '.join(outputs)}",
        "sizes": tuple(_read_sizes(plan)),
        "names": names,
    }
    return {name: value for name, value in fields.items() if value}


def signature_arguments(plan: Plan) -> list[str]:
    """Write a signature as arguments of a call."""
    arrays, *options = signature(plan).items()
    lines = wrapped(str(arrays[1]), 76)
    texts = [json.dumps(f"{line} ", ensure_ascii=False) for line in lines[:-1]]
    first = "\n        ".join([*texts, json.dumps(lines[-1], ensure_ascii=False)])
    return [first, *(f"{name}={value!r}" for name, value in options)]


def local_sizes(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Map the public names of sizes to their names within the kernel."""
    return {
        sympy.Symbol(size.name, integer=True, positive=True): sympy.Symbol(size.local)
        for size in plan.sizes
    }


def array_text(
    name: str, shape: Iterable[sympy.Expr], local: Mapping[sympy.Basic, sympy.Basic]
) -> str:
    """Write an array with its lengths, as "X[n, n]"."""
    return f"{name}[{', '.join(index(size.xreplace(local)) for size in shape)}]"


def _read_sizes(plan: Plan) -> Iterator[str]:
    """Write how sizes are computed that are not the length of any argument's axis."""
    lengths = {str(size) for argument in plan.arguments for size in argument.shape}
    local = local_sizes(plan)
    for size in plan.sizes:
        if size.name not in lengths:
            array = size.argument.local
            length = sympy.Symbol(f"{array}.shape[{size.axis}]" if size.axis else f"len({array})")
            yield f"{size.local} = {index(size.value.xreplace({**local, LENGTH: length}))}"


def returned(function: FunctionDescription) -> object:
    """Describe the return value of a function: the name of an array, or the name of a named tuple
    and what its fields return, as ("Vjp", {"A": "out_A", "b": "out_b"})."""
    buffers = {name: buffer.name for name, buffer in function.plan.outputs}
    return _returned(function.result, title(function.name), buffers)


def _returned(result: Result, path: str, buffers: Mapping[str, str]) -> object:
    if isinstance(result, str):
        return buffers.get(result, result)
    inner = inner_title(path)
    return path, {name: _returned(part, inner, buffers) for name, part in result}


def title(name: str) -> str:
    """Return the name of the named tuple that a function returns."""
    return "".join(word.capitalize() for word in name.split("_"))


def inner_title(path: str) -> str:
    """Return the name of the named tuples within a named tuple."""
    return "Gradient" if path == "ValueAndGradient" else f"{path}Row"


def tuples(functions: Iterable[FunctionDescription]) -> dict[str, str]:
    """Map the named tuples that functions return to their fields, separated by spaces."""
    fields_by_name: dict[str, str] = {}

    def add(result: Result, path: str) -> None:
        if not isinstance(result, str):
            fields_by_name[path] = " ".join(name for name, _ in result)
            for _, part in result:
                add(part, inner_title(path))

    for function in functions:
        add(function.result, title(function.name))
    return fields_by_name
