"""Derivations: the differential of a function expanded line by line, and the gradient or VJP.

Each line is linear in differentials: dX of the input, and those of subexpressions whose rule has
not been applied yet. A step replaces the outermost of these by the rule that `jvp` applies, so that
a derivation shows how the compiler derives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import sympy

from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.differentiate.jvp import rule
from derivatrix.compiler.differentiate.projection import PROJECTED
from derivatrix.compiler.differentiate.segments import with_whole_loops
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.formulas import algebra, expressions
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.printers import STYLES, math_printers
from derivatrix.compiler.formulas.printers.base import ATOM, Text
from derivatrix.compiler.formulas.printers.latex import aligned
from derivatrix.compiler.formulas.printers.mathematics import UNICODE, MathPrinter
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

MAX_INLINE_LENGTH = 40
"""Longest text of a function that is differentiated as written; a longer one is named first."""

INNER_PRODUCT_REASONS = {
    1: "a scalar is its own transpose",
    2: "the trace is cyclic, and tr(Aᵀ) = tr(A)",
}
"""Reasons, by the rank of the input, why its differential can stand last in a scalar."""

ADJOINT_REASON = (
    "the transposed recursion runs backwards: λ[t] = A[t]ᵀ λ[t + 1] + c[t], "
    "where c[t] is what dh[t] is multiplied by; "
)
"""Reason for the step from the differential of a loop over time to its adjoint."""

MAX_LINES = 400
"""Most lines of a derivation; each line expands the differentials of one subexpression at least."""

NO_PRIMALS: Mapping[str, Node] = {}


class Step(NamedTuple):
    """A line of a derivation, and the rule that leads to it."""

    text: str
    reason: str


class Equation(NamedTuple):
    """A formula behind its left side, and its definitions, each as the texts of its two sides."""

    text: str
    definitions: list[tuple[str, str]]


class Steps(tuple[Step, ...]):
    """The lines of a derivation. A notebook shows them in LaTeX, whatever their style."""

    latex: Callable[[], Steps]

    def __repr__(self) -> str:
        width = min(60, max(len(step.text) for step in self))
        return "\n".join(f"{step.text:{width}}  [{step.reason}]" for step in self)

    def _repr_latex_(self) -> str:
        return aligned(rf"{step.text} \qquad \text{{[{step.reason}]}}" for step in self.latex())


@dataclass(frozen=True)
class Line:
    """An expression in differentials, and why it equals the previous one. `primals`: by the name
    of a differential, the node whose differential it is."""

    node: Node
    reason: str
    primals: Mapping[str, Node] = field(repr=False)


def derivation(derivatives: Derivatives, wrt: str | None = None, style: str = "unicode") -> Steps:
    """Derive the gradient (of a scalar function) or the VJP by the input `wrt`, step by step.

    A function with a batch axis is derived for one sample. Raises DeclarationError for a style that
    is not for reading, as numpy, or for an input by which the function is not differentiated.
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
    where = printers[style].where
    steps = Steps(
        Step(where(*equation) if equation.definitions else equation.text, reason)
        for equation, reason in equations(derivatives, name, style)
    )
    steps.latex = partial(derivation, derivatives, name, "latex")
    return steps


def equations(derivatives: Derivatives, name: str, style: str) -> Iterator[tuple[Equation, str]]:
    """Yield the lines of the derivation by the input `name`, each with the reason for it."""
    writer = _Derivation(derivatives, name, style)
    return ((equation, writer.printer.prose(reason)) for equation, reason in writer.steps())


