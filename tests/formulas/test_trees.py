"""Rewriting of formulas preserves their values, for trees of all kinds."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy
import scipy.special
import sympy

from derivatrix.compiler.differentiate.derivation import align_trace
from derivatrix.compiler.formulas import algebra, entrywise, factoring, indexing, layout, sharing
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.arrays import arranged
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.definitions import Definition, provisional_name
from derivatrix.compiler.formulas.length import length
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.numpy import AxisSum, NumPy, Solve
from derivatrix.compiler.formulas.rewrite import mapped, occurrences, replaced
from derivatrix.compiler.formulas.tree import Name, Tree
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.dimensions import Shape, evaluate
from tests.tree_makers import (
    FOUR,
    MAKERS,
    NOTATION_ONLY,
    NUMPY_ONLY,
    PLACES,
    SIZES,
    Maker,
    all_kinds,
    m,
    n,
)
from tests.trees import Reader

PRINTED = (Solve, AxisSum)
KINDS = [kind for kind in MAKERS if kind not in PRINTED]
ONE = sympy.S.One
MAX_VALUE = 1e4
"""The largest entry of a tree's parts; beyond it rounding errors exceed the tolerances."""

NORMAL: dict[type[Tree], Callable[..., Tree]] = {
    kinds.Add: lambda t: algebra.add(t.terms),
    kinds.Choice: lambda t: entrywise.choice(t.condition, t.yes, t.no),
    kinds.Diag: lambda t: algebra.diag(t.body),
    kinds.Diagonal: lambda t: algebra.diagonal(t.body),
    kinds.Function: lambda t: entrywise.function(t.function, t.arguments),
    kinds.Hadamard: lambda t: algebra.hadamard(t.factors),
    kinds.Indexed: lambda t: indexing.entry_of(t.body, t.indices),
    kinds.Logic: lambda t: entrywise.logic(t.word, t.parts),
    kinds.Matmul: lambda t: algebra.matmul(*t.factors),
    kinds.Norm: lambda t: algebra.norm(t.body),
    kinds.Over: lambda t: indexing.sum_over(dict(zip(t.over, t.sizes, strict=True)), t.body),
    kinds.Padded: lambda t: algebra.padded(t.body, t.ranges),
    kinds.Part: lambda t: algebra.part(t.body, t.ranges),
    kinds.Positive: lambda t: entrywise.positive(t.body),
    kinds.Power: lambda t: algebra.power(t.body, t.exponent),
    kinds.Raise: lambda t: algebra.raised(t.body, t.exponent),
    kinds.Relation: lambda t: entrywise.relation(t.symbol, t.left, t.right),
    kinds.Scale: lambda t: algebra.scale(t.coefficient, t.scalars, t.body),
    kinds.Spread: lambda t: entrywise.spread(t.body, t.along, t.shape),
    kinds.Total: lambda t: algebra.total(t.body),
    kinds.Trace: lambda t: algebra.trace(t.body),
    kinds.Transpose: lambda t: algebra.transpose(t.body),
    kinds.Triangle: lambda t: algebra.triangle(t.body, t.lower, t.offset),
}
"""Kind -> the constructor of its normal form, applied to the parts of a tree."""


def normal(tree: Tree) -> Tree:
    """Rebuild a tree by the constructors, from the leaves up. An array of one number stays if its
    constructor would need the shape."""
    if kinds.is_row(tree):
        return kinds.Transpose(normal(tree.body))
    if isinstance(tree, kinds.Block):
        cells = [kinds.Padded(normal(cell.body), cell.ranges) for cell in tree.cells]
        grid = layout.grid(cells)
        assert grid is not None
        return grid
    inner = mapped(tree, normal)
    construct = NORMAL.get(type(inner))
    result = construct(inner) if construct else inner
    return result if result.rank == inner.rank else inner


def read(reader: Reader, tree: Tree) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(reader.value(tree, PLACES))


class IllConditioned(Exception):
    """A refusal of a tree with a part whose entries are not finite, or too large."""


