"""Products of matrices by BLAS: which operands it reads, and which entries it leaves out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.index_arithmetic import index_symbol
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.matrix_products import (
    Groups,
    Matrix,
    as_matrix,
    axes_order,
    product_groups,
    weighted,
)
from derivatrix.compiler.plan.nominal_sizes import is_small
from derivatrix.compiler.plan.steps import Call, Gemm, Operand
from derivatrix.compiler.plan.uses import is_elementwise, read_below_diagonal
from derivatrix.compiler.plan.visit import renamed
from derivatrix.compiler.plan.workspace import Setting, Workspace, by_sizes, stack_operand

Pair = tuple[int, ir.Labels]
"""The position of a factor, and the labels of two axes in which it is symmetric."""
TRANSPOSED = {"whole": "whole", "lower": "upper", "upper": "lower"}


class MatrixSteps(Workspace):
    """The steps of products of matrices."""

    def __init__(self, setting: Setting) -> None:
        self._onto_symmetric: set[ir.Node] = set()
        """Terms that are added to a symmetric matrix."""
        self._halved: set[ir.Node] = set()
        """Products one of whose factors is packed already."""
        self._copies: dict[tuple[ir.Node, tuple[int, ...]], View] = {}
        """Copies of factors, by the order of their axes; several products read them."""
        super().__init__(setting)
        self._read_below_diagonal = read_below_diagonal(self._nodes, self._uses)

    def _symmetric(self, node: ir.Node) -> bool:
        return node.ndim == 2 and "symmetric" in self._facts(node)

    def _gemm(self, node: ir.Einsum, groups: Groups, view: View, accumulate: bool) -> None:
        """Multiply matrices by one call of BLAS, into a place that it can write to."""
        symmetric = self._symmetric(node) and (not accumulate or node in self._onto_symmetric)
        if symmetric and self._is_cpu and weighted(node) is not None:
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
        last_axes = {(node.ndim - 2,), (node.ndim - 1,)}
        is_lower = (
            node in self._read_below_diagonal
            and {groups.rows, groups.columns} == last_axes
            and view.is_natural
            and not accumulate
        )
        part = "lower" if is_lower else "symmetric" if symmetric else "whole"
        # the groups of the target are in the order of its memory, and its operands follow
        left = self._matrix(node, 0, groups.batch, target.first, groups.inner)
        right = self._matrix(node, 1, groups.batch, left.second, target.second)
        operands = (left.operand, left.transposed, right.operand, right.transposed)
        triangles = (
            self._triangle(node.factors[0], groups.batch, groups.rows),
            self._triangle(node.factors[1], groups.batch, groups.inner),
        )
        if target.transposed:  # C' = B' A'
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
        """Compute a symmetric product of the form A' diag(w) A by one call; return False for other
        products, and if the rows of A are not contiguous in memory."""
        factors = weighted(node)
        if factors is None or view.local or len(view.buffer.shape) != 2:
            return False
        samples, weights = factors
        rows = self._place(samples, range(2))
        if not rows.is_natural or isinstance(samples, ir.Constant):
            return False
        # the module has constants as doubles, also for kernels of singles
        is_constant = isinstance(weights, ir.Constant)
        weights_view = self._copied(weights, range(1)) if is_constant else self._place(weights)
        operands = Operand(rows.buffer, samples.shape), Operand(weights_view.buffer, weights.shape)
        target = Operand(view.buffer, node.shape)
        comment = self._described(node, view, accumulate)
        self.steps.append(Call(comment, "blas.weighted_gram", (*operands, accumulate, target)))
        return True

    def _pairs(self, node: ir.Node) -> list[Pair]:
        """List the factors of a product of matrices that are symmetric in two axes of the result:
        half of these entries suffice. The pair that is read along the last axis comes last."""
        if not isinstance(node, ir.Einsum) or node in self._halved:
            return []
        groups = product_groups(node)
        if groups is None or groups.batch:
            return []
        last_axis = [*self._read_orders.get(node, range(node.ndim))][-1]
        pairs: list[Pair] = []
        for position, group in enumerate((groups.rows, groups.columns)):
            factor, labels = node.factors[position]
            pair = labels[-2:]
            is_symmetric = factor.ndim > 2 and "symmetric" in self._facts(factor)
            if is_symmetric and {*pair} <= {*group} and not is_small(node.sizes[pair[0]]):
                pairs.append((position, pair))
        pairs.sort(key=lambda symmetric_pair: last_axis in symmetric_pair[1])
        return pairs if self._is_cpu else pairs[:1]

    def _packed(self, node: ir.Node, pairs: Sequence[Pair]) -> View:
        """Compute a product that is symmetric in pairs of axes with one axis in memory for each
        pair, the lower triangle row by row.

        On the CPU a pair that is read along the last axis is then spread to two axes: beyond the
        diagonal, the entries of a row lie ever further apart in a packed triangle."""
        assert isinstance(node, ir.Einsum)
        order = list(self._read_orders.get(node, range(node.ndim)))
        factors: list[tuple[ir.Node, Sequence[Hashable]]] = list(node.factors)
        for position, pair in pairs:
            factors[position] = self._half(node.factors[position], pair)
        single_axes = [axis for axis in order if not any(axis in pair for _, pair in pairs)]
        *_, (_, last_pair) = pairs
        is_spread = self._is_cpu and order[-1] in last_pair
        packed_pairs = [pair for _, pair in pairs if not is_spread or pair != last_pair]
        labels = [*packed_pairs, *single_axes, *([last_pair] if is_spread else [])]
        product = ir.einsum(factors, labels, node.coefficient)
        self._halved.add(product)
        view = self._place(product, range(product.ndim))
        places = {axis: view.axes[labels.index(axis)] for axis in single_axes}
        for pair in packed_pairs:
            places |= dict.fromkeys(pair, view.axes[labels.index(pair)])
        if is_spread:
            size = node.sizes[last_pair[0]]
            spread_view = self._fresh((*product.shape[:-1], size, size), range(product.ndim + 1))
            places |= {axis: product.ndim - 1 + number for number, axis in enumerate(last_pair)}
            operands = (
                stack_operand(view.buffer, product.shape, 1),
                stack_operand(spread_view.buffer, spread_view.buffer.shape, 2),
            )
            self._call("spread_triangles", "blas.spread_triangles", *operands)
            view = spread_view
        axes = tuple(places[axis] for axis in range(node.ndim))
        self._views[node] = View(view.buffer, axes, packed=tuple(packed_pairs))
        return self._views[node]

    def _half(self, factor: ir.Factor, pair: ir.Labels) -> tuple[ir.Node, Sequence[Hashable]]:
        """Take the lower triangles of a factor that is symmetric in its last two axes; these become
        one axis, whose label is the pair."""
        node, labels = factor
        if is_elementwise(node) and (isinstance(node, ir.Einsum) or self._uses[node] < 2):
            self._stored.discard(node)  # it is computed where it is packed
        packed = (*labels[:-2], pair)
        return ir.einsum([(ir.Vech(node.shape[-1]), (pair, *pair)), factor], packed), packed

    def _triangle(self, factor: ir.Factor, batch: ir.Labels, rows: ir.Labels) -> str:
        """Return "lower" or "upper" for a factor that is triangular as matrices with these rows,
        else "whole"."""
        node, labels = factor
        triangles = self._facts(node) & {"lower", "upper"}
        core = labels[-2:-1], labels[-1:]
        if len(triangles) != 1 or not {*labels[:-2]} <= {*batch} or rows not in core:
            return "whole"
        (triangle,) = triangles
        return triangle if rows == core[0] else TRANSPOSED[triangle]

    def _matrix(
        self, node: ir.Einsum, position: int, batch: ir.Labels, first: ir.Labels, second: ir.Labels
    ) -> Matrix:
        """Read a factor as matrices with rows over `first`, in this order; copy it if its layout
        does not allow that. The second factor has its columns in the order of `second`; the columns
        of the first factor may have any order, to which the second one's rows are matched."""
        factor, labels = node.factors[position]
        order: Sequence[int] = self._orders.get(factor, range(2))
        if factor.ndim > 2:
            axes = (*batch, *self._matrix_axes(node, labels, first, second))
            order = [labels.index(label) for label in axes]
        is_constant = isinstance(factor, ir.Constant)  # a table of doubles, also for singles
        view = self._copied_factor(factor, order) if is_constant else self._place(factor, order)
        matrix = as_matrix(view, labels, batch, first, node.sizes)
        is_ordered = matrix is not None and (position == 0 or matrix.second == second)
        if matrix is None or matrix.first != first or not is_ordered:
            for axes in ((*first, *second), (*second, *first)) if factor.ndim > 2 else ():
                if not view.local and axes[-1] == axes_order(view, labels)[-1]:
                    # the copy reads and writes along contiguous memory
                    order = [labels.index(label) for label in (*batch, *axes)]
            view = self._copied_factor(factor, order)
            matrix = as_matrix(view, labels, batch, first, node.sizes)
        assert matrix is not None
        return matrix

    def _copied_factor(self, factor: ir.Node, order: Sequence[int]) -> View:
        """Copy a factor with its axes in `order`, once for all products that read such a copy."""
        key = factor, tuple(order)
        if key not in self._copies:
            self._copies[key] = self._copied(factor, order)
        return self._copies[key]

    def _matrix_axes(
        self, node: ir.Einsum, labels: ir.Labels, first: ir.Labels, second: ir.Labels
    ) -> ir.Labels:
        """Order the axes of a factor's matrices in memory: as the factor's axes, so that the loops
        that fill it write along contiguous memory; but the samples come last."""
        orders = [(*first, *second), (*second, *first)]
        if tuple(label for label in labels if label in orders[0]) == orders[1]:
            orders.reverse()
        return min(
            orders, key=lambda order: self._samples in [node.sizes[label] for label in order[:-1]]
        )
