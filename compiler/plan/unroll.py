"""Unrolling: kernels of small arrays as straight-line code, with a scalar for every entry.

All axes of such a kernel have small constant sizes, except at most one, the samples, which has one
loop: batches of small matrices, points in space, filters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.degrees import degree
from derivatrix.compiler.plan.failures import failure_text
from derivatrix.compiler.plan.index_arithmetic import entry_indices, index_symbol, separate
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.scalar_factoring import factored, reachable
from derivatrix.compiler.plan.steps import Load, LoopNest
from derivatrix.compiler.plan.straight_line import StraightLine, TooLarge
from derivatrix.compiler.plan.uses import stored
from derivatrix.compiler.simplify.root_lengths import LENGTH

MAX_ENTRIES = 128
"""Most entries of an array, for each sample, in straight-line code."""
MAX_SCALARS = 1500
"""Most scalars of a kernel in straight-line code."""
MAX_MATRIX_SIZE = 6
"""The largest size of a matrix for which an operation is unrolled."""
SAMPLE = index_symbol(0)
"""The index of the loop over the samples."""
REQUIREMENTS = {
    "positive": ("gt", "the matrix is not positive definite"),
    "nonzero": ("ne", "the matrix is singular"),
}
"""Requirement of an operation -> the comparison with zero, and the message if that is false."""

Index = tuple[sympy.Expr, ...]


def unroll(
    outputs: Sequence[tuple[ir.Node, View]],
    views: dict[ir.Node, View],
    names: Names,
    facts: Callable[[ir.Node], frozenset[str]],
) -> LoopNest | None:
    """Compute all outputs in straight-line code; None if arrays are not small, or if an operation
    cannot be unrolled. facts: node -> its facts of structure."""
    roots = [node for node, _ in outputs]
    try:
        samples = _samples(roots)
        entries = _Entries(views, samples, stored(roots), facts)
        places = [
            (Load(view.buffer, view.indices(at)), entries.entry(node, at))
            for node, view in outputs
            for at in entries.points(node.shape)
        ]
        required = [value for value, _, _ in entries.requirements]
        cheaper = factored(entries.scalars, [*(value for _, value in places), *required])
        values = iter(entries.scalars.within_range(cheaper, entries.varies))
        places = [(place, next(values)) for place, _ in places]
        requirements = [(next(values), test, text) for _, test, text in entries.requirements]
        code = StraightLine(entries.scalars, places, requirements, SAMPLE, samples, names)
        statements = code.statements()
    except TooLarge:
        return None
    output_names = ", ".join(dict.fromkeys(place.buffer.name for place, _ in places))
    return LoopNest(f"{output_names}, entry by entry", tuple(statements), straight=True)


def _samples(roots: Sequence[ir.Node]) -> sympy.Expr | None:
    """Return the only size that is not a number, or None. Raises TooLarge for several such sizes,
    for arrays with two axes of it, and for large arrays."""
    symbolic_sizes: set[sympy.Expr] = set()
    for node in ir.topological(roots):
        sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
        symbolic = [size for size in sizes if not size.is_Integer]
        entries = math.prod(int(size) for size in node.shape if size.is_Integer)
        symbolic_sizes.update(symbolic)
        if len(symbolic_sizes) > 1 or len(symbolic) > 1 or entries > MAX_ENTRIES:
            raise TooLarge
    return next(iter(symbolic_sizes), None)


class _Entries:
    """Entries of nodes as scalars. requirements: (value, operator of its comparison with zero,
    message if that is false)."""

    def __init__(
        self,
        views: dict[ir.Node, View],
        samples: sympy.Expr | None,
        stored_nodes: set[ir.Node],
        facts: Callable[[ir.Node], frozenset[str]],
    ) -> None:
        self.scalars = Scalars()
        self.requirements: list[tuple[int, str, str]] = []
        self._views = views
        self._samples = samples
        self._stored = stored_nodes
        self._facts = facts
        self._values: dict[tuple[ir.Node, Index], int] = {}
        self._varying: dict[int, bool] = {}
        self._outputs: dict[tuple[ir.Node, Index], tuple[np.ndarray, ...]] = {}

    def points(self, shape: Sequence[sympy.Expr]) -> Iterator[Index]:
        """Yield every index of an array; the sample's index is a symbol."""
        ranges = [
            (SAMPLE,) if size == self._samples else tuple(map(sympy.Integer, range(int(size))))
            for size in shape
        ]
        return itertools.product(*ranges)

    def entry(self, node: ir.Node, at: Index) -> int:
        """Return the scalar node[at]. The upper triangle of a symmetric matrix stands for both, and
        the entries beside a triangular one are 0."""
        if structure_facts := self._facts(node):
            *stack, i, j = at
            if (i < j and "lower" in structure_facts) or (i > j and "upper" in structure_facts):
                return self.scalars.number(sympy.S.Zero)
            if i > j and "symmetric" in structure_facts:
                at = (*stack, j, i)
        key = node, at
        if key not in self._values:
            value = self._computed(node, at)
            computed = node in self._stored and node not in self._views
            if computed and self.scalars.constant(value) is None:
                value = self.scalars.operate("entry", value)
            self._values[key] = value
            if len(self.scalars.entries) > MAX_SCALARS:
                raise TooLarge
        return self._values[key]

    def _computed(self, node: ir.Node, at: Index) -> int:
        """Compute the scalar node[at] from the entries of the node's children."""
        match node:
            case ir.Leaf():
                return self._input(node, at)
            case ir.Constant():
                if not all(index.is_Integer for index in at):
                    raise TooLarge
                place = tuple(map(int, at))
                return self.scalars.number(scalar_functions.number(float(node.array[place])))
            case ir.Sum():
                return self.scalars.sum([self.entry(term, at) for term in node.terms])
            case ir.Map() if node.expression == LENGTH:
                return self._length(node.arguments[0], at)
            case ir.Map():
                slots = {ir.slot(p): self.entry(a, at) for p, a in enumerate(node.arguments)}
                return self.scalars.lower(node.expression, slots)
            case ir.Apply():
                return self._operation(node, at)
            case ir.Structural():
                axes = tuple(range(node.ndim))
                return self._contraction(ir.einsum([(node, axes)], axes), at)
            case ir.Einsum():
                return self._contraction(node, at)
        raise TooLarge

    def _input(self, leaf: ir.Leaf, at: Index) -> int:
        """Return an entry of an input, or of the symmetric part of a symmetric one."""
        view, places = self._views[leaf], [at]
        if "symmetric" in self._facts(leaf) and at[-2] != at[-1]:
            places.append((*at[:-2], at[-1], at[-2]))
        if view.local:
            return self.scalars.name(view.buffer.name, degree(leaf))
        loads = [
            self.scalars.load(Load(view.buffer, view.indices(place)), degree(leaf))
            for place in places
        ]
        if len(loads) == 1:
            return loads[0]
        halves = [self.scalars.product([load], sympy.S.Half) for load in loads]
        return self.scalars.operate("entry", self.scalars.sum(halves))

    def _length(self, square: ir.Node, at: Index) -> int:
        """Compute the root of a sum of squares. A sum over the samples becomes a "length", of the
        sum and of the scaled terms that replace it beyond the range of numbers. Raises TooLarge if
        sums over the samples are only a part of the square: their terms alone would be scaled."""
        total, parts = self.entry(square, at), self._computed(square, at)
        if self._is_total(parts):
            return self.scalars.operate("length", total, self.scalars.scaled(parts, total))
        operators = {self.scalars.entries[value][0] for value in reachable(self.scalars, [parts])}
        if "total" in operators:
            raise TooLarge
        return self.scalars.length(total, parts)

    def _is_total(self, value: int) -> bool:
        """Return whether all terms of a value are sums over the samples, but for constants that
        multiply them."""
        operator, _, children = self.scalars.entries[value]
        if operator == "mul":
            children = tuple(c for c in children if self.scalars.constant(c) is None)
        if operator == "add" or (operator in ("entry", "neg", "mul") and len(children) == 1):
            return all(map(self._is_total, children))
        return operator == "total"

    def _contraction(self, node: ir.Einsum, at: Index) -> int:
        """Compute an entry of a product, with the sum over its inner labels written out."""
        binding = entry_indices(node)
        _, dense = separate(node.factors)
        outer_indices = {index_symbol(label): index for label, index in enumerate(at)}
        summed = [node.sizes[label] for label in binding.loops]
        is_over_samples = self._samples in summed
        inside = sympy.S.One if is_over_samples else node.coefficient  # 0 samples over 0 is nan
        terms = []
        for point in self.points(summed):
            inner_indices = {
                index_symbol(label): i for label, i in zip(binding.loops, point, strict=True)
            }
            indices = {**outer_indices, **inner_indices}
            if self._holds([c.xreplace(indices) for c in binding.conditions]):
                factors = [
                    self.entry(
                        factor, tuple(binding.indices[label].xreplace(indices) for label in ls)
                    )
                    for factor, ls in dense
                ]
                terms.append(self.scalars.product(factors, inside))
        value = self.scalars.sum(terms)
        if not is_over_samples:
            return value
        if not self.varies(value):
            return self.scalars.product([value], node.coefficient * self._samples)
        return self.scalars.product([self.scalars.operate("total", value)], node.coefficient)

    def varies(self, value: int) -> bool:
        """Return whether a value depends on the sample."""
        if value not in self._varying:
            operator, payload, children = self.scalars.entries[value]
            if isinstance(payload, Load):
                varying = any(SAMPLE in index.free_symbols for index in payload.indices)
            else:
                operands = children[:1] if operator == "length" else children
                varying = operator != "total" and any(map(self.varies, operands))
            self._varying[value] = varying
        return self._varying[value]

    def _holds(self, conditions: Sequence[sympy.Basic]) -> bool:
        if any(condition not in (sympy.true, sympy.false) for condition in conditions):
            raise TooLarge
        return all(condition == sympy.true for condition in conditions)

    def _operation(self, node: ir.Apply, at: Index) -> int:
        depth = len(node.stack)
        if any(not size.is_Integer for size in node.shape[depth:]):
            raise TooLarge
        stack, core = at[:depth], tuple(map(int, at[depth:]))
        key = node.sibling(0), stack
        if key not in self._outputs:
            self._outputs[key] = self._applied(node, stack)
        return self._outputs[key][node.output][core].number

    def _applied(self, node: ir.Apply, stack: Index) -> tuple[np.ndarray, ...]:
        """Compute the outputs of an operation for one index of the stack."""
        unrolled = node.operation.unrolled
        if unrolled is None:
            raise TooLarge
        algebra = _Algebra(self, lambda problem: failure_text(node, problem))
        arguments = []
        for argument, labels in node.arguments:
            core = argument.shape[len(labels) :]
            if any(not size.is_Integer or not 0 < size <= MAX_MATRIX_SIZE for size in core):
                raise TooLarge
            entries = np.empty(tuple(map(int, core)), dtype=object)
            for place in itertools.product(*(range(int(size)) for size in core)):
                index = (*(stack[label] for label in labels), *map(sympy.Integer, place))
                entries[place] = _Value(self.scalars, self.entry(argument, index))
            arguments.append(entries)
        known_facts = [self._facts(argument) for argument, _ in node.arguments]
        return unrolled(algebra, arguments, known_facts)


