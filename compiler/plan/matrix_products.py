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
    """Labels of a contraction of two factors, by what they do: rows are in the left factor and
    the output, columns in the right one and the output, inner ones are summed over, batch ones
    are everywhere."""

    batch: ir.Labels
    rows: ir.Labels
    columns: ir.Labels
    inner: ir.Labels


def product_groups(einsum: ir.Node) -> Groups | None:
    """The groups, if `einsum` is a matrix product worth a BLAS call."""
    if not isinstance(einsum, ir.Einsum) or len(einsum.factors) != 2:
        return None
    (left_node, left), (right_node, right) = einsum.factors
    output = range(einsum.ndim)
    dense = not isinstance(left_node, ir.Structural) and not isinstance(right_node, ir.Structural)
    plain = len(set(left)) == len(left) and len(set(right)) == len(right)
    if not dense or not plain or set(left) | set(right) != set(range(len(einsum.sizes))):
        return None
    found = Groups(
        batch=tuple(label for label in output if label in left and label in right),
        rows=tuple(label for label in output if label in left and label not in right),
        columns=tuple(label for label in output if label in right and label not in left),
        inner=tuple(label for label in einsum.contracted if label in left and label in right),
    )
    if len(found.inner) != len(einsum.contracted):
        return None
    kinds = (found.rows, found.columns, found.inner)
    sizes = [product(tuple(einsum.sizes[label] for label in kind)) for kind in kinds]
    if not all(kinds) or all(map(is_small, sizes)) or any(size == 1 for size in sizes):
        return None
    return found


def suits_samples_last(groups: Groups, sizes: Shape, samples: sympy.Symbol | None) -> bool:
    """Whether BLAS multiplies where an axis of the size `samples` comes last in memory: matrices
    that do not have it, or a stack of matrices each of which has it."""
    stack = [sizes[label] for label in groups.batch]
    return samples not in sizes or (bool(stack) and samples not in stack)


def weighted(einsum: ir.Einsum) -> tuple[ir.Node, ir.Node] | None:
    """A and w, if a symmetric product of two matrices, einsum[i, k] = sum[j] of products of entries
    of the rows j, is A' diag(w) A."""
    for (samples, own), (scaled, others) in itertools.permutations(einsum.factors):
        along = {own[:1], others[:1]} == {tuple(einsum.contracted)}
        if not along or not isinstance(scaled, ir.Einsum) or scaled.contracted:
            continue
        rest = list(scaled.factors)
        if (samples, (0, 1)) not in rest:
            continue
        rest.remove((samples, (0, 1)))
        if rest and all(labels == (0,) for _, labels in rest):
            coefficient = einsum.coefficient * scaled.coefficient
            plain = len(rest) == 1 and coefficient == 1
            return samples, rest[0][0] if plain else ir.einsum(rest, (0,), coefficient)
    return None


def axes_order(view: View, labels: ir.Labels) -> ir.Labels:
    """The labels of a node in the order of its buffer's axes."""
    order = [0] * len(labels)
    for label, axis in zip(labels, view.axes, strict=True):
        order[axis] = label
    return tuple(order)


@dataclass(frozen=True)
class Matrix:
    """A buffer read as matrices: `transposed` where the second group comes first in memory."""

    operand: Operand
    transposed: bool
    first: ir.Labels
    second: ir.Labels


def as_matrix(
    view: View, labels: ir.Labels, batch: ir.Labels, first: ir.Labels, sizes: Shape
) -> Matrix | None:
    """The view as matrices with rows over `first` and columns over the rest, one for each index
    of `batch` (an `index_symbol`); None if the layout does not allow it."""
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
    split = len(inner) - count if transposed else count
    parts = inner[:split], inner[split:]
    shape = tuple(product(tuple(sizes[label] for label in part)) for part in parts)
    operand = Operand(view.buffer, shape, tuple(map(index_symbol, leading)))
    groups = parts[::-1] if transposed else parts
    return Matrix(operand, transposed, *groups)
