"""Symbolic arrays with NumPy's conventions: `@` is matmul, `*` is elementwise, indices start at 0.

An `Array` wraps a node of the intermediate representation. Its operators build nodes and check
shapes; nothing is folded here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler import dimensions, scalars
from derivatrix.compiler.dimensions import Dimension, Shape, shape_text
from derivatrix.compiler.ir import (
    Apply,
    Constant,
    Leaf,
    Map,
    Node,
    Select,
    Sum,
    einsum,
    full,
    literal,
    slot,
)
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError

_fresh = itertools.count()


class Array:
    """A symbolic array. `shape`: a tuple of dimensions (SymPy integers or polynomials)."""

    __slots__ = ("node",)
    __array_priority__ = 1000.0
    _op_priority = 10.5  # above SymPy's scalars, so that n * x is an array; below its matrices

    def __init__(self, node: Node) -> None:
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
        if not isinstance(self.node, Leaf):
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
        from derivatrix.compiler.formulas import render

        return f"Array({render(self.node, 'unicode')}, shape={shape_text(self.shape)})"

    def __len__(self) -> int:
        if not self.ndim or not self.node.shape[0].is_Integer:
            raise TypeError(f"an array of shape {shape_text(self.shape)} has no literal length")
        return int(self.node.shape[0])

    def __bool__(self) -> bool:
        raise TypeError("a symbolic array has no truth value; use where(condition, x, y)")

    def __float__(self) -> float:
        raise TypeError(
            "a symbolic array is not a number; use derivatrix's or NumPy's array functions on it"
        )

    def __iter__(self) -> Any:
        return (self[position] for position in range(len(self)))

    def __add__(self, other: object) -> Array:
        return _binary(self, other, add)

    def __radd__(self, other: object) -> Array:
        return _binary(other, self, add)

    def __sub__(self, other: object) -> Array:
        return _binary(self, other, subtract)

    def __rsub__(self, other: object) -> Array:
        return _binary(other, self, subtract)

    def __mul__(self, other: object) -> Array:
        return _binary(self, other, multiply)

    def __rmul__(self, other: object) -> Array:
        return _binary(other, self, multiply)

    def __truediv__(self, other: object) -> Array:
        return _binary(self, other, divide)

    def __rtruediv__(self, other: object) -> Array:
        return _binary(other, self, divide)

    def __matmul__(self, other: object) -> Array:
        return _binary(self, other, matmul)

    def __rmatmul__(self, other: object) -> Array:
        return _binary(other, self, matmul)

    def __pow__(self, exponent: object) -> Array:
        return _binary(self, exponent, power)

    def __rpow__(self, base: object) -> Array:
        return _binary(base, self, power)

    def __neg__(self) -> Array:
        return scale(self, sympy.S.NegativeOne)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return elementwise(sympy.Abs(slot(0)), self)

    def __lt__(self, other: object) -> Array:
        return _compare(self, other, sympy.Lt)

    def __le__(self, other: object) -> Array:
        return _compare(self, other, sympy.Le)

    def __gt__(self, other: object) -> Array:
        return _compare(self, other, sympy.Gt)

    def __ge__(self, other: object) -> Array:
        return _compare(self, other, sympy.Ge)

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return _compare(self, other, sympy.Eq)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return _compare(self, other, sympy.Ne)

    __hash__ = object.__hash__

    def __getitem__(self, index: object) -> Array:
        return take(self, index)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Array:
        from derivatrix.compiler.frontends.numpy import call_ufunc

        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self,
        function: Any,
        types: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        from derivatrix.compiler.frontends.numpy import call_function

        return call_function(function, arguments, options)

    def _sympy_(self) -> sympy.Basic:
        from derivatrix.compiler.frontends.sympy import embed

        return embed(self)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """The sum over `axis` (all axes by default)."""
        return sum_over(self, axis, keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """The mean over `axis` (all axes by default)."""
        total = sum_over(self, axis, keepdims)
        count = sympy.prod([self.node.shape[i] for i in normalise_axes(axis, self.ndim)])
        return scale(total, 1 / count)

    def trace(self) -> Array:
        """The sum of the diagonal of a square matrix."""
        return trace(self)

    def dot(self, other: object) -> Array:
        """The matrix product, as `@`."""
        return self @ other

    def transpose(self, *axes: int) -> Array:
        """The axes in the order given (reversed by default)."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return transpose(self, tuple(order) or tuple(reversed(range(self.ndim))))