@dataclass(frozen=True)
class _Value:
    """A scalar with Python's arithmetic."""

    table: Scalars
    number: int

    def _wrapped(self, number: int) -> _Value:
        return _Value(self.table, number)

    def __add__(self, other: _Value) -> _Value:
        return self._wrapped(self.table.sum([self.number, other.number]))

    def __sub__(self, other: _Value) -> _Value:
        return self + -other

    def __neg__(self) -> _Value:
        return self._wrapped(self.table.product([self.number], sympy.S.NegativeOne))

    def __mul__(self, other: _Value) -> _Value:
        return self._wrapped(self.table.product([self._factor, other._factor]))

    @property
    def _factor(self) -> int:
        """The number, marked if it is a product, so that a product of it does not open it."""
        is_product = self.table.entries[self.number][0] == "mul"
        return self.table.operate("entry", self.number) if is_product else self.number

    def __truediv__(self, other: _Value) -> _Value:
        quotient = self.table.operate("div", self.number, other.number)
        return self._wrapped(self.table.operate("entry", quotient))


@dataclass(frozen=True)
class _Algebra:
    """`operations.unrolled.Algebra` on scalars."""

    entries: _Entries
    failure: Callable[[str], str]

    def _operated(self, operator: str, *operands: Any) -> _Value:
        table = self.entries.scalars
        return _Value(table, table.operate(operator, *(operand.number for operand in operands)))

    def number(self, value: float) -> _Value:
        table = self.entries.scalars
        return _Value(table, table.number(scalar_functions.number(value)))

    sqrt = partialmethod(_operated, "sqrt")
    exp = partialmethod(_operated, "exp")
    log = partialmethod(_operated, "log")
    absolute = partialmethod(_operated, "abs")
    maximum = partialmethod(_operated, "maximum")
    greater = partialmethod(_operated, "gt")

    def choose(self, condition: Any, x: Any, y: Any) -> _Value:
        # no branches: the time that Numba takes to analyse them grows with their number squared
        return x if x.number == y.number else self._operated("where", condition, x, y)

    def require(self, kind: str, x: Any) -> None:
        comparison, problem = REQUIREMENTS[kind]
        self.entries.requirements.append((x.number, comparison, self.failure(problem)))
