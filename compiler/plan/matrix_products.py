"""Contractions as matrix products: labels in groups, groups as rows and columns of memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.plan.index_arithmetic import index_symbol
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.nominal_sizes import is_small, product
from derivatrix.compiler.plan.steps import Operand


@dataclass(frozen=True)
class Groups:
    """The labels of a contraction of two factors: rows are in the left factor and the output,
    columns in the right factor and the output, inner labels are summed over, batch labels are in
    both factors and the output."""

    batch: ir.Labels
    rows: ir.Labels
    columns: ir.Labels
    inner: ir.Labels


def product_groups(einsum: ir.Node) -> Groups | None:
    """Group the labels of a matrix product; None unless `einsum` is one that merits a BLAS call."""
    if not isinstance(einsum, ir.Einsum) or len(einsum.factors) != 2:
        return None
    (left_node, left), (right_node, right) = einsum.factors
    output = range(einsum.ndim)
    dense = not isinstance(left_node, ir.Structural) and not isinstance(right_node, ir.Structural)
    plain = len(set(left)) == len(left) and len(set(right)) == len(right)
    if not dense or not plain or set(left) | set(right) != set(range(len(einsum.sizes))):
        return None
    groups = Groups(
        batch=tuple(label for label in output if label in left and label in right),
        rows=tuple(label for label in output if label in left and label not in right),
        columns=tuple(label for label in output if label in right and label not in left),
        inner=tuple(label for label in einsum.contracted if label in left and label in right),
    )
    if len(groups.inner) != len(einsum.contracted):
        return None
    kinds = (groups.rows, groups.columns, groups.inner)
    sizes = [product(tuple(einsum.sizes[label] for label in kind)) for kind in kinds]
    if not all(kinds) or all(map(is_small, sizes)) or any(size == 1 for size in sizes):
        return None
    return groups


def suits_samples_last(groups: Groups, sizes: Shape, samples: sympy.Symbol | None) -> bool:
    """Return whether BLAS can multiply if an axis of the size `samples` comes last in memory: for
    matrices without this axis, or stacks of matrices each of which has it."""
    stack = [sizes[label] for label in groups.batch]
    return samples not in sizes or (bool(stack) and samples not in stack)


def weighted(einsum: ir.Einsum) -> tuple[ir.Node, ir.Node] | None:
    """Return (A, w) if a symmetric product of two matrices is A' diag(w) A, else None."""
    for (samples, sample_labels), (scaled, scaled_labels) in itertools.permutations(einsum.factors):
        contracts_rows = {sample_labels[:1], scaled_labels[:1]} == {tuple(einsum.contracted)}
        if not contracts_rows or not isinstance(scaled, ir.Einsum) or scaled.contracted:
            continue
        weights = list(scaled.factors)
        if (samples, (0, 1)) not in weights:
            continue
        weights.remove((samples, (0, 1)))
        if weights and all(labels == (0,) for _, labels in weights):
            coefficient = einsum.coefficient * scaled.coefficient
            plain = len(weights) == 1 and coefficient == 1
            return samples, weights[0][0] if plain else ir.einsum(weights, (0,), coefficient)
    return None


def axes_order(view: View, labels: ir.Labels) -> ir.Labels:
    """Order the labels of a node as the axes of its buffer."""
    order = [0] * len(labels)
    for label, axis in zip(labels, view.axes, strict=True):
        order[axis] = label
    return tuple(order)


@dataclass(frozen=True)
class Matrix:
    """A buffer read as matrices, with rows over the labels `first` and columns over `second`;
    transposed: whether the columns come first in memory."""

    operand: Operand
    transposed: bool
    first: ir.Labels
    second: ir.Labels


def as_matrix(
    view: View, labels: ir.Labels, batch: ir.Labels, first: ir.Labels, sizes: Shape
) -> Matrix | None:
    """Read a view as matrices with rows over `first` and columns over the other labels, one for
    each index of `batch` (an `index_symbol`); None if the layout does not allow it."""
    if view.local or len(view.buffer.shape) != len(labels):
        return None
    order = axes_order(view, labels)
    leading, inner = order[: len(batch)], order[len(batch) :]
    if set(leading) != set(batch):
        return None
    count = len(first)
    transposed = set(inner[:count]) != set(first)
    if transposed and set(inner[len(inner) - count :]) != set(first):
        return None
    split_at = len(inner) - count if transposed else count
    parts = inner[:split_at], inner[split_at:]
    shape = tuple(product(tuple(sizes[label] for label in part)) for part in parts)
    operand = Operand(view.buffer, shape, tuple(map(index_symbol, leading)))
    groups = parts[::-1] if transposed else parts
    return Matrix(operand, transposed, *groups)
