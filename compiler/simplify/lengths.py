"""Functions of lengths: their derivatives, also where a length is zero.

‖x‖ has no derivative at 0, and what is made of it may have derivatives of any order. So a function
of lengths, φ(‖x‖), is differentiated as a function of the square s = ‖x‖²: its gradient is
2 ψ'(s) x and its Hessian 2 ψ'(s) I + 4 ψ''(s) x xᵀ with ψ(s) = φ(√s). `fused` writes all factors
and terms that are made of one length as one function ψ, whose derivatives `reduced` frees of
quotients that cancel. Where one remains, `with_lengths` gives it its limit at s = 0, and its
expansion near 0.

Where there is no limit, it gives the finite part, the constant term of the expansion in powers of
‖x‖. It is linear, so it does not depend on how an expression is written as a sum, and belongs to
the function without its odd powers of ‖x‖: of ‖x‖ itself all derivatives at 0 are 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.expansions import LOGARITHM, NoExpansion, Series, expansion
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Einsum,
    Factor,
    Labels,
    Map,
    Node,
    Sum,
    einsum,
    literal,
    slot,
    topological,
    used_slots,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.signs import positive
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.simplify import simplify

MAX_FUSED_SIZE = 200
"""Most parts of an expression that is made of several nodes."""

SERIES_TERMS = 18
"""Terms of the series that replaces a quotient near zero."""

SYMBOLIC_SERIES_TERMS = 10
"""The same where their coefficients are no numbers, and each is long."""

LIMIT_TERMS = 6
"""Terms of series that are to show a limit."""

ROUNDING = 2e-16
"""Relative size of what a series may leave out."""

VARIABLE = sympy.Symbol("t", positive=True)
"""The root of a square, in which functions of lengths are expanded."""


# One function of all that is made of the same lengths


def fused(roots: Sequence[Node]) -> list[Node]:
    """The nodes with all that is made of one length, entry by entry, as one `Map` of its square."""
    return transformed(roots, _fused)


def _fused(node: Node) -> Node:
    match node:
        case Map():
            node = _hoisted(node)
            lengths = _lengths(node)
            if any(_involves(a, lengths) for a in node.arguments if a not in lengths):
                return _Fusion(lengths).node(node) or node
        case Sum():
            return _fused_sum(node)
        case Einsum():
            return _fused_product(node)
    return node


def _fused_sum(node: Sum) -> Node:
    """A sum whose terms that are made of the same lengths are one."""
    terms: list[Node] = []
    for term in node.terms:
        lengths = _lengths(term)
        alike = [part for part in terms if lengths & _lengths(part)]
        whole = Sum((*alike, term), node.shape)
        fusion = _Fusion(_lengths(whole)).node(whole) if alike else None
        if fusion is None:
            terms.append(term)
        else:
            terms = [*(part for part in terms if part not in alike), fusion]
    if len(terms) == len(node.terms):
        return node
    return Sum(tuple(terms), node.shape) if len(terms) > 1 else terms[0]


def _hoisted(node: Map) -> Map:
    """A function of entries with squares of lengths that it computes, as x² + y², as arguments."""
    bases = [power.base for power in node.expression.atoms(sympy.Pow) if power.exp.is_Rational]
    completed = {
        base: square
        for base, argument in _slots(node).items()
        if base in bases and (square := _completed(argument)) is not None
    }
    node = Map(node.expression, tuple(completed.get(*item) for item in _slots(node).items()))
    squares = [base for base, _, _ in _variables(node) if not base.is_Symbol]
    if not squares:
        return node
    nodes = simplify([Map(base, node.arguments) for base in squares])
    places = {base: slot(place) for place, base in enumerate(squares, len(node.arguments))}
    return Map(*used_slots(node.expression.xreplace(places), (*node.arguments, *nodes)))


def _completed(node: Node) -> Node | None:
    """c Σ u² + c Σ v² ± 2 c Σ u v as c Σ (u ± v)², which is exactly 0 where it should be; None for
    other nodes."""
    if not isinstance(node, Sum) or len(node.terms) != 3:
        return None
    terms = [simplify([term])[0] for term in node.terms]
    mixed = [t for t in terms if isinstance(t, Einsum) and len(set(t.factors)) == 2]
    if len(mixed) != 1 or len(mixed[0].factors) != 2:
        return None
    (cross,) = mixed
    axes, scale = range(node.ndim), sympy.Abs(cross.coefficient) / 2
    inside = range(len(cross.sizes))
    sizes = dict(enumerate(cross.sizes))
    squares = [einsum([side, side], axes, scale, sizes) for side in cross.factors]
    if {*simplify(squares), cross} != {*terms}:
        return None
    one, other = (einsum([side], inside, sizes=sizes) for side in cross.factors)
    difference = Sum((one, other.scaled(sympy.sign(cross.coefficient))), cross.sizes)
    return simplify([einsum([(difference, inside)] * 2, axes, scale)])[0]


def _fused_product(node: Einsum) -> Node:
    """A product whose factors of the same labels that are made of the same lengths are one."""
    product = Product.of(node)
    for labels in dict.fromkeys(own for _, own in node.factors):
        group = [position for position, (_, own) in enumerate(product.factors) if own == labels]
        lengths = frozenset().union(*(_lengths(product.factors[i][0]) for i in group))
        members = [i for i in group if _involves(product.factors[i][0], lengths)]
        squares, rest = _taken(product.without(*members), _ordered(lengths), labels)
        if not members or len(members) + len(squares) < 2:
            continue
        factors = [product.factors[i][0] for i in members] + squares
        axes = range(len(labels))
        whole = einsum([(factor, axes) for factor in factors], axes)
        if (fusion := _Fusion(lengths).node(whole)) is not None:
            product = rest.times((fusion, labels))
    return node if product.factors == node.factors else product.node


def _taken(product: Product, lengths: Sequence[Node], labels: Labels) -> tuple[list[Node], Product]:
    """The squares of lengths that the product has, spliced in, at these labels, and the rest."""
    squares: list[Node] = []
    for square in lengths:
        while isinstance(square, Einsum) and square.contracted:
            places = _places(product, square, labels)
            if places is None:
                break
            squares.append(square)
            product = product.without(*places).scaled(1 / square.coefficient)
    used = {*product.output, *(label for _, own in product.factors for label in own)}
    sizes = {label: size for label, size in product.sizes.items() if label in used}
    return squares, Product(product.coefficient, product.factors, product.output, sizes)


def _places(product: Product, square: Einsum, labels: Labels) -> list[int] | None:
    """The positions of the factors of `square` in a product, which has it at `labels`."""

    def search(
        wanted: Sequence[Factor], names: Mapping[int, int], places: list[int]
    ) -> list[int] | None:
        if not wanted:
            inner = [names[label] for label in square.contracted]
            taken = [label for place in places for label in product.factors[place][1]]
            private = all(product.private(label, taken.count(label)) for label in inner)
            return places if private and not {*inner} & {*labels} else None
        (node, own), *rest = wanted
        for place, (factor, others) in enumerate(product.factors):
            if factor is not node or place in places:
                continue
            extended = {**names}
            fits = all(extended.setdefault(a, b) == b for a, b in zip(own, others, strict=True))
            result = search(rest, extended, [*places, place]) if fits else None
            if result is not None:
                return result
        return None

    return search(square.factors, dict(enumerate(labels)), [])


@lru_cache(maxsize=65536)
def _lengths(node: Node) -> frozenset[Node]:
    """The squares of whose roots, and the arrays of whose absolute values, a node's entries are
    made, entry by entry."""
    match node:
        case Map():
            slots = _slots(node)
            absolute = [part.args[0] for part in node.expression.atoms(sympy.Abs)]
            bases = [*(power.base for power in _roots(node)), *absolute]
            own = frozenset(slots[base] for base in bases if base in slots)
            return own.union(*map(_lengths, node.arguments))
        case Sum():
            return frozenset().union(*map(_lengths, node.terms))
        case Einsum() if node.coefficient.is_number:
            return frozenset().union(*map(_lengths, _entrywise(node)))
    return frozenset()


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.key)


def _entrywise(node: Einsum) -> list[Node]:
    """The factors of a product that have its axes, in order."""
    axes = tuple(range(node.ndim))
    return [factor for factor, labels in node.factors if labels == axes]


def _involves(node: Node, lengths: frozenset[Node]) -> bool:
    """Whether a node is made of the squares of these lengths, entry by entry."""
    if node in lengths:
        return True
    match node:
        case Map():
            return any(_involves(argument, lengths) for argument in node.arguments)
        case Sum():
            return any(_involves(term, lengths) for term in node.terms)
        case Einsum() if node.coefficient.is_number:
            multiple = any(_multiple(node, square) is not None for square in lengths)
            return multiple or any(_involves(factor, lengths) for factor in _entrywise(node))
    return False


def _multiple(node: Node, square: Node) -> sympy.Expr | None:
    """c where node = c square."""
    if not isinstance(node, Einsum):
        return None
    if isinstance(square, Einsum) and (node.factors, node.sizes) == (square.factors, square.sizes):
        return node.coefficient / square.coefficient
    axes = tuple(range(node.ndim))
    return node.coefficient if node.factors == ((square, axes),) else None


class _Fusion:
    """Writes nodes as one function of squares of `lengths` and of other nodes."""

    def __init__(self, lengths: frozenset[Node]) -> None:
        self.lengths = lengths
        self.squares = _ordered(lengths)
        self.arguments: list[Node] = []

    def node(self, node: Node) -> Node | None:
        """The function; None where its expression would be too long."""
        expression = self.expression(node)
        if sum(1 for _ in sympy.preorder_traversal(expression)) > MAX_FUSED_SIZE:
            return None
        return elementwise(expression, *map(Array, self.arguments)).node

    def expression(self, node: Node) -> sympy.Expr:
        number = literal(node)
        if number is not None and number.is_number:
            return number
        if not _involves(node, self.lengths) or node in self.lengths:
            return self._slot(node)
        match node:
            case Map():
                slots = _slots(node)
                return node.expression.xreplace(
                    {symbol: self.expression(part) for symbol, part in slots.items()}
                )
            case Sum():
                involved = [term for term in node.terms if _involves(term, self.lengths)]
                rest = tuple(term for term in node.terms if term not in involved)
                if rest:
                    involved += simplify([Sum(rest, node.shape)])
                return sympy.Add(*map(self.expression, involved))
        assert isinstance(node, Einsum)
        for square in self.squares:
            if (multiple := _multiple(node, square)) is not None:
                return multiple * self._slot(square)
        return self._product(node)

    def _product(self, node: Einsum) -> sympy.Expr:
        product = Product.of(node)
        axes = tuple(range(node.ndim))
        inner = [
            place
            for place, (factor, labels) in enumerate(product.factors)
            if labels == axes and _involves(factor, self.lengths)
        ]
        squares, rest = _taken(product.without(*inner), self.squares, axes)
        parts = [self.expression(product.factors[place][0]) for place in inner]
        parts += [self._slot(square) for square in squares]
        if rest.factors:
            (outside,) = simplify([rest.scaled(1 / rest.coefficient).node])
            parts.append(self._slot(outside))
        return sympy.Mul(rest.coefficient, *parts)

    def _slot(self, node: Node) -> sympy.Symbol:
        if node not in self.arguments:
            self.arguments.append(node)
        return slot(self.arguments.index(node))


# Derivatives without quotients that cancel


def slope(node: Map, place: int) -> sympy.Expr:
    """The derivative of a function of arrays by its argument at a place."""
    variable = slot(place)
    if node.expression.has(sympy.Abs(variable)) and not node.expression.has(sympy.Piecewise):
        result = _slope_by_parity(node.expression, variable)
        if result is not None:
            return result
    result = scalar_functions.derivative(node.expression, slot(place))
    squares = {power.base for power in _roots(node)} & result.free_symbols
    return reduced(result, sorted(squares, key=str)) if squares else result


def _slope_by_parity(expression: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr | None:
    """The derivative of an even or odd function of x and |x|, in lowest terms of |x|; None for
    others. That of f(|x|) is (f'(|x|)/|x|) x where this has a value at 0, else f'(|x|) sign(x)."""
    length, sign = sympy.Symbol("length", positive=True), sympy.Symbol("sign", real=True)
    names = {sympy.Abs(variable): length, sympy.sign(variable): sign, variable: sign * length}
    inside = expression.xreplace(names)
    right, left = inside.xreplace({sign: sympy.S.One}), inside.xreplace({sign: -sympy.S.One})
    result = reduced(scalar_functions.derivative(right, length), [length])
    if sympy.expand(right + left) == 0:
        return result.xreplace({length: sympy.Abs(variable)})
    if sympy.expand(right - left) != 0:
        return None
    ratio = reduced(result / length, [length])
    outside = (
        variable if _is_finite(ratio.xreplace({length: sympy.S.Zero})) else sympy.sign(variable)
    )
    inner = ratio if outside is variable else result
    return outside * inner.xreplace({length: sympy.Abs(variable)})


def reduced(expression: sympy.Expr, squares: Iterable[sympy.Symbol]) -> sympy.Expr:
    """An expression as a quotient in lowest terms of the roots of `squares`, of other symbols and
    of functions of them."""
    expression = sympy.piecewise_fold(expression)
    if isinstance(expression, sympy.Piecewise):
        pieces = [(reduced(part, squares), condition) for part, condition in expression.args]
        return sympy.Piecewise(*pieces)
    orders = {square: _order(expression, square) for square in squares}
    roots = {square: sympy.Symbol(f"root{square.name}", positive=True) for square in orders}
    powers = {square: root ** orders[square] for square, root in roots.items()}
    rational, names = _rational(expression.xreplace(powers))
    lowest = sympy.factor(sympy.cancel(rational)).xreplace(names)
    back = {root: square ** sympy.Rational(1, orders[square]) for square, root in roots.items()}
    return lowest.xreplace(back)


def _order(expression: sympy.Expr, square: sympy.Symbol) -> int:
    """The least q for which powers of square^(1/q) are all powers of it in the expression."""
    powers = [p.exp for p in expression.atoms(sympy.Pow) if p.base == square and p.exp.is_Rational]
    return math.lcm(*(exponent.q for exponent in powers))


def _rational(expression: sympy.Expr) -> tuple[sympy.Expr, dict[sympy.Expr, sympy.Expr]]:
    """A rational function, and what its symbols for everything else stand for. Decimal numbers
    are such: what cancels, cancels exactly."""
    parts: dict[sympy.Expr, sympy.Expr] = {}

    def named(part: sympy.Expr) -> sympy.Expr:
        if part.is_Symbol or part.is_Rational:
            return part
        if isinstance(part, sympy.Add | sympy.Mul):
            return part.func(*map(named, part.args))
        if isinstance(part, sympy.Pow) and part.exp.is_Integer:
            return named(part.base) ** part.exp
        if part.is_Float and part.is_negative:
            return -named(-part)
        return parts.setdefault(part, sympy.Dummy(real=True))

    rational = named(expression)
    ordered = sorted(parts, key=sympy.default_sort_key)  # which decides on signs of factors
    names = {part: sympy.Symbol(f"f_{i}", real=True) for i, part in enumerate(ordered)}
    rational = rational.xreplace({dummy: names[part] for part, dummy in parts.items()})
    return rational, {name: part for part, name in names.items()}


# What is left of quotients, at zero and near it


def with_lengths(roots: Sequence[Node], values: Sequence[Node]) -> list[Node]:
    """The nodes of derivatives with limits or finite parts where lengths are zero, and expansions
    near that: but at zero as they are for lengths where the function itself, of `values`, has no
    value or a slope that is not finite."""
    excluded = _without_slopes(tuple(values))

    def finite(node: Node) -> Node:
        if not isinstance(node, Map):
            return node
        bases = tuple((base, length in excluded) for base, length, _ in _variables(node))
        return Map(_finite(node.expression, bases), node.arguments)

    return _with_shared_functions(transformed(roots, finite))


@lru_cache(maxsize=256)
def _without_slopes(values: tuple[Node, ...]) -> frozenset[Node]:
    """The squares of lengths where, at zero, the values are no numbers or have infinite slopes."""
    return frozenset(
        length
        for node in topological(fused(values))
        if isinstance(node, Map)
        for variable, length, degree in _variables(node)
        if not _has_slopes(node.expression, variable, degree)
    )


def _with_shared_functions(roots: Sequence[Node]) -> list[Node]:
    """The nodes with functions, as exp(-‖x‖), that several functions of lengths are made of as
    nodes of their own, which are computed once."""
    maps = [node for node in topological(roots) if isinstance(node, Map) and _roots(node)]
    parts = {node: _functions(node) for node in maps}
    uses = Counter(part for own in parts.values() for part in own.values())

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

    return transformed(roots, shared)


def _functions(node: Map) -> dict[sympy.Expr, Node]:
    """The functions, as parts and as nodes, in a function of entries."""
    parts = sorted(node.expression.atoms(sympy.Function, sympy.exp), key=sympy.default_sort_key)
    functions = [part for part in parts if not isinstance(part, sympy.Piecewise)]
    return {part: Map(*used_slots(part, node.arguments)) for part in functions if part.free_symbols}


def _variables(node: Map) -> Iterator[tuple[sympy.Expr, Node, sympy.Expr]]:
    """What a function of entries has of lengths' squares: the expression, its node and degree."""
    slots = _slots(node)
    powers = [p.base for p in node.expression.atoms(sympy.Pow) if not _natural(p.exp)]
    compound = sorted({b for b in powers if not b.is_Symbol}, key=sympy.default_sort_key)
    for base in [*slots, *compound]:
        length = slots.get(base) or Map(base, node.arguments)
        degree = _degree(base, node.arguments)
        if degree is not None and degree.is_positive:
            yield base, length, degree


def _natural(exponent: sympy.Expr) -> bool:
    return bool(exponent.is_Integer and exponent.is_positive)


@lru_cache(maxsize=4096)
def _has_slopes(expression: sympy.Expr, base: sympy.Expr, degree: sympy.Expr) -> bool:
    """Whether a function of a length's square `base`, of that degree, tends to its value at 0, at
    least as fast as the length itself."""
    value = expression.xreplace({base: sympy.S.Zero})
    if not _is_finite(value):
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


def _is_finite(expression: sympy.Expr) -> bool:
    return not expression.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)


