"""Functions defined by equations: root, fixed_point, argmin, least_squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.frontends.arguments import require_one_meaning
from derivatrix.compiler.frontends.equation import entry_count, packed, root_operation, unpacked
from derivatrix.compiler.frontends.scans import require_symbol
from derivatrix.compiler.ir.arrays import Array, apply, asarray, subtract
from derivatrix.compiler.ir.dimensions import readings, shape_text
from derivatrix.compiler.ir.nodes import Leaf, Node, full, leaves
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.runtime.errors import DeclarationError, ShapeError


def root(residual: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` at which `residual` is zero, found by Newton's method from `start`.

    residual: an expression of `unknown` (an input declared for the purpose, of any rank) with as
    many entries. start: an expression of its shape; it decides only which root is found.
    on_failure: "error" raises numpy.linalg.LinAlgError where the iteration does not converge or
    meets a singular Jacobian, "nan" returns nan.

    Several unknowns are a list, with a list of starts, and the result is a tuple: with
    `x, y = root([first, second], [x, y], [x0, y0])` all equations hold at once. The equations may
    have any shapes with as many entries in total as the unknowns. The derivative is that of the
    implicit function theorem: one solve with the Jacobian of all equations by all unknowns at the
    root. Raises DeclarationError, ShapeError.
    """
    problem = _Problem("root", _as_list(residual), unknown, start)
    return problem.root(problem.expressions, on_failure)