def asarray(value: object) -> Array:
    """`value` as a symbolic array: an `Array`, a number, a NumPy array, nested lists of numbers,
    a dimension, or a SymPy scalar or matrix expression.

    Raises UnsupportedError for anything else.
    """
    if isinstance(value, Array):
        return value
    if isinstance(value, (bool, int, float, np.integer, np.floating)):
        return Array(full(scalars.number(value)))
    if isinstance(value, (sympy.Basic, sympy.MatrixBase)):
        from derivatrix.compiler.frontends.sympy import lower

        return Array(lower(value))
    if isinstance(value, (np.ndarray, list, tuple)):
        return _literal_array(value)
    raise UnsupportedError(
        f"{value!r} of type {type(value).__name__} is no array expression; expected a derivatrix "
        "array, a number, a NumPy array or a SymPy expression"
    )


def _literal_array(value: np.ndarray | list | tuple) -> Array:
    if isinstance(value, (list, tuple)) and _holds_symbols(value):
        return stack([asarray(part) for part in value])
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise UnsupportedError(f"an array of dtype {array.dtype} is no real array")
    if array.ndim == 0:
        return Array(full(scalars.number(array.item())))
    return Array(Constant(array))


def _holds_symbols(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_symbols(part) for part in value)
    return isinstance(value, (Array, sympy.Basic))


OPERANDS = (Array, int, float, np.number, np.ndarray, list, tuple, sympy.Basic, sympy.MatrixBase)
"""What an operator takes; Python says itself that it does not take others."""


