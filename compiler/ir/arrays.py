"""Symbolic arrays with NumPy's conventions: `@` is matmul, `*` is elementwise, indices start at 0.

An `Array` wraps a node of the intermediate representation. Its operators build nodes and check
shapes; nothing is folded here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.ir import broadcasting, dimensions, indexing, literals, scalar_functions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.broadcasting import Axis
from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text
from derivatrix.compiler.ir.hooks import hooks
from derivatrix.compiler.ir.messages import broadcast, disagreement, operand_text, require_square
from derivatrix.compiler.ir.methods import Methods
from derivatrix.compiler.ir.pickled import pickled
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError


def _operator(
    function: Callable[[Array, Array], Array],
) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return the methods `__op__` and `__rop__` of a binary operator `function`; both return
    NotImplemented for operands that are not of OPERANDS."""

    def method(self: Array, operand: object) -> Array:
        if not isinstance(operand, OPERANDS):
            return NotImplemented
        return function(self, asarray(operand))

    def reflected(self: Array, operand: object) -> Array:
        if not isinstance(operand, OPERANDS):
            return NotImplemented
        return function(asarray(operand), self)

    return method, reflected


def _comparison(sign: str, relation: Any) -> Callable[..., Array]:
    """Return the method of a comparison: an array of 1 where the relation holds, else 0."""

    def method(self: Array, operand: object) -> Array:
        if not isinstance(operand, OPERANDS):
            return NotImplemented
        condition = relation(ir.slot(0), ir.slot(1))
        return elementwise(_indicator(condition), self, asarray(operand), form=f"{{}} {sign} {{}}")

    return method


