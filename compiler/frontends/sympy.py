"""Lowering of SymPy's matrix and scalar expressions to nodes.

Axes of literal length 1 are dropped: a column `MatrixSymbol("x", n, 1)` has rank 1 and a 1x1
product rank 0. Symbols become inputs of their names; `function` decides, when the inputs are
declared, which of them are dimensions, and which structures they have. SymPy accepts wrong symbolic
shapes; lowering checks them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import sympy
from sympy.matrices import expressions as matrices
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix, DiagonalMatrix, DiagonalOf
from sympy.matrices.expressions.factorizations import (
    LofCholesky,
    LofLU,
    QofQR,
    RofQR,
    SofSVD,
    UofCholesky,
    UofLU,
    UofSVD,
    VofSVD,
)
from sympy.matrices.expressions.kronecker import KroneckerProduct
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.matrices.expressions.slice import MatrixSlice

from derivatrix.compiler.frontends import arrays as functions
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.ir import arrays, dimensions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text
from derivatrix.compiler.ir.identifiers import require_identifier
from derivatrix.compiler.ir.literals import MAX_FLOAT, refuse_complex
from derivatrix.compiler.ir.nodes import Node
from derivatrix.compiler.ir.scalar_functions import FUNCTIONS
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.lu import LU
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError

_embedded: dict[str, Array] = {}
"""Name of a symbol made by `embed` -> the array that it stands for."""


def embed(array: Array) -> sympy.Basic:
    """Make a SymPy symbol that stands for `array` (rank 2 at most) in SymPy expressions."""
    if array.ndim > 2:
        raise sympy.SympifyError(f"an array of shape {shape_text(array.shape)} is no matrix")
    is_leaf = isinstance(array.node, ir.Leaf)
    name = array.name if is_leaf else f"array_{array.node.key}"
    if not is_leaf:  # SymPy knows a symbol by its name, by which `lower` finds the array again
        _embedded[name] = array
    if array.ndim == 0:
        return sympy.Symbol(name, real=True)
    return sympy.MatrixSymbol(name, *(*array.node.shape, sympy.S.One)[:2])


def lower(expression: sympy.Basic | sympy.MatrixBase) -> Node:
    """Lower a SymPy expression to a node. Raises ShapeError or UnsupportedError."""
    try:
        return _lower(sympy.sympify(expression)).node
    except RecursionError as error:
        raise UnsupportedError(
            "functions stand too deep inside each other in an expression of SymPy's"
        ) from error


def _lower(expression: Any) -> Array:
    if isinstance(expression, sympy.MatrixBase):
        return _dense(expression)
    for kind, rule in RULES.items():
        if isinstance(expression, kind):
            return rule(expression)
    if isinstance(expression, sympy.Expr) and expression.is_Matrix:
        if all(size.is_Integer for size in _shape(expression)) and not expression.free_symbols:
            return _dense(expression.as_explicit())
        raise UnsupportedError(f"SymPy's {type(expression).__name__} has no rule here")
    if isinstance(expression, sympy.core.relational.Relational | sympy.logic.boolalg.Boolean):
        return _scalar_function(sympy.Piecewise((1, expression), (0, True)))
    if isinstance(expression, sympy.Function | sympy.Piecewise | sympy.Max | sympy.Min):
        return _scalar_function(expression)
    raise UnsupportedError(f"SymPy's {type(expression).__name__} has no rule here")


def _shape(expression: Any) -> tuple[Dimension, Dimension]:
    rows, columns = (dimensions.dimension(size) for size in expression.shape)
    return rows, columns


def _shape_without_ones(expression: Any) -> Shape:
    return tuple(size for size in _shape(expression) if size != 1)


def _labels(expression: Any, row: Any, column: Any) -> tuple[Any, ...]:
    """Labels of a lowered matrix: none for an axis of literal length 1."""
    pairs = zip((row, column), _shape(expression), strict=True)
    return tuple(label for label, size in pairs if size != 1)


def _symbol(symbol: sympy.Symbol) -> Array:
    if symbol.name in _embedded:
        return _embedded[symbol.name]
    require_identifier(symbol.name, "a symbol")
    if symbol == dimensions.symbol(symbol.name):
        return Array(ir.full(symbol))
    if symbol.is_extended_real is False:
        raise UnsupportedError(f"the symbol {symbol} is not real; every array here is real")
    domains = {"positive": symbol.is_positive, "nonneg": symbol.is_nonnegative, "general": True}
    structure = next(name for name, holds in domains.items() if holds)
    return Array(ir.Leaf(symbol.name, (), structure, role="symbol"))


def _matrix_symbol(symbol: sympy.MatrixSymbol) -> Array:
    if symbol.name in _embedded:
        return _embedded[symbol.name]
    require_identifier(symbol.name, "a symbol")
    return Array(ir.Leaf(symbol.name, _shape_without_ones(symbol), role="symbol"))


def _number(number: sympy.Expr) -> Array:
    too_large = number.is_real and not -MAX_FLOAT <= number <= MAX_FLOAT
    if number.is_finite is not True or too_large:
        raise DeclarationError(
            f"the constant {shown(number)} is no finite number of float64; expressions hold finite "
            "constants only"
        )
    if not number.is_real:
        raise refuse_complex(number)
    return Array(ir.full(number))


def _entrywise(problem: str, function: Callable[[Any, Any], Any], expression: Any) -> Array:
    """Combine matrices of one shape entry by entry. Raises ShapeError, which begins with
    `problem`."""
    parts = [_lower(part) for part in expression.args]
    shapes = {part.node.shape for part in parts}
    if len(shapes) > 1:
        texts = " and ".join(sorted(shape_text(shape) for shape in shapes))
        raise ShapeError(f"{problem} of shapes {texts} in {expression}")
    return reduce(function, parts)


def _multiply(expression: sympy.Mul) -> Array:
    product = Array(ir.full(1))
    for argument in expression.args:
        product = product * _lower(argument)
    return product


def _power(expression: sympy.Pow | matrices.MatPow) -> Array:
    base, exponent = expression.args
    if not base.is_Matrix or _shape(base) == (1, 1):
        return _lower(base) ** _lower(exponent)
    if not exponent.is_Integer:
        raise UnsupportedError(f"a matrix to the power {exponent} has no rule here")
    return functions.matrix_power(_as_matrix(base), int(exponent))


def _as_matrix(expression: Any) -> Array:
    """Lower a matrix to an array with both axes, also those of length 1."""
    lowered = _lower(expression)
    index = tuple(None if size == 1 else slice(None) for size in _shape(expression))
    return lowered[index] if None in index else lowered


def _squeezed(array: Array) -> Array:
    """Drop the axes of literal length 1."""
    return array[tuple(0 if size == 1 else slice(None) for size in array.node.shape)]


def _matrix_multiply(expression: sympy.MatMul) -> Array:
    factors, coefficient = [], Array(ir.full(1))
    chain = [part for part in expression.args if part.is_Matrix]
    for part in expression.args:
        if not part.is_Matrix:
            coefficient = coefficient * _lower(part)
    for position, part in enumerate(chain):
        if position and _shape(chain[position - 1])[1] != _shape(part)[0]:
            before, after = _shape(chain[position - 1]), _shape(part)
            raise ShapeError(
                f"cannot multiply shapes {shape_text(before)} and {shape_text(after)} "
                f"in {expression}"
            )
        labels = _labels(part, position, position + 1)
        factors.append((_lower(part).node, labels))
    outer = ((0, _shape(chain[0])[0]), (len(chain), _shape(chain[-1])[1]))
    output = [label for label, size in outer if size != 1]
    return coefficient * Array(ir.einsum(factors, output))


def _inverse(expression: sympy.Inverse) -> Array:
    if _shape(expression) == (1, 1):
        return _lower(expression.args[0]) ** -1
    return functions.inv(_as_matrix(expression.args[0]))


def _apply_function(expression: ElementwiseApplyFunction) -> Array:
    function = expression.function
    variable = function.variables[0]
    body = function.expr
    return _scalar_expression(body, {variable: _lower(expression.expr)})


def _scalar_function(expression: sympy.Expr) -> Array:
    """Lower a scalar function whose arguments are arbitrary scalar expressions."""
    atoms: dict[sympy.Basic, Array] = {}
    for kinds, target in REWRITTEN.items():
        expression = expression.rewrite(list(kinds), target)

    def abstract(part: sympy.Basic) -> sympy.Basic:
        if part.is_Number or part.is_NumberSymbol:
            return part
        placeholder = sympy.Symbol(f"part_{len(atoms)}", real=True)
        atoms[placeholder] = _scalar(part)
        return placeholder

    return _scalar_expression(_map_arguments(expression, abstract), atoms)


REWRITTEN = {
    (sympy.factorial, sympy.binomial): sympy.gamma,
    (sympy.Mod, sympy.frac): sympy.floor,
    (sympy.acot,): sympy.atan,
}
"""SymPy's functions without a kernel -> the function that replaces them."""


