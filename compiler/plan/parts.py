"""Kernels whose results come sample by sample, so that several threads can share the work, and a
part of the samples can be computed at a time."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler import ir
from derivatrix.compiler.plan.matrices import groups
from derivatrix.compiler.plan.scalars import cost
from derivatrix.compiler.plan.sizes import product
from derivatrix.compiler.plan.steps import Parts
from derivatrix.compiler.plan.structure import bind, split

OPERATIONS = 1_000_000
"""The work that is worth the time that other threads take to start."""
OPERATION = 20
"""What an entry of an operation on matrices counts."""
PRODUCT = sympy.Rational(1, 10)
"""What a multiplication within a product of matrices counts."""


def parts(roots: Sequence[ir.Node], arguments: Sequence[ir.Leaf]) -> Parts | None:
    """How arguments are cut along their first axis so that a kernel computes a part of each of its
    outputs from a part of them; None where it does not. `roots` are associated products."""
    samples = roots[0].shape[0] if roots and roots[0].shape else None
    if samples is None or not samples.is_Symbol:
        return None
    whole = [*roots, *arguments]
    if any(samples in node.shape and node.shape[0] != samples for node in whole):
        return None
    nodes = ir.topological(roots)
    if not all(root.shape and root.shape[0] == samples for root in roots):
        return None
    if not all(_apart(node, samples) for node in nodes):
        return None
    sliced = tuple(bool(leaf.shape) and leaf.shape[0] == samples for leaf in arguments)
    works = [_work(node) for node in nodes]
    work = sympy.Add(*works, *(product(root.shape) for root in roots))
    fixed = any(part.free_symbols and not part.has(samples) for part in works)
    return Parts(sliced, _rounded(sympy.expand(work)), fixed)


def _apart(node: ir.Node, samples: sympy.Symbol) -> bool:
    """Whether entries of one sample are made of entries of that sample."""
    sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
    if any(samples in size.free_symbols and size != samples for size in sizes):
        return False
    if sizes.count(samples) > 1:
        return False
    match node:
        case ir.Einsum():
            inner = [node.sizes[label] for label in node.contracted]
            return samples not in inner and samples not in node.coefficient.free_symbols
        case ir.Map():
            return samples not in node.expression.free_symbols
        case ir.Apply():
            return samples not in node.shape[len(node.stack) :]
        case ir.Structural():
            return samples not in node.shape
    return True


def _work(node: ir.Node) -> sympy.Expr:
    """About how many operations it takes."""
    match node:
        case ir.Einsum():
            constraints, _ = split(node)
            loops = bind(constraints, node.sizes, range(len(node.sizes)), {}).loops
            points = product(tuple(node.sizes[label] for label in loops))
            return points if groups(node) is None else points * PRODUCT
        case ir.Map():
            return product(node.shape) * cost(node.expression)
        case ir.Sum():
            return product(node.shape) * len(node.terms)
        case ir.Apply():
            return product(node.shape) * OPERATION
    return sympy.S.Zero


def _rounded(polynomial: sympy.Expr) -> sympy.Expr:
    """With whole numbers as coefficients, rounded up."""
    terms = polynomial.as_coefficients_dict().items()
    return sympy.Add(*(sympy.ceiling(weight) * powers for powers, weight in terms))
