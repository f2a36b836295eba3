"""Nodes and the axis of samples: which are computed sample by sample, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.scalar_values import cost
from derivatrix.compiler.plan.index_arithmetic import loop_indices
from derivatrix.compiler.plan.matrix_products import product_groups, suits_samples_last
from derivatrix.compiler.plan.nominal_sizes import product

OPERATION = 20
"""The operations that an entry of an operation on vectors takes, about."""
FACTOR = 10
"""Those that it takes for a multiplication within an operation on matrices."""
PRODUCT = sympy.Rational(1, 10)
"""Those of a multiplication within a product of matrices."""


def is_divisible(
    arguments: Sequence[ir.Leaf], nodes: Sequence[ir.Node], samples: sympy.Symbol
) -> bool:
    """Whether arguments can be cut along their first axis, and nodes are computed sample by sample
    or are sums over the samples."""
    leaves = all(_is_cut(leaf, samples) for leaf in arguments)
    return leaves and all(_sample_by_sample(node, samples) for node in nodes)


def _is_cut(leaf: ir.Leaf, samples: sympy.Symbol) -> bool:
    """Whether an argument can be cut along its first axis, or has nothing to do with samples."""
    others = leaf.shape[1:] if leaf.shape[:1] == (samples,) else leaf.shape
    return not any(samples in size.free_symbols for size in others)


def _sample_by_sample(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Whether entries, or the summands of entries, are made of entries of one sample each."""
    sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
    if any(samples in size.free_symbols and size != samples for size in sizes):
        return False
    if sizes.count(samples) > 1:
        return False
    match node:
        case ir.Apply():
            cores = [argument.shape[len(labels) :] for argument, labels in node.arguments]
            inside = [*node.shape[len(node.stack) :], *(size for core in cores for size in core)]
            numbers = [each for each in node.parameters if isinstance(each, sympy.Basic)]
            return all(samples not in each.free_symbols for each in (*inside, *numbers))
        case ir.Structural():
            return samples not in node.shape
    return True


def is_sum_over(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether its entries are sums over the samples."""
    return isinstance(node, ir.Einsum) and samples in node.sizes[node.ndim :]


def uses_their_number(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether the number of samples is a number in what it computes."""
    match node:
        case ir.Einsum():
            return samples in node.coefficient.free_symbols
        case ir.Map():
            return samples in node.expression.free_symbols
    return False


def allows_samples_last(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Whether it can be computed where the samples are the last axis in memory: not where BLAS
    multiplies what lies otherwise, nor where an operation has a kernel for other orders only."""
    match node:
        case ir.Einsum():
            groups = product_groups(node)
            return groups is None or suits_samples_last(groups, node.sizes, samples)
        case ir.Apply():
            only = node.stack == (samples,) and node.arguments[0][1] == (0,)
            return samples not in node.stack or (only and node.operation.columns is not None)
    return True


def work(node: ir.Node) -> sympy.Expr:
    """About how many operations it takes."""
    match node:
        case ir.Einsum():
            points = product(tuple(node.sizes[label] for label in loop_indices(node).loops))
            return points if product_groups(node) is None else points * PRODUCT
        case ir.Map():
            return product(node.shape) * cost(node.expression)
        case ir.Sum():
            return product(node.shape) * len(node.terms)
        case ir.Apply():
            return _of_operation(node)
    return sympy.S.Zero


def _of_operation(node: ir.Apply) -> sympy.Expr:
    """The products of rows and columns within an operation on matrices, or the entries of one on
    vectors."""
    matrix, labels = node.arguments[0]
    core = matrix.shape[len(labels) :]
    if len(core) == 2:
        return product((*node.stack, *core, core[-1])) * FACTOR
    return product(node.shape) * OPERATION


def rounded(polynomial: sympy.Expr) -> sympy.Expr:
    """The polynomial with its coefficients rounded up to whole numbers."""
    terms = polynomial.as_coefficients_dict().items()
    return sympy.Add(*(sympy.ceiling(weight) * powers for powers, weight in terms))
