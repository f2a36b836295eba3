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

from derivatrix.compiler.ir import dimensions, indexing, literals, scalar_functions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.broadcasting import (
    Axis,
    axis_labels,
    broadcast_clash,
    broadcast_shapes,
    normalise_axes,
    normalise_axis,
)
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
    """The methods of an operator, as `__add__` and `__radd__`: `function` of both operands. They
    are NotImplemented for another operand than OPERANDS."""

    def method(self: Array, other: object) -> Array:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return function(self, asarray(other))

    def exchanged(self: Array, other: object) -> Array:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return function(asarray(other), self)

    return method, exchanged


def _comparison(sign: str, relation: Any) -> Callable[..., Array]:
    """The method of a comparison: 1 where it holds, else 0."""

    def method(self: Array, other: object) -> Array:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        condition = relation(ir.slot(0), ir.slot(1))
        return elementwise(_indicator(condition), self, asarray(other), form=f"{{}} {sign} {{}}")

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
    __and__, __rand__ = _operator(lambda x, y: both(x, y))
    __or__, __ror__ = _operator(lambda x, y: either(x, y))
    __lt__ = _comparison("<", sympy.Lt)
    __le__ = _comparison("<=", sympy.Le)
    __gt__ = _comparison(">", sympy.Gt)
    __ge__ = _comparison(">=", sympy.Ge)
    __eq__ = _comparison("==", sympy.Eq)  # type: ignore[assignment]
    __ne__ = _comparison("!=", sympy.Ne)  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __divmod__(self, other: object) -> tuple[Array, Array]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Array, Array]:
        return other // self, other % self

    def __neg__(self) -> Array:
        return scale(self, sympy.S.NegativeOne)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return elementwise(sympy.Abs(ir.slot(0)), self)

    def __invert__(self) -> Array:
        return opposite(self)

    def __getitem__(self, index: object) -> Array:
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
    """`value` as a symbolic array: an `Array`, a number, a NumPy array, nested lists of numbers
    and arrays, a dimension, or a SymPy scalar or matrix expression.

    Raises UnsupportedError for anything else, DeclarationError for numbers that are not finite,
    ShapeError for ragged lists.
    """
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
        f"{shown(value)} of type {type(value).__name__} is no array expression; expected "
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
    """`array` stretched to `shape`."""
    shape = tuple(dimensions.dimension(size) for size in shape)
    if array.node.shape == shape:
        return array
    if (
        broadcast_clash([array.node.shape, shape])
        or broadcast_shapes(array.node.shape, shape) != shape
    ):
        form = f"broadcast_to({{}}, {shape_text(shape)})"
        raise disagreement(form, [array.node], "its axes do not stretch to that")
    labels = axis_labels(array.node.shape, shape)
    sizes = dict(enumerate(shape))
    return Array(ir.einsum([(array.node, labels)], range(len(shape)), sizes=sizes))


def at_least(array: Array, rank: int) -> Array:
    """`array` with leading axes of length 1 up to `rank` axes."""
    return array[(None,) * max(0, rank - array.ndim)]


def add(left: Array, right: Array) -> Array:
    """left + right."""
    shape = broadcast("{} + {}", left.node, right.node)
    terms = (broadcast_to(left, shape).node, broadcast_to(right, shape).node)
    return Array(ir.Sum(terms, shape))


def subtract(left: Array, right: Array) -> Array:
    """left - right."""
    broadcast("{} - {}", left.node, right.node)
    return add(left, -right)


def scale(array: Array, coefficient: sympy.Expr) -> Array:
    """A number (or polynomial in dimensions) times `array`."""
    labels = range(array.ndim)
    return Array(ir.einsum([(array.node, labels)], labels, coefficient))