class BoundedReader(Reader):
    """A reader that raises IllConditioned; terms of sums over indices are not checked."""

    def value(self, tree: Tree, at: Mapping[str, int]) -> Any:
        value = super().value(tree, at)
        if at is PLACES and not np.abs(value).max(initial=0) <= MAX_VALUE:
            raise IllConditioned
        return value


def bounded_values(make: Maker, trees: Sequence[Tree]) -> list[np.ndarray] | None:
    """Evaluate trees; None if one is singular or ill-conditioned."""
    reader = make.reader(BoundedReader)
    try:
        return [read(reader, tree) for tree in trees]
    except (np.linalg.LinAlgError, IllConditioned):
        return None


class Sample(NamedTuple):
    """A tree, its shape and value, and the maker of the tree."""

    tree: Tree
    shape: Shape
    value: np.ndarray
    make: Maker

    def read(self, tree: Tree) -> np.ndarray:
        return read(self.make.reader(), tree)


@cache
def samples(kind: type[Tree], without: tuple[type[Tree], ...] = PRINTED) -> list[Sample]:
    """Make random trees with a root of this kind, mostly with parts of one other kind: a tree for
    each other kind, without ill-conditioned ones."""
    result = []
    inner_kinds = [inner for inner in MAKERS if inner not in without]
    for seed, inner in enumerate(inner_kinds):
        make = Maker(seed, without)
        tree, shape = make.rooted(kind, inside=inner)
        if values := bounded_values(make, [tree]):
            result.append(Sample(tree, shape, values[0], make))
    assert 2 * len(result) >= len(inner_kinds)
    return result


def same(value: object, expected: np.ndarray, tree: Tree) -> None:
    """Compare arrays; a scalar may stand for an array with equal entries."""
    array = np.asarray(value)
    assert array.shape in (expected.shape, ()), tree
    size = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(
        np.broadcast_to(array, expected.shape), expected, rtol=1e-5, atol=1e-6 * size,
        err_msg=str(tree),
    )  # fmt: skip


def test_every_kind_is_made_and_read() -> None:
    assert set(all_kinds()) == set(MAKERS)
    for kind in all_kinds():
        assert hasattr(Reader, f"of_{kind.__name__.lower()}")


def test_every_place_holds_many_kinds() -> None:
    kinds_at: dict[tuple[str, str], set[str]] = defaultdict(set)
    for kind in MAKERS:
        for seed in range(150):
            for tree in occurrences([Maker(seed).rooted(kind, 2)[0]]):
                for part in fields(tree):
                    value = getattr(tree, part.name)
                    flat = value if isinstance(value, tuple) else (value,)
                    names = [type(inner).__name__ for inner in flat if isinstance(inner, Tree)]
                    kinds_at[type(tree).__name__, part.name].update(names)
    places = {place: names for place, names in kinds_at.items() if names}
    with_few_kinds = {place for place, names in places.items() if len(names) < 12}
    assert with_few_kinds <= {("Block", "cells")}, with_few_kinds


def each_kind(test: Callable[[type[Tree]], None]) -> Callable[[type[Tree]], None]:
    return pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)(test)


@each_kind
def test_normal_forms(kind: type[Tree]) -> None:
    for sample in samples(kind):
        make = NORMAL.get(kind)
        if make is not None and not kinds.is_row(sample.tree):
            same(sample.read(make(sample.tree)), sample.value, sample.tree)
        same(sample.read(normal(sample.tree)), sample.value, sample.tree)


@each_kind
def test_transposition(kind: type[Tree]) -> None:
    for sample in samples(kind):
        for tree in (sample.tree, normal(sample.tree)):
            if tree.rank == 2:
                same(sample.read(algebra.transpose(tree)), sample.value.T, tree)
                same(sample.read(arranged(tree, (1, None, 0))), sample.value.T[:, None], tree)