def _is_singular(expression: sympy.Expr, base: sympy.Expr) -> bool:
    """Whether an expression may be no smooth function of the root of `base` at 0."""
    pieces = expression.atoms(sympy.Piecewise, sympy.Abs, sympy.Max, sympy.Min)
    at_zero = expression.xreplace({base: sympy.S.Zero})
    return (
        not _is_finite(at_zero)
        or _order(expression, base) > 1
        or any(part.has(base) for part in pieces)
    )


def _expanded(expression: sympy.Expr, base: sympy.Expr, terms: int) -> tuple[Series, int]:
    """The expansion in the root of `base`, and of which order the root is."""
    order = _order(expression, base)
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
        if _is_finite(at_zero) and not has_pieces:
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


def _slots(node: Map) -> dict[sympy.Expr, Node]:
    return {slot(place): argument for place, argument in enumerate(node.arguments)}


def _roots(node: Map) -> list[sympy.Pow]:
    """The roots of squares of lengths in a function of these."""
    slots = _slots(node)
    return [
        power
        for power in node.expression.atoms(sympy.Pow)
        if power.base in slots
        and power.exp.is_Rational
        and not power.exp.is_Integer
        and _is_square(slots[power.base])
    ]


def _is_square(node: Node) -> bool:
    """Whether a node is a power of a length, zero where that is."""
    degree = _degree_of(node)
    return degree is not None and bool(degree.is_positive)


