"""Properties of nodes along the axis of samples: separability, layouts, operation counts."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.scalar_values import cost
from derivatrix.compiler.plan.index_arithmetic import loop_indices
from derivatrix.compiler.plan.matrix_products import product_groups, suits_samples_last
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.variants import best_variant

OPS_PER_VECTOR_OP_ENTRY = 20
"""Cost of an entry of an operation on vectors, in scalar operations."""
OPS_PER_MATRIX_OP_MULTIPLY = 10
"""Cost of a multiplication within an operation on matrices, in scalar operations."""
OPS_PER_GEMM_MULTIPLY = sympy.Rational(1, 10)
"""Cost of a multiplication within a product of matrices, which BLAS vectorises."""


def is_separable(
    arguments: Sequence[ir.Leaf], nodes: Sequence[ir.Node], samples: sympy.Symbol
) -> bool:
    """Return whether the arguments can be sliced along their first axis, and each node is computed
    sample by sample or is a sum over the samples."""
    leaves = all(_is_sliceable(leaf, samples) for leaf in arguments)
    return leaves and all(_is_separable_node(node, samples) for node in nodes)


def _is_sliceable(leaf: ir.Leaf, samples: sympy.Symbol) -> bool:
    """Return whether only the first axis of an argument, if any, depends on the samples."""
    inner_shape = leaf.shape[1:] if leaf.shape[:1] == (samples,) else leaf.shape
    return not any(samples in size.free_symbols for size in inner_shape)


def _is_separable_node(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether each entry of a node, or each summand of one, depends on a single sample."""
    sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
    if any(samples in size.free_symbols and size != samples for size in sizes):
        return False
    if sizes.count(samples) > 1:
        return False
    match node:
        case ir.Apply():
            cores = [argument.shape[len(labels) :] for argument, labels in node.arguments]
            inside = [*node.shape[len(node.stack) :], *(size for core in cores for size in core)]
            numbers = [value for value in node.parameters if isinstance(value, sympy.Basic)]
            return all(samples not in value.free_symbols for value in (*inside, *numbers))
        case ir.Structural():
            return samples not in node.shape
    return True


def is_sum_over(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether the entries of `node` are sums over the samples."""
    return isinstance(node, ir.Einsum) and samples in node.sizes[node.ndim :]


def uses_sample_count(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether `node` computes with the number of samples, as means do."""
    match node:
        case ir.Einsum():
            return samples in node.coefficient.free_symbols
        case ir.Map():
            return samples in node.expression.free_symbols
    return False


def supports_batch_last(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Return whether `node` can be computed in the batch-last layout: BLAS takes operands of that
    layout, and an operation has a kernel for it."""
    match node:
        case ir.Einsum():
            groups = product_groups(node)
            return groups is None or suits_samples_last(groups, node.sizes, samples)
        case ir.Apply():
            is_stack = node.stack == (samples,) and node.arguments[0][1] == (0,)
            return samples not in node.stack or (is_stack and node.operation.columns is not None)
    return True


def operation_count(node: ir.Node) -> sympy.Expr:
    """Estimate the scalar operations of a node; for an operation on matrices, those of squaring its
    first argument, n³ for n rows, each counted as `OPS_PER_MATRIX_OP_MULTIPLY`."""
    match node:
        case ir.Einsum():
            points = product(tuple(node.sizes[label] for label in loop_indices(node).loops))
            return points if product_groups(node) is None else points * OPS_PER_GEMM_MULTIPLY
        case ir.Map():
            return product(node.shape) * cost(node.expression)
        case ir.Sum():
            return product(node.shape) * len(node.terms)
        case ir.Apply(operation=operation) if (loop := operation.loop) is not None:
            step = ir.topological(best_variant(loop.following).nodes)
            step_ops = sympy.Add(*map(operation_count, step))
            nodes_of_loop = len(loop.carries)
            return product((*node.stack, loop.length)) * step_ops / nodes_of_loop
        case ir.Apply(operation=operation) if (segments := operation.segments) is not None:
            parts = map(operation_count, ir.topological(segments.results))
            series, labels = node.arguments[segments.operands.index(segments.series[0])]
            ops = sympy.Add(*parts).xreplace({segments.length: series.shape[len(labels)]})
            return product(node.stack) * ops / len(segments.results)
        case ir.Apply():
            matrix, labels = node.arguments[0]
            core = matrix.shape[len(labels) :]
            if len(core) == 2:
                return product((*node.stack, *core, core[-1])) * OPS_PER_MATRIX_OP_MULTIPLY
            return product(node.shape) * OPS_PER_VECTOR_OP_ENTRY
    return sympy.S.Zero


def rounded_up(polynomial: sympy.Expr) -> sympy.Expr:
    """Round the coefficients of a polynomial up to whole numbers."""
    terms = polynomial.as_coefficients_dict().items()
    return sympy.Add(*(sympy.ceiling(weight) * powers for powers, weight in terms))
