"""Constructors of entrywise trees, which move broadcasting (`Spread`) outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from derivatrix.compiler.formulas.tree import (
    Choice,
    Function,
    Logic,
    Positive,
    Relation,
    Spread,
    Transpose,
    Tree,
)
from derivatrix.compiler.ir.dimensions import Shape

Entrywise = Callable[[Sequence[Tree], int], Tree]


def spread(body: Tree, along: Sequence[int], shape: Shape) -> Tree:
    """Broadcast `body`, whose axes are the axes `along` of the result, to `shape`; a scalar is
    broadcast along all axes."""
    along = along if body.rank else ()
    if len(along) == len(shape):
        return body
    if isinstance(body, Spread):
        return spread(body.body, [along[axis] for axis in body.along], shape)
    return Spread(body, tuple(along), shape)


def entrywise(build: Entrywise, children: Sequence[Tree]) -> Tree:
    """Call `build` with children, of one rank or scalars, and this rank, with common broadcasting
    moved outside."""
    rank = max((child.rank for child in children), default=0)
    spreads = [child for child in children if isinstance(child, Spread)]
    if not spreads:
        return build(children, rank)
    axes = {
        axis
        for child in children
        if child.rank
        for axis in (child.along if isinstance(child, Spread) else range(rank))
    }
    along = sorted(axes)
    shape = spreads[0].shape
    inner = tuple(shape[axis] for axis in along)
    children = [_restrict(child, along, inner) for child in children]
    return spread(build(children, len(along)), along, shape)


def _restrict(tree: Tree, along: Sequence[int], shape: Shape) -> Tree:
    if not isinstance(tree, Spread):
        return tree
    if not tree.along:
        return tree.body
    return spread(tree.body, [along.index(axis) for axis in tree.along], shape)


def function(head: type, arguments: Sequence[Tree]) -> Tree:
    """Apply a SymPy function entry by entry."""

    def build(parts: Sequence[Tree], axes: int) -> Tree:
        if len(parts) == 1 and isinstance(parts[0], Transpose):
            return Transpose(build([parts[0].body], axes))
        return Function(axes, head.__name__, tuple(parts), head)

    return entrywise(build, arguments)


def positive(tree: Tree) -> Tree:
    """Build 1 where the tree is positive, 1/2 where it is 0, else 0."""
    return entrywise(lambda parts, axes: Positive(axes, *parts), [tree])


def relation(symbol: str, left: Tree, right: Tree) -> Tree:
    """Compare entry by entry."""
    return entrywise(lambda parts, axes: Relation(axes, symbol, *parts), (left, right))


def logic(word: str, conditions: Sequence[Tree]) -> Tree:
    """Join conditions by "and" or "or", or negate one by "not"."""
    return entrywise(lambda parts, axes: Logic(axes, word, tuple(parts)), conditions)


def choice(condition: Tree, yes: Tree, no: Tree) -> Tree:
    """Take `yes` where the condition holds, else `no`."""
    return entrywise(lambda parts, axes: Choice(axes, *parts), (condition, yes, no))
