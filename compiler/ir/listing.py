"""The intermediate representation as text, a node a line, for `derivatrix explain`."""

from __future__ import annotations

from collections.abc import Mapping

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import shape_text

LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


def listing(results: Mapping[str, ir.Node]) -> str:
    """List the nodes below `results`, children first, and the names of the results."""
    names: dict[ir.Node, str] = {}
    lines: list[str] = []
    for node in ir.topological(results.values()):
        if isinstance(node, ir.Leaf):
            names[node] = node.name
        else:
            names[node] = f"%{len(lines)}"
            lines.append(f"{names[node]} {shape_text(node.shape)} = {_describe(node, names)}")
    lines += [f"{name} = {names[node]}" for name, node in results.items()]
    return "\n".join(lines)


def _letter(label: int) -> str:
    return LETTERS[label] if label < len(LETTERS) else f"({label})"


def _describe(node: ir.Node, names: Mapping[ir.Node, str]) -> str:
    match node:
        case ir.Constant():
            return f"constant {node.array.tolist()}"
        case ir.Delta():
            return "delta"
        case ir.Slice():
            return f"slice {node.start} + {node.step} i"
        case ir.Gather():
            return f"gather {list(node.table)}"
        case ir.Reshape():
            return f"reshape {node.shape[1]} x {node.shape[2]}"
        case ir.Vech():
            return f"vech of the lower triangle of {node.shape[1]} rows"
        case ir.Triangle():
            return f"triangle i >= j + {node.offset}"
        case ir.Einsum():
            factors = [
                f"{names[factor]}[{','.join(map(_letter, labels))}]" if labels else names[factor]
                for factor, labels in node.factors
            ]
            coefficient = [] if node.coefficient == 1 and factors else [str(node.coefficient)]
            output = ",".join(_letter(label) for label in range(node.ndim))
            return f"einsum [{output}] " + " * ".join(coefficient + factors)
        case ir.Sum():
            return "sum " + (" + ".join(names[term] for term in node.terms) or "0")
        case ir.Map():
            arguments = ", ".join(names[argument] for argument in node.arguments)
            return f"map {node.expression} at {arguments}"
        case ir.Apply():
            arguments = ", ".join(names[argument] for argument, _ in node.arguments)
            stack = f" stacked {shape_text(node.stack)}" if node.stack else ""
            return f"apply {node.operation.name}({arguments}){stack}"
    raise TypeError(f"no description of {node!r}")
