"""Building trees for NumPy: matrix notation where there is one, else entrywise products with
broadcasting, else `np.einsum`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce

import sympy

from derivatrix.compiler.formulas import algebra, entrywise
from derivatrix.compiler.formulas.build import (
    Builder,
    Item,
    call,
    chain_factors,
    matrix,
    remove_spreads,
)
from derivatrix.compiler.formulas.contract import contract
from derivatrix.compiler.formulas.expressions import convert
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.tree import (
    Arranged,
    Contraction,
    Indices,
    Lengths,
    Number,
    Reshaped,
    Resized,
    Tree,
)
from derivatrix.compiler.ir.nodes import (
    Apply,
    Constant,
    Einsum,
    Leaf,
    Map,
    Node,
    Structural,
    Sum,
    einsum,
    labels_of,
    used_slots,
)
from derivatrix.compiler.ir.numpy_spelling import EINSUM_LETTERS
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_functions import hypot, length

ONE = sympy.S.One


class Arrays(Builder):
    """Builds trees for the style numpy."""

    max_repeated_length = 24

    def __init__(self, root: Node, printer: NumPy, declared: Iterable[str] = ()) -> None:
        self.printer = printer
        super().__init__(root, declared=declared)

    def measure(self, tree: Tree) -> int:
        return len(self.printer.text(tree))

    def right_side(self, node: Node) -> tuple[Tree, Indices]:
        indices = (None,) * node.ndim
        return self.expand(node, indices, frozenset()), indices

    def expand(self, node: Node, indices: Indices, scope: frozenset[str]) -> Tree:
        match node:
            case Leaf():
                return self.leaf(node)
            case Constant():
                return self.constant(node)
            case Structural():
                return matrix(node)
            case Map(expression=length()):
                return self._length(node.arguments[0])
            case Map():
                return self.map(node, indices, scope)
            case Sum():
                return self.sum(node, indices, scope)
            case Apply():
                return self._call(node)
            case Einsum():
                return self._product(Product.reduced(node))
        raise TypeError(f"no formula for {node!r}")

    def _tree_of(self, node: Node) -> Tree:
        return self.tree(node, (None,) * node.ndim, frozenset())

    def _length(self, square: Node) -> Tree:
        """Build the square root of a sum of squares by hypot, as squares may be beyond the range of
        numbers."""
        if isinstance(square, Map) and isinstance(square.expression, sympy.Add):
            # Absolute values are dropped, as hypot(x, y) is hypot(|x|, |y|).
            parts = [sympy.sqrt(e).replace(sympy.Abs, lambda x: x) for e in square.expression.args]
            roots = [
                self._tree_of(Map(*used_slots(part, square.arguments)))
                if part.free_symbols
                else convert(part)
                for part in parts
            ]
        elif isinstance(square, Sum):
            roots = [self._root(term) for term in square.terms]
        elif isinstance(square, Einsum) and square.contracted:
            roots = [self._root(square)]
        else:
            roots = [algebra.raised(self._tree_of(square), Number(sympy.S.Half))]
        return reduce(lambda left, right: entrywise.function(hypot, [left, right]), roots)

    def _root(self, square: Node) -> Tree:
        """Build a root of a term of a sum of squares; it may be negative unless it is a sum."""
        counts = Counter(square.factors if isinstance(square, Einsum) else ())
        if not isinstance(square, Einsum) or any(count % 2 for count in counts.values()):
            return algebra.raised(self._tree_of(square), Number(sympy.S.Half))
        half = [factor for factor, count in counts.items() for _ in range(count // 2)]
        labels = labels_of(half)
        if len(half) > 1 or sorted(labels[: square.ndim]) != labels[: square.ndim]:
            labels.sort()
        body = self._product(Product.reduced(einsum(half, labels)))
        summed = tuple(p for p, label in enumerate(labels) if label >= square.ndim)
        counted = [square.sizes[label] for label in square.contracted if label not in labels]
        scale = convert(sympy.sqrt(sympy.prod([square.coefficient, *counted])))
        root = Lengths(square.ndim, body, summed) if summed else body
        return algebra.scale(ONE, [scale], root)

    def _product(self, product: Product) -> Tree:
        shape = tuple(product.sizes[label] for label in product.output)
        factors = chain_factors(product.factors, product.output)
        items = remove_spreads(
            [(self._tree_of(factor), labels) for factor, labels in factors], product
        )
        item_labels = labels_of(items)
        present = [label for label in product.output if label in item_labels]
        along = [product.output.index(label) for label in present]
        body = self._body(items, tuple(present), product)
        return entrywise.spread(
            algebra.scale(ONE, [convert(product.coefficient)], body), along, shape
        )

    def _body(self, items: list[Item], output: tuple[int, ...], product: Product) -> Tree | None:
        """Multiply items, which have all output labels; None for no items."""
        if not items:
            return None
        if all(labels in ((), output) for _, labels in items):
            return algebra.hadamard([tree for tree, _ in items])
        chain = contract(items, output, product.sizes)
        if chain is not None:
            return chain
        items = _split_merged_axes(items, output, product)
        scalars = [tree for tree, labels in items if not labels]
        arrays = [(tree, labels) for tree, labels in items if labels]
        has_repeated_label = any(len(set(labels)) < len(labels) for _, labels in arrays)
        if has_repeated_label or not {*labels_of(arrays)} <= {*output}:
            body = self._contraction(arrays, output, product)
        else:
            body = self._entrywise(arrays, output, product)
        return algebra.scale(ONE, scalars, body)

    def _entrywise(self, items: list[Item], output: tuple[int, ...], product: Product) -> Tree:
        shape = tuple(product.sizes[label] for label in output)
        factors = []
        for tree, labels in items:
            along = sorted(output.index(label) for label in labels)
            tree = arranged(tree, tuple(labels.index(output[axis]) for axis in along))
            factors.append(entrywise.spread(tree, along, shape))
        return algebra.hadamard(factors)

    def _contraction(self, items: list[Item], output: tuple[int, ...], product: Product) -> Tree:
        labels_in_order = dict.fromkeys([*output, *labels_of(items)])
        letters = dict(zip(labels_in_order, EINSUM_LETTERS, strict=False))
        inputs = ("".join(letters[label] for label in labels) for _, labels in items)
        subscripts = f"{','.join(inputs)}->{''.join(letters[label] for label in output)}"
        return Contraction(len(output), subscripts, tuple(tree for tree, _ in items))

    def _call(self, node: Apply) -> Tree:
        """Build the tree of an operation; stacked axes that no argument has are broadcast."""
        stack_labels = sorted(labels_of(node.arguments))
        arguments = []
        for argument, labels in node.arguments:
            core = range(len(labels), argument.ndim)
            order = [labels.index(i) if i in labels else None for i in stack_labels]
            arguments.append(arranged(self._tree_of(argument), (*order, *core)))
        rank = len(stack_labels) + node.ndim - len(node.stack)
        axes = [*stack_labels, *range(len(node.stack), node.ndim)]
        return entrywise.spread(call(node, arguments, rank), axes, node.shape)


def _split_merged_axes(items: list[Item], output: tuple[int, ...], product: Product) -> list[Item]:
    """Reshape items with a merged axis that is summed with the merge of two axes alone."""
    for merge in items:
        tree, (merged, *labels) = merge[0], merge[1] or (-1,)
        if not isinstance(tree, Reshaped) or tree.packed or merged in output:
            continue
        linked = [item for item in items if item is not merge and merged in item[1]]
        is_private = len(linked) == 1 and linked[0][1].count(merged) == 1
        if is_private and len(set(labels)) == 2:
            (body, body_labels) = linked[0]
            axis = body_labels.index(merged)
            new_labels = (*body_labels[:axis], *labels, *body_labels[axis + 1 :])
            inner = body.body if isinstance(body, Resized) else body
            resized = Resized(inner, tuple(product.sizes[label] for label in new_labels))
            other_items = [item for item in items if item is not merge and item is not linked[0]]
            return _split_merged_axes([(resized, new_labels), *other_items], output, product)
    return items


def arranged(tree: Tree, order: tuple[int | None, ...]) -> Tree:
    """Reorder the axes of `tree`; insert axes of length 1 where `order` has None."""
    if order == tuple(range(tree.rank)):
        return tree
    if order == (1, 0):
        return algebra.transpose(tree)
    return Arranged(len(order), tree, order)