def _map_arguments(
    expression: sympy.Basic, change: Callable[[sympy.Basic], sympy.Basic]
) -> sympy.Basic:
    """Apply `change` to the scalar arguments of the functions and conditions in an expression."""
    logical = (
        sympy.logic.boolalg.BooleanFunction | sympy.functions.elementary.piecewise.ExprCondPair
    )
    relational = sympy.core.relational.Relational
    if isinstance(expression, sympy.Piecewise | logical):
        parts = (_map_arguments(part, change) for part in expression.args)
        return expression.func(*parts)
    if isinstance(expression, relational | sympy.Function | sympy.Max | sympy.Min):
        return expression.func(*(change(part) for part in expression.args))
    if isinstance(expression, sympy.logic.boolalg.BooleanAtom):
        return expression
    return change(expression)


def _scalar(expression: Any) -> Array:
    lowered = _lower(expression)
    if lowered.ndim:
        raise UnsupportedError(
            f"a scalar function of a matrix of shape {shape_text(lowered.shape)}; "
            "use applyfunc for entry by entry, or derivatrix's function of a matrix"
        )
    return lowered


def _scalar_expression(body: sympy.Basic, values: dict[sympy.Basic, Array]) -> Array:
    """Lower a scalar expression with arrays for some symbols; the other symbols are inputs."""
    operands = dict(values)
    for symbol in sorted(body.free_symbols - set(operands), key=str):
        operands[symbol] = _lower(symbol)
    symbols = list(operands)
    slotted = body.xreplace({symbol: ir.slot(i) for i, symbol in enumerate(symbols)})
    slotted = slotted.replace(sympy.loggamma, FUNCTIONS["loggamma"])  # complex for x < 0
    return elementwise(slotted.doit(), *(operands[symbol] for symbol in symbols))


