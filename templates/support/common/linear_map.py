"""A Jacobian or Hessian as a linear map, in a generated module.

It is a sum of terms (coefficient, sizes, outputs, inputs, factors): the arrays of `factors`, pairs
of a number in `parts` and labels, are multiplied and summed over every label that is on no axis.
`sizes` are the labels'. `outputs` and `inputs` hold one or several patterns, which give for
each axis the label whose index is that on the axis, or (offset, ((label, step), ...)) for
arithmetic of several, or (table, label) for a table's entry.
"""

# mypy: allow-untyped-defs

import copy
import itertools
import math
from functools import cache
from html import escape
from typing import Any

import numpy as np

from .arguments import _number_array, _shape_text
from .linear_map_products import _COLUMN, _reader, _steps, _strides, _Walk, _whole, _work, _writer
from .linear_map_solving import _solution

_tri = np.tri
_packed = np.tril_indices
_nonzero = np.count_nonzero
_PRODUCTS = 4
"""How many products an operator is taken to be made for, once there is a first."""
_MOST_ROUTES = 8
"""Products with matrices of so many numbers of columns are prepared at a time."""


def _ratio(above, below):
    """A quotient of sizes, inf or nan where the divisor is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(above) / below)


class _Operator:
    """A linear map from arrays of `input_shape` to arrays of `output_shape`.

    `operator @ V` takes an array of the input's shape, a vector of its size, or a matrix of as
    many rows, and gives the same of the output's. As a matrix its shape is `shape`; it is one of
    `scipy.sparse.linalg.LinearOperator`. `structure` says in words what it is made of.
    """

    def __new__(cls, *arguments):
        return object.__new__(_operator_class())

    def __init__(self, name, structure, shapes, batched, projected, terms, parts, masks, dtype):
        self.name = name
        self.structure = structure
        self.output_shape, self.input_shape = shapes
        self.shape = (math.prod(self.output_shape), math.prod(self.input_shape))
        self.dtype = np.dtype(dtype)
        super().__init__(self.dtype, self.shape)  # type: ignore[call-arg]  # LinearOperator's
        self._batched = batched
        self._projected = projected
        self._terms = terms if all(self.shape) else ()
        self._parts = parts + masks
        self._masks = len(parts)
        self._transposed = None
        self._routes: dict = {}

    def __reduce__(self):
        state: Any = super().__getstate__()
        # routes are functions, made anew for the next product
        return _Operator.__new__, (_Operator,), {**state, "_routes": {}}

    def __repr__(self):
        rows, columns = self.shape
        return f"<{self.name}: {rows} x {columns}, {self.structure}>"

    def _repr_html_(self):
        return f"<code>{escape(repr(self))}</code>"

    @property
    def T(self):
        """The transpose, a map from the output's arrays to the input's."""
        if self._transposed is None:
            other = copy.copy(self)
            other.name = f"{self.name}, transposed"
            other.output_shape, other.input_shape = self.input_shape, self.output_shape
            other.shape = self.shape[::-1]
            other._terms = tuple((c, s, ins, outs, f) for c, s, outs, ins, f in self._terms)
            other._routes = {}
            other._transposed = self
            self._transposed = other
        return self._transposed

    def _transpose(self):
        return self.T

    _adjoint = _transpose

    def __matmul__(self, other):
        if type(other) is not np.ndarray and hasattr(other, "matvec"):
            return self.dot(other)
        return self._through(other, self.input_shape, self.output_shape, self._product)

    def dot(self, other):
        """The product with a number, an array or an operator."""
        if np.isscalar(other) or hasattr(other, "matvec"):
            return super().dot(other)  # type: ignore[misc]  # that of LinearOperator
        return self @ other

    def __rmatmul__(self, other):
        array = np.asarray(other)
        if array.ndim == 2 and array.shape != self.output_shape:
            return (self.T @ array.T).T
        return self.T @ array

    def matvec(self, vector):
        """The product with a vector of as many entries as the matrix has columns, flat or a column
        as the vector is."""
        array = _dense(self.name, vector, self.dtype)
        if array.size != self.shape[1]:
            raise ValueError(
                f"{self.name}: {array.size} numbers where {self.shape[1]} are expected"
            )
        product = self._product(array.reshape(-1), 0)
        return product[:, None] if array.shape == (self.shape[1], 1) else product

    def rmatvec(self, vector):
        """The product of the transpose with a vector."""
        return self.T.matvec(vector)

    def matmat(self, matrix):
        """The product with a matrix of as many rows as this one has columns."""
        array = _dense(self.name, matrix, self.dtype)
        array = array.reshape(self.shape[1], math.prod(array.shape[1:]))
        return self._product(array, array.shape[1])

    def rmatmat(self, matrix):
        """The product of the transpose with a matrix."""
        return self.T.matmat(matrix)

    _matvec, _rmatvec, _matmat, _rmatmat = matvec, rmatvec, matmat, rmatmat

    def todense(self):
        """The array of shape (*output, *input): of one sample after the other, where both have
        the batch as their first axis."""
        return self._blocks(((0, 0),) if self._batched else ())

    def tosparse(self):
        """The matrix as a SciPy sparse array (CSR), of the entries that are not zero by
        construction."""
        from scipy.sparse import coo_array

        found = [self._entries(*sides) for sides in self._patterns()]
        rows, columns, values = (
            np.concatenate([np.empty(0, kind), *(entry[which] for entry in found)])
            for which, kind in enumerate((np.int64, np.int64, self.dtype))
        )
        return coo_array((values, (rows, columns)), shape=self.shape).tocsr()

    def solve(self, other):
        """What the operator makes `other` of, for a square one.

        Diagonals are divided by, blocks, Kronecker products, A ⊗ I + I ⊗ B and diagonals with a
        few rows and columns more are solved with as such; anything else as a dense matrix.
        Raises ValueError where it is not square or projected on a structure, and LinAlgError
        where it is singular.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{self.name}: solve needs a square operator; it is {self.shape}")
        if self._projected:
            raise ValueError(
                f"{self.name}: it is projected on {self._projected} matrices, so that as a matrix "
                "of all entries it is singular; solve with its coordinates instead"
            )
        return self._through(other, self.output_shape, self.input_shape, self._solved)

    def _through(self, other, given, asked, function):
        """Apply a function of a vector, or of a matrix and its columns, to an array of any shape
        that an operator takes."""
        array = _dense(self.name, other, self.dtype)
        size = math.prod(given)
        if array.shape == given:
            return function(array.reshape(-1), 0).reshape(asked)
        if array.shape == (size,):
            return function(array, 0)
        if array.ndim == 2 and array.shape[0] == size:
            return function(array, array.shape[1])
        raise ValueError(
            f"{self.name}: the argument has shape {_shape_text(array.shape)}; expected "
            f"{_shape_text(given)}, ({size},) or ({size}, k)"
        )

    def _solved(self, array, columns):
        return _solution(self, array, columns) if all(self.shape) else array.copy()

    # Products

    def _product(self, array, columns):
        """The product with a contiguous vector, or with a matrix of `columns` columns."""
        key = columns, array.dtype
        if key not in self._routes:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[key] = [self._route(term, *key) for term in self._terms]
        out = None
        for route in self._routes[key]:
            out = route(array, out)
        if out is None:
            return np.zeros(self.shape[:1] + (columns,) * (columns > 0), array.dtype)
        return out

    def _route(self, term, columns, dtype):
        """A function that adds the product of one term with an array to another array."""
        coefficient, sizes, outputs, inputs, _ = term
        lengths = {**dict(enumerate(sizes)), _COLUMN: columns}
        more = [_COLUMN] if columns else []
        written = [_Walk(pattern, _strides(self.output_shape, columns)) for pattern in outputs]
        read = [_Walk(pattern, _strides(self.input_shape, columns)) for pattern in inputs]
        have = [*read[0].labels, *more]
        readers = [_reader(walk, have, lengths, dtype) for walk in read]
        target = {*written[0].labels, *more}
        arrays = self._arrays(term, have, target)
        steps, have = _steps(have, target, arrays, coefficient, lengths, dtype)
        size = self.shape[:1] + (columns,) * (columns > 0)
        writers = [_writer(walk, have, lengths) for walk in written]
        order = _whole(outputs, have, more)

        def apply(array, out):
            value = readers[0](array)
            for reader in readers[1:]:
                value = value + reader(array)
            for step in steps:
                value = step(value)
            if out is None:
                if order is not None:
                    value = value.transpose(order)
                    owned = steps and value.flags.c_contiguous
                    return (value if owned else value.copy("C")).reshape(size)
                out = np.zeros(size, array.dtype)
            for writer in writers:
                writer(out, value)
            return out

        return apply

    def _arrays(self, term, have, target):
        """The arrays of a term with their labels: as one, where what they are summed over is so
        long that few products with vectors pay for it."""
        _, sizes, outputs, inputs, factors = term
        arrays = [(self._parts[number], labels) for number, labels in factors]
        axes = target.union(have) - {_COLUMN}
        every = {label for _, labels in factors for label in labels}
        if not every <= axes:
            lengths = dict(enumerate(sizes))
            vector = [label for label in have if label != _COLUMN]
            product = _work(vector, axes, [labels for _, labels in factors], lengths)
            size = math.prod(sizes[label] for label in every & axes)
            largest = max(array.size for array, _ in arrays)
            if size <= largest and math.prod(sizes[x] for x in every) <= _PRODUCTS * product:
                labels = sorted(every & axes)
                arrays = [(self._values((1.0, sizes, outputs, inputs, factors), labels), labels)]
        return arrays

    # Entries

    def _patterns(self):
        """Each term with each of its patterns: (term, output's, input's)."""
        return [
            (term, output, given)
            for term in self._terms
            for output, given in itertools.product(term[2], term[3])
        ]

    def _values(self, term, labels):
        """The products of a term's arrays, with an axis (maybe of length 1) for each label."""
        coefficient, sizes, _, _, factors = term
        present = sorted({label for _, own in factors for label in own} & set(labels))
        operands = [part for number, own in factors for part in (self._parts[number], list(own))]
        value = self.dtype.type(coefficient)
        if operands:
            summed = {label for _, own in factors for label in own}.difference(present)
            value = value * np.einsum(*operands, present, optimize=bool(summed))
            order = [label for label in labels if label in present]
            value = value.transpose([present.index(label) for label in order])
        return value.reshape([sizes[label] if label in present else 1 for label in labels])

    def _entries(self, term, output, given):
        """Rows, columns and values of a term's entries."""
        _, sizes, _, _, factors = term
        rows = _Walk(output, _strides(self.output_shape, 0))
        columns = _Walk(given, _strides(self.input_shape, 0))
        labels = list(dict.fromkeys((*rows.labels, *columns.labels)))
        shape = [sizes[label] for label in labels]
        inside = np.ones([1] * len(labels), bool)
        for number, own in factors:
            if number >= self._masks and set(own) <= set(labels):
                mask = (1.0, sizes, (), (), ((number, own),))
                inside = inside & (self._values(mask, labels) != 0)
        values = self._values(term, labels)
        arrays = (rows.index(labels, sizes), columns.index(labels, sizes), values, inside)
        *found, inside = (np.broadcast_to(array, shape) for array in arrays)
        return [array[inside] for array in found]

    def _blocks(self, common):
        """The entries with the axes that `common` pairs (output's with input's) first, then the
        other axes of the output, then those of the input."""
        outer, inner = self.output_shape, self.input_shape
        rows, columns = self._others(common)
        axes = [("out", axis) for axis, _ in common] + [("out", axis) for axis in rows]
        axes += [("in", axis) for axis in columns]
        shape = [outer[axis] if side == "out" else inner[axis] for side, axis in axes]
        dense = np.zeros(shape, self.dtype)
        steps = dict(zip(axes, _strides(shape, 0), strict=True))
        for term, output, given in self._patterns():
            walk = _Walk(output, [steps["out", axis] for axis in range(len(outer))])
            walk.follow(given, [steps.get(("in", axis), 0) for axis in range(len(inner))])
            write = _writer(walk, walk.labels, dict(enumerate(term[1])))
            write(dense.reshape(-1), self._values(term, walk.labels))
        return dense

    def _others(self, common):
        """The axes of the output and of the input that are in no pair."""
        paired = [set(), set()] if not common else [set(side) for side in zip(*common, strict=True)]
        shapes = (self.output_shape, self.input_shape)
        return [
            [axis for axis in range(len(shape)) if axis not in done]
            for shape, done in zip(shapes, paired, strict=True)
        ]


@cache
def _operator_class():
    """The class of operators, made for the first one: importing what it is of SciPy takes time."""
    from scipy.sparse.linalg import LinearOperator

    return type(_Operator.__name__, (_Operator, LinearOperator), {"__doc__": _Operator.__doc__})


def _dense(name, value, dtype):
    """An argument as a contiguous array of a type that products have."""
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value
    array = _number_array(name, "of the operator", value)
    real = np.result_type(dtype, array.dtype) if array.dtype.kind == "f" else dtype
    return np.ascontiguousarray(array, real).reshape(array.shape)
