"""Kernels whose results are sums over samples, as gradients by parameters are: threads share the
samples, and each sums over blocks of samples whose temporary arrays stay in the cache.

The kernel of a part computes the sums over some samples, and the sums of all parts are added up.
Only the first part adds the terms that are no sums over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape, symbol
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.plan.matrix_products import product_groups, weighted
from derivatrix.compiler.plan.memory import entries
from derivatrix.compiler.plan.nominal_sizes import at_large, product
from derivatrix.compiler.plan.recurrences import is_any_loop
from derivatrix.compiler.plan.sample_axis import (
    is_separable,
    is_sum_over,
    operation_count,
    rounded_up,
    supports_batch_last,
)
from derivatrix.compiler.plan.steps import Partition, Plan

MIN_OPS_PER_READ = 20
"""Operations per entry read from memory above which a batch-last copy of the entries pays."""
MEMORY_OP_WEIGHT = 2
"""Weight of an operation whose operands come from memory."""
STEP_OVERHEAD_OPS = 1500
"""Fixed cost of one plan step, in scalar operations."""
MIN_SAMPLES_BATCH_LAST = 64
"""Fewest samples for which the batch-last layout is used."""
MIN_SAMPLES_OF_LOOP = 16
"""Fewest samples of a block that share the products of each step of a loop over time: a recurrent
network's VJP took 1.54 ms for a sample in blocks of 4, 1.21 to 1.23 in blocks of 8 to 64."""
Output = tuple[str, ir.Node]
Terms = tuple[list[ir.Node], list[ir.Node]]
"""The terms of an output that parts of the samples contribute, and its other terms."""


@dataclass(frozen=True)
class Part:
    """Settings of a kernel that sums over a part of the samples.

    length: a parameter of the kernel, the number of all samples.
    first_terms: terms that are no sums over samples, by output; the first part adds them.
    """

    length: sympy.Symbol
    first_terms: tuple[Output, ...]


def partition_sums(
    name: str, outputs: Sequence[Output], arguments: Sequence[ir.Leaf], plan: Callable[..., Plan]
) -> tuple[Partition, ...]:
    """Plan the kernel `name` as sums over parts of the samples, the first axis of some arguments;
    nothing if its outputs are no such sums. `outputs` are pairwise contractions, with their names;
    `plan` makes the kernel of a part."""
    sizes = dict.fromkeys(argument.shape[0] for argument in arguments if argument.shape)
    planned = [_sums_over(size, name, outputs, arguments, plan) for size in sizes if size.is_Symbol]
    candidates = sorted(filter(None, planned), key=lambda candidate: -at_large(candidate.ops))
    return tuple(candidates[:1])


def _sums_over(
    samples: sympy.Symbol,
    name: str,
    outputs: Sequence[Output],
    arguments: Sequence[ir.Leaf],
    plan: Callable[..., Plan],
) -> Partition | None:
    """Plan the sums over axes of size `samples`; None if there are none, or if entries of single
    samples or other terms depend on them."""
    roots = [root for _, root in outputs]
    nodes = ir.topological(roots)
    has_inner_sample_axis = any(samples in root.shape[1:] for root in roots)
    if has_inner_sample_axis or not is_separable(arguments, nodes, samples):
        return None
    terms = _split_terms(outputs, nodes, samples)
    if terms is None:
        return None
    part_roots = {name: _sum(sampled or constant) for name, (sampled, constant) in terms.items()}
    first_terms = {name: _sum(constant) for name, (_, constant) in terms.items() if constant}
    sampled_roots = [part_roots[name] for name, (sampled, _) in terms.items() if sampled]
    part_nodes = ir.topological(sampled_roots)
    node_ops = [operation_count(node) for node in part_nodes]
    large_ops = dict(zip(part_nodes, map(at_large, node_ops), strict=True))
    gemms = [node for node in part_nodes if product_groups(node)]
    grams = [node for node in gemms if isinstance(node, ir.Einsum) and weighted(node)]
    is_blas_bound, is_gram_bound = (  # whether these products are most of the work
        bool(2 * sum(large_ops[node] for node in products) > sum(large_ops.values()))
        for products in (gemms, grams)
    )
    has_temporaries = any(
        samples in node.shape and not isinstance(node, ir.Leaf) for node in part_nodes
    )
    if all(samples in root.shape for root in sampled_roots):  # `sample_parts` is for such kernels
        return None
    if is_blas_bound and not has_temporaries:  # nothing could stay in the cache
        return None
    reductions = [node for node in part_nodes if is_sum_over(node, samples)]
    ops = sympy.Add(*node_ops, *(product(node.shape) for node in reductions))
    ops = MEMORY_OP_WEIGHT * sympy.expand(ops)
    ops_per_sample, fixed_ops = (ops.coeff(samples, power) for power in (1, 0))
    is_batch_last = _gains_from_batch_last(part_nodes, samples, ops_per_sample / MEMORY_OP_WEIGHT)

    length = _unused_symbol(f"{samples}_part", [*arguments, *nodes])
    resized = partial(_resized, old=samples, length=length)
    part = plan(
        f"{name}_part" if is_batch_last else name,
        [_resized_leaf(leaf, samples, length) for leaf in arguments],
        list(zip(part_roots, resized(list(part_roots.values())), strict=True)),
        samples=length if is_batch_last else None,
        part=Part(
            samples, tuple(zip(first_terms, resized(list(first_terms.values())), strict=True))
        ),
    )
    min_samples = MIN_SAMPLES_OF_LOOP if any(map(is_any_loop, nodes)) else 1
    if is_batch_last:
        min_samples = MIN_SAMPLES_BATCH_LAST
    step_count = len((part.variants or (part,))[0].steps)
    shapes = [node.shape for node in (*arguments, *part_roots.values())]
    return Partition(
        "samples",
        part,
        sliced=tuple(samples in shape for shape in shapes),
        summed=(
            *(False for _ in arguments),
            *(bool(terms[name][0]) and samples not in part_roots[name].shape for name in terms),
        ),
        ops=rounded_up(ops_per_sample) * samples,
        ops_per_part=rounded_up(fixed_ops) + is_blas_bound * STEP_OVERHEAD_OPS * step_count,
        entries_per_sample=entries(part).coeff(length, 1),
        min_samples=min_samples,
        is_whole_kernel=not is_batch_last,
        is_batch_last=is_batch_last,
        is_blas_bound=is_blas_bound and not is_gram_bound and not is_batch_last,
        is_gram_bound=is_gram_bound and not is_batch_last,
    )


