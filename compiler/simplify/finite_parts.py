"""Derivatives of functions of lengths where a length is zero: limits and finite parts.

Where a quotient 0/0 has no limit, it gets its finite part, the constant term of its expansion in
powers of the length r. That is linear, so it does not depend on how an expression is written as a
sum, and belongs to the function without its odd powers of r: of r all derivatives at 0 are 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir.expansions import LOGARITHM, NoExpansion, Series, expansion
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import Map, Node, slot, topological, used_slots
from derivatrix.compiler.simplify.lengths import fused
from derivatrix.compiler.simplify.slopes import is_finite, root_order
from derivatrix.compiler.simplify.squares import roots, variables

SERIES_TERMS = 18
"""Terms of the series that replaces a quotient near zero."""

SYMBOLIC_SERIES_TERMS = 10
"""The same where their coefficients are long expressions instead of numbers."""

LIMIT_TERMS = 6
"""Terms of series that are to show a limit."""

ROUNDING = 2e-16
"""Relative size of what a series may leave out."""

VARIABLE = sympy.Symbol("t", positive=True)
"""The root of a square, in which functions of lengths are expanded."""


def with_lengths(results: Sequence[Node], values: Sequence[Node]) -> list[Node]:
    """The nodes of derivatives with limits or finite parts where lengths are zero, and expansions
    near that: but at zero as they are for lengths where the function itself, of `values`, has no
    value or a slope that is not finite."""
    excluded = _without_slopes(tuple(values))

    def finite(node: Node) -> Node:
        if not isinstance(node, Map):
            return node
        bases = tuple((base, length in excluded) for base, length, _ in variables(node))
        return Map(_finite(node.expression, bases), node.arguments)

    return _with_shared_functions(transformed(results, finite))


@lru_cache(maxsize=256)
def _without_slopes(values: tuple[Node, ...]) -> frozenset[Node]:
    """The squares of lengths where, at zero, the values are no numbers or have infinite slopes."""
    return frozenset(
        length
        for node in topological(fused(values))
        if isinstance(node, Map)
        for variable, length, degree in variables(node)
        if not _has_slopes(node.expression, variable, degree)
    )


def _with_shared_functions(results: Sequence[Node]) -> list[Node]:
    """The nodes with functions, as exp(-‖x‖), that several functions of lengths are made of as
    nodes of their own, which are computed once."""
    maps = [node for node in topological(results) if isinstance(node, Map) and roots(node)]
    parts = {node: _functions(node) for node in maps}
    uses = Counter(part for functions in parts.values() for part in functions.values())

    def shared(node: Node) -> Node:
        if not isinstance(node, Map) or node not in parts:
            return node
        functions = parts[node].items()
        common = {part: function for part, function in functions if uses[function] > 1}
        if not common or node.expression in common:
            return node
        places = {part: slot(place) for place, part in enumerate(common, len(node.arguments))}
        arguments = (*node.arguments, *common.values())
        return Map(*used_slots(node.expression.xreplace(places), arguments))

    return transformed(results, shared)


def _functions(node: Map) -> dict[sympy.Expr, Node]:
    """The functions, as parts and as nodes, in a function of entries."""
    parts = sorted(node.expression.atoms(sympy.Function, sympy.exp), key=sympy.default_sort_key)
    functions = [part for part in parts if not isinstance(part, sympy.Piecewise)]
    return {part: Map(*used_slots(part, node.arguments)) for part in functions if part.free_symbols}


@lru_cache(maxsize=4096)
def _has_slopes(expression: sympy.Expr, base: sympy.Expr, degree: sympy.Expr) -> bool:
    """Whether a function of a length's square `base`, of that degree, tends to its value at 0, at
    least as fast as the length itself."""
    value = expression.xreplace({base: sympy.S.Zero})
    if not is_finite(value):
        return False
    if not _is_singular(expression, base):
        return True
    try:
        series, order = _expanded(expression, base, LIMIT_TERMS)
        constant = series.coefficient(0)
    except NoExpansion:
        return False
    later = [k for k in range(1, len(series.coefficients)) if series.coefficient(k) != 0]
    return (
        series.start >= 0
        and sympy.expand(constant - value) == 0
        and (not later or bool(later[0] * degree >= order))
    )


def _is_singular(expression: sympy.Expr, base: sympy.Expr) -> bool:
    """Whether an expression may be no smooth function of the root of `base` at 0."""
    pieces = expression.atoms(sympy.Piecewise, sympy.Abs, sympy.Max, sympy.Min)
    at_zero = expression.xreplace({base: sympy.S.Zero})
    return (
        not is_finite(at_zero)
        or root_order(expression, base) > 1
        or any(part.has(base) for part in pieces)
    )


def _expanded(expression: sympy.Expr, base: sympy.Expr, terms: int) -> tuple[Series, int]:
    """The expansion in the root of `base`, and of which order the root is."""
    order = root_order(expression, base)
    numbers = sorted(expression.atoms(sympy.Float))
    floats = {f: sympy.Symbol(f"c_{i}", positive=f > 0, real=True) for i, f in enumerate(numbers)}
    inside = expression.xreplace(floats).xreplace({base: VARIABLE**order})
    series = expansion(inside, VARIABLE, terms)
    back = {name: number for number, name in floats.items()}
    return series._replace(coefficients=tuple(c.xreplace(back) for c in series.coefficients)), order


@lru_cache(maxsize=4096)
def _finite(expression: sympy.Expr, bases: tuple[tuple[sympy.Expr, bool], ...]) -> sympy.Expr:
    """An expression with its finite part where one of `bases` is zero, but for those marked, and
    its expansion near that, where parts of it cancel."""
    for position, (base, excluded) in enumerate(bases):
        rest = bases[position + 1 :]
        at_zero = expression.xreplace({base: sympy.S.Zero})
        has_pieces = any(part.has(base) for part in expression.atoms(sympy.Piecewise))
        if is_finite(at_zero) and not has_pieces:
            continue
        try:
            series, order = _expanded(expression, base, LIMIT_TERMS)
            if series.cancels or series.start + LIMIT_TERMS < 1:
                numeric = expression.free_symbols <= base.free_symbols
                terms = SERIES_TERMS if numeric else SYMBOLIC_SERIES_TERMS
                series, order = _expanded(expression, base, terms)
            part = series.coefficient(0).xreplace({LOGARITHM: sympy.S.Zero})
        except NoExpansion:
            continue
        near = _near_zero(series, base ** sympy.Rational(1, order)) if series.cancels else None
        if excluded and near is None:
            continue
        pieces = [(_finite(expression, rest), sympy.true)]
        if near is not None:
            polynomial, close = near
            apart = sympy.And(base > 0, close) if excluded else close
            pieces.insert(0, (_finite(polynomial, rest), apart))
        if not excluded and (near is None or series.start < 0):
            pieces.insert(0, (_finite(part, rest), sympy.Eq(base, 0)))
        return sympy.Piecewise(*pieces)
    return expression


def _near_zero(series: Series, root: sympy.Expr) -> tuple[sympy.Expr, sympy.Basic] | None:
    """The polynomial that a series is, and where the terms left out are rounding."""
    first, *later = series.coefficients
    if LOGARITHM in sympy.Tuple(first, *later).free_symbols:
        return None
    terms = [(k, c) for k, c in enumerate(later, 1) if c != 0]
    polynomial = sum((c * VARIABLE**k for k, c in terms), first)
    near = root**series.start * sympy.horner(polynomial, VARIABLE).xreplace({VARIABLE: root})
    if not all(c.is_number for c in series.coefficients):
        parts = sympy.Add(*(sympy.Abs(c) * root**k for k, c in terms[-2:]))
        return near, parts <= ROUNDING * sympy.Abs(first)
    scales = [float(abs(c / first)) ** (-1 / k) for k, c in terms]
    scale = min(scales[-2:] if terms and terms[-1][0] > len(later) - 2 else [1.0, *scales])
    base, exponent = root.as_base_exp()
    radius = scale * ROUNDING ** (1 / len(later))
    return near, base <= sympy.Float(radius ** float(1 / exponent), 17)
