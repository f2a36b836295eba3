"""Random formula trees of every kind, with trees of every kind in every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import sympy

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.layout import grid
from derivatrix.compiler.formulas.printers.numpy import AxisSum, Solve
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.ir.dimensions import Shape, dims, evaluate
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.compiler.operations.sylvester import SYLVESTER
from tests.trees import Reader

n, m = dims("n m")
SIZES = {"n": 3, "m": 2}
ONE, TWO, FOUR = map(sympy.Integer, (1, 2, 4))
AXES = (n, m, FOUR)
PLACES = {"i": 0, "j": 1}
"""Indices that stand for something outside of the trees."""

NOTATION_ONLY = (
    kinds.Differential,
    kinds.Indexed,
    kinds.Bracket,
    kinds.Over,
    kinds.Entries,
)
NUMPY_ONLY = (kinds.Contraction, kinds.Lengths, kinds.Arranged, kinds.Resized, Solve, AxisSum)


BASES = (kinds.Ranked, kinds.Vector, kinds.Matrix)


def all_kinds() -> list[type[Tree]]:
    """Every kind of tree that there is."""

    def below(kind: type[Tree]) -> Iterator[type[Tree]]:
        for subkind in kind.__subclasses__():
            yield subkind
            yield from below(subkind)

    all_below = dict.fromkeys(below(Tree))
    return sorted((kind for kind in all_below if kind not in BASES), key=lambda k: k.__name__)


class Maker:
    """Makes trees. `kinds`: those it may use; `values`: arrays for the names."""

    def __init__(self, seed: int, without: tuple[type[Tree], ...] = ()) -> None:
        self.random = Random(seed)
        self.generator = np.random.default_rng(seed)
        self.values: dict[str, np.ndarray] = {}
        self.makers = {kind: make for kind, make in MAKERS.items() if kind not in without}
        self.letters = list(PLACES)
        self.inside: type[Tree] | None = None
        self.level = -1

    def reader(self, kind: type[Reader] = Reader) -> Reader:
        """Return a reader of the trees made so far, with a random direction of differentials."""
        generator = np.random.default_rng(0)
        direction = {name: generator.normal(size=v.shape) for name, v in self.values.items()}
        for name in direction:
            if name.endswith("_s"):
                direction[name] = direction[name] + direction[name].T
        return kind(self.values, SIZES, (), direction)

    def rooted(
        self, kind: type[Tree], depth: int = 3, inside: type[Tree] | None = None
    ) -> tuple[Tree, Shape]:
        """A tree of a kind, and its shape, any that it can have. `inside`: what its parts mostly
        are, where their shapes allow."""
        self.inside, self.level = inside, depth - 1
        while True:
            shape = self.shape()
            tree = self.makers[kind](self, shape, depth - 1)
            if tree is not None:
                return tree, shape

    def tree(self, shape: Shape, depth: int) -> Tree:
        """A tree of a shape."""
        while depth > 0:
            kind = self.random.choice(list(self.makers))
            if self.inside and depth == self.level and self.random.random() < 0.6:
                kind = self.inside
            tree = self.makers[kind](self, shape, depth - 1)
            if tree is not None:
                return tree
        return name(self, shape, 0)

    def shape(self, ranks: tuple[int, ...] = (0, 1, 2, 2, 2, 3)) -> Shape:
        axes = tuple(self.axis() for _ in range(self.random.choice(ranks)))
        if len(axes) == 3 and self.random.random() < 0.5:
            return merging(self, axes[1:])
        return axes[:1] * 2 if len(axes) == 2 and self.random.random() < 0.3 else axes

    def axis(self) -> sympy.Expr:
        return self.random.choice(AXES)

    def entrywise(self, shape: Shape, depth: int) -> Tree:
        """A tree of the shape, or a scalar."""
        return self.tree(shape if self.random.random() < 0.8 else (), depth)

    def index(self, size: sympy.Expr) -> sympy.Expr:
        """An index below a size."""
        if length(size) == 1:
            return sympy.Integer(0)
        letters = [sympy.Symbol(letter, integer=True) for letter in self.letters]
        return self.random.choice([sympy.Integer(0), ONE, *letters, sympy.expand(size - 1)])


def length(size: sympy.Expr) -> int:
    return int(evaluate(size, SIZES))


def name(make: Maker, shape: Shape, depth: int) -> Tree:
    symmetric = len(shape) == 2 and shape[0] == shape[1] and make.random.random() < 0.3
    sizes = "x".join(map(str, shape)).translate(str.maketrans("*/+- ()", "_______"))
    accent = make.random.choice(["", "", "bar", "dot"])
    letter = make.random.choice("XYZ" if len(shape) > 1 else "xyz")
    python = f"{letter}{accent}_{sizes}{'_s' if symmetric else ''}"
    array = make.generator.uniform(0.5, 1.5, [length(size) for size in shape])
    make.values.setdefault(python, array + array.T if symmetric else array)
    return kinds.Name(len(shape), python, python, accent, symmetric)


def differential(make: Maker, shape: Shape, depth: int) -> Tree:
    return kinds.Differential(len(shape), make.tree(shape, min(depth, 1)), False)


def number(make: Maker, shape: Shape, depth: int) -> Tree | None:
    rational = sympy.Rational(make.random.randint(-3, 3) or 1, make.random.choice([1, 2, 3]))
    value = make.random.choice([rational, rational, sympy.pi, sympy.Float(0.1), sympy.sqrt(2)])
    return None if shape else kinds.Number(value)


def literal(make: Maker, shape: Shape, depth: int) -> Tree:
    array = make.generator.integers(-3, 4, [length(size) for size in shape]) + 0.5
    return kinds.Literal(len(shape), f"{array.tolist()}", array)


def part(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) > 2:
        return None
    ranges: list[object] = []
    body = []
    for axis in shape:
        larger = [size for size in AXES if length(size) >= length(axis)]
        if not larger or make.random.random() < 0.3:
            ranges.append(None)
            body.append(axis)
        else:
            size = make.random.choice(larger)
            ranges.append((*selection(make, axis, size), size))
            body.append(size)
    while len(body) < 2 and (not body or make.random.random() < 0.4):
        place = make.random.randint(0, len(body))
        size = make.axis()
        index = make.random.choice([sympy.Integer(0), ONE, sympy.expand(size - 1)])
        ranges.insert(place, index)
        body.insert(place, size)
    return kinds.Part(make.tree(tuple(body), depth), tuple(ranges))  # type: ignore[arg-type]


def selection(make: Maker, count: sympy.Expr, size: sympy.Expr) -> tuple:
    """(start, count, step) of entries of an axis of this size."""
    spare = length(size) - length(count)
    step = make.random.choice([1, 1, -1])
    start = sympy.Integer(make.random.randint(0, spare))
    return (start if step > 0 else sympy.expand(size - 1 - start)), count, step


def padded(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not 0 < len(shape) < 3 or min(map(length, shape)) < 2:
        return None
    places = [make.random.choice([None, *within(make, size)]) for size in shape]
    body = [s if place is None else place[1] for s, place in zip(shape, places, strict=True)]
    return kinds.Padded(make.tree(tuple(body), depth), tuple(places))


def within(make: Maker, size: sympy.Expr) -> list[tuple]:
    """Two ranges that an axis falls into."""
    width = ONE if length(size) < 3 else make.random.choice([ONE, TWO])
    remainder = sympy.expand(size - width)
    return [(sympy.Integer(0), width, 1, size), (width, remainder, 1, size)]


def block(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not 0 < len(shape) < 3 or min(map(length, shape)) < 2:
        return None
    ranges = [within(make, size) for size in shape]
    corners = [(a, b) for a in ranges[0] for b in ranges[-1]] if len(shape) == 2 else ranges[0]
    filled = make.random.sample(corners, make.random.randint(2, len(corners)))
    places = filled if len(shape) == 2 else [(corner,) for corner in filled]
    return grid(
        [
            kinds.Padded(make.tree(tuple(p[1] for p in place), depth), tuple(place))
            for place in places
        ]
    )


def halves(make: Maker, size: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Two sizes with this product."""
    return (TWO, TWO) if size == FOUR else make.random.choice([(ONE, size), (size, ONE)])


