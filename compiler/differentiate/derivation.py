"""A derivation, line by line: the differentials of the parts of a function, outermost first, put
in one after the other, and what they come to.

Each line is an expression that is linear in differentials: dX of the input, and those of parts
whose rule has not been used yet. A step replaces the outermost of these by what its operation's
own rule makes of it (`differentiate.rule`), so a line says what the compiler does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import sympy

from derivatrix.compiler.differentiate.derivatives import PROJECTED, Derivatives
from derivatrix.compiler.differentiate.jvp import rule
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.formulas import algebra, expressions
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.printers import STYLES, math_printers
from derivatrix.compiler.formulas.printers.base import ATOM
from derivatrix.compiler.formulas.printers.latex import aligned
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.unicode import UNICODE
from derivatrix.compiler.formulas.sharing import definition_texts
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.graph import depending
from derivatrix.compiler.ir.nodes import (
    Node,
    einsum,
    full,
    is_zero,
    leaves,
    slot,
    topological,
    zeros,
)
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import DeclarationError

LONG = 40
"""A function whose text is longer is named in the first line."""

GATHERED = {1: "a scalar is its own transpose", 2: "the trace is cyclic, and tr(Aᵀ) = tr(A)"}
"""By the rank of the input, why its differential can stand last."""

LINES = 400
"""Derivations are cut off after so many lines."""


class Step(NamedTuple):
    """A line of a derivation, and the rule that leads to it."""

    text: str
    reason: str


class Steps(tuple[Step, ...]):
    """The lines of a derivation. In a notebook they are shown in LaTeX, whatever their style."""

    latex: Callable[[], Steps]

    def __repr__(self) -> str:
        width = min(60, max(len(step.text) for step in self))
        return "\n".join(f"{step.text:{width}}  [{step.reason}]" for step in self)

    def _repr_latex_(self) -> str:
        return aligned(rf"{step.text} \qquad \text{{[{step.reason}]}}" for step in self.latex())


@dataclass(frozen=True)
class Line:
    """An expression in differentials, and why it equals the one before. `parts`: by the name of a
    differential in it, the node whose differential it is."""

    node: Node
    reason: str
    parts: Mapping[str, Node] = field(repr=False)


def derivation(derivatives: Derivatives, wrt: str | None = None, style: str = "unicode") -> Steps:
    """How the gradient (of a scalar function) or the VJP by the input `wrt` comes about.

    With a batch axis: for one sample. Raises DeclarationError for a style that is not for reading,
    as numpy, or for an input by which the function is not differentiated.
    """
    printers = math_printers()
    if style not in printers:
        raise DeclarationError(f"steps have no style {style!r}; choose from {', '.join(printers)}")
    function = derivatives.function
    names = function.wrt
    if wrt is None and len(names) > 1:
        raise DeclarationError(f"{function.name}: by which input? {', '.join(names)}")
    name = names[0] if wrt is None else wrt
    if name not in names:
        raise DeclarationError(f"{function.name}: {name!r} is not in wrt: {', '.join(names)}")
    found = _Derivation(derivatives, name, style)
    steps = Steps(Step(text, found.printer.prose(reason)) for text, reason in found.steps())
    steps.latex = partial(derivation, derivatives, name, "latex")
    return steps


def lines(root: Node, leaf: ir.Leaf, printer: MathPrinter = UNICODE) -> Iterator[Line]:
    """The differential of `root` where only `leaf` moves: first d root, at last one of d leaf."""
    differentials = _Differentials(root, leaf, printer)
    expression: Node = differentials.differential(root)
    yield Line(expression, "", differentials.parts)
    for _ in range(LINES):
        left = leaves([expression])
        nodes = {part: differentials.open[part] for part in left if part in differentials.open}
        if not nodes:
            return
        outermost = max(nodes.values(), key=differentials.order.__getitem__)
        reason = differentials.reason(outermost)
        chosen = {part: own for part, own in nodes.items() if differentials.reason(own) == reason}
        new = {part: differentials.expanded(own) for part, own in chosen.items()}
        expression = simplify(substitute([expression], new))[0]
        yield Line(expression, reason, differentials.parts)


class _Differentials:
    """The differentials of nodes, as leaves. `open`: those whose rule can still be used."""

    def __init__(self, root: Node, leaf: ir.Leaf, printer: MathPrinter) -> None:
        nodes = topological([root])
        self.leaf = leaf
        self.printer = printer
        self.order = {node: position for position, node in enumerate(nodes)}
        self.varying = depending(nodes, [leaf])
        self.open: dict[Node, Node] = {}
        self.parts: dict[str, Node] = {}

    def differential(self, node: Node) -> Node:
        """The leaf that stands for the differential of a node; zeros where it does not vary."""
        if node not in self.varying:
            return zeros(node.shape)
        known = facts(node)
        structures = ("diagonal", "symmetric", "lower", "upper")
        structure = next((own for own in structures if own in known), "general")
        differential = ir.Leaf(f"d{node.key}", node.shape, structure, role="tangent")
        self.parts[differential.name] = node
        if node is not self.leaf:
            self.open[differential] = node
        return differential

    def expanded(self, node: Node) -> Node:
        """The differential of a node by its rule, in terms of its children's."""
        return rule(node, {child: self.differential(child) for child in node.children})

    def reason(self, node: Node) -> str:
        match node:
            case ir.Sum():
                constant = any(term not in self.varying for term in node.terms)
                return "differential of a sum" + ("; constants drop out" if constant else "")
            case ir.Map():
                return f"chain rule, entry by entry: {_slopes(node, self.varying, self.printer)}"
            case ir.Apply():
                return _operation(node)
            case ir.Einsum():
                return _product(node, self.varying)
        return "differential"


