"""What users write: symbolic inputs and NumPy's, SciPy's names for functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from derivatrix.compiler import arrays, dimensions, ir, scalars
from derivatrix.compiler.arrays import (
    Array,
    asarray,
    elementwise,
    normalise_axes,
    normalise_axis,
    where,
)
from derivatrix.compiler.dimensions import dims, shape_text
from derivatrix.compiler.operations.determinant import (
    DETERMINANT,
    LOG_ABSOLUTE_DETERMINANT,
    LOG_DETERMINANT,
)
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.compiler.operations.sylvester import SYLVESTER
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError

Axis = int | Sequence[int] | None

SQUARE_STRUCTURES = (
    "symmetric",
    "spd",
    "lower",
    "upper",
    "diagonal",
    "orthogonal",
    "invertible",
)


def tensor(name: str, *shape: Any, structure: str = "general") -> Array:
    """An input of any rank, as in tensor("T", n, n, m).

    structure: "general", "symmetric", "spd", "lower", "upper", "diagonal", "orthogonal", or a
    domain: "positive", "nonneg", "invertible". Raises DeclarationError.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise DeclarationError(f"an input's name is a Python identifier, not {name!r}")
    if shape and isinstance(shape[-1], str) and shape[-1] in ir.STRUCTURES:
        structure, shape = shape[-1], shape[:-1]
    if structure not in ir.STRUCTURES:
        raise DeclarationError(
            f"{name}: unknown structure {structure!r}; choose from {', '.join(ir.STRUCTURES)}"
        )
    sizes = tuple(dimensions.dimension(size, f"{name}: shape") for size in shape)
    if structure in SQUARE_STRUCTURES and (len(sizes) < 2 or sizes[-1] != sizes[-2]):
        raise ShapeError(f"{name}: {structure} needs a square matrix, not {shape_text(sizes)}")
    return Array(ir.Leaf(name, sizes, structure))


def matrix(name: str, rows: Any, columns: Any, structure: str = "general") -> Array:
    """An input of shape (rows, columns); see `tensor` for structures."""
    return tensor(name, rows, columns, structure=structure)


def vector(name: str, size: Any, structure: str = "general") -> Array:
    """An input of shape (size,)."""
    return tensor(name, size, structure=structure)


def scalar(name: str, structure: str = "general") -> Array:
    """An input of shape ()."""
    return tensor(name, structure=structure)


def constant(value: Any) -> Array:
    """A literal array."""
    return asarray(value)


def eye(size: Any) -> Array:
    """The identity matrix of shape (size, size)."""
    return Array(ir.Delta(dimensions.dimension(size, "eye")))


def full(shape: Any, value: Any) -> Array:
    """An array of one number."""
    return arrays.broadcast_to(asarray(value), _shape((shape,)))


def ones(*shape: Any) -> Array:
    """An array of ones; ones(n, m) or ones((n, m))."""
    return Array(ir.full(1, _shape(shape)))


def zeros(*shape: Any) -> Array:
    """An array of zeros; zeros(n, m) or zeros((n, m))."""
    return Array(ir.zeros(_shape(shape)))


def _shape(parts: tuple[Any, ...]) -> dimensions.Shape:
    if len(parts) == 1 and isinstance(parts[0], (tuple, list)):
        parts = tuple(parts[0])
    return tuple(dimensions.dimension(part, "shape") for part in parts)


def ones_like(array: Any) -> Array:
    """Ones of the shape of `array`."""
    return ones(asarray(array).shape)


def zeros_like(array: Any) -> Array:
    """Zeros of the shape of `array`."""
    return zeros(asarray(array).shape)


def _elementwise(name: str) -> Callable[..., Array]:
    """The elementwise function that NumPy or SciPy calls `name`."""
    build = scalars.FUNCTIONS[name]

    def function(*arguments: Any) -> Array:
        operands = [asarray(argument) for argument in arguments]
        slots = [ir.slot(position) for position in range(len(operands))]
        return elementwise(build(*slots), *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}, entry by entry, as NumPy or SciPy has it."
    return function


