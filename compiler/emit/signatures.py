"""Parameters of kernels, and results of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sympy

from derivatrix.compiler.emit.description import FunctionDescription, Result
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.ir.dimensions import symbol as dimension_symbol
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.steps import Plan, Size


def signature(plan: Plan, conditions: Iterable[sympy.Expr] = ()) -> dict[str, object]:
    """Describe the parameters of a kernel, for `_Signature` of the support. conditions: the numbers
    by which its public function chooses how to call it."""
    fields = {
        "inputs": {argument.name: _lengths(argument.shape) for argument in plan.arguments},
        "outputs": {buffer.name: _lengths(buffer.shape) for _, buffer in plan.outputs},
        "sizes": {size.name: _size_text(size) for size in plan.sizes},
        "reads": tuple(_sizes_of(plan, conditions)),
    }
    return {name: value for name, value in fields.items() if value}


def _sizes_of(plan: Plan, conditions: Iterable[sympy.Expr]) -> list[str]:
    """List the sizes that results' shapes and conditions have, and those that these are read with,
    in the order in which they are read."""
    lengths = [length for _, buffer in plan.outputs for length in buffer.shape]
    needed = sympy.Tuple(*lengths, *conditions).free_symbols
    names: list[str] = []
    for size in reversed(plan.sizes):
        if dimension_symbol(size.name) in needed:
            names.insert(0, size.name)
            needed |= size.value.free_symbols
    return names


def signature_text(plan: Plan) -> str:
    """Write the parameters of a kernel for readers, as "X[n, n], scale -> out[n]"."""
    local = local_sizes(plan)

    def text(name: str, shape: Iterable[sympy.Expr]) -> str:
        return f"{name}[{', '.join(_lengths(size.xreplace(local) for size in shape))}]"

    inputs = [text(a.local, a.shape) if a.shape else a.local for a in plan.arguments]
    outputs = [text(buffer.name, buffer.shape) for _, buffer in plan.outputs]
    return f"{', '.join(inputs)} -> {', '.join(outputs)}"


def local_sizes(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Map the public names of sizes to their names within the kernel."""
    return {
        sympy.Symbol(size.name, integer=True, positive=True): sympy.Symbol(size.local)
        for size in plan.sizes
    }


def _lengths(shape: Iterable[sympy.Expr]) -> tuple[str, ...]:
    """Write the lengths of an array's axes."""
    return tuple(map(index, shape))


def _size_text(size: Size) -> str:
    """Write how a size is read from an argument."""
    array = size.argument.name
    length = sympy.Symbol(f"{array}.shape[{size.axis}]" if size.axis else f"_len({array})")
    return index(size.value.xreplace({LENGTH: length}))


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
