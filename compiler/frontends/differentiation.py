"""Derivatives as expressions, by JAX's names, in closed form.

A derivative is an expression of the same symbols as the one that is differentiated, and can be
differentiated again. Derivatives by a symbol with a structure are projected on the structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from derivatrix.compiler.differentiate.linearise import (
    differentiable,
    jacobian_diagonal,
    jacobians,
    project_derivative,
    pull_back,
    push_forward,
    tangent_of,
)
from derivatrix.compiler.differentiate.projection import project
from derivatrix.compiler.frontends.arguments import (
    argument_node,
    declared_text,
    require_one_meaning,
)
from derivatrix.compiler.frontends.limits import stated_depth
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.messages import operand_text
from derivatrix.compiler.ir.nodes import Leaf, Node, full, leaves
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.selections import with_selections
from derivatrix.runtime.errors import DeclarationError, ShapeError


@stated_depth("grad")
def grad(expr: Any, X: Any) -> Array:
    """The gradient of a scalar expression by X, of the shape of X.

    expr: a scalar. X: a symbol that it depends on: an input, a SymPy symbol, or its name. The
    gradient by a matrix with a structure is projected on the structure. Raises ShapeError where
    `expr` is no scalar, DeclarationError where X is no symbol of it.
    """
    expression = _Expression("grad", expr, [X], is_scalar=True)
    return expression.derivative(expression.gradient)


@stated_depth("jacobian")
def jacobian(expr: Any, X: Any) -> Array:
    """The Jacobian of an expression by X, of shape (*expr.shape, *X.shape). X: see `grad`."""
    expression = _Expression("jacobian", expr, [X])
    if not expression.value.shape:
        return expression.derivative(expression.gradient)
    return expression.derivative(expression.jacobian(expression.value))


@stated_depth("hessian")
def hessian(expr: Any, X: Any) -> Array:
    """The Hessian of a scalar expression by X, of shape (*X.shape, *X.shape). See `grad`."""
    expression = _Expression("hessian", expr, [X], is_scalar=True)
    node = project_derivative(expression.jacobian(expression.gradient), expression.leaf)
    return expression.derivative(*simplify([node], expand=True))


@stated_depth("jvp")
def jvp(expr: Any, tangents: Mapping[Any, Any]) -> Array:
    """The derivative of an expression along `tangents`, of the shape of the expression.

    tangents: a dict of symbols, as X of `grad`, and their tangents, expressions of their shapes:
    `jvp(expr, {X: V})`. The tangent of a matrix with a structure is projected on the structure.
    Raises ShapeError for a tangent of another shape, DeclarationError for what is no such dict.
    """
    if not isinstance(tangents, Mapping) or not tangents:
        raise DeclarationError(f"jvp: tangents is a dict {{X: V}}, not {shown(tangents)}")
    expression = _Expression("jvp", expr, tangents)
    return expression.derivative(expression.pushed(expression.value, tangents.values()))


@stated_depth("vjp")
def vjp(expr: Any, X: Any, G: Any) -> Array:
    """The derivative of an expression by X, multiplied by the cotangent G from the left: the
    gradient of sum(G * expr) with G held fixed, of the shape of X.

    G: an expression of the shape of `expr`. X: see `grad`. Raises ShapeError for G of another
    shape.
    """
    expression = _Expression("vjp", expr, [X])
    cotangent = expression.fitting("G", G, expression.value.shape)
    return expression.derivative(expression.pulled_back(cotangent))


@stated_depth("hvp")
def hvp(expr: Any, X: Any, V: Any) -> Array:
    """The Hessian of a scalar expression by X, multiplied by V: the derivative of the gradient
    along V, of the shape of X.

    V: an expression of the shape of X; see `jvp`. X: see `grad`. Raises ShapeError for V of another
    shape.
    """
    expression = _Expression("hvp", expr, [X], is_scalar=True)
    product = expression.pushed(expression.gradient, [V], "V")
    return expression.derivative(*simplify([project_derivative(product, expression.leaf)]))


@stated_depth("hessian_diagonal")
def hessian_diagonal(expr: Any, X: Any) -> Array:
    """The second derivatives ∂²expr/∂X[i]² of a scalar expression by the entries of X, of the shape
    of X: the diagonal of `hessian(expr, X)`.

    Most functions have closed forms without the Hessian, but for those of factorisations, expm and
    matrix equations. See `grad`.
    """
    expression = _Expression("hessian_diagonal", expr, [X], is_scalar=True)
    return expression.derivative(
        jacobian_diagonal(expression.gradient, expression.leaf, is_gradient=True)
    )


@stated_depth("laplacian")
def laplacian(expr: Any, X: Any) -> Array:
    """The Laplacian of a scalar expression by X, the sum of the second derivatives by its entries:
    the trace of `hessian(expr, X)`. See `hessian_diagonal`, `grad`."""
    expression = _Expression("laplacian", expr, [X], is_scalar=True)
    return expression.derivative(
        jacobian_diagonal(expression.gradient, expression.leaf, is_trace=True, is_gradient=True)
    )


@stated_depth("divergence")
def divergence(expr: Any, X: Any) -> Array:
    """The divergence of an expression of the shape of X, Σ ∂expr[i]/∂X[i]: the trace of
    `jacobian(expr, X)`.

    X: see `grad`. Raises ShapeError for an expression of another shape.
    """
    expression = _Expression("divergence", expr, [X])
    expression.fitting("expr", expr, expression.leaf.shape)
    return expression.derivative(
        jacobian_diagonal(expression.value, expression.leaf, is_trace=True)
    )


class _Expression:
    """An expression, and symbols of it to differentiate by.

    function: the name of the public function, for errors. Raises DeclarationError for what is no
    symbol of the expression, ShapeError for an expression that is no scalar where `is_scalar`.
    """

    def __init__(
        self, function: str, expr: Any, symbols: Iterable[Any], is_scalar: bool = False
    ) -> None:
        self.function = function
        node = argument_node(f"{function}: expr", expr)
        if is_scalar and node.shape:
            raise ShapeError(
                f"{function}: expr is a scalar, not of shape {shape_text(node.shape)}; the "
                "derivative of an array is its jacobian"
            )
        require_one_meaning(function, leaves([node]))
        self.leaves = [self._leaf(node, symbol) for symbol in symbols]
        if len(set(self.leaves)) < len(self.leaves):
            names = ", ".join(leaf.name for leaf in self.leaves)
            raise DeclarationError(f"{function}: two tangents of one symbol, of {names}")
        declared: dict[Node, Node] = {
            symbol: leaf
            for symbol in leaves([node])
            for leaf in self.leaves
            if symbol.role == "symbol" and (symbol.name, symbol.shape) == (leaf.name, leaf.shape)
        }
        self.value = differentiable(*substitute([node], declared))

    @property
    def leaf(self) -> Leaf:
        """The symbol to differentiate by; of several, as `jvp` has, the first."""
        return self.leaves[0]

    @cached_property
    def gradient(self) -> Node:
        """The gradient of a scalar expression: its VJP for the cotangent 1."""
        return self.pulled_back(full(1))

    def pulled_back(self, cotangent: Node) -> Node:
        """Transpose the JVP along `leaf`, and apply it to a cotangent."""
        tangents = {self.leaf: tangent_of(self.leaf)}
        (jvp,) = push_forward([self.value], tangents)
        return pull_back([jvp], tangents, [cotangent])[0]

    def pushed(self, node: Node, directions: Iterable[Any], name: str = "") -> Node:
        """Differentiate `node` along a direction for each symbol. name: of the argument with the
        direction, for errors; by default that of `jvp`."""
        tangents = {leaf: tangent_of(leaf, f"tangent_{leaf.name}") for leaf in self.leaves}
        nodes: dict[Node, Node] = {}
        for leaf, direction in zip(self.leaves, directions, strict=True):
            argument = name or f"the tangent of {leaf.name}"
            nodes[tangents[leaf]] = project(self.fitting(argument, direction, leaf.shape), leaf)
        return simplify(substitute(push_forward([node], tangents), nodes))[0]

    def jacobian(self, node: Node) -> Node:
        """The Jacobian of `node` by `leaf`."""
        return jacobians([node], self.leaf, tangent_of(self.leaf))[0]

    def derivative(self, node: Node) -> Array:
        """Return a derivative, in which `where` adds nothing for the branch that is not taken."""
        return Array(*with_selections([node], [self.value]))

    def fitting(self, argument: str, value: Any, shape: Shape) -> Node:
        """Return the node of an argument. Raises ShapeError unless it has this shape."""
        node = argument_node(f"{self.function}: {argument}", value)
        if node.shape != shape:
            raise ShapeError(
                f"{self.function}: {argument} has shape {shape_text(node.shape)}, expected "
                f"{shape_text(shape)}"
            )
        return node

    def _leaf(self, node: Node, symbol: Any) -> Leaf:
        """Find the leaf that `symbol` means: a declared input rather than a SymPy symbol."""
        present = leaves([node])
        if isinstance(symbol, str):
            text, candidates = shown(symbol), [leaf for leaf in present if leaf.name == symbol]
        else:
            target = argument_node(f"{self.function}: the symbol to differentiate by", symbol)
            text = declared_text(target) if isinstance(target, Leaf) else operand_text(target)
            candidates = [leaf for leaf in present if _means(target, leaf)]
        if not candidates:
            names = ", ".join(map(declared_text, present)) or "none"
            raise DeclarationError(
                f"{self.function}: the expression has no symbol {text} to differentiate by; its "
                f"symbols: {names}"
            )
        return min(candidates, key=lambda leaf: leaf.role == "symbol")


def _means(node: Node, leaf: Leaf) -> bool:
    """Return whether `node` is the leaf, or one of them is the other's SymPy symbol."""
    if not isinstance(node, Leaf) or (node.name, node.shape) != (leaf.name, leaf.shape):
        return False
    return node is leaf or "symbol" in (node.role, leaf.role)
