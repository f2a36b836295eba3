"""The declared expression as NumPy text, node by node.

Verification compares modules with this text, so it shares nothing with the derivation of kernels
and formulas: no rule is applied, no fact of structure used, nothing sorted. Each node is one text
made of its children's; a product is `@`, `*`, `np.sum` or `np.einsum`, and structural arrays that
select are indices.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import LENGTH, Dimension, Shape, readings, symbol
from derivatrix.compiler.ir.graph import references
from derivatrix.compiler.ir.numpy_spelling import (
    ATOM,
    EINSUM_LETTERS,
    POWER,
    PRODUCT,
    Text,
    arranged,
    count_uses,
    is_matmul,
    multiplied,
    scalar_text,
    scaled,
    sum_text,
)
from derivatrix.compiler.ir.python_text import NUMPY_EXTREMES, index, tuple_text

MAX_DEPTH = 10
"""Deepest nesting of nodes in one text; deeper nodes are named."""

MAX_ENTRIES = 24
"""Most entries of a literal array that is not named."""

Sizes = Mapping[str, sympy.Expr]


class Factor(NamedTuple):
    """A factor with the labels of its axes. `node`: the node, if it is not indexed yet."""

    operand: Text
    labels: ir.Labels
    shape: Shape
    node: ir.Node | None = None


def numpy_text(root: ir.Node, sizes: Sizes) -> str:
    """Print `root`, an expression of the names of its leaves, with `np` and `scipy` in scope. Nodes
    used repeatedly, and deep ones, are named by assignment expressions in a tuple.

    sizes: for the name of a dimension its reading, as X.shape[0] - 1
    """
    return _Writer([root], sizes).result()


def numpy_tuple(roots: Sequence[ir.Node], sizes: Sizes) -> str:
    """Print the tuple of `roots`, which share the names of nodes used repeatedly."""
    return _Writer(roots, sizes).result(is_tuple=True)


def size_readings(leaves: Sequence[ir.Leaf]) -> dict[str, sympy.Expr]:
    """Express each dimension by lengths as NumPy reads them off arrays, such as X.shape[0] - 1."""
    values: dict[sympy.Basic, sympy.Expr] = {}
    for size, reading in readings([leaf.shape for leaf in leaves]).items():
        length = symbol(f"{leaves[reading.position].name}.shape[{reading.axis}]")
        values[size] = reading.value.xreplace({LENGTH: length, **values})
    return {str(size): value for size, value in values.items()}


class _Writer:
    """Prints the nodes below `roots`."""

    def __init__(self, roots: Sequence[ir.Node], sizes: Sizes) -> None:
        self.roots = roots
        self.sizes = sizes
        self.order = ir.topological(roots)
        self.uses = Counter(child for node in self.order for child in _references(node))
        self.uses.update(roots)
        self.texts: dict[ir.Node, Text] = {}
        self.assignments: list[str] = []
        self.outputs = Counter(node.sibling(0) for node in self.order if isinstance(node, ir.Apply))
        self.tuples: dict[str, str] = {}
        self.names = {node.name for node in self.order if isinstance(node, ir.Leaf)} | set(sizes)

    def result(self, is_tuple: bool = False) -> str:
        heights: dict[ir.Node, int] = {}
        for node in self.order:
            heights[node] = 1 + max((heights[child] for child in node.children), default=0)
            self.texts[node] = self.node(node)
            large = isinstance(node, ir.Constant) and node.array.size > MAX_ENTRIES
            is_long = node not in self.roots and (heights[node] > MAX_DEPTH or large)
            is_named = self.uses[node] > 1 or is_long
            if is_named and not isinstance(node, (ir.Leaf, ir.Structural)):
                self.texts[node] = Text(self.assigned(str(self.exact(node))))
                heights[node] = 0
        texts = [str(self.exact(root)) for root in self.roots]
        text = tuple_text(texts) if is_tuple else texts[0]
        return f"({', '.join([*self.assignments, text])})[-1]" if self.assignments else text

    def assigned(self, text: str) -> str:
        """Assign a text to a name that nothing else has, and return the name."""
        number = len(self.assignments) + 1
        while f"t{number}" in self.names:
            number += 1
        self.names.add(f"t{number}")
        self.assignments.append(f"t{number} := {text}")
        return f"t{number}"

    def exact(self, node: ir.Node) -> Text:
        """Return the text of a node, with its shape."""
        return self.broadcast(self.texts[node], node.shape)

    def broadcast(self, operand: Text, shape: Shape) -> Text:
        if operand.exact:
            return operand
        return Text(f"np.broadcast_to({operand}, {self.shape(shape)})")

    def size(self, size: Dimension) -> str:
        """Return a dimension, as an integer."""
        return index(self.number(size), extremes=NUMPY_EXTREMES)

    def shape(self, shape: Iterable[Dimension]) -> str:
        return tuple_text(self.size(size) for size in shape)

    def number(self, number: sympy.Expr) -> sympy.Expr:
        """Substitute the readings of sizes into a number or polynomial in dimensions."""
        return number.xreplace({s: self.sizes.get(s.name, s) for s in number.free_symbols})

    def node(self, node: ir.Node) -> Text:
        match node:
            case ir.Leaf():
                return Text(node.name)
            case ir.Constant() if node.array.size == 0:
                return Text(f"np.zeros({node.array.shape})")
            case ir.Constant():
                return Text(f"np.array({node.array.tolist()!r})")
            case ir.Structural():
                return Text(self.structural(node))
            case ir.Sum():
                return self.sum(node)
            case ir.Map():
                return self.map(node)
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
            case ir.Slice() | ir.Gather():
                return f"np.eye({sizes[1]})[{self.positions(node)}]"
            case ir.Triangle():
                offset = f", {-node.offset}" if node.offset else ""
                return f"np.tri({sizes[0]}, {sizes[1]}{offset})"
            case ir.Reshape() | ir.Vech():
                count = self.size(node.shape[1] * node.shape[2])
                text = f"np.eye({count}).reshape({count}, {sizes[1]}, {sizes[2]})"
                packed = f"[np.tri({sizes[1]}).ravel() > 0]"
                return text + packed if isinstance(node, ir.Vech) else text
        raise TypeError(f"no text for {node!r}")

    def positions(self, node: ir.Slice | ir.Gather) -> str:
        """Return the selected positions, as an index."""
        if isinstance(node, ir.Gather):
            return str(list(node.table))
        start, count = self.size(node.start), node.shape[0]
        if node.step == 1:
            return f"{start}:{self.size(sympy.expand(node.start + count))}"
        sign = "-" if node.step < 0 else "+"
        return f"{start} {sign} {abs(node.step)} * np.arange({self.size(count)})"

    def sum(self, node: ir.Sum) -> Text:
        terms = [self.texts[term] for term in node.terms]
        if not terms:
            return Text(f"np.zeros({self.shape(node.shape)})")
        return sum_text(terms)._replace(exact=any(term.exact for term in terms))

    def map(self, node: ir.Map) -> Text:
        """Print the function of the arguments, which all have the node's shape."""
        is_negative = node.expression.is_Mul and node.expression.as_coeff_Mul()[0].is_negative
        sign = sympy.S.NegativeOne if is_negative else sympy.S.One
        operands = {ir.slot(n): self.exact(a) for n, a in enumerate(node.arguments)}
        return scaled(sign, [scalar_text(sign * node.expression, operands)])

    def apply(self, node: ir.Apply) -> Text:
        """Print an operation, with the stacked axes of its arguments in order; NumPy broadcasts the
        axes that an argument lacks."""
        covered = sorted(ir.labels_of(node.arguments))
        texts = []
        for argument, labels in node.arguments:
            core = range(len(labels), argument.ndim)
            axes = [labels.index(label) if label in labels else None for label in covered]
            texts.append(str(arranged(self.exact(argument), [*axes, *core])))
        text = node.operation.numpy(texts, node.parameters, node.output)
        if node.operation.has_tuple_text:
            if self.outputs[node.sibling(0)] > 1:
                text = self.tuples.get(text) or self.tuples.setdefault(text, self.assigned(text))
            text = f"{text}[{node.output}]"
        core = range(len(node.stack), node.ndim)
        # an operation's text is a call or in parentheses (see `Operation`), thus an atom
        return self.with_axes(Text(text), [*covered, *core], node.shape)

    def with_axes(self, array: Text, axes: Sequence[int], shape: Shape) -> Text:
        """Place the axes of an array among those of `shape`: it has `axes`, in ascending order."""
        missing = [axis for axis in range(len(shape)) if axis not in axes]
        stretched = [axis for axis in missing if axes and axis > axes[0]]
        order = [axes.index(axis) if axis in axes else None for axis in sorted([*axes, *stretched])]
        return arranged(array, order)._replace(exact=not missing)

    def product(self, node: ir.Einsum) -> Text:
        operands = [Factor(self.texts[f], labels, f.shape, f) for f, labels in node.factors]
        factors, indexed = self.with_indices(operands, node.ndim)
        present = {label for factor in factors for label in factor.labels} | indexed
        counted = [node.sizes[label] for label in node.contracted if label not in present]
        scalar = self.number(sympy.prod([node.coefficient, *counted]))
        numbers = [factor.operand for factor in factors if not factor.labels]
        arrays = [factor for factor in factors if factor.labels]
        if not arrays:
            return scaled(scalar, numbers)._replace(exact=not node.ndim)
        labels = {label for factor in arrays for label in factor.labels}
        has_diagonals = any(len(set(factor.labels)) < len(factor.labels) for factor in arrays)
        if not has_diagonals and all(label < node.ndim for label in labels):
            body = self.entrywise(arrays, node.shape)
        else:
            output = [label for label in range(node.ndim) if label in labels]
            body = self.with_axes(self.contraction(arrays, output), output, node.shape)
        return scaled(scalar, [*numbers, body])._replace(exact=body.exact)

    def entrywise(self, factors: Sequence[Factor], shape: Shape) -> Text:
        """Multiply arrays that each have some axes of `shape`."""
        texts = []
        covered: set[int] = set()
        for operand, labels, factor_shape, _ in factors:
            axes = sorted(labels)
            order = [labels.index(axis) for axis in axes]
            array = self.with_axes(
                arranged(self.broadcast(operand, factor_shape), order), axes, shape
            )
            is_in_place = array.exact and axes == list(labels)
            if operand.exact or not is_in_place:
                covered |= set(axes)
            texts.append(operand if is_in_place else array)
        return multiplied(texts)._replace(exact=len(covered) == len(shape))

    def contraction(self, factors: Sequence[Factor], output: Sequence[int]) -> Text:
        """Print a product with sums, whose axes are `output`, pair by pair: `np.einsum` of more
        factors would search for their best order in each evaluation, as in each step of a loop."""
        while len(factors) > 2:
            factors = self.with_contracted_pair(factors, output)
        texts = [self.broadcast(factor.operand, factor.shape) for factor in factors]
        labels = [factor.labels for factor in factors]
        if len(factors) == 1 and tuple(output) == tuple(i for i in labels[0] if i in output):
            axes = [axis for axis, label in enumerate(labels[0]) if label not in output]
            if len({*labels[0]}) == len(labels[0]):
                axis = "" if not output else f", axis={axes[0] if len(axes) == 1 else tuple(axes)}"
                return Text(f"np.sum({texts[0]}{axis})")
            if labels[0] == labels[0][:1] * 2:
                return Text(f"np.trace({texts[0]})")
        if len(factors) == 2 and all(labels):
            operands = [
                arranged(texts[n], [labels[n].index(label) for label in axes])
                for n, axes in _matmul(labels[0], labels[1], output).operands
            ]
            if operands:
                left, right = operands
                return Text(f"{left.within(PRODUCT)} @ {right.within(POWER)}", PRODUCT)
        letters: dict[int, str] = {}
        for label in (*output, *itertools.chain(*labels)):
            letters.setdefault(label, EINSUM_LETTERS[len(letters)])
        inputs = ",".join("".join(letters[label] for label in axes) for axes in labels)
        subscripts = f"{inputs}->{''.join(letters[label] for label in output)}"
        return Text(f"np.einsum({subscripts!r}, {', '.join(map(str, texts))})")

    def with_contracted_pair(
        self, factors: Sequence[Factor], output: Sequence[int]
    ) -> list[Factor]:
        """Replace two of several factors by their product: those whose product has fewest axes."""
        pairs = itertools.combinations(range(len(factors)), 2)
        pair = min(pairs, key=lambda pair: len(_product_labels(factors, pair, output)))
        first, second = (factors[position] for position in pair)
        labels = _product_labels(factors, pair, output)
        sizes = dict(
            zip((*first.labels, *second.labels), (*first.shape, *second.shape), strict=True)
        )
        shape = tuple(sizes[label] for label in labels)
        if len(labels) == len(sizes) and all(
            len({*f.labels}) == len(f.labels) for f in (first, second)
        ):
            aligned = [
                factor._replace(labels=tuple(map(labels.index, factor.labels)))
                for factor in (first, second)
            ]
            body = self.entrywise(aligned, shape)
        else:
            body = self.contraction([first, second], labels)
        remaining = [factor for n, factor in enumerate(factors) if n not in pair]
        remaining.insert(pair[0], Factor(body, labels, shape))
        return remaining

    def with_indices(self, factors: list[Factor], ndim: int) -> tuple[list[Factor], set[int]]:
        """Write structural factors as indices and reshapings of others where possible. Returns the
        remaining factors, and the labels that are summed thereby."""
        for position, factor in enumerate(factors):
            others = factors[:position] + factors[position + 1 :]
            result = self.with_index(factor, others, ndim)
            if result is not None:
                remaining, summed = self.with_indices(result[0], ndim)
                return remaining, summed | result[1]
        return factors, set()

    def with_index(
        self, factor: Factor, operands: list[Factor], ndim: int
    ) -> tuple[list[Factor], set[int]] | None:
        """Write a structural factor as an index of one of `others`. Returns these, and the labels
        that are summed thereby; None for other factors, and where it is impossible."""
        node, labels = factor.node, factor.labels
        if isinstance(node, ir.Delta):
            low, high = sorted(labels)
            if high < ndim and low != high:
                return None
            renamed = [
                operand._replace(labels=tuple(low if i == high else i for i in operand.labels))
                for operand in operands
            ]
            return renamed, {high} - {low}
        if not isinstance(node, (ir.Slice, ir.Gather, ir.Reshape, ir.Vech)):
            return None
        if len(set(labels)) < len(labels):
            return None
        outer, *inner = labels
        for axes in [inner] if isinstance(node, (ir.Slice, ir.Gather)) else [[outer], inner]:
            holders = [operand for operand in operands if set(axes) & set(operand.labels)]
            if len(holders) != 1 or min(axes) < ndim:
                continue
            (holder,) = holders
            if sorted(label for label in holder.labels if label in axes) == sorted(axes):
                unindexed = [operand for operand in operands if operand is not holder]
                new_axes = tuple(label for label in labels if label not in axes)
                indexed = self.indexed(node, holder, tuple(axes), new_axes)
                return [*unindexed, indexed], set(axes)
        return None

    def indexed(
        self, node: ir.Structural, factor: Factor, axes: ir.Labels, new_axes: ir.Labels
    ) -> Factor:
        """Replace `axes` of a factor by `new_axes` of a structural array. One axis stays in its
        place; where there are several of either, the new ones come last."""
        if isinstance(node, (ir.Slice, ir.Gather)):
            axis = factor.labels.index(axes[0])
            text = self.broadcast(factor.operand, factor.shape).within(ATOM)
            labels = (*factor.labels[:axis], *new_axes, *factor.labels[axis + 1 :])
            shape = (*factor.shape[:axis], node.shape[0], *factor.shape[axis + 1 :])
            return Factor(Text(f"{text}[{':, ' * axis}{self.positions(node)}]"), labels, shape)
        leading = tuple(label for label in factor.labels if label not in axes)
        order = [factor.labels.index(label) for label in (*leading, *axes)]
        text = arranged(self.broadcast(factor.operand, factor.shape), order).within(ATOM)
        sizes = dict(zip(factor.labels, factor.shape, strict=True))
        new_sizes = node.shape[1:] if len(new_axes) == 2 else node.shape[:1]
        shape = tuple(sizes[label] for label in leading) + new_sizes
        size = self.size(node.shape[-1])
        before, level = "..., " if leading else "", ATOM
        match node:
            case ir.Reshape():
                text = f"{text}.reshape({self.shape(shape)})"
            case ir.Vech() if len(new_axes) == 1:
                text = f"{text}[{before}np.tril_indices({size})[0], np.tril_indices({size})[1]]"
            case ir.Vech():
                row = f"np.arange({size})[:, None]"
                positions = f"{row} * ({row} + 1) // 2 + np.arange({size})"
                text, level = f"{text}[{before}{positions}] * np.tri({size})", PRODUCT
        return Factor(Text(text, level), (*leading, *new_axes), shape)