def _diagonal_part(matrix: Any) -> Array:
    """Set all entries of a matrix to zero but those of the diagonal."""
    full = _as_matrix(matrix)
    if full.shape[0] == full.shape[1]:
        return _squeezed(functions.diag(functions.diagonal(full)))
    return _squeezed(functions.tril(functions.triu(full)))


def _identity(expression: sympy.Identity) -> Array:
    size = _shape(expression)[0]
    return functions.eye(size) if size != 1 else Array(ir.full(1))


def _slice(expression: MatrixSlice) -> Array:
    parent = expression.parent
    parts = [
        slice(start, stop, int(step)) if size != 1 else slice(None)
        for (start, stop, step), size in zip(
            (expression.rowslice, expression.colslice), _shape(parent), strict=True
        )
    ]
    return _squeezed(_as_matrix(parent)[tuple(parts)])


def _element(expression: MatrixElement) -> Array:
    parent, row, column = expression.args
    return _as_matrix(parent)[row, column]


def _sum(expression: sympy.Sum) -> Array:
    """Lower a sum over indices of matrices, which is SymPy's form of an entry of a product."""
    limits = {
        index: (lower_bound, upper_bound) for index, lower_bound, upper_bound in expression.limits
    }
    sizes = {
        index: dimensions.dimension(upper_bound - lower_bound + 1, "sum")
        for index, (lower_bound, upper_bound) in limits.items()
    }
    values: dict[sympy.Basic, Array] = {}
    for element in sorted(expression.function.atoms(MatrixElement), key=str):
        if element.free_symbols & set(sizes):
            values[element] = _indexed(element, limits, sizes)
    names = {element: sympy.Symbol(f"entry_{i}", real=True) for i, element in enumerate(values)}
    body = expression.function.xreplace(names)
    if body.free_symbols & set(sizes):
        raise UnsupportedError(f"the sum {expression} uses its index outside of entries")
    operands = {names[element]: value for element, value in values.items()}
    terms = _scalar_expression(body, operands)
    # a body without entries is added up as often as the indices say
    return arrays.broadcast_to(terms, tuple(sizes.values())).sum()


def _indexed(
    element: MatrixElement, limits: Mapping[Any, tuple[Any, Any]], sizes: Mapping[Any, Dimension]
) -> Array:
    """Lower an entry such as X[i, j + 1] for all values of the indices, with an axis for each
    index."""
    parent, *places = element.args
    array = _as_matrix(parent)
    labels: list[Any] = []
    for axis, place in enumerate(places):
        index = next((index for index in sizes if place.has(index)), None)
        start, count = place, sympy.S.One
        if index is not None:
            start, count = sympy.expand(place - index) + limits[index][0], sizes[index]
        if start.free_symbols & set(sizes):
            raise UnsupportedError(f"the index {place} of {parent} is no index plus a number")
        stop = sympy.expand(start + count)
        if (array.node.shape[axis] - stop).is_negative:
            raise ShapeError(f"the index {place} leaves axis {axis} of {parent}")
        bounds: list[Any] = [slice(None), slice(None)]
        bounds[axis] = slice(start, stop)
        array = array[tuple(bounds)]
        labels.append(("fixed", axis) if index is None else index)
    return Array(ir.einsum([(array.node, labels)], list(sizes), sizes=sizes))