@each_kind
def test_reductions(kind: type[Tree]) -> None:
    """Sums, norms, traces and products of a tree of any kind."""
    for sample in samples(kind):
        cofactor = sample.make.tree(sample.shape, 1)
        product = np.asarray(np.sum(sample.value * sample.read(cofactor)))
        for tree in (sample.tree, normal(sample.tree)):
            if tree.rank not in (1, 2):
                continue
            same(sample.read(algebra.contracted(tree, cofactor)), product, tree)
            same(sample.read(algebra.contracted(cofactor, tree)), product, tree)
            same(sample.read(algebra.total(tree)), np.asarray(sample.value.sum()), tree)
            same(sample.read(algebra.norm(tree)), np.asarray(np.linalg.norm(sample.value)), tree)
            if tree.rank == 1:
                same(sample.read(algebra.diag(tree)), np.diag(sample.value), tree)
            elif sample.value.shape[0] == sample.value.shape[1]:
                same(sample.read(algebra.trace(tree)), np.asarray(np.trace(sample.value)), tree)
                same(sample.read(algebra.diagonal(tree)), np.diagonal(sample.value), tree)
                same(sample.read(algebra.power(tree, 2)), sample.value @ sample.value, tree)


@each_kind
def test_replacing(kind: type[Tree]) -> None:
    """A part with a name in its place, in every place where it stands."""
    for sample in samples(kind):
        inner = [part for part in occurrences([sample.tree]) if not part.letters and part.rank < 3]
        for part in inner:
            if kinds.is_row(part) or isinstance(part, kinds.Padded) or part is sample.tree:
                continue
            name = Name(part.rank, "part", "part")
            reader = Reader({**sample.make.values, "part": sample.read(part)}, SIZES)
            if any(
                isinstance(occurrence, kinds.Differential)
                for occurrence in occurrences([sample.tree])
            ):
                continue
            changed = replaced(sample.tree, {part: name})
            assert part not in occurrences([changed])
            same(read(reader, changed), sample.value, sample.tree)


@each_kind
def test_layout(kind: type[Tree]) -> None:
    """Put into zeros: as blocks, and as a product with selections."""
    for sample in samples(kind):
        for tree in (sample.tree, normal(sample.tree)):
            if tree.rank in (1, 2):
                size = sympy.Integer(7)
                ranges = [(ONE, count, 1, size) for count in sample.shape]
                widths = [(1, 6 - length) for length in sample.value.shape]
                expected = np.pad(sample.value, widths)
                for padded in (kinds.Padded(tree, tuple(ranges)), algebra.padded(tree, ranges)):
                    same(sample.read(padded), expected, tree)
                    if isinstance(padded, kinds.Padded):
                        same(sample.read(layout.surrounded(padded)), expected, tree)
                        chain = algebra.selections(padded)
                        same(sample.read(kinds.Matmul(tuple(chain))), expected, tree)
                        same(sample.read(algebra.matmul(*chain)), expected, tree)


@each_kind
def test_indicators_and_products_with_ones(kind: type[Tree]) -> None:
    for sample in samples(kind):
        table = sharing.plain_indicators([sample.tree])
        same(sample.read(replaced(sample.tree, table)), sample.value, sample.tree)
        same(sample.read(indexing.as_chain(sample.tree)), sample.value, sample.tree)


def evaluated(sample: Sample, tree: Tree) -> np.ndarray:
    with np.errstate(all="ignore"):
        text = NumPy().text(tree)
        return eval(text, {"np": np, "scipy": scipy, **sample.make.values, **SIZES})


@each_kind
def test_numpy_texts(kind: type[Tree]) -> None:
    if kind not in NOTATION_ONLY:
        for sample in samples(kind, (*NOTATION_ONLY, *PRINTED)):
            tree = normal(sample.tree)
            same(evaluated(sample, tree), sample.value, tree)


@pytest.mark.parametrize("kind", PRINTED)
def test_numpy_texts_of_what_only_they_have(kind: type[Tree]) -> None:
    for seed in range(25):
        make = Maker(seed, NOTATION_ONLY)
        tree, shape = make.rooted(kind, 1)
        sample = Sample(tree, shape, read(make.reader(), tree), make)
        same(evaluated(sample, tree), sample.value, tree)