def _binary(left: object, right: object, function: Any) -> Any:
    if not (isinstance(left, OPERANDS) and isinstance(right, OPERANDS)):
        return NotImplemented
    return function(asarray(left), asarray(right))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy's broadcasting: axes aligned at the right, a literal 1 stretches.

    Raises ShapeError where two dimensions differ.
    """
    rank = max(len(shape) for shape in shapes)
    result: list[Dimension] = [sympy.S.One] * rank
    for shape in shapes:
        for offset, size in enumerate(reversed(shape), start=1):
            known = result[rank - offset]
            if known == 1:
                result[rank - offset] = size
            elif size not in (known, 1):
                texts = " and ".join(shape_text(part) for part in shapes)
                raise ShapeError(f"shapes {texts} do not broadcast: {known} against {size}")
    return tuple(result)


def axis_labels(shape: Shape, target: Shape) -> tuple[Any, ...]:
    """Labels that align `shape` at the right of `target`, whose labels are 0, 1, ...;
    a stretched axis of length 1 gets a label of its own."""
    start = len(target) - len(shape)
    return tuple(
        start + axis if size == target[start + axis] else ("stretched", next(_fresh))
        for axis, size in enumerate(shape)
    )


def broadcast_to(array: Array, shape: Shape) -> Array:
    """`array` stretched to `shape`."""
    shape = tuple(dimensions.dimension(size) for size in shape)
    if array.node.shape == shape:
        return array
    if broadcast_shapes(array.node.shape, shape) != shape:
        raise ShapeError(
            f"shape {shape_text(array.shape)} does not broadcast to {shape_text(shape)}"
        )
    labels = axis_labels(array.node.shape, shape)
    sizes = dict(enumerate(shape))
    return Array(einsum([(array.node, labels)], range(len(shape)), sizes=sizes))


def add(left: Array, right: Array) -> Array:
    """left + right."""
    shape = broadcast_shapes(left.node.shape, right.node.shape)
    terms = (broadcast_to(left, shape).node, broadcast_to(right, shape).node)
    return Array(Sum(terms, shape))


def subtract(left: Array, right: Array) -> Array:
    """left - right."""
    return add(left, -right)


def scale(array: Array, coefficient: sympy.Expr) -> Array:
    """A number (or polynomial in dimensions) times `array`."""
    labels = range(array.ndim)
    return Array(einsum([(array.node, labels)], labels, coefficient))


def multiply(left: Array, right: Array) -> Array:
    """left * right, entry by entry."""
    shape = broadcast_shapes(left.node.shape, right.node.shape)
    factors = []
    coefficient = sympy.S.One
    for operand in (left, right):
        number = literal(operand.node)
        if number is None:
            factors.append((operand.node, axis_labels(operand.node.shape, shape)))
        else:
            coefficient *= number
    return Array(einsum(factors, range(len(shape)), coefficient, dict(enumerate(shape))))


def divide(left: Array, right: Array) -> Array:
    """left / right, entry by entry."""
    number = literal(right.node)
    if number is not None:
        if number == 0:
            raise DeclarationError("division by the constant 0")
        shape = broadcast_shapes(left.node.shape, right.node.shape)
        return scale(broadcast_to(left, shape), 1 / number)
    return multiply(left, power(right, asarray(-1)))


def power(base: Array, exponent: Array) -> Array:
    """base ** exponent, entry by entry."""
    number = literal(exponent.node)
    if number is not None:
        base = broadcast_to(base, broadcast_shapes(base.node.shape, exponent.node.shape))
    if number == 1:
        return base
    if number in (2, 3):
        labels = tuple(range(base.ndim))
        return Array(einsum([(base.node, labels)] * int(number), labels))
    return elementwise(slot(0) ** slot(1), base, exponent)


def matmul(left: Array, right: Array) -> Array:
    """left @ right, with NumPy's rules for vectors and stacks. Raises ShapeError."""
    if not left.ndim or not right.ndim:
        raise ShapeError("@ needs arrays with at least one axis; multiply scalars with *")
    inner = left.node.shape[-1], right.node.shape[max(right.ndim - 2, 0)]
    if inner[0] != inner[1]:
        raise ShapeError(
            f"cannot multiply shapes {shape_text(left.shape)} @ {shape_text(right.shape)}: "
            f"the inner dimensions {inner[0]} and {inner[1]} differ"
        )
    stacks = broadcast_shapes(left.node.shape[:-2], right.node.shape[:-2])
    row, column, middle = "row", "column", "middle"
    left_core = (row, middle)[-min(left.ndim, 2) :]
    right_core = (middle, column)[: min(right.ndim, 2)]
    left_labels = axis_labels(left.node.shape[:-2], stacks) + left_core
    right_labels = axis_labels(right.node.shape[:-2], stacks) + right_core
    output = (*range(len(stacks)), *left_core[:-1], *right_core[1:])
    sizes = dict(enumerate(stacks))
    return Array(
        einsum([(left.node, left_labels), (right.node, right_labels)], output, sizes=sizes)
    )


def transpose(array: Array, axes: Sequence[int]) -> Array:
    """The axes of `array` in the order given."""
    order = [normalise_axis(axis, array.ndim) for axis in axes]
    if sorted(order) != list(range(array.ndim)):
        raise ShapeError(f"axes {tuple(axes)} are no order of {array.ndim} axes")
    if order == list(range(array.ndim)):
        return array
    return Array(einsum([(array.node, range(array.ndim))], order))


def trace(array: Array) -> Array:
    """The sum of the diagonal over the last two axes."""
    if array.ndim < 2 or array.node.shape[-1] != array.node.shape[-2]:
        raise ShapeError(f"trace needs a square matrix, not shape {shape_text(array.shape)}")
    stacked = range(array.ndim - 2)
    return Array(einsum([(array.node, (*stacked, "d", "d"))], stacked))


