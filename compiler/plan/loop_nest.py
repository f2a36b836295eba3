"""Loop nests: entries of nodes as scalars, the order of loops, and the loop that a value is in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.degrees import degree
from derivatrix.compiler.plan.index_arithmetic import bind, index_symbol, loop_indices, separate
from derivatrix.compiler.plan.infix import infix_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.nominal_sizes import nominal
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Guard,
    Let,
    Load,
    Loop,
    LoopNest,
    Name,
    Number,
    Operate,
    Scalar,
    Start,
    Statement,
    Store,
    Test,
)
from derivatrix.compiler.plan.visit import renamed
from derivatrix.compiler.simplify.root_lengths import LENGTH

Indices = tuple[sympy.Expr, ...]
Loops = dict[int, sympy.Expr]
"""The labels that loops run over, and their extents."""

MAX_COMMENT_LENGTH = 90
"""Most characters of a value in a comment; a longer one is f of the entries that it reads."""
TARGET_WEIGHT = 1.5
"""Weight of the entries that a nest writes, relative to those that it reads, for loop orders."""


@dataclass(frozen=True)
class View:
    """The place of a node's entries: axis a of the node is axis axes[a] of the buffer.

    local: the buffer is a scalar variable. packed: pairs of axes in which the node is symmetric;
    the two axes of a pair are one axis of the buffer, the lower triangle, row by row."""

    buffer: Buffer
    axes: tuple[int, ...]
    local: bool = False
    packed: tuple[tuple[int, ...], ...] = ()

    def indices(self, indices: Sequence[sympy.Expr]) -> Indices:
        """Return the indices in the buffer of an entry of the node."""
        buffer_indices: list[sympy.Expr] = [sympy.S.Zero] * len(self.buffer.shape)
        for axis, index in zip(self.axes, indices, strict=True):
            buffer_indices[axis] = index
        for axes in self.packed:
            pair = [indices[axis] for axis in axes]
            row, column = sympy.Max(*pair), sympy.Min(*pair)
            buffer_indices[self.axes[axes[0]]] = row * (row + 1) / 2 + column
        return tuple(buffer_indices)

    @property
    def is_natural(self) -> bool:
        """Whether the axes in memory are in the node's order."""
        return self.has_order(range(len(self.buffer.shape)))

    def has_order(self, order: Sequence[int]) -> bool:
        """Return whether the axes come in this order (axis numbers) in memory."""
        return not self.local and self.axes == tuple(map(order.index, range(len(order))))


class Builder:
    """A builder of one nest, which writes to one place.

    view_of: node -> its place in memory, None if it has none; samples: the size of an axis that
    comes last in memory, loops over which are innermost."""

    def __init__(
        self,
        view_of: Callable[[ir.Node], View | None],
        names: Names,
        samples: sympy.Symbol | None = None,
    ) -> None:
        self.scalars = Scalars()
        self._view_of = view_of
        self._values: dict[tuple[ir.Node, Indices], int] = {}
        self.names = names
        self.samples = samples

    def entry(self, node: ir.Node, indices: Sequence[sympy.Expr]) -> int:
        """Return the scalar `node[indices]`; an entry of a node without a place is computed."""
        view = self._view_of(node)
        if view is not None:
            if view.local:
                return self.scalars.name(view.buffer.name, degree(node))
            return self.scalars.load(Load(view.buffer, view.indices(indices)), degree(node))
        key = node, tuple(indices)
        if key not in self._values:
            self._values[key] = self._expanded(node, indices)
        return self._values[key]

    def _expanded(self, node: ir.Node, indices: Sequence[sympy.Expr]) -> int:
        """Compute the scalar `node[indices]` from entries of the node's children."""
        match node:
            case ir.Structural():
                axes = tuple(range(node.ndim))
                test = bind([(node, axes)], node.shape, axes, dict(enumerate(indices)))
                return self._choose(test.conditions, self.scalars.number(sympy.S.One))
            case ir.Constant():
                return self.scalars.number(scalar_functions.number(float(node.array)))
            case ir.Sum():
                return self.scalars.sum([self.entry(term, indices) for term in node.terms])
            case ir.Map() if node.expression == LENGTH:
                (square,) = node.arguments
                return self.scalars.length(
                    self.entry(square, indices), self._expanded(square, indices)
                )
            case ir.Map():
                slots = {
                    ir.slot(position): self.entry(argument, indices)
                    for position, argument in enumerate(node.arguments)
                }
                return self.scalars.lower(node.expression, slots)
            case ir.Einsum():
                return self.summand(node, indices)[0]
        raise AssertionError(f"{node!r} has no place")

    def product(
        self, coefficient: sympy.Expr, factors: Sequence[ir.Factor], at: dict[int, sympy.Expr]
    ) -> int:
        """Multiply the factors' entries; label l has the index at[l]."""
        entries = [self.entry(node, [at[label] for label in labels]) for node, labels in factors]
        return self.scalars.product(entries, coefficient)

    def summand(self, node: ir.Node, indices: Sequence[sympy.Expr]) -> tuple[int, Loops]:
        """Return the summand of an entry of a node, and the loops that it is summed over."""
        if not isinstance(node, ir.Einsum):
            return self._expanded(node, indices), {}
        binding = loop_indices(node, dict(enumerate(indices)))
        value = self.product(node.coefficient, separate(node.factors)[1], binding.indices)
        loops = {label: node.sizes[label] for label in binding.loops}
        return self._choose(binding.conditions, value), loops

    def _choose(self, conditions: list[Boolean], value: int) -> int:
        if not conditions:
            return value
        test = self.scalars.test(sympy.And(*conditions))
        return self.scalars.operate("choose", test, value, self.scalars.number(sympy.S.Zero))

    def below(self, value: int) -> list[int]:
        """List `value` and all values that it is computed from, children first."""
        order: dict[int, None] = {}

        def visit(number: int) -> None:
            if number not in order:
                for child in self.scalars.entries[number][2]:
                    visit(child)
                order[number] = None

        visit(value)
        return list(order)

    def loads(self, value: int) -> list[Load]:
        """List the buffer entries that `value` reads."""
        entries = (self.scalars.entries[number] for number in self.below(value))
        return [payload for operator, payload, _ in entries if isinstance(payload, Load)]

    def nest(
        self,
        target: View,
        at: Sequence[sympy.Expr],
        value: int,
        loops: Loops,
        conditions: Sequence[Boolean] = (),
    ) -> Nest:
        """Make loops that set target[at] to `value`, summed over the loops on which `at` does not
        depend. loops: label -> extent."""
        place = Load(target.buffer, () if target.local else target.indices(at))
        return Nest(self, place, target.local, value, loops, conditions)


