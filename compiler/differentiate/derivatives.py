"""All derivatives of a function, each derived from the one before.

value -> differential (JVP) -> its transpose (VJP) -> the gradient, and the JVP at a basis of
tangents -> the Jacobian; the same once more on the gradient gives HVP and Hessian. Everything
is derived without the batch axis; where the function has one it is put in at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import Any

import sympy

from derivatrix.compiler.differentiate import spectral
from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.formulas import (
    STYLES,
    Side,
    render,
    render_equation,
    render_vec,
    render_vec_equation,
)
from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.printers.latex import aligned
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import BATCH, LENGTH, Shape, readings
from derivatrix.compiler.ir.nodes import Delta, Leaf, Node, Sum, Triangle, einsum, full
from derivatrix.compiler.ir.numpy_text import numpy_text
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.adjugates import with_adjugates
from derivatrix.compiler.simplify.finite_parts import with_lengths
from derivatrix.compiler.simplify.lengths import fused
from derivatrix.compiler.simplify.root_lengths import with_root_lengths
from derivatrix.compiler.simplify.selections import with_selections
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

KINDS = ("value", "vjp", "jvp", "jacobian")
SCALAR_KINDS = ("gradient", "value_and_gradient", "hessian", "hvp")

Key = tuple[str, ...]
"""Which inputs a result belongs to: () for a value or JVP, (name,), or a pair for a Hessian."""


class Derivatives:
    """The closed forms for one function; nodes are derived when first asked for."""

    def __init__(self, function: Declaration) -> None:
        self.function = function
        self.inputs = {leaf.name: leaf for leaf in function.inputs}
        self.wrt = [self.inputs[name] for name in function.wrt]
        self.cotangent = Leaf("cotangent", function.expression.shape, role="cotangent")
        self._finished: dict[str, dict[Key, Node]] = {}
        self._kernels: dict[str, tuple[list[Leaf], dict[Key, Node]]] = {}
        self._indexed: dict[str, dict[Key, Node]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The derivative kinds that the function has."""
        return KINDS + SCALAR_KINDS if self._scalar else KINDS

    @property
    def _scalar(self) -> bool:
        return not self.function.expression.shape

    def tangent(self, leaf: Leaf) -> Leaf:
        """The tangent of an input, of the input's structure if that is a linear space."""
        name = "tangent" if len(self.wrt) == 1 else f"tangent_{leaf.name}"
        linear = leaf.structure in PROJECTED and leaf.structure != "orthogonal"
        structure = leaf.structure if linear else "general"
        return Leaf(name, leaf.shape, structure, role="tangent")

    def results(self, kind: str) -> dict[Key, Node]:
        """The nodes of a kind, without the batch axis, in canonical form."""
        if not isinstance(kind, str) or kind not in self.kinds:
            raise DeclarationError(
                f"{self.function.name}: there is no {shown(kind)}; it has {', '.join(self.kinds)}"
            )
        if kind not in self._finished:
            nodes: dict[Key, Node] = getattr(self, f"_{kind}")
            finished = simplify(list(nodes.values()), final=True)
            self._finished[kind] = dict(zip(nodes, finished, strict=True))
        return self._finished[kind]

    def batched(self, kind: str) -> dict[Key, Node]:
        """The nodes of a kind as the generated functions compute them, with the batch axis."""
        results = self.results(kind)
        if not self.function.batch:
            return results
        summed = set(self.function.wrt) - set(self.function.batch) if kind == "vjp" else set()
        nodes = [
            self._with_batch(node, summed=bool(key) and key[0] in summed)
            for key, node in results.items()
        ]
        return dict(zip(results, simplify(nodes), strict=True))

    def arguments(self, kind: str) -> list[Leaf]:
        """The leaves that the generated function of a kind takes, in order."""
        leaves: list[Leaf] = list(self.function.inputs)
        if kind == "vjp":
            leaves.append(self.cotangent)
        if kind in ("jvp", "hvp"):
            leaves += [self.tangent(leaf) for leaf in self.wrt]
        return [self._batched_leaf(leaf) for leaf in leaves]

    def kernel(self, kind: str) -> tuple[list[Leaf], dict[Key, Node]]:
        """What a kernel takes and computes: as `arguments` and `batched`, where tangents may be
        any arrays and are projected on their inputs' structures."""
        if kind not in self._kernels:
            arguments, results = self._with_general_tangents(kind)
            selected = self.with_selections(list(results.values()))
            nodes = with_adjugates(self.with_lengths(selected))
            self._kernels[kind] = arguments, dict(zip(results, nodes, strict=True))
        return self._kernels[kind]

    def with_lengths(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes of derivatives with the subgradient 0 of lengths at 0 (`simplify.finite_parts`)."""
        return with_lengths(nodes, [*self.batched("value").values()])

    def with_selections(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes of derivatives that select by the conditions of `where` (`simplify.selections`)."""
        return with_selections(nodes, self.batched("value").values())

    def _with_general_tangents(self, kind: str) -> tuple[list[Leaf], dict[Key, Node]]:
        arguments = self.arguments(kind)
        results = self.batched(kind)
        general: dict[Leaf, Leaf] = {}
        projected: dict[Node, Node] = {}
        for own in self.wrt if kind in ("jvp", "hvp") else ():
            if own.structure in PROJECTED:
                leaf = self._batched_leaf(self.tangent(own))
                general[leaf] = Leaf(leaf.name, leaf.shape, role=leaf.role)
                projected[leaf] = project(general[leaf], self.function.batched(own))
        if projected:
            nodes = simplify(substitute(list(results.values()), projected))
            results = dict(zip(results, nodes, strict=True))
            arguments = [general.get(leaf, leaf) for leaf in arguments]
        return arguments, results

    def _batched_leaf(self, leaf: Leaf) -> Leaf:
        if leaf.role == "input":
            return self.function.batched(leaf)
        owner = next((own.name for own in self.wrt if self.tangent(own) is leaf), None)
        stacked = leaf is self.cotangent or owner in self.function.batch
        shape = (BATCH, *leaf.shape) if stacked and self.function.batch else leaf.shape
        return Leaf(leaf.name, shape, leaf.structure, leaf.role)

    def _with_batch(self, node: Node, summed: bool) -> Node:
        leaves = [*self.function.inputs, self.cotangent, *map(self.tangent, self.wrt)]
        moved = {leaf: self._batched_leaf(leaf) for leaf in leaves}
        changed: Mapping[Node, Node] = {old: new for old, new in moved.items() if old is not new}
        stacked = substitute([node], changed, (BATCH,))[0]
        labels = list(range(node.ndim))
        sizes = {"batch": BATCH}
        own = ["batch", *labels] if stacked.ndim > node.ndim else labels
        output = labels if summed else ["batch", *labels]
        return einsum([(stacked, own)], output, sizes=sizes)

    @cached_property
    def _value(self) -> dict[Key, Node]:
        return {(): simplify([self.function.expression])[0]}

    @cached_property
    def _jvp(self) -> dict[Key, Node]:
        return self._pushed_forward({(): self._smooth})

    @cached_property
    def _vjp(self) -> dict[Key, Node]:
        return self._pulled_back(self.cotangent)

    @cached_property
    def _gradient(self) -> dict[Key, Node]:
        return self._pulled_back(full(1))

    def _pulled_back(self, cotangent: Node) -> dict[Key, Node]:
        tangents = [self.tangent(leaf) for leaf in self.wrt]
        pulled = simplify(transpose(self._jvp[()], tangents, cotangent))
        projected = simplify(
            [project(node, leaf) for node, leaf in zip(pulled, self.wrt, strict=True)]
        )
        return {(leaf.name,): node for leaf, node in zip(self.wrt, projected, strict=True)}

    @cached_property
    def _value_and_gradient(self) -> dict[Key, Node]:
        return {(): self._smooth, **self._gradient}

    def _pushed_forward(self, results: Mapping[Key, Node]) -> dict[Key, Node]:
        tangents: dict[Node, Node] = {leaf: self.tangent(leaf) for leaf in self.wrt}
        products = simplify(differentials(list(results.values()), tangents))
        return dict(zip(results, products, strict=True))

    @cached_property
    def _smooth(self) -> Node:
        """The value as derivatives are made of it, in functions of squares of lengths."""
        return fused([self._value[()]])[0]

    @cached_property
    def _jacobian(self) -> dict[Key, Node]:
        if self._scalar:
            return self._gradient
        return {
            (leaf.name,): jacobian
            for leaf in self.wrt
            for jacobian in self._jacobians([self._smooth], leaf)
        }

    def _jacobians(self, nodes: Sequence[Node], leaf: Leaf) -> list[Node]:
        """d node / d leaf of shape (*node.shape, *leaf.shape), projected on the structure."""
        tangent = self.tangent(leaf)
        products = simplify(differentials(nodes, {leaf: tangent}))
        jacobians = simplify([jacobian_of_linear(p, tangent) for p in products], expand=True)
        return simplify([project(jacobian, leaf) for jacobian in jacobians], expand=True)

    def repeated(self, names: Sequence[str]) -> Node:
        """The derivative by one input after the other: (*value.shape, *each input's shape)."""
        first, *rest = names
        node = (self._gradient if self._scalar else self._jacobian)[first,]
        for name in rest:
            (node,) = self._jacobians([node], self.inputs[name])
        return simplify([node], final=True)[0]

    def _tangential(self, node: Node, name: str) -> Node:
        """A derivative of the gradient by an orthogonal input, projected again: what the gradient
        changes by need not lie in the tangent space. Others are as they are."""
        leaf = self.inputs[name]
        if leaf.structure != "orthogonal":
            return node
        return simplify([_tangential_part(node, leaf, 0)], expand=True)[0]

    @cached_property
    def _hessian(self) -> dict[Key, Node]:
        gradient = self._gradient
        columns = {leaf.name: self._jacobians(list(gradient.values()), leaf) for leaf in self.wrt}
        return {
            (row, column): self._tangential(columns[column][position], row)
            for position, (row,) in enumerate(gradient)
            for column in columns
        }

    @cached_property
    def _hvp(self) -> dict[Key, Node]:
        pushed = self._pushed_forward(self._gradient)
        return {key: self._tangential(node, key[0]) for key, node in pushed.items()}

    @property
    def declaration(self) -> str:
        """The declared expression as NumPy text, as it was written, with the batch axis."""
        expression = self.function.expression
        if self.function.batch:
            expression = self._with_batch(expression, summed=False)
        return numpy_text(expression, self._size_texts())

    def formula(self, kind: str, wrt: Any, style: str) -> str:
        """The formula of one result; see `Function.formula`."""
        if not isinstance(style, str) or style not in STYLES:
            raise DeclarationError(f"no style {shown(style)}; choose from {', '.join(STYLES)}")
        results = self._shown(kind, style)
        key = self._key(kind, wrt, results)
        if not STYLES[style].vec:
            return render(
                results[key], style, self.display_names(), self._size_texts(), self.declared
            )
        sizes = size_texts(self.function.inputs)
        if not self._is_vec(kind, key):
            return render(results[key], style, self.display_names(), sizes, self.declared)
        sides = self._sides(key)
        try:
            return render_vec(
                results[key], style, sides, self.display_names(), sizes, self.declared
            )
        except NoMatrixNotation as error:
            raise UnsupportedError(
                f"{self.function.name}: the {kind} by {' and '.join(key)} has no vec form, that is "
                "none made of Kronecker products; take the style 'index', or 'numpy' for its array"
            ) from error

    def _shown(self, kind: str, style: str) -> dict[Key, Node]:
        """What a style shows: text to be evaluated is what kernels compute."""
        if style == "numpy":
            results = self.kernel(kind)[1]
            return dict(zip(results, with_root_lengths(list(results.values())), strict=True))
        if style != "index":
            return self.results(kind)
        if kind not in self._indexed:
            results = self._with_general_tangents(kind)[1]
            nodes = with_adjugates(list(results.values()))
            self._indexed[kind] = dict(zip(results, nodes, strict=True))
        return self._indexed[kind]

    def _is_vec(self, kind: str, key: Key) -> bool:
        """Whether the vec styles write a result as a matrix between vectors."""
        return kind in ("jacobian", "hessian") and self.results(kind)[key].ndim > 2

    def _sides(self, key: Key) -> tuple[Side, Side]:
        """What the rows and the columns of a Jacobian or Hessian as a matrix are."""
        row = Side.of(self.inputs[key[0]]) if len(key) == 2 else Side(self.function.expression.ndim)
        return row, Side.of(self.inputs[key[-1]])

    def equations(self, style: str = "unicode", kinds: Sequence[str] | None = None) -> list[str]:
        """The formulas of all kinds, or those given, with their left-hand sides, in a style for
        reading; for one sample where there is a batch axis. The Jacobian of a scalar function is
        its gradient."""
        return [
            line
            for kind in (self.kinds if kinds is None else kinds)
            if kind != "value_and_gradient" and not (kind == "jacobian" and self._scalar)
            for line in self.equation_lines(kind, style)
        ]

    def equation_lines(self, kind: str, style: str = "unicode") -> list[str]:
        """The formulas of one kind with their left-hand sides; in a vec style, those without a vec
        form by their indices."""
        return [self._equation(kind, key, style) for key in self.results(kind)]

    def _equation(self, kind: str, key: Key, style: str) -> str:
        node, names = self.results(kind)[key], self.display_names()
        printer = self.printer(style)
        left = printer.derivative(kind, self.value_letter, key)
        if STYLES[style].vec and self._is_vec(kind, key):
            sides = self._sides(key)
            operators = [side.operator for side in sides]
            matrix = printer.vec_derivative(kind, self.value_letter, key, operators)
            try:
                return render_vec_equation(matrix, node, style, sides, names, self.declared)
            except NoMatrixNotation:
                style = "index"
        return render_equation(left, node, style, names, self.declared)

    def printer(self, style: str) -> MathPrinter:
        """The printer of a style for reading, for formulas with the function's names."""
        return math_printers()[style].beside(self.declared | {self.value_letter})

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of the inputs and of the sizes in their shapes."""
        sizes = {size for leaf in self.function.inputs for size in leaf.shape}
        symbols = {symbol.name for size in sizes for symbol in size.free_symbols}
        return frozenset(self.inputs) | symbols

    def __str__(self) -> str:
        return "\n".join(self.equations())

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        return aligned(self.equations("latex"))

    @cached_property
    def _result_letter(self) -> str:
        """A name for the value that no input or size has, to carry the cotangent's bar."""
        taken = {name.upper() for name in self.declared}
        letters = chain("YZFGHPQRUVW", ["Value"], (f"Y{number}" for number in count(1)))
        return next(letter for letter in letters if letter.upper() not in taken)

    def display_names(self) -> dict[str, str]:
        letter = self._result_letter
        shown = letter if self.function.expression.ndim > 1 else letter.lower()
        return {"cotangent": shown, **{self.tangent(leaf).name: leaf.name for leaf in self.wrt}}

    @property
    def value_letter(self) -> str:
        """What stands for the value in formulas."""
        return self.display_names()["cotangent"]

    def _size_texts(self) -> dict[str, str]:
        return size_texts([self.function.batched(leaf) for leaf in self.function.inputs])

    def _key(self, kind: str, wrt: Any, results: Mapping[Key, Node]) -> Key:
        if wrt is None:
            if len(results) == 1:
                return next(iter(results))
            choices = ", ".join(" and ".join(key) or "the value" for key in results)
            raise DeclarationError(
                f"{self.function.name}: which {kind}? Give wrt: one of {choices}"
            )
        parts = wrt if isinstance(wrt, (tuple, list)) else [wrt]
        names = tuple(
            part if isinstance(part, str) else getattr(part, "name", shown(part)) for part in parts
        )
        if kind == "hessian" and len(names) == 1:
            names = names * 2
        if names not in results:
            raise DeclarationError(
                f"{self.function.name}: there is no {kind} by {' and '.join(map(shown, names))}; "
                f"wrt is {', '.join(self.function.wrt)}"
            )
        return names


def size_texts(leaves: Sequence[Leaf]) -> dict[str, str]:
    """For each dimension, where NumPy reads it off an array."""
    found: dict[sympy.Basic, sympy.Basic] = {}
    for symbol, reading in readings([leaf.shape for leaf in leaves]).items():
        text = f"{leaves[reading.position].name}.shape[{reading.axis}]"
        found[symbol] = reading.value.xreplace({LENGTH: sympy.Symbol(text), **found})
    return {str(symbol): index(value) for symbol, value in found.items()}


def differentials(nodes: Sequence[Node], tangents: Mapping[Node, Node]) -> list[Node]:
    """The tangents of nodes, as the rules of differentiation leave them, not simplified; what is
    made of one spectral decomposition shares it."""
    return spectral.unpack(differential(spectral.pack(nodes), tangents))


def jacobian_of_linear(jvp: Node, tangent: Leaf) -> Node:
    """The array J[out..., in...] of a map that is linear in `tangent`: the map at a basis.

    The basis tangents are deltas with further leading axes, which end up last.
    """
    basis = basis_tangent(tangent.shape)
    rank, extra = jvp.ndim, tangent.ndim
    pushed = substitute([jvp], {tangent: basis}, tangent.shape)[0]
    inner = [("in", axis) for axis in range(extra)]
    output = [*range(rank), *inner]
    labels = [*inner, *range(rank)] if pushed.ndim > rank or not extra else [*range(rank)]
    sizes = dict(zip(inner, tangent.shape, strict=True))
    return einsum([(pushed, labels)], output, sizes=sizes)


def basis_tangent(shape: Shape) -> Node:
    """B[k..., i...] = 1 where every k equals its i."""
    factors = [(Delta(size), (("k", axis), ("i", axis))) for axis, size in enumerate(shape)]
    axes = range(len(shape))
    return einsum(factors, [*(("k", a) for a in axes), *(("i", a) for a in axes)])


PROJECTED = {
    "symmetric": "symmetric",
    "spd": "symmetric",
    "lower": "lower triangular",
    "upper": "upper triangular",
    "diagonal": "diagonal",
    "orthogonal": "tangential",
}
"""The structures on which derivatives are projected, and what their matrices are called."""


def project(node: Node, leaf: Leaf) -> Node:
    """A cotangent or Jacobian, whose last axes are those of `leaf`, projected orthogonally on its
    structure: for an orthogonal matrix on the tangent space there."""
    if leaf.structure not in PROJECTED:
        return node
    if leaf.structure == "orthogonal":
        return _tangential_part(node, leaf, node.ndim - 2)
    axes = tuple(range(node.ndim))
    if PROJECTED[leaf.structure] == "symmetric":
        return _symmetric_part(node, axes)
    row, column = axes[-2:]
    rows, columns = node.shape[-2:]
    mask, labels = {
        "lower": (Triangle(rows, columns), (row, column)),
        "upper": (Triangle(columns, rows), (column, row)),
        "diagonal": (Delta(rows), (row, column)),
    }[leaf.structure]
    return einsum([(node, axes), (mask, labels)], axes)


def _symmetric_part(node: Node, axes: tuple[int, ...]) -> Node:
    """(A + Aᵀ) / 2, where A are the last two axes; terms that are symmetric stay as they are."""
    if isinstance(node, Sum):
        kept = [term for term in node.terms if "symmetric" in facts(term)]
        rest = tuple(term for term in node.terms if term not in kept)
        if kept and rest:
            return Sum((*kept, _symmetric_part(Sum(rest, node.shape), axes)), node.shape)
    swapped = (*axes[:-2], axes[-1], axes[-2])
    halves = tuple(einsum([(node, own)], axes, sympy.S.Half) for own in (axes, swapped))
    return Sum(halves, node.shape)


def _tangential_part(node: Node, leaf: Leaf, row: int) -> Node:
    """(A - Q Aᵀ Q) / 2, where A are the axes `row` and the next: the nearest matrix with
    Qᵀ A + Aᵀ Q = 0 (Edelman, Arias and Smith, 1998, 2.2.1)."""
    axes = list(range(node.ndim))
    stacked, inside = axes[: leaf.ndim - 2], [*axes[:row], "i", "j", *axes[row + 2 :]]
    left, right = (*stacked, row, "j"), (*stacked, "i", row + 1)
    turned = einsum([(node, inside), (leaf, left), (leaf, right)], axes, -sympy.S.Half)
    return Sum((einsum([(node, axes)], axes, sympy.S.Half), turned), node.shape)