def multiply(left: Array, right: Array) -> Array:
    """left * right, entry by entry."""
    shape = broadcast("{} * {}", left.node, right.node)
    factors = []
    coefficient = sympy.S.One
    for operand in (left, right):
        number = ir.literal(operand.node)
        if number is None:
            factors.append((operand.node, axis_labels(operand.node.shape, shape)))
        else:
            coefficient *= number
    return Array(ir.einsum(factors, range(len(shape)), coefficient, dict(enumerate(shape))))


def divide(left: Array, right: Array) -> Array:
    """left / right, entry by entry."""
    shape = broadcast("{} / {}", left.node, right.node)
    number = ir.literal(right.node)
    if number is None:
        return multiply(left, power(right, asarray(-1)))
    if number == 0:
        raise DeclarationError("division by the constant 0")
    return scale(broadcast_to(left, shape), 1 / number)


def floor_divide(left: Array, right: Array) -> Array:
    """floor(left / right), entry by entry."""
    return elementwise(sympy.floor(ir.slot(0)), divide(left, right))


def remainder(left: Array, right: Array) -> Array:
    """left - right * floor(left / right), entry by entry: of the sign of `right`."""
    return subtract(left, multiply(right, floor_divide(left, right)))


def power(base: Array, exponent: Array) -> Array:
    """base ** exponent, entry by entry. Raises DeclarationError for a constant base with entries
    that are not positive where the exponent is no constant: the power would be nan."""
    shape = broadcast("{} ** {}", base.node, exponent.node)
    number = ir.literal(exponent.node)
    if number is None:
        _require_positive(base, exponent)
        return elementwise(ir.slot(0) ** ir.slot(1), base, exponent)
    if number == 1:
        return broadcast_to(base, shape)
    if number in (2, 3):
        base = broadcast_to(base, shape)
        labels = tuple(range(base.ndim))
        return Array(ir.einsum([(base.node, labels)] * int(number), labels))
    return elementwise(ir.slot(0) ** ir.slot(1), base, exponent)


def _require_positive(base: Array, exponent: Array) -> None:
    if isinstance(base.node, ir.Constant):
        refused = not isinstance(exponent.node, ir.Constant) and bool((base.node.array <= 0).any())
    else:
        number = ir.literal(base.node)
        refused = number is not None and bool(number.is_nonpositive)
    if refused:
        raise DeclarationError(
            f"{operand_text(base.node)} ** {operand_text(exponent.node)}: a constant base that is "
            "not positive has no real power with an exponent that varies"
        )


def matmul(left: Array, right: Array) -> Array:
    """left @ right, with NumPy's rules for vectors and stacks. Raises ShapeError."""
    form = "{} @ {}"
    if not left.ndim or not right.ndim:
        raise disagreement(form, [left.node, right.node], "multiply by scalars with *")
    inner = left.node.shape[-1], right.node.shape[max(right.ndim - 2, 0)]
    if inner[0] != inner[1]:
        problem = f"expected {inner[0]} = {inner[1]}"
        raise disagreement(form, [left.node, right.node], problem)
    clash = broadcast_clash([left.node.shape[:-2], right.node.shape[:-2]])
    if clash:
        problem = f"the leading axes do not broadcast: {clash}"
        raise disagreement(form, [left.node, right.node], problem)
    stacks = broadcast_shapes(left.node.shape[:-2], right.node.shape[:-2])
    row, column, middle = "row", "column", "middle"
    left_core = (row, middle)[-min(left.ndim, 2) :]
    right_core = (middle, column)[: min(right.ndim, 2)]
    left_labels = axis_labels(left.node.shape[:-2], stacks) + left_core
    right_labels = axis_labels(right.node.shape[:-2], stacks) + right_core
    output = (*range(len(stacks)), *left_core[:-1], *right_core[1:])
    sizes = dict(enumerate(stacks))
    return Array(
        ir.einsum([(left.node, left_labels), (right.node, right_labels)], output, sizes=sizes)
    )


