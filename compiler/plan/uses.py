"""How nodes are used: which are computed once into memory and which where they are read, in which
order products read them, where an inverse is needed and where it is a solve."""

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

CHEAP = 3
"""The most operations of an entry that is computed again by each reader."""
COSTLY = 8
"""The least operations of an entry that is stored for loops over more axes than it has."""


@lru_cache(maxsize=65536)
def is_elementwise(node: ir.Node) -> bool:
    """Whether each entry is arithmetic of a fixed number of entries of other nodes."""
    match node:
        case ir.Map():
            return not is_summed_length(node)
        case ir.Sum():
            return not node.terms or any(is_elementwise(term) for term in node.terms)
        case ir.Einsum():
            binding = entry_indices(node)
            return not (binding.loops or binding.scattered or binding.divided)
    return isinstance(node, ir.Leaf | ir.Constant | ir.Structural)


def is_summed_length(node: ir.Node) -> bool:
    """Return whether a node is the length of what loops sum up, which other loops may do again."""
    return isinstance(node, ir.Map) and node.expression == LENGTH and _is_summed(node.arguments[0])


def _is_summed(node: ir.Node) -> bool:
    if isinstance(node, ir.Sum):
        return any(map(_is_summed, node.terms))
    return isinstance(node, ir.Einsum) and not is_elementwise(node)


def stored(roots: Sequence[ir.Node]) -> set[ir.Node]:
    """The nodes that need memory: contractions, results of operations, and elementwise nodes
    that are costly and read in several loops, or in loops over more axes than they have."""
    found = set(roots)
    readers: dict[ir.Node, set[ir.Node]] = {root: {root} for root in roots}
    wide: set[ir.Node] = set()
    for node in reversed(ir.topological(roots)):
        if isinstance(node, ir.Leaf | ir.Constant | ir.Structural):
            continue
        repeated = len(readers.get(node, ())) > 1 and _work(node) > CHEAP
        spread = node in wide and _work(node) >= COSTLY
        if not is_elementwise(node) or repeated or spread:
            found.add(node)
        kept = {node} if node in found else readers[node]
        for child in node.children:
            readers.setdefault(child, set()).update(kept)
            if (child.ndim and _volume(node) > _volume(child)) or (
                node in wide and node not in found
            ):
                wide.add(child)
    return found - _cheap_to_repeat(found - {*roots}, found)


def _cheap_to_repeat(nodes: Iterable[ir.Node], found: set[ir.Node]) -> set[ir.Node]:
    """The elementwise nodes that are one operation on stored ones, so read in about its time, or a
    few on smaller ones, which are nearer than their results would be."""

    @cache
    def work(node: ir.Node) -> int:
        below = (work(child) for child in node.children if child not in found)
        return _own_work(node) + sum(below)

    @cache
    def volume(node: ir.Node) -> float:
        """Return the loop points of the largest stored node below `node`."""
        parts = (_volume(c) if c in found else volume(c) for c in node.children)
        return max(parts, default=_volume(node))

    return {
        node
        for node in nodes
        if is_elementwise(node)
        and work(node) <= (CHEAP if node.children and volume(node) < _volume(node) else 1)
    }


@lru_cache(maxsize=65536)
def _volume(node: ir.Node) -> float:
    """The points of the loops that compute a node."""
    if not isinstance(node, ir.Einsum):
        return math.prod(nominal(size) for size in node.shape)
    return math.prod(nominal(node.sizes[label]) for label in loop_indices(node).loops)


@lru_cache(maxsize=65536)
def _work(node: ir.Node) -> int:
    """Operations an entry, all that is elementwise below included."""
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
            return len(node.factors) - (node.coefficient == 1)
    return 0


def needed_inverses(nodes: Sequence[ir.Node], roots: Sequence[ir.Node]) -> set[ir.Node]:
    """The inverses that are needed as such, and not for solving only."""
    needed = {root for root in roots if is_inverse(root)}
    for node in nodes:
        solve = solvers.match_solve(node)
        solving = {solve.inverse} if solve is not None else set()
        needed.update(
            child for child in node.children if is_inverse(child) and child not in solving
        )
    return needed


def reused_inverses(
    nodes: Sequence[ir.Node], facts: Callable[[ir.Node], frozenset[str]]
) -> set[ir.Node]:
    """Inverses of triangular matrices that are multiplied by two square matrices or more: BLAS
    multiplies several times as fast as it substitutes, and products leave out the zeros."""
    counts: Counter[ir.Node] = Counter()
    for node in nodes:
        solve = solvers.match_solve(node)
        if solve is not None and facts(solve.inverse) & {"lower", "upper"}:
            labels = set(solve.right[1]).difference(solve.stack, [solve.contracted])
            sizes = [node.shape[label] for label in labels]
            counts[solve.inverse] += solve.inverse.shape[-1] in sizes
    return {inverse for inverse, count in counts.items() if count > 1}


def read_below_diagonal(nodes: Sequence[ir.Node], uses: Counter[ir.Node]) -> set[ir.Node]:
    """What is read once, and there below the diagonal only."""
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
    kept: set[ir.Node],
    orders: dict[ir.Node, list[int]],
) -> dict[ir.Node, list[int]]:
    """The orders of axes in memory, where they are not the nodes' own: elementwise nodes that are
    made of matrices which lie transposed in memory do so, too, and so do products of matrices that
    only they read. `kept` nodes have places of their own. What reads such a node has to take it in
    any order, as products of matrices do."""
    readers: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        for child in references(node):
            readers.setdefault(child, []).append(node)
    found: dict[ir.Node, list[int]] = {}
    for node in nodes:
        free = node in kept and node.ndim == 2 and is_elementwise(node) and node not in roots
        if not free or not all(map(_multiplies, readers[node])) or isinstance(node, ir.Leaf):
            continue
        votes, others = 0, []
        for operand, axes in _operands(node, (0, 1), kept):
            if _multiplies(operand) and len(readers[operand]) == 1:
                others.append((operand, axes))
            elif set(axes) == {0, 1}:
                place = found.get(operand) or orders.get(operand) or [0, 1]
                votes += 1 if axes[place[0]] == 1 else -1
        if votes > 0:
            found[node] = [1, 0]
            found.update((operand, [axes.index(1), axes.index(0)]) for operand, axes in others)
    return found


def _multiplies(node: ir.Node) -> bool:
    """Return whether a node is a product of matrices, and a matrix itself."""
    return node.ndim == 2 and product_groups(node) is not None


def _operands(
    node: ir.Node, axes: tuple[int, ...], kept: set[ir.Node]
) -> Iterator[tuple[ir.Node, tuple[int, ...]]]:
    """What an elementwise node is made of that is in memory, each with the axes of the node that
    its own follow."""
    if isinstance(node, ir.Einsum):
        children = [
            (factor, tuple(axes[label] for label in own))
            for factor, own in node.factors
            if all(label < node.ndim for label in own)
        ]
    else:
        children = [(child, axes) for child in references(node)]
    for child, own in children:
        if child in kept or isinstance(child, ir.Leaf):
            yield child, own
        else:
            yield from _operands(child, own, kept)


def read_orders(nodes: Sequence[ir.Node]) -> dict[ir.Node, list[int]]:
    """For factors of products, their axes in the order of the first product's own, so that it
    reads them along its last axis. What an operation makes has an order of its own, and matrix
    products read matrices of any order."""
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