def lines(root: Node, leaf: ir.Leaf, printer: MathPrinter = UNICODE) -> Iterator[Line]:
    """Expand the differential of `root` where only `leaf` varies, from d root to d leaf alone."""
    differentials = _Differentials(root, leaf, printer)
    expression: Node = differentials.differential(root)
    yield Line(expression, "", differentials.primals)
    for _ in range(MAX_LINES):
        expandable = differentials.expandable
        primals = {part: expandable[part] for part in leaves([expression]) if part in expandable}
        if not primals:
            return
        outermost = max(primals.values(), key=differentials.order.__getitem__)
        reason = differentials.reason(outermost)
        expanded = {
            differential: differentials.expand(primal)
            for differential, primal in primals.items()
            if differentials.reason(primal) == reason
        }
        expression = simplify(substitute([expression], expanded))[0]
        yield Line(expression, reason, differentials.primals)


class _Differentials:
    """The differentials of nodes, as leaves. `primals`: by name, their nodes; `expandable`: the
    nodes of those to which a rule can be applied, all but that of the input."""

    def __init__(self, root: Node, leaf: ir.Leaf, printer: MathPrinter) -> None:
        nodes = topological([root])
        self.leaf = leaf
        self.printer = printer
        self.order = {node: position for position, node in enumerate(nodes)}
        self.varying = depending(nodes, [leaf])
        self.expandable: dict[Node, Node] = {}
        self.primals: dict[str, Node] = {}

    def differential(self, node: Node) -> Node:
        """Make the leaf for the differential of a node; zeros for a node that does not vary."""
        if node not in self.varying:
            return zeros(node.shape)
        node_facts = facts(node)
        structures = ("diagonal", "symmetric", "lower", "upper")
        structure = next((word for word in structures if word in node_facts), "general")
        differential = ir.Leaf(f"d{node.key}", node.shape, structure, role="tangent")
        self.primals[differential.name] = node
        if node is not self.leaf:
            self.expandable[differential] = node
        return differential

    def expand(self, node: Node) -> Node:
        """Compute the differential of a node, by its rule, from those of its children."""
        return rule(node, {child: self.differential(child) for child in node.children})

    def reason(self, node: Node) -> str:
        """Name the rule for the differential of a node."""
        match node:
            case ir.Sum():
                has_constant = any(term not in self.varying for term in node.terms)
                return "differential of a sum" + ("; constants drop out" if has_constant else "")
            case ir.Map():
                derivatives = _entrywise_derivatives(node, self.varying, self.printer)
                return f"chain rule, entry by entry: {derivatives}"
            case ir.Apply():
                return _operation_reason(node)
            case ir.Einsum():
                return _product_reason(node, self.varying)
        return "differential"


def _operation_reason(node: ir.Apply) -> str:
    """Name an operation; give the first sentence of its rule's docstring if that is a formula."""
    title = node.operation.title or node.operation.name
    paragraph = (node.operation.differential.__doc__ or "").strip().split("\n\n")[0]
    sentence = re.split(r"\.(?= [A-Z]|$)", " ".join(paragraph.split()))[0]
    reason = f"differential of {title}"
    formula = re.match(r"d\S* .*=", sentence) or sentence.startswith("dX solves")
    return f"{reason}: {sentence.replace('-', '−')}" if formula else reason


def _product_reason(node: ir.Einsum, varying: set[Node]) -> str:
    """Name the rule for the differential of a product of one or several varying factors."""
    varying_factors = [factor for factor, _ in node.factors if factor in varying]
    arrays = [factor for factor, _ in node.factors if not isinstance(factor, ir.Structural)]
    if len(varying_factors) > 1:
        return "differential of a product"
    counts = Counter(label for _, labels in node.factors for label in labels)
    are_matrices = all(factor.ndim == 2 for factor, _ in node.factors)
    if node.ndim == 0 and are_matrices and set(counts.values()) == {2}:
        return "the trace is linear"
    if len(arrays) == 1:
        return "a sum is linear" if node.contracted else "moving entries is linear"
    return "a product with constants is linear"


