"""Declared functions: inputs, an expression, and the inputs to differentiate by."""

from __future__ import annotations

from dataclasses import dataclass

from derivatrix.compiler.ir.dimensions import BATCH, shape_text
from derivatrix.compiler.ir.nodes import Leaf, Node


@dataclass(eq=False, repr=False)
class Declaration:
    """A function as declared.

    name: a Python identifier
    inputs: its leaves, in the order of the arguments
    expression: the node of the result, without the batch axis
    wrt: names of the inputs to differentiate by
    batch: names of the inputs with batch axes, which kernels take as one leading axis
    """

    name: str
    inputs: tuple[Leaf, ...]
    expression: Node
    wrt: tuple[str, ...]
    batch: tuple[str, ...]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{leaf.name}: {shape_text(leaf.shape)}" for leaf in self.inputs)
        return f"<function {self.name}({arguments}) -> {shape_text(self.expression.shape)}>"

    def batched(self, leaf: Leaf) -> Leaf:
        """Return the leaf with its batch axis, if it has one."""
        if leaf.name not in self.batch:
            return leaf
        return Leaf(leaf.name, (BATCH, *leaf.shape), leaf.structure, leaf.role)
