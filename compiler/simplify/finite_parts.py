"""Derivatives of functions of lengths where a length is zero: limits and finite parts.

A quotient 0/0 without a limit gets its finite part, the constant term of its expansion in powers of
the length r. That is linear, so it does not depend on how an expression is written as a sum. It
belongs to the function without its odd powers of r: all derivatives of r at 0 are 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir.expansions import LOGARITHM, NoExpansion, Series, expansion
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import Map, Node, slot, topological, used_slots
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.lengths import fused
from derivatrix.compiler.simplify.repeats import repeating_axes, without_axes
from derivatrix.compiler.simplify.slopes import is_finite, root_order
from derivatrix.compiler.simplify.squares import roots, variables

SERIES_TERMS = 18
"""Terms of the series that replaces a quotient near zero."""

SYMBOLIC_SERIES_TERMS = 10
"""Terms of that series where its coefficients are long expressions instead of numbers."""

LIMIT_TERMS = 6
"""Terms of a series that is to show a limit."""

MAX_COMPARED_ARGUMENTS = 6
"""Most arguments of signs, maxima, minima and branches resolved by cases, whose number they
multiply."""

ROUNDING = 2e-16
"""Relative size of the terms that a series may leave out."""

VARIABLE = sympy.Symbol("t", positive=True)
"""The root of a square: the variable of expansions."""


def with_lengths(
    results: Sequence[Node], values: Sequence[Node], singular: Collection[Node] = ()
) -> list[Node]:
    """Insert limits or finite parts of derivatives where lengths are zero, and expansions near
    that. Where the function itself, of `values`, has no value or an infinite slope at zero, its
    derivatives stay as they are there, also where one of the squares `singular` is zero. Its values
    stay as they are declared."""
    declared = {*topological(values)}
    excluded = {*map(_without_repeats, without_slopes(tuple(values)).union(singular))}
    undefined = {*map(_without_repeats, _undefined(tuple(values)))}

    def is_excluded(length: Node) -> bool:
        parts = [part for part in fused((length,)) if isinstance(part, Map)]
        squares = {_without_repeats(square) for part in parts for _, square, _ in variables(part)}
        return _without_repeats(length) in excluded or not squares.isdisjoint(excluded - undefined)

    def finite(node: Node) -> Node:
        if not isinstance(node, Map) or node in declared:
            return node
        lengths = [*variables(node)]
        bases = tuple((base, is_excluded(length)) for base, length, _ in lengths)
        expression = _finite(node.expression, bases)
        for (base, excluded), (_, _, degree) in zip(bases, lengths, strict=True):
            if not excluded:
                expression = _with_finite_powers(expression, base, degree)
        return Map(expression, node.arguments)

    return _with_shared_functions(transformed(results, finite))


@lru_cache(maxsize=4096)
def _without_repeats(node: Node) -> Node:
    """Drop the axes along which a node repeats its entries, as along samples and times."""
    axes = repeating_axes(node)
    return simplify([without_axes(node, axes)])[0] if axes else node


@lru_cache(maxsize=256)
def without_slopes(values: tuple[Node, ...]) -> frozenset[Node]:
    """Return the squares at whose zeros the values or their slopes are not finite."""
    lengths = [
        length
        for node in topological(fused(values))
        if isinstance(node, Map)
        for variable, length, degree in variables(node)
        if not _has_slopes(node.expression, variable, degree)
    ]
    return frozenset((*lengths, *simplify(lengths)))  # fusing may change the order of terms


@lru_cache(maxsize=256)
def _undefined(values: tuple[Node, ...]) -> frozenset[Node]:
    """Return the squares at whose zeros a value is a 0/0 as it is written."""
    return frozenset(
        length
        for node in topological(fused(values))
        if isinstance(node, Map)
        for variable, length, _ in variables(node)
        if _at_zero(node.expression, variable) is sympy.nan
    )


def _with_shared_functions(results: Sequence[Node]) -> list[Node]:
    """Make functions that several functions of lengths contain, as exp(-‖x‖), nodes of their own,
    so that they are computed once."""
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
    """Return the functions in a function of entries, as expressions and as nodes."""
    parts = sorted(node.expression.atoms(sympy.Function, sympy.exp), key=sympy.default_sort_key)
    functions = [part for part in parts if not isinstance(part, sympy.Piecewise)]
    return {part: Map(*used_slots(part, node.arguments)) for part in functions if part.free_symbols}


@lru_cache(maxsize=4096)
def _has_slopes(expression: sympy.Expr, base: sympy.Expr, degree: sympy.Expr) -> bool:
    """Return whether a function of a length's square `base`, of degree `degree`, tends to its value
    at 0 at least as fast as the length itself."""
    branches = _branches(expression, base)
    return all(_branch_has_slopes(branch, base, degree) for branch, _ in branches)


def _branches(expression: sympy.Expr, base: sympy.Expr) -> list[tuple[sympy.Expr, sympy.Basic]]:
    """Resolve the signs, maxima, minima and branches that other symbols decide near the zero of
    `base`. Returns pairs of an expression and the condition on other symbols under which it holds,
    if those before do not."""
    pieces = sorted(expression.atoms(sympy.Piecewise), key=sympy.default_sort_key)
    undecided = [
        (part, place)
        for part in pieces
        if part.has(base) and (place := _undecided(part, base)) is not None
    ]
    if undecided and sum(len(part.args) for part, _ in undecided) <= MAX_COMPARED_ARGUMENTS:
        part, place = undecided[0]
        value, condition = part.args[place]
        with_branch = sympy.Piecewise(*part.args[:place], (value, sympy.true))
        without_branch = sympy.Piecewise(*part.args[:place], *part.args[place + 1 :])
        cases = (with_branch, _at_zero(condition, base)), (without_branch, sympy.true)
        return [
            (branch, sympy.And(holds, further))
            for case, holds in cases
            for branch, further in _branches(expression.xreplace({part: case}), base)
        ]
    compared = expression.atoms(sympy.sign, sympy.Max, sympy.Min)
    parts = sorted((part for part in compared if part.has(base)), key=sympy.default_sort_key)
    if sum(len(part.args) for part in parts) > MAX_COMPARED_ARGUMENTS:
        return [(expression, sympy.true)]
    for part in parts:
        first, *further_arguments = part.args
        second = part.func(*further_arguments) if further_arguments else sympy.S.Zero
        difference = _leading(first - second, base)
        if difference is None or not difference.free_symbols:
            continue
        if isinstance(part, sympy.Min):
            first, second = second, first
        branches = []
        for number, condition in ((1, difference > 0), (-1, difference < 0), (0, sympy.true)):
            resolved = _signs(expression, base, difference, sympy.Integer(number))
            if further_arguments:
                resolved[part] = first if number > 0 else second
            for branch, further in _branches(expression.xreplace(resolved), base):
                branches.append((branch, sympy.And(condition, further)))
        return branches
    return [(expression, sympy.true)]


def _undecided(pieces: sympy.Piecewise, base: sympy.Expr) -> int | None:
    """Find the first condition that other symbols decide where `base` is zero."""
    conditions = [_at_zero(condition, base) for _, condition in pieces.args]
    return next((i for i, condition in enumerate(conditions) if condition.free_symbols), None)


def _leading(expression: sympy.Expr, base: sympy.Expr) -> sympy.Expr | None:
    """Return the first coefficient of an expansion, which has the sign of the expression near 0;
    None if there is none."""
    try:
        coefficient = _expand(expression, base, LIMIT_TERMS)[0].coefficients[0]
    except NoExpansion:
        return None
    return None if coefficient.has(LOGARITHM) else coefficient


def _signs(
    expression: sympy.Expr, base: sympy.Expr, difference: sympy.Expr, sign: sympy.Expr
) -> dict[sympy.Expr, sympy.Expr]:
    """Return the signs in an expression that follow, where `base` is zero, from that of a
    difference."""
    signs = {}
    for part in expression.atoms(sympy.sign):
        inside = _leading(part.args[0], base)
        if inside is not None and sympy.expand(inside - difference) == 0:
            signs[part] = sign
        elif inside is not None and sympy.expand(inside + difference) == 0:
            signs[part] = -sign
    return signs


def _branch_has_slopes(expression: sympy.Expr, base: sympy.Expr, degree: sympy.Expr) -> bool:
    """`_has_slopes` of a function without maxima that other symbols decide."""
    value = _at_zero(expression, base)
    if not is_finite(value):
        return False
    if not _is_singular(expression, base):
        return True
    try:
        series, order = _expand(expression, base, LIMIT_TERMS)
    except NoExpansion:
        return False
    if series.start < 0 or sympy.expand(series.coefficient(0) - value) != 0:
        return False
    later = [k for k in range(1, len(series.coefficients)) if series.coefficient(k) != 0]
    return not later or bool(later[0] * degree >= order)


def _at_zero(expression: sympy.Expr, base: sympy.Expr) -> sympy.Expr:
    """Return an expression where `base` is zero; nan where it compares what is infinite there."""
    try:
        return expression.xreplace({base: sympy.S.Zero})
    except (TypeError, ValueError):  # SymPy refuses to compare zoo
        return sympy.nan


def _is_singular(expression: sympy.Expr, base: sympy.Expr) -> bool:
    """Return whether an expression may not be a smooth function of the root of `base` at 0."""
    pieces = expression.atoms(sympy.Piecewise, sympy.Abs, sympy.Max, sympy.Min)
    at_zero = _at_zero(expression, base)
    return (
        not is_finite(at_zero)
        or root_order(expression, base) > 1
        or any(part.has(base) for part in pieces)
    )


def _expand(expression: sympy.Expr, base: sympy.Expr, terms: int) -> tuple[Series, int]:
    """Expand an expression in the root of `base`. Returns the series and the order of the root."""
    order = root_order(expression, base)
    numbers = sorted(expression.atoms(sympy.Float))
    floats = {f: sympy.Symbol(f"c_{i}", positive=f > 0, real=True) for i, f in enumerate(numbers)}
    inside = expression.xreplace(floats).xreplace({base: VARIABLE**order})
    series = expansion(inside, VARIABLE, terms)
    back = {name: number for number, name in floats.items()}
    return series._replace(coefficients=tuple(c.xreplace(back) for c in series.coefficients)), order


@lru_cache(maxsize=4096)
def _finite(expression: sympy.Expr, bases: tuple[tuple[sympy.Expr, bool], ...]) -> sympy.Expr:
    """Insert finite parts where one of `bases` is zero, unless it is marked as excluded, and
    expansions near zero where parts of the expression cancel."""
    for position, (base, excluded) in enumerate(bases):
        later_bases = bases[position + 1 :]
        at_zero = _at_zero(expression, base)
        has_pieces = any(part.has(base) for part in expression.atoms(sympy.Piecewise))
        if is_finite(at_zero) and not has_pieces:
            continue
        branches = _branches(expression, base)
        if len(branches) > 1:
            pieces = []
            for branch, condition in branches:
                part = _at_zero(_finite(branch, ((base, excluded), *later_bases)), base)
                pieces.append((part if is_finite(part) else expression, condition))
            if [part for part, _ in pieces] == [_at_zero(branch, base) for branch, _ in branches]:
                continue
            at_base_zero = sympy.Piecewise(*pieces), sympy.Eq(base, 0)
            return sympy.Piecewise(at_base_zero, (_finite(expression, later_bases), sympy.true))
        try:
            series, order = _expand(expression, base, LIMIT_TERMS)
            if series.cancels or series.start + LIMIT_TERMS < 1:
                numeric = expression.free_symbols <= base.free_symbols
                terms = SERIES_TERMS if numeric else SYMBOLIC_SERIES_TERMS
                series, order = _expand(expression, base, terms)
            part = series.coefficient(0).xreplace({LOGARITHM: sympy.S.Zero})
        except NoExpansion:
            continue
        near = _near_zero(series, base ** sympy.Rational(1, order)) if series.cancels else None
        if excluded and near is None:
            continue
        pieces = [(_finite(expression, later_bases), sympy.true)]
        if near is not None:
            polynomial, close = near
            apart = sympy.And(base > 0, close) if excluded else close
            pieces.insert(0, (_finite(polynomial, later_bases), apart))
        if not excluded and (near is None or series.start < 0):
            pieces.insert(0, (_finite(part, later_bases), sympy.Eq(base, 0)))
        return sympy.Piecewise(*pieces)
    return expression


def _with_finite_powers(expression: sympy.Expr, base: sympy.Expr, degree: sympy.Expr) -> sympy.Expr:
    """Make terms and factors baseᵖ with p < 0 zero where `base`, of degree d, is zero, if the slope
    of baseᵖ⁺¹ is O(1) there: d p + d - 1 >= 0. For constant p limits are known without this."""
    if isinstance(expression, sympy.Piecewise):
        pieces = ((_with_finite_powers(part, base, degree), held) for part, held in expression.args)
        return sympy.Piecewise(*pieces)
    if isinstance(expression, sympy.Add | sympy.Mul):
        return expression.func(
            *(_with_finite_powers(part, base, degree) for part in expression.args)
        )
    p = expression.exp if isinstance(expression, sympy.Pow) else sympy.S.Zero
    if not p.free_symbols or p.has(base) or expression.base != base:
        return expression
    is_zero = sympy.And(sympy.Eq(base, 0), p < 0, degree * (p + 1) >= 1)
    return sympy.Piecewise((0, is_zero), (expression, True))


def _near_zero(series: Series, root: sympy.Expr) -> tuple[sympy.Expr, sympy.Basic] | None:
    """Return the polynomial of a series, and where the omitted terms are rounding."""
    constant, *later = series.coefficients
    if LOGARITHM in sympy.Tuple(constant, *later).free_symbols:
        return None
    terms = [(k, c) for k, c in enumerate(later, 1) if c != 0]
    polynomial = sum((c * VARIABLE**k for k, c in terms), constant)
    near = root**series.start * sympy.horner(polynomial, VARIABLE).xreplace({VARIABLE: root})
    if not all(c.is_number for c in series.coefficients):
        parts = sympy.Add(*(sympy.Abs(c) * root**k for k, c in terms[-2:]))
        return near, parts <= ROUNDING * sympy.Abs(constant)
    scales = [float(abs(c / constant)) ** (-1 / k) for k, c in terms]
    scale = min(scales[-2:] if terms and terms[-1][0] > len(later) - 2 else [1.0, *scales])
    base, exponent = root.as_base_exp()
    radius = scale * ROUNDING ** (1 / len(later))
    return near, base <= sympy.Float(radius ** float(1 / exponent), 17)