def loops_around(
    body: tuple[Statement, ...], loops: Sequence[tuple[sympy.Symbol, sympy.Expr]]
) -> tuple[Statement, ...]:
    """Put `body` into loops, (index, extent) from the outermost, whose rounds do not add up."""
    for index, extent in reversed(loops):
        body = (Loop(index, extent, False, body),)
    return body


def loop_order(accesses: list[Load], loops: Loops, samples: sympy.Symbol | None) -> list[int]:
    """Order the loops, outermost first. The innermost one runs along the samples, else along the
    last axis of the accesses with the most entries; the others follow the axes of the largest
    access. The first access is written, the others are read."""
    weights: list[tuple[float, Load]] = []
    for position, access in enumerate(accesses):
        weight = math.prod(nominal(loops[label]) for label in _labels(access, loops))
        weights.append((weight * (1.0 if position else TARGET_WEIGHT), access))
    weights.sort(key=lambda entry: -entry[0])
    stride_one = dict.fromkeys(loops, 0.0)  # label -> weight of accesses along contiguous memory
    for weight, access in weights:
        in_other_axes = {s for index in access.indices[:-1] for s in index.free_symbols}
        in_last_axis = access.indices[-1].free_symbols if access.indices else set()
        for label in loops:
            if index_symbol(label) in in_last_axis - in_other_axes:
                stride_one[label] += weight
    order = [label for _, access in weights for label in _labels(access, loops)]
    order = list(dict.fromkeys([*order, *loops]))
    if order:
        innermost = max(
            order,
            key=lambda label: (loops[label] == samples, stride_one[label], order.index(label)),
        )
        order.remove(innermost)
        order.append(innermost)
    return order


def _labels(access: Load, loops: Loops) -> list[int]:
    """List the loops that an access depends on, in the order of its axes."""
    labels: dict[int, None] = {}
    for index in access.indices:
        labels.update((label, None) for label in loops if index.has(index_symbol(label)))
    return list(labels)