def _entrywise_derivatives(node: ir.Map, varying: set[Node], printer: MathPrinter) -> str:
    """Write the partial derivatives of an entrywise function, as one of t (and u, v, ...)."""
    names = {leaf.name for leaf in leaves([node])}
    letters = [letter for letter in "tuvwabcdefgh" if letter not in names] or ["t"]
    symbols: dict[sympy.Symbol, Tree] = {
        slot(i): kinds.Name(0, letters[i % len(letters)], letters[i % len(letters)])
        for i in range(len(node.arguments))
    }
    equations = []
    d = "d" if len(node.arguments) == 1 else printer.partial
    function = printer.text(expressions.convert(node.expression, symbols), ATOM)
    for i, argument in enumerate(node.arguments):
        if argument in varying:
            derivative = scalar_functions.derivative(node.expression, slot(i))
            left = f"{d}{function}/{d}{printer.text(symbols[slot(i)])}"
            right = printer.text(expressions.convert(derivative, symbols))
            equations.append(printer.formula.format(f"{left} = {right}"))
    return ", ".join(equations)


class _Formula(NamedTuple):
    """The right side of a line: its tree, the indices of the left side, and its definitions, each
    as the texts of its two sides."""

    tree: Tree
    indices: kinds.Indices
    definitions: list[tuple[str, str]]


