"""A Jacobian as a sum of products, whose factors are as small as they come.

Products of products are spliced and products of sums multiplied out where that leaves smaller
factors behind: p[i] (W[i,k] - u[k]) becomes p[i] W[i,k] - p[i] u[k], while X[i,k] + C[i,k] stays
one matrix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.masks import masked
from derivatrix.compiler.plan.nominal_sizes import nominal
from derivatrix.compiler.simplify.product import Product

MOST_TERMS = 64
"""A product of sums is multiplied out up to so many terms."""


def products(node: ir.Node) -> list[Product]:
    """The products whose sum `node` is."""
    output = tuple(range(node.ndim))
    pending = [Product(sympy.S.One, ((node, output),), output, dict(enumerate(node.shape)))]
    done: list[Product] = []
    while pending:
        product = pending.pop()
        opened = _opened(product, len(pending) + len(done))
        if opened is None:
            done.append(product)
        else:
            pending += reversed(opened)
    return done


def _opened(product: Product, others: int) -> list[Product] | None:
    """The products that one with a composite factor is the sum of; None if it has none."""
    single = len(product.factors) == 1
    for position, (node, labels) in enumerate(product.factors):
        inner = masked(node)
        if not isinstance(inner, ir.Einsum | ir.Sum) or not (single or _opens(inner)):
            continue
        rest = product.factors[:position] + product.factors[position + 1 :]
        if isinstance(inner, ir.Einsum):
            return [_spliced(product, rest, inner, labels)]
        if single or len(inner.terms) + others <= MOST_TERMS:
            return [replace(product, factors=((term, labels), *rest)) for term in inner.terms]
    return None


def _spliced(
    product: Product, rest: tuple[ir.Factor, ...], inner: ir.Einsum, labels: ir.Labels
) -> Product:
    fresh = itertools.count(max(product.sizes, default=-1) + 1)
    names = [*labels, *(next(fresh) for _ in inner.contracted)]
    added = {names[label]: inner.sizes[label] for label in inner.contracted}
    factors = tuple((node, tuple(names[label] for label in own)) for node, own in inner.factors)
    coefficient = product.coefficient * inner.coefficient
    return Product(coefficient, (*factors, *rest), product.output, {**product.sizes, **added})


@lru_cache(maxsize=65536)
def _opens(node: ir.Node) -> bool:
    """Whether a node consists of smaller ones, or has structure of its own."""
    node = masked(node)
    match node:
        case ir.Sum():
            return all(_opens(term) or isinstance(term, ir.Structural) for term in node.terms)
        case ir.Einsum():
            if any(isinstance(factor, ir.Structural) for factor, _ in node.factors):
                return True
            return all(volume(f.shape) < volume(node.shape) or _opens(f) for f, _ in node.factors)
    return False


def volume(sizes: Iterable[Dimension]) -> float:
    """The number of entries, with nominal sizes."""
    return math.prod(nominal(size) for size in sizes)


def without_deltas(product: Product, axes: list[int]) -> tuple[Product, list[int]]:
    """The product with labels that deltas make equal as one, and `axes` (labels) renamed."""
    names = {label: label for label in product.sizes}
    rest: list[ir.Factor] = []
    for node, labels in product.factors:
        if isinstance(node, ir.Delta):
            first, second = (names[label] for label in labels)
            keep, gone = min(first, second), max(first, second)
            names = {label: keep if name == gone else name for label, name in names.items()}
        else:
            rest.append((node, labels))
    factors = tuple((node, tuple(names[label] for label in labels)) for node, labels in rest)
    sizes = {label: size for label, size in product.sizes.items() if names[label] == label}
    output = tuple(names[label] for label in product.output)
    renamed = Product(product.coefficient, factors, output, sizes)
    return renamed, [names[axis] for axis in axes]


def labels_of(factors: Iterable[ir.Factor]) -> Iterator[int]:
    """Every label of the factors, with repetitions."""
    for _, labels in factors:
        yield from labels
