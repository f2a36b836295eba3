"""Uses of nodes: which nodes are stored, and which are computed again by each reader; the order in
which products read axes; which inverses are computed, and which are replaced by solves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import references
from derivatrix.compiler.ir.scalar_values import cost
from derivatrix.compiler.plan import solvers
from derivatrix.compiler.plan.contraction_order import is_inverse
from derivatrix.compiler.plan.index_arithmetic import entry_indices, loop_indices
from derivatrix.compiler.plan.matrix_products import product_groups
from derivatrix.compiler.plan.nominal_sizes import nominal
from derivatrix.compiler.simplify.root_lengths import LENGTH

MAX_REPEATED_OPS = 3
"""Most operations for an entry of a node that each reader computes again. A stored array has one
order of axes, which suits few of its readers: storing single operations made the gradient of a
Gaussian mixture 2.5 to 5 times as long."""
MIN_STORED_OPS = 8
"""Fewest operations for an entry of a node that is stored because loops over more axes read it."""


@lru_cache(maxsize=65536)
def is_elementwise(node: ir.Node) -> bool:
    """Return whether an entry is computed from a fixed number of entries of other nodes."""
    match node:
        case ir.Map():
            return not is_summed_length(node)
        case ir.Sum():
            return not node.terms or any(is_elementwise(term) for term in node.terms)
        case ir.Einsum():
            binding = entry_indices(node)
            return not (binding.loops or binding.is_scattered or binding.has_division)
    return isinstance(node, ir.Leaf | ir.Constant | ir.Structural)


def is_summed_length(node: ir.Node) -> bool:
    """Return whether a node is the root of a sum of squares over loops. Where the sum overflows or
    underflows, other loops compute the root again, from scaled entries."""
    return isinstance(node, ir.Map) and node.expression == LENGTH and _is_summed(node.arguments[0])


def _is_summed(node: ir.Node) -> bool:
    if isinstance(node, ir.Sum):
        return any(map(_is_summed, node.terms))
    return isinstance(node, ir.Einsum) and not is_elementwise(node)


def stored(roots: Sequence[ir.Node]) -> set[ir.Node]:
    """Collect the nodes that need memory: contractions, results of operations, and costly
    elementwise nodes that are read in several loops, or in loops over more axes than they have."""
    stored_nodes = set(roots)
    readers: dict[ir.Node, set[ir.Node]] = {root: {root} for root in roots}  # stored ones
    in_larger_loops: set[ir.Node] = set()
    for node in reversed(ir.topological(roots)):
        if isinstance(node, ir.Leaf | ir.Constant | ir.Structural):
            continue
        if (
            not is_elementwise(node)
            or (len(readers.get(node, ())) > 1 and _work(node) > MAX_REPEATED_OPS)
            or (node in in_larger_loops and _work(node) >= MIN_STORED_OPS)
        ):
            stored_nodes.add(node)
        readers_below = {node} if node in stored_nodes else readers[node]
        for child in node.children:
            readers.setdefault(child, set()).update(readers_below)
            if (child.ndim and _volume(node) > _volume(child)) or (
                node in in_larger_loops and node not in stored_nodes
            ):
                in_larger_loops.add(child)
    return stored_nodes - _cheap_to_repeat(stored_nodes - {*roots}, stored_nodes)


def _cheap_to_repeat(nodes: Iterable[ir.Node], stored_nodes: set[ir.Node]) -> set[ir.Node]:
    """Collect the elementwise nodes that are computed from stored nodes as fast as they are read:
    one operation, or a few on smaller nodes, which are nearer in the cache than the result."""

    @cache
    def work(node: ir.Node) -> int:
        below = (work(child) for child in node.children if child not in stored_nodes)
        return _own_work(node) + sum(below)

    @cache
    def volume(node: ir.Node) -> float:
        """Return the loop points of the largest stored node below `node`."""
        parts = (_volume(c) if c in stored_nodes else volume(c) for c in node.children)
        return max(parts, default=_volume(node))

    return {
        node
        for node in nodes
        if is_elementwise(node)
        and work(node) <= (MAX_REPEATED_OPS if volume(node) < _volume(node) else 1)
    }


@lru_cache(maxsize=65536)
def _volume(node: ir.Node) -> float:
    """Count the loop points of a node's computation."""
    if not isinstance(node, ir.Einsum):
        return math.prod(nominal(size) for size in node.shape)
    return math.prod(nominal(node.sizes[label]) for label in loop_indices(node).loops)


@lru_cache(maxsize=65536)
def _work(node: ir.Node) -> int:
    """Count the operations for an entry, including those of elementwise nodes below."""
    if not is_elementwise(node):
        return 0
    return _own_work(node) + sum(_work(child) for child in node.children)


