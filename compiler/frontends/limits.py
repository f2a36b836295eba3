"""How deep and how large expressions may be. The compiler walks into them, by recursion in some
places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from derivatrix.compiler.ir.nodes import Einsum, Node, Sum, topological
from derivatrix.runtime.errors import UnsupportedError

DEEPEST = 120
"""How many operations may stand inside each other. Sums of sums and products of products count
once, since they are made flat."""
MOST = 3000
"""How many operations an expression may have; derivatives of as many take minutes."""


def require_modest(name: str, expression: Node) -> None:
    """Raise UnsupportedError, which says the function's name, for an expression that is too deep,
    or too large."""
    depths: dict[Node, int] = {}
    order = topological([expression])
    for node in order:
        below = (depths[child] + _step(node, child) for child in node.children)
        depths[node] = max(below, default=0)
    depth = depths[expression]
    if depth > DEEPEST:
        raise UnsupportedError(
            f"{name}: {depth} operations stand inside each other, at most {DEEPEST} may; declare "
            "the inner ones as a function of their own, and multiply by its derivatives"
        )
    count = sum(any(_step(node, child) for child in node.children) for node in order)
    if count > MOST:
        raise UnsupportedError(
            f"{name}: the expression has {count} operations, at most {MOST} are compiled; write "
            "what is repeated with arrays, as sums over an axis, or declare several functions"
        )


def _step(node: Node, child: Node) -> int:
    """How much deeper a node is than one that it is made of."""
    if isinstance(node, Einsum):
        return int(len(node.factors) > 1 and not isinstance(child, Einsum))
    return int(not (isinstance(node, Sum) and isinstance(child, (Sum, Einsum))))


@contextmanager
def stated_depth(name: str) -> Iterator[None]:
    """Python's error for recursion that is too deep, as one that says of which function."""
    try:
        yield
    except RecursionError as error:
        raise UnsupportedError(
            f"{name}: its operations stand too deep inside each other to be compiled; declare the "
            "inner ones as a function of their own"
        ) from error