exp = _elementwise("exp")
exp2 = _elementwise("exp2")
expm1 = _elementwise("expm1")
log = _elementwise("log")
log2 = _elementwise("log2")
log10 = _elementwise("log10")
log1p = _elementwise("log1p")
sqrt = _elementwise("sqrt")
cbrt = _elementwise("cbrt")
sin = _elementwise("sin")
cos = _elementwise("cos")
tan = _elementwise("tan")
arcsin = _elementwise("arcsin")
arccos = _elementwise("arccos")
arctan = _elementwise("arctan")
arctan2 = _elementwise("arctan2")
hypot = _elementwise("hypot")
sinh = _elementwise("sinh")
cosh = _elementwise("cosh")
tanh = _elementwise("tanh")
arcsinh = _elementwise("arcsinh")
arccosh = _elementwise("arccosh")
arctanh = _elementwise("arctanh")
erf = _elementwise("erf")
erfc = _elementwise("erfc")
normcdf = _elementwise("normcdf")
sigmoid = _elementwise("sigmoid")
expit = _elementwise("expit")
softplus = _elementwise("softplus")
logaddexp = _elementwise("logaddexp")
relu = _elementwise("relu")
abs = _elementwise("abs")
sign = _elementwise("sign")
floor = _elementwise("floor")
ceil = _elementwise("ceil")
maximum = _elementwise("maximum")
minimum = _elementwise("minimum")
gamma = _elementwise("gamma")
gammaln = _elementwise("gammaln")


def add(left: Any, right: Any) -> Array:
    """left + right."""
    return asarray(left) + asarray(right)


def subtract(left: Any, right: Any) -> Array:
    """left - right."""
    return asarray(left) - asarray(right)


def multiply(left: Any, right: Any) -> Array:
    """left * right, entry by entry."""
    return asarray(left) * asarray(right)


def divide(left: Any, right: Any) -> Array:
    """left / right, entry by entry."""
    return asarray(left) / asarray(right)


def power(base: Any, exponent: Any) -> Array:
    """base ** exponent, entry by entry."""
    return asarray(base) ** asarray(exponent)


def negative(array: Any) -> Array:
    """-array."""
    return -asarray(array)


def square(array: Any) -> Array:
    """array ** 2, entry by entry."""
    return asarray(array) ** 2


def reciprocal(array: Any) -> Array:
    """1 / array, entry by entry."""
    return 1 / asarray(array)


def clip(array: Any, low: Any, high: Any) -> Array:
    """Entries limited to low .. high."""
    return minimum(maximum(array, low), high)


