"""The conditions on sizes under which an expression has a value.

An index needs an axis that is long enough, a slice one that contains it, the largest entry an
entry. Sizes may be 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import sympy

from derivatrix.compiler.ir.dimensions import Wrapped
from derivatrix.compiler.ir.nodes import Apply, Einsum, Gather, Node, Slice, topological
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.ir.resize import resize
from derivatrix.runtime.errors import DeclarationError


def requirements(expressions: Sequence[Node]) -> tuple[str, ...]:
    """Return the conditions as Python texts: "n >= 2", "n >= k", "n % 2 == 0". Raises
    DeclarationError where no sizes meet one of them."""
    bounds = list(dict.fromkeys(part for bound in _bounds(expressions) for part in _simple(bound)))
    if any(bound.is_negative for bound in bounds):
        raise DeclarationError("an axis is too short for its index, slice or maximum")
    least_sizes = _least_sizes(bounds)
    texts = [f"{size} >= {number}" for size, number in sorted(least_sizes.items(), key=str)]
    texts += [_condition(bound) for bound in bounds if not _holds(bound, least_sizes)]
    return (*texts, *dict.fromkeys(_divisible(expressions)))


def _bounds(roots: Sequence[Node]) -> Iterator[sympy.Expr]:
    """Yield polynomials in sizes that must not be negative, for the nodes below `roots`."""
    for node in _with_steps(roots):
        if isinstance(node, Slice):
            start, count = node.start, node.shape[0]
            end = start + node.step * (count - 1)
            low, high = (start, end) if node.step > 0 else (end, start)
            yield from (low, node.shape[1] - 1 - high, count)
        elif isinstance(node, Gather) and node.table:
            yield node.shape[1] - 1 - max(node.table)
        elif isinstance(node, Einsum):
            yield from _divisors(node.coefficient)
        elif isinstance(node, Apply):
            cores = [argument.shape[len(labels) :] for argument, labels in node.arguments]
            yield from node.operation.requires(cores)


def _with_steps(roots: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes below `roots`, and those of the equations and steps of their operations."""
    for node in topological(roots):
        yield node
        if isinstance(node, Apply):
            yield from _with_steps(_expressions_within(node))


def _expressions_within(node: Apply) -> Sequence[Node]:
    """Return the expressions that an operation evaluates: the residual of its equation, the step of
    its loop, or the results of a loop over segments, for a segment with all steps."""
    operation = node.operation
    if operation.equation is not None:
        return [operation.equation.residual]
    if operation.loop is not None:
        return operation.loop.following
    if operation.segments is not None:
        segments = operation.segments
        series, labels = node.arguments[segments.operands.index(segments.series[0])]
        steps = series.shape[len(labels)]
        return [resize(result, {segments.length: steps}) for result in segments.results]
    return ()


def _divisors(coefficient: sympy.Expr) -> Iterator[sympy.Expr]:
    """Yield bounds by which divisors that could be negative are positive. A divisor that is a size
    may be 0: the quotient is inf or nan."""
    divisor = sympy.factor(sympy.fraction(coefficient)[1])
    for part in sympy.Mul.make_args(divisor):
        base = part.as_base_exp()[0]
        if base.is_polynomial() and not _natural(base).is_nonnegative:
            yield base - 1


def _natural(size: sympy.Expr) -> sympy.Expr:
    """Let any size be 0: symbols of sizes are positive, so that SymPy would prove n >= 1."""
    return size.xreplace(
        {s: sympy.Symbol(s.name, integer=True, nonnegative=True) for s in size.free_symbols}
    )


def _simple(bound: sympy.Expr) -> Iterator[sympy.Expr]:
    """Yield equivalent bounds without minima, as far as possible; none if always met."""
    bound = sympy.expand(_natural(bound))
    if bound.is_nonnegative:
        return
    for part in sorted(bound.atoms(sympy.Min, Wrapped), key=sympy.default_sort_key):
        limits = (sympy.S.Zero, part.args[1]) if isinstance(part, Wrapped) else part.args
        bounds = [sympy.expand(bound.xreplace({part: limit})) for limit in limits]
        if bound.coeff(part).is_negative:
            if any(limited.is_nonnegative for limited in bounds):
                return
        elif isinstance(part, sympy.Min):
            for limited in bounds:
                yield from _simple(limited)
            return
    yield bound


def _least_sizes(bounds: Iterable[sympy.Expr]) -> dict[sympy.Symbol, int]:
    """Return the least value of each size that has one."""
    least_sizes: dict[sympy.Symbol, int] = {}
    for size, number in filter(None, map(_least_size, bounds)):
        least_sizes[size] = max(number, least_sizes.get(size, 0))
    return least_sizes


def _least_size(bound: sympy.Expr) -> tuple[sympy.Symbol, int] | None:
    """Return the only size in a bound that grows with it, and the least value meeting it."""
    if len(bound.free_symbols) != 1 or not bound.is_polynomial():
        return None
    (size,) = bound.free_symbols
    *growing, constant = sympy.Poly(bound, size).all_coeffs()
    if not all(coefficient >= 0 for coefficient in growing):
        return None
    if len(growing) == 1:
        return size, int(sympy.ceiling(-constant / growing[0]))
    return size, next(n for n in itertools.count() if bound.xreplace({size: sympy.Integer(n)}) >= 0)


def _holds(bound: sympy.Expr, least_sizes: dict[sympy.Symbol, int]) -> bool:
    """Return whether the bound follows from the least sizes."""
    shifted = {size: size + number for size, number in least_sizes.items()}
    return bool(sympy.expand(bound.subs(shifted, simultaneous=True)).is_nonnegative)


def _condition(bound: sympy.Expr) -> str:
    """Write a bound as a comparison."""
    terms = sympy.Add.make_args(bound)
    positive = [term for term in terms if not term.could_extract_minus_sign()]
    negative = [-term for term in terms if term.could_extract_minus_sign()]
    return f"{index(sympy.Add(*positive))} >= {index(sympy.Add(*negative))}"


def _divisible(expressions: Sequence[Node]) -> Iterator[str]:
    """Yield the conditions by which sizes that are quotients are integers."""
    for node in _with_steps(expressions):
        for size in node.shape:
            dividend, divisor = sympy.together(size).as_numer_denom()
            if divisor.is_Integer and divisor > 1 and not _always_whole(dividend, int(divisor)):
                text = index(sympy.expand(dividend))
                yield f"{text if dividend.is_Symbol else f'({text})'} % {divisor} == 0"


def _always_whole(dividend: sympy.Expr, divisor: int) -> bool:
    """Return whether an integer divides a polynomial in sizes for all of their values."""
    sizes = sorted(dividend.free_symbols, key=str)
    remainders = itertools.product(map(sympy.Integer, range(divisor)), repeat=len(sizes))
    return all(
        dividend.xreplace(dict(zip(sizes, remainder, strict=True))) % divisor == 0
        for remainder in remainders
    )
