"""Parameters of kernels, and results of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sympy

from derivatrix.compiler.emit.description import FunctionDescription, Result
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.steps import Plan, Size


def signature(plan: Plan) -> dict[str, dict[str, object]]:
    """Describe the parameters of a kernel, for `_Signature` of the support."""
    local = local_sizes(plan)
    names = {a.local: a.name for a in plan.arguments}
    names |= {size.local: size.name for size in plan.sizes}
    fields: dict[str, dict[str, object]] = {
        "inputs": {a.local: _lengths(a.shape, local) for a in plan.arguments},
        "outputs": {buffer.name: _lengths(buffer.shape, local) for _, buffer in plan.outputs},
        "sizes": {size.local: _size_text(size, local) for size in plan.sizes},
        "names": {name: public for name, public in names.items() if name != public},
    }
    return {name: value for name, value in fields.items() if value}


def signature_text(plan: Plan) -> str:
    """Write the parameters of a kernel for readers, as "X[n, n], scale -> out[n]"."""
    local = local_sizes(plan)
    inputs = [f"{a.local}{_in_brackets(a.shape, local) * bool(a.shape)}" for a in plan.arguments]
    outputs = [f"{buffer.name}{_in_brackets(buffer.shape, local)}" for _, buffer in plan.outputs]
    return f"{', '.join(inputs)} -> {', '.join(outputs)}"


def local_sizes(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Map the public names of sizes to their names within the kernel."""
    return {
        sympy.Symbol(size.name, integer=True, positive=True): sympy.Symbol(size.local)
        for size in plan.sizes
    }


def _lengths(
    shape: Iterable[sympy.Expr], local: Mapping[sympy.Basic, sympy.Basic]
) -> tuple[str, ...]:
    """Write the lengths of an array's axes."""
    return tuple(index(size.xreplace(local)) for size in shape)


def _in_brackets(shape: Iterable[sympy.Expr], local: Mapping[sympy.Basic, sympy.Basic]) -> str:
    return f"[{', '.join(_lengths(shape, local))}]"


def _size_text(size: Size, local: Mapping[sympy.Basic, sympy.Basic]) -> str:
    """Write how a size is read from an argument."""
    array = size.argument.local
    length = sympy.Symbol(f"{array}.shape[{size.axis}]" if size.axis else f"len({array})")
    return index(size.value.xreplace({**local, LENGTH: length}))


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
