"""Functions given by equations: root, fixed_point, argmin."""

from __future__ import annotations

from typing import Any

import sympy

from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.frontends.equation import root_operation
from derivatrix.compiler.ir.arrays import Array, apply, asarray, subtract
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.identifiers import require_variable
from derivatrix.compiler.ir.nodes import Leaf, Node, full, leaves
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.runtime.errors import DeclarationError, ShapeError


def root(residual: Any, unknown: Array, start: Any, on_failure: str = "error") -> Array:
    """The value of `unknown` at which `residual` is zero, found by Newton's method from `start`.

    residual: an expression of `unknown` (an input made for the purpose, of any rank) with as
    many entries; start: an expression of its shape, on which the result must not depend except
    for which root is found. on_failure: "error" raises numpy.linalg.LinAlgError where the
    iteration does not converge or meets a singular Jacobian, "nan" returns nan.
    The derivative is the implicit function theorem's: one solve with the Jacobian at the root.
    Raises DeclarationError, ShapeError.
    """
    first = asarray(start)
    equation, leaf = _unknown("root", asarray(residual), unknown)
    if equation.node.shape != leaf.shape:
        raise ShapeError(
            f"root: the residual has shape {shape_text(equation.node.shape)}, and {leaf.name} has "
            f"{shape_text(leaf.shape)}; there must be an equation for each entry"
        )
    if first.node.shape != leaf.shape:
        raise ShapeError(
            f"root: the start has shape {shape_text(first.node.shape)}; "
            f"{leaf.name} has {shape_text(leaf.shape)}"
        )
    if leaf in leaves([first.node]):
        raise DeclarationError(f"root: the start must not depend on {leaf.name} itself")
    if on_failure not in ("error", "nan"):
        raise DeclarationError(f'root: on_failure is "error" or "nan", not {shown(on_failure)}')
    free = Leaf(leaf.name, leaf.shape)
    node = substitute([equation.node], {leaf: free})[0]
    operation = root_operation(node, free, on_failure == "error")
    given = [Array(other) for other in leaves([node]) if other is not free]
    return apply(operation, first, *given)


def fixed_point(image: Any, unknown: Array, start: Any, on_failure: str = "error") -> Array:
    """The value of `unknown` that `image`, an expression of it, leaves as it is; see `root`."""
    return root(subtract(asarray(unknown), asarray(image)), unknown, start, on_failure)


def argmin(objective: Any, unknown: Array, start: Any, on_failure: str = "error") -> Array:
    """The value of `unknown` at which the gradient of the scalar `objective` is zero, found by
    Newton's method from `start`: a minimum where the objective is convex; see `root`."""
    scalar, leaf = _unknown("argmin", asarray(objective), unknown)
    if scalar.ndim:
        raise ShapeError(
            f"argmin: the objective is a scalar, not of shape {shape_text(scalar.node.shape)}"
        )
    tangent = Leaf(f"_d_{leaf.name}", leaf.shape, role="tangent")
    (slope,) = differential([scalar.node], {leaf: tangent})
    (gradient,) = transpose(slope, [tangent], full(1))
    return root(Array(gradient), unknown, start, on_failure)


def _unknown(name: str, expression: Array, unknown: Any) -> tuple[Array, Leaf]:
    """The expression and the leaf in it that is the unknown, also where SymPy's symbol of its
    name stands for it."""
    if isinstance(unknown, sympy.Symbol | sympy.MatrixSymbol):
        unknown = asarray(unknown)
    leaf = getattr(unknown, "node", None)
    if not isinstance(leaf, Leaf):
        raise DeclarationError(
            f'{name}: the unknown is a symbolic input such as dx.matrix("P", n, n), '
            f"not {shown(unknown)}"
        )
    require_variable(leaf.name, "an unknown")
    symbols: dict[Node, Node] = {
        other: leaf
        for other in leaves([expression.node])
        if other.role == "symbol" and (other.name, other.shape) == (leaf.name, leaf.shape)
    }
    node = substitute([expression.node], symbols)[0]
    if leaf not in leaves([node]):
        raise DeclarationError(f"{name}: the expression does not depend on {leaf.name}")
    return Array(node), leaf
