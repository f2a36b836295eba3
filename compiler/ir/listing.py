"""The intermediate representation as text, a node a line, for people who look inside."""

from __future__ import annotations

from collections.abc import Mapping

from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.nodes import (
    Apply,
    Constant,
    Delta,
    Einsum,
    Leaf,
    Map,
    Merge,
    Node,
    Pack,
    Pick,
    Select,
    Sum,
    Triangle,
    topological,
)

LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


def listing(results: Mapping[str, Node]) -> str:
    """The nodes below `results`, children first, and which of them are the results."""
    names: dict[Node, str] = {}
    lines: list[str] = []
    for node in topological(results.values()):
        if isinstance(node, Leaf):
            names[node] = node.name
        else:
            names[node] = f"%{len(lines)}"
            lines.append(f"{names[node]} {shape_text(node.shape)} = {_describe(node, names)}")
    lines += [f"{name} = {names[node]}" for name, node in results.items()]
    return "\n".join(lines)


def _letter(label: int) -> str:
    return LETTERS[label] if label < len(LETTERS) else f"({label})"


def _indexed(name: str, labels: tuple[int, ...]) -> str:
    return f"{name}[{','.join(map(_letter, labels))}]" if labels else name


def _describe(node: Node, names: Mapping[Node, str]) -> str:
    match node:
        case Constant():
            return f"constant {node.array.tolist()}"
        case Delta():
            return "delta"
        case Select():
            return f"select {node.start} + {node.step} i"
        case Pick():
            return f"pick {list(node.table)}"
        case Merge():
            return f"merge {node.shape[1]} x {node.shape[2]}"
        case Pack():
            return f"pack the lower triangle of {node.shape[1]} rows"
        case Triangle():
            return f"triangle i >= j + {node.offset}"
        case Einsum():
            factors = [_indexed(names[factor], labels) for factor, labels in node.factors]
            coefficient = [] if node.coefficient == 1 and factors else [str(node.coefficient)]
            output = ",".join(_letter(label) for label in range(node.ndim))
            return f"einsum [{output}] " + " * ".join(coefficient + factors)
        case Sum():
            return "sum " + (" + ".join(names[term] for term in node.terms) or "0")
        case Map():
            arguments = ", ".join(names[argument] for argument in node.arguments)
            return f"map {node.expression} at {arguments}"
        case Apply():
            arguments = ", ".join(names[argument] for argument, _ in node.arguments)
            stack = f" stacked {shape_text(node.stack)}" if node.stack else ""
            return f"apply {node.operation.name}({arguments}){stack}"
    raise TypeError(f"no description of {node!r}")