def repeating(seed: int) -> tuple[Maker, list[Tree]]:
    """A few trees of one shape and rank, products and sums of one pool of trees of any kind."""
    make = Maker(seed, (*NUMPY_ONLY, kinds.Differential))
    choose = make.random.choice
    shape = choose([(), (n,), (n, m), (n, n)])
    inner = {
        pool_shape: [make.tree(pool_shape, 1) for _ in range(2)]
        for pool_shape in pool_shapes(shape)
    }

    def chain() -> Tree:
        axes = [*shape[:1], *(choose([n, m]) for _ in range(make.random.randint(1, 2))), *shape[1:]]
        if not shape:
            row = kinds.Transpose(choose(inner[axes[0],]))
            middle = [choose(inner[pair]) for pair in itertools.pairwise(axes)]
            return algebra.matmul(row, *middle, choose(inner[axes[-1],]))
        factors = [choose(inner[pair]) for pair in itertools.pairwise(axes)]
        if len(shape) == 1:
            factors.append(choose(inner[axes[-1],]))
        elif make.random.random() < 0.3:
            place = make.random.randint(1, len(axes) - 1)
            column, row = choose(inner[axes[place - 1],]), choose(inner[axes[place],])
            factors[place - 1 : place] = [column, kinds.Transpose(row)]
        return algebra.matmul(*factors)

    def term() -> Tree:
        coefficient = choose([ONE, ONE, -ONE, sympy.Integer(2), -sympy.Rational(1, 2)])
        scalars = [choose(inner[()]) for _ in range(make.random.randint(0, 2))]
        if make.random.random() < 0.3:
            scalars.append(algebra.raised(choose(inner[()]), kinds.Number(-ONE)))
        if make.random.random() < 0.6:
            return algebra.scale(coefficient, scalars, chain())
        body = [choose(inner[shape]) for _ in range(make.random.randint(1, 3))]
        return algebra.scale(coefficient, scalars, algebra.hadamard(body))

    def total() -> Tree:
        terms: list[Tree] = []
        for _ in range(make.random.randint(2, 5)):
            new = term()
            if new not in terms and algebra.scale(-ONE, [], new) not in terms:
                terms.append(new)
        return algebra.add(terms, shape)

    return make, [total(), total()]


def pool_shapes(shape: Shape) -> list[Shape]:
    return list(dict.fromkeys([(), (n,), (m,), (n, n), (n, m), (m, n), (m, m), shape]))


@pytest.mark.parametrize("block", range(4))
def test_factoring(block: int) -> None:
    """Common factors taken out of a sum: of scalars, entry by entry and of chains."""
    changed = 0
    for seed in range(100 * block, 100 * block + 100):
        make, trees = repeating(seed)
        values = bounded_values(make, trees)
        for tree, value in zip(trees, values or (), strict=bool(values)):
            if isinstance(tree, kinds.Add):
                factored = factoring.factor(tree)
                changed += factored != tree
                same(read(make.reader(), factored), value, tree)
                if tree.rank == 2:
                    same(read(make.reader(), algebra.transpose(factored)), value.T, tree)
    assert changed > 25


def test_rows_after_a_common_column() -> None:
    """A x yᵀ + A x zᵀ B: what is added after x are rows."""
    make = Maker(0)
    A, B = (kinds.Name(2, name, name) for name in "AB")
    x, y, z = (kinds.Name(1, name, name) for name in "xyz")
    sizes = {"A": (3, 3), "B": (3, 3), "x": (3,), "y": (3,), "z": (3,)}
    values = {name: make.generator.normal(size=size) for name, size in sizes.items()}
    reader = Reader(values, SIZES)
    column = algebra.matmul(A, B, A, B, x)
    row = algebra.matmul(column, kinds.Transpose(z), B)
    tree = algebra.add([algebra.matmul(column, kinds.Transpose(y)), row])
    assert isinstance(tree, kinds.Add)
    factored = factoring.factor(tree)
    assert factored != tree
    same(read(reader, factored), read(reader, tree), tree)
    same(read(reader, algebra.transpose(factored)), read(reader, tree).T, tree)


