"""Functions given by equations: root, fixed_point, argmin, least_squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.frontends.equation import entries, packed, root_operation, unpacked
from derivatrix.compiler.ir.arrays import Array, apply, asarray, subtract
from derivatrix.compiler.ir.dimensions import readings, shape_text
from derivatrix.compiler.ir.identifiers import require_variable
from derivatrix.compiler.ir.nodes import Leaf, Node, full, leaves
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.runtime.errors import DeclarationError, ShapeError


def root(residual: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` at which `residual` is zero, found by Newton's method from `start`.

    residual: an expression of `unknown` (an input made for the purpose, of any rank) with as
    many entries; start: an expression of its shape, on which the result must not depend except
    for which root is found. on_failure: "error" raises numpy.linalg.LinAlgError where the
    iteration does not converge or meets a singular Jacobian, "nan" returns nan.

    Several unknowns are a list, with a list of starts, and the result is a tuple: with
    `x, y = root([first, second], [x, y], [x0, y0])` all equations hold at once. They may have
    any shapes, as long as they have as many entries as the unknowns together.
    The derivative is the implicit function theorem's: one solve with the Jacobian at the root,
    which for several unknowns is that of all equations by all of them.
    Raises DeclarationError, ShapeError.
    """
    problem = _Problem("root", _listed(residual), unknown, start)
    return problem.solved(problem.expressions, on_failure)