class _Derivation:
    """One derivation as text."""

    def __init__(self, derivatives: Derivatives, name: str, style: str) -> None:
        self.derivatives = derivatives
        self.leaf = derivatives.inputs[name]
        self.is_scalar = derivatives.function.is_scalar
        self.printer = derivatives.printer(style)
        self.by_index = STYLES[style].by_index

    def steps(self) -> Iterator[tuple[Equation, str]]:
        """Write the function if its text is long, its differential line by line, and the result."""
        (root,) = simplify(with_whole_loops([self.derivatives.function.expression]))
        differential_lines = list(lines(root, self.leaf, self.printer))
        formula = self._formula(root)
        text, subject = self.printer.text(formula.tree, ATOM), formula.tree
        if len(text) > MAX_INLINE_LENGTH or formula.definitions or isinstance(root, ir.Leaf):
            value = self.printer.accented(self.derivatives.value_letter, "")
            yield self._equation(value, formula), "the function"
            subject = _named(self.derivatives.value_letter)
        left: Text | None = self.printer.differential(subject)
        zero = _Formula(kinds.Number(sympy.S.Zero), (), [])
        if len(differential_lines) == 1 and not isinstance(root, ir.Leaf):
            yield self._equation(left, zero), f"it does not depend on {self.leaf.name}"
        formula = zero
        for line in differential_lines[1:]:
            next_formula = self._formula(line.node, line.primals)
            tree = align_trace(next_formula.tree, formula.tree)
            formula = next_formula._replace(tree=tree)
            yield self._equation(left, formula), line.reason
            left = None
        yield from self._collect(differential_lines[-1], self._equation(None, formula))

    def _collect(self, line: Line, last: Equation) -> Iterator[tuple[Equation, str]]:
        """Write the gradient or VJP that the last `line` gives. The inner product of the gradient
        and the input's differential comes first, unless it is `last`, the line itself."""
        leaf, printer = self.leaf, self.printer
        differential = next(
            (part for part in leaves([line.node]) if line.primals.get(part.name) is leaf),
            ir.Leaf("d", leaf.shape, role="tangent"),
        )
        cotangent = full(1) if self.is_scalar else self.derivatives.cotangents[""]
        kind = "gradient" if self.is_scalar else "vjp"
        result = self.derivatives.results(kind)[(leaf.name,)]
        transposed = transpose([line.node], [differential], [cotangent])
        (pulled_back,) = simplify(transposed, final=True)
        left = printer.derivative(kind, self.derivatives.value_letter, (leaf.name,))
        is_projected = leaf.structure in PROJECTED and pulled_back is not result
        unprojected = next(
            (letter for letter in "GHFPQRUVW" if letter not in self.derivatives.declared),
            "Gradient",
        )
        projected = printer.accented(unprojected, "")
        symbol = projected[0] if is_projected else printer.nabla if self.is_scalar else left[0]
        varying = depending(topological([line.node]), [differential])
        has_loop = any(isinstance(node, ir.Apply) and node.operation.adjoint for node in varying)
        adjoint_reason = ADJOINT_REASON if has_loop else ""
        reason = f"collected: {self._defining_property(symbol)}"
        if self.is_scalar and 0 < leaf.ndim < 3 and not is_zero(pulled_back):
            labels = tuple(range(leaf.ndim))
            product = einsum([(pulled_back, labels), (differential, labels)], ())
            equation = self._equation(None, self._formula(product, {differential.name: leaf}))
            if equation != last:
                yield equation, adjoint_reason + INNER_PRODUCT_REASONS[leaf.ndim]
                adjoint_reason = ""
        reason = adjoint_reason + reason
        if is_projected:
            yield self._equation(projected, self._formula(pulled_back)), reason
            reason = f"the part of {unprojected} that is {PROJECTED[leaf.structure]}"
        yield self._equation(left, self._formula(result)), reason

    def _defining_property(self, symbol: str) -> str:
        """Write the equation that defines the gradient or VJP `symbol`, as dy = tr(∇ᵀ dX)."""
        printer, leaf, letter = self.printer, self.leaf, self.derivatives.value_letter
        dx, dy = (printer.differential(_named(name))[0] for name in (leaf.name, letter))
        transposed_product = f"{printer.transposed.format(symbol)} {dx}"
        if not self.is_scalar:
            left, right = printer.inner(printer.name(letter, "bar"), dy), printer.inner(symbol, dx)
        elif leaf.ndim > 2:
            left, right = dy, printer.inner(symbol, dx)
        elif leaf.ndim == 2:
            left, right = dy, printer.call("tr", [transposed_product])[0]
        else:
            left, right = dy, transposed_product if leaf.ndim else f"{symbol} {dx}"
        return printer.formula.format(f"{left} = {right}")

    def _formula(self, node: Node, primals: Mapping[str, Node] = NO_PRIMALS) -> _Formula:
        """Build the formula of `node`; `primals`: by the name of a differential, its node."""
        names = {leaf.name for leaf in leaves([node])}
        primals = {name: primal for name, primal in primals.items() if name in names}
        display_names, declared = self.derivatives.display_names(), self.derivatives.declared
        builder = Notation(node, display_names, self.by_index, primals, declared)
        tree, indices = builder.result()
        return _Formula(tree, indices, definition_texts(self.printer, tree, builder.definitions))

    def _equation(self, left: Text | None, formula: _Formula) -> Equation:
        """Write `left` = the formula, or "= the formula" without a left side."""
        left_side = f"{self.printer.left_side(left, formula.indices)} " if left else ""
        return Equation(f"{left_side}= {self.printer.text(formula.tree)}", formula.definitions)


def _named(name: str) -> kinds.Name:
    """Return the tree of a name."""
    return kinds.Name(0, name, name)


def align_trace(tree: Tree, previous: Tree) -> Tree:
    """Rotate the product in a trace so that it starts with the same factor as in `previous`."""
    previous_factors, factors = _trace_factors(previous), _trace_factors(tree)
    if not previous_factors or not factors or previous_factors[0] not in factors:
        return tree
    start = factors.index(previous_factors[0])
    product = algebra.matmul(*factors[start:], *factors[:start])
    if not start or not isinstance(product, kinds.Matmul):
        return tree
    if isinstance(tree, kinds.Scale):
        return algebra.scale(tree.coefficient, tree.scalars[:-1], kinds.Trace(product))
    return kinds.Trace(product)


def _trace_factors(tree: Tree) -> tuple[Tree, ...]:
    """Return the factors of B C ... for a tree tr(B C ...) or a number times it, else ()."""
    if isinstance(tree, kinds.Scale) and tree.body is None and len(tree.scalars) == 1:
        tree = tree.scalars[0]
    if isinstance(tree, kinds.Trace) and isinstance(tree.body, kinds.Matmul):
        return tree.body.factors
    return ()
