"""Declared functions: inputs, outputs, and the inputs to differentiate by."""

from __future__ import annotations

from dataclasses import dataclass

from derivatrix.compiler.ir.dimensions import BATCH, shape_text
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.runtime.errors import UnsupportedError


@dataclass(eq=False, repr=False)
class Declaration:
    """A function as declared.

    name: a Python identifier
    inputs: its leaves, in the order of the arguments
    outputs: the name and expression of each output, without the batch axis; the only output of a
        function that returns an array has the name ""
    wrt: names of the inputs to differentiate by
    batch: names of the inputs with batch axes, which kernels take as one leading axis
    """

    name: str
    inputs: tuple[Leaf, ...]
    outputs: tuple[tuple[str, Node], ...]
    wrt: tuple[str, ...]
    batch: tuple[str, ...]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{leaf.name}: {shape_text(leaf.shape)}" for leaf in self.inputs)
        return f"<function {self.name}({arguments}) -> {self.result_text}>"

    @property
    def expression(self) -> Node:
        """The expression of a function that returns an array."""
        if self.output_names:
            raise UnsupportedError(
                f"{self.name}: it has the outputs {', '.join(self.output_names)}; take one of "
                f'them, as in {self.name}["{self.output_names[0]}"]'
            )
        return self.outputs[0][1]

    @property
    def expressions(self) -> list[Node]:
        """The expressions of all outputs."""
        return [expression for _, expression in self.outputs]

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs; () for a function that returns an array."""
        return tuple(name for name, _ in self.outputs if name)

    @property
    def is_scalar(self) -> bool:
        """True if the function returns a number."""
        return not self.output_names and not self.expression.shape

    @property
    def result_text(self) -> str:
        """The shape of the result, or of each output: "(n, n)", "mean (n,), covariance (n, n)"."""
        return ", ".join(f"{name} {shape_text(node.shape)}".lstrip() for name, node in self.outputs)

    def batched(self, leaf: Leaf) -> Leaf:
        """Return the leaf with its batch axis, if it has one."""
        if leaf.name not in self.batch:
            return leaf
        return Leaf(leaf.name, (BATCH, *leaf.shape), leaf.structure, leaf.role)