def sum_over(
    array: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Array:
    """The sum over `axis`, an axis or several; all axes by default."""
    summed = normalise_axes(axis, array.ndim)
    labels = range(array.ndim)
    if keepdims:
        output = [("kept", i) if i in summed else i for i in labels]
        sizes = {("kept", i): sympy.S.One for i in summed}
        return Array(einsum([(array.node, labels)], output, sizes=sizes))
    return Array(einsum([(array.node, labels)], [i for i in labels if i not in summed]))


def normalise_axis(axis: int, rank: int) -> int:
    """A possibly negative axis as one of 0 .. rank-1; raises ShapeError."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise UnsupportedError(f"an axis is an integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of bounds for an array of {rank} axes")
    return int(axis) % rank


def normalise_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """One axis, several, or None for all, as a tuple."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, (tuple, list)):
        return tuple(normalise_axis(part, rank) for part in axis)
    return (normalise_axis(axis, rank),)  # type: ignore[arg-type]


def elementwise(expression: sympy.Expr, *arguments: Array) -> Array:
    """`expression` of slot(0), slot(1), ... at the broadcast arguments.

    Arguments that are one number everywhere become part of the expression, and equal ones
    share a slot.
    """
    shape = broadcast_shapes(*(argument.node.shape for argument in arguments))
    nodes: list[Node] = []
    replacements: dict[sympy.Expr, sympy.Expr] = {}
    for position, argument in enumerate(arguments):
        number = literal(argument.node)
        if number is not None and not number.free_symbols:
            replacements[slot(position)] = number
            continue
        node = broadcast_to(argument, shape).node
        if node not in nodes:
            nodes.append(node)
        replacements[slot(position)] = slot(nodes.index(node))
    expression = expression.subs(replacements, simultaneous=True)
    if not nodes or not expression.free_symbols:
        if not expression.is_finite or not expression.is_real:
            raise DeclarationError(f"a constant part of the expression is {expression}")
        return Array(full(expression, shape))
    return _select_slots(expression, nodes)


def _select_slots(expression: sympy.Expr, nodes: list[Node]) -> Array:
    used = [i for i in range(len(nodes)) if slot(i) in expression.free_symbols]
    renames = {slot(old): slot(new) for new, old in enumerate(used)}
    expression = expression.xreplace(renames)
    arguments = tuple(nodes[i] for i in used)
    return Array(arguments[0]) if expression == slot(0) else Array(Map(expression, arguments))


def _compare(left: object, right: object, relation: Any) -> Any:
    def indicator(x: Array, y: Array) -> Array:
        condition = relation(slot(0), slot(1))
        return elementwise(sympy.Piecewise((1, condition), (0, True)), x, y)

    return _binary(left, right, indicator)


def where(condition: object, first: object, second: object) -> Array:
    """`first` where the condition holds (is not 0), else `second`."""
    test, yes, no = asarray(condition), asarray(first), asarray(second)
    node = test.node
    if isinstance(node, Map) and isinstance(node.expression, sympy.Piecewise):
        (one, relation), (zero, otherwise) = (
            node.expression.args[0],
            node.expression.args[-1],
        )
        if len(node.expression.args) == 2 and (one, zero, otherwise) == (
            1,
            0,
            sympy.true,
        ):
            count = len(node.arguments)
            expression = sympy.Piecewise((slot(count), relation), (slot(count + 1), True))
            return elementwise(expression, *map(Array, node.arguments), yes, no)
    expression = sympy.Piecewise((slot(1), sympy.Ne(slot(0), 0)), (slot(2), True))
    return elementwise(expression, test, yes, no)


def take(array: Array, index: object) -> Array:
    """array[index] for integers, slices, None and Ellipsis, as NumPy's basic indexing."""
    parts = _expand_index(index if isinstance(index, tuple) else (index,), array)
    factors: list[tuple[Node, tuple[Any, ...]]] = []
    labels: list[Any] = []
    output: list[Any] = []
    sizes: dict[Any, Dimension] = {}
    axis = 0
    for part in parts:
        if part is None:
            output.append(("new", len(output)))
            sizes[output[-1]] = sympy.S.One
            continue
        size = array.node.shape[axis]
        axis += 1
        label, selected = ("axis", axis), ("out", axis)
        labels.append(label)
        if isinstance(part, slice):
            start, count, stride = slice_range(part, size)
            if (start, count, stride) == (0, size, 1):
                output.append(label)
                continue
            factors.append((Select(count, size, start, stride), (selected, label)))
            output.append(selected)
        else:
            position = _position(part, size)
            factors.append((Select(sympy.S.One, size, position, 1), (selected, label)))
    return Array(einsum([(array.node, labels), *factors], output, sizes=sizes))


def _expand_index(index: tuple[object, ...], array: Array) -> list[object]:
    used = sum(part is not None and part is not Ellipsis for part in index)
    if used > array.ndim:
        raise ShapeError(f"{used} indices for an array of shape {shape_text(array.shape)}")
    rest: list[object] = [slice(None)] * (array.ndim - used)
    parts: list[object] = []
    for part in index:
        if isinstance(part, EllipsisType):
            parts.extend(rest)
            rest = []
        else:
            parts.append(part)
    return parts + rest


def _position(part: object, size: Dimension) -> Dimension:
    if isinstance(part, bool) or not isinstance(part, (int, np.integer, sympy.Expr)):
        raise UnsupportedError(
            f"index {part!r} of type {type(part).__name__} is not supported; "
            "use integers, slices, None or ..."
        )
    position = sympy.sympify(part)
    position = sympy.expand(size + position) if position.is_negative else position
    position = dimensions.dimension(position, "index")
    if (size - position).is_nonpositive:
        raise ShapeError(f"index {part} is out of bounds for an axis of size {size}")
    return position


def slice_range(part: slice, size: Dimension) -> tuple[Dimension, Dimension, int]:
    """Start, count and step of a slice of an axis, as NumPy's; bounds of a symbolic axis are
    taken to lie within it.

    Raises ShapeError or UnsupportedError.
    """
    step = 1 if part.step is None else int(part.step)
    if step == 0:
        raise ShapeError("slice step cannot be zero")
    if size.is_Integer and all(
        bound is None or isinstance(bound, (int, np.integer)) for bound in (part.start, part.stop)
    ):
        numbers = range(*slice(part.start, part.stop, step).indices(int(size)))
        return sympy.Integer(numbers.start), sympy.Integer(len(numbers)), step
    first, last = (sympy.S.Zero, size) if step > 0 else (size - 1, sympy.S.NegativeOne)
    start = first if part.start is None else _bound(part.start, size)
    stop = last if part.stop is None else _bound(part.stop, size)
    count = sympy.expand((stop - start) / step)
    if abs(step) > 1:
        count = sympy.ceiling(count)
    if not (count.is_Integer or abs(step) == 1):
        raise UnsupportedError(
            f"a step of {step} over an axis of symbolic size {size} has no polynomial length; "
            "give the axis a literal size"
        )
    if count.is_negative:
        count = sympy.S.Zero
    return sympy.expand(start), dimensions.dimension(count, "slice"), step


def _bound(bound: object, size: Dimension) -> Dimension:
    value = sympy.sympify(bound)
    return size + value if value.is_negative else value


def stack(arrays: Sequence[Array]) -> Array:
    """Arrays of one shape, stacked along a new leading axis."""
    shapes = {array.node.shape for array in arrays}
    if len(shapes) != 1:
        raise ShapeError("stacked arrays must have one shape")
    shape = shapes.pop()
    count = sympy.Integer(len(arrays))
    terms = []
    for position, array in enumerate(arrays):
        place = Select(sympy.S.One, count, sympy.Integer(position), 1)
        factors = [(array.node, range(len(shape))), (place, ("one", "stack"))]
        terms.append(einsum(factors, ("stack", *range(len(shape)))))
    return Array(Sum(tuple(terms), (count, *shape)))


def apply(operation: Any, *arguments: Array, parameters: tuple = (), output: int = 0) -> Array:
    """An operation of the registry on the trailing axes of the arguments, whose leading axes
    broadcast. Raises ShapeError."""
    ranks = operation.ranks
    stacks = []
    for argument, rank in zip(arguments, ranks, strict=True):
        if argument.ndim < rank:
            raise ShapeError(
                f"{operation.name} needs at least {rank} axes, not shape "
                f"{shape_text(argument.shape)}"
            )
        stacks.append(argument.node.shape[: argument.ndim - rank])
    stacked = broadcast_shapes(*stacks) if stacks else ()
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
    return Array(Apply(operation, tuple(labelled), stacked, parameters, output))