def _split_terms(
    outputs: Sequence[Output], nodes: Sequence[ir.Node], samples: sympy.Symbol
) -> dict[str, Terms] | None:
    """Split each output into terms that parts of the samples contribute, as sums or entries, and
    terms that do not depend on sums over samples; None if a term is neither."""
    dependent: set[ir.Node] = set()
    linear: set[ir.Node] = set()
    for node in nodes:
        summed = [child for child in references(node) if child in dependent]
        if summed and samples in (node.sizes if isinstance(node, ir.Einsum) else node.shape):
            return None
        if is_sum_over(node, samples) or (summed and _is_linear(node, summed, linear)):
            linear.add(node)
        if summed or node in linear:
            dependent.add(node)

    def flat_terms(node: ir.Node) -> list[ir.Node]:
        if isinstance(node, ir.Sum) and node.terms and node not in linear:
            return [term for child in node.terms for term in flat_terms(child)]
        return [node]

    terms_of = {}
    for name, root in outputs:
        terms = [root] if samples in root.shape else flat_terms(root)
        if any(term in dependent and term not in linear for term in terms):
            return None
        sampled = [term for term in terms if term in linear or samples in root.shape]
        terms_of[name] = sampled, [term for term in terms if term not in sampled]
    return terms_of


def _is_linear(node: ir.Node, summed: Sequence[ir.Node], linear: set[ir.Node]) -> bool:
    """Return whether the value of `node` for all samples is the sum of its values for parts of
    them. summed: its children that depend on sums over samples."""
    if isinstance(node, ir.Sum):
        return linear.issuperset(node.terms)
    return isinstance(node, ir.Einsum) and len(summed) == 1 and linear.issuperset(summed)


def _sum(terms: Sequence[ir.Node]) -> ir.Node:
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), terms[0].shape)


def _gains_from_batch_last(
    nodes: Sequence[ir.Node], samples: sympy.Symbol, ops_per_sample: sympy.Expr
) -> bool:
    """Return whether the batch-last layout pays: each entry is used often enough for a copy, and
    loops along the samples are long, whereas other axes may be too short for vector code."""
    leaves = [node for node in nodes if isinstance(node, ir.Leaf) and samples in node.shape]
    loads = sum(at_large(product(leaf.shape[1:])) for leaf in leaves)
    is_supported = all(supports_batch_last(node, samples) for node in nodes)
    return bool(is_supported and at_large(ops_per_sample) > MIN_OPS_PER_READ * loads)


def _unused_symbol(name: str, nodes: Sequence[ir.Node]) -> sympy.Symbol:
    """Return a size of this name, with underscores appended until no shape has it."""
    symbols = set().union(*(size.free_symbols for node in nodes for size in node.shape))
    names = {size.name for size in symbols}
    while name in names:
        name += "_"
    return symbol(name)


def _resized_shape(shape: Shape, old: sympy.Symbol, length: sympy.Symbol) -> Shape:
    return tuple(length if size == old else size for size in shape)


def _resized_leaf(leaf: ir.Leaf, old: sympy.Symbol, length: sympy.Symbol) -> ir.Leaf:
    shape = _resized_shape(leaf.shape, old, length)
    return ir.Leaf(leaf.name, shape, leaf.structure, leaf.role)


def _resized(roots: Sequence[ir.Node], old: sympy.Symbol, length: sympy.Symbol) -> list[ir.Node]:
    """Give axes of size `old` another length; coefficients and expressions keep the size."""
    new_shape = partial(_resized_shape, old=old, length=length)
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        new[node] = (
            _resized_leaf(node, old, length)
            if isinstance(node, ir.Leaf)
            else rebuilt(node, new, new_shape)
        )
    return [new[root] for root in roots]