def fixed_point(image: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` that `image`, an expression of it, leaves as it is; of several
    unknowns each has its own image, and all hold at once. See `root`."""
    problem = _Problem("fixed_point", _listed(image), unknown, start)
    if len(problem.expressions) != len(problem.unknowns):
        raise DeclarationError(
            f"fixed_point: there are {len(problem.expressions)} images of "
            f"{len(problem.unknowns)} unknowns; each unknown has one"
        )
    pairs = zip(problem.unknowns, problem.expressions, strict=True)
    residuals = [subtract(Array(leaf), expression) for leaf, expression in pairs]
    return problem.solved(residuals, on_failure)


def argmin(objective: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` at which the gradient of the scalar `objective` is zero, found by
    Newton's method from `start`: a minimum where the objective is convex; of several unknowns
    the gradients by all of them. See `root`."""
    problem = _Problem("argmin", [objective], unknown, start)
    (scalar,) = problem.expressions
    if scalar.ndim:
        raise ShapeError(
            f"argmin: the objective is a scalar, not of shape {shape_text(scalar.node.shape)}"
        )
    return problem.stationary(scalar, on_failure)


def least_squares(residual: Any, unknown: Any, start: Any, on_failure: str = "error") -> Any:
    """The value of `unknown` at which half the sum of the squares of `residual`, |r|²/2, is least:
    equations of which there are more than unknowns, and which need not hold at the solution.

    residual: an expression, or a list of them, of any shapes. Newton's method finds, from
    `start`, where the gradient Jᵀ r is zero, J the Jacobian of r: the start has to be near
    enough to the minimum that the method does not end at another such point. The derivative is
    the implicit function theorem's of that equation, with the whole Hessian
    Jᵀ J + Σ rᵢ ∇²rᵢ: that of Gauss and Newton, Jᵀ J, is right only where residuals are zero.
    Nocedal and Wright, Numerical Optimization, chapter 10. See `root`.
    """
    problem = _Problem("least_squares", _listed(residual), unknown, start)
    count = entries([each.node for each in problem.expressions])
    if (entries(problem.unknowns) - count).is_positive:
        raise ShapeError(
            f"least_squares: there are fewer residuals, {count}, than entries of the unknown, "
            f"{entries(problem.unknowns)}; no point is better than all others"
        )
    squares = [(each**2).sum() for each in problem.expressions]
    return problem.stationary(sum(squares[1:], squares[0]) / 2, on_failure)


def _listed(given: Any) -> list[Any]:
    """What is given for one unknown or, as a list or tuple, for several."""
    return list(given) if isinstance(given, list | tuple) else [given]


class _Problem:
    """What one of these functions is given: expressions of unknowns, and their starts, checked.
    Raises DeclarationError, ShapeError, in the name of the function."""

    def __init__(self, name: str, expressions: Sequence[Any], unknown: Any, start: Any) -> None:
        self.name, self.several = name, isinstance(unknown, list | tuple)
        self.expressions = [asarray(each) for each in expressions]
        self.unknowns = [self._leaf(each) for each in _listed(unknown)]
        self.starts = [asarray(each) for each in (_listed(start) if self.several else [start])]
        self._refuse_lists()
        self._name_symbols()
        self._refuse_starts()

    def solved(self, residuals: Sequence[Array], on_failure: str) -> Any:
        """The root of the residuals: an array, or a tuple of them for several unknowns."""
        equations = [each.node for each in residuals]
        self._refuse_equations(equations)
        if entries(equations) != entries(self.unknowns):
            shapes = ", ".join(shape_text(each.shape) for each in equations)
            wanted = ", ".join(f"{leaf.name} {shape_text(leaf.shape)}" for leaf in self.unknowns)
            raise ShapeError(
                f"{self.name}: the equations have shape {shapes}, and the unknown is {wanted}; "
                "there must be an equation for each entry"
            )
        if on_failure not in ("error", "nan"):
            problem = f'on_failure is "error" or "nan", not {shown(on_failure)}'
            raise DeclarationError(f"{self.name}: {problem}")
        free = tuple(Leaf(leaf.name, leaf.shape) for leaf in self.unknowns)
        places: dict[Node, Node] = dict(zip(self.unknowns, free, strict=True))
        nodes, declared = (
            tuple(substitute(each, places))
            for each in (equations, [expression.node for expression in self.expressions])
        )
        operation = root_operation(nodes, free, on_failure == "error", self.name, declared)
        given = [packed(self.starts), *(Array(leaf) for leaf in leaves(nodes) if leaf not in free)]
        self._refuse_sizes(given)
        found = unpacked(apply(operation, *given), free)
        return tuple(found) if self.several else found[0]

    def stationary(self, scalar: Array, on_failure: str) -> Any:
        """Where the gradient of a scalar by all unknowns is zero."""
        gradients: list[Array] = []
        for leaf in self.unknowns:
            tangent = Leaf(f"_d_{leaf.name}", leaf.shape, role="tangent")
            (slope,) = differential([scalar.node], {leaf: tangent})
            gradients += map(Array, transpose(slope, [tangent], full(1)))
        return self.solved(gradients, on_failure)

    def _leaf(self, unknown: Any) -> Leaf:
        """The leaf that is the unknown, also where SymPy's symbol of its name stands for it."""
        if isinstance(unknown, sympy.Symbol | sympy.MatrixSymbol):
            unknown = asarray(unknown)
        leaf = getattr(unknown, "node", None)
        if not isinstance(leaf, Leaf):
            raise DeclarationError(
                f"{self.name}: the unknown is a symbolic input such as "
                f'dx.matrix("P", n, n), not {unknown!r}'
            )
        require_variable(leaf.name, "an unknown")
        return leaf

    def _refuse_lists(self) -> None:
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
        """Put the unknowns in place of SymPy's symbols of their names."""
        nodes = [each.node for each in self.expressions]
        named = {(leaf.name, leaf.shape): leaf for leaf in self.unknowns}
        symbols: dict[Node, Node] = {
            other: named[other.name, other.shape]
            for other in leaves(nodes)
            if other.role == "symbol" and (other.name, other.shape) in named
        }
        self.expressions = [Array(node) for node in substitute(nodes, symbols)]

    def _refuse_equations(self, equations: Sequence[Node]) -> None:
        read = [leaves([each]) for each in equations]
        for leaf in self.unknowns:
            if not any(leaf in each for each in read):
                raise DeclarationError(f"{self.name}: no equation depends on {leaf.name}")
        for position, each in enumerate(read):
            if not any(leaf in each for leaf in self.unknowns):
                raise DeclarationError(
                    f"{self.name}: equation {position + 1} depends on no unknown"
                )

    def _refuse_sizes(self, given: Sequence[Array]) -> None:
        """The sizes of all unknowns follow from the shapes of what the equations depend on: those
        of the starts do not say how long each of several is, as they become one vector."""
        known = readings([each.node.shape for each in given])
        for leaf in self.unknowns:
            for symbol in sympy.Tuple(*leaf.shape).free_symbols:
                if symbol not in known:
                    raise ShapeError(
                        f"{self.name}: no input of the equations says how large {symbol}, a size "
                        f"of {leaf.name}, is; one with an axis of that length has to be in them"
                    )

    def _refuse_starts(self) -> None:
        for leaf, start in zip(self.unknowns, self.starts, strict=True):
            if start.node.shape != leaf.shape:
                raise ShapeError(
                    f"{self.name}: the start has shape {shape_text(start.node.shape)}; "
                    f"{leaf.name} has {shape_text(leaf.shape)}"
                )
            for other in self.unknowns:
                if other in leaves([start.node]):
                    raise DeclarationError(
                        f"{self.name}: the start must not depend on {other.name} itself"
                    )
