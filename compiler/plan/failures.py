"""The messages of operations that fail for their arguments."""

from derivatrix.compiler.formulas import render
from derivatrix.compiler.ir import nodes as ir

LONGEST = 40
"""The longest formula of an argument that goes into a message."""


def failure_text(node: ir.Apply, problem: str) -> str:
    """A message that names the operation and its arguments."""
    arguments = ", ".join(short_formula(argument) for argument, _ in node.arguments)
    if node.operation.formula("unicode", node.output) == "{0}":
        return f"{arguments}: {problem}"
    return f"{node.operation.name}({arguments}): {problem}"


def short_formula(node: ir.Node) -> str:
    """The formula of a node; three dots where it is long."""
    text = render(node, "unicode")
    return text if len(text) <= LONGEST else "..."