def test_entries_of_transposes() -> None:
    make = Maker(0)
    tree = kinds.Transpose(make.tree((n, m), 0))
    value = read(make.reader(), tree)
    for indices in ((ONE, sympy.S.Zero), (ONE, None), (None, sympy.Integer(2))):
        place = tuple(slice(None) if index is None else int(index) for index in indices)
        same(read(make.reader(), indexing.entry_of(tree, indices)), value[place], tree)


def test_diagonal_matrices_are_added_as_one() -> None:
    make = Maker(0)
    vectors = [make.tree((n,), 0) for _ in range(4)]
    tree = algebra.add([kinds.Diag(vectors[0]), kinds.Diag(vectors[-1])])
    assert isinstance(tree, kinds.Diag)
    reader = make.reader()
    expected = np.diag(read(reader, vectors[0]) + read(reader, vectors[-1]))
    same(read(reader, tree), expected, tree)


def test_like_terms_are_added_as_the_first_of_them() -> None:
    """In any order of their scalars, not in that of a set, which differs between processes."""
    names = [kinds.Name(1, letter, letter) for letter in "abcdef"]
    entries = [kinds.Indexed(name, (sympy.S.Zero,)) for name in names]
    for scalars in itertools.islice(itertools.permutations(entries), 0, None, 7):
        terms = kinds.Scale(2 * ONE, scalars, None), kinds.Scale(3 * ONE, scalars[::-1], None)
        assert factoring.factor(kinds.Add(0, terms)) == kinds.Scale(5 * ONE, scalars, None)


@pytest.mark.parametrize("block", range(4))
def test_sharing(block: int) -> None:
    """Parts that trees repeat become definitions, each after those that it needs."""
    defined = 0
    for seed in range(100 * block, 100 * block + 100):
        make, (tree, second) = repeating(seed)
        values = bounded_values(make, [tree, second])
        if values is None:
            continue
        definition = Definition(provisional_name(tree.rank, 1, False), tree, (None,) * tree.rank)
        total = algebra.add([definition.name, second, tree])
        expected = 2 * values[0] + values[1]
        root, definitions = sharing.name_repeated_parts(
            total, [definition], length, set(make.values)
        )
        values_by_name = dict(make.values)
        for part in definitions:
            assert part.name.python not in values_by_name
            values_by_name[part.name.python] = read(Reader(values_by_name, SIZES), part.tree)
        same(read(Reader(values_by_name, SIZES), root), expected, total)
        defined += len(definitions) - 1
    assert defined > 50