def _degree(expression: sympy.Expr, arguments: Sequence[Node]) -> sympy.Expr | None:
    """Of a sum of non-negative powers of whatever numbers, zero only where all of these are, the
    least exponent; None for what is no such sum."""
    slots = {slot(place): argument for place, argument in enumerate(arguments)}
    parts = [_degree(part, arguments) for part in expression.args]
    known = [part for part in parts if part is not None]
    match expression:
        case sympy.Symbol():
            return _degree_of(slots[expression])
        case sympy.Abs():
            return sympy.S.One
        case sympy.Pow(args=(_, exponent)) if exponent.is_number and exponent.is_positive:
            return exponent if exponent.is_even else known[0] * exponent if parts[0] else None
        case sympy.Add() | sympy.Mul() if len(known) == len(parts):
            return sympy.Min(*known) if isinstance(expression, sympy.Add) else sympy.Add(*known)
    return sympy.S.Zero if expression.is_positive else None


@lru_cache(maxsize=65536)
def _degree_of(node: Node) -> sympy.Expr | None:
    """`_degree` of a node's entries."""
    if positive(node):
        return sympy.S.Zero
    match node:
        case Map():
            return _degree(node.expression, node.arguments)
        case Sum() if node.terms:
            degrees = [_degree_of(term) for term in node.terms]
            known = [degree for degree in degrees if degree is not None]
            return sympy.Min(*known) if len(known) == len(degrees) else None
        case Einsum() if node.coefficient.is_positive:
            return _degree_of_product(node.factors, node.contracted)
    return None


