"""What is known of a matrix by its construction: symmetric, spd, lower, upper, diagonal, ..."""

from __future__ import annotations

from functools import lru_cache

from derivatrix.compiler.ir import Apply, Constant, Delta, Einsum, Leaf, Map, Node, Sum

IMPLIED = {
    "general": (),
    "symmetric": ("symmetric",),
    "spd": ("symmetric", "spd"),
    "lower": ("lower",),
    "upper": ("upper",),
    "diagonal": ("symmetric", "lower", "upper", "diagonal"),
    "orthogonal": ("orthogonal",),
}

TRANSPOSED = {"lower": "upper", "upper": "lower"}


@lru_cache(maxsize=65536)
def facts(node: Node) -> frozenset[str]:
    """The structure facts of `node`, by its last two axes; none for fewer axes."""
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        return frozenset()
    match node:
        case Leaf():
            return frozenset(IMPLIED.get(node.structure, ()))
        case Constant():
            symmetric = (node.array == node.array.swapaxes(-1, -2)).all()
            return frozenset({"symmetric"} if symmetric else ())
        case Delta():
            return frozenset({"symmetric", "spd", "lower", "upper", "diagonal", "orthogonal"})
        case Sum() if node.terms:
            shared = frozenset.intersection(*(facts(term) for term in node.terms))
            return shared - {"orthogonal"}
        case Map():
            return _symmetric(all("symmetric" in facts(a) for a in node.arguments))
        case Apply():
            return _applied(node)
        case Einsum():
            return _einsum(node)
    return frozenset()


def _applied(node: Apply) -> frozenset[str]:
    known = [facts(argument) for argument, _ in node.arguments]
    return node.operation.facts(known, node.output)


def _symmetric(holds: bool) -> frozenset[str]:
    return frozenset({"symmetric"}) if holds else frozenset()


def _einsum(node: Einsum) -> frozenset[str]:
    """A scaled or transposed matrix keeps its facts; a product equal to its own transpose
    (AᵀA, v vᵀ, diag(v)) is symmetric."""
    last = (node.ndim - 2, node.ndim - 1)
    if len(node.factors) == 1 and not node.contracted:
        inner, labels = node.factors[0]
        if inner.ndim >= 2 and set(labels[-2:]) == set(last):
            known = facts(inner)
            if labels[-2:] != last:
                known = frozenset(TRANSPOSED.get(fact, fact) for fact in known)
            dropped = {"orthogonal"} if node.coefficient != 1 else set()
            if node.coefficient.is_positive is not True:
                dropped.add("spd")
            return known - dropped
    swapped = dict(zip(last, reversed(last), strict=True))
    original = _multiset(node, {})
    return _symmetric(original == _multiset(node, swapped))


def _multiset(node: Einsum, renames: dict[int, int]) -> list[tuple[str, tuple[int, ...]]]:
    """The factors, canonically labelled, with the output labels renamed."""
    from derivatrix.compiler.simplify.canonical import canonical_labels

    factors = [
        (factor, tuple(renames.get(label, label) for label in labels))
        for factor, labels in node.factors
    ]
    ordered = canonical_labels(factors, node.ndim, node.sizes)
    return [(factor.key, labels) for factor, labels in ordered]
