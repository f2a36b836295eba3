"""Real powers and elementary functions of a matrix, composed of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from derivatrix.compiler.frontends.declare import eye
from derivatrix.compiler.frontends.factorisations import eigh
from derivatrix.compiler.frontends.linear import inv, matrix_power
from derivatrix.compiler.frontends.products import multi_dot
from derivatrix.compiler.ir.arrays import (
    Array,
    apply,
    asarray,
    elementwise,
    multiply,
    sum_over,
)
from derivatrix.compiler.ir.messages import disagreement, require_square
from derivatrix.compiler.ir.nodes import Einsum, Leaf, Map, Node, Sum, literal, slot
from derivatrix.compiler.ir.scalar_functions import spherical
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.matrix_functions import COSM, EXPM, LOGM, SINM, TANHM
from derivatrix.compiler.operations.skew import SKEW
from derivatrix.compiler.operations.square_root import SQRTM
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

VARIABLE = sympy.Symbol("x", real=True)


def fractional_matrix_power(array: Any, exponent: Any) -> Array:
    """A square matrix to a real power, its principal value.

    exponent: a number, or a scalar expression. Integer powers are `matrix_power`, multiples of 1/2
    use the square root, and others are expm(exponent * logm(array)): LinAlgError where an
    eigenvalue lies on the closed negative real axis."""
    base, power = asarray(array), asarray(exponent)
    require_square("fractional_matrix_power", base.node)
    if power.ndim:
        raise DeclarationError(
            f"fractional_matrix_power needs a number or a scalar as exponent, not {shown(exponent)}"
        )
    number = literal(power.node)
    if number is None or not number.is_number or int(2 * number) != 2 * number:
        return apply(EXPM, multiply(power, apply(LOGM, base)))
    integer, halves = divmod(int(2 * number), 2)
    if not halves:
        return matrix_power(base, integer)
    if integer == -1:
        return inv(apply(SQRTM, base))
    root = apply(SQRTM, base)
    return matrix_power(base, integer) @ root if integer else root


def funm(matrix: Any, function: Any) -> Array:
    """A scalar function of a square matrix, as `scipy.linalg.funm`; the arguments may be given in
    either order.

    function: a SymPy expression of one symbol, or a callable of a symbol, such as `sympy.exp`,
    `np.exp` or `lambda x: x / (1 + dx.exp(-x))`. It is composed of sums, products, powers, exp,
    log, sin, cos, tan, tanh, abs, sign and functions that SymPy rewrites by these (sinh, atanh,
    ...), so that eigenvalues may be repeated in every derivative. LinAlgError where one of the
    parts is not defined. Other functions require a matrix that is symmetric by construction: they
    apply to its eigenvalues, and derivatives use divided differences, right also for repeated
    eigenvalues. Raises UnsupportedError for other matrices."""
    if _is_function(matrix) and not _is_function(function):
        matrix, function = function, matrix
    expression, variable = _expression(function)
    base = asarray(matrix)
    require_square("funm", base.node)
    try:
        return _at_matrix(expression, variable, base)
    except UnsupportedError:
        if "symmetric" not in facts(base.node):
            raise
    values, vectors = eigh(base)
    results = elementwise(expression.xreplace({variable: slot(0)}), values)
    return multiply(vectors, results[..., None, :]) @ vectors.mT


def rotation(vector: Any) -> Array:
    """The rotation about a vector of 3 entries, by its length as angle: expm(skew(vector)), by
    Rodrigues' formula. All derivatives are right at 0. Leading axes are stacked."""
    axis = asarray(vector)
    if axis.node.shape[-1:] != (3,):
        raise disagreement("rotation({})", [axis.node], "expected 3 entries along the last axis")
    # Rodrigues: I + (sin t / t) K + ((1 - cos t) / t²) K², with t = |axis|. Both weights are smooth
    # functions of t², where t itself has no derivative at 0
    skew = apply(SKEW, axis)
    angle = sympy.sqrt(slot(0))
    square = sum_over(axis**2, -1)
    linear_weight = elementwise(spherical(0, angle), square)[..., None, None]
    # (1 - cos t) / t² = ½ (sin(t/2) / (t/2))², which does not cancel
    square_weight = elementwise(spherical(0, angle / 2) ** 2 / 2, square)[..., None, None]
    return eye(3) + linear_weight * skew + square_weight * (skew @ skew)


