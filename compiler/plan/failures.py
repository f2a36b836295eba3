"""What is said where an operation does not take its arguments."""

from derivatrix.compiler.formulas import render
from derivatrix.compiler.ir import nodes as ir

LONGEST = 40
"""The longest formula of an argument that goes into a message."""


def failure_text(node: ir.Apply, problem: str) -> str:
    """A message that names the operation and its arguments."""
    arguments = ", ".join(written(argument) for argument, _ in node.arguments)
    return f"{node.operation.name}({arguments}): {problem}"


def written(node: ir.Node) -> str:
    """The formula of a node, if it is short."""
    text = render(node, "unicode")
    return text if len(text) <= LONGEST else "..."
