"""What works entry by entry; broadcasting (`Spread`) is taken out of it."""

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
    """`body`, whose axes are the axes `along` of the result, constant along the others; a scalar
    is so along all of them."""
    along = along if body.rank else ()
    if len(along) == len(shape):
        return body
    if isinstance(body, Spread):
        return spread(body.body, [along[axis] for axis in body.along], shape)
    return Spread(body, tuple(along), shape)


def entrywise(build: Entrywise, children: Sequence[Tree]) -> Tree:
    """`build` of children of one rank and scalars, and that rank, with broadcasting taken out."""
    rank = max((child.rank for child in children), default=0)
    spreads = [child for child in children if isinstance(child, Spread)]
    if not spreads:
        return build(children, rank)
    every = range(rank)
    axes = {
        axis
        for child in children
        if child.rank
        for axis in (child.along if isinstance(child, Spread) else every)
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
    """A SymPy function, entry by entry."""

    def build(parts: Sequence[Tree], axes: int) -> Tree:
        if len(parts) == 1 and isinstance(parts[0], Transpose):
            return Transpose(build([parts[0].body], axes))
        return Function(axes, head.__name__, tuple(parts), head)

    return entrywise(build, arguments)


def positive(tree: Tree) -> Tree:
    """1 where the tree is positive, 1/2 where it is 0, else 0."""
    return entrywise(lambda parts, axes: Positive(axes, *parts), [tree])


def relation(symbol: str, left: Tree, right: Tree) -> Tree:
    """A comparison, entry by entry."""
    return entrywise(lambda parts, axes: Relation(axes, symbol, *parts), (left, right))


def logic(word: str, conditions: Sequence[Tree]) -> Tree:
    """Conditions joined by "and" or "or", or one negated by "not"."""
    return entrywise(lambda parts, axes: Logic(axes, word, tuple(parts)), conditions)


def choice(condition: Tree, yes: Tree, no: Tree) -> Tree:
    """`yes` where the condition holds, else `no`."""
    return entrywise(lambda parts, axes: Choice(axes, *parts), (condition, yes, no))