def _is_function(argument: Any) -> bool:
    """Decide whether an argument of `funm` is the function, not the matrix."""
    if isinstance(argument, sympy.Basic):
        return isinstance(argument, sympy.Expr) and not isinstance(argument, sympy.MatrixExpr)
    return callable(argument) and not isinstance(argument, Array)


def _expression(function: Any) -> tuple[sympy.Expr, sympy.Symbol]:
    """Return the SymPy expression of a function, and its variable."""
    if callable(function) and not isinstance(function, sympy.Expr):
        try:
            function = function(VARIABLE)
        except TypeError:  # NumPy's functions take symbolic arrays, and no symbols
            function = function(asarray(VARIABLE))
    if isinstance(function, Array):
        function = _scalar(function.node)
    if not isinstance(function, sympy.Expr) or isinstance(function, sympy.MatrixExpr):
        raise DeclarationError(
            f"funm needs an expression of one SymPy symbol, not {shown(function)}"
        )
    if function.has(sympy.I):
        raise UnsupportedError(f"funm: {function} is complex; every array here is real")
    symbols = sorted(function.free_symbols, key=str)
    if len(symbols) > 1:
        names = ", ".join(map(str, symbols))
        raise DeclarationError(f"funm needs a function of one variable, not of {names}")
    return function, symbols[0] if symbols else VARIABLE


def _scalar(node: Node) -> sympy.Expr | None:
    """Write a rank-0 node as an expression of VARIABLE, which stands for its leaf; None if it has
    no such form."""
    parts = [_scalar(child) for child in node.children]
    if node.ndim or any(part is None for part in parts):
        return None
    if isinstance(node, Leaf):
        return VARIABLE
    if isinstance(node, Map):
        slots = {slot(position): part for position, part in enumerate(parts)}
        return node.expression.xreplace(slots)
    if isinstance(node, Sum):
        return sympy.Add(*map(_scalar, node.terms))
    if isinstance(node, Einsum):
        return sympy.Mul(node.coefficient, *(_scalar(factor) for factor, _ in node.factors))
    return None


ELEMENTARY: dict[type, Callable[[Array], Array]] = {
    sympy.exp: lambda matrix: apply(EXPM, matrix),
    sympy.log: lambda matrix: apply(LOGM, matrix),
    sympy.sin: lambda matrix: apply(SINM, matrix),
    sympy.cos: lambda matrix: apply(COSM, matrix),
    sympy.tan: lambda matrix: inv(apply(COSM, matrix)) @ apply(SINM, matrix),
    sympy.tanh: lambda matrix: apply(TANHM, matrix),
    sympy.Abs: lambda matrix: apply(SQRTM, matrix @ matrix),
    sympy.sign: lambda matrix: matrix @ inv(apply(SQRTM, matrix @ matrix)),
}


def _at_matrix(expression: sympy.Expr, variable: sympy.Symbol, matrix: Array) -> Array:
    """Substitute a matrix for the variable of an expression."""
    if expression == variable:
        return matrix
    if not expression.has(variable):
        if not expression.is_real:
            raise UnsupportedError(f"funm: {expression} is no real number")
        return multiply(asarray(expression), eye(matrix.node.shape[-1]))
    if isinstance(expression, sympy.Add):
        terms = [_at_matrix(term, variable, matrix) for term in expression.args]
        return sum(terms[1:], start=terms[0])
    if isinstance(expression, sympy.Mul):
        number, dependent = expression.as_independent(variable, as_Add=False)
        factors = [_at_matrix(part, variable, matrix) for part in sympy.Mul.make_args(dependent)]
        product = multi_dot(factors) if len(factors) > 1 else factors[0]
        return product if number == 1 else multiply(asarray(number), product)
    if isinstance(expression, sympy.Pow) and not expression.exp.has(variable):
        base = _at_matrix(expression.base, variable, matrix)
        return fractional_matrix_power(base, expression.exp)
    if type(expression) in ELEMENTARY:
        return ELEMENTARY[type(expression)](_at_matrix(expression.args[0], variable, matrix))
    return _at_matrix(_rewritten(expression), variable, matrix)


def _rewritten(expression: sympy.Expr) -> sympy.Expr:
    """Rewrite a function by exp or log."""
    for target in (sympy.exp, sympy.log):
        rewritten = expression.rewrite(target)
        if not rewritten.has(expression.func, sympy.I):
            return rewritten
    raise UnsupportedError(
        f"funm: there is no {expression.func.__name__} of a matrix; "
        f"known are {', '.join(sorted(function.__name__ for function in ELEMENTARY))} and powers"
    )