def fixed_point(image: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` that equals `image`, an expression of it. Several unknowns have an
    image each, and all equations hold at once. See `root`."""
    problem = _Problem("fixed_point", _as_list(image), unknown, start)
    if len(problem.expressions) != len(problem.unknowns):
        raise DeclarationError(
            f"fixed_point: there are {len(problem.expressions)} images of "
            f"{len(problem.unknowns)} unknowns; each unknown has one"
        )
    pairs = zip(problem.unknowns, problem.expressions, strict=True)
    residuals = [subtract(Array(leaf), expression) for leaf, expression in pairs]
    return problem.root(residuals, on_failure)


def argmin(objective: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` at which the gradient of the scalar `objective` is zero, found by
    Newton's method from `start`: a minimum where the objective is convex. For several unknowns, the
    gradients by all of them are zero. See `root`."""
    problem = _Problem("argmin", [objective], unknown, start)
    (scalar,) = problem.expressions
    if scalar.ndim:
        raise ShapeError(
            f"argmin: the objective is a scalar, not of shape {shape_text(scalar.node.shape)}"
        )
    return problem.stationary(scalar, on_failure)


def least_squares(residual: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` that minimises half the sum of the squares of `residual`, |r|²/2, for
    at least as many equations as unknowns, which need not hold at the solution.

    residual: an expression, or a list of them, of any shapes. Newton's method finds, from `start`,
    a zero of the gradient Jᵀ r, with the Jacobian J of r: the start must be close enough to the
    minimum that the method does not end at another stationary point. The derivative is that of the
    implicit function theorem with the whole Hessian Jᵀ J + Σ rᵢ ∇²rᵢ: Gauss and Newton's Jᵀ J is
    right only where residuals are zero. Nocedal and Wright, Numerical Optimization, chapter 10. See
    `root`."""
    problem = _Problem("least_squares", _as_list(residual), unknown, start)
    count = entry_count([expression.node for expression in problem.expressions])
    if (entry_count(problem.unknowns) - count).is_positive:
        raise ShapeError(
            f"least_squares: there are fewer residuals, {count}, than entries of the unknown, "
            f"{entry_count(problem.unknowns)}; no point is better than all others"
        )
    squares = [(expression**2).sum() for expression in problem.expressions]
    return problem.stationary(sum(squares[1:], squares[0]) / 2, on_failure)


def _as_list(value: Any) -> list[Any]:
    """Return the values for several unknowns as a list, a single value as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


class _Problem:
    """The checked arguments of one of these functions: expressions of unknowns, and starts. Raises
    DeclarationError, ShapeError with the function's name."""

    def __init__(self, name: str, expressions: Sequence[Any], unknown: Any, start: Any) -> None:
        self.name, self.several = name, isinstance(unknown, list | tuple)
        self.expressions = [asarray(expression) for expression in expressions]
        self.unknowns = [self._leaf(expression) for expression in _as_list(unknown)]
        self.starts = [
            asarray(expression) for expression in (_as_list(start) if self.several else [start])
        ]
        self._require_counts()
        nodes = [expression.node for expression in self.expressions]
        require_one_meaning(name, [*self.unknowns, *leaves(nodes)])
        self._name_symbols()
        self._refuse_starts()

    def root(self, residuals: Sequence[Array], on_failure: str) -> Any:
        """The root of the residuals: an array, or a tuple of them for several unknowns."""
        equations = [residual.node for residual in residuals]
        self._refuse_equations(equations)
        if entry_count(equations) != entry_count(self.unknowns):
            shapes = ", ".join(shape_text(residual.shape) for residual in equations)
            unknowns_text = ", ".join(
                f"{leaf.name} {shape_text(leaf.shape)}" for leaf in self.unknowns
            )
            raise ShapeError(
                f"{self.name}: the equations have shape {shapes}, and the unknown is "
                f"{unknowns_text}; there must be an equation for each entry"
            )
        if on_failure not in ("error", "nan"):
            problem = f'on_failure is "error" or "nan", not {shown(on_failure)}'
            raise DeclarationError(f"{self.name}: {problem}")
        # without structures: the equations, and so the Jacobian, are for all entries
        free = tuple(Leaf(leaf.name, leaf.shape) for leaf in self.unknowns)
        free_leaves: dict[Node, Node] = dict(zip(self.unknowns, free, strict=True))
        nodes, declared = (
            tuple(substitute(residual, free_leaves))
            for residual in (equations, [expression.node for expression in self.expressions])
        )
        operation = root_operation(nodes, free, on_failure == "error", self.name, declared)
        operands = [
            packed(self.starts),
            *(Array(leaf) for leaf in leaves(nodes) if leaf not in free),
        ]
        self._refuse_sizes(operands)
        roots = unpacked(apply(operation, *operands), free)
        return tuple(roots) if self.several else roots[0]

    def stationary(self, scalar: Array, on_failure: str) -> Any:
        """The point at which the gradients of a scalar by all unknowns are zero."""
        gradients: list[Array] = []
        for leaf in self.unknowns:
            tangent = Leaf(f"_d_{leaf.name}", leaf.shape, role="tangent")
            (slope,) = differential([scalar.node], {leaf: tangent})
            gradients += map(Array, transpose([slope], [tangent], [full(1)]))
        return self.root(gradients, on_failure)

    def _leaf(self, unknown: Any) -> Leaf:
        """Return the leaf of an unknown, which may be given as SymPy's symbol."""
        if isinstance(unknown, sympy.Symbol | sympy.MatrixSymbol):
            unknown = asarray(unknown)
        leaf = getattr(unknown, "node", None)
        if not isinstance(leaf, Leaf):
            raise DeclarationError(
                f"{self.name}: the unknown is a symbolic input such as "
                f'dx.matrix("P", n, n), not {unknown!r}'
            )
        require_symbol(leaf, "an unknown")
        return leaf

    def _require_counts(self) -> None:
        """Raise DeclarationError for no unknown or no equation, an unknown that is given twice, and
        a number of starts that is not the number of unknowns."""
        names = [leaf.name for leaf in self.unknowns]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(f"{self.name}: the unknown {name} is given twice")
        if not names or not self.expressions:
            raise DeclarationError(f"{self.name}: there is nothing to solve")
        if len(self.starts) != len(names):
            raise DeclarationError(
                f"{self.name}: there are {len(self.starts)} starts of {len(names)} unknowns; "
                "each unknown has one"
            )

    def _name_symbols(self) -> None:
        """Replace SymPy's symbols that have an unknown's name by the unknown."""
        nodes = [expression.node for expression in self.expressions]
        unknowns = {(leaf.name, leaf.shape): leaf for leaf in self.unknowns}
        symbols: dict[Node, Node] = {
            leaf: unknowns[leaf.name, leaf.shape]
            for leaf in leaves(nodes)
            if leaf.role == "symbol" and (leaf.name, leaf.shape) in unknowns
        }
        self.expressions = [Array(node) for node in substitute(nodes, symbols)]

    def _refuse_equations(self, equations: Sequence[Node]) -> None:
        """Raise DeclarationError for an unknown that is in no equation, and for an equation without
        unknowns: the Jacobian would be singular."""
        leaf_sets = [leaves([equation]) for equation in equations]
        for leaf in self.unknowns:
            if not any(leaf in leaf_set for leaf_set in leaf_sets):
                raise DeclarationError(f"{self.name}: no equation depends on {leaf.name}")
        for position, leaf_set in enumerate(leaf_sets):
            if not any(leaf in leaf_set for leaf in self.unknowns):
                raise DeclarationError(
                    f"{self.name}: equation {position + 1} depends on no unknown"
                )

    def _refuse_sizes(self, operands: Sequence[Array]) -> None:
        """Raise ShapeError for a size of an unknown that no operand's shape gives: several starts
        become one vector, which does not give the size of each."""
        readable = readings([operand.node.shape for operand in operands])
        for leaf in self.unknowns:
            for symbol in sympy.Tuple(*leaf.shape).free_symbols:
                if symbol not in readable:
                    raise ShapeError(
                        f"{self.name}: the size {symbol} of {leaf.name} cannot be read off the "
                        "shape of any input of the equations; use an input with an axis of that "
                        "length"
                    )

    def _refuse_starts(self) -> None:
        """Raise ShapeError for a start of another shape than its unknown, DeclarationError for a
        start that depends on an unknown."""
        for leaf, start in zip(self.unknowns, self.starts, strict=True):
            if start.node.shape != leaf.shape:
                raise ShapeError(
                    f"{self.name}: the start has shape {shape_text(start.node.shape)}; "
                    f"{leaf.name} has {shape_text(leaf.shape)}"
                )
            for unknown in self.unknowns:
                if unknown in leaves([start.node]):
                    raise DeclarationError(
                        f"{self.name}: the start must not depend on {unknown.name} itself"
                    )
