"""Products of matrices by BLAS: what it reads as matrices, and which entries it leaves out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.index_arithmetic import index_symbol
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.matrix_products import (
    Groups,
    Matrix,
    as_matrix,
    product_groups,
    weighted,
)
from derivatrix.compiler.plan.nominal_sizes import is_small
from derivatrix.compiler.plan.steps import Call, Gemm, Operand
from derivatrix.compiler.plan.uses import is_elementwise, read_below_diagonal
from derivatrix.compiler.plan.visit import renamed
from derivatrix.compiler.plan.workspace import Setting, Workspace, by_sizes, stack_operand

Pair = tuple[int, ir.Labels]
"""Two axes that a factor is symmetric in: the factor's position, and their labels."""
TRANSPOSED = {"whole": "whole", "lower": "upper", "upper": "lower"}


class MatrixSteps(Workspace):
    """The steps of products of matrices."""

    def __init__(self, setting: Setting) -> None:
        self._onto_symmetric: set[ir.Node] = set()
        """The term that is being added to what is symmetric, if it is."""
        self._halved: set[ir.Node] = set()
        """Products one of whose factors is packed already."""
        super().__init__(setting)
        self._read_below_diagonal = read_below_diagonal(self._nodes, self._uses)

    def _symmetric(self, node: ir.Node) -> bool:
        return node.ndim == 2 and "symmetric" in self._facts(node)

    def _gemm(self, node: ir.Einsum, groups: Groups, view: View, accumulate: bool) -> None:
        """A product of matrices by one call of BLAS, into a place that it can write to."""
        symmetric = self._symmetric(node) and (not accumulate or node in self._onto_symmetric)
        if symmetric and self._on_processor and weighted(node) is not None:
            if by_sizes(node.coefficient):
                self._scaled(node, view, accumulate)
                return
            if self._weighted_gram(node, view, accumulate):
                return
        output = tuple(range(node.ndim))
        target = as_matrix(view, output, groups.batch, groups.rows, node.sizes)
        if target is None:
            order = (*groups.batch, *groups.rows, *groups.columns)
            self._through(node, view, order, accumulate)
            return
        core = {groups.rows, groups.columns} == {(node.ndim - 2,), (node.ndim - 1,)}
        below = node in self._read_below_diagonal and core and view.natural and not accumulate
        part = "lower" if below else "symmetric" if symmetric else "whole"
        left = self._matrix(node, 0, groups.batch, target.first, groups.inner)
        right = self._matrix(node, 1, groups.batch, left.second, target.second)
        operands = (left.operand, left.transposed, right.operand, right.transposed)
        triangles = (
            self._triangle(node.factors[0], groups.batch, groups.rows),
            self._triangle(node.factors[1], groups.batch, groups.inner),
        )
        if target.transposed:
            operands = (right.operand, not right.transposed, left.operand, not left.transposed)
            triangles = (TRANSPOSED[triangles[1]], TRANSPOSED[triangles[0]])
        step = Gemm(
            self._described(node, view, accumulate),
            node.coefficient,
            *operands,
            accumulate,
            target.operand,
            tuple((index_symbol(label), node.sizes[label]) for label in groups.batch),
            triangles,
            part,
        )
        indices = self._names.indices(len(groups.batch))
        renames = dict(zip(map(index_symbol, groups.batch), indices, strict=True))
        self.steps.append(renamed(step, renames))

    def _weighted_gram(self, node: ir.Einsum, view: View, accumulate: bool) -> bool:
        """Compute A' diag(w) A, if that is what a symmetric product is, and A's rows come one
        after the other in memory."""
        found = weighted(node)
        if found is None or view.local or len(view.buffer.shape) != 2:
            return False
        samples, weights = found
        rows = self._place(samples, range(2))
        if not rows.natural or isinstance(samples, ir.Constant):
            return False
        constant = isinstance(weights, ir.Constant)
        along = self._copied(weights, range(1)) if constant else self._place(weights)
        operands = Operand(rows.buffer, samples.shape), Operand(along.buffer, weights.shape)
        target = Operand(view.buffer, node.shape)
        comment = self._described(node, view, accumulate)
        self.steps.append(Call(comment, "blas.weighted_gram", (*operands, accumulate, target)))
        return True

    def _pairs(self, node: ir.Node) -> list[Pair]:
        """The factors of a product of matrices that are symmetric in two axes of the result, so
        that half of the entries are enough; last the one that is read along the last axis."""
        if not isinstance(node, ir.Einsum) or node in self._halved:
            return []
        groups = product_groups(node)
        if groups is None or groups.batch:
            return []
        last = [*self._read_orders.get(node, range(node.ndim))][-1]
        found: list[Pair] = []
        for position, own in enumerate((groups.rows, groups.columns)):
            factor, labels = node.factors[position]
            pair = labels[-2:]
            known = factor.ndim > 2 and "symmetric" in self._facts(factor)
            if known and {*pair} <= {*own} and not is_small(node.sizes[pair[0]]):
                found.append((position, pair))
        found.sort(key=lambda each: last in each[1])
        return found if self._on_processor else found[:1]

    def _packed(self, node: ir.Node, pairs: Sequence[Pair]) -> View:
        """A place for a product that is symmetric in pairs of axes, each of which is one axis in
        memory; the pair that is read along the last axis is made two again, where it has loops of
        its own."""
        assert isinstance(node, ir.Einsum)
        order = list(self._read_orders.get(node, range(node.ndim)))
        factors: list[tuple[ir.Node, Sequence[Hashable]]] = list(node.factors)
        for position, pair in pairs:
            factors[position] = self._half(node.factors[position], pair)
        rest = [axis for axis in order if not any(axis in pair for _, pair in pairs)]
        *_, (_, last) = pairs
        spread = self._on_processor and order[-1] in last
        first = [pair for _, pair in pairs if not spread or pair != last]
        labels = [*first, *rest, *([last] if spread else [])]
        product = ir.einsum(factors, labels, node.coefficient)
        self._halved.add(product)
        found = self._place(product, range(product.ndim))
        places = {axis: found.axes[labels.index(axis)] for axis in rest}
        for pair in first:
            places |= dict.fromkeys(pair, found.axes[labels.index(pair)])
        if spread:
            size = node.sizes[last[0]]
            whole = self._fresh((*product.shape[:-1], size, size), range(product.ndim + 1))
            places |= {axis: product.ndim - 1 + number for number, axis in enumerate(last)}
            operands = (
                stack_operand(found.buffer, product.shape, 1),
                stack_operand(whole.buffer, whole.buffer.shape, 2),
            )
            self._call("whole matrices of triangles", "blas.spread_triangles", *operands)
            found = whole
        axes = tuple(places[axis] for axis in range(node.ndim))
        self._views[node] = View(found.buffer, axes, packed=tuple(first))
        return self._views[node]

    def _half(self, factor: ir.Factor, pair: ir.Labels) -> tuple[ir.Node, Sequence[Hashable]]:
        """The lower triangles of a factor that is symmetric in its last two axes, which are one,
        labelled by both."""
        node, labels = factor
        if is_elementwise(node) and (isinstance(node, ir.Einsum) or self._uses[node] < 2):
            self._stored.discard(node)  # it is computed where it is packed
        kept = (*labels[:-2], pair)
        return ir.einsum([(ir.Vech(node.shape[-1]), (pair, *pair)), factor], kept), kept

    def _triangle(self, factor: ir.Factor, batch: ir.Labels, rows: ir.Labels) -> str:
        """What is known of a factor as a stack of matrices with these rows."""
        node, labels = factor
        known = self._facts(node) & {"lower", "upper"}
        core = labels[-2:-1], labels[-1:]
        if len(known) != 1 or not {*labels[:-2]} <= {*batch} or rows not in core:
            return "whole"
        (triangle,) = known
        return triangle if rows == core[0] else TRANSPOSED[triangle]

    def _matrix(
        self, node: ir.Einsum, position: int, batch: ir.Labels, first: ir.Labels, second: ir.Labels
    ) -> Matrix:
        """A factor as matrices with rows over `first`, in that order; copied if need be.
        The columns' order is the caller's for the second factor, free for the first."""
        factor, labels = node.factors[position]
        order: Sequence[int] = self._orders.get(factor, range(2))
        if factor.ndim > 2:
            axes = (*batch, *self._matrix_axes(node, labels, first, second))
            order = [labels.index(label) for label in axes]
        constant = isinstance(factor, ir.Constant)
        view = self._copied(factor, order) if constant else self._place(factor, order)
        matrix = as_matrix(view, labels, batch, first, node.sizes)
        right_order = matrix is not None and (position == 0 or matrix.second == second)
        if matrix is None or matrix.first != first or not right_order:
            view = self._copied(factor, order)
            matrix = as_matrix(view, labels, batch, first, node.sizes)
        assert matrix is not None
        return matrix

    def _matrix_axes(
        self, node: ir.Einsum, labels: ir.Labels, first: ir.Labels, second: ir.Labels
    ) -> ir.Labels:
        """The order in memory of the axes of a factor's matrices: rows and columns as the factor
        has them, which is how most are filled; but the samples come last."""
        orders = [(*first, *second), (*second, *first)]
        if tuple(label for label in labels if label in orders[0]) == orders[1]:
            orders.reverse()
        return min(
            orders,
            key=lambda order: self._samples in [node.sizes[label] for label in order[:-1]],
        )
