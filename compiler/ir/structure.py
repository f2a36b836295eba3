"""What is known of a matrix by its construction: symmetric, spd, lower, upper, diagonal, ...

"psd" is positive semidefinite; "spd", definite, implies it. Facts hold for inputs that are what
they are declared as, in exact arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.canonical import canonical_labels
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.signs import positive, product_nonnegative

DIAGONAL = frozenset({"symmetric", "lower", "upper", "diagonal"})
IMPLIED = {
    **{name: frozenset({name}) for name in ("symmetric", "lower", "upper", "orthogonal")},
    "spd": frozenset({"symmetric", "psd", "spd"}),
    "diagonal": DIAGONAL,
}
"""What is known of an input, by the structure that it is declared with."""
ORTHONORMAL = "orthonormal columns"
"""What an operation says of its result of any shape; of a square one "orthogonal" as well."""
TRANSPOSED = {"lower": "upper", "upper": "lower"}
ADDED = frozenset({"symmetric", "psd", "lower", "upper", "diagonal"})
"""Facts that a sum has where all its terms have them."""
MAX_PARTS = 64
"""The most factors that a product is taken apart into to compare it with its own transpose."""


@lru_cache(maxsize=65536)
def facts(node: ir.Node) -> frozenset[str]:
    """The structure facts of `node`, by its last two axes; none for fewer axes."""
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        return frozenset()
    match node:
        case ir.Leaf():
            return IMPLIED.get(node.structure, frozenset())
        case ir.Constant():
            return _constant(node.array)
        case ir.Delta():
            return DIAGONAL | {"psd", "spd", "orthogonal"}
        case ir.Sum() if node.terms:
            return _sum(node)
        case ir.Map():
            return _map(node)
        case ir.Apply():
            return _applied(node)
        case ir.Einsum():
            return _einsum(node)
    return frozenset()


def _constant(array: np.ndarray) -> frozenset[str]:
    lower, upper = (np.array_equal(array, part(array)) for part in (np.tril, np.triu))
    if lower and upper:
        return DIAGONAL
    symmetric = np.array_equal(array, array.swapaxes(-1, -2))
    return frozenset(
        {"lower"} if lower else {"upper"} if upper else {"symmetric"} if symmetric else ()
    )


def _applied(node: ir.Apply) -> frozenset[str]:
    known = [facts(argument) for argument, _ in node.arguments]
    return node.operation.facts(known, node.output) - {ORTHONORMAL}


def _sum(node: ir.Sum) -> frozenset[str]:
    """What all terms share; a sum of semidefinite matrices is definite if one of them is."""
    each = [facts(term) for term in node.terms]
    known = frozenset.intersection(*each) & ADDED
    if "psd" in known and any("spd" in term for term in each):
        known |= {"spd"}
    if "symmetric" not in known and _exchange_sign(node, *_last_axes(node)) == 1:
        known |= {"symmetric"}
    return known


def _map(node: ir.Map) -> frozenset[str]:
    """Entry by entry, symmetry stays, and zeros where the function of zeros is zero; kernel
    functions of distances are semidefinite."""
    shared = frozenset.intersection(*(facts(argument) for argument in node.arguments))
    known = shared & {"symmetric"}
    if not known and _exchange_sign(node, *_last_axes(node)) == 1:
        known |= {"symmetric"}
    if shared & {"lower", "upper"}:
        zeros = {ir.slot(position): 0 for position in range(len(node.arguments))}
        if node.expression.subs(zeros) == 0:
            known |= shared & DIAGONAL
    if "symmetric" in known and _is_completely_monotone(node.expression, node.arguments):
        known |= {"psd"}
    return known


def _einsum(node: ir.Einsum) -> frozenset[str]:
    """A product: transposed, scaled and weighted matrices keep facts, a product equal to its own
    transpose (AᵀA, v vᵀ) is symmetric, one of triangles triangular, A S Aᵀ semidefinite with S."""
    row, column = node.ndim - 2, node.ndim - 1
    known = _single(node) | _triangular(node, row, column) | _diagonal(node, row, column)
    if "symmetric" not in known and _exchange_sign(node, row, column) == 1:
        known |= {"symmetric"}
    if "symmetric" in known and "psd" not in known:
        products = (Product.of(node), _spliced(node))
        if any(_is_semidefinite(product, row, column) for product in products):
            known |= {"psd"}
    return known


def _single(node: ir.Einsum) -> frozenset[str]:
    """The facts of the one factor that has the last two axes, where the others are weights."""
    last = (node.ndim - 2, node.ndim - 1)
    touching = [i for i, (_, labels) in enumerate(node.factors) if set(labels) & set(last)]
    if len(touching) != 1:
        return frozenset()
    matrix, labels = node.factors[touching[0]]
    if set(labels[-2:]) != set(last) or set(labels[:-2]) & set(last):
        return frozenset()
    known = facts(matrix)
    if labels[-2:] != last:
        known = frozenset(TRANSPOSED.get(fact, fact) for fact in known)
    weights = [factor for i, factor in enumerate(node.factors) if i != touching[0]]
    if weights or node.contracted or node.coefficient != 1:
        known -= {"orthogonal"}
    if not (node.coefficient.is_positive and all(positive(weight) for weight, _ in weights)):
        known -= {"spd"}
    if not (node.coefficient.is_nonnegative and product_nonnegative(weights)):
        known -= {"psd"}
    return known


def _triangular(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """Lower where the factors are zero unless row >= ... >= column along labels they link."""
    above: dict[int, set[int]] = {}
    for factor, labels in node.factors:
        if len(labels) < 2:
            continue
        first, second = labels[-2:]
        mask = isinstance(factor, ir.Triangle) and factor.offset >= 0
        known = frozenset({"lower"}) if mask else facts(factor)
        if "lower" in known:
            above.setdefault(first, set()).add(second)
        if "upper" in known:
            above.setdefault(second, set()).add(first)
    lower = _reaches(above, row, column)
    upper = _reaches(above, column, row)
    if lower and upper:
        return DIAGONAL
    return frozenset({"lower"} if lower else {"upper"} if upper else ())


def _reaches(above: dict[int, set[int]], start: int, end: int) -> bool:
    seen, pending = {start}, [start]
    while pending:
        for label in above.get(pending.pop(), ()):
            if label not in seen:
                seen.add(label)
                pending.append(label)
    return end in seen


def _diagonal(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """diag(w) is definite where w is positive, and semidefinite where it is not negative."""
    rest = [
        f for f in node.factors if not (isinstance(f[0], ir.Delta) and set(f[1]) == {row, column})
    ]
    if len(rest) == len(node.factors):
        return frozenset()
    names = [row if label == column else label for label in range(len(node.sizes))]
    renamed = ir.relabelled(rest, names)
    if node.coefficient.is_positive and all(positive(weight) for weight, _ in renamed):
        return frozenset({"psd", "spd"})
    holds = node.coefficient.is_nonnegative and product_nonnegative(renamed)
    return frozenset({"psd"} if holds else ())


def _is_semidefinite(product: Product, row: int, column: int) -> bool:
    """Whether a product, summed over all labels after `column`, is semidefinite:
    B[i,a] S[a,b] B[j,b] for a semidefinite S, and products of such, entry by entry (Schur)."""
    if not product.coefficient.is_nonnegative:
        return False
    paired = _PairedLabels(row, column)
    rest = list(product.factors)
    while touching := [factor for factor in rest if paired.touches(factor)]:
        done = next((found for f in touching if (found := paired.take(f, touching))), ())
        if not done:
            return False
        for factor in done:
            rest.remove(factor)
    return product_nonnegative(rest)


class _PairedLabels:
    """Labels of a product B[i,a] S[a,b] B[j,b]: those that lead from the row, i and a, each with
    its partner among those that lead from the column, j and b; and those that both sides share,
    as of stacked axes and of sums of such products."""

    def __init__(self, row: int, column: int) -> None:
        self.partner = {row: column}
        self.shared: set[int] = set(range(row))
        self.last = column

    def touches(self, factor: ir.Factor) -> bool:
        return bool({*self.partner, *self.partner.values()} & set(factor[1]))

    def take(self, factor: ir.Factor, others: Sequence[ir.Factor]) -> tuple[ir.Factor, ...]:
        """The factors that keep the product semidefinite: a semidefinite `factor` that links a
        label and its partner; or a factor on the row's side and the same one on the column's.
        Nothing where it is neither."""
        node, labels = factor
        *outer, first, second = (-1, -1, *labels)
        linked = self.partner.get(first) == second or self.partner.get(second) == first
        if linked:
            return (factor,) if "psd" in facts(node) and self._share(set(outer) - {-1}) else ()
        if set(labels) & set(self.partner.values()):
            return ()
        for other in others:
            if other[0] is node and other is not factor and self._pair(labels, other[1]):
                return factor, other
        return ()

    def _share(self, labels: set[int]) -> bool:
        """Note labels that both sides share; False where one of them is on one side already."""
        if labels & {*self.partner, *self.partner.values()}:
            return False
        self.shared |= labels
        return True

    def _pair(self, labels: ir.Labels, others: ir.Labels) -> bool:
        """Note `others` as the partners of `labels`; False where that contradicts what is known."""
        partner = dict(self.partner)
        for one, two in zip(labels, others, strict=True):
            if one != two and partner.setdefault(one, two) != two:
                return False
        new = {*partner, *partner.values()} - {*self.partner, *self.partner.values()}
        same = {one for one, two in zip(labels, others, strict=True) if one == two}
        sides = {*partner, *partner.values()}
        apart = len(sides) == 2 * len(partner) and not sides & (same | self.shared)
        if not apart or any(label <= self.last for label in new):
            return False
        self.partner = partner
        self.shared |= same
        return True


def canonical_factors(
    factors: Sequence[ir.Factor], ndim: int, sizes: Mapping[int, Dimension] | Sequence[Dimension]
) -> list[ir.Factor]:
    """The factors in canonical order with canonical labels, whichever way symmetric ones lie."""
    symmetric = {node for node, _ in factors if "symmetric" in facts(node)}
    return canonical_labels(factors, symmetric, ndim, sizes)


def _last_axes(node: ir.Node) -> tuple[int, int]:
    return node.ndim - 2, node.ndim - 1


def parity(node: ir.Node, one: int, two: int) -> int | None:
    """The sign by which exchanging two axes multiplies `node`: 1 (symmetric) or -1
    (antisymmetric); None where it does neither, as far as the construction tells."""
    if node.shape[one] != node.shape[two]:
        return None
    if {one, two} == {*_last_axes(node)} and "symmetric" in facts(node):
        return 1
    return _exchange_sign(node, one, two)


@lru_cache(maxsize=65536)
def _exchange_sign(node: ir.Node, one: int, two: int) -> int | None:
    """`parity` by the parts of a sum, product or function of entries."""
    match node:
        case ir.Sum():
            return _sign_of_sum(node, one, two)
        case ir.Einsum() if _touching(node, one) == _touching(node, two):
            straight, turned = _spelling(node, one, one), _spelling(node, one, two)
            return int(turned[1] / straight[1]) if straight[0] == turned[0] else None
        case ir.Map():
            return _sign_of_map(node, one, two)
    return None


def _touching(node: ir.Einsum, label: int) -> list[str]:
    """The factors that have a label: those of two labels are alike where exchanging them changes
    no more than the sign, which costs less to see than that."""
    return sorted(factor.key for factor, labels in _spliced(node).factors if label in labels)


def _sign_of_sum(node: ir.Sum, one: int, two: int) -> int | None:
    """The terms, exchanged, have to be the terms again, or their negatives."""
    straight: Counter[object] = Counter()
    turned: Counter[object] = Counter()
    for term in node.terms:
        for terms, last in ((straight, one), (turned, two)):
            text, coefficient = _spelling(term, one, last)
            terms[text] += coefficient
    for sign in (1, -1):
        if all(sympy.expand(turned[t] - sign * straight[t]) == 0 for t in {*straight, *turned}):
            return sign
    return None


def _sign_of_map(node: ir.Map, one: int, two: int) -> int | None:
    """The function of the exchanged arguments has to be that of the arguments, or its negative."""
    straight = [_spelling(argument, one, one) for argument in node.arguments]
    exchanged: dict[sympy.Expr, sympy.Expr] = {}
    for position, argument in enumerate(node.arguments):
        sign = parity(argument, one, two)
        turned = _spelling(argument, one, two)
        if sign is not None:
            exchanged[ir.slot(position)] = sign * ir.slot(position)
        elif turned in straight:
            exchanged[ir.slot(position)] = ir.slot(straight.index(turned))
        else:
            return None
    result = node.expression.xreplace(exchanged)
    return 1 if result == node.expression else -1 if result == -node.expression else None


def _spelling(node: ir.Node, one: int, two: int) -> tuple[object, sympy.Expr]:
    """A text for the factors of a node whose axes `one` and `two` are exchanged, equal for equal
    products, and the coefficient: exchanged antisymmetric factors are the factors with a sign."""
    product = _spliced(node)
    names = {one: two, two: one}
    coefficient = product.coefficient
    renamed: list[ir.Factor] = []
    for factor, labels in product.factors:
        sign = None
        if one != two and labels.count(one) == labels.count(two) == 1:
            sign = parity(factor, labels.index(one), labels.index(two))
        if sign is None:
            labels = tuple(names.get(label, label) for label in labels)
        else:
            coefficient *= sign
        renamed.append((factor, labels))
    ordered = canonical_factors(renamed, node.ndim, product.sizes)
    return tuple((factor.key, labels) for factor, labels in ordered), coefficient


@lru_cache(maxsize=65536)
def _spliced(node: ir.Node) -> Product:
    """A node as a product, in which products of not too many factors are taken apart."""
    if not isinstance(node, ir.Einsum):
        return Product.whole(node)
    product = Product.of(node)
    position = 0
    while position < len(product.factors):
        factor = product.factors[position][0]
        if isinstance(factor, ir.Einsum) and _parts(factor) <= MAX_PARTS:
            product = product.inlined(position)
        else:
            position += 1
    return product.counted()


@lru_cache(maxsize=65536)
def _parts(node: ir.Node) -> int:
    """How many factors a node is made of when it is taken apart: twice as many by each square."""
    if isinstance(node, ir.Einsum):
        return sum(_parts(factor) for factor, _ in node.factors)
    return 1


# Kernel functions: matrices k(i, j) that are semidefinite as functions of distances
# (Schoenberg, Metric spaces and positive definite functions, 1938; Berg, Christensen and
# Ressel, Harmonic Analysis on Semigroups, 1984, chapter 3)


def _is_difference(node: ir.Node, row: int, column: int) -> bool:
    """Whether a node is f[i] - f[j], by its axes `row` and `column`."""
    return (
        isinstance(node, ir.Sum)
        and len(node.terms) == 2
        and parity(node, row, column) == -1
        and all(len({row, column} & _present(term)) == 1 for term in node.terms)
    )


def _present(node: ir.Node) -> set[int]:
    """The axes along which a node may vary."""
    if not isinstance(node, ir.Einsum):
        return set(range(node.ndim))
    return {label for _, labels in node.factors for label in labels if label < node.ndim}


@lru_cache(maxsize=65536)
def _is_distance(node: ir.Node) -> bool:
    """Whether the entries of a matrix are a kind of squared distance: not negative, and minus the
    matrix conditionally semidefinite, xᵀ D x <= 0 for all x whose entries add up to 0."""
    row, column = _last_axes(node)
    match node:
        case ir.Sum():
            return all(_is_nonnegative(term) or _is_distance(term) for term in node.terms)
        case ir.Map():
            expression, arguments = node.expression, node.arguments
            if expression == sympy.Abs(ir.slot(0)):
                return _is_difference(arguments[0], row, column)
            return _is_bernstein(expression, arguments)
        case ir.Einsum() if node.coefficient.is_nonnegative:
            product = _spliced(node)
            touching = Counter(f for f in product.factors if {row, column} & {*f[1]})
            weights = [f for f in product.factors if f not in touching]
            (factor, labels), count = next(iter(touching.items()), ((node, ()), 0))
            if len(touching) != 1 or not product_nonnegative(weights):
                return False
            if labels.count(row) != 1 or labels.count(column) != 1:
                return False
            if count == 2:
                return _is_difference(factor, labels.index(row), labels.index(column))
            core = labels[-2:] == (row, column) and factor.ndim == len(labels)
            return count == 1 and core and _is_distance(factor)
    return False


def _is_nonnegative(node: ir.Node) -> bool:
    """Whether a node is one number that is not negative."""
    number = ir.literal(node)
    return number is not None and bool(number.is_nonnegative)


def _is_conditionally_semidefinite(node: ir.Node) -> bool:
    """Whether xᵀ T x >= 0 for all x whose entries add up to 0: as for a semidefinite matrix, plus
    r[i] + r[j], minus squared distances."""
    row, column = _last_axes(node)
    if "psd" in facts(node):
        return True
    if isinstance(node, ir.Einsum) and (-node.coefficient).is_nonnegative:
        return _is_distance(node.scaled(-node.coefficient))
    if not isinstance(node, ir.Sum) or parity(node, row, column) != 1:
        return False
    both = [term for term in node.terms if {row, column} <= _present(term)]
    return all(map(_is_conditionally_semidefinite, both))


def _is_bernstein(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Whether an expression is a distance as a function of distances: sums, multiples, powers up
    to 1 and log(1 + .) of such."""
    match expression:
        case sympy.Symbol():
            return _is_distance(arguments[_position(expression)])
        case sympy.Add():
            return all(
                part.is_nonnegative or _is_bernstein(part, arguments) for part in expression.args
            )
        case sympy.Mul():
            number, rest = expression.as_coeff_Mul()
            return (
                bool(number.is_positive) and rest != expression and _is_bernstein(rest, arguments)
            )
        case sympy.Pow(base=base, exp=power) if power.is_number:
            return bool(0 < power <= 1) and _is_bernstein(base, arguments)
        case scalar_functions.log1p():
            return _is_bernstein(expression.args[0], arguments)
    return False


def _is_completely_monotone(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Whether a function of distances is a semidefinite kernel: exp(-d), (c + d) ** -a with
    positive c and a, and positive numbers, products and sums of such."""
    match expression:
        case sympy.exp():
            return _is_exponent(expression.args[0], arguments)
        case sympy.Add() | sympy.Mul():
            return all(
                part.is_positive or _is_completely_monotone(part, arguments)
                for part in expression.args
            )
        case sympy.Pow(base=base, exp=power) if power.is_number and power < 0:
            return _is_bernstein(base, arguments) and positive(ir.Map(base, tuple(arguments)))
    return False


def _is_exponent(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Whether exp of an expression is semidefinite: it is conditionally semidefinite."""
    if isinstance(expression, sympy.Symbol):
        return _is_conditionally_semidefinite(arguments[_position(expression)])
    if isinstance(expression, sympy.Add):
        return all(part.is_number or _is_exponent(part, arguments) for part in expression.args)
    number, rest = expression.as_coeff_Mul()
    if number.is_negative:
        return _is_bernstein(rest, arguments)
    return rest != expression and _is_exponent(rest, arguments)


def _position(symbol: sympy.Symbol) -> int:
    """The number of a slot."""
    return int(symbol.name[1:])
