"""An expression as it was declared, as NumPy text, node by node.

It is what modules are verified with, so it has nothing in common with how their kernels and
formulas come about: no rule is applied, no fact of structure used, nothing put in order. Each node
is one text of its children's; a product is `@`, `*`, `np.sum` or `np.einsum`, and arrays of zeros
and ones that select are indices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions as scalars
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.numpy_spelling import (
    ATOM,
    POWER,
    PRODUCT,
    SUM,
    arranged,
    held,
    is_matmul,
    joined,
    scaled,
)
from derivatrix.compiler.ir.python_text import index, tuple_text

DEPTH = 10
"""Texts are cut into parts with names where nodes lie deeper than this."""

SLOT = re.compile(r"\b_(\d+)\b")
"""The placeholder of a function's argument."""

ENTRIES = 24
"""A literal array with more entries has a name."""

LETTERS = "ijklmnopqrstuvwxyzabcdefghIJKLMNOPQRSTUVWXYZABCDEFGH"


class Written(NamedTuple):
    """The text of a node. `exact`: whether it has the node's shape; else it broadcasts to it."""

    text: str
    exact: bool = True


class Factor(NamedTuple):
    """A factor of a product, with the labels of its axes. `node`: where it is one as it stands."""

    written: Written
    labels: ir.Labels
    shape: Shape
    node: ir.Node | None = None


def numpy_text(root: ir.Node, sizes: Mapping[str, str]) -> str:
    """The text of `root`, an expression of the names of its leaves with `np` and `scipy` in scope.
    What is used repeatedly, and what lies deep, is named by assignment expressions in a tuple.

    sizes: for a dimension's name its text, as "X.shape[0]"."""
    return _Writer(root, sizes).result()


