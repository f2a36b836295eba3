"""All derivatives of a function, each derived from the one before.

The differential of the value is the JVP, its transpose the VJP or gradient, and the JVP at a basis
of tangents the Jacobian; of the gradient, the differential gives HVP and Hessian. All are derived
without the batch axis, which is inserted last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import Any

from derivatrix.compiler.differentiate.linearise import (
    differentiable,
    jacobians,
    project_derivative,
    pull_back,
    push_forward,
    tangent_of,
)
from derivatrix.compiler.differentiate.projection import PROJECTED, project
from derivatrix.compiler.differentiate.segments import with_whole_loops
from derivatrix.compiler.differentiate.singular_lengths import with_lengths_in_loops
from derivatrix.compiler.formulas import (
    STYLES,
    Side,
    render,
    render_equation,
)
from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.formulas.printers.latex import aligned
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import BATCH
from derivatrix.compiler.ir.nodes import Leaf, Node, einsum, full
from derivatrix.compiler.ir.numpy_text import Sizes, numpy_text, size_readings
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.adjugates import with_adjugates
from derivatrix.compiler.simplify.root_lengths import with_root_lengths
from derivatrix.compiler.simplify.selections import with_selections
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

KINDS = ("value", "vjp", "jvp", "jacobian")
SCALAR_KINDS = ("gradient", "value_and_gradient", "hessian", "hvp")

Key = tuple[str, ...]
"""Inputs of a result: () for a value or JVP, (name,), or a pair of names for a Hessian. Named
outputs come first: (output,) for a value or JVP, (output, input) for a Jacobian."""


class Derivatives:
    """The closed forms of all derivatives of one function, each derived at its first use."""

    def __init__(self, function: Declaration) -> None:
        self.function = function
        self.inputs = {leaf.name: leaf for leaf in function.inputs}
        self.wrt = [self.inputs[name] for name in function.wrt]
        self.cotangents = {
            output: Leaf(cotangent_name(output), node.shape, role="cotangent")
            for output, node in function.outputs
        }
        self._results: dict[str, dict[Key, Node]] = {}
        self._whole_results: dict[str, dict[Key, Node]] = {}
        self._kernel_results: dict[str, tuple[list[Leaf], dict[Key, Node]]] = {}
        self._shown_results: dict[tuple[str, str], dict[Key, Node]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of derivatives that the function has."""
        return KINDS + SCALAR_KINDS if self.function.is_scalar else KINDS

    def tangent(self, leaf: Leaf) -> Leaf:
        """Make the tangent of an input, of its structure if such matrices are a linear space."""
        name = "tangent" if len(self.wrt) == 1 else f"tangent_{leaf.name}"
        return tangent_of(leaf, name)

    @cached_property
    def _tangents(self) -> dict[Leaf, Leaf]:
        return {leaf: self.tangent(leaf) for leaf in self.wrt}

    def results(self, kind: str) -> dict[Key, Node]:
        """Derive the results of a kind, without the batch axis, in canonical form. Loops over
        segments are plain loops, as in formulas."""
        results = self._in_segments(kind)
        if kind not in self._whole_results:
            nodes = _as_plain_loops([*results.values()])
            self._whole_results[kind] = dict(zip(results, nodes, strict=True))
        return self._whole_results[kind]

    def _in_segments(self, kind: str) -> dict[Key, Node]:
        """Derive the results of a kind, without the batch axis, with loops over segments."""
        if not isinstance(kind, str) or kind not in self.kinds:
            raise DeclarationError(
                f"{self.function.name}: there is no {shown(kind)}; it has {', '.join(self.kinds)}"
            )
        if kind not in self._results:
            nodes: dict[Key, Node] = getattr(self, f"_{kind}")
            simplified = simplify(list(nodes.values()), final=True)
            self._results[kind] = dict(zip(nodes, simplified, strict=True))
        return self._results[kind]

    def batched(self, kind: str) -> dict[Key, Node]:
        """Derive the results of a kind with the batch axis; sum a VJP by an unbatched input."""
        results = self._in_segments(kind)
        if not self.function.batch:
            return results
        summed = set(self.function.wrt) - set(self.function.batch) if kind == "vjp" else set()
        nodes = [
            self._with_batch(node, summed=bool(key) and key[0] in summed)
            for key, node in results.items()
        ]
        return dict(zip(results, simplify(nodes), strict=True))

    def arguments(self, kind: str) -> list[Leaf]:
        """List the parameters of the generated function of a kind, in order."""
        leaves: list[Leaf] = list(self.function.inputs)
        if kind == "vjp":
            leaves += self.cotangents.values()
        if kind in ("jvp", "hvp"):
            leaves += [self.tangent(leaf) for leaf in self.wrt]
        return [self._batched_leaf(leaf) for leaf in leaves]

    def kernel(self, kind: str) -> tuple[list[Leaf], dict[Key, Node]]:
        """Derive the parameters and results of a kernel: as `arguments` and `batched`, for
        tangents of any structure, which are projected on the structures of their inputs."""
        if kind not in self._kernel_results:
            arguments, results = self._with_general_tangents(kind)
            nodes = self.with_selections(list(results.values()))
            nodes = with_adjugates(self.with_lengths(nodes))
            self._kernel_results[kind] = arguments, dict(zip(results, nodes, strict=True))
        return self._kernel_results[kind]

    def with_lengths(self, nodes: Sequence[Node]) -> list[Node]:
        """Take the subgradient 0 of lengths at 0 in derivatives (`simplify.finite_parts`)."""
        return with_lengths_in_loops(nodes, [*self.batched("value").values()])

    def with_selections(self, nodes: Sequence[Node]) -> list[Node]:
        """Select by the conditions of `where` in derivatives (`simplify.selections`)."""
        return with_selections(nodes, self.batched("value").values())

    def _with_general_tangents(self, kind: str) -> tuple[list[Leaf], dict[Key, Node]]:
        arguments = self.arguments(kind)
        results = self.batched(kind)
        general: dict[Leaf, Leaf] = {}
        projected: dict[Node, Node] = {}
        for leaf in self.wrt if kind in ("jvp", "hvp") else ():
            if leaf.structure in PROJECTED:
                tangent = self._batched_leaf(self.tangent(leaf))
                general[tangent] = Leaf(tangent.name, tangent.shape, role=tangent.role)
                projected[tangent] = project(general[tangent], self.function.batched(leaf))
        if projected:
            nodes = simplify(substitute(list(results.values()), projected))
            results = dict(zip(results, nodes, strict=True))
            arguments = [general.get(leaf, leaf) for leaf in arguments]
        return arguments, results

    def _batched_leaf(self, leaf: Leaf) -> Leaf:
        if leaf.role == "input":
            return self.function.batched(leaf)
        primal = next((primal.name for primal in self.wrt if self.tangent(primal) is leaf), None)
        has_batch_axis = leaf.role == "cotangent" or primal in self.function.batch
        shape = (BATCH, *leaf.shape) if has_batch_axis and self.function.batch else leaf.shape
        return Leaf(leaf.name, shape, leaf.structure, leaf.role)

    def _with_batch(self, node: Node, summed: bool) -> Node:
        tangents = map(self.tangent, self.wrt)
        leaves = [*self.function.inputs, *self.cotangents.values(), *tangents]
        pairs = [(leaf, self._batched_leaf(leaf)) for leaf in leaves]
        batched_leaves: dict[Node, Node] = {old: new for old, new in pairs if old is not new}
        (batched,) = substitute([node], batched_leaves, (BATCH,))
        labels = list(range(node.ndim))
        batched_labels = ["batch", *labels]
        factor = (batched, batched_labels if batched.ndim > node.ndim else labels)
        return einsum([factor], labels if summed else batched_labels, sizes={"batch": BATCH})

    @cached_property
    def _value(self) -> dict[Key, Node]:
        return self._by_output(simplify(self.function.expressions))

    def _by_output(self, nodes: Sequence[Node]) -> dict[Key, Node]:
        keys = [(name,) if name else () for name, _ in self.function.outputs]
        return dict(zip(keys, nodes, strict=True))

    @cached_property
    def _jvp(self) -> dict[Key, Node]:
        return self._by_output(
            push_forward([*self._differentiable_values.values()], self._tangents)
        )

    @cached_property
    def _vjp(self) -> dict[Key, Node]:
        return self._pull_back([*self.cotangents.values()])

    @cached_property
    def _gradient(self) -> dict[Key, Node]:
        return self._pull_back([full(1)])

    def _pull_back(self, cotangents: Sequence[Node]) -> dict[Key, Node]:
        nodes = pull_back([*self._jvp.values()], self._tangents, cotangents)
        return {(leaf.name,): node for leaf, node in zip(self.wrt, nodes, strict=True)}

    @cached_property
    def _value_and_gradient(self) -> dict[Key, Node]:
        return {**self._differentiable_values, **self._gradient}

    @cached_property
    def _differentiable_values(self) -> dict[Key, Node]:
        return {key: differentiable(node) for key, node in self._value.items()}

    @cached_property
    def _jacobian(self) -> dict[Key, Node]:
        if self.function.is_scalar:
            return self._gradient
        # One by one: a large array that several outputs share, as the derivative of a gain, would
        # be stored where its parts are not.
        return {
            (*output, leaf.name): jacobian
            for output, value in self._differentiable_values.items()
            for leaf in self.wrt
            for jacobian in self._jacobians([value], leaf)
        }

    def along(self, directions: Mapping[Leaf, Leaf]) -> list[Node]:
        """Derive the JVP of each output along `directions`, an array for each input in `wrt`, as
        expressions to differentiate again."""
        projected: dict[Node, Node] = {
            self.tangent(leaf): project(direction, leaf) for leaf, direction in directions.items()
        }
        jvps = simplify(substitute([*self._jvp.values()], projected))
        return with_selections(jvps, self._value.values())

    def _jacobians(self, nodes: Sequence[Node], leaf: Leaf) -> list[Node]:
        return jacobians(nodes, leaf, self._tangents[leaf])

    def repeated(self, names: Sequence[str]) -> list[Node]:
        """Derive each output by one input after the other: of shape (*output.shape, *the inputs'
        shapes)."""
        first, *further_names = names
        nodes = [node for key, node in self._jacobian.items() if key[-1] == first]
        for place, name in enumerate(further_names, start=1):
            leaf = self.inputs[name]
            nodes = self._jacobians(nodes, leaf)
            for earlier, previous_name in enumerate(names[:place]):
                if previous_name == name:
                    count = sum(self.inputs[later].ndim for later in names[earlier : place + 1])
                    nodes = [project_derivative(node, leaf, node.ndim - count) for node in nodes]
        return simplify(nodes, final=True)

    @cached_property
    def _hessian(self) -> dict[Key, Node]:
        gradient = self._gradient
        columns = {leaf.name: self._jacobians(list(gradient.values()), leaf) for leaf in self.wrt}
        return {
            (row, column): self._project_derivative(columns[column][position], row)
            for position, (row,) in enumerate(gradient)
            for column in columns
        }

    @cached_property
    def _hvp(self) -> dict[Key, Node]:
        products = push_forward(list(self._gradient.values()), self._tangents)
        return {
            key: self._project_derivative(node, key[0])
            for key, node in zip(self._gradient, products, strict=True)
        }

    def _project_derivative(self, node: Node, name: str) -> Node:
        projected = project_derivative(node, self.inputs[name])
        return node if projected is node else simplify([projected], expand=True)[0]

    @property
    def declarations(self) -> dict[str, str]:
        """The declared expression of each output as NumPy text, as it was declared, with the batch
        axis."""
        expressions = dict(self.function.outputs)
        if self.function.batch:
            expressions = {
                name: self._with_batch(node, summed=False) for name, node in expressions.items()
            }
        sizes = self._size_readings()
        nodes = with_whole_loops([*expressions.values()])
        return {
            name: numpy_text(node, sizes) for name, node in zip(expressions, nodes, strict=True)
        }

    def formula(self, kind: str, wrt: Any, style: str, output: str | None = None) -> str:
        """Render the formula of one result; see `Function.formula`."""
        if not isinstance(style, str) or style not in STYLES:
            raise DeclarationError(f"no style {shown(style)}; choose from {', '.join(STYLES)}")
        results = self._results_for(kind, style)
        key = self._key(kind, wrt, results, output)
        names = self.display_names()
        sizes = size_readings(self.function.inputs) if STYLES[style].vec else self._size_readings()
        sides = self._sides(kind, key, style)
        try:
            return render(results[key], style, names, sizes, self.declared, sides)
        except NoMatrixNotation as error:
            raise UnsupportedError(
                f"{self.function.name}: the {kind} by {' and '.join(key)} has no vec form, that is "
                "none made of Kronecker products; take the style 'index', or 'numpy' for its array"
            ) from error

    def _results_for(self, kind: str, style: str) -> dict[Key, Node]:
        """Derive the results that a style shows: numpy those of the kernel, as its text is
        evaluated; index those with adjugates in place of inverses; others the plain results."""
        if style not in ("numpy", "index"):
            return self.results(kind)
        if (kind, style) not in self._shown_results:
            if style == "numpy":
                results = self.kernel(kind)[1]
                nodes = with_root_lengths(_as_plain_loops([*results.values()]))
            else:
                results = self._with_general_tangents(kind)[1]
                nodes = with_adjugates(_as_plain_loops([*results.values()]))
            self._shown_results[kind, style] = dict(zip(results, nodes, strict=True))
        return self._shown_results[kind, style]

    def _sides(self, kind: str, key: Key, style: str) -> tuple[Side, Side] | None:
        """Describe the rows and columns of a result that a vec style writes as a matrix."""
        has_vec_form = kind in ("jacobian", "hessian") and self.results(kind)[key].ndim > 2
        if not STYLES[style].vec or not has_vec_form:
            return None
        column = Side.of(self.inputs[key[-1]])
        if kind == "hessian":
            return Side.of(self.inputs[key[0]]), column
        return Side(self.output(key[:-1]).ndim), column

    def title(self, kind: str, key: Key, separator: str = ", ") -> str:
        """Name a result: "jacobian of mean by P"."""
        output, inputs = self._left_names(kind, key)
        of_output = f" of {output}" if self.function.output_names and kind != "vjp" else ""
        by_inputs = f" by {separator.join(inputs)}" if inputs else ""
        return f"{kind}{of_output}{by_inputs}"

    def equations(
        self,
        style: str = "unicode",
        kinds: Sequence[str] | None = None,
        on_one_line: bool = False,
    ) -> list[str]:
        """Render the equations of `kinds` (all by default) in a style for reading, for one sample
        where there is a batch axis. The Jacobian of a scalar function, its gradient, is left out.
        on_one_line: each with its definitions."""
        return [
            line
            for kind in (self.kinds if kinds is None else kinds)
            if kind != "value_and_gradient" and not (kind == "jacobian" and self.function.is_scalar)
            for line in self.equation_lines(kind, style, on_one_line)
        ]

    def equation_lines(
        self, kind: str, style: str = "unicode", on_one_line: bool = False
    ) -> list[str]:
        """Render the equations of one kind; in a vec style, one without a vec form by index."""
        return [self._equation(kind, key, style, on_one_line) for key in self.results(kind)]

    def _equation(self, kind: str, key: Key, style: str, on_one_line: bool) -> str:
        node, names = self.results(kind)[key], self.display_names()
        printer = self.printer(style)
        letter, inputs = self._left_names(kind, key)
        sides = self._sides(kind, key, style)
        if sides:
            operators = [side.operator for side in sides]
            left = printer.vec_derivative(kind, letter, inputs, operators)
            try:
                return render_equation(left, node, style, names, self.declared, sides)
            except NoMatrixNotation:
                style = "index"
        left = printer.derivative(kind, letter, inputs)
        return render_equation(left, node, style, names, self.declared, on_one_line=on_one_line)

    def _left_names(self, kind: str, key: Key) -> tuple[str, Key]:
        """Split a key into the name of the output and the inputs."""
        if self.function.output_names and kind != "vjp":
            return key[0], key[1:]
        return self.value_letter, key

    def output(self, key: Key) -> Node:
        """Return the expression of the output that a key begins with."""
        return dict(self.function.outputs)[key[0] if key else ""]

    def printer(self, style: str) -> MathPrinter:
        """Return the printer of a style for reading, for formulas with the function's names."""
        outputs = self.function.output_names or (self.value_letter,)
        return math_printers()[style].beside(self.declared.union(outputs))

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of the inputs and of their dimensions."""
        dimensions = {dimension for leaf in self.function.inputs for dimension in leaf.shape}
        symbols = {symbol.name for dimension in dimensions for symbol in dimension.free_symbols}
        return frozenset(self.inputs) | symbols

    def __str__(self) -> str:
        return "\n".join(self.equations())

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        return aligned(self.equations("latex"))

    @cached_property
    def _result_letter(self) -> str:
        """The capital letter of the value, which no input or size has. In formulas, the cotangent
        is this letter with a bar."""
        declared = {name.upper() for name in self.declared}
        letters = chain("YZFGHPQRUVW", ["Value"], (f"Y{number}" for number in count(1)))
        return next(letter for letter in letters if letter.upper() not in declared)

    def display_names(self) -> dict[str, str]:
        """Map the cotangent and the tangents to the names that carry their accents in formulas."""
        primals = {self.tangent(leaf).name: leaf.name for leaf in self.wrt}
        outputs = {leaf.name: name or self.value_letter for name, leaf in self.cotangents.items()}
        return {**outputs, **primals}

    @property
    def value_letter(self) -> str:
        """The name of the value in formulas: a capital letter for a matrix."""
        letter = self._result_letter
        return (
            letter if max(node.ndim for node in self.function.expressions) > 1 else letter.lower()
        )

    def _size_readings(self) -> Sizes:
        return size_readings([self.function.batched(leaf) for leaf in self.function.inputs])

    def _key(
        self, kind: str, wrt: Any, results: Mapping[Key, Node], output: str | None = None
    ) -> Key:
        """Find the result that a user means by `wrt`: a name, an input, or several of these."""
        if self.function.output_names and kind != "vjp":
            return self._key_of_output(kind, wrt, results, output)
        if output is not None:
            raise DeclarationError(
                f"{self.function.name}: the {kind} has no outputs to choose from, and output is "
                f"{shown(output)}"
            )
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
            advice = f"wrt is {', '.join(self.function.wrt)}"
            if () in results:
                advice = f"all inputs have one {kind}, so leave out wrt"
            by = " and ".join(map(shown, names))
            raise DeclarationError(f"{self.function.name}: there is no {kind} by {by}; {advice}")
        return names

    def _key_of_output(
        self, kind: str, wrt: Any, results: Mapping[Key, Node], output: str | None
    ) -> Key:
        """Find the result for `output`, and for `wrt`, as `_key` does."""
        names = self.function.output_names
        if output is None and isinstance(wrt, tuple) and wrt in results:
            return wrt
        if output is None and len(names) == 1:
            output = names[0]
        if output not in names:
            raise DeclarationError(
                f"{self.function.name}: which output? output is {shown(output)}; choose from "
                f"{', '.join(names)}"
            )
        assert output is not None
        by_input = {key[1:]: node for key, node in results.items() if key[0] == output}
        if kind != "jacobian":
            return (output,)
        if wrt is None and len(by_input) == 1:
            return (output, *next(iter(by_input)))
        name = wrt if isinstance(wrt, str) else getattr(wrt, "name", wrt)
        if (name,) not in by_input:
            raise DeclarationError(
                f"{self.function.name}: there is no {kind} by {shown(name)}; wrt is "
                f"{', '.join(self.function.wrt)}"
            )
        return (output, name)


def cotangent_name(output: str) -> str:
    """Name the parameter of a kernel that is the cotangent of an output."""
    return f"cotangent_{output}" if output else "cotangent"


def _as_plain_loops(nodes: list[Node]) -> list[Node]:
    """Write results with plain loops in place of loops over segments, in canonical form."""
    plain = with_whole_loops(nodes)
    return nodes if plain == nodes else simplify(plain, final=True)
