"""Trees in normal form: one constructor a kind, with the rewriting that a writer would do.

Scalars come to the front, transposes are pushed to the names where that leaves fewer of them,
equal neighbours become powers, and broadcasting (`Spread`) is taken out of whatever works entry
by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import sympy

from derivatrix.compiler.dimensions import Dimension, Shape
from derivatrix.compiler.formulas.tree import (
    Add,
    Bracket,
    Choice,
    Diag,
    Diagonal,
    Function,
    Hadamard,
    Identity,
    Indexed,
    Logic,
    Mask,
    Matmul,
    Name,
    Norm,
    Number,
    Ones,
    Over,
    Part,
    Power,
    Raise,
    Range,
    Relation,
    Rows,
    Scale,
    Size,
    Spread,
    Total,
    Trace,
    Transpose,
    Tree,
    Triangle,
    Unit,
    Zeros,
    is_row,
)
from derivatrix.compiler.formulas.unicode import UNICODE, is_negative

ONE = sympy.S.One
Entrywise = Callable[[Sequence[Tree], int], Tree]


# Scalars in front


def scale(coefficient: sympy.Expr, scalars: Iterable[Tree], body: Tree | None = None) -> Tree:
    """coefficient * product of scalar trees * body."""
    pending = list(scalars)
    if isinstance(body, Spread):
        return spread(scale(coefficient, pending, body.body), body.along, body.shape)
    if isinstance(body, Zeros):
        return body
    if body is not None and body.rank == 0:
        pending.append(body)
        body = None
    powers: dict[Tree, Tree] = {}
    while pending or isinstance(body, Scale):
        if isinstance(body, Scale):
            factor: Tree = Scale(body.coefficient, body.scalars, None)
            body = body.body
        else:
            factor = pending.pop(0)
        if isinstance(factor, Scale):
            coefficient *= factor.coefficient
            pending[:0] = factor.scalars
        elif isinstance(factor, Number) and (factor.value.is_Rational or factor.value.is_Float):
            coefficient *= factor.value
        else:
            _multiply_in(powers, factor)
    return _scaled(coefficient, powers, body)


def _scaled(coefficient: sympy.Expr, powers: dict[Tree, Tree], body: Tree | None) -> Tree:
    kept = [raised(base, exponent) for base, exponent in powers.items()]
    kept.sort(key=_scalar_order)
    if body is None and not kept:
        return Number(coefficient)
    if coefficient == 1 and not kept and body is not None:
        return body
    if coefficient == 1 and body is None and len(kept) == 1:
        return kept[0]
    return Scale(coefficient, tuple(kept), body)


def _multiply_in(powers: dict[Tree, Tree], factor: Tree) -> None:
    """Collect equal factors, as numeric powers."""
    base, exponent = factor, Number(ONE)
    if isinstance(factor, Raise) and isinstance(factor.exponent, Number):
        base, exponent = factor.body, factor.exponent
    known = powers.get(base, Number(sympy.S.Zero))
    powers[base] = Number(known.value + exponent.value)  # type: ignore[attr-defined]
    if powers[base] == Number(sympy.S.Zero):
        del powers[base]


def _scalar_order(tree: Tree) -> tuple[int, str]:
    """Numbers, sizes, cotangents, others; entries of arrays stay as they come."""
    if isinstance(tree, Number):
        return 0, tree.order
    if isinstance(tree, Size) or (isinstance(tree, Raise) and isinstance(tree.body, Size)):
        return 1, tree.order
    if isinstance(tree, Bracket):
        return 4, tree.order
    if "Indexed(" in tree.order:
        return 5, ""
    return (2 if isinstance(tree, Name) and tree.accent else 3), tree.order


def _accent_position(tree: Tree) -> int | None:
    """How many names stand before the first cotangent or tangent."""
    found = [tree.order.find(f"accent='{accent}'") for accent in ("bar", "dot")]
    found = [position for position in found if position >= 0]
    return tree.order.count("Name(", 0, min(found)) if found else None


# Entry by entry


def spread(body: Tree, along: Sequence[int], shape: Shape) -> Tree:
    """`body`, whose axes are the axes `along` of the result, constant along the others."""
    if len(along) == len(shape):
        return body
    if isinstance(body, Spread):
        return spread(body.body, [along[axis] for axis in body.along], shape)
    return Spread(body, tuple(along), shape)


def _entrywise(build: Entrywise, children: Sequence[Tree], rank: int) -> Tree:
    """`build` of children of this rank or scalars, with broadcasting taken out."""
    spreads = [child for child in children if isinstance(child, Spread)]
    if not spreads:
        return build(children, rank)
    every = range(rank)
    axes = {
        axis
        for child in children
        if child.rank
        for axis in (child.along if isinstance(child, Spread) else every)
    }
    along = sorted(axes)
    shape = spreads[0].shape
    inner = tuple(shape[axis] for axis in along)
    children = [_restrict(child, along, inner) for child in children]
    return spread(build(children, len(along)), along, shape)


def _restrict(tree: Tree, along: Sequence[int], shape: Shape) -> Tree:
    if not isinstance(tree, Spread):
        return tree
    if not tree.along:
        return tree.body
    return spread(tree.body, [along.index(axis) for axis in tree.along], shape)


def add(terms: Sequence[Tree], rank: int, shape: Shape = ()) -> Tree:
    """The sum of terms of this rank or scalars; no terms: zeros of `shape`."""
    flat: list[Tree] = []
    for term in terms:
        flat += term.terms if isinstance(term, Add) else (term,)
    flat = [t for t in flat if not isinstance(t, Zeros) and t != Number(sympy.S.Zero)]
    if not flat:
        return Zeros(shape) if shape else Number(sympy.S.Zero)
    if not any(term.rank for term in flat) and rank:
        return spread(add(flat, 0), (), shape) if shape else add(flat, 0)
    return _entrywise(_add, flat, rank)


def _add(terms: Sequence[Tree], rank: int) -> Tree:
    if len(terms) == 1:
        return terms[0]
    return Add(rank, tuple(sorted(terms, key=_term_order)))


def _term_order(tree: Tree) -> tuple[int, bool, int, str]:
    """The term whose cotangent stands leftmost first, positive before negative, then shorter."""
    position = _accent_position(tree)
    text = UNICODE.text(tree)
    negative = text.startswith("−")
    return (position if position is not None else 1 << 20), negative, len(text), text


def hadamard(factors: Sequence[Tree], rank: int) -> Tree:
    """The product, entry by entry, of trees of this rank or scalars."""
    return _entrywise(_hadamard, factors, rank)


def _hadamard(factors: Sequence[Tree], rank: int) -> Tree:
    scalars: list[Tree] = []
    powers: dict[Tree, Tree] = {}
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        if factor.rank == 0:
            scalars.append(factor)
        elif isinstance(factor, Scale) and factor.body is not None:
            scalars.append(Scale(factor.coefficient, factor.scalars, None))
            pending.insert(0, factor.body)
        elif isinstance(factor, Hadamard):
            pending[:0] = factor.factors
        elif isinstance(factor, Spread) and isinstance(factor.body, Scale) and factor.body.body:
            inner = factor.body
            scalars.append(Scale(inner.coefficient, inner.scalars, None))
            pending.insert(0, Spread(factor.body.body, factor.along, factor.shape))
        elif isinstance(factor, Zeros):
            return factor
        else:
            _multiply_in(powers, factor)
    arrays = [raised(base, exponent) for base, exponent in powers.items()]
    return scale(ONE, scalars, _masked(arrays, rank))


def _masked(arrays: list[Tree], rank: int) -> Tree | None:
    """The product of arrays; the mask of a triangle takes that triangle."""
    for mask in arrays:
        upper = isinstance(mask, Transpose) and isinstance(mask.body, Mask)
        base = mask.body if upper else mask  # type: ignore[attr-defined]
        if isinstance(base, Mask) and len(arrays) > 1:
            rest = _masked([array for array in arrays if array is not mask], rank)
            assert rest is not None
            return Triangle(rest, not upper, base.offset if upper else -base.offset)
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    return Hadamard(rank, tuple(sorted(arrays, key=_factor_order)))


def _factor_order(tree: Tree) -> tuple[bool, bool, bool, str]:
    """Cotangents first, then names, divisors last."""
    plain = isinstance(tree, Name)
    return is_negative_power(tree), _accent_position(tree) is None, not plain, tree.order


def is_negative_power(tree: Tree) -> bool:
    """Whether a factor is a divisor."""
    return isinstance(tree, Raise) and is_negative(tree.exponent)


def raised(body: Tree, exponent: Tree) -> Tree:
    """A power entry by entry, or of a scalar."""
    rank = max(body.rank, exponent.rank)
    return _entrywise(lambda parts, axes: _raised(parts[0], parts[1], axes), (body, exponent), rank)


def _raised(body: Tree, exponent: Tree, rank: int) -> Tree:
    if not isinstance(exponent, Number):
        return Raise(rank, body, exponent)
    value = exponent.value
    if value.is_Float and float(2 * value).is_integer():
        value = sympy.Rational(int(2 * value), 2)
        exponent = Number(value)
    if value == 1:
        return body
    if isinstance(body, Number) and (body.value**value).is_Rational:
        return Number(body.value**value)
    if value.is_Integer and isinstance(body, Raise) and isinstance(body.exponent, Number):
        return _raised(body.body, Number(body.exponent.value * value), rank)
    if value.is_Integer and isinstance(body, Scale):
        scalars = [raised(scalar, exponent) for scalar in body.scalars]
        inner = None if body.body is None else raised(body.body, exponent)
        return scale(body.coefficient**value, scalars, inner)
    root = _square_root(body) if (2 * value).is_Integer and not value.is_Integer else None
    if root is not None:
        return _raised(root, Number(2 * value), rank)
    return Raise(rank, body, exponent)


def _square_root(tree: Tree) -> Tree | None:
    """The norm whose square `tree` is."""
    if isinstance(tree, Raise) and isinstance(tree.body, Norm) and tree.exponent == Number(2 * ONE):
        return tree.body
    if isinstance(tree, Matmul) and len(tree.factors) == 2:
        row, column = tree.factors
        if is_row(row) and row.body == column:  # type: ignore[attr-defined]
            return norm(column)
    return None


def function(head: type, arguments: Sequence[Tree], rank: int) -> Tree:
    """A SymPy function, entry by entry."""

    def build(parts: Sequence[Tree], axes: int) -> Tree:
        if len(parts) == 1 and isinstance(parts[0], Transpose):
            return Transpose(build([parts[0].body], axes))
        return Function(axes, head.__name__, tuple(parts), head)

    return _entrywise(build, arguments, rank)


def relation(symbol: str, left: Tree, right: Tree, rank: int) -> Tree:
    """A comparison, entry by entry."""
    return _entrywise(lambda parts, axes: Relation(axes, symbol, *parts), (left, right), rank)


def logic(word: str, conditions: Sequence[Tree], rank: int) -> Tree:
    """Conditions joined by "and" or "or", or one negated by "not"."""
    return _entrywise(lambda parts, axes: Logic(axes, word, tuple(parts)), conditions, rank)


def choice(condition: Tree, yes: Tree, no: Tree, rank: int) -> Tree:
    """`yes` where the condition holds, else `no`."""
    return _entrywise(lambda parts, axes: Choice(axes, *parts), (condition, yes, no), rank)


# Matrices


def transpose(tree: Tree) -> Tree:
    """A matrix transposed."""
    match tree:
        case Identity() | Diag():
            return tree
        case Transpose():
            return tree.body
        case Matmul():
            return matmul(*_flipped(tree.factors))
        case Power():
            return Power(transpose(tree.body), tree.exponent)
        case Scale() if tree.body is not None:
            return scale(tree.coefficient, tree.scalars, transpose(tree.body))
        case Spread():
            along = sorted(1 - axis for axis in tree.along)
            return spread(tree.body, along, tree.shape[::-1])
        case Zeros():
            return Zeros(tree.shape[::-1])
        case Triangle():
            return Triangle(transpose(tree.body), not tree.lower, -tree.offset)
        case Over():
            return Over(tree.over, transpose(tree.body))
    if getattr(tree, "symmetric", False):
        return tree
    if isinstance(tree, Indexed) and getattr(tree.body, "symmetric", False):
        return tree
    pushed = _pushed(tree)
    return pushed if pushed is not None else Transpose(tree)


def _pushed(tree: Tree) -> Tree | None:
    """The transpose taken inside, where that leaves no more transposes than before."""
    match tree:
        case Add():
            result = add([_turned(term) for term in tree.terms], 2)
        case Hadamard():
            result = hadamard([_turned(factor) for factor in tree.factors], 2)
        case Raise():
            result = raised(_turned(tree.body), tree.exponent)
        case Function() if len(tree.arguments) == 1:
            result = Function(2, tree.head, (_turned(tree.arguments[0]),), tree.function)
        case _:
            return None
    return result if _transposes(result) <= _transposes(tree) else None


def _turned(tree: Tree) -> Tree:
    return transpose(tree) if tree.rank == 2 else tree


def _transposes(tree: Tree) -> int:
    return tree.order.count("Transpose(")


def _flip(factor: Tree) -> Tree:
    if is_row(factor):
        return factor.body  # type: ignore[attr-defined]
    return Transpose(factor) if factor.rank == 1 else transpose(factor)


def _flipped(factors: Sequence[Tree]) -> list[Tree]:
    return [_flip(factor) for factor in reversed(factors)]


def power(body: Tree, exponent: int) -> Tree:
    """A matrix power with integer exponent."""
    if isinstance(body, Power):
        return power(body.body, body.exponent * exponent)
    if isinstance(body, Identity) or exponent == 1:
        return body
    if isinstance(body, Scale) and body.body is not None:
        scalars = [raised(scalar, Number(sympy.Integer(exponent))) for scalar in body.scalars]
        return scale(body.coefficient**exponent, scalars, power(body.body, exponent))
    if isinstance(body, Diag):
        return Diag(raised(body.body, Number(sympy.Integer(exponent))))
    return Power(body, exponent)


def matmul(*factors: Tree) -> Tree:
    """A chain of matrices, possibly starting with a row (a transposed vector) or ending with a
    column."""
    scalars: list[Tree] = []
    chain: list[Tree] = []
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        opened = _opened(factor)
        if opened is None:
            _append(chain, factor)
        else:
            scalars.append(opened[0])
            pending[:0] = opened[1]
    if len(chain) > 1:
        chain = [factor for factor in chain if not isinstance(factor, Identity)] or chain[:1]
    return scale(ONE, scalars, _closed(chain))


def _opened(factor: Tree) -> tuple[Tree, list[Tree]] | None:
    """A compound factor as a scalar and simpler factors; None for a simple one."""
    one = Number(ONE)
    match factor:
        case Matmul():
            return one, list(factor.factors)
        case Scale() if factor.body is not None:
            return Scale(factor.coefficient, factor.scalars, None), [factor.body]
        case Spread():
            rows, columns = Ones(factor.shape[0]), Ones(factor.shape[-1])
            if factor.rank == 1:
                return factor.body, [rows]
            if not factor.along:
                return factor.body, [rows, Transpose(columns)]
            if factor.along == (0,):
                return one, [factor.body, Transpose(columns)]
            return one, [rows, Transpose(factor.body)]
        case Transpose() if is_row(factor):
            inner = _opened(factor.body)
            return None if inner is None else (inner[0], _flipped(inner[1]))
    return None


def _append(chain: list[Tree], factor: Tree) -> None:
    """Append to a chain, joining neighbours."""
    joined = _joined(chain[-1], factor) if chain else None
    if joined is None:
        chain.append(factor)
    else:
        chain.pop()
        _append(chain, joined)


def _joined(left: Tree, right: Tree) -> Tree | None:
    """The product of two neighbours as one factor, where there is a way to write that."""
    if isinstance(left, Diag):
        if isinstance(right, Diag):
            return Diag(hadamard([left.body, right.body], 1))
        return hadamard([left.body, right], 1) if right.rank == 1 and not is_row(right) else None
    if isinstance(right, Diag):
        return Transpose(hadamard([left.body, right.body], 1)) if is_row(left) else None  # type: ignore[attr-defined]
    if left.rank == right.rank == 2:
        (base, first), (other, second) = _as_power(left), _as_power(right)
        if base == other and first * second > 0:
            return Power(base, first + second)
    return _selected(left, right)


def _as_power(tree: Tree) -> tuple[Tree, int]:
    return (tree.body, tree.exponent) if isinstance(tree, Power) else (tree, 1)


def _selected(left: Tree, right: Tree) -> Tree | None:
    """Products with rows of the identity, written as slices and entries."""
    if isinstance(right, Ones) and isinstance(left, Transpose) and isinstance(left.body, Rows):
        rows = left.body
        return Unit(rows.size, rows.start) if rows.count == 1 else None
    if isinstance(left, Rows) and not is_row(right):
        taken = (left.start, left.count, left.step, left.size)
        return part(right, (taken, None) if right.rank == 2 else (taken,))
    if is_row(left) and isinstance(left.body, Unit) and right.rank == 2:  # type: ignore[attr-defined]
        return Transpose(part(right, (left.body.position, None)))  # type: ignore[attr-defined]
    if isinstance(right, Unit) and left.rank == 2:
        return part(left, (None, right.position))
    if isinstance(right, Transpose) and isinstance(right.body, Rows):
        rows = right.body
        taken = (rows.start, rows.count, rows.step, rows.size)
        if is_row(left):
            return Transpose(part(left.body, (taken,)))  # type: ignore[attr-defined]
        return part(left, (None, taken)) if left.rank == 2 else None
    return None


def part(body: Tree, ranges: tuple[Range | Dimension | None, ...]) -> Tree:
    """Entries of a matrix or vector."""
    if isinstance(body, Ones) and isinstance(ranges[0], tuple):
        return Ones(ranges[0][1])
    if isinstance(body, Part):
        own = iter(ranges)
        merged = [
            next(own) if old is None or isinstance(old, tuple) else old for old in body.ranges
        ]
        kept = [old for old in body.ranges if old is None or isinstance(old, tuple)]
        if all(old is None or new is None for old, new in zip(kept, ranges, strict=True)):
            both = [
                new if new is not None else old
                for old, new in zip(body.ranges, merged, strict=True)
            ]
            return Part(body.body, tuple(both))
    if isinstance(body, Transpose) and len(ranges) == 2 and body.rank == 2:
        inner = part(body.body, ranges[::-1])
        return transpose(inner) if inner.rank == 2 else inner
    return Part(body, ranges)


def _closed(chain: list[Tree]) -> Tree:
    """A chain as a tree; scalars are written in their shorter direction."""
    if len(chain) == 1:
        return chain[0]
    if not is_row(chain[0]) or chain[-1].rank == 2 or is_row(chain[-1]):
        return Matmul(tuple(chain))
    chain = min(chain, _flipped(chain), key=_chain_order)
    first, last = chain[0].body, chain[-1]  # type: ignore[attr-defined]
    middle = chain[1:-1]
    if isinstance(first, Ones) and isinstance(last, Ones) and middle:
        return total(matmul(*middle))
    if len(chain) == 2:
        return _inner(first, last)
    return Matmul(tuple(chain))


def _chain_order(chain: list[Tree]) -> tuple[int, bool, list[str]]:
    """Few transposes, a cotangent first."""
    transposes = sum(_transposes(factor) for factor in chain)
    return transposes, _accent_position(chain[0]) is None, [factor.order for factor in chain]


def _inner(first: Tree, last: Tree) -> Tree:
    if isinstance(first, Ones):
        return total(last)
    if isinstance(last, Ones):
        return total(first)
    for unit, other in ((first, last), (last, first)):
        if isinstance(unit, Unit):
            return part(other, (unit.position,))
    if first == last and not isinstance(first, (Name, Indexed)):
        return Raise(0, norm(first), Number(2 * ONE))
    return Matmul((Transpose(first), last))


def diag(vector: Tree) -> Tree:
    """The diagonal matrix of a vector."""
    if isinstance(vector, Scale) and vector.body is not None:
        return scale(vector.coefficient, vector.scalars, diag(vector.body))
    if isinstance(vector, Spread):
        return scale(ONE, [vector.body], Identity(vector.shape[0]))
    return Identity(vector.size) if isinstance(vector, Ones) else Diag(vector)


def diagonal(matrix: Tree) -> Tree:
    """The diagonal of a square matrix."""
    if isinstance(matrix, Scale) and matrix.body is not None:
        return scale(matrix.coefficient, matrix.scalars, diagonal(matrix.body))
    if isinstance(matrix, Spread):
        return spread(matrix.body, (0,) if matrix.along else (), matrix.shape[:1])
    if isinstance(matrix, Transpose):
        return diagonal(matrix.body)
    return matrix.body if isinstance(matrix, Diag) else Diagonal(matrix)


def total(tree: Tree) -> Tree:
    """The sum of all entries."""
    if isinstance(tree, Scale) and tree.body is not None:
        return scale(tree.coefficient, tree.scalars, total(tree.body))
    if isinstance(tree, (Transpose, Diag)):
        return total(tree.body)
    if isinstance(tree, Raise) and tree.exponent == Number(2 * ONE) and tree.rank <= 2:
        if tree.rank == 1:
            return matmul(Transpose(tree.body), tree.body)
        return Raise(0, norm(tree.body), tree.exponent)
    if isinstance(tree, Hadamard) and len(tree.factors) == 2 and tree.rank <= 2:
        first, second = tree.factors
        if not is_negative_power(second):
            return contracted(first, second)
    return Total(tree)


def contracted(first: Tree, second: Tree) -> Tree:
    """The sum of the products of the entries of two vectors or matrices."""
    if first.rank == 1:
        return matmul(Transpose(first), second)
    return trace(matmul(transpose(first), second))


def norm(tree: Tree) -> Tree:
    """The Euclidean or Frobenius norm."""
    turned = transpose(tree) if tree.rank == 2 else tree
    return Norm(turned if _transposes(turned) < _transposes(tree) else tree)


def trace(matrix: Tree) -> Tree:
    """The trace, with the factors of a product turned so that it reads best."""
    match matrix:
        case Scale() if matrix.body is not None:
            return scale(matrix.coefficient, matrix.scalars, trace(matrix.body))
        case Transpose():
            return trace(matrix.body)
        case Diag():
            return total(matrix.body)
        case Spread():
            return total(diagonal(matrix))
        case Matmul():
            return _trace_of_product(matrix)
    return Trace(matrix)


def _trace_of_product(matrix: Matmul) -> Tree:
    for position, factor in enumerate(matrix.factors):
        if is_row(factor):
            return matmul(*matrix.factors[position:], *matrix.factors[:position])
    candidates = []
    for factors in (list(matrix.factors), _flipped(matrix.factors)):
        for turn in range(len(factors)):
            candidates.append(matmul(*factors[turn:], *factors[:turn]))
    best = min(candidates, key=_trace_order)
    if (
        isinstance(best, Matmul)
        and len(best.factors) == 2
        and best.factors[0] == transpose(best.factors[1])
    ):
        return Raise(0, norm(best.factors[1]), Number(2 * ONE))
    return Trace(best) if isinstance(best, (Matmul, Power)) else trace(best)


def _trace_order(tree: Tree) -> tuple[int, int, bool, str]:
    factors = tree.factors if isinstance(tree, Matmul) else (tree,)
    first = factors[0]
    inverse = isinstance(first, Power) and first.exponent < 0
    leads = inverse or isinstance(first, Transpose)
    return len(factors), _transposes(tree), not leads, tree.order