def _block(expression: Any) -> Array:
    grid = expression.blocks
    rows = [[_as_matrix(grid[i, j]) for j in range(grid.shape[1])] for i in range(grid.shape[0])]
    return _squeezed(functions.block(rows))


def _dense(expression: sympy.MatrixBase) -> Array:
    rows, columns = expression.shape
    # of numbers, too: lowering refuses complex and infinite ones
    entries = [[_lower(expression[i, j]) for j in range(columns)] for i in range(rows)]
    if all(entry.free_symbols == set() for entry in expression):
        values = [[float(expression[i, j]) for j in range(columns)] for i in range(rows)]
        result = Array(ir.Constant(values))
    else:
        result = arrays.stack([arrays.stack(row) for row in entries])
    return _squeezed(result)


def _factor(factor: Callable[[Array], Array]) -> Callable[[Any], Array]:
    """Make the rule for a factor of a square matrix. For other matrices, SymPy states a wrong
    shape."""

    def rule(expression: Any) -> Array:
        if expression.shape[0] != expression.shape[1]:
            shape = shape_text(_shape(expression))
            raise ShapeError(f"{expression} is of a matrix of shape {shape}; expected a square one")
        return _squeezed(factor(_as_matrix(expression.args[0])))

    return rule


RULES: dict[type, Callable[[Any], Array]] = {
    matrices.MatrixSymbol: _matrix_symbol,
    sympy.Symbol: _symbol,
    MatrixElement: _element,
    sympy.Number: _number,
    sympy.NumberSymbol: _number,
    type(sympy.zoo): _number,
    type(sympy.I): _number,
    matrices.MatAdd: partial(_entrywise, "cannot add matrices", operator.add),
    matrices.MatMul: _matrix_multiply,
    matrices.Inverse: _inverse,
    matrices.MatPow: _power,
    matrices.Transpose: lambda expression: _lower(expression.arg).T,
    matrices.Adjoint: lambda expression: _lower(expression.arg).T,
    matrices.Trace: lambda expression: functions.trace(_as_matrix(expression.arg)),
    matrices.Determinant: lambda expression: functions.det(_as_matrix(expression.arg)),
    matrices.HadamardProduct: partial(_entrywise, "elementwise product", operator.mul),
    matrices.HadamardPower: lambda power: _lower(power.base) ** _lower(power.exp),
    ElementwiseApplyFunction: _apply_function,
    DiagMatrix: lambda expression: functions.diag(_lower(expression.args[0])),
    DiagonalMatrix: lambda expression: _diagonal_part(expression.args[0]),
    DiagonalOf: lambda expression: functions.diagonal(_as_matrix(expression.args[0])),
    matrices.Identity: _identity,
    matrices.ZeroMatrix: lambda zeros: Array(ir.zeros(_shape_without_ones(zeros))),
    matrices.OneMatrix: lambda ones: Array(ir.full(1, _shape_without_ones(ones))),
    MatrixSlice: _slice,
    matrices.BlockMatrix: _block,
    matrices.DotProduct: lambda product: reduce(operator.matmul, map(_lower, product.args)),
    KroneckerProduct: lambda product: _squeezed(
        reduce(functions.kron, map(_as_matrix, product.args))
    ),
    LofCholesky: _factor(functions.cholesky),
    UofCholesky: _factor(lambda matrix: functions.cholesky(matrix).mT),
    LofLU: _factor(lambda matrix: calling(LU)(matrix).L),
    UofLU: _factor(lambda matrix: calling(LU)(matrix).U),
    QofQR: _factor(lambda matrix: functions.qr(matrix)[0]),
    RofQR: _factor(lambda matrix: functions.qr(matrix)[1]),
    UofSVD: _factor(lambda matrix: functions.svd(matrix)[0]),
    SofSVD: _factor(lambda matrix: functions.diag(functions.svd(matrix)[1])),
    VofSVD: _factor(lambda matrix: functions.svd(matrix)[2].mT),
    sympy.NDimArray: lambda expression: arrays.asarray(expression.tolist()),
    sympy.Sum: _sum,
    sympy.Add: lambda total: reduce(operator.add, map(_lower, total.args)),
    sympy.Mul: _multiply,
    sympy.Pow: _power,
}
"""SymPy's class -> its lowering; the first class that an expression is an instance of counts."""