def sum(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum over `axis` (all axes by default)."""
    return asarray(array).sum(axis, keepdims)  # type: ignore[arg-type]


def mean(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean over `axis` (all axes by default)."""
    return asarray(array).mean(axis, keepdims)  # type: ignore[arg-type]


def var(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The variance (divided by the count) over `axis`."""
    centred = asarray(array) - mean(array, axis, keepdims=True)
    return mean(centred**2, axis, keepdims)


def cumsum(array: Any, axis: int = -1) -> Array:
    """The running sum along `axis`."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim)
    size = operand.node.shape[position]
    labels: list[Any] = list(range(operand.ndim))
    output = list(labels)
    labels[position] = "summed"
    mask = (ir.Triangle(size, size), (position, "summed"))
    return Array(ir.einsum([(operand.node, labels), mask], output))


def trace(array: Any) -> Array:
    """The sum of the diagonal."""
    return arrays.trace(asarray(array))


def diag(array: Any) -> Array:
    """The diagonal of a matrix, or the diagonal matrix of a vector."""
    operand = asarray(array)
    if operand.ndim == 1:
        delta = ir.Delta(operand.node.shape[0])
        return Array(ir.einsum([(operand.node, "i"), (delta, "ij")], "ij"))
    return diagonal(operand)


def diagonal(array: Any) -> Array:
    """The diagonal of the last two axes, which may differ in length only if both are literal."""
    operand = asarray(array)
    if operand.ndim < 2:
        raise ShapeError(f"diagonal needs a matrix, not shape {shape_text(operand.shape)}")
    rows, columns = operand.node.shape[-2:]
    if rows != columns:
        if not (rows.is_Integer and columns.is_Integer):
            raise ShapeError(f"diagonal needs a square matrix, not {shape_text(operand.shape)}")
        count = int(min(rows, columns))
        operand = operand[..., :count, :count]
    stacked = list(range(operand.ndim - 2))
    return Array(ir.einsum([(operand.node, (*stacked, "d", "d"))], (*stacked, "d")))


def tril(array: Any, k: int = 0) -> Array:
    """The lower triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=False)


def triu(array: Any, k: int = 0) -> Array:
    """The upper triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=True)


def _triangle(operand: Array, k: int, upper: bool) -> Array:
    if operand.ndim < 2:
        raise ShapeError(f"a triangle needs a matrix, not shape {shape_text(operand.shape)}")
    rows, columns = operand.node.shape[-2:]
    labels = range(operand.ndim)
    if upper:
        mask: Any = (ir.Triangle(columns, rows, k), labels[-2:][::-1])
    else:
        mask = (ir.Triangle(rows, columns, -k), labels[-2:])
    return Array(ir.einsum([(operand.node, labels), mask], labels))


def transpose(array: Any, axes: Sequence[int] | None = None) -> Array:
    """The axes in the order given (reversed by default)."""
    operand = asarray(array)
    return operand.T if axes is None else arrays.transpose(operand, tuple(axes))


def swapaxes(array: Any, first: int, second: int) -> Array:
    """Two axes exchanged."""
    operand = asarray(array)
    order = list(range(operand.ndim))
    one, two = normalise_axis(first, operand.ndim), normalise_axis(second, operand.ndim)
    order[one], order[two] = order[two], order[one]
    return arrays.transpose(operand, order)


def moveaxis(array: Any, source: int, destination: int) -> Array:
    """One axis moved to another place."""
    operand = asarray(array)
    order = list(range(operand.ndim))
    order.remove(normalise_axis(source, operand.ndim))
    order.insert(normalise_axis(destination, operand.ndim), normalise_axis(source, operand.ndim))
    return arrays.transpose(operand, order)


def expand_dims(array: Any, axis: int) -> Array:
    """A new axis of length 1."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim + 1)
    return operand[(slice(None),) * position + (None,)]


def squeeze(array: Any, axis: Axis = None) -> Array:
    """Axes of literal length 1 removed (all of them by default)."""
    operand = asarray(array)
    if axis is None:
        chosen = tuple(i for i, size in enumerate(operand.node.shape) if size == 1)
    else:
        chosen = normalise_axes(axis, operand.ndim)
    for position in chosen:
        if operand.node.shape[position] != 1:
            raise ShapeError(f"axis {position} of {shape_text(operand.shape)} is not of length 1")
    return operand[tuple(0 if i in chosen else slice(None) for i in range(operand.ndim))]


def broadcast_to(array: Any, shape: Sequence[Any]) -> Array:
    """`array` stretched to `shape`."""
    return arrays.broadcast_to(asarray(array), _shape((tuple(shape),)))


def stack(parts: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape along a new axis."""
    stacked = arrays.stack([asarray(part) for part in parts])
    return moveaxis(stacked, 0, axis)


def concatenate(parts: Sequence[Any], axis: int = 0) -> Array:
    """Arrays joined along an existing axis."""
    operands = [asarray(part) for part in parts]
    if not operands:
        raise ShapeError("nothing to concatenate")
    position = normalise_axis(axis, operands[0].ndim)
    total = sympy.expand(sympy.Add(*(part.node.shape[position] for part in operands)))
    placed, start = [], sympy.S.Zero
    for part in operands:
        count = part.node.shape[position]
        labels: list[Any] = list(range(part.ndim))
        labels[position] = "part"
        place = (ir.Select(count, total, start, 1), ("part", position))
        placed.append(ir.einsum([(part.node, labels), place], range(part.ndim)))
        start = sympy.expand(start + count)
    return Array(ir.Sum(tuple(placed), placed[0].shape))


def block(rows: Sequence[Any]) -> Array:
    """A matrix of blocks, from nested lists as numpy.block."""
    if rows and isinstance(rows[0], (list, tuple)):
        return concatenate([concatenate(row, axis=-1) for row in rows], axis=-2)
    return concatenate(rows, axis=-1)


def vstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as rows."""
    operands = [asarray(part) for part in parts]
    return concatenate([part[None, :] if part.ndim == 1 else part for part in operands])


def hstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as columns (vectors end to end)."""
    operands = [asarray(part) for part in parts]
    return concatenate(operands, axis=0 if operands[0].ndim == 1 else 1)


def matmul(left: Any, right: Any) -> Array:
    """left @ right."""
    return arrays.matmul(asarray(left), asarray(right))


def dot(left: Any, right: Any) -> Array:
    """The matrix product of vectors and matrices; scalars multiply."""
    one, two = asarray(left), asarray(right)
    return matmul(one, two) if one.ndim and two.ndim else one * two


def vdot(left: Any, right: Any) -> Array:
    """The sum of the products of all entries of two arrays of one shape."""
    one, two = asarray(left), asarray(right)
    if one.node.shape != two.node.shape:
        raise ShapeError(f"vdot of shapes {shape_text(one.shape)} and {shape_text(two.shape)}")
    return sum(one * two)


def inner(left: Any, right: Any) -> Array:
    """The sum of products over the last axes."""
    return tensordot(left, right, (-1, -1)) if asarray(left).ndim else multiply(left, right)


def outer(left: Any, right: Any) -> Array:
    """The outer product of two vectors."""
    return tensordot(left, right, 0)


def tensordot(left: Any, right: Any, axes: Any = 2) -> Array:
    """The contraction of pairs of axes, as numpy.tensordot."""
    one, two = asarray(left), asarray(right)
    if isinstance(axes, int):
        first = list(range(one.ndim - axes, one.ndim))
        second = list(range(axes))
    else:
        first = list(normalise_axes(axes[0], one.ndim))
        second = list(normalise_axes(axes[1], two.ndim))
    if len(first) != len(second) or len(first) > min(one.ndim, two.ndim):
        raise ShapeError(f"tensordot: axes {axes!r} do not pair")
    left_labels: list[Any] = [("left", i) for i in range(one.ndim)]
    right_labels: list[Any] = [("right", i) for i in range(two.ndim)]
    for i, j in zip(first, second, strict=True):
        if one.node.shape[i] != two.node.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {shape_text(one.shape)} and axis {j} of "
                f"{shape_text(two.shape)} differ"
            )
        right_labels[j] = left_labels[i]
    output = [label for i, label in enumerate(left_labels) if i not in first]
    output += [label for j, label in enumerate(right_labels) if j not in second]
    return Array(ir.einsum([(one.node, left_labels), (two.node, right_labels)], output))


