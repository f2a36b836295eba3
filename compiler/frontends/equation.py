"""Operations for roots of equations: the P with F(P, A, ...) = 0, by Newton's method from a start.

Several unknowns and their equations are stacked to one vector each, so that one linear solve serves
them all. The differential is that of the implicit function theorem, dP = -(∂F/∂P)⁻¹ dF with P fixed
in dF: a linear solve with the Jacobian at the root, whatever the number of iterations. It consists
of differentiable operations again, so that derivatives of every order exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count

import numpy as np
import sympy

from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.linearise import jacobian_of_linear
from derivatrix.compiler.formulas import render
from derivatrix.compiler.frontends.linear import solve
from derivatrix.compiler.frontends.rearrange import concatenate
from derivatrix.compiler.frontends.reshape import ravel, reshape
from derivatrix.compiler.ir.arrays import Array, divide
from derivatrix.compiler.ir.dimensions import LENGTH, Shape, evaluate, readings, shape_text
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import Apply, Leaf, Node, leaves
from derivatrix.compiler.ir.numpy_text import numpy_text, size_readings
from derivatrix.compiler.ir.operation import Equation, Operation, Parameters, Point
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import ShapeError

MAX_ITERATIONS = 100
START = "_start"
"""The name of the start, in formulas and kernels."""
FLAT = "_unknown"
"""The name of the vector of all unknowns."""


def entry_count(nodes: Sequence[Node]) -> sympy.Expr:
    """Count the entries of several arrays."""
    return sympy.expand(sympy.Add(*(sympy.Mul(*node.shape) for node in nodes)))


def packed(parts: Sequence[Array]) -> Array:
    """Concatenate the entries of several arrays to one vector; return a single array as it is."""
    return parts[0] if len(parts) == 1 else concatenate([ravel(part) for part in parts])


def unpacked(vector: Array, unknowns: Sequence[Leaf]) -> list[Array]:
    """Split a vector made by `packed` into arrays of the shapes of the unknowns."""
    if len(unknowns) == 1:
        return [reshape(vector, list(unknowns[0].shape))]
    ends = [entry_count(unknowns[:position]) for position in range(len(unknowns) + 1)]
    return [
        reshape(vector[start:stop], list(unknown.shape))
        for unknown, start, stop in zip(unknowns, ends[:-1], ends[1:], strict=True)
    ]


@cache
def root_operation(
    residuals: tuple[Node, ...],
    unknowns: tuple[Leaf, ...],
    fails: bool,
    name: str,
    declared: tuple[Node, ...],
) -> Operation:
    """Make the operation (start, *parameters) -> root. Start and root are `packed` arrays of the
    unknowns; the parameters are the other leaves of the residuals.

    fails: whether an iteration without convergence raises an error; else the root is nan. name,
    declared: the public function, and the expressions that it was given, for formulas.
    """
    free = [leaf for leaf in leaves(residuals) if leaf not in unknowns]
    shape = unknowns[0].shape if len(unknowns) == 1 else (entry_count(unknowns),)
    start = Leaf(START, shape, role="placeholder")
    operands = (start, *free)
    system = _Root(residuals, unknowns, operands)
    operation = Operation(
        name=name,
        ranks=tuple(leaf.ndim for leaf in operands),
        shapes=system.shapes,
        value=system.value,
        differential=system.differential,
        numpy=system.numpy,
        unicode=_text(name, unknowns, declared, "unicode"),
        latex=_text(name, unknowns, declared, "latex"),
        equation=Equation(
            system.flat, operands, system.residual, system.jacobian, fails, MAX_ITERATIONS
        ),
        domain=("",) * len(operands),
    )
    # the methods of `system` cannot be pickled: pickles hold this call
    reconstruction = root_operation, (residuals, unknowns, fails, name, declared)
    object.__setattr__(operation, "maker", reconstruction)
    return operation


def state_with(node: Node, arguments: Mapping[Leaf, Node]) -> Node:
    """Write `arguments` in place of the parameters in the formula of `node`, if it is a root; an
    argument with batch axes is written as a symbol of its name. An unknown is renamed where an
    argument has a symbol of its name."""
    if not isinstance(node, Apply) or node.operation.equation is None:
        return node
    assert node.operation.maker is not None
    make, (residuals, unknowns, fails, name, declared) = node.operation.maker
    argument_of_name = {
        leaf.name: argument
        if argument.ndim == leaf.ndim
        else Leaf(getattr(argument, "name", leaf.name), argument.shape[1:])
        for leaf, argument in arguments.items()
    }
    used_names = {leaf.name for leaf in leaves(argument_of_name.values())}
    renamed: dict[Node, Node] = {}
    for leaf in unknowns:
        names = (f"{leaf.name}{number or ''}" for number in count())
        renamed[leaf] = Leaf(next(name for name in names if name not in used_names), leaf.shape)
    declared = transformed(declared, lambda inner: state_with(inner, arguments))
    parameters: dict[Node, Node] = {
        leaf: argument_of_name[leaf.name]
        for leaf in leaves(declared)
        if leaf.name in argument_of_name
    }
    operation = make(
        tuple(substitute(residuals, renamed)),
        tuple(renamed.values()),
        fails,
        name,
        tuple(substitute(declared, {**parameters, **renamed})),
    )
    return Apply(operation, node.arguments, node.stack, node.parameters, node.output)


class _Root:
    """A system of equations, with `residual` and `jacobian` as functions of the vector of unknowns.

    operands: the start, then the parameters."""

    def __init__(
        self, residuals: Sequence[Node], unknowns: Sequence[Leaf], operands: Sequence[Leaf]
    ) -> None:
        self.operands, self.shape = operands, operands[0].shape
        self.flat = Leaf(FLAT, (entry_count(unknowns),), role="placeholder")
        values = unpacked(Array(self.flat), unknowns)
        replacements: dict[Node, Node] = {
            unknown: array.node for unknown, array in zip(unknowns, values, strict=True)
        }
        flat_residuals = substitute(residuals, replacements)
        self.declared = ravel(packed([Array(node) for node in flat_residuals])).node
        self.residual = simplify([self.declared])[0]
        tangent = Leaf("_moving", self.flat.shape, role="tangent")
        slope = simplify(differential([self.residual], {self.flat: tangent}))
        self.jacobian = simplify([jacobian_of_linear(slope[0], tangent)], expand=True)[0]
        self._tangents = {
            leaf: Leaf(f"_d_{leaf.name}", leaf.shape, role="tangent") for leaf in operands
        }
        tangents: dict[Node, Node] = dict(self._tangents.items())
        self._residual_tangent = simplify(differential([self.residual], tangents))[0]

    def shapes(self, cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        if cores[0] != self.shape:
            raise ShapeError(
                f"root: the start has shape {shape_text(cores[0])}; "
                f"the unknown has {shape_text(self.shape)}"
            )
        return (cores[0],)

    def differential(self, at: Point) -> tuple[Array, ...]:
        """Solve (∂F/∂P) dP = -dF at the root. The start has no influence: F does not contain it."""
        replacements: dict[Node, Node] = {self.flat: ravel(at.result).node}
        for leaf, argument, tangent in zip(self.operands, at.arguments, at.tangents, strict=True):
            replacements[leaf] = argument.node
            replacements[self._tangents[leaf]] = tangent.node
        nodes = substitute([self.jacobian, self._residual_tangent], replacements)
        jacobian, residual_tangent = map(Array, nodes)
        if not self.shape:
            ratio = divide(reshape(residual_tangent, ()), reshape(jacobian, ()))
            return (-ratio,)
        return (reshape(-solve(jacobian, residual_tangent), list(self.shape)),)

    def value(
        self, arguments: Sequence[np.ndarray], parameters: Parameters
    ) -> tuple[np.ndarray, ...]:
        """Apply undamped Newton's method to each index of the leading axes, for the interpreter."""
        solve_all = np.vectorize(self._solved, otypes=[float], signature=self._signature())
        return (solve_all(*arguments),)

    def _solved(self, *arguments: np.ndarray) -> np.ndarray:
        """Apply undamped Newton's method to one sample."""
        values = {leaf.name: a for leaf, a in zip(self.operands, arguments, strict=True)}
        sizes = self._sizes([a.shape for a in arguments])
        point = arguments[0].ravel().astype(np.float64)
        for _ in range(MAX_ITERATIONS):
            residual, jacobian = evaluate_all(
                [self.residual, self.jacobian], {**values, FLAT: point}, sizes
            )
            step = np.linalg.solve(jacobian, residual)
            point = point - step
            if np.max(np.abs(step), initial=0.0) <= 1e-15 * np.max(np.abs(point), initial=1.0):
                break
        return point.reshape(arguments[0].shape)

    def _signature(self) -> str:
        """Write the signature for np.vectorize, as in "(a,b),(c)->(a,b)"."""
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        shapes = ["(" + ",".join(next(letters) for _ in leaf.shape) + ")" for leaf in self.operands]
        return f"{','.join(shapes)}->{shapes[0]}"

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Read the sizes off the shapes of the operands."""
        sizes: dict[str, int] = {}
        for symbol, reading in readings([leaf.shape for leaf in self.operands]).items():
            length = sympy.Integer(shapes[reading.position][reading.axis])
            value = reading.value.xreplace({LENGTH: length})
            sizes[symbol.name] = int(evaluate(value, sizes))
        return sizes

    def numpy(self, arguments: Sequence[str], parameters: Parameters, output: int) -> str:
        """Write the text that applies SciPy's root finder to each index of the leading axes.
        Levenberg's and Marquardt's method converges from more starts than Newton's. With these
        tolerances it runs until nothing changes."""
        sizes = size_readings(self.operands)
        names = ", ".join(leaf.name for leaf in self.operands)
        residual, jacobian = (
            f"lambda {FLAT}: {numpy_text(node, sizes)}" for node in (self.declared, self.jacobian)
        )
        options = "method='lm', tol=1e-14, options={'ftol': 1e-15}"
        root = f"scipy.optimize.root({residual}, np.ravel({START}), jac={jacobian}, {options}).x"
        return (
            f"np.vectorize(lambda {names}: np.reshape({root}, np.shape({START})), otypes='d', "
            f"signature='{self._signature()}')({', '.join(arguments)})"
        )


def _text(name: str, unknowns: Sequence[Leaf], declared: Sequence[Node], style: str) -> str:
    """Write a format string of the formula: "root(P P − S)", or for several unknowns "root(x, y:
    ...; ...)"."""
    text = "; ".join(render(node, style) for node in simplify(declared))
    if len(unknowns) > 1:
        colon = r"\colon " if style == "latex" else ": "
        text = ", ".join(render(leaf, style) for leaf in unknowns) + colon + text
    if style == "latex":
        name = r"\operatorname{" + name.replace("_", r"\_") + "}"
    return f"{name}({text})".replace("{", "{{").replace("}", "}}")
