"""Letters for the intermediates of a kernel: those of its formula, or of books."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

import sympy

from derivatrix.compiler.formulas.definitions import PROBABILITIES
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.structure import facts

MAX_FACTOR_LENGTH = 2
"""Longest name of a factor that becomes part of a product's name, as in `XW`, in characters."""

Letters = tuple[str, str]
"""The name of an array, and that of its transpose."""


def intermediate_letters(nodes: Iterable[ir.Node]) -> dict[ir.Node, Letters]:
    """Name nodes, given children first, by letters, with the numbers 1, 2, ... where several nodes
    share one."""
    wishes: dict[ir.Node, Letters] = {}
    varying: set[ir.Node] = set()
    for node in nodes:
        is_tangent = isinstance(node, ir.Leaf) and node.role != "input"
        if is_tangent or not varying.isdisjoint(node.children):
            varying.add(node)
        if node.ndim and (letters := _letters(node, node not in varying)):
            wishes[node] = letters
    shares = Counter(wishes.values())
    numbers: dict[Letters, Iterator[int]] = defaultdict(lambda: count(1))
    for node, letters in wishes.items():
        if shares[letters] > 1:
            number = next(numbers[letters])
            wishes[node] = f"{letters[0]}{number}", f"{letters[1]}{number}"
    return wishes


def _letters(node: ir.Node, is_primal: bool) -> Letters | None:
    """Name a node, a vector by a lowercase letter; None if it has no letter. is_primal: whether it
    depends on no cotangent or tangent."""
    if isinstance(node, ir.Einsum):
        return _product_letters(node)
    is_residual = is_primal and isinstance(node, ir.Sum) and _is_difference(node)
    letter = "R" if is_residual else _letter(node)
    is_vector = node.ndim - (BATCH in node.shape[:1]) == 1
    letter = letter.lower() if is_vector and len(letter) == 1 else letter
    return (letter, f"{letter}t") if letter else None


def _letter(node: ir.Node) -> str:
    match node:
        case ir.Apply(operation=operation) if operation.is_inverse:
            return f"{_factor_name(node.arguments[0][0]) or 'M'}_inv"
        case ir.Apply(operation=operation, output=output) if output < len(operation.letters):
            letter = operation.letters[output]
            return letter if letter.isidentifier() else ""
        case ir.Map(expression=sympy.Function() as function) if len(node.arguments) == 1:
            name = type(function).__name__
            return "P" if name in PROBABILITIES else "E" if name == "exp" else "H"
    return ""


def _factor_name(node: ir.Node) -> str:
    """Return the name of an input, or the letter of an operation's result; "" for other nodes."""
    if isinstance(node, ir.Leaf):
        return node.name if node.role == "input" else ""
    return _letter(node) if isinstance(node, ir.Apply) else ""


def _product_letters(product: ir.Einsum) -> Letters | None:
    """Name a product of two matrices, or of a matrix and a vector, by its factors: `XtX` for XᵀX,
    `S_inv_y` for S⁻¹y. None for other products."""
    if product.coefficient != 1 or len(product.factors) != 2 or len(product.contracted) != 1:
        return None
    if not all(labels for _, labels in product.factors):  # one is a number
        return None
    (inner,) = product.contracted
    names: list[Letters] = []
    for node, labels in sorted(product.factors, key=lambda factor: min(factor[1])):
        name = _factor_name(node)
        is_short = len(name) <= MAX_FACTOR_LENGTH or name.endswith("_inv")
        if not name or not is_short or len(labels) > 2 or inner not in labels:
            return None
        is_symmetric = len(labels) == 1 or "symmetric" in facts(node)
        transposed = name if is_symmetric else f"{name}t"
        is_transposed = labels.index(inner) == (1 if names else len(labels) - 2)
        names.append((transposed, name) if is_transposed else (name, transposed))
    joint = "_" if any("_" in name for name, _ in names) else ""
    left, right = names
    return joint.join((left[0], right[0])), joint.join((right[1], left[1]))


def _is_difference(total: ir.Sum) -> bool:
    """Return whether a sum is the difference of an input and other arrays."""
    signs = {
        isinstance(term, ir.Einsum) and term.coefficient.could_extract_minus_sign()
        for term in total.terms
    }
    return len(signs) == 2 and any(map(_is_input, total.terms))


def _is_input(term: ir.Node) -> bool:
    """Return whether a term is an input, up to a number and a transpose."""
    if isinstance(term, ir.Einsum) and len(term.factors) == 1:
        ((term, _),) = term.factors
    return isinstance(term, ir.Leaf) and term.ndim > 0
