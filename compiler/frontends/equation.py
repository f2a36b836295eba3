"""Solutions of equations: the P with F(P, A, ...) = 0, by Newton's method from a start.

Several unknowns P, Q with as many equations are one vector of all their entries, and so are the
equations: one linear solve serves all of them. An equation, or such a system, makes an operation
of its own, whose differential is the implicit function theorem's: dP = -(∂F/∂P)⁻¹ dF, with P held
in dF. The derivative is a linear solve with the Jacobian at the solution, whatever the number of
iterations, and every order closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import sympy

from derivatrix.compiler.differentiate.derivatives import jacobian_of_linear, size_texts
from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.formulas import render
from derivatrix.compiler.frontends.linear import solve
from derivatrix.compiler.frontends.rearrange import concatenate
from derivatrix.compiler.frontends.reshape import ravel, reshape
from derivatrix.compiler.ir.arrays import Array, divide
from derivatrix.compiler.ir.dimensions import LENGTH, Shape, evaluate, readings, shape_text
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import Leaf, Node, leaves
from derivatrix.compiler.ir.numpy_text import numpy_text
from derivatrix.compiler.ir.operation import Equation, Operation, Parameters, Point
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import ShapeError

ITERATIONS = 100
START = "_start"
FLAT = "_unknown"


def entries(nodes: Sequence[Node]) -> sympy.Expr:
    """How many entries arrays have together."""
    return sympy.expand(sympy.Add(*(sympy.Mul(*node.shape) for node in nodes)))


def packed(parts: Sequence[Array]) -> Array:
    """The entries of all arrays as one vector; a single array as it is."""
    return parts[0] if len(parts) == 1 else concatenate([ravel(part) for part in parts])


def unpacked(vector: Array, unknowns: Sequence[Leaf]) -> list[Array]:
    """The arrays that `packed` has put into one vector, of the shapes of the unknowns."""
    if len(unknowns) == 1:
        return [reshape(vector, list(unknowns[0].shape))]
    ends = [entries(unknowns[:position]) for position in range(len(unknowns) + 1)]
    return [
        reshape(vector[first:last], list(unknown.shape))
        for unknown, first, last in zip(unknowns, ends[:-1], ends[1:], strict=True)
    ]


@cache
def root_operation(
    residuals: tuple[Node, ...],
    unknowns: tuple[Leaf, ...],
    fails: bool,
    name: str,
    declared: tuple[Node, ...],
) -> Operation:
    """The operation (start, leaves of the residuals but the unknowns...) -> the root, which both
    are one array for a single unknown, and of several a vector as `packed` makes it.

    fails: whether a root that is not found is an error; else it is nan. name, declared: the
    function by which it was declared and the expressions given to it, as formulas show them.
    """
    given = [leaf for leaf in leaves(residuals) if leaf not in unknowns]
    shape = unknowns[0].shape if len(unknowns) == 1 else (entries(unknowns),)
    start = Leaf(START, shape, role="placeholder")
    solved = _Root(residuals, unknowns, [start, *given])
    operation = Operation(
        name=name,
        ranks=tuple(leaf.ndim for leaf in solved.given),
        shapes=solved.shapes,
        value=solved.value,
        differential=solved.differential,
        numpy=solved.numpy,
        unicode=_text(name, unknowns, declared, "unicode"),
        latex=_text(name, unknowns, declared, "latex"),
        equation=Equation(
            solved.flat, tuple(solved.given), solved.residual, solved.jacobian, fails, ITERATIONS
        ),
        domain=("",) * len(solved.given),
    )
    maker = root_operation, (residuals, unknowns, fails, name, declared)
    object.__setattr__(operation, "maker", maker)
    return operation


class _Root:
    """One system of equations. `residual` and `jacobian` are of the unknowns as a vector; `given`:
    the start, and what else the equations depend on."""

    def __init__(
        self, residuals: Sequence[Node], unknowns: Sequence[Leaf], given: Sequence[Leaf]
    ) -> None:
        self.given, self.shape = list(given), given[0].shape
        self.flat = Leaf(FLAT, (entries(unknowns),), role="placeholder")
        values = unpacked(Array(self.flat), unknowns)
        places: dict[Node, Node] = {
            unknown: value.node for unknown, value in zip(unknowns, values, strict=True)
        }
        placed = substitute(residuals, places)
        self.declared = ravel(packed([Array(node) for node in placed])).node
        self.residual = simplify([self.declared])[0]
        moving = Leaf("_moving", self.flat.shape, role="tangent")
        slope = simplify(differential([self.residual], {self.flat: moving}))
        self.jacobian = simplify([jacobian_of_linear(slope[0], moving)], expand=True)[0]
        self._moves = {leaf: Leaf(f"_d_{leaf.name}", leaf.shape, role="tangent") for leaf in given}
        moves: dict[Node, Node] = dict(self._moves.items())
        self._change = simplify(differential([self.residual], moves))[0]

    def shapes(self, cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        if cores[0] != self.shape:
            raise ShapeError(
                f"root: the start has shape {shape_text(cores[0])}; "
                f"the unknown has {shape_text(self.shape)}"
            )
        return (cores[0],)

    def differential(self, at: Point) -> tuple[Array, ...]:
        places: dict[Node, Node] = {self.flat: ravel(at.result).node}
        for leaf, argument, tangent in zip(self.given, at.arguments, at.tangents, strict=True):
            places[leaf] = argument.node
            places[self._moves[leaf]] = tangent.node
        jacobian, change = map(Array, substitute([self.jacobian, self._change], places))
        if not self.shape:
            ratio = divide(reshape(change, ()), reshape(jacobian, ()))
            return (-ratio,)
        return (reshape(-solve(jacobian, change), list(self.shape)),)

    def value(
        self, arguments: Sequence[np.ndarray], parameters: Parameters
    ) -> tuple[np.ndarray, ...]:
        """Newton's method without damping, for the interpreter."""
        solve_all = np.vectorize(self._solved, otypes=[float], signature=self._signature())
        return (solve_all(*arguments),)

    def _solved(self, *arguments: np.ndarray) -> np.ndarray:
        values = {leaf.name: a for leaf, a in zip(self.given, arguments, strict=True)}
        sizes = self._sizes([a.shape for a in arguments])
        point = arguments[0].ravel().astype(np.float64)
        for _ in range(ITERATIONS):
            residual, jacobian = evaluate_all(
                [self.residual, self.jacobian], {**values, FLAT: point}, sizes
            )
            step = np.linalg.solve(jacobian, residual)
            point = point - step
            if np.max(np.abs(step), initial=0.0) <= 1e-15 * np.max(np.abs(point), initial=1.0):
                break
        return point.reshape(arguments[0].shape)

    def _signature(self) -> str:
        """The shapes of the arguments and the root for np.vectorize, as in "(a,b),(c)->(a,b)"."""
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        shapes = ["(" + ",".join(next(letters) for _ in leaf.shape) + ")" for leaf in self.given]
        return f"{','.join(shapes)}->{shapes[0]}"

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for symbol, reading in readings([leaf.shape for leaf in self.given]).items():
            length = sympy.Integer(shapes[reading.position][reading.axis])
            value = reading.value.xreplace({LENGTH: length})
            sizes[symbol.name] = int(evaluate(value, sizes))
        return sizes

    def numpy(self, arguments: Sequence[str], parameters: Parameters, output: int) -> str:
        """SciPy's root finder, for each index of the leading axes: Levenberg's and Marquardt's
        method, which needs no good start, with the Jacobian, and until nothing changes."""
        sizes = size_texts(self.given)
        names = ", ".join(leaf.name for leaf in self.given)
        residual, jacobian = (
            f"lambda {FLAT}: {numpy_text(node, sizes)}" for node in (self.declared, self.jacobian)
        )
        options = "method='lm', tol=1e-14, options={'ftol': 1e-15}"
        found = f"scipy.optimize.root({residual}, np.ravel({START}), jac={jacobian}, {options}).x"
        return (
            f"np.vectorize(lambda {names}: np.reshape({found}, np.shape({START})), "
            f"signature='{self._signature()}')({', '.join(arguments)})"
        )


def _text(name: str, unknowns: Sequence[Leaf], declared: Sequence[Node], style: str) -> str:
    """As "root(P P − S)", and of several unknowns "root(x, y: first; second)"; a format string."""
    shown = "; ".join(render(node, style) for node in simplify(declared))
    if len(unknowns) > 1:
        colon = r"\colon " if style == "latex" else ": "
        shown = ", ".join(render(leaf, style) for leaf in unknowns) + colon + shown
    if style == "latex":
        name = r"\operatorname{" + name.replace("_", r"\_") + "}"
    return f"{name}({shown})".replace("{", "{{").replace("}", "}}")
