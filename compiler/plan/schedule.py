"""The schedule: every node that needs memory, in order, each computed by the steps that suit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.index_arithmetic import (
    Binding,
    Constraint,
    entry_indices,
    index_symbol,
    loop_indices,
    split,
)
from derivatrix.compiler.plan.lengths import length_nests
from derivatrix.compiler.plan.loop_nest import Builder, View
from derivatrix.compiler.plan.matrix_products import product_groups, suits_samples_last
from derivatrix.compiler.plan.matrix_steps import MatrixSteps
from derivatrix.compiler.plan.operation_steps import OperationSteps
from derivatrix.compiler.plan.steps import Buffer, Fill
from derivatrix.compiler.plan.uses import is_elementwise, is_summed_length
from derivatrix.compiler.plan.workspace import by_sizes, first_last


class Scheduler(MatrixSteps, OperationSteps):
    """Turns nodes into steps. `steps` and `constants` are the result."""

    def output(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Compute `node` into an output; later readers find it there, or in work memory. Or add it
        to what is there."""
        if accumulate:
            self._compute(node, view, accumulate)
            return
        if self._is_batch_last(node):
            own = self._place(node)
            if own.ordered(first_last(node.ndim)):
                self._move_samples("batch_last.samples_first", node, own, view)
            else:
                self._dense(node, view)
            return
        self._compute(node, view)
        self._views.setdefault(node, view)

    def _place(self, node: ir.Node, order: Sequence[int] | None = None) -> View:
        """A place for `node`, its axes in memory in the given order (axis numbers)."""
        found = self._where(node)
        if found is not None:
            return found
        if pairs := self._pairs(node):
            return self._packed(node, pairs)
        if node.ndim == 0 and not isinstance(node, ir.Apply):
            local = Buffer(self._names.numbered("a"), ())
            view = View(local, (), local=True)
        else:
            view = self._fresh(node.shape, order or self._preferred(node))
        self._compute(node, view)
        self._views[node] = view
        return view

    def _compute(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Write `node` (or add it) to where `view` says."""
        if self._where(node) is not None:
            self._dense(node, view, accumulate)
        elif is_summed_length(node):
            self._length(node, view, accumulate)
        elif isinstance(node, ir.Sum):
            self._sum(node, view, accumulate)
        elif isinstance(node, ir.Apply):
            self._apply(node, view, accumulate)
        elif isinstance(node, ir.Einsum):
            self._einsum(node, view, accumulate)
        elif isinstance(node, ir.Structural):
            axes = tuple(range(node.ndim))
            self._reduce(ir.einsum([(node, axes)], axes), view, accumulate)
        else:
            self._dense(node, view, accumulate)

    def _sum(self, node: ir.Sum, view: View, accumulate: bool) -> None:
        """Entry by entry what can be in one nest; products accumulate into the same place."""
        terms = self._flat(node)
        added = [] if view.local else [term for term in terms if self._is_added(term)]
        together = [term for term in terms if term not in added]
        symmetric = not accumulate and all(map(self._symmetric, together))
        if together or not terms:
            rest = ir.Sum(tuple(together), node.shape)
            if terms or accumulate or view.local:
                self._dense(rest, view, accumulate)
            else:
                self.steps.append(Fill(view.buffer))
            accumulate = True
        for term in sorted(added, key=self._filling):
            if symmetric:
                self._onto_symmetric.add(term)
            self._compute(term, view, accumulate)
            self._onto_symmetric.discard(term)
            accumulate = True
            symmetric = symmetric and self._symmetric(term)

    def _length(self, node: ir.Node, view: View, accumulate: bool) -> None:
        """Roots of sums of squares."""
        if accumulate:
            self._through(node, view, self._preferred(node), accumulate)
            return
        (square,) = node.children
        for part in (square, *square.children):
            self._prepare(part)
        self.steps += length_nests(square, view, self._where, self._names)

    def _flat(self, node: ir.Sum) -> list[ir.Node]:
        terms: list[ir.Node] = []
        for term in node.terms:
            inner = isinstance(term, ir.Sum) and self._where(term) is None
            terms += self._flat(term) if inner and self._uses[term] == 1 else [term]  # type: ignore[arg-type]
        return terms

    def _is_added(self, term: ir.Node) -> bool:
        """Whether a term of a sum is added by steps of its own, without a place of its own."""
        if self._where(term) is not None or is_elementwise(term):
            return False
        if isinstance(term, ir.Structural):
            return True
        if not isinstance(term, ir.Einsum) or self._solved(term) is not None:
            return False
        return self._uses[term] == 1 or (
            entry_indices(term).scattered and not entry_indices(term).loops
        )

    def _filling(self, term: ir.Node) -> bool:
        """Whether a term leaves gaps, so that what it is added to has to be complete before."""
        return product_groups(term) is None

    def _einsum(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """A product by what suits it: loops, a solve, or a product of matrices."""
        if self._forward(node, view, accumulate):
            return
        if pairs := self._pairs(node):
            self._packed(node, pairs)
        if pairs or is_elementwise(node):
            self._dense(node, view, accumulate)
            return
        solve = self._solved(node)
        groups = product_groups(node)
        if solve is not None:
            self._solve(node, solve, view, accumulate)
        elif groups is not None and suits_samples_last(groups, node.sizes, self._samples):
            self._gemm(node, groups, view, accumulate)
        else:
            self._reduce(node, view, accumulate)

    def _forward(self, node: ir.Einsum, view: View, accumulate: bool) -> bool:
        """Compute a scaled transpose of something used once straight into place."""
        if len(node.factors) != 1 or node.contracted:
            return False
        factor, labels = node.factors[0]
        fresh = self._where(factor) is None and self._uses[factor] <= 1
        if not fresh or is_elementwise(factor) or sorted(labels) != list(range(node.ndim)):
            return False
        if node.coefficient != 1:
            if not isinstance(factor, ir.Einsum):
                return False
            factor = factor.scaled(node.coefficient * factor.coefficient)
        axes = tuple(view.axes[label] for label in labels)
        self._compute(factor, replace(view, axes=axes), accumulate)
        return True

    def _reduce(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """Loops over the free labels; what structural factors say is index arithmetic."""
        constraints, dense = split(node.factors)
        for factor, _ in dense:
            self._prepare(factor)
        binding = loop_indices(node)
        if binding.impossible:
            if not accumulate:
                self._dense(ir.zeros(node.shape), view)
            return
        builder = Builder(self._where, self._names, self._samples)
        at = [binding.indices[label] for label in range(node.ndim)]
        read = ir.labels_of(dense)
        used = [*at, *binding.conditions, *(binding.indices[label] for label in read)]
        symbols = {symbol for expression in used for symbol in expression.free_symbols}
        counted = [label for label in binding.loops if index_symbol(label) not in symbols]
        coefficient = sympy.Mul(node.coefficient, *(node.sizes[label] for label in counted))
        value = builder.product(coefficient, dense, binding.indices)
        loops = {label: node.sizes[label] for label in binding.loops if label not in counted}
        complete = _covered(node, constraints, binding)
        nest = builder.nest(view, at, value, loops, binding.conditions)
        if nest.scattered and complete and by_sizes(node.coefficient):
            self._scaled(node, view, accumulate)
            return
        if not accumulate and not view.local and (not complete or nest.scattered):
            self.steps.append(Fill(view.buffer))
            meeting = any(isinstance(c, ir.Gather) and own[1] < node.ndim for c, own in constraints)
            accumulate = nest.scattered or meeting
        self.steps.append(nest.build(accumulate))


def _covered(node: ir.Einsum, constraints: Sequence[Constraint], binding: Binding) -> bool:
    """Whether the loops reach every entry: each output axis is a loop, or made of two, of its
    own."""
    made = {own[0]: own[1:] for c, own in constraints if isinstance(c, ir.Reshape | ir.Vech)}
    triangles = {
        sympy.Ge(index_symbol(own[1]) - index_symbol(own[2]), 0)
        for c, own in constraints
        if isinstance(c, ir.Vech)
    }
    sources = [
        label
        for axis in range(node.ndim)
        for label in ((axis,) if axis in binding.loops else made.get(axis, (axis,)))
    ]
    reached = len(set(sources)) == len(sources) and set(sources) <= set(binding.loops)
    return reached and triangles == set(binding.conditions)