def transpose(array: Array, axes: Sequence[int]) -> Array:
    """The axes of `array` in the order given."""
    order = [normalise_axis(axis, array.ndim) for axis in axes]
    if sorted(order) != list(range(array.ndim)):
        raise disagreement(
            "transpose({})", [array.node], f"axes {tuple(axes)} are no order of {array.ndim} axes"
        )
    if order == list(range(array.ndim)):
        return array
    return Array(ir.einsum([(array.node, range(array.ndim))], order))


def trace(array: Array) -> Array:
    """The sum of the diagonal over the last two axes."""
    require_square("trace", array.node)
    stacked = range(array.ndim - 2)
    return Array(ir.einsum([(array.node, (*stacked, "d", "d"))], stacked))


def sum_over(array: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum over `axis`, an axis or several; all axes by default."""
    summed = normalise_axes(axis, array.ndim)
    labels = range(array.ndim)
    output = [("kept", i) if i in summed else i for i in labels if keepdims or i not in summed]
    sizes = {("kept", i): sympy.S.One for i in summed} if keepdims else {}
    return Array(ir.einsum([(array.node, labels)], output, sizes=sizes))


def elementwise(expression: sympy.Expr, *arguments: Array, form: str = "") -> Array:
    """`expression` of slot(0), slot(1), ... at the broadcast arguments.

    Arguments that are one number everywhere become part of the expression, and equal ones
    share a slot. `form` is how messages write it, with a {} for each argument.
    """
    operands = [argument.node for argument in arguments]
    shape = broadcast(form or ", ".join(["{}"] * len(operands)), *operands)
    exact = _of_sizes(expression, operands)
    if exact is not None:
        return Array(ir.full(exact, shape))
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
        number = expression.evalf() if expression.is_number else expression
        if not number.is_finite or not number.is_real:
            raise DeclarationError(f"a constant part of the expression is {expression}")
        return Array(ir.full(expression, shape))
    _require_finite(expression, nodes)
    return _select_slots(expression, nodes)


def _of_sizes(expression: sympy.Expr, operands: Sequence[ir.Node]) -> sympy.Expr | None:
    """`expression` as arithmetic of sizes and their roots, where it is that and surely real."""
    found = [ir.literal(operand) for operand in operands]
    numbers = {ir.slot(i): number for i, number in enumerate(found) if number is not None}
    if len(numbers) < len(found) or not all(number.is_positive for number in numbers.values()):
        return None
    exact = expression.subs(numbers, simultaneous=True)
    sizes = exact.free_symbols
    return exact if sizes and exact.is_algebraic_expr(*sizes) and exact.is_real else None


def _require_finite(expression: sympy.Expr, nodes: Sequence[ir.Node]) -> None:
    values = [node.array for node in nodes if isinstance(node, ir.Constant)]
    if len(values) == len(nodes):
        with np.errstate(all="ignore"):
            finite = np.isfinite(scalar_functions.evaluate(expression, values))
        if not finite.all():
            text = operand_text(_select_slots(expression, list(nodes)).node, "a constant part")
            raise DeclarationError(f"{text} has entries that are no finite numbers")


def _select_slots(expression: sympy.Expr, nodes: list[ir.Node]) -> Array:
    expression, arguments = ir.used_slots(expression, nodes)
    return Array(arguments[0]) if expression == ir.slot(0) else Array(ir.Map(expression, arguments))


def _indicator(condition: Boolean) -> sympy.Expr:
    """1 where the condition holds, else 0."""
    return sympy.Piecewise((1, condition), (0, True))


def _condition(array: Array) -> tuple[Boolean, list[Array]] | None:
    """The condition of which `array` is the indicator, on the slots of the arrays that come
    with it; None where it is no indicator."""
    node = array.node
    if isinstance(node, ir.Map) and _is_indicator(node):
        return node.expression.args[0].args[1], [Array(argument) for argument in node.arguments]
    number = ir.literal(node)
    if number in (0, 1):
        return sympy.sympify(bool(number)), []
    return (sympy.Ne(ir.slot(0), 0), [array]) if _is_indicator(node) else None


def _is_indicator(node: ir.Node) -> bool:
    """Whether the entries are 0 or 1 by construction: conditions, indexed and multiplied."""
    if isinstance(node, ir.Constant):
        return bool(np.isin(node.array, (0, 1)).all())
    if isinstance(node, ir.Map) and isinstance(node.expression, sympy.Piecewise):
        return bool(node.expression == _indicator(node.expression.args[0].args[1]))
    if isinstance(node, ir.Einsum):
        single = {b for f, own in node.factors if isinstance(f, (ir.Slice, ir.Delta)) for b in own}
        plain = node.coefficient == 1 and set(node.contracted) <= single
        return plain and all(_is_indicator(factor) for factor, _ in node.factors)
    return isinstance(node, ir.Structural)


def _logical(operator: Any, form: str, *arrays: Array) -> Array:
    """The indicator of conditions combined."""
    operands: list[Array] = []
    combined = []
    for array in arrays:
        known = _condition(array)
        if known is None:
            text = form.format(*(operand_text(operand.node) for operand in arrays))
            raise UnsupportedError(
                f"{text}: {operand_text(array.node)} is no condition; combine comparisons, as in "
                "(x > 0) & (x < 1)"
            )
        condition, own = known
        start = len(operands)
        renames = {ir.slot(i): ir.slot(start + i) for i in range(len(own))}
        combined.append(condition.xreplace(renames))
        operands += own
    shape = broadcast(form, *(array.node for array in arrays))
    return broadcast_to(elementwise(_indicator(operator(*combined)), *operands), shape)


def both(left: Array, right: Array) -> Array:
    """Where both conditions hold."""
    return _logical(sympy.And, "{} & {}", left, right)


def either(left: Array, right: Array) -> Array:
    """Where one of two conditions holds."""
    return _logical(sympy.Or, "{} | {}", left, right)


def opposite(array: Array) -> Array:
    """Where a condition does not hold."""
    return _logical(sympy.Not, "~{}", array)


def where(condition: object, first: object, second: object) -> Array:
    """`first` where the condition holds (is not 0), else `second`."""
    test, yes, no = asarray(condition), asarray(first), asarray(second)
    shape = broadcast("where({}, {}, {})", test.node, yes.node, no.node)
    relation, operands = _condition(test) or (sympy.Ne(ir.slot(0), 0), [test])
    count = len(operands)
    expression = sympy.Piecewise((ir.slot(count), relation), (ir.slot(count + 1), True))
    return broadcast_to(elementwise(expression, *operands, yes, no), shape)


def stack(arrays: Sequence[Array]) -> Array:
    """Arrays of one shape, stacked along a new leading axis."""
    if not arrays:
        raise ShapeError("there is nothing to stack")
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
    """An operation of the registry on the trailing axes of the arguments, whose leading axes
    broadcast. Raises ShapeError."""
    operands = [argument.node for argument in arguments]
    form = f"{operation.name}({', '.join(['{}'] * len(operands))})"
    stacks = []
    for node, rank in zip(operands, operation.ranks, strict=True):
        if node.ndim < rank:
            raise disagreement(form, operands, f"expected at least {rank} axes, not {node.ndim}")
        stacks.append(node.shape[: node.ndim - rank])
    if clash := broadcast_clash(stacks):
        raise disagreement(form, operands, f"the leading axes do not broadcast: {clash}")
    stacked = broadcast_shapes(*stacks)
    labelled = []
    for argument, own in zip(arguments, stacks, strict=True):
        node = argument.node
        if any(
            size == 1 and target != 1
            for size, target in zip(own, stacked[len(stacked) - len(own) :], strict=True)
        ):
            node = broadcast_to(argument, stacked + node.shape[len(own) :]).node
            own = stacked
        labelled.append((node, tuple(range(len(stacked) - len(own), len(stacked)))))
    try:
        return Array(ir.Apply(operation, tuple(labelled), stacked, parameters, output))
    except ShapeError as error:
        raise disagreement(form, operands, str(error)) from error
