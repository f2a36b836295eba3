"""The messages of operations that fail for their arguments."""

from derivatrix.compiler.formulas import render
from derivatrix.compiler.ir import nodes as ir

MAX_FORMULA_LENGTH = 40
"""Most characters of an argument's formula in a message."""


def failure_text(node: ir.Apply, problem: str) -> str:
    """Write a message that names the operation and its arguments."""
    arguments = ", ".join(short_formula(argument) for argument, _ in node.arguments)
    if node.operation.formula("unicode", node.output) == "{0}":
        return f"{arguments}: {problem}"
    return f"{node.operation.name}({arguments}): {problem}"


def short_formula(node: ir.Node) -> str:
    """Print the formula of a node; three dots if it is long."""
    text = render(node, "unicode")
    return text if len(text) <= MAX_FORMULA_LENGTH else "..."
