"""The conditions on sizes without which an expression has no value.

An index needs an axis that is long enough, a slice one that it lies within, the largest entry an
entry. Sizes may be 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import sympy

from derivatrix.compiler.ir.dimensions import Wrapped
from derivatrix.compiler.ir.nodes import Apply, Einsum, Gather, Node, Slice, topological
from derivatrix.compiler.ir.python_text import index
from derivatrix.runtime.errors import DeclarationError


def requirements(expression: Node) -> tuple[str, ...]:
    """The conditions as Python texts: "n >= 2", "n >= k", "n % 2 == 0".

    Raises DeclarationError where no sizes fulfil one of them."""
    found = list(dict.fromkeys(part for each in _bounds(expression) for part in _simple(each)))
    if any(bound.is_negative for bound in found):
        raise DeclarationError("an array has no entries where one is needed")
    least = _least_sizes(found)
    texts = [f"{size} >= {number}" for size, number in sorted(least.items(), key=str)]
    texts += [_condition(bound) for bound in found if not _holds(bound, least)]
    return (*texts, *dict.fromkeys(_divisible(expression)))


def _bounds(root: Node) -> Iterator[sympy.Expr]:
    """Polynomials in sizes that must not be negative, for the nodes below `root`."""
    for node in topological([root]):
        if isinstance(node, Slice):
            first, count = node.start, node.shape[0]
            last = first + node.step * (count - 1)
            low, high = (first, last) if node.step > 0 else (last, first)
            yield from (low, node.shape[1] - 1 - high, count)
        elif isinstance(node, Gather) and node.table:
            yield node.shape[1] - 1 - max(node.table)
        elif isinstance(node, Einsum):
            yield from _divisors(node.coefficient)
        elif isinstance(node, Apply):
            cores = [argument.shape[len(labels) :] for argument, labels in node.arguments]
            yield from node.operation.requires(cores)
            if node.operation.equation is not None:
                yield from _bounds(node.operation.equation.residual)


def _divisors(coefficient: sympy.Expr) -> Iterator[sympy.Expr]:
    """That what a number is divided by is positive, where it could be negative: where it is a
    size, that is 0, the quotient is inf or nan."""
    divisor = sympy.factor(sympy.fraction(coefficient)[1])
    for part in sympy.Mul.make_args(divisor):
        base = part.as_base_exp()[0]
        if base.is_polynomial() and not _natural(base).is_nonnegative:
            yield base - 1


def _natural(size: sympy.Expr) -> sympy.Expr:
    """Arithmetic of sizes of which any may be 0."""
    return size.xreplace(
        {s: sympy.Symbol(s.name, integer=True, nonnegative=True) for s in size.free_symbols}
    )


def _simple(bound: sympy.Expr) -> Iterator[sympy.Expr]:
    """The bounds that say the same without least sizes, as far as that can be; none where it
    always holds."""
    bound = sympy.expand(_natural(bound))
    if bound.is_nonnegative:
        return
    for part in sorted(bound.atoms(sympy.Min, Wrapped), key=sympy.default_sort_key):
        limits = (sympy.S.Zero, part.args[1]) if isinstance(part, Wrapped) else part.args
        others = [sympy.expand(bound.xreplace({part: limit})) for limit in limits]
        if bound.coeff(part).is_negative:
            if any(other.is_nonnegative for other in others):
                return
        elif isinstance(part, sympy.Min):
            for other in others:
                yield from _simple(other)
            return
    yield bound


def _least_sizes(bounds: Iterable[sympy.Expr]) -> dict[sympy.Symbol, int]:
    """The least of each size that has one."""
    least: dict[sympy.Symbol, int] = {}
    for size, number in filter(None, map(_least_size, bounds)):
        least[size] = max(number, least.get(size, 0))
    return least


def _least_size(bound: sympy.Expr) -> tuple[sympy.Symbol, int] | None:
    """The only size in a bound that grows with it, and from where on it is not negative."""
    if len(bound.free_symbols) != 1 or not bound.is_polynomial():
        return None
    (size,) = bound.free_symbols
    *growing, constant = sympy.Poly(bound, size).all_coeffs()
    if not all(coefficient >= 0 for coefficient in growing):
        return None
    if len(growing) == 1:
        return size, int(sympy.ceiling(-constant / growing[0]))
    return size, next(n for n in itertools.count() if bound.xreplace({size: sympy.Integer(n)}) >= 0)


def _holds(bound: sympy.Expr, least: dict[sympy.Symbol, int]) -> bool:
    """Whether it cannot be negative, with what is known of the sizes."""
    moved = {size: size + number for size, number in least.items()}
    return bool(sympy.expand(bound.subs(moved, simultaneous=True)).is_nonnegative)


def _condition(bound: sympy.Expr) -> str:
    """A bound as a comparison."""
    terms = sympy.Add.make_args(bound)
    added = [term for term in terms if not term.could_extract_minus_sign()]
    taken = [-term for term in terms if term.could_extract_minus_sign()]
    return f"{index(sympy.Add(*added))} >= {index(sympy.Add(*taken))}"


def _divisible(expression: Node) -> Iterator[str]:
    """That sizes that are quotients are whole."""
    for node in topological([expression]):
        for size in node.shape:
            whole, divisor = sympy.together(size).as_numer_denom()
            if divisor.is_Integer and divisor > 1 and not _always_whole(whole, int(divisor)):
                text = index(sympy.expand(whole))
                yield f"{text if whole.is_Symbol else f'({text})'} % {divisor} == 0"


def _always_whole(dividend: sympy.Expr, divisor: int) -> bool:
    """Whether an integer divides a polynomial in sizes, whatever these are."""
    sizes = sorted(dividend.free_symbols, key=str)
    rests = itertools.product(map(sympy.Integer, range(divisor)), repeat=len(sizes))
    return all(
        dividend.xreplace(dict(zip(sizes, rest, strict=True))) % divisor == 0 for rest in rests
    )