def test_entries_of_what_a_transpose_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix, and an entry of its transpose: one name has both, and then there is nothing more
    to name."""
    monkeypatch.setattr(sharing, "count", lambda start: iter(range(start, start + 5)))
    A, B, C = (Name(2, letters, letters) for letters in ("Alpha", "Beta", "Gamma"))
    matrix = entrywise.function(sympy.tanh, [algebra.matmul(A, algebra.transpose(B))])
    reverse = algebra.matmul(B, algebra.transpose(A))
    i, j = map(sympy.Symbol, PLACES)
    entry = kinds.Function(0, "tanh", (kinds.Indexed(reverse, (i, j)),), sympy.tanh)
    product = Definition(provisional_name(2, 1, False), algebra.matmul(matrix, C), (None, None))
    total = algebra.add([entry, kinds.Indexed(product.name, (i, i))])
    root, definitions = sharing.name_repeated_parts(total, [product], length, set())
    assert len(definitions) == 2 and not root.counts[kinds.Function]
    random = np.random.default_rng(0)
    values_by_name = {name.python: random.normal(size=(3, 3)) for name in (A, B, C)}
    start, second, third = values_by_name.values()
    expected = np.tanh(second @ start.T)[0, 1]
    expected += (np.tanh(start @ second.T) @ third)[0, 0]
    for part in definitions:
        values_by_name[part.name.python] = read(Reader(values_by_name, SIZES), part.tree)
    same(read(Reader(values_by_name, SIZES), root), expected, total)


def test_complements() -> None:
    """sigmoid(−t) beside sigmoid(t)."""
    for seed in range(40):
        make = Maker(seed, NUMPY_ONLY)
        tree = make.tree((n,), 1)
        values = bounded_values(make, [tree])
        pair = [
            entrywise.function(scalar_functions.sigmoid, [argument])
            for argument in both_signs(tree)
        ]
        if values is None or any(
            isinstance(argument, kinds.Spread) or argument.letters for argument in pair
        ):
            continue
        table = sharing.complements(pair)
        assert len(table) == 1
        positive, negative = (replaced(argument, table) for argument in pair)
        same(read(make.reader(), algebra.add([positive, negative])), np.ones(values[0].shape), tree)


def both_signs(tree: Tree) -> tuple[Tree, Tree]:
    terms = tree.terms if isinstance(tree, kinds.Add) else (tree,)
    return tree, algebra.add([algebra.scale(-ONE, [], term) for term in terms])


@pytest.mark.parametrize("block", range(3))
def test_contraction(block: int) -> None:
    """Products with labels, in matrix notation."""
    count = 0
    for seed in range(500 * block, 500 * block + 500):
        make = Maker(seed, (*NUMPY_ONLY, kinds.Differential))
        sizes = (n, m, n, FOUR)
        items = []
        for _ in range(make.random.randint(1, 4)):
            labels = tuple(make.random.randrange(4) for _ in range(make.random.randint(0, 2)))
            shape = tuple(sizes[label] for label in labels)
            items.append((make.tree(shape, make.random.randint(0, 2)), labels))
        output = tuple(make.random.sample(range(4), make.random.randint(0, 2)))
        values = bounded_values(make, [tree for tree, _ in items])
        if values is None:
            continue
        result = contract(items, output, sizes)
        if result is None:
            continue
        count += 1
        unit_vectors = [np.ones(evaluate(sizes[label], SIZES)) for label in output]
        operands = [
            operand
            for value, labels in [
                *zip(values, (labels for _, labels in items), strict=True),
                *zip(unit_vectors, ((label,) for label in output), strict=True),
            ]
            for operand in (value, list(labels))
        ]
        same(read(make.reader(), result), np.einsum(*operands, list(output)), result)
    assert count > 160


def test_turning_traces() -> None:
    """The trace of a product, rotated to start as the line before."""
    for seed in range(200):
        make = Maker(seed, (*PRINTED, *NOTATION_ONLY))
        factors = [make.tree(shape, 1) for shape in ((n, m), (m, FOUR), (FOUR, n))]
        trees = [kinds.Trace(kinds.Matmul((*factors[i:], *factors[:i]))) for i in range(3)]
        values = bounded_values(make, trees)
        for tree in trees if values else ():
            for previous in trees:
                same(read(make.reader(), align_trace(tree, previous)), np.asarray(values[0]), tree)


FEW = [
    kinds.Name(rank, base, f"{base}{rank}")
    for rank, bases in enumerate(("st", "xy", "XY"))
    for base in bases
]
"""Names of scalars, vectors and square matrices."""


def combined(trees: Sequence[Tree], random: Random) -> Iterator[Tree]:
    """Combine trees by the constructors, each tree in each place."""
    number = {text: kinds.Number(sympy.Rational(text)) for text in ("-1", "2", "-1/2", "1/2")}
    scalars = [tree for tree in trees if not tree.rank]
    matrices = [tree for tree in trees if tree.rank == 2]
    vectors = [tree for tree in trees if tree.rank == 1]
    for tree in trees:
        for exponent in number.values():
            yield algebra.raised(tree, exponent)
        for coefficient in (-ONE, sympy.Integer(2), sympy.Rational(-3, 2)):
            yield algebra.scale(coefficient, [], tree)
        yield entrywise.function(sympy.exp, [tree])
        yield entrywise.function(sympy.Abs, [tree])
        yield entrywise.positive(tree)
        yield algebra.scale(ONE, [random.choice(scalars)], tree)
        alike = [t for t in trees if t.rank == tree.rank and t != tree]
        for partner in [
            random.choice([s for s in scalars if s != tree]),
            *random.sample(alike, min(6, len(alike))),
        ]:
            yield algebra.add([tree, partner])
            yield algebra.add([tree, algebra.scale(-ONE, [], partner)])
            yield algebra.hadamard([tree, partner])
            yield algebra.raised(tree, partner)
            holds = entrywise.relation(random.choice([">", ">=", "<=", "<", "=="]), tree, partner)
            yield holds
            yield entrywise.logic("not", [holds])
            yield entrywise.logic(
                random.choice(["and", "or"]), [holds, entrywise.positive(partner)]
            )
            yield entrywise.choice(holds, tree, partner)
            yield entrywise.choice(holds, *random.choice([BOTH, BOTH[::-1]]))
    for tree in matrices:
        yield algebra.transpose(tree)
        yield kinds.Transpose(tree)
        yield algebra.power(tree, random.choice([-1, 2]))
        partner = random.choice(matrices)
        yield algebra.matmul(tree, partner)
        yield from (algebra.matmul(tree, kinds.Transpose(name)) for name in FEW[-2:])
        yield algebra.matmul(tree, random.choice(vectors))
        yield algebra.trace(tree)
        yield kinds.Kronecker(tree, kinds.Name(2, "Z", "Z"))
        yield kinds.Indexed(tree, (sympy.S.Zero, None))
        yield algebra.part(tree, (None, ONE))
    for tree in vectors:
        yield algebra.diag(tree)
        yield algebra.matmul(tree, kinds.Transpose(random.choice(vectors)))
        yield algebra.matmul(kinds.Transpose(tree), random.choice(vectors))
        yield kinds.Over(
            ("k",), algebra.scale(ONE, [kinds.Indexed(tree, (K,))], random.choice(vectors)), (n,)
        )


BOTH = kinds.Number(ONE), kinds.Number(sympy.S.Zero)
K = sympy.Symbol("k", integer=True)


@pytest.fixture(scope="module")
def combinations() -> list[tuple[Tree, np.ndarray]]:
    """Trees of two levels of constructors, and their values, where these are finite."""
    random = Random(0)
    generator = np.random.default_rng(0)
    values = {name.python: generator.normal(size=(3,) * name.rank) for name in FEW}
    reader = Reader({**values, "Z": generator.normal(size=(1, 1))}, SIZES)
    level_one = list(dict.fromkeys([*FEW, *combined(FEW, random)]))
    level_two = dict.fromkeys(
        [*level_one, *combined(random.sample(level_one, 80) + list(FEW), random)]
    )
    result = []
    for tree in level_two:
        with suppress(np.linalg.LinAlgError):
            value = read(reader, tree)
            if np.isfinite(value).all():
                result.append((tree, value))
    return result


@pytest.mark.parametrize("printer", math_printers().values(), ids=math_printers())
def test_one_text_has_one_meaning(
    combinations: list[tuple[Tree, np.ndarray]], printer: MathPrinter
) -> None:
    """Trees with the same text have the same value: no bracket and no sign is missing."""
    meanings: dict[tuple[str, int], tuple[Tree, np.ndarray]] = {}
    for tree, value in combinations:
        text = printer.text(tree)
        depths = np.cumsum([(part in "([{") - (part in ")]}") for part in text])
        assert depths.min() >= 0 == depths[-1], text
        same_text, expected = meanings.setdefault((text, tree.rank), (tree, value))
        if same_text != tree:
            np.testing.assert_allclose(value, expected, err_msg=f"{text}: {tree} and {same_text}")
    assert len(meanings) > 1000
