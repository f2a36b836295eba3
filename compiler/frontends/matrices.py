"""Functions of a matrix that are made of others: real powers, elementary functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from derivatrix.compiler.frontends.declare import eye
from derivatrix.compiler.frontends.factorisations import eigh
from derivatrix.compiler.frontends.linear import inv, matrix_power
from derivatrix.compiler.frontends.products import multi_dot
from derivatrix.compiler.ir.arrays import Array, apply, asarray, elementwise, multiply
from derivatrix.compiler.ir.messages import require_square
from derivatrix.compiler.ir.nodes import Einsum, Leaf, Map, Node, Sum, literal, slot
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.matrix_functions import COSM, EXPM, LOGM, SINM, TANHM
from derivatrix.compiler.operations.square_root import SQRTM
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

VARIABLE = sympy.Symbol("x", real=True)


def fractional_matrix_power(array: Any, exponent: Any) -> Array:
    """A square matrix to a real power, its principal value.

    exponent: a number, or a scalar expression. Whole powers are `matrix_power`; those of a half
    are made of the square root, and others are expm(exponent * logm(array)): LinAlgError where an
    eigenvalue lies on the closed negative real axis.
    """
    base, power = asarray(array), asarray(exponent)
    require_square("fractional_matrix_power", base.node)
    if power.ndim:
        raise DeclarationError(
            f"fractional_matrix_power needs a number or a scalar as exponent, not {shown(exponent)}"
        )
    number = literal(power.node)
    if number is None or not number.is_number or int(2 * number) != 2 * number:
        return apply(EXPM, multiply(power, apply(LOGM, base)))
    whole, halves = divmod(int(2 * number), 2)
    if not halves:
        return matrix_power(base, whole)
    if whole == -1:
        return inv(apply(SQRTM, base))
    root = apply(SQRTM, base)
    return matrix_power(base, whole) @ root if whole else root


def funm(matrix: Any, function: Any) -> Array:
    """The function of a square matrix that an elementary function of a number defines, as
    `scipy.linalg.funm`; its arguments may be given in either order.

    function: a SymPy expression of one symbol, or what makes one of a SymPy symbol, such as
    `sympy.exp` or `lambda x: x / (1 + dx.exp(-x))`. It is made of the functions that there are:
    sums, products, powers, exp, log, sin, cos, tan, tanh, abs, sign and what SymPy writes with
    these (sinh, atanh, ...). So eigenvalues may be repeated in every derivative. LinAlgError
    where one of the parts is not defined. Another function, of a matrix that is symmetric by
    construction, is made of the eigenvalues and eigenvectors, and its derivatives of divided
    differences, right where eigenvalues are repeated. Raises UnsupportedError, which names it,
    for other matrices.
    """
    if _is_function(matrix) and not _is_function(function):
        matrix, function = function, matrix
    expression, variable = _expression(function)
    base = asarray(matrix)
    require_square("funm", base.node)
    try:
        return _of_matrix(expression, variable, base)
    except UnsupportedError:
        if "symmetric" not in facts(base.node):
            raise
    values, vectors = eigh(base)
    results = elementwise(expression.xreplace({variable: slot(0)}), values)
    return multiply(vectors, results[..., None, :]) @ vectors.mT


def _is_function(argument: Any) -> bool:
    """Whether it is what `funm` takes as a function, not as a matrix."""
    if isinstance(argument, sympy.Basic):
        return isinstance(argument, sympy.Expr) and not isinstance(argument, sympy.MatrixExpr)
    return callable(argument) and not isinstance(argument, Array)


def _expression(function: Any) -> tuple[sympy.Expr, sympy.Symbol]:
    """The expression and the symbol that the matrix takes the place of."""
    if callable(function) and not isinstance(function, sympy.Expr):
        function = function(VARIABLE)
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
    """A rank-0 node as an expression of the one symbol in it."""
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


def _of_matrix(expression: sympy.Expr, variable: sympy.Symbol, matrix: Array) -> Array:
    """The expression with a matrix in the place of its variable."""
    if expression == variable:
        return matrix
    if not expression.has(variable):
        if not expression.is_real:
            raise UnsupportedError(f"funm: {expression} is no real number")
        return multiply(asarray(expression), eye(matrix.node.shape[-1]))
    if isinstance(expression, sympy.Add):
        terms = [_of_matrix(term, variable, matrix) for term in expression.args]
        return sum(terms[1:], start=terms[0])
    if isinstance(expression, sympy.Mul):
        number, rest = expression.as_independent(variable, as_Add=False)
        factors = [_of_matrix(part, variable, matrix) for part in sympy.Mul.make_args(rest)]
        product = multi_dot(factors) if len(factors) > 1 else factors[0]
        return product if number == 1 else multiply(asarray(number), product)
    if isinstance(expression, sympy.Pow) and not expression.exp.has(variable):
        base = _of_matrix(expression.base, variable, matrix)
        return fractional_matrix_power(base, expression.exp)
    if type(expression) in ELEMENTARY:
        return ELEMENTARY[type(expression)](_of_matrix(expression.args[0], variable, matrix))
    return _of_matrix(_rewritten(expression), variable, matrix)


def _rewritten(expression: sympy.Expr) -> sympy.Expr:
    """The expression by functions that there are, as SymPy knows it."""
    for other in (sympy.exp, sympy.log):
        new = expression.rewrite(other)
        if not new.has(expression.func, sympy.I):
            return new
    raise UnsupportedError(
        f"funm: there is no {expression.func.__name__} of a matrix; "
        f"known are {', '.join(sorted(known.__name__ for known in ELEMENTARY))} and powers"
    )
