"""Structure facts of matrices that follow from their construction: symmetric, spd, lower, upper,
diagonal, ...

"psd" is positive semidefinite; "spd", definite, implies it. Facts hold in exact arithmetic, for
inputs that are as declared."""

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
from derivatrix.compiler.ir.signs import is_nonnegative, is_nonnegative_product, is_positive

DIAGONAL = frozenset({"symmetric", "lower", "upper", "diagonal"})
DECLARED_FACTS = {
    **{name: frozenset({name}) for name in ("symmetric", "lower", "upper", "orthogonal")},
    "spd": frozenset({"symmetric", "psd", "spd"}),
    "diagonal": DIAGONAL,
}
"""Facts of an input, by the structure that it is declared with."""
ORTHONORMAL = "orthonormal columns"
"""The fact of orthonormal columns; square matrices are "orthogonal" as well."""
TRANSPOSED = {"lower": "upper", "upper": "lower"}
ADDITIVE_FACTS = frozenset({"symmetric", "psd", "lower", "upper", "diagonal"})
"""Facts that a sum has if all of its terms have them."""
MAX_FACTORS = 64
"""Most factors of a product that is compared with its own transpose."""


@lru_cache(maxsize=65536)  # bounded: a node in a cache stays alive
def facts(node: ir.Node) -> frozenset[str]:
    """Return the structure facts of the last two axes of `node`; none for fewer axes."""
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        return frozenset()
    match node:
        case ir.Leaf():
            return DECLARED_FACTS.get(node.structure, frozenset())
        case ir.Constant():
            return _facts_of_constant(node.array)
        case ir.Delta():
            return DIAGONAL | {"psd", "spd", "orthogonal"}
        case ir.Sum() if node.terms:
            return _facts_of_sum(node)
        case ir.Map():
            return _facts_of_map(node)
        case ir.Apply():
            argument_facts = [facts(argument) for argument, _ in node.arguments]
            return node.operation.facts(argument_facts, node.output) - {ORTHONORMAL}
        case ir.Einsum():
            return _facts_of_einsum(node)
    return frozenset()


def _facts_of_constant(array: np.ndarray) -> frozenset[str]:
    lower, upper = (np.array_equal(array, part(array)) for part in (np.tril, np.triu))
    if lower and upper:
        return DIAGONAL
    symmetric = np.array_equal(array, array.swapaxes(-1, -2))
    return frozenset(
        {"lower"} if lower else {"upper"} if upper else {"symmetric"} if symmetric else ()
    )


def _facts_of_sum(node: ir.Sum) -> frozenset[str]:
    """Return the facts of all terms; the sum is definite if one of semidefinite terms is."""
    term_facts = [facts(term) for term in node.terms]
    result = frozenset.intersection(*term_facts) & ADDITIVE_FACTS
    if "psd" in result and any("spd" in term for term in term_facts):
        result |= {"spd"}
    if "symmetric" not in result and _exchange_sign(node, *_last_axes(node)) == 1:
        result |= {"symmetric"}
    return result


def _facts_of_map(node: ir.Map) -> frozenset[str]:
    """Return the facts that a function of entries keeps: symmetry, and zeros if f(0) = 0. Kernel
    functions of distances are semidefinite."""
    shared = frozenset.intersection(*(facts(argument) for argument in node.arguments))
    result = shared & {"symmetric"}
    if not result and _exchange_sign(node, *_last_axes(node)) == 1:
        result |= {"symmetric"}
    if shared & {"lower", "upper"}:
        zeros = {ir.slot(position): 0 for position in range(len(node.arguments))}
        if node.expression.subs(zeros) == 0:
            result |= shared & DIAGONAL
    if "symmetric" in result and _is_completely_monotone(node.expression, node.arguments):
        result |= {"psd"}
    return result


def _facts_of_einsum(node: ir.Einsum) -> frozenset[str]:
    """Return the facts of a product: transposed, scaled and weighted matrices keep facts, a product
    equal to its own transpose (AᵀA, v vᵀ) is symmetric, one of triangles triangular, A S Aᵀ
    semidefinite with S."""
    row, column = node.ndim - 2, node.ndim - 1
    result = (
        _weighted_facts(node)
        | _triangular_facts(node, row, column)
        | _diagonal_facts(node, row, column)
    )
    if "symmetric" not in result and _exchange_sign(node, row, column) == 1:
        result |= {"symmetric"}
    if "symmetric" in result and "psd" not in result:
        products = (Product.of(node), _spliced(node))
        if any(_is_semidefinite(product, row, column) for product in products):
            result |= {"psd"}
    if "psd" in result and _is_definite_kronecker(node, row, column):
        result |= {"spd"}
    return result