def einsum(subscripts: str, *operands: Any) -> Array:
    """Products in index notation, as numpy.einsum: einsum("ijk,j,k->i", T, x, y)."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    parts = [asarray(operand) for operand in operands]
    if len(terms) != len(parts):
        raise ShapeError(f"einsum {subscripts!r}: {len(terms)} terms, {len(parts)} operands")
    if not all(letter.isalpha() for letter in "".join(terms) + output):
        raise UnsupportedError(f"einsum {subscripts!r}: only letters, commas and -> are read")
    letters = "".join(terms)
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes: dict[str, Any] = {}
    for term, part in zip(terms, parts, strict=True):
        if len(term) != part.ndim:
            raise ShapeError(f"einsum {subscripts!r}: {term!r} for shape {shape_text(part.shape)}")
        for letter, size in zip(term, part.node.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum {subscripts!r}: index {letter} is both {sizes[letter]} and {size}"
                )
    missing = set(output) - set(letters)
    if missing or len(set(output)) != len(output):
        raise ShapeError(f"einsum {subscripts!r}: the output {output!r} is not a choice of inputs")
    factors = [(part.node, term) for term, part in zip(terms, parts, strict=True)]
    return Array(ir.einsum(factors, output))


def inv(array: Any) -> Array:
    """The inverse of a square matrix. LinAlgError where it is singular."""
    return arrays.apply(INVERSE, asarray(array))


def solve(matrix: Any, right: Any) -> Array:
    """inv(matrix) @ right, by factorisation."""
    return inv(matrix) @ asarray(right)


def det(array: Any) -> Array:
    """The determinant."""
    return arrays.apply(DETERMINANT, asarray(array))


def logdet(array: Any) -> Array:
    """log(det(array)); nan where the determinant is negative."""
    return arrays.apply(LOG_DETERMINANT, asarray(array))


def logabsdet(array: Any) -> Array:
    """log(abs(det(array)))."""
    return arrays.apply(LOG_ABSOLUTE_DETERMINANT, asarray(array))


def slogdet(array: Any) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    return sign(det(array)), logabsdet(array)


def matrix_power(array: Any, exponent: int) -> Array:
    """A square matrix multiplied by itself, or its inverse by itself for a negative exponent."""
    base = asarray(array)
    if isinstance(exponent, bool) or not isinstance(exponent, (int, sympy.Integer)):
        raise UnsupportedError(f"matrix_power needs an integer exponent, not {exponent!r}")
    if base.ndim < 2 or base.node.shape[-1] != base.node.shape[-2]:
        raise ShapeError(f"matrix_power needs a square matrix, not {shape_text(base.shape)}")
    if exponent == 0:
        return broadcast_to(eye(base.node.shape[-1]), base.node.shape)
    if exponent < 0:
        return matrix_power(inv(base), -exponent)
    if exponent <= 4:
        return multi_dot([base] * int(exponent))
    half = matrix_power(base, exponent // 2)
    return half @ half @ base if exponent % 2 else half @ half


def multi_dot(parts: Sequence[Any]) -> Array:
    """The product of several matrices."""
    result = asarray(parts[0])
    for part in parts[1:]:
        result = result @ asarray(part)
    return result


def norm(array: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """The 2-norm of a vector, the Frobenius norm of a matrix; ord=1 for a vector's 1-norm.

    The derivative at zero is nan, as there is none.
    """
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    euclidean = ord is None or (ord == 2 and len(axes) == 1) or (ord == "fro" and len(axes) == 2)
    if euclidean:
        return sqrt(sum(operand**2, axes, keepdims))
    if len(axes) == 1 and isinstance(ord, (int, float)) and 1 <= ord < float("inf"):
        total = sum(abs(operand) ** ord, axes, keepdims)
        return total ** (1 / sympy.nsimplify(ord)) if ord != 1 else total
    raise UnsupportedError(f"norm: ord={ord!r} over {len(axes)} axes has no rule")


def softmax(array: Any, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) over `axis`, without overflow."""
    operand = asarray(array)
    moved = arrays.apply(SOFTMAX, moveaxis(operand, axis, -1))
    return moveaxis(moved, -1, axis)