def _own_work(node: ir.Node) -> int:
    match node:
        case ir.Map():
            return cost(node.expression)
        case ir.Sum():
            return len(node.terms) - 1
        case ir.Einsum():
            return len(node.factors) - (node.coefficient == 1)  # a coefficient is a factor, too
    return 0


def needed_inverses(nodes: Sequence[ir.Node], roots: Sequence[ir.Node]) -> set[ir.Node]:
    """Collect the inverses that some node reads other than in a solve."""
    inverses = {root for root in roots if is_inverse(root)}
    for node in nodes:
        solve = solvers.match_solve(node)
        solved_here = {solve.inverse} if solve is not None else set()
        inverses.update(
            child for child in node.children if is_inverse(child) and child not in solved_here
        )
    return inverses


def reused_inverses(
    nodes: Sequence[ir.Node], facts: Callable[[ir.Node], frozenset[str]]
) -> set[ir.Node]:
    """Collect inverses of triangular matrices that are multiplied by two or more square matrices:
    BLAS multiplies several times as fast as it substitutes, and products leave out the zeros."""
    counts: Counter[ir.Node] = Counter()
    for node in nodes:
        solve = solvers.match_solve(node)
        if solve is not None and facts(solve.inverse) & {"lower", "upper"}:
            labels = set(solve.right[1]).difference(solve.stack, [solve.contracted])
            sizes = [node.shape[label] for label in labels]
            counts[solve.inverse] += solve.inverse.shape[-1] in sizes
    return {inverse for inverse, count in counts.items() if count > 1}


def read_below_diagonal(nodes: Sequence[ir.Node], uses: Counter[ir.Node]) -> set[ir.Node]:
    """Collect the nodes with one reader, which reads only the lower triangle."""
    return {
        argument
        for node in nodes
        if isinstance(node, ir.Apply) and node.operation.reads == "lower"
        for argument, _ in node.arguments
        if uses[argument] == 1
    }


def orders_in_memory(
    nodes: Sequence[ir.Node],
    roots: Sequence[ir.Node],
    stored_nodes: set[ir.Node],
    orders: dict[ir.Node, list[int]],
) -> dict[ir.Node, list[int]]:
    """Find the matrices that are stored transposed: node -> order of axes in memory.

    An elementwise node of matrices that are mostly transposed in memory is stored transposed, if
    all of its readers are products of matrices, which take any order; and so are products of
    matrices that only this node reads. stored_nodes: nodes with a place in memory; orders: the
    orders in which nodes are read."""
    readers: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        for child in references(node):
            readers.setdefault(child, []).append(node)
    transposed: dict[ir.Node, list[int]] = {}
    for node in nodes:
        if node not in stored_nodes or node in roots or isinstance(node, ir.Leaf):
            continue
        if node.ndim != 2 or not is_elementwise(node) or not all(map(_multiplies, readers[node])):
            continue
        votes, products = 0, []
        for operand, axes in _operands(node, (0, 1), stored_nodes):
            if _multiplies(operand) and len(readers[operand]) == 1:
                products.append((operand, axes))
            elif set(axes) == {0, 1}:
                order = transposed.get(operand) or orders.get(operand) or [0, 1]
                votes += 1 if axes[order[0]] == 1 else -1
        if votes > 0:
            transposed[node] = [1, 0]
            for operand, axes in products:
                transposed[operand] = [axes.index(1), axes.index(0)]
    return transposed


def _multiplies(node: ir.Node) -> bool:
    """Return whether a node is a product of matrices, and a matrix itself."""
    return node.ndim == 2 and product_groups(node) is not None


def _operands(
    node: ir.Node, axes: tuple[int, ...], stored_nodes: set[ir.Node]
) -> Iterator[tuple[ir.Node, tuple[int, ...]]]:
    """Yield the stored nodes that an elementwise node is computed from, each with the axes of the
    node that its axes correspond to."""
    if isinstance(node, ir.Einsum):
        children = [
            (factor, tuple(axes[label] for label in labels))
            for factor, labels in node.factors
            if all(label < node.ndim for label in labels)
        ]
    else:
        children = [(child, axes) for child in references(node)]
    for child, child_axes in children:
        if child in stored_nodes or isinstance(child, ir.Leaf):
            yield child, child_axes
        else:
            yield from _operands(child, child_axes, stored_nodes)


def read_orders(nodes: Sequence[ir.Node]) -> dict[ir.Node, list[int]]:
    """Order the axes of factors as the axes of the first product that reads them, so that it reads
    along its last axis. Results of operations have a fixed order, and products of matrices read
    matrices in any order."""
    orders: dict[ir.Node, list[int]] = {}
    for node in nodes:
        if isinstance(node, ir.Einsum):
            product = product_groups(node) is not None
            for factor, labels in node.factors:
                if isinstance(factor, ir.Apply) or (product and factor.ndim == 2):
                    continue
                axes = sorted(range(factor.ndim), key=lambda axis: labels[axis])
                orders.setdefault(factor, axes)
    return orders