class _Writer:
    def __init__(self, root: ir.Node, sizes: Mapping[str, str]) -> None:
        self.root = root
        self.sizes = {name: sympy.Symbol(text, positive=True) for name, text in sizes.items()}
        self.order = ir.topological([root])
        self.uses = Counter(child for node in self.order for child in _references(node))
        self.written: dict[ir.Node, Written] = {}
        self.parts: list[str] = []
        self.taken = {node.name for node in self.order if isinstance(node, ir.Leaf)} | set(sizes)

    def result(self) -> str:
        heights: dict[ir.Node, int] = {}
        for node in self.order:
            heights[node] = 1 + max((heights[child] for child in node.children), default=0)
            self.written[node] = self.node(node)
            large = isinstance(node, ir.Constant) and node.array.size > ENTRIES
            named = self.uses[node] > 1 or heights[node] > DEPTH or large
            if named and node is not self.root and not isinstance(node, (ir.Leaf, ir.Structural)):
                name = self.name()
                self.parts.append(f"{name} := {self.exact(node)}")
                self.written[node] = Written(name)
                heights[node] = 0
        text = self.exact(self.root)
        return f"({', '.join([*self.parts, text])})[-1]" if self.parts else text

    def name(self) -> str:
        """A name that nothing else has."""
        number = len(self.parts) + 1
        while f"t{number}" in self.taken:
            number += 1
        self.taken.add(f"t{number}")
        return f"t{number}"

    def exact(self, node: ir.Node) -> str:
        """The text of a node, of its shape."""
        return self.spread(self.written[node], node.shape)

    def spread(self, written: Written, shape: Shape) -> str:
        if written.exact:
            return written.text
        return f"np.broadcast_to({written.text}, {self.shape(shape)})"

    def size(self, size: Dimension) -> str:
        """A dimension, as an integer."""
        text = index(self.number(size))
        return re.sub(r"\bmin\(([^()]*)\)", r"np.min([\1])", text)

    def shape(self, shape: Iterable[Dimension]) -> str:
        return tuple_text(self.size(size) for size in shape)

    def number(self, number: sympy.Expr) -> sympy.Expr:
        """A number or polynomial in dimensions, of the texts of these."""
        return number.xreplace({s: self.sizes.get(s.name, s) for s in number.free_symbols})

    def node(self, node: ir.Node) -> Written:
        match node:
            case ir.Leaf():
                return Written(node.name)
            case ir.Constant() if node.array.size == 0:
                return Written(f"np.zeros({node.array.shape})")
            case ir.Constant():
                return Written(f"np.array({node.array.tolist()!r})")
            case ir.Structural():
                return Written(self.structural(node))
            case ir.Sum():
                return self.sum(node)
            case ir.Map():
                return Written(self.map(node))
            case ir.Apply():
                return self.apply(node)
            case ir.Einsum():
                return self.product(node)
        raise TypeError(f"no text for {node!r}")

    def structural(self, node: ir.Structural) -> str:
        sizes = [self.size(size) for size in node.shape]
        match node:
            case ir.Delta():
                return f"np.eye({sizes[0]})"
            case ir.Slice():
                return f"np.eye({sizes[1]})[{self.places(node)}]"
            case ir.Triangle():
                offset = f", {-node.offset}" if node.offset else ""
                return f"np.tri({sizes[0]}, {sizes[1]}{offset})"
            case ir.Gather():
                return f"np.eye({sizes[1]})[{list(node.table)}]"
            case ir.Reshape() | ir.Vech():
                count = self.size(node.shape[1] * node.shape[2])
                text = f"np.eye({count}).reshape({count}, {sizes[1]}, {sizes[2]})"
                packed = f"[np.tri({sizes[1]}).ravel() > 0]"
                return text + packed if isinstance(node, ir.Vech) else text
        raise TypeError(f"no text for {node!r}")

    def places(self, node: ir.Slice) -> str:
        """The places that are selected, as an index."""
        start, count = self.size(node.start), node.shape[0]
        if node.step == 1:
            return f"{start}:{self.size(sympy.expand(node.start + count))}"
        sign = "-" if node.step < 0 else "+"
        return f"{start} {sign} {abs(node.step)} * np.arange({self.size(count)})"

    def sum(self, node: ir.Sum) -> Written:
        terms = [self.written[term] for term in node.terms]
        text = "".join(
            f" - {part[1:]}" if part.startswith("-") else f" + {part}"
            for part in (held(term.text, PRODUCT if n else SUM) for n, term in enumerate(terms))
        )
        if not terms:
            return Written(f"np.zeros({self.shape(node.shape)})")
        first = text[3:] if text[1] == "+" else f"-{text[3:]}"
        return Written(first, any(term.exact for term in terms))

    def map(self, node: ir.Map) -> str:
        """The function of the arguments, which are all of the node's shape."""
        text = scalars.numpy_text(node.expression)
        arguments = [self.exact(argument) for argument in node.arguments]

        def fill(slot: re.Match[str]) -> str:
            alone = text[slot.start() - 1] == "(" and text[slot.end() :][:1] == ")"
            argument = arguments[int(slot[1])]
            return argument if alone else held(argument, ATOM)

        return SLOT.sub(fill, text)

    def apply(self, node: ir.Apply) -> Written:
        """An operation, the stacked axes of its arguments in order; those that no argument has are
        left to broadcasting."""
        covered = sorted(ir.labels_of(node.arguments))
        texts = []
        for argument, labels in node.arguments:
            core = range(len(labels), argument.ndim)
            places = [labels.index(label) if label in labels else None for label in covered]
            texts.append(arranged(self.exact(argument), [*places, *core]))
        text = node.operation.numpy(texts, node.parameters, node.output)
        core = range(len(node.stack), node.ndim)
        return self.placed(text, [*covered, *core], node.shape)

    def placed(self, text: str, axes: Sequence[int], shape: Shape) -> Written:
        """An array that has these axes of `shape`, in order."""
        missing = [axis for axis in range(len(shape)) if axis not in axes]
        inner = [axis for axis in missing if axes and axis > axes[0]]
        places = [axes.index(axis) if axis in axes else None for axis in sorted([*axes, *inner])]
        return Written(arranged(text, places), not missing)

    def product(self, node: ir.Einsum) -> Written:
        given = [Factor(self.written[f], labels, f.shape, f) for f, labels in node.factors]
        factors, gone = self.selected(given, node.ndim)
        present = {label for factor in factors for label in factor.labels} | gone
        counted = [node.sizes[label] for label in node.contracted if label not in present]
        scalar = self.number(sympy.prod([node.coefficient, *counted]))
        numbers = [factor.written.text for factor in factors if not factor.labels]
        arrays = [factor for factor in factors if factor.labels]
        if not arrays:
            return Written(scaled(scalar, numbers), not node.ndim)
        labels = {label for factor in arrays for label in factor.labels}
        plain = all(len(set(factor.labels)) == len(factor.labels) for factor in arrays)
        if plain and all(label < node.ndim for label in labels):
            body = self.entrywise(arrays, node.shape)
        else:
            output = [label for label in range(node.ndim) if label in labels]
            body = self.placed(self.contraction(arrays, output), output, node.shape)
        return Written(scaled(scalar, [*numbers, body.text]), body.exact)

    def entrywise(self, factors: Sequence[Factor], shape: Shape) -> Written:
        """The product of arrays that have some axes of `shape` each."""
        texts = []
        covered: set[int] = set()
        for written, labels, own, _ in factors:
            axes = sorted(labels)
            text = arranged(self.spread(written, own), [labels.index(axis) for axis in axes])
            text, whole = self.placed(text, axes, shape)
            if whole and axes == list(labels):
                text = written.text
            if written.exact or not (whole and axes == list(labels)):
                covered |= set(axes)
            texts.append(text)
        return Written(joined(texts), len(covered) == len(shape))

    def contraction(self, factors: Sequence[Factor], output: Sequence[int]) -> str:
        """A product with sums, of which `output` are the labels left."""
        texts = [self.spread(factor.written, factor.shape) for factor in factors]
        labels = [factor.labels for factor in factors]
        if len(factors) == 1 and tuple(output) == tuple(i for i in labels[0] if i in output):
            axes = [axis for axis, label in enumerate(labels[0]) if label not in output]
            if len({*labels[0]}) == len(labels[0]):
                axis = "" if not output else f", axis={axes[0] if len(axes) == 1 else tuple(axes)}"
                return f"np.sum({texts[0]}{axis})"
            if labels[0] == labels[0][:1] * 2:
                return f"np.trace({texts[0]})"
        if len(factors) == 2 and is_matmul(labels[0], labels[1], output):
            return f"{held(texts[0], PRODUCT)} @ {held(texts[1], POWER)}"
        letters: dict[int, str] = {}
        for label in (*output, *(label for own in labels for label in own)):
            letters.setdefault(label, LETTERS[len(letters)])
        inputs = ",".join("".join(letters[label] for label in own) for own in labels)
        subscripts = f"{inputs}->{''.join(letters[label] for label in output)}"
        optimize = ", optimize=True" if len(factors) > 2 else ""
        return f"np.einsum({subscripts!r}, {', '.join(texts)}{optimize})"

    def selected(self, factors: list[Factor], ndim: int) -> tuple[list[Factor], set[int]]:
        """The factors with arrays of zeros and ones put into others as indices and reshapings where
        they can be, and the labels that are gone then."""
        gone: set[int] = set()
        position = 0
        while position < len(factors):
            factor, others = factors[position], factors[:position] + factors[position + 1 :]
            found = self.without(factor, others, ndim)
            if found is None:
                position += 1
            else:
                factors, position = found[0], 0
                gone.update(found[1])
        return factors, gone

    def without(
        self, factor: Factor, others: list[Factor], ndim: int
    ) -> tuple[list[Factor], set[int]] | None:
        """The other factors with an array of zeros and ones put into them, and the labels that are
        gone by it; None for another factor, and where it cannot be."""
        node, labels = factor.node, factor.labels
        if isinstance(node, ir.Delta):
            kept, last = sorted(labels)
            if last < ndim and kept != last:
                return None
            moved = [
                other._replace(labels=tuple(kept if i == last else i for i in other.labels))
                for other in others
            ]
            return moved, {last} - {kept}
        if not isinstance(node, (ir.Slice, ir.Gather, ir.Reshape, ir.Vech)):
            return None
        if len(set(labels)) < len(labels):
            return None
        first, *inner = labels
        for taken in [inner] if isinstance(node, (ir.Slice, ir.Gather)) else [[first], inner]:
            holders = [other for other in others if set(taken) & set(other.labels)]
            once = len(holders) == 1 and sorted(
                label for label in holders[0].labels if label in taken
            ) == sorted(taken)
            if once and min(taken) >= ndim:
                rest = [other for other in others if other is not holders[0]]
                left = tuple(label for label in labels if label not in taken)
                return [*rest, self.indexed(node, holders[0], tuple(taken), left)], set(taken)
        return None

    def part(self, node: ir.Slice | ir.Gather, factor: Factor, taken: int, left: int) -> Factor:
        """A factor with some places of the axis `taken` alone."""
        axis = factor.labels.index(taken)
        places = self.places(node) if isinstance(node, ir.Slice) else str(list(node.table))
        text = held(self.spread(factor.written, factor.shape), ATOM)
        labels = (*factor.labels[:axis], left, *factor.labels[axis + 1 :])
        shape = (*factor.shape[:axis], node.shape[0], *factor.shape[axis + 1 :])
        return Factor(Written(f"{text}[{':, ' * axis}{places}]"), labels, shape)

    def indexed(
        self, node: ir.Structural, factor: Factor, taken: ir.Labels, left: ir.Labels
    ) -> Factor:
        """A factor with its axes `taken` replaced by the axes `left` of an array of zeros and ones,
        which are last then where there are several of either."""
        if isinstance(node, (ir.Slice, ir.Gather)):
            return self.part(node, factor, taken[0], left[0])
        kept = tuple(label for label in factor.labels if label not in taken)
        order = [factor.labels.index(label) for label in (*kept, *taken)]
        text = held(arranged(self.spread(factor.written, factor.shape), order), ATOM)
        own = dict(zip(factor.labels, factor.shape, strict=True))
        new = node.shape[1:] if len(left) == 2 else node.shape[:1]
        shape = tuple(own[label] for label in kept) + new
        size = self.size(node.shape[-1])
        before = "..., " if kept else ""
        match node:
            case ir.Reshape():
                text = f"{text}.reshape({self.shape(shape)})"
            case ir.Vech() if len(left) == 1:
                text = f"{text}[{before}np.tril_indices({size})[0], np.tril_indices({size})[1]]"
            case ir.Vech():
                row = f"np.arange({size})[:, None]"
                places = f"{row} * ({row} + 1) // 2 + np.arange({size})"
                text = f"{text}[{before}{places}] * np.tri({size})"
        return Factor(Written(text), (*kept, *left), shape)


def _references(node: ir.Node) -> list[ir.Node]:
    """The nodes in a text, as often as they are written in it."""
    match node:
        case ir.Einsum():
            return [factor for factor, _ in node.factors]
        case ir.Sum():
            return list(node.terms)
        case ir.Map():
            found = SLOT.findall(scalars.numpy_text(node.expression))
            return [node.arguments[int(position)] for position in found]
        case ir.Apply():
            marks = [f"<{position}>" for position in range(len(node.arguments))]
            text = node.operation.numpy(marks, node.parameters, node.output)
            pairs = zip(marks, node.arguments, strict=True)
            return [argument for mark, (argument, _) in pairs for _ in range(text.count(mark))]
    return []