def _product_labels(
    factors: Sequence[Factor], pair: Sequence[int], output: Sequence[int]
) -> ir.Labels:
    """Return the labels of the product of two factors: those that the others or `output` have."""
    first, second = (factors[position].labels for position in pair)
    labels_needed = {*output}.union(*(f.labels for n, f in enumerate(factors) if n not in pair))
    product_labels = tuple(
        label for label in dict.fromkeys((*first, *second)) if label in labels_needed
    )
    for labels in (first, second):
        if sorted(labels) == sorted(product_labels):
            return labels
    if len(product_labels) == 2:
        return min(
            (product_labels, product_labels[::-1]),
            key=lambda order: _matmul(first, second, order).transposes,
        )
    shared = [label for label in product_labels if label in first and label in second]
    return (*shared, *(label for label in product_labels if label not in shared))


class Matmul(NamedTuple):
    """A product by `@`: how many operands are transposed, and for each its position among two
    factors and its labels; none where `@` cannot contract the factors."""

    transposes: int
    operands: tuple[tuple[int, ir.Labels], ...] = ()


def _matmul(first: ir.Labels, second: ir.Labels, output: Sequence[int]) -> Matmul:
    """Contract two factors by `@` with the fewest transposes."""
    factors = first, second
    candidates = [
        Matmul((a != factors[left]) + (b != factors[right]), ((left, a), (right, b)))
        for left, right in ((0, 1), (1, 0))
        for a, b in itertools.product(_transposes(factors[left]), _transposes(factors[right]))
        if is_matmul(a, b, output)
    ]
    return min(candidates, key=lambda candidate: candidate.transposes, default=Matmul(3))


def _transposes(labels: ir.Labels) -> list[ir.Labels]:
    """Return the labels of a factor, and those of its transpose if it is a matrix."""
    return [labels, labels[::-1]] if len(labels) == 2 else [labels]


def _references(node: ir.Node) -> list[ir.Node]:
    """List the children of a node, as often as its text contains theirs."""
    if not isinstance(node, ir.Map):
        return references(node)
    arguments = {ir.slot(n): argument for n, argument in enumerate(node.arguments)}
    counts = count_uses(node.expression, tuple(arguments))
    return [arguments[symbol] for symbol in counts.elements()]