def logsumexp(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis` (all axes by default), without overflow."""
    operand = asarray(array)
    axes = sorted(normalise_axes(axis, operand.ndim))
    result = operand
    for position in reversed(axes):
        result = arrays.apply(LOGSUMEXP, moveaxis(result, position, -1))
    for position in axes if keepdims else ():
        result = expand_dims(result, position)
    return result


def log_softmax(array: Any, axis: int = -1) -> Array:
    """log(softmax(x)), without overflow."""
    operand = asarray(array)
    return operand - logsumexp(operand, axis, keepdims=True)


def solve_sylvester(left: Any, right: Any, constant: Any) -> Array:
    """The X with left @ X + X @ right = constant."""
    return arrays.apply(SYLVESTER, asarray(left), asarray(right), asarray(constant))


def matrix_transpose(array: Any) -> Array:
    """The last two axes exchanged."""
    return asarray(array).mT


identity = eye
concat = concatenate

__all__ = [
    "Array",
    "abs",
    "add",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asarray",
    "block",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "concat",
    "concatenate",
    "constant",
    "cos",
    "cosh",
    "cumsum",
    "det",
    "diag",
    "diagonal",
    "dims",
    "divide",
    "dot",
    "einsum",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand_dims",
    "expit",
    "expm1",
    "eye",
    "floor",
    "full",
    "gamma",
    "gammaln",
    "hstack",
    "hypot",
    "identity",
    "inner",
    "inv",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logabsdet",
    "logaddexp",
    "logdet",
    "logsumexp",
    "matmul",
    "matrix",
    "matrix_power",
    "matrix_transpose",
    "maximum",
    "mean",
    "minimum",
    "moveaxis",
    "multi_dot",
    "multiply",
    "negative",
    "norm",
    "normcdf",
    "ones",
    "ones_like",
    "outer",
    "power",
    "reciprocal",
    "relu",
    "scalar",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "slogdet",
    "softmax",
    "softplus",
    "solve",
    "solve_sylvester",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "subtract",
    "sum",
    "swapaxes",
    "tan",
    "tanh",
    "tensor",
    "tensordot",
    "trace",
    "transpose",
    "tril",
    "triu",
    "var",
    "vdot",
    "vector",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: globals()[name] for name in __all__ if name not in ("Array", "asarray", "dims")
}
"""Every public function by its name, for NumPy's dispatch and for the text notation."""