def _operation(node: ir.Apply) -> str:
    """The operation, and the first sentence of its rule's docstring, if it is a formula."""
    title = node.operation.title or node.operation.name
    paragraph = (node.operation.differential.__doc__ or "").strip().split("\n\n")[0]
    sentence = re.split(r"\.(?= [A-Z]|$)", " ".join(paragraph.split()))[0]
    reason = f"differential of {title}"
    formula = re.match(r"d\S* .*=", sentence) or sentence.startswith("dX solves")
    return f"{reason}: {sentence.replace('-', '−')}" if formula else reason


def _product(node: ir.Einsum, varying: set[Node]) -> str:
    moving = [factor for factor, _ in node.factors if factor in varying]
    arrays = [factor for factor, _ in node.factors if not isinstance(factor, ir.Structural)]
    if len(moving) > 1:
        return "differential of a product"
    counts = Counter(label for _, labels in node.factors for label in labels)
    matrices = all(factor.ndim == 2 for factor, _ in node.factors)
    if node.ndim == 0 and matrices and set(counts.values()) == {2}:
        return "the trace is linear"
    if len(arrays) == 1:
        return "a sum is linear" if node.contracted else "moving entries is linear"
    return "a product with constants is linear"


def _slopes(node: ir.Map, varying: set[Node], printer: MathPrinter) -> str:
    """The derivatives of an entrywise function, as of t (and u, v, ...)."""
    names = {leaf.name for leaf in leaves([node])}
    letters = [letter for letter in "tuvwabcdefgh" if letter not in names] or ["t"]
    symbols: dict[sympy.Symbol, Tree] = {
        slot(i): kinds.Name(0, letters[i % len(letters)], letters[i % len(letters)])
        for i in range(len(node.arguments))
    }
    texts = []
    sign = "d" if len(node.arguments) == 1 else printer.partial
    whole = printer.text(expressions.convert(node.expression, symbols), ATOM)
    for i, argument in enumerate(node.arguments):
        if argument in varying:
            slope = scalar_functions.derivative(node.expression, slot(i))
            text = printer.text(expressions.convert(slope, symbols))
            equation = f"{sign}{whole}/{sign}{printer.text(symbols[slot(i)])} = {text}"
            texts.append(printer.formula.format(equation))
    return ", ".join(texts)


