"""Limits on the depth and size of expressions: parts of the compiler traverse them by recursion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from derivatrix.compiler.ir.nodes import Einsum, Node, Sum, topological
from derivatrix.runtime.errors import UnsupportedError

MAX_DEPTH = 120
"""Deepest nesting of operations. Nested sums, and nested products, are flattened and count once."""
MAX_OPERATIONS = 3000
"""Most operations of an expression; derivatives of this many take minutes."""


def require_modest(name: str, expressions: Sequence[Node]) -> None:
    """Raise UnsupportedError for expressions of the function `name` that are too deep or too
    large."""
    depths: dict[Node, int] = {}
    order = topological(expressions)
    for node in order:
        below = (depths[child] + _depth_step(node, child) for child in node.children)
        depths[node] = max(below, default=0)
    depth = max(depths[expression] for expression in expressions)
    if depth > MAX_DEPTH:
        raise UnsupportedError(
            f"{name}: {depth} operations stand inside each other, at most {MAX_DEPTH} may; declare "
            "the inner ones as a function of their own, and multiply by its derivatives"
        )
    count = sum(any(_depth_step(node, child) for child in node.children) for node in order)
    if count > MAX_OPERATIONS:
        raise UnsupportedError(
            f"{name}: the function has {count} operations, at most {MAX_OPERATIONS} are "
            "compiled; write repeated parts with arrays, as sums over an axis, or declare several "
            "functions"
        )


def _depth_step(node: Node, child: Node) -> int:
    """Return the difference in depth between a node and its child: 0 where the two are
    flattened."""
    if isinstance(node, Einsum):
        return int(len(node.factors) > 1 and not isinstance(child, Einsum))
    return int(not (isinstance(node, Sum) and isinstance(child, (Sum, Einsum))))


@contextmanager
def stated_depth(name: str) -> Iterator[None]:
    """Replace RecursionError by an UnsupportedError that names the function."""
    try:
        yield
    except RecursionError as error:
        raise UnsupportedError(
            f"{name}: its operations stand too deep inside each other to be compiled; declare the "
            "inner ones as a function of their own"
        ) from error