def _weighted_facts(node: ir.Einsum) -> frozenset[str]:
    """Return the facts of the only factor with the last two axes, weighted by the others."""
    axes = (node.ndim - 2, node.ndim - 1)
    positions = [i for i, (_, labels) in enumerate(node.factors) if set(labels) & set(axes)]
    if len(positions) != 1:
        return frozenset()
    matrix, labels = node.factors[positions[0]]
    if set(labels[-2:]) != set(axes) or set(labels[:-2]) & set(axes):
        return frozenset()
    result = facts(matrix)
    if labels[-2:] != axes:
        result = frozenset(TRANSPOSED.get(fact, fact) for fact in result)
    weights = [factor for i, factor in enumerate(node.factors) if i != positions[0]]
    if weights or node.contracted or node.coefficient != 1:
        result -= {"orthogonal"}
    if not (node.coefficient.is_positive and all(is_positive(weight) for weight, _ in weights)):
        result -= {"spd"}
    if not (node.coefficient.is_nonnegative and is_nonnegative_product(weights)):
        result -= {"psd"}
    return result


def _triangular_facts(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """Return "lower" if triangular factors link row >= ... >= column, and likewise "upper"."""
    above: dict[int, set[int]] = {}
    for factor, labels in node.factors:
        if len(labels) < 2:
            continue
        i, j = labels[-2:]
        is_mask = isinstance(factor, ir.Triangle) and factor.offset >= 0
        factor_facts = frozenset({"lower"}) if is_mask else facts(factor)
        if "lower" in factor_facts:
            above.setdefault(i, set()).add(j)
        if "upper" in factor_facts:
            above.setdefault(j, set()).add(i)
    lower = _reaches(above, row, column)
    upper = _reaches(above, column, row)
    if lower and upper:
        return DIAGONAL
    return frozenset({"lower"} if lower else {"upper"} if upper else ())


def _reaches(above: dict[int, set[int]], start: int, end: int) -> bool:
    reached, pending = {start}, [start]
    while pending:
        for label in above.get(pending.pop(), ()):
            if label not in reached:
                reached.add(label)
                pending.append(label)
    return end in reached


def _diagonal_facts(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """Return the facts of diag(w): definite for w > 0, semidefinite for w >= 0."""
    weights = [
        f for f in node.factors if not (isinstance(f[0], ir.Delta) and set(f[1]) == {row, column})
    ]
    if len(weights) == len(node.factors):
        return frozenset()
    names = [row if label == column else label for label in range(len(node.sizes))]
    renamed = ir.relabelled(weights, names)
    if node.coefficient.is_positive and all(is_positive(weight) for weight, _ in renamed):
        return frozenset({"psd", "spd"})
    is_nonnegative = node.coefficient.is_nonnegative and is_nonnegative_product(renamed)
    return frozenset({"psd"} if is_nonnegative else ())


def _is_definite_kronecker(node: ir.Einsum, row: int, column: int) -> bool:
    """Return whether a semidefinite matrix is A ⊗ B ⊗ ... with definite matrices, times positive
    weights: each label that is merged into the row is that of the column, or linked with it by a
    definite matrix."""
    merges = {labels[0]: (n, labels[1:]) for n, labels in node.factors if isinstance(n, ir.Reshape)}
    pairs, unmerged, merged = [(row, column)], set(), set()
    for i, j in pairs:
        if i in merges and j in merges and merges[i][0] is merges[j][0]:
            pairs += zip(merges[i][1], merges[j][1], strict=True)
            merged |= {i, j}
        else:
            unmerged.add(frozenset({i, j}))
    linked = {pair for pair in unmerged if len(pair) == 1}
    weights = []
    for factor, labels in node.factors:
        if "spd" in facts(factor) and frozenset(labels) in unmerged:
            linked.add(frozenset(labels))
        elif not isinstance(factor, ir.Reshape) or labels[0] not in merged:
            weights.append(factor)
    return (
        linked == unmerged and bool(node.coefficient.is_positive) and all(map(is_positive, weights))
    )


def _is_semidefinite(product: Product, row: int, column: int) -> bool:
    """Return whether a product, summed over all labels after `column`, is semidefinite: B[i,a]
    S[a,b] B[j,b] for a semidefinite S, and entrywise products of such (Schur)."""
    if not product.coefficient.is_nonnegative:
        return False
    paired = _PairedLabels(row, column)
    weights = list(product.factors)
    while touching := [factor for factor in weights if paired.touches(factor)]:
        matched = next((pair for f in touching if (pair := paired.match(f, touching))), ())
        if not matched:
            return False
        for factor in matched:
            weights.remove(factor)
    return is_nonnegative_product(weights)


class _PairedLabels:
    """The labels of a product B[i,a] S[a,b] B[j,b]: `partner` maps labels on the row's side, i and
    a, to those on the column's, j and b; `shared` are the labels on both sides, as of stacked axes
    and of sums of such products."""

    def __init__(self, row: int, column: int) -> None:
        self.partner = {row: column}
        self.shared: set[int] = set(range(row))
        self.last = column

    def touches(self, factor: ir.Factor) -> bool:
        return bool({*self.partner, *self.partner.values()} & set(factor[1]))

    def match(self, factor: ir.Factor, candidates: Sequence[ir.Factor]) -> tuple[ir.Factor, ...]:
        """Return the factors that keep the product semidefinite: a semidefinite `factor` that links
        a label and its partner, or a factor on the row's side and its copy on the column's; nothing
        if it is neither."""
        node, labels = factor
        *outer, row, column = (-1, -1, *labels)
        is_link = self.partner.get(row) == column or self.partner.get(column) == row
        if is_link:
            return (factor,) if "psd" in facts(node) and self._share(set(outer) - {-1}) else ()
        if set(labels) & set(self.partner.values()):
            return ()
        for copy in candidates:
            if copy[0] is node and copy is not factor and self._pair(labels, copy[1]):
                return factor, copy
        return ()

    def _share(self, labels: set[int]) -> bool:
        """Add labels that both sides share; return False if one of them is on one side already."""
        if labels & {*self.partner, *self.partner.values()}:
            return False
        self.shared |= labels
        return True

    def _pair(self, rows: ir.Labels, columns: ir.Labels) -> bool:
        """Pair labels on the row's side with labels on the column's; return False where earlier
        pairs contradict."""
        partner = dict(self.partner)
        for row, column in zip(rows, columns, strict=True):
            if row != column and partner.setdefault(row, column) != column:
                return False
        new_labels = {*partner, *partner.values()} - {*self.partner, *self.partner.values()}
        common = {row for row, column in zip(rows, columns, strict=True) if row == column}
        sides = {*partner, *partner.values()}
        are_apart = len(sides) == 2 * len(partner) and not sides & (common | self.shared)
        if not are_apart or any(label <= self.last for label in new_labels):
            return False
        self.partner = partner
        self.shared |= common
        return True


def canonical_factors(
    factors: Sequence[ir.Factor], ndim: int, sizes: Mapping[int, Dimension] | Sequence[Dimension]
) -> list[ir.Factor]:
    """Return the factors in canonical order with canonical labels."""
    symmetric = {node for node, _ in factors if "symmetric" in facts(node)}
    return canonical_labels(factors, symmetric, ndim, sizes)


def _last_axes(node: ir.Node) -> tuple[int, int]:
    return node.ndim - 2, node.ndim - 1


def parity(node: ir.Node, a: int, b: int) -> int | None:
    """Return the sign by which exchanging the axes `a` and `b` multiplies `node`: 1 (symmetric) or
    -1 (antisymmetric); None if the construction does not show either."""
    if node.shape[a] != node.shape[b]:
        return None
    if {a, b} == {*_last_axes(node)} and "symmetric" in facts(node):
        return 1
    return _exchange_sign(node, a, b)


@lru_cache(maxsize=65536)
def _exchange_sign(node: ir.Node, a: int, b: int) -> int | None:
    """Return the `parity` of a sum, product or function of entries by its parts."""
    match node:
        case ir.Sum():
            return _sign_of_sum(node, a, b)
        case ir.Einsum() if _keys_at(node, a) == _keys_at(node, b):
            text, coefficient = _canonical_text(node, a, a)
            exchanged_text, exchanged_coefficient = _canonical_text(node, a, b)
            if text != exchanged_text:
                return None
            return 1 if exchanged_coefficient == coefficient else -1
        case ir.Map():
            return _sign_of_map(node, a, b)
    return None


def _keys_at(node: ir.Einsum, label: int) -> list[str]:
    """List the keys of factors with a label. The lists of two labels agree if exchanging these only
    changes the sign, which costs far more to find out."""
    return sorted(factor.key for factor, labels in _spliced(node).factors if label in labels)


def _sign_of_sum(node: ir.Sum, a: int, b: int) -> int | None:
    """Return 1 if the exchanged terms are the terms, -1 if they are their negatives."""
    terms: Counter[object] = Counter()
    exchanged: Counter[object] = Counter()
    for term in node.terms:
        for coefficients, axis in ((terms, a), (exchanged, b)):
            text, coefficient = _canonical_text(term, a, axis)
            coefficients[text] += coefficient
    for sign in (1, -1):
        if all(sympy.expand(exchanged[t] - sign * terms[t]) == 0 for t in {*terms, *exchanged}):
            return sign
    return None


def _sign_of_map(node: ir.Map, a: int, b: int) -> int | None:
    """Return 1 if f of the exchanged arguments is f, -1 if it is -f."""
    texts = [_canonical_text(argument, a, a) for argument in node.arguments]
    exchanged: dict[sympy.Expr, sympy.Expr] = {}
    for position, argument in enumerate(node.arguments):
        sign = parity(argument, a, b)
        text = _canonical_text(argument, a, b)
        if sign is not None:
            exchanged[ir.slot(position)] = sign * ir.slot(position)
        elif text in texts:
            exchanged[ir.slot(position)] = ir.slot(texts.index(text))
        else:
            return None
    result = node.expression.xreplace(exchanged)
    return 1 if result == node.expression else -1 if result == -node.expression else None


def _canonical_text(node: ir.Node, a: int, b: int) -> tuple[object, sympy.Expr]:
    """Return a text of the factors of a node with axes `a` and `b` exchanged, equal for equal
    products, and the coefficient. An exchanged antisymmetric factor is the factor with a sign."""
    product = _spliced(node)
    names = {a: b, b: a}
    coefficient = product.coefficient
    renamed: list[ir.Factor] = []
    for factor, labels in product.factors:
        sign = None
        if a != b and labels.count(a) == labels.count(b) == 1:
            sign = parity(factor, labels.index(a), labels.index(b))
        if sign is None:
            labels = tuple(names.get(label, label) for label in labels)
        else:
            coefficient *= sign
        renamed.append((factor, labels))
    ordered = canonical_factors(renamed, node.ndim, product.sizes)
    return tuple((factor.key, labels) for factor, labels in ordered), coefficient


@lru_cache(maxsize=65536)
def _spliced(node: ir.Node) -> Product:
    """Return a node as a product, with products of not too many factors spliced in."""
    if not isinstance(node, ir.Einsum):
        return Product.of_factor(node)
    product = Product.of(node)
    position = 0
    while position < len(product.factors):
        factor = product.factors[position][0]
        if isinstance(factor, ir.Einsum) and _factor_count(factor) <= MAX_FACTORS:
            product = product.inlined(position)
        else:
            position += 1
    return product.counted()


@lru_cache(maxsize=65536)
def _factor_count(node: ir.Node) -> int:
    """Count the factors of a node after splicing; each square doubles it."""
    if isinstance(node, ir.Einsum):
        return sum(_factor_count(factor) for factor, _ in node.factors)
    return 1


# Kernel functions: matrices k(i, j) that are semidefinite as functions of distances
# (Schoenberg, Metric spaces and positive definite functions, 1938; Berg, Christensen and
# Ressel, Harmonic Analysis on Semigroups, 1984, chapter 3)


def _is_difference(node: ir.Node, row: int, column: int) -> bool:
    """Return whether a node is f[i] - f[j], by its axes `row` and `column`."""
    return (
        isinstance(node, ir.Sum)
        and len(node.terms) == 2
        and parity(node, row, column) == -1
        and all(len({row, column} & _varying_axes(term)) == 1 for term in node.terms)
    )


def _varying_axes(node: ir.Node) -> set[int]:
    """Return the axes along which a node may vary."""
    if not isinstance(node, ir.Einsum):
        return set(range(node.ndim))
    return {label for _, labels in node.factors for label in labels if label < node.ndim}


@lru_cache(maxsize=65536)
def _is_distance(node: ir.Node) -> bool:
    """Return whether the entries of a matrix D are a kind of squared distance: not negative, and xᵀ
    D x <= 0 for all x whose entries add up to 0."""
    row, column = _last_axes(node)
    match node:
        case ir.Sum():
            return all(
                _is_distance(term) if ir.literal(term) is None else is_nonnegative(term)
                for term in node.terms
            )
        case ir.Map():
            expression, arguments = node.expression, node.arguments
            if expression == sympy.Abs(ir.slot(0)):
                return _is_difference(arguments[0], row, column)
            return _is_bernstein(expression, arguments)
        case ir.Einsum() if (product := _spliced(node)).coefficient.is_nonnegative:
            touching = Counter(f for f in product.factors if {row, column} & {*f[1]})
            weights = [f for f in product.factors if f not in touching]
            (factor, labels), count = next(iter(touching.items()), ((node, ()), 0))
            if len(touching) != 1 or not is_nonnegative_product(weights):
                return False
            if labels.count(row) != 1 or labels.count(column) != 1:
                return False
            if count == 2:
                return _is_difference(factor, labels.index(row), labels.index(column))
            has_last_axes = labels[-2:] == (row, column) and factor.ndim == len(labels)
            return count == 1 and has_last_axes and _is_distance(factor)
    return False


def _is_conditionally_semidefinite(node: ir.Node) -> bool:
    """Return whether xᵀ T x >= 0 for all x whose entries add up to 0: true of semidefinite
    matrices, of r[i] + r[j], of minus squared distances, and of their sums."""
    row, column = _last_axes(node)
    if "psd" in facts(node):
        return True
    if isinstance(node, ir.Einsum) and (-node.coefficient).is_nonnegative:
        return _is_distance(node.scaled(-node.coefficient))
    if not isinstance(node, ir.Sum) or parity(node, row, column) != 1:
        return False
    matrices = [term for term in node.terms if {row, column} <= _varying_axes(term)]
    return all(map(_is_conditionally_semidefinite, matrices))


def _is_bernstein(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Return whether sums, multiples, powers up to 1 and log(1 + .) of distances are all that an
    expression consists of: a distance then."""
    match expression:
        case sympy.Symbol():
            return _is_distance(arguments[_position(expression)])
        case sympy.Add():
            return all(
                part.is_nonnegative if _is_constant(part) else _is_bernstein(part, arguments)
                for part in expression.args
            )
        case sympy.Mul():
            number, factor = expression.as_coeff_Mul()
            is_multiple = bool(number.is_positive) and factor != expression
            return is_multiple and _is_bernstein(factor, arguments)
        case sympy.Pow(base=base, exp=power) if power.is_number:
            return bool(0 < power <= 1) and _is_bernstein(base, arguments)
        case scalar_functions.log1p():
            return _is_bernstein(expression.args[0], arguments)
    return False


def _is_completely_monotone(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Return whether a function of distances is a semidefinite kernel: exp(-d), (c + d) ** -a with
    positive c and a, and positive numbers, products and sums of such."""
    match expression:
        case sympy.exp():
            return _is_exponent(expression.args[0], arguments)
        case sympy.Add() | sympy.Mul():
            return all(
                part.is_positive if _is_constant(part) else _is_completely_monotone(part, arguments)
                for part in expression.args
            )
        case sympy.Pow(base=base, exp=power) if power.is_number and power < 0:
            return _is_bernstein(base, arguments) and is_positive(ir.Map(base, tuple(arguments)))
    return False


def _is_exponent(expression: sympy.Expr, arguments: Sequence[ir.Node]) -> bool:
    """Return whether an expression is conditionally semidefinite: exp of it is semidefinite."""
    if isinstance(expression, sympy.Symbol):
        return _is_conditionally_semidefinite(arguments[_position(expression)])
    if isinstance(expression, sympy.Add):
        return all(part.is_number or _is_exponent(part, arguments) for part in expression.args)
    number, factor = expression.as_coeff_Mul()
    if number.is_negative:
        return _is_bernstein(factor, arguments)
    return factor != expression and _is_exponent(factor, arguments)


def _is_constant(expression: sympy.Expr) -> bool:
    """Return whether an expression has no slots, only numbers and sizes, which are positive."""
    return all(symbol.is_positive for symbol in expression.free_symbols)


def _position(symbol: sympy.Symbol) -> int:
    """Return the number of a slot."""
    return int(symbol.name[1:])