class Array(Methods):
    """A symbolic array. `shape`: a tuple of dimensions (SymPy integers or polynomials)."""

    __slots__ = ("node",)
    __array_priority__ = 1000.0
    _op_priority = 10.5  # above SymPy's scalars, so that n * x is an array; below its matrices

    def __init__(self, node: ir.Node) -> None:
        self.node = node

    @property
    def shape(self) -> Shape:
        """The dimensions, integers as Python ints."""
        return tuple(int(size) if size.is_Integer else size for size in self.node.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.node.ndim

    @property
    def size(self) -> Dimension:
        """The number of entries."""
        return dimensions.dimension(sympy.prod(self.node.shape))

    @property
    def name(self) -> str:
        """The name of an input; other arrays have none."""
        if not isinstance(self.node, ir.Leaf):
            raise DeclarationError("only an input has a name; this is an expression")
        return self.node.name

    @property
    def T(self) -> Array:
        """All axes reversed."""
        return transpose(self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f".mT needs at least 2 axes, not shape {shape_text(self.shape)}")
        return transpose(self, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    def __repr__(self) -> str:
        return f"Array({hooks.formula(self.node)}, shape={shape_text(self.shape)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(Array, (self.node,), [self.node])

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {hooks.latex(self.node)}$"

    def __len__(self) -> int:
        if not self.ndim:
            raise UnsupportedError(f"{operand_text(self.node)} is a scalar: it has no length")
        if not self.node.shape[0].is_Integer:
            raise UnsupportedError(
                f"{operand_text(self.node)} of shape {shape_text(self.shape)} has no literal "
                "length to loop over or to unpack; compute with the whole array (sums over an "
                "axis, broadcasting, derivatrix.einsum), or declare the axis with a number"
            )
        return int(self.node.shape[0])

    def __bool__(self) -> bool:
        raise UnsupportedError(
            "a symbolic array has no truth value; use where(condition, x, y), and & | ~ for and, "
            "or, not"
        )

    def __float__(self) -> float:
        raise UnsupportedError(
            "a symbolic array is not a number; use derivatrix's or NumPy's array functions on it"
        )

    __int__ = __complex__ = __float__

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise hooks.refuse_conversion()

    def __iter__(self) -> Any:
        return (self[position] for position in range(len(self)))

    __add__, __radd__ = _operator(lambda x, y: add(x, y))
    __sub__, __rsub__ = _operator(lambda x, y: subtract(x, y))
    __mul__, __rmul__ = _operator(lambda x, y: multiply(x, y))
    __truediv__, __rtruediv__ = _operator(lambda x, y: divide(x, y))
    __matmul__, __rmatmul__ = _operator(lambda x, y: matmul(x, y))
    __floordiv__, __rfloordiv__ = _operator(lambda x, y: floor_divide(x, y))
    __mod__, __rmod__ = _operator(lambda x, y: remainder(x, y))
    __pow__, __rpow__ = _operator(lambda x, y: power(x, y))
    __and__, __rand__ = _operator(lambda x, y: logical_and(x, y))
    __or__, __ror__ = _operator(lambda x, y: logical_or(x, y))
    __lt__ = _comparison("<", sympy.Lt)
    __le__ = _comparison("<=", sympy.Le)
    __gt__ = _comparison(">", sympy.Gt)
    __ge__ = _comparison(">=", sympy.Ge)
    __eq__ = _comparison("==", sympy.Eq)  # type: ignore[assignment]
    __ne__ = _comparison("!=", sympy.Ne)  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __divmod__(self, divisor: object) -> tuple[Array, Array]:
        return self // divisor, self % divisor

    def __rdivmod__(self, dividend: object) -> tuple[Array, Array]:
        return dividend // self, dividend % self

    def __neg__(self) -> Array:
        return scale(self, sympy.S.NegativeOne)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return elementwise(sympy.Abs(ir.slot(0)), self)

    def __invert__(self) -> Array:
        return logical_not(self)

    def __getitem__(self, index: object) -> Array:
        if isinstance(index, Array):
            return hooks.call_function(np.take, (self, index), {"axis": 0})
        try:
            return Array(indexing.take(self.node, index))
        except ShapeError as error:
            text = f"{operand_text(self.node)} of shape {shape_text(self.shape)}"
            raise ShapeError(f"{text}: {error}") from error

    def __setitem__(self, index: object, value: object) -> None:
        raise UnsupportedError(
            "a symbolic array cannot be changed; build a new one with where, stack or concatenate"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Array:
        return hooks.call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        return hooks.call_function(function, arguments, options)

    def _sympy_(self) -> sympy.Basic:
        return hooks.embed(self)


def asarray(value: object) -> Array:
    """Convert `value` to a symbolic array: an `Array`, a number, a NumPy array, nested lists of
    numbers and arrays, a dimension, or a SymPy scalar or matrix expression. Raises UnsupportedError
    for anything else, DeclarationError for numbers that are not finite, ShapeError for ragged
    lists."""
    if isinstance(value, Array):
        return value
    if isinstance(value, literals.NUMBERS):
        return Array(ir.full(literals.real_number(value)))
    if isinstance(value, (sympy.Basic, sympy.MatrixBase)):
        return Array(hooks.lower(value))
    if isinstance(value, (np.ndarray, list, tuple)):
        return _literal_array(value)
    if isinstance(value, literals.COMPLEX):
        raise literals.refuse_complex(value)
    raise UnsupportedError(
        f"{shown(value)} of type {type(value).__name__} is not an array expression; expected "
        "a derivatrix array, a number, a NumPy array or a SymPy expression"
    )


def _literal_array(value: Any) -> Array:
    literals.require_plain(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    if _holds_symbols(value):
        return stack([asarray(part) for part in value])
    array = literals.real_array(value)
    return Array(ir.Constant(array) if array.ndim else ir.full(literals.real_number(array.item())))


def _holds_symbols(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_symbols(part) for part in value)
    return isinstance(value, (Array, sympy.Basic, sympy.MatrixBase))


OPERANDS = (
    Array,
    *literals.NUMBERS,
    *literals.COMPLEX,
    np.ndarray,
    list,
    tuple,
    sympy.Basic,
    sympy.MatrixBase,
)
"""The types of operands that operators convert to arrays, or refuse with an error of their own."""


def broadcast_to(array: Array, shape: Shape) -> Array:
    """Broadcast `array` to `shape`. Raises ShapeError where NumPy would."""
    shape = tuple(dimensions.dimension(size) for size in shape)
    if array.node.shape == shape:
        return array
    if (
        broadcasting.broadcast_clash([array.node.shape, shape])
        or broadcasting.broadcast_shapes(array.node.shape, shape) != shape
    ):
        form = f"broadcast_to({{}}, {shape_text(shape)})"
        raise disagreement(form, [array.node], "its axes do not stretch to that")
    labels = broadcasting.axis_labels(array.node.shape, shape)
    sizes = dict(enumerate(shape))
    return Array(ir.einsum([(array.node, labels)], range(len(shape)), sizes=sizes))


def at_least(array: Array, rank: int) -> Array:
    """Prepend axes of length 1 to `array` up to `rank` axes."""
    return array[(None,) * max(0, rank - array.ndim)]


def add(x: Array, y: Array) -> Array:
    """x + y."""
    shape = broadcast("{} + {}", x.node, y.node)
    terms = (broadcast_to(x, shape).node, broadcast_to(y, shape).node)
    return Array(ir.Sum(terms, shape))


def subtract(x: Array, y: Array) -> Array:
    """x - y."""
    broadcast("{} - {}", x.node, y.node)
    return add(x, -y)


def scale(array: Array, coefficient: sympy.Expr) -> Array:
    """Multiply `array` by a number or a polynomial in dimensions."""
    labels = range(array.ndim)
    return Array(ir.einsum([(array.node, labels)], labels, coefficient))


def multiply(x: Array, y: Array) -> Array:
    """x * y, entry by entry."""
    shape = broadcast("{} * {}", x.node, y.node)
    factors = []
    coefficient = sympy.S.One
    for operand in (x, y):
        number = ir.literal(operand.node)
        if number is None:
            factors.append((operand.node, broadcasting.axis_labels(operand.node.shape, shape)))
        else:
            coefficient *= number
    return Array(ir.einsum(factors, range(len(shape)), coefficient, dict(enumerate(shape))))


def divide(x: Array, y: Array) -> Array:
    """x / y, entry by entry."""
    shape = broadcast("{} / {}", x.node, y.node)
    number = ir.literal(y.node)
    if number is None:
        return multiply(x, power(y, asarray(-1)))
    if number == 0:
        raise DeclarationError("division by the constant 0")
    return scale(broadcast_to(x, shape), 1 / number)


def floor_divide(x: Array, y: Array) -> Array:
    """floor(x / y), entry by entry."""
    broadcast("{} // {}", x.node, y.node)
    divide(x, y)  # raises DeclarationError for zeros in a constant
    # the quotient is a part of the function: x * (1 / y) rounds 49 // 49 to 0
    return elementwise(sympy.floor(ir.slot(0) / ir.slot(1)), x, y)


def remainder(x: Array, y: Array) -> Array:
    """x - y * floor(x / y), entry by entry: it has the sign of `y`."""
    return subtract(x, multiply(y, floor_divide(x, y)))


def power(base: Array, exponent: Array) -> Array:
    """base ** exponent, entry by entry. Raises DeclarationError for a constant base with entries
    that are not positive and an exponent that is not constant: the power would be nan."""
    shape = broadcast("{} ** {}", base.node, exponent.node)
    number = ir.literal(exponent.node)
    if number is None:
        _require_positive(base, exponent)
        return elementwise(ir.slot(0) ** ir.slot(1), base, exponent)
    if number == 1:
        return broadcast_to(base, shape)
    if number in (2, 3):  # products: rules for products see the factors
        base = broadcast_to(base, shape)
        labels = tuple(range(base.ndim))
        return Array(ir.einsum([(base.node, labels)] * int(number), labels))
    return elementwise(ir.slot(0) ** ir.slot(1), base, exponent)


def _require_positive(base: Array, exponent: Array) -> None:
    if isinstance(base.node, ir.Constant):
        varies = not isinstance(exponent.node, ir.Constant)
        is_refused = varies and bool((base.node.array <= 0).any())
    else:
        number = ir.literal(base.node)
        is_refused = number is not None and bool(number.is_nonpositive)
    if is_refused:
        raise DeclarationError(
            f"{operand_text(base.node)} ** {operand_text(exponent.node)}: a constant base that is "
            "not positive has no real power with an exponent that varies"
        )


def matmul(a: Array, b: Array) -> Array:
    """a @ b, with NumPy's rules for vectors and stacks. Raises ShapeError."""
    form = "{} @ {}"
    if not a.ndim or not b.ndim:
        raise disagreement(form, [a.node, b.node], "multiply by scalars with *")
    inner = a.node.shape[-1], b.node.shape[max(b.ndim - 2, 0)]
    if inner[0] != inner[1]:
        problem = f"expected {inner[0]} = {inner[1]}"
        raise disagreement(form, [a.node, b.node], problem)
    clash = broadcasting.broadcast_clash([a.node.shape[:-2], b.node.shape[:-2]])
    if clash:
        problem = f"the leading axes do not broadcast: {clash}"
        raise disagreement(form, [a.node, b.node], problem)
    stack = broadcasting.broadcast_shapes(a.node.shape[:-2], b.node.shape[:-2])
    row, column, middle = "row", "column", "middle"
    a_core = (row, middle)[-min(a.ndim, 2) :]
    b_core = (middle, column)[: min(b.ndim, 2)]
    a_labels = broadcasting.axis_labels(a.node.shape[:-2], stack) + a_core
    b_labels = broadcasting.axis_labels(b.node.shape[:-2], stack) + b_core
    output = (*range(len(stack)), *a_core[:-1], *b_core[1:])
    sizes = dict(enumerate(stack))
    return Array(ir.einsum([(a.node, a_labels), (b.node, b_labels)], output, sizes=sizes))


def transpose(array: Array, axes: Sequence[int]) -> Array:
    """Permute the axes of `array`."""
    order = [broadcasting.normalise_axis(axis, array.ndim) for axis in axes]
    if sorted(order) != list(range(array.ndim)):
        problem = f"axes {tuple(axes)} are not a permutation of {array.ndim} axes"
        raise disagreement("transpose({})", [array.node], problem)
    if order == list(range(array.ndim)):
        return array
    return Array(ir.einsum([(array.node, range(array.ndim))], order))


def trace(array: Array) -> Array:
    """Sum the diagonals of the last two axes."""
    require_square("trace", array.node)
    stacked = range(array.ndim - 2)
    return Array(ir.einsum([(array.node, (*stacked, "d", "d"))], stacked))


def sum_over(array: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Sum over `axis`, one or several; by default over all axes."""
    summed = broadcasting.normalise_axes(axis, array.ndim)
    labels = range(array.ndim)
    output = [("kept", i) if i in summed else i for i in labels if keepdims or i not in summed]
    sizes = {("kept", i): sympy.S.One for i in summed} if keepdims else {}
    return Array(ir.einsum([(array.node, labels)], output, sizes=sizes))


def elementwise(expression: sympy.Expr, *arguments: Array, form: str = "") -> Array:
    """Apply `expression` of slot(0), slot(1), ... to the broadcast arguments. Numbers become part
    of the expression, and equal arguments share a slot. `form` is the call in error messages, with
    a {} for each argument."""
    operands = [argument.node for argument in arguments]
    shape = broadcast(form or ", ".join(["{}"] * len(operands)), *operands)
    arithmetic = _arithmetic_of_sizes(expression, operands)
    if arithmetic is not None:
        return Array(ir.full(arithmetic, shape))
    nodes: list[ir.Node] = []
    replacements: dict[sympy.Expr, sympy.Expr] = {}
    for position, argument in enumerate(arguments):
        number = ir.literal(argument.node)
        if number is not None and not number.free_symbols:
            replacements[ir.slot(position)] = number
            continue
        node = broadcast_to(argument, shape).node
        if node not in nodes:
            nodes.append(node)
        replacements[ir.slot(position)] = ir.slot(nodes.index(node))
    expression = expression.subs(replacements, simultaneous=True)
    if not nodes or not expression.free_symbols:
        try:
            number = expression.evalf() if expression.is_number else expression
        except ValueError as error:  # of mpmath, outside of a function's domain
            raise DeclarationError(f"a constant part is {expression}: {error}") from error
        if not number.is_finite or not number.is_real:
            raise DeclarationError(f"a constant part is {expression}, no finite real number")
        return Array(ir.full(expression, shape))
    _require_finite(expression, nodes)
    return _select_slots(expression, nodes)


def _arithmetic_of_sizes(expression: sympy.Expr, operands: Sequence[ir.Node]) -> sympy.Expr | None:
    """Return `expression` as arithmetic of sizes and their roots; None where an operand is no such
    number, or the result may not be real."""
    literals = [ir.literal(operand) for operand in operands]
    sizes_by_slot = {ir.slot(i): number for i, number in enumerate(literals) if number is not None}
    if len(sizes_by_slot) < len(literals) or not all(
        number.is_positive for number in sizes_by_slot.values()
    ):
        return None
    result = expression.subs(sizes_by_slot, simultaneous=True)
    symbols = result.free_symbols
    return result if symbols and result.is_algebraic_expr(*symbols) and result.is_real else None


def _require_finite(expression: sympy.Expr, nodes: Sequence[ir.Node]) -> None:
    values = [node.array for node in nodes if isinstance(node, ir.Constant)]
    if len(values) == len(nodes):
        with np.errstate(all="ignore"):
            finite = np.isfinite(scalar_functions.evaluate(expression, values))
        if not finite.all():
            text = operand_text(_select_slots(expression, list(nodes)).node, "a constant part")
            raise DeclarationError(f"{text} has entries that are not finite")


def _select_slots(expression: sympy.Expr, nodes: list[ir.Node]) -> Array:
    expression, arguments = ir.used_slots(expression, nodes)
    return Array(arguments[0]) if expression == ir.slot(0) else Array(ir.Map(expression, arguments))


def _indicator(condition: Boolean) -> sympy.Expr:
    """1 where the condition holds, else 0."""
    return sympy.Piecewise((1, condition), (0, True))


def _condition(array: Array) -> tuple[Boolean, list[Array]] | None:
    """Return the condition of which `array` is the indicator, on slots, and the arrays of these
    slots; None where `array` is no indicator."""
    node = array.node
    if isinstance(node, ir.Map) and _is_indicator(node):
        return node.expression.args[0].args[1], [Array(argument) for argument in node.arguments]
    number = ir.literal(node)
    if number in (0, 1):
        return sympy.sympify(bool(number)), []
    return (sympy.Ne(ir.slot(0), 0), [array]) if _is_indicator(node) else None


def is_condition(array: Array) -> bool:
    """Return whether an array is the indicator of a condition on data, or a product of some."""
    return not isinstance(array.node, ir.Constant) and _is_indicator(array.node)


def _is_indicator(node: ir.Node) -> bool:
    """Return whether the entries are 0 or 1 by construction: conditions, indexed and multiplied."""
    if isinstance(node, ir.Constant):
        return bool(np.isin(node.array, (0, 1)).all())
    if isinstance(node, ir.Map) and isinstance(node.expression, sympy.Piecewise):
        return bool(node.expression == _indicator(node.expression.args[0].args[1]))
    if isinstance(node, ir.Einsum):
        selecting = [f for f in node.factors if isinstance(f[0], (ir.Slice, ir.Delta))]
        # summed over any other label, entries would add up to more than 1
        adds_nothing_up = set(node.contracted) <= set(ir.labels_of(selecting))
        is_product = node.coefficient == 1 and adds_nothing_up
        return is_product and all(_is_indicator(factor) for factor, _ in node.factors)
    return isinstance(node, ir.Structural)


def _logical(operator: Any, form: str, *arrays: Array) -> Array:
    """Combine indicators by And, Or or Not of their conditions."""
    operands: list[Array] = []
    conditions = []
    for array in arrays:
        indicated = _condition(array)
        if indicated is None:
            text = form.format(*(operand_text(operand.node) for operand in arrays))
            raise UnsupportedError(
                f"{text}: {operand_text(array.node)} is not a condition; combine comparisons, as "
                "in (x > 0) & (x < 1)"
            )
        condition, arguments = indicated
        start = len(operands)
        renames = {ir.slot(i): ir.slot(start + i) for i in range(len(arguments))}
        conditions.append(condition.xreplace(renames))
        operands += arguments
    shape = broadcast(form, *(array.node for array in arrays))
    return broadcast_to(elementwise(_indicator(operator(*conditions)), *operands), shape)


def logical_and(x: Array, y: Array) -> Array:
    """Return the indicator of both conditions."""
    return _logical(sympy.And, "{} & {}", x, y)


def logical_or(x: Array, y: Array) -> Array:
    """Return the indicator of either condition."""
    return _logical(sympy.Or, "{} | {}", x, y)


def logical_not(array: Array) -> Array:
    """Return the indicator of the condition's negation."""
    return _logical(sympy.Not, "~{}", array)


def where(condition: object, x: object, y: object) -> Array:
    """Choose `x` where the condition holds (is not 0), else `y`, entry by entry."""
    mask, x, y = asarray(condition), asarray(x), asarray(y)
    shape = broadcast("where({}, {}, {})", mask.node, x.node, y.node)
    relation, operands = _condition(mask) or (sympy.Ne(ir.slot(0), 0), [mask])
    count = len(operands)
    expression = sympy.Piecewise((ir.slot(count), relation), (ir.slot(count + 1), True))
    return broadcast_to(elementwise(expression, *operands, x, y), shape)


def stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays of one shape along a new leading axis."""
    if not arrays:
        raise ShapeError("stack: expected at least one array")
    shape = arrays[0].node.shape
    for array in arrays:
        if array.node.shape != shape:
            parts = [arrays[0].node, array.node]
            raise disagreement("stacking {} and {}", parts, "expected equal shapes")
    count = sympy.Integer(len(arrays))
    terms = []
    for position, array in enumerate(arrays):
        place = ir.Slice(sympy.S.One, count, sympy.Integer(position), 1)
        factors = [(array.node, range(len(shape))), (place, ("one", "stack"))]
        terms.append(ir.einsum(factors, ("stack", *range(len(shape)))))
    return Array(ir.Sum(tuple(terms), (count, *shape)))


def apply(operation: Any, *arguments: Array, parameters: tuple = (), output: int = 0) -> Array:
    """Apply an operation to trailing axes; the leading ones broadcast. Raises ShapeError."""
    operands = [argument.node for argument in arguments]
    form = f"{operation.name}({', '.join(['{}'] * len(operands))})"
    stacks = []
    for node, rank in zip(operands, operation.ranks, strict=True):
        if node.ndim < rank:
            raise disagreement(form, operands, f"expected at least {rank} axes, not {node.ndim}")
        stacks.append(node.shape[: node.ndim - rank])
    if clash := broadcasting.broadcast_clash(stacks):
        raise disagreement(form, operands, f"the leading axes do not broadcast: {clash}")
    stacked = broadcasting.broadcast_shapes(*stacks)
    labelled = []
    for argument, axes in zip(arguments, stacks, strict=True):
        node = argument.node
        missing = len(stacked) - len(axes)
        if any(a == 1 and b != 1 for a, b in zip(axes, stacked[missing:], strict=True)):
            node = broadcast_to(argument, stacked + node.shape[len(axes) :]).node
            missing = 0
        labelled.append((node, tuple(range(missing, len(stacked)))))
    try:
        return Array(ir.Apply(operation, tuple(labelled), stacked, parameters, output))
    except ShapeError as error:
        raise disagreement(form, operands, str(error)) from error
