"""A Jacobian as a sum of products whose factors are at most matrices."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.solves import EQUATIONS
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.masks import masked

MOST_TERMS = 64
"""Sums in factors are multiplied out up to so many terms."""


@dataclass(frozen=True)
class JacobianProduct:
    """A product of labelled factors; `output`: the labels of the axes, one in place of those that
    are equal. `solves`: operations that solve an equation for their last argument, with the labels
    of the solution and of that argument, which is a factor."""

    coefficient: sympy.Expr
    factors: tuple[ir.Factor, ...]
    output: tuple[int, ...]
    sizes: dict[int, Dimension]
    solves: tuple[tuple[ir.Apply, ir.Labels], ...] = ()

    def with_factors(self, *factors: ir.Factor) -> JacobianProduct:
        """The same with other factors."""
        return replace(self, factors=factors)

    @property
    def counted(self) -> sympy.Expr:
        """The coefficient, with the sizes of labels that nothing has."""
        labels = (own for _, own in (*self.factors, *self.solves))
        used = {*self.output, *itertools.chain.from_iterable(labels)}
        unused = [size for label, size in self.sizes.items() if label not in used]
        return self.coefficient * sympy.Mul(*unused)


def jacobian_products(node: ir.Node) -> list[JacobianProduct]:
    """The products whose sum the node is. Raises NoMatrixNotation where a factor is neither a
    matrix nor made of such, or there are too many terms."""
    axes = tuple(range(node.ndim))
    sizes = dict(enumerate(node.shape))
    pending = [JacobianProduct(sympy.S.One, ((node, axes),), axes, sizes)]
    done: list[JacobianProduct] = []
    while pending:
        if len(pending) + len(done) > MOST_TERMS:
            raise NoMatrixNotation
        product = pending.pop()
        opened = _opened(product)
        if opened is None:
            done.append(_without_deltas(product))
        else:
            pending += reversed(opened)
    return done


def multiplied_out(node: ir.Node) -> ir.Node:
    """The node as a sum of products whose factors are at most matrices. Raises NoMatrixNotation
    where it is none, or one of them is zero off a diagonal or solves an equation."""
    terms = []
    for product in jacobian_products(node):
        if product.solves or len({*product.output}) < node.ndim:
            raise NoMatrixNotation
        terms.append(
            ir.einsum(product.factors, product.output, product.coefficient, sizes=product.sizes)
        )
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), node.shape)


def _opened(product: JacobianProduct) -> list[JacobianProduct] | None:
    """The products that one with a factor of more than two axes is the sum of; None if it has no
    such factor."""
    for position, (node, labels) in enumerate(product.factors):
        if node.ndim < 3 or isinstance(node, ir.Structural):
            continue
        rest = product.factors[:position] + product.factors[position + 1 :]
        own = masked(node)
        if isinstance(own, ir.Sum):
            return [product.with_factors((term, labels), *rest) for term in own.terms]
        if isinstance(own, ir.Einsum):
            return [_spliced(product.with_factors(*rest), own, labels)]
        if isinstance(own, ir.Apply) and own.operation.name in EQUATIONS:
            return [_solved(product.with_factors(*rest), own, labels)]
        raise NoMatrixNotation
    return None


def _spliced(rest: JacobianProduct, inner: ir.Einsum, labels: ir.Labels) -> JacobianProduct:
    """The product with the factors of another, whose axes have these labels."""
    names = (*labels, *_fresh(rest, len(inner.contracted)))
    added = {names[label]: inner.sizes[label] for label in inner.contracted}
    factors = tuple((node, tuple(names[i] for i in own)) for node, own in inner.factors)
    return replace(
        rest,
        coefficient=rest.coefficient * inner.coefficient,
        factors=(*factors, *rest.factors),
        sizes={**rest.sizes, **added},
    )


def _solved(rest: JacobianProduct, node: ir.Apply, labels: ir.Labels) -> JacobianProduct:
    """The product with the solution of an equation, all of whose stacked axes are those of its
    right-hand side."""
    depth = len(node.stack)
    *others, (given, stacked) = node.arguments
    if any(own for _, own in others):
        raise NoMatrixNotation
    core = _fresh(rest, 2)
    solve = (node, (*labels[depth:], *core))
    factor = (given, (*(labels[own] for own in stacked), *core))
    sizes = {**rest.sizes, **dict(zip(core, node.shape[depth:], strict=True))}
    solves = (*rest.solves, solve)
    return replace(rest, factors=(factor, *rest.factors), sizes=sizes, solves=solves)


def _fresh(product: JacobianProduct, count: int) -> ir.Labels:
    """New labels."""
    first = max(product.sizes, default=-1) + 1
    return tuple(range(first, first + count))


def _without_deltas(product: JacobianProduct) -> JacobianProduct:
    """The same with one label in place of those that deltas make equal."""
    names = {label: label for label in product.sizes}
    for node, labels in product.factors:
        if isinstance(node, ir.Delta):
            keep, gone = sorted(names[label] for label in labels)
            names = {label: keep if name == gone else name for label, name in names.items()}

    def renamed(labels: ir.Labels) -> ir.Labels:
        return tuple(names[label] for label in labels)

    kept = [own for own in product.factors if not isinstance(own[0], ir.Delta)]
    return JacobianProduct(
        product.coefficient,
        tuple((node, renamed(own)) for node, own in kept),
        renamed(product.output),
        {label: size for label, size in product.sizes.items() if names[label] == label},
        tuple((node, renamed(own)) for node, own in product.solves),
    )