def _degree_of_product(factors: Sequence[Factor], summed: Labels) -> sympy.Expr | None:
    total = sympy.S.Zero
    rest: list[Factor] = []
    for (node, labels), count in Counter(factors).items():
        if count % 2 == 0:
            total += count
        elif (degree := _degree_of(node)) is not None:
            total += count * degree
        else:
            rest += [(node, labels)] * count
    if not rest:
        return total
    return total + 2 if _is_definite(rest, summed) else None


def _is_definite(factors: Sequence[Factor], summed: Labels) -> bool:
    """Whether a product is v' (A ⊗ B ⊗ ...) v with definite matrices A, B, ...: two equal halves
    v, whose summed labels are equal or linked by such matrices."""
    links = [f for f in factors if "spd" in facts(f[0]) and len(set(f[1][-2:])) == 2]
    rest = [factor for factor in factors if factor not in links]

    def search(rest: Sequence[Factor], names: Mapping[int, int]) -> bool:
        """Whether the rest splits into halves, of which `names` maps labels to each other's."""
        if not rest:
            linked = {frozenset(labels[-2:]) for _, labels in links}
            pairs = {frozenset(pair) for pair in names.items() if pair[0] != pair[1]}
            return linked <= pairs and not {*names} & {b for a, b in names.items() if a != b}
        (node, labels), *others = rest
        for place, (other, own) in enumerate(others):
            if other is node:
                left = [*others[:place], *others[place + 1 :]]
                turned = [(*own[:-2], *own[:-3:-1])] if "symmetric" in facts(node) else []
                for target in (own, *turned):
                    for pair in ((labels, target), (target, labels)):
                        new = _extended(names, *pair, summed)
                        if new is not None and search(left, new):
                            return True
        return False

    return search(rest, {})


def _extended(
    names: Mapping[int, int], labels: Labels, targets: Labels, summed: Labels
) -> Mapping[int, int] | None:
    """The map of labels that also maps these to these; None where it cannot, and for labels that
    are not summed and differ."""
    new = dict(names)
    for label, target in zip(labels, targets, strict=True):
        if new.setdefault(label, target) != target or (label != target and label not in summed):
            return None
    return new
