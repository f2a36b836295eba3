"""Parameters of kernels, and results of functions."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from derivatrix.compiler.ir.dimensions import symbol
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.steps import Plan


def signature_text(plan: Plan) -> str:
    """Write the parameters of a kernel for readers, as "X[n, n], scale -> out[n]"."""
    local = local_sizes(plan)

    def text(name: str, shape: Iterable[sympy.Expr]) -> str:
        return f"{name}[{', '.join(lengths(size.xreplace(local) for size in shape))}]"

    inputs = [text(a.local, a.shape) if a.shape else a.local for a in plan.arguments]
    outputs = [text(buffer.name, buffer.shape) for _, buffer in plan.outputs]
    return f"{', '.join(inputs)} -> {', '.join(outputs)}"


def operand_names(plan: Plan) -> list[str]:
    """List the parameters of a kernel for its arguments and results; those that select a part of
    the work follow them."""
    arguments = [argument.local for argument in plan.arguments]
    return [*arguments, *(buffer.name for _, buffer in plan.outputs)]


def local_sizes(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Map the public names of sizes to their names within the kernel."""
    return {symbol(size.name): sympy.Symbol(size.local) for size in plan.sizes}


def with_public_sizes(plan: Plan, expression: sympy.Expr) -> sympy.Expr:
    """Replace the names of sizes within the kernel by their public names."""
    names = {size.local: symbol(size.name) for size in plan.sizes}
    local = {s: str(s) for s in expression.free_symbols}
    return expression.xreplace({s: names[name] for s, name in local.items() if name in names})


def lengths(shape: Iterable[sympy.Expr]) -> tuple[str, ...]:
    """Write the lengths of an array's axes."""
    return tuple(map(index, shape))


def title(name: str) -> str:
    """Return the name of the named tuple that a function returns."""
    return "".join(word.capitalize() for word in name.split("_"))


def inner_title(path: str) -> str:
    """Return the name of the named tuples within a named tuple."""
    return "Gradient" if path == "ValueAndGradient" else f"{path}Row"
