"""The schedule: steps that compute every node that needs memory, in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.index_arithmetic import (
    Binding,
    Constraint,
    entry_indices,
    index_symbol,
    loop_indices,
    separate,
)
from derivatrix.compiler.plan.lengths import length_nests
from derivatrix.compiler.plan.loop_nest import Builder, View
from derivatrix.compiler.plan.matrix_products import product_groups, suits_samples_last
from derivatrix.compiler.plan.matrix_steps import MatrixSteps
from derivatrix.compiler.plan.operation_steps import OperationSteps
from derivatrix.compiler.plan.recurrences import is_range
from derivatrix.compiler.plan.running_sums import RunningSum, running_nest, running_sum
from derivatrix.compiler.plan.steps import Buffer, Fill
from derivatrix.compiler.plan.uses import is_elementwise, is_summed_length
from derivatrix.compiler.plan.workspace import by_sizes, first_last


class Scheduler(MatrixSteps, OperationSteps):
    """Lowering of nodes to steps. `steps` and `constants` are the result."""

    def outputs(
        self, places: Sequence[tuple[ir.Node, View]], accumulated: Collection[str] = ()
    ) -> None:
        """Write nodes to outputs, or add them to those whose names are in `accumulated`."""
        self._output_views |= {
            node: view
            for node, view in places
            if view.buffer.name not in accumulated and not self._is_batch_last(node)
        }
        for node, view in places:
            self.output(node, view, view.buffer.name in accumulated)

    def output(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Write `node`, or add it, to an output; later readers read it there, or in work memory."""
        if self._view_of(node) == view:
            return
        if accumulate:
            self._compute(node, view, accumulate)
            return
        if self._is_batch_last(node):
            work_view = self._place(node)
            if work_view.has_order(first_last(node.ndim)):
                self._move_samples("batch_last.samples_first", node, work_view, view)
            else:
                self._dense(node, view)
            return
        self._compute(node, view)
        self._views.setdefault(node, view)

    def _place(self, node: ir.Node, order: Sequence[int] | None = None) -> View:
        """Return the place of `node`, computed if it has none, with axes in `order` if possible."""
        known_view = self._view_of(node)
        if known_view is not None:
            return known_view
        if is_range(node):
            return self._range(node)
        if pairs := self._pairs(node):
            return self._packed(node, pairs)
        if node.ndim == 0 and not isinstance(node, ir.Apply):
            local = Buffer(self._names.numbered("a"), ())
            view = View(local, (), local=True)
        else:
            order = order or self._preferred(node)
            view = self._fresh(node.shape, order, self._letter(node, order))
        self._compute(node, view)
        self._views[node] = view
        return view

    def _compute(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Write `node`, or add it, to the place `view`."""
        if is_range(node):
            self._place(node)
        if self._view_of(node) is not None:
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
        """Compute the entrywise terms of a sum in one nest, and accumulate products onto them."""
        terms = self._flat(node)
        accumulated = [] if view.local else [term for term in terms if self._is_accumulated(term)]
        entrywise = [term for term in terms if term not in accumulated]
        is_symmetric = not accumulate and all(map(self._symmetric, entrywise))
        if entrywise or not terms:
            entrywise_sum = ir.Sum(tuple(entrywise), node.shape)
            if terms or accumulate or view.local:
                self._dense(entrywise_sum, view, accumulate)
            else:
                self.steps.append(Fill(view.buffer))
            accumulate = True
        # products of matrices first: BLAS writes all entries, so that nothing is filled with zeros
        for term in sorted(accumulated, key=lambda term: product_groups(term) is None):
            if is_symmetric:
                self._onto_symmetric.add(term)
            self._compute(term, view, accumulate)
            self._onto_symmetric.discard(term)
            accumulate = True
            is_symmetric = is_symmetric and self._symmetric(term)

    def _length(self, node: ir.Node, view: View, accumulate: bool) -> None:
        """Compute roots of sums of squares."""
        if accumulate:
            self._through(node, view, self._preferred(node), accumulate)
            return
        (square,) = node.children
        for part in (square, *square.children):
            self._prepare(part)
        self.steps += length_nests(square, view, self._view_of, self._names)

    def _flat(self, node: ir.Sum) -> list[ir.Node]:
        """List the terms of a sum, and in their place the terms of sums that nothing else reads."""
        terms: list[ir.Node] = []
        for term in node.terms:
            is_open = self._view_of(term) is None and self._uses[term] == 1
            terms += self._flat(term) if is_open and isinstance(term, ir.Sum) else [term]
        return terms

    def _is_accumulated(self, term: ir.Node) -> bool:
        """Return whether steps add a term to the sum directly, without a work array of its own."""
        if self._view_of(term) is not None or is_elementwise(term):
            return False
        if isinstance(term, ir.Structural):
            return True
        if not isinstance(term, ir.Einsum) or self._solved(term) is not None:
            return False
        return self._uses[term] == 1 or (
            entry_indices(term).is_scattered and not entry_indices(term).loops
        )

    def _einsum(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """Compute a product by loops, a solve, or a product of matrices."""
        if self._forward(node, view, accumulate):
            return
        if pairs := self._pairs(node):
            self._packed(node, pairs)
        if pairs or is_elementwise(node):
            self._dense(node, view, accumulate)
            return
        solve = self._solved(node)
        groups = product_groups(node)
        # a device computes the entries side by side
        if running := running_sum(node) if self._is_cpu else None:
            self._running_sum(node, running, view, accumulate)
        elif solve is not None:
            self._solve(node, solve, view, accumulate)
        elif groups is not None and suits_samples_last(groups, node.sizes, self._samples):
            self._gemm(node, groups, view, accumulate)
        else:
            self._reduce(node, view, accumulate)

    def _running_sum(
        self, node: ir.Einsum, running: RunningSum, view: View, accumulate: bool
    ) -> None:
        """Write the terms of a running sum, and add them up."""
        if accumulate or view.local:
            self._through(node, view, self._preferred(node), accumulate)
            return
        self._compute(running.terms, view)
        self.steps.append(running_nest(running, view, self._names.indices(node.ndim)))

    def _forward(self, node: ir.Einsum, view: View, accumulate: bool) -> bool:
        """Compute the scaled transpose of a node that nothing else reads directly into `view`;
        return whether `node` is such a transpose."""
        if len(node.factors) != 1 or node.contracted:
            return False
        factor, labels = node.factors[0]
        fresh = self._view_of(factor) is None and self._uses[factor] <= 1
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
        """Compute a product by loops over its free labels; structural factors become index
        arithmetic."""
        constraints, dense = separate(node.factors)
        for factor, _ in dense:
            self._prepare(factor)
        binding = loop_indices(node)
        if sympy.false in binding.conditions:
            if not accumulate:
                self._dense(ir.zeros(node.shape), view)
            return
        builder = Builder(self._view_of, self._names, self._samples)
        at = [binding.indices[label] for label in range(node.ndim)]
        labels_read = ir.labels_of(dense)
        expressions = [*at, *binding.conditions, *(binding.indices[label] for label in labels_read)]
        symbols = {symbol for expression in expressions for symbol in expression.free_symbols}
        unused_loops = [label for label in binding.loops if index_symbol(label) not in symbols]
        # rounds of a loop on which no factor depends would add the same summand again and again
        coefficient = sympy.Mul(node.coefficient, *(node.sizes[label] for label in unused_loops))
        value = builder.product(coefficient, dense, binding.indices)
        loops = {label: node.sizes[label] for label in binding.loops if label not in unused_loops}
        is_complete = _covered(node, constraints, binding)
        nest = builder.nest(view, at, value, loops, binding.conditions)
        if nest.is_scattered and is_complete and by_sizes(node.coefficient):
            self._scaled(node, view, accumulate)
            return
        if not accumulate and not view.local and (not is_complete or nest.is_scattered):
            self.steps.append(Fill(view.buffer))
            # a table can have an index twice: both of its rows go to the same row of the output
            collides = any(isinstance(c, ir.Gather) and ls[1] < node.ndim for c, ls in constraints)
            accumulate = nest.is_scattered or collides
        self.steps.append(nest.build(accumulate))


def _covered(node: ir.Einsum, constraints: Sequence[Constraint], binding: Binding) -> bool:
    """Return whether the loops write to every entry: each output axis has a loop of its own, or
    merges the axes of two loops."""
    merged = {
        labels[0]: labels[1:] for c, labels in constraints if isinstance(c, ir.Reshape | ir.Vech)
    }
    triangles = {
        sympy.Ge(index_symbol(labels[1]) - index_symbol(labels[2]), 0)
        for c, labels in constraints
        if isinstance(c, ir.Vech)
    }
    sources = [
        label
        for axis in range(node.ndim)
        for label in ((axis,) if axis in binding.loops else merged.get(axis, (axis,)))
    ]
    is_bijective = len(set(sources)) == len(sources) and set(sources) <= set(binding.loops)
    return is_bijective and triangles == set(binding.conditions)
