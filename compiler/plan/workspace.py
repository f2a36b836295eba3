"""Places of a kernel's nodes in memory, and the loops that fill them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import references
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.plan.index_arithmetic import gathered, index_symbol
from derivatrix.compiler.plan.intermediate_letters import intermediate_letters
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import Builder, View
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import Buffer, Call, Operand, Plan, Step
from derivatrix.compiler.plan.uses import orders_in_memory, read_orders, stored


@dataclass(frozen=True)
class Setting:
    """The inputs of the lowering of a kernel.

    arguments: the places of the inputs; roots: the nodes to compute; facts: node -> its facts of
    structure; plan: plans a kernel that this one calls; samples: the size of the axis that comes
    last in memory; is_cpu: whether the kernel is for the CPU, whose helpers it can call.
    """

    names: Names
    arguments: dict[ir.Node, View]
    roots: Sequence[ir.Node]
    facts: Callable[[ir.Node], frozenset[str]]
    plan: Callable[..., Plan]
    samples: sympy.Symbol | None
    is_cpu: bool


class Workspace(ABC):
    """The places of nodes in memory. `steps` and `constants` are the result."""

    def __init__(self, setting: Setting) -> None:
        self.steps: list[Step] = []
        self.constants: dict[str, np.ndarray] = {}
        self._facts = setting.facts
        self._names = setting.names
        self._samples = setting.samples
        self._is_cpu = setting.is_cpu
        self._views = dict(setting.arguments)
        self._output_views: dict[ir.Node, View] = {}
        self._prepared: set[ir.Node] = set()
        self._stored = stored(setting.roots)
        self._nodes = ir.topological(setting.roots)
        self._letters = intermediate_letters(self._nodes)
        for node in self._nodes:
            if isinstance(node, ir.Gather):
                self.constants[gathered(node).__name__] = np.array(node.table)
        references_of_nodes = [child for node in self._nodes for child in references(node)]
        self._uses = Counter([*references_of_nodes, *setting.roots])
        self._read_orders = read_orders(self._nodes)
        self._orders = orders_in_memory(self._nodes, setting.roots, self._stored, self._read_orders)
        for leaf in setting.arguments:
            if self._uses[leaf] and self._is_batch_last(leaf):
                letter = f"{self._views[leaf].buffer.name}_last"
                copy = self._fresh(leaf.shape, first_last(leaf.ndim), letter)
                self._move_samples("batch_last.samples_last", leaf, self._views[leaf], copy)
                self._views[leaf] = copy

    @abstractmethod
    def _compute(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Write `node`, or add it, to the place `view`."""

    @abstractmethod
    def _place(self, node: ir.Node, order: Sequence[int] | None = None) -> View:
        """Return the place of `node`, computed if it has none, with axes in `order` if possible."""

    # The axis of samples

    def _is_batch_last(self, node: ir.Node) -> bool:
        """Return whether the samples, first in arguments and outputs, are last in work arrays."""
        return node.ndim > 1 and self._samples in node.shape

    def _move_samples(self, kernel: Kernel, node: ir.Node, source: View, target: View) -> None:
        """Copy a node between samples first and samples last: a transpose of matrices."""
        entries = product(node.shape[1:])
        shapes = [
            (*node.shape[:1], entries) if view.is_natural else (entries, *node.shape[:1])
            for view in (source, target)
        ]
        operands = map(Operand, (source.buffer, target.buffer), shapes)
        self._call("the samples' place in memory", kernel, *operands)

    # Places

    def _view_of(self, node: ir.Node) -> View | None:
        """Return the place of a node that is computed, or of a constant array; None for others."""
        if isinstance(node, ir.Constant) and node.ndim and node not in self._views:
            name = f"constant_{node.key[1:]}"
            self.constants[name] = node.array
            self._views[node] = View(Buffer(name, node.shape, "constant"), tuple(range(node.ndim)))
        return self._views.get(node)

    def _prepare(self, node: ir.Node) -> None:
        """Compute all stored nodes from which an entry of `node` is read."""
        if self._view_of(node) is not None or isinstance(node, ir.Leaf | ir.Structural):
            return
        if node in self._prepared:
            return
        self._prepared.add(node)
        if node in self._stored:
            self._place(node)
            return
        for child in node.children:
            self._prepare(child)

    def _letter(self, node: ir.Node, order: Sequence[int] = ()) -> str:
        """Return the letter of a work array for `node` with axes in `order`; "" if it has none."""
        letter, transposed = self._letters.get(node, ("", ""))
        return transposed if tuple(order) == (1, 0) else letter

    def _fresh(
        self, shape: Shape, order: Sequence[int], letter: str = "", kind: str = "real"
    ) -> View:
        """Make a work array with axes in `order`, named `letter` if that is free."""
        sizes = tuple(shape[axis] for axis in order) or (sympy.S.One,)
        buffer = Buffer(self._names.lettered(letter), sizes, kind=kind)
        return View(buffer, tuple(list(order).index(axis) for axis in range(len(shape))))

    # Loops

    def _dense(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Compute all entries of a node in one loop nest."""
        if self._view_of(node) is None:
            for child in node.children:
                self._prepare(child)
        builder = Builder(self._view_of, self._names, self._samples)
        at = [index_symbol(axis) for axis in range(node.ndim)]
        nest = builder.nest(view, at, builder.entry(node, at), dict(enumerate(node.shape)))
        self.steps.append(nest.build(accumulate))

    def _scaled(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """Compute the undivided sums in a work array, then divide by sizes. If a size is 0, there
        are no entries to divide and add, but the quotient must be nan."""
        plain = node.scaled(sympy.S.One)
        self._place(plain)
        axes = range(node.ndim)
        self._dense(ir.einsum([(plain, axes)], axes, node.coefficient), view, accumulate)

    def _through(self, node: ir.Node, view: View, order: Sequence[int], accumulate: bool) -> None:
        """Compute a node in a work array, then copy it, or add it, to the place `view`."""
        work_view = self._fresh(node.shape, order, self._letter(node, order))
        self._compute(node, work_view)
        self._views[node] = work_view
        self._dense(node, view, accumulate)

    def _copied(self, node: ir.Node, order: Sequence[int]) -> View:
        """Copy a node to a work array with axes in `order`, whatever place it has already."""
        source = self._view_of(node)
        name = f"{source.buffer.name}_copy" if source else self._letter(node, order)
        view = self._fresh(node.shape, order, name)
        self._dense(node, view)
        return view

    def _described(self, node: ir.Einsum, view: View, accumulate: bool) -> str:
        """Write a product in index notation."""
        builder = Builder(self._view_of, self._names, self._samples)
        at = [index_symbol(label) for label in range(len(node.sizes))]
        value = builder.product(node.coefficient, node.factors, dict(enumerate(at)))
        nest = builder.nest(view, at[: node.ndim], value, dict(enumerate(node.sizes)))
        return nest.comment(accumulate)

    # Helpers

    def _call(
        self, comment: str, kernel: Kernel, *arguments: Operand | bool, failure: str = ""
    ) -> None:
        self.steps.append(Call(comment, kernel, arguments, failure))


def first_last(ndim: int) -> tuple[int, ...]:
    """Return the order of axes with the first axis last."""
    return (*range(1, ndim), 0)


def stack_operand(buffer: Buffer, shape: Shape, core: int) -> Operand:
    """Read a buffer as a stack of arrays of the last `core` axes of `shape`."""
    split_at = len(shape) - core
    return Operand(buffer, (product(shape[:split_at]), *shape[split_at:]))


def by_sizes(coefficient: sympy.Expr) -> bool:
    """Return whether a coefficient divides by sizes, which may be 0."""
    return bool(coefficient.as_numer_denom()[1].free_symbols)