def kronecker(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not 0 < len(shape) < 3:
        return None
    left, right = zip(*(halves(make, size) for size in shape), strict=True)
    return kinds.Kronecker(make.tree(left, depth), make.tree(right, depth))


def commutation(make: Maker, shape: Shape, depth: int) -> Tree | None:
    sizes = make.random.choice([(ONE, FOUR), (TWO, TWO), (FOUR, ONE)])
    return kinds.Commutation(*sizes) if shape == (FOUR, FOUR) else None


def duplication(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return kinds.Duplication(TWO) if shape == (FOUR, n) else None


def elimination(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return kinds.Elimination(TWO) if shape == (n, FOUR) else None


def diagonals(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return kinds.Diagonals(m) if shape == (FOUR, m) else None


def vectorised(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 1:
        return None
    if length(shape[0]) == 3 and make.random.random() < 0.5:
        return kinds.Vectorised(make.tree((TWO, TWO), depth), True)
    return kinds.Vectorised(make.tree(halves(make, shape[0]), depth), False)


def unvectorised(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 2:
        return None
    size, *axes = merging(make, shape)
    body = make.tree((size,), depth)
    return kinds.Unvectorised(body, *shape, axes[0] == axes[1] and size == packed(axes[0]))


def matmul(make: Maker, shape: Shape, depth: int) -> Tree | None:
    """A chain; its ends are rows and columns where the shape lacks axes, and there may be the
    product of a column and a row inside."""
    if len(shape) > 2:
        return None
    left = shape[:1]
    right = shape[1:]
    factors: list[Tree] = []
    axis = left
    for _ in range(make.random.randint(0 if len(shape) == 2 else 1, 2)):
        if axis and make.random.random() < 0.3:
            factors.append(make.tree(axis, depth))
            axis = ()
        following = (make.axis(),)
        factor = make.tree((*axis, *following), depth)
        factors.append(factor if axis else kinds.Transpose(factor))
        axis = following
    final = make.tree((*axis, *right), depth)
    factors.append(kinds.Transpose(final) if right and not axis else final)
    return kinds.Matmul(tuple(factors)) if len(factors) > 1 else None


def raised(make: Maker, shape: Shape, depth: int) -> Tree:
    numbers = [-3, -2, -1, -0.5, 0.5, 2, 3]
    exponent: Tree = kinds.Number(sympy.nsimplify(make.random.choice(numbers)))
    both = make.random.random()
    if both < 0.5:
        exponent = make.entrywise(shape, depth)
    body = make.tree(shape if both > 0.1 else (), depth)
    wide = max(body.rank, exponent.rank) == len(shape)
    return kinds.Raise(len(shape), body if wide else make.tree(shape, depth), exponent)


def total(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return None if shape else kinds.Total(make.tree(make.shape((1, 2)), depth))


def norm(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return None if shape else kinds.Norm(make.tree(make.shape((1, 2)), depth))


def scale(make: Maker, shape: Shape, depth: int) -> Tree:
    coefficient = make.random.choice([ONE, -ONE, sympy.Rational(-3, 2), sympy.Float(0.1)])
    fewest = 0 if shape else 1
    scalars = tuple(make.tree((), depth) for _ in range(make.random.randint(fewest, 2)))
    return kinds.Scale(coefficient, scalars, make.tree(shape, depth) if shape else None)


def hadamard(make: Maker, shape: Shape, depth: int) -> Tree | None:
    factors = [make.tree(shape, depth) for _ in range(make.random.randint(2, 3))]
    return kinds.Hadamard(len(shape), tuple(factors)) if shape else None


def add(make: Maker, shape: Shape, depth: int) -> Tree | None:
    """A sum; not of zeros alone, as the constructor needs the shape for such a sum."""
    terms = [make.entrywise(shape, depth) for _ in range(make.random.randint(1, 2))]
    terms.insert(0, make.tree(shape, depth))
    if all(isinstance(term, kinds.Zeros) for term in terms):
        return None
    if make.random.random() < 0.2:
        terms = [scaled(-ONE, term) for term in terms]
    return kinds.Add(len(shape), tuple(terms))


def scaled(coefficient: sympy.Expr, tree: Tree) -> Tree:
    scalars, body = ((), tree) if tree.rank else ((tree,), None)
    return kinds.Scale(coefficient, scalars, body)


def spread(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not shape:
        return None
    count = make.random.randint(0, len(shape) - 1)
    along = sorted(make.random.sample(range(len(shape)), count))
    return kinds.Spread(make.tree(tuple(shape[a] for a in along), depth), tuple(along), shape)


def function(make: Maker, shape: Shape, depth: int) -> Tree:
    head, count = make.random.choice(
        [(sympy.exp, 1), (sympy.tanh, 1), (sympy.Abs, 1), (sympy.Max, 2), (sympy.atan2, 2)]
    )
    arguments = [make.tree(shape, depth), *(make.entrywise(shape, depth) for _ in range(count - 1))]
    make.random.shuffle(arguments)
    return kinds.Function(len(shape), head.__name__, tuple(arguments), head)


def relation(make: Maker, shape: Shape, depth: int) -> Tree:
    parts = [make.tree(shape, depth), make.entrywise(shape, depth)]
    make.random.shuffle(parts)
    return kinds.Relation(
        len(shape), make.random.choice([">", ">=", "<", "<=", "==", "!="]), *parts
    )


def logic(make: Maker, shape: Shape, depth: int) -> Tree:
    word = make.random.choice(["and", "or", "not"])
    parts = [make.tree(shape, depth)]
    parts += [make.entrywise(shape, depth)] if word != "not" else []
    return kinds.Logic(len(shape), word, tuple(parts))


def choice(make: Maker, shape: Shape, depth: int) -> Tree:
    parts = [make.tree(shape, depth), make.entrywise(shape, depth), make.entrywise(shape, depth)]
    make.random.shuffle(parts)
    return kinds.Choice(len(shape), *parts)


def call(make: Maker, shape: Shape, depth: int) -> Tree | None:
    def of(operation: Operation, *shapes: Shape) -> Tree:
        arguments = tuple(make.tree(argument_shape, depth) for argument_shape in shapes)
        return kinds.Call(len(shape), operation.name, arguments, (), 0, False, operation)

    match len(shape):
        case 0:
            return of(LOGSUMEXP, (make.axis(),))
        case 1:
            return of(SOFTMAX, shape)
        case 2 if shape[0] == shape[1] and make.random.random() < 0.5:
            return of(INVERSE, shape)
        case 2:
            return of(SYLVESTER, shape[:1] * 2, shape[1:] * 2, shape)
    return None


def indexed(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) > 2:
        return None
    if len(shape) == 2 and make.random.random() < 0.3:
        full_shape = merging(make, shape)
        return kinds.Indexed(make.tree(full_shape, depth), (make.index(full_shape[0]), None, None))
    body, indices = list(shape), [None] * len(shape)
    for _ in range(make.random.randint(1, 3 - len(shape))):
        place = make.random.randint(0, len(body))
        body.insert(place, make.axis())
        indices.insert(place, make.index(body[place]))  # type: ignore[arg-type]
    return kinds.Indexed(make.tree(tuple(body), depth), tuple(indices))


def bracket(make: Maker, shape: Shape, depth: int) -> Tree | None:
    symbol = make.random.choice(["==", "δ", ">=", ">", "<"])
    return None if shape else kinds.Bracket(make.index(n), symbol, make.index(m))


def over(make: Maker, shape: Shape, depth: int) -> Tree:
    letter = f"k{len(make.letters)}"
    make.letters.append(letter)
    body = make.tree(shape, depth)
    make.letters.pop()
    return kinds.Over((letter,), body, (m,))


def lengths(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) > 1:
        return None
    summed = make.random.randrange(len(shape) + 1)
    inner = list(shape)
    inner.insert(summed, make.axis())
    return kinds.Lengths(len(shape), make.tree(tuple(inner), depth), (summed,))


def contraction(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) > 2:
        return None
    if len(shape) == 2 and make.random.random() < 0.3:
        full_shape = merging(make, shape)
        return kinds.Contraction(
            2, "dab,d->ab", (make.tree(full_shape, depth), make.tree(full_shape[:1], depth))
        )
    letters = "abc"[: len(shape)]
    subscripts = "".join(make.random.sample(letters, len(letters))) + "d"
    sizes = dict(zip(letters, shape, strict=True), d=make.axis())
    operands = [make.tree(tuple(sizes[a] for a in labels), depth) for labels in (subscripts, "d")]
    return kinds.Contraction(len(shape), f"{subscripts},d->{letters}", tuple(operands))


def arranged(make: Maker, shape: Shape, depth: int) -> Tree | None:
    """All axes in another order, and one more of length 1 where there is one."""
    places: list[int | None] = list(make.random.sample(range(len(shape)), len(shape)))
    body = [shape[places.index(axis)] for axis in range(len(shape))]
    return kinds.Arranged(len(shape), make.tree(tuple(body), depth), tuple(places))


def resized(make: Maker, shape: Shape, depth: int) -> Tree | None:
    count = sympy.expand(sympy.Mul(*shape))
    return kinds.Resized(make.tree((count,), depth), shape) if shape else None


def mask(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return kinds.Mask(*shape, make.random.randint(-1, 1)) if len(shape) == 2 else None


def merged(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 3:
        return None
    count, *axes = shape
    if count == packed(axes[0]) and axes[0] == axes[1]:
        return kinds.Reshaped(*axes, True)
    return kinds.Reshaped(*axes, False) if count == sympy.expand(axes[0] * axes[1]) else None


def packed(size: sympy.Expr) -> sympy.Expr:
    """The number of entries of a triangle."""
    return sympy.expand(size * (size + 1) / 2)


def merging(make: Maker, axes: Shape) -> Shape:
    """The shape of an array that merges axes."""
    alike = axes[0] == axes[1] and make.random.random() < 0.5
    return packed(axes[0]) if alike else sympy.expand(axes[0] * axes[1]), *axes


def gathered(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 2 or shape[0] != FOUR:
        return None
    return kinds.Gathered(
        tuple(make.random.randrange(length(shape[1])) for _ in range(4)), shape[1]
    )


def rows(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 2 or length(shape[0]) > length(shape[1]):
        return None
    start, count, step = selection(make, *shape)
    return kinds.Rows(count, shape[1], start, step)


def unit(make: Maker, shape: Shape, depth: int) -> Tree | None:
    return kinds.Unit(shape[0], sympy.expand(shape[0] - 1)) if len(shape) == 1 else None


def triangle(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 2:
        return None
    lower, offset = make.random.random() < 0.5, make.random.randint(-1, 1)
    return kinds.Triangle(make.tree(shape, depth), lower, offset)


def power(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 2 or shape[0] != shape[1]:
        return None
    return kinds.Power(make.tree(shape, depth), make.random.choice([-2, -1, 2, 3]))


def solve(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not 0 < len(shape) < 3:
        return None
    return Solve(make.tree(shape[:1] * 2, depth), make.tree(shape, depth))


def axis_sum(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if len(shape) != 1:
        return None
    axis = make.random.randint(0, 1)
    body = (make.axis(), *shape) if axis == 0 else (*shape, make.axis())
    return AxisSum(make.tree(body, depth), axis)


def entries(make: Maker, shape: Shape, depth: int) -> Tree | None:
    if not 0 < len(shape) < 3:
        return None
    rows, columns = length(shape[0]), length(shape[1]) if len(shape) == 2 else 1
    table = tuple(tuple(make.tree((), depth) for _ in range(columns)) for _ in range(rows))
    return kinds.Entries(len(shape), table)


Make = Callable[[Maker, Shape, int], Tree | None]
MAKERS: dict[type[Tree], Make] = {
    kinds.Name: name,
    kinds.Entries: entries,
    kinds.Differential: differential,
    kinds.Number: number,
    kinds.Size: lambda make, shape, depth: None if shape else kinds.Size("n"),
    kinds.Literal: literal,
    kinds.Zeros: lambda make, shape, depth: kinds.Zeros(shape) if shape else None,
    kinds.Identity: lambda make, shape, depth: (
        kinds.Identity(shape[0]) if len(shape) == 2 and shape[0] == shape[1] else None
    ),
    kinds.Ones: lambda make, shape, depth: kinds.Ones(*shape) if len(shape) == 1 else None,
    kinds.Unit: unit,
    kinds.Mask: mask,
    kinds.Reshaped: merged,
    kinds.Gathered: gathered,
    kinds.Rows: rows,
    kinds.Part: part,
    kinds.Padded: padded,
    kinds.Block: block,
    kinds.Kronecker: kronecker,
    kinds.Commutation: commutation,
    kinds.Duplication: duplication,
    kinds.Elimination: elimination,
    kinds.Diagonals: diagonals,
    kinds.Vectorised: vectorised,
    kinds.Unvectorised: unvectorised,
    kinds.Transpose: lambda make, shape, depth: (
        kinds.Transpose(make.tree(shape[::-1], depth)) if len(shape) == 2 else None
    ),
    kinds.Power: power,
    kinds.Matmul: matmul,
    kinds.Diag: lambda make, shape, depth: (
        kinds.Diag(make.tree(shape[:1], depth))
        if len(shape) == 2 and shape[0] == shape[1]
        else None
    ),
    kinds.Diagonal: lambda make, shape, depth: (
        kinds.Diagonal(make.tree(shape * 2, depth)) if len(shape) == 1 else None
    ),
    kinds.Triangle: triangle,
    kinds.Trace: lambda make, shape, depth: (
        None if shape else kinds.Trace(make.tree((make.axis(),) * 2, depth))
    ),
    kinds.Total: total,
    kinds.Norm: norm,
    kinds.Scale: scale,
    kinds.Hadamard: hadamard,
    kinds.Raise: raised,
    kinds.Add: add,
    kinds.Spread: spread,
    kinds.Function: function,
    kinds.Relation: relation,
    kinds.Positive: lambda make, shape, depth: kinds.Positive(len(shape), make.tree(shape, depth)),
    kinds.Logic: logic,
    kinds.Choice: choice,
    kinds.Call: call,
    kinds.Indexed: indexed,
    kinds.Bracket: bracket,
    kinds.Over: over,
    kinds.Contraction: contraction,
    kinds.Lengths: lengths,
    kinds.Arranged: arranged,
    kinds.Resized: resized,
    Solve: solve,
    AxisSum: axis_sum,
}
"""Kind -> the maker of a tree of that kind: of a shape, with parts of less depth; None if no tree
has this shape."""