class Nest:
    """A loop nest that computes each value once, in the outermost loop that it can be in.

    `_outer_count`: number of loops outside of the innermost reductions."""

    def __init__(
        self,
        builder: Builder,
        place: Load,
        local: bool,
        value: int,
        loops: Loops,
        conditions: Sequence[Boolean],
    ) -> None:
        self._builder = builder
        self._scalars = builder.scalars
        self._names = builder.names
        self._place = place
        self._local = local
        self._value = value
        single = [label for label in loops if loops[label] == 1]
        order = loop_order([place, *builder.loads(value)], loops, builder.samples)
        order = [label for label in order if label not in single]
        symbols = [index_symbol(label) for label in order]
        self._extents = [loops[label] for label in order]
        self._position = {symbol: depth for depth, symbol in enumerate(symbols, 1)}
        self._indices = self._loop_indices(symbols, place.indices)
        self._renames: dict[sympy.Expr, sympy.Expr] = dict(zip(symbols, self._indices, strict=True))
        self._renames |= {index_symbol(label): sympy.S.Zero for label in single}
        target_symbols = {symbol for index in place.indices for symbol in index.free_symbols}
        self._reduced = [symbol not in target_symbols for symbol in symbols]
        self._outer_count = len(order)
        while self._outer_count > 0 and self._reduced[self._outer_count - 1]:
            self._outer_count -= 1
        self._guards: list[list[Boolean]] = [[] for _ in range(len(order) + 1)]
        for condition in conditions:
            guard = condition.xreplace(self._renames)
            if guard != sympy.true:
                self._guards[self._depth_of(condition)].append(guard)
        self._lets: list[list[Let]] = [[] for _ in range(len(order) + 1)]
        self._locals: dict[int, str] = {}
        self._total: str | None = None
        self._uses: Counter[int] = Counter()

    def _loop_indices(
        self, symbols: Sequence[sympy.Symbol], target_indices: Indices
    ) -> list[sympy.Symbol]:
        """Name the loops i, j, ... from the outermost; those over axes of a Jacobian as its formula
        names these, so that a diagonal is out[i, j, i, l]."""
        if len(target_indices) < 3:  # these are often fused, and then loops of one depth share one
            return self._names.indices(len(symbols))
        axes = {s: target_indices.index(s) for s in symbols if s in target_indices}
        letters = self._names.indices(max(len(symbols), *(axis + 1 for axis in axes.values()), 0))
        free = (letter for axis, letter in enumerate(letters) if axis not in axes.values())
        return [letters[axes[s]] if s in axes else next(free) for s in symbols]

    @property
    def is_scattered(self) -> bool:
        """Whether rounds of an outer loop add to the same entry, so that the target must be zero
        before."""
        return any(self._reduced[: self._outer_count])

    def build(self, accumulate: bool) -> LoopNest:
        """Build the nest; accumulate: add to the entries of the target."""
        comment = self.comment(accumulate)
        body = self._reduction(accumulate) if self._outer_count < len(self._extents) else None
        if body is None:
            (value,) = self._scalars.within_range([self._value], self._depth)
            self._count([value])
            body = [self._write(self._scalar(value, self._outer_count), accumulate)]
        for depth in range(self._outer_count, 0, -1):
            body = self._loop(depth, body)
        return LoopNest(comment, tuple(self._level(0, body)))

    def _reduction(self, accumulate: bool) -> list[Statement]:
        """Sum over the innermost loops in a scalar; multiply by factors that do not depend on these
        loops afterwards."""
        inner, outer = self._split_constant_factors(self._value)
        is_result = self._local and outer == [] and not accumulate
        total = self._place.buffer.name if is_result else self._names.numbered("s")
        self._total = total
        factors = [factor for factor in outer if self._scalars.constant(factor) != -1]
        sign = sympy.Integer(-1) ** (len(outer) - len(factors))
        total_value = self._scalars.name(total, self._scalars.degree(inner))
        result = self._scalars.product([*factors, total_value], sign)
        inner, result = self._scalars.within_range([inner, result], self._depth)
        self._count([inner, result])
        inner_scalar = self._scalar(inner, len(self._extents))
        result_scalar = self._scalar(result, self._outer_count)
        body: list[Statement] = [Accumulate(total, inner_scalar)]
        for depth in range(len(self._extents), self._outer_count, -1):
            body = self._loop(depth, body)
        finish = [] if is_result else [self._write(result_scalar, accumulate)]
        return [Start(total), *body, *finish]

    def _split_constant_factors(self, value: int) -> tuple[int, list[int]]:
        """Split `value` into inner * outer factors; these do not depend on the innermost loops."""
        operator, _, children = self._scalars.entries[value]
        if operator == "neg":
            inner, outer = self._split_constant_factors(children[0])
            return inner, [*outer, self._scalars.number(sympy.S.NegativeOne)]
        if operator == "mul":
            outer = [child for child in children if self._depth(child) <= self._outer_count]
            inner_factors = [child for child in children if child not in outer]
            return self._scalars.product(inner_factors), outer
        return value, []

    def _write(self, value: Scalar, accumulate: bool) -> Statement:
        if self._local:
            return Let(self._place.buffer.name, value)
        return Store(self._renamed(self._place), value, accumulate)

    def _loop(self, depth: int, body: list[Statement]) -> list[Statement]:
        index, extent = self._indices[depth - 1], self._extents[depth - 1]
        inside = self._level(depth, body)
        return [Loop(index, extent, self._reduced[depth - 1], tuple(inside))]

    def _level(self, depth: int, body: list[Statement]) -> list[Statement]:
        """Return the statements inside `depth` loops: the values known there, then `body`."""
        inside = [*self._lets[depth], *body]
        if not self._guards[depth]:
            return inside
        return [Guard(sympy.And(*self._guards[depth]), tuple(inside))]

    # Values

    def _depth_of(self, expression: sympy.Basic) -> int:
        symbols = expression.free_symbols
        return max((self._position.get(symbol, 0) for symbol in symbols), default=0)

    def _depth(self, value: int) -> int:
        """Count the loops that a value depends on, from the outermost."""
        depth = 0
        for number in self._builder.below(value):
            _, payload, _ = self._scalars.entries[number]
            if payload is not None and payload == self._total:
                depth = max(depth, self._outer_count)
            elif isinstance(payload, Load):
                depth = max([depth, *(self._depth_of(index) for index in payload.indices)])
            elif isinstance(payload, sympy.Basic):
                depth = max(depth, self._depth_of(payload))
        return depth

    def _count(self, values: list[int]) -> None:
        reached = dict.fromkeys(n for value in values for n in self._builder.below(value))
        for number in reached:
            self._uses.update(self._scalars.entries[number][2])

    def _scalar(self, value: int, depth: int) -> Scalar:
        """Return the value for use inside `depth` loops: named if it is used more than once, or
        known further out."""
        operator, payload, _ = self._scalars.entries[value]
        if value in self._locals:
            return Name(self._locals[value])
        if isinstance(payload, sympy.Basic):
            renamed = payload.xreplace(self._renames)
            return Number(renamed) if operator == "number" else Test(renamed)
        if operator == "name":
            return Name(str(payload))
        value_depth = self._depth(value)
        if self._uses[value] < 2 and value_depth >= depth:
            return self._operated(value, depth)
        definition = self._operated(value, value_depth)
        self._locals[value] = self._names.numbered("a")
        self._lets[value_depth].append(Let(self._locals[value], definition))
        return Name(self._locals[value])

    def _operated(self, value: int, depth: int) -> Scalar:
        operator, payload, children = self._scalars.entries[value]
        if isinstance(payload, Load):
            return self._renamed(payload)
        if operator == "mul":
            children = self._outer_first(children, depth)
        return Operate(operator, tuple(self._scalar(child, depth) for child in children))

    def _outer_first(self, factors: tuple[int, ...], depth: int) -> tuple[int, ...]:
        """Multiply the factors that are known further out first, outside of the inner loops."""
        outer = [factor for factor in factors if self._depth(factor) < depth]
        inner = [factor for factor in factors if factor not in outer]
        if len(outer) < 2 or not inner:
            return factors
        return self._scalars.operate("mul", *outer), *inner

    def _renamed(self, load: Load) -> Load:
        return renamed(load, self._renames)

    def comment(self, accumulate: bool) -> str:
        """Write the nest's result in index notation."""
        self._locals.clear()
        place = self._place.buffer.name if self._local else infix_text(self._renamed(self._place))
        # counted first: a value of n scalars can have 2ⁿ loads once it is written out
        is_short = self._mentions(self._value) <= MAX_COMMENT_LENGTH
        value = infix_text(self._scalar_tree(self._value)) if is_short else ""
        if not is_short or len(value) > MAX_COMMENT_LENGTH:
            loads = dict.fromkeys(
                infix_text(self._renamed(load)) for load in self._builder.loads(self._value)
            )
            value = f"f({', '.join(loads)})"
        over = [str(i) for i, reduced in zip(self._indices, self._reduced, strict=True) if reduced]
        value = f"sum[{', '.join(over)}] {value}" if over else value
        return f"{place} {'+=' if accumulate else '='} {value}"

    def _mentions(self, value: int) -> int:
        """Count the loads and numbers in the value when it is written out."""
        counts: dict[int, int] = {}
        for number in self._builder.below(value):
            children = self._scalars.entries[number][2]
            counts[number] = sum(counts[child] for child in children) if children else 1
        return counts[value]

    def _scalar_tree(self, value: int) -> Scalar:
        """Return the value as one expression, without names of partial results."""
        operator, payload, children = self._scalars.entries[value]
        if isinstance(payload, Load):
            return self._renamed(payload)
        if children:
            return Operate(operator, tuple(self._scalar_tree(child) for child in children))
        return self._scalar(value, 0)