class _Derivation:
    """The lines of one derivation as text."""

    def __init__(self, derivatives: Derivatives, name: str, style: str) -> None:
        self.derivatives = derivatives
        self.leaf = derivatives.inputs[name]
        self.scalar = not derivatives.function.expression.shape
        self.printer = derivatives.printer(style)
        self.by_index = STYLES[style].by_index

    def steps(self) -> Iterator[Step]:
        (root,) = simplify([self.derivatives.function.expression])
        found = list(lines(root, self.leaf, self.printer))
        letter = self.derivatives.value_letter
        tree, where = self._tree(root, {})
        own = self.printer.text(tree, ATOM)
        if len(own) > LONG or where or isinstance(root, ir.Leaf):
            yield Step(self._equation(letter, tree, where), "the function")
            own = letter
        start = self.printer.differential(own)
        if len(found) == 1 and not isinstance(root, ir.Leaf):
            yield Step(f"{start} = 0", f"it does not depend on {self.leaf.name}")
        previous: Tree = kinds.Number(sympy.S.Zero)
        for position, line in enumerate(found[1:]):
            tree, where = self._tree(line.node, line.parts)
            shown = turned(tree, previous)
            yield Step(self._equation("" if position else start, shown, where), line.reason)
            previous = shown
        yield from self._collected(found[-1], self._equation("", previous, where))

    def _collected(self, last: Line, before: str) -> Iterator[Step]:
        """The gradient, or the VJP, from the differential; `before`: the text of the last line,
        which is not repeated."""
        differential = next(
            (part for part in leaves([last.node]) if last.parts.get(part.name) is self.leaf),
            ir.Leaf("d", self.leaf.shape, role="tangent"),
        )
        cotangent = full(1) if self.scalar else self.derivatives.cotangent
        kind = "gradient" if self.scalar else "vjp"
        result = self.derivatives.results(kind)[(self.leaf.name,)]
        (pulled,) = simplify(transpose(last.node, [differential], cotangent), final=True)
        value = self.derivatives.value_letter
        left = self.printer.derivative(kind, value, (self.leaf.name,))
        projected = self.leaf.structure in PROJECTED and pulled is not result
        whole = next(
            (own for own in "GHFPQRUVW" if own not in self.derivatives.declared), "Gradient"
        )
        symbol = whole if projected else self.printer.nabla if self.scalar else left
        reason = f"collected: {self._pairing(symbol)}"
        if self.scalar and 0 < self.leaf.ndim < 3 and not is_zero(pulled):
            labels = tuple(range(self.leaf.ndim))
            product = einsum([(pulled, labels), (differential, labels)], ())
            tree, where = self._tree(product, {differential.name: self.leaf})
            text = self._equation("", tree, where)
            if text != before:
                yield Step(text, GATHERED[self.leaf.ndim])
        if projected:
            tree, where = self._tree(pulled, {})
            yield Step(self._equation(whole, tree, where), reason)
            reason = f"the part of {whole} that is {PROJECTED[self.leaf.structure]}"
        tree, where = self._tree(result, {})
        yield Step(self._equation(left, tree, where), reason)

    def _pairing(self, symbol: str) -> str:
        """What the gradient or VJP is defined by; `symbol` stands for it."""
        printer, letter = self.printer, self.derivatives.value_letter
        moved, moving = (printer.differential(printer.name(n)) for n in (self.leaf.name, letter))
        left, right = moving, self._product(symbol, moved)
        if not self.scalar:
            left = printer.inner(printer.name(letter, "bar"), moving)
            right = printer.inner(symbol, moved)
        return printer.formula.format(f"{left} = {right}")

    def _product(self, symbol: str, moved: str) -> str:
        """The inner product of the gradient and the input's differential."""
        if self.leaf.ndim == 0:
            return f"{symbol} {moved}"
        product = f"{self.printer.transposed.format(symbol)} {moved}"
        if self.leaf.ndim > 2:
            return self.printer.inner(symbol, moved)
        return self.printer.call("tr", [product]) if self.leaf.ndim == 2 else product

    def _tree(self, node: Node, parts: Mapping[str, Node]) -> tuple[Tree, list[tuple[str, str]]]:
        used = {part.name for part in leaves([node])}
        moving = {name: part for name, part in parts.items() if name in used}
        names = self.derivatives.display_names()
        builder = Notation(node, names, self.by_index, moving, self.derivatives.declared)
        tree, self.indices = builder.result()
        return tree, definition_texts(self.printer, tree, builder.definitions)

    def _equation(self, left: str, tree: Tree, where: list[tuple[str, str]]) -> str:
        left = f"{self.printer.left_side(left, self.indices)} " if left else ""
        text = f"{left}= {self.printer.text(tree)}"
        return self.printer.where(text, where) if where else text


def turned(tree: Tree, previous: Tree) -> Tree:
    """The trace of a product, turned to start as the line before."""
    first, second = _trace(previous), _trace(tree)
    if first is None or second is None or first[0] not in second:
        return tree
    turn = second.index(first[0])
    if not turn:
        return tree
    product = algebra.matmul(*second[turn:], *second[:turn])
    if not isinstance(product, kinds.Matmul):
        return tree
    if isinstance(tree, kinds.Scale):
        return algebra.scale(tree.coefficient, tree.scalars[:-1], kinds.Trace(product))
    return kinds.Trace(product)


def _trace(tree: Tree) -> tuple[Tree, ...] | None:
    """The factors of the product whose trace a tree is, up to a number."""
    if isinstance(tree, kinds.Scale) and tree.body is None and len(tree.scalars) == 1:
        tree = tree.scalars[0]
    if isinstance(tree, kinds.Trace) and isinstance(tree.body, kinds.Matmul):
        return tree.body.factors
    return None
