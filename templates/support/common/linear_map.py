"""A Jacobian or Hessian as a linear map: the sum of its `_Term`s."""

# mypy: allow-untyped-defs

import copy
import itertools
import math
from functools import cache
from html import escape
from typing import Any

import numpy as np

from .arguments import _number_array, _shape_text
from .linear_map_terms import (
    _COLUMN,
    _axis_order,
    _IndexMap,
    _order,
    _reader,
    _solution,
    _steps,
    _strides,
    _Term,
    _writer,
)

_tri = np.tri
_packed = np.tril_indices
_nonzero = np.count_nonzero
_EXPECTED_PRODUCTS = 4
"""Number of products over which the preparation of an operator is assumed to spread."""
_MAX_ROUTES = 8
"""Number of prepared products, one for each number of columns and dtype, that are kept."""


def _ratio(numerator, denominator):
    """Return the quotient of two sizes; inf or nan if the denominator is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(numerator) / denominator)


class _Operator:
    """A linear map from arrays of `input_shape` to arrays of `output_shape`.

    `operator @ V` takes an array of the input's shape, a vector of its size, or a matrix of as
    many rows, and gives the same of the output's. As a matrix its shape is `shape`; it is a
    `scipy.sparse.linalg.LinearOperator`. `structure` describes its terms in words.
    """

    def __new__(cls: Any, *arguments: Any) -> Any:
        return object.__new__(_operator_class(cls))

    def __init__(self, name, structure, shapes, batched, projected, terms, parts, masks, dtype):
        self.name = name
        self.structure = structure
        self._output_shape, self._input_shape = self.output_shape, self.input_shape = shapes
        self.shape = (math.prod(self.output_shape), math.prod(self.input_shape))
        self.dtype = np.dtype(dtype)
        super().__init__(self.dtype, self.shape)  # type: ignore[call-arg]  # LinearOperator's
        self._batched = batched
        self._projected = projected
        self._terms = tuple(map(_Term._make, terms if all(self.shape) else ()))
        self._parts = parts + masks
        self._first_mask = len(parts)
        self._transposed = None
        self._routes: dict = {}

    def __reduce__(self):
        state: Any = super().__getstate__()
        # routes are closures, which cannot be pickled; the next product makes new ones
        declared = type(self).__bases__[0]
        return declared.__new__, (declared,), {**state, "_routes": {}}

    def split_batch(self, axes):
        """Give the arrays of the operator these batch axes in place of the one of its terms."""
        self.output_shape = (*axes, *self._output_shape[1:])
        if self._batched:
            self.input_shape = (*axes, *self._input_shape[1:])

    def __repr__(self):
        rows, columns = self.shape
        return f"<{self.name}: {rows} x {columns}, {self.structure}>"

    def _repr_html_(self):
        return f"<code>{escape(repr(self))}</code>"

    @property
    def T(self):
        """The transpose, a map from the output's arrays to the input's."""
        if self._transposed is None:
            transpose = copy.copy(self)
            transpose.name = f"{self.name}, transposed"
            transpose.output_shape, transpose.input_shape = self.input_shape, self.output_shape
            shapes = self._input_shape, self._output_shape
            transpose._output_shape, transpose._input_shape = shapes
            transpose.shape = self.shape[::-1]
            transpose._exchange_sides()
            transpose._transposed = self
            self._transposed = transpose
        return self._transposed

    def _exchange_sides(self):
        """Transpose the terms."""
        self._terms = tuple(
            term._replace(outputs=term.inputs, inputs=term.outputs) for term in self._terms
        )
        self._routes = {}

    def _transpose(self):
        return self.T

    _adjoint = _transpose

    def __matmul__(self, operand):
        if type(operand) is not np.ndarray and hasattr(operand, "matvec"):
            return self.dot(operand)
        return self._apply(self._product, operand, self.input_shape, self.output_shape)

    def dot(self, operand):
        """Multiply by a number, an array or an operator."""
        if np.isscalar(operand) or hasattr(operand, "matvec"):
            return super().dot(operand)  # type: ignore[misc]  # that of LinearOperator
        return self @ operand

    def __rmatmul__(self, operand):
        array = np.asarray(operand)
        if array.ndim == 2 and array.shape != self.output_shape:
            return (self.T @ array.T).T
        return self.T @ array

    def matvec(self, vector):
        """Multiply by a vector of as many entries as the matrix has columns, of shape (n,) or (n,
        1) as the vector."""
        array = _dense(self.name, vector, self.dtype)
        if array.size != self.shape[1]:
            raise ValueError(
                f"{self.name}: {array.size} numbers where {self.shape[1]} are expected"
            )
        product = self._product(array.reshape(-1), 0)
        return product[:, None] if array.shape == (self.shape[1], 1) else product

    def rmatvec(self, vector):
        """Multiply the transpose by a vector."""
        return self.T.matvec(vector)

    def matmat(self, matrix):
        """Multiply by a matrix of as many rows as this one has columns."""
        array = _dense(self.name, matrix, self.dtype)
        array = array.reshape(self.shape[1], math.prod(array.shape[1:]))
        return self._apply_to_columns(self._product, array, self.shape[0])

    def rmatmat(self, matrix):
        """Multiply the transpose by a matrix."""
        return self.T.matmat(matrix)

    _matvec, _rmatvec, _matmat, _rmatmat = matvec, rmatvec, matmat, rmatmat

    def todense(self):
        """Return the array of shape (*output, *input); for a batch (*batch, *output, *input) of
        each sample by itself."""
        if not self._batched:
            return self._blocks(()).reshape(self.output_shape + self.input_shape)
        blocks = self._blocks(((0, 0),))
        return blocks.reshape((*self.output_shape, *self._input_shape[1:]))

    def tosparse(self):
        """Return the matrix as a SciPy sparse array (CSR) without the entries that are structurally
        zero."""
        from scipy.sparse import coo_array

        entries = [self._entries(*pattern) for pattern in self._patterns()]
        rows, columns, values = (
            np.concatenate([np.empty(0, dtype), *(entry[position] for entry in entries)])
            for position, dtype in enumerate((np.int64, np.int64, self.dtype))
        )
        return coo_array((values, (rows, columns)), shape=self.shape).tocsr()

    def diagonal(self):
        """Compute the diagonal of a square operator, of the input's shape; no larger array is made
        where every axis of a term has a label of its own."""
        if self.shape[0] != self.shape[1]:
            raise ValueError(
                f"{self.name}: only a square operator has a diagonal; it is {self.shape}"
            )
        diagonal = np.zeros(self.shape[0], self.dtype)
        for term, output, input_ in self._patterns():
            has_labels = all(isinstance(place, int) for place in output + input_)
            if has_labels and self._output_shape == self._input_shape:
                term = term.with_equal(output, input_)
                index_map = _IndexMap(term.outputs[0], _strides(self._output_shape, 0))
                write = _writer(index_map, index_map.labels, dict(enumerate(term.sizes)))
                write(diagonal, self._values(term, index_map.labels))
            else:
                rows, columns, values = self._entries(term, output, input_)
                np.add.at(diagonal, rows[rows == columns], values[rows == columns])
        return diagonal.reshape(self.input_shape)

    def trace(self):
        """Compute the sum of the diagonal of a square operator."""
        return self.diagonal().sum()

    def solve(self, right):
        """The array V with operator @ V = right, for a square operator.

        Diagonal, block diagonal and Kronecker operators, A ⊗ I + I ⊗ B, and diagonals plus a matrix
        of low rank are solved by their structure, others as a dense matrix. Raises ValueError for
        an operator that is not square or is projected on a structure, LinAlgError for a singular
        one."""
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"{self.name}: solve needs a square operator; it is {self.shape}")
        if self._projected:
            raise ValueError(
                f"{self.name}: it is projected on {self._projected} matrices, so that as a matrix "
                "of all entries it is singular; solve with its coordinates instead"
            )
        return self._apply(self._solve, right, self.output_shape, self.input_shape)

    def _apply(self, function, operand, shape, result_shape):
        """Call function(vector, 0) or function(matrix, columns) with an operand of `shape`, flat,
        or with further columns, and give its result the corresponding shape."""
        array = _dense(self.name, operand, self.dtype)
        size = math.prod(shape)
        if array.shape == shape:
            return function(array.reshape(-1), 0).reshape(result_shape)
        if array.shape == (size,):
            return function(array, 0)
        if array.ndim == 2 and array.shape[0] == size:
            return self._apply_to_columns(function, array, math.prod(result_shape))
        raise ValueError(
            f"{self.name}: the argument has shape {_shape_text(array.shape)}; expected "
            f"{_shape_text(shape)}, ({size},) or ({size}, k)"
        )

    def _apply_to_columns(self, function, array, rows):
        """Call function(matrix, columns), for which 0 columns would mean a vector."""
        columns = array.shape[1]
        return function(array, columns) if columns else np.zeros((rows, 0), array.dtype)

    def _solve(self, array, columns):
        return _solution(self, array, columns) if all(self.shape) else array.copy()

    # Products

    def _product(self, array, columns):
        """Multiply by a contiguous vector, or by a matrix of `columns` columns."""
        key = columns, array.dtype
        if key not in self._routes:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = [self._route(term, *key) for term in self._terms]
        out = None
        for route in self._routes[key]:
            out = route(array, out)
        if out is None:
            return np.zeros(self.shape[:1] + (columns,) * (columns > 0), array.dtype)
        return out

    def _route(self, term, columns, dtype):
        """Prepare the product of one term: a function (array, out) that adds it to `out` and
        returns `out`; a new array if `out` is None."""
        lengths = {**dict(enumerate(term.sizes)), _COLUMN: columns}
        column = [_COLUMN] if columns else []
        output_strides = _strides(self._output_shape, columns)
        input_strides = _strides(self._input_shape, columns)
        output_maps = [_IndexMap(pattern, output_strides) for pattern in term.outputs]
        input_maps = [_IndexMap(pattern, input_strides) for pattern in term.inputs]
        labels = [*input_maps[0].labels, *column]
        readers = [_reader(index_map, labels, lengths, dtype) for index_map in input_maps]
        target = {*output_maps[0].labels, *column}
        arrays = self._arrays(term, labels, target)
        steps, labels = _steps(labels, target, arrays, term.coefficient, lengths, dtype)
        size = self.shape[:1] + (columns,) * (columns > 0)
        writers = [_writer(index_map, labels, lengths) for index_map in output_maps]
        order = _axis_order(term.outputs, labels, column)

        def apply(array, out):
            value = readers[0](array)
            for reader in readers[1:]:
                value = value + reader(array)
            for step in steps:
                value = step(value)
            if out is None:
                if order is not None:
                    value = value.transpose(order)
                    # without steps, the value is a view of the caller's array
                    is_new = steps and value.flags.c_contiguous
                    return (value if is_new else value.copy("C")).reshape(size)
                out = np.zeros(size, array.dtype)
            for writer in writers:
                writer(out, value)
            return out

        return apply

    def _arrays(self, term, input_labels, target):
        """List the (array, labels) pairs that a product with a term multiplies by.

        They are contracted to one array beforehand if that costs at most as much as
        _EXPECTED_PRODUCTS products with a vector, and the result is no larger than its factors."""
        sizes, factors = term.sizes, term.factors
        arrays = [(self._parts[number], labels) for number, labels in factors]
        axes = target.union(input_labels) - {_COLUMN}
        labels = term.labels
        if not labels <= axes:
            lengths = dict(enumerate(sizes))
            vector = [label for label in input_labels if label != _COLUMN]
            _, product = _order(vector, axes, factors, lengths)
            size = math.prod(sizes[label] for label in labels & axes)
            largest = max(array.size for array, _ in arrays)
            contraction = math.prod(sizes[label] for label in labels)
            if size <= largest and contraction <= _EXPECTED_PRODUCTS * product:
                remaining = sorted(labels & axes)
                arrays = [(self._values(term._replace(coefficient=1.0), remaining), remaining)]
        return arrays

    # Entries

    def _patterns(self):
        """Yield each term with each of its pairs of patterns: (term, output pattern, input
        pattern)."""
        return [
            (term, output, input_)
            for term in self._terms
            for output, input_ in itertools.product(term.outputs, term.inputs)
        ]

    def _values(self, term, labels):
        """Compute the product of a term's arrays with an axis for each label, of length 1 where no
        array depends on the label."""
        present = sorted(term.labels & set(labels))
        operands = []
        for number, factor_labels in term.factors:
            operands += [self._parts[number], list(factor_labels)]
        value = self.dtype.type(term.coefficient)
        if operands:
            is_contraction = not term.labels <= set(present)
            value = value * np.einsum(*operands, present, optimize=is_contraction)
            order = [label for label in labels if label in present]
            value = value.transpose([present.index(label) for label in order])
        return value.reshape([term.sizes[label] if label in present else 1 for label in labels])

    def _entries(self, term, output, input_):
        """Rows, columns and values of the entries of a term within its masks."""
        sizes = term.sizes
        rows = _IndexMap(output, _strides(self._output_shape, 0))
        columns = _IndexMap(input_, _strides(self._input_shape, 0))
        labels = list(dict.fromkeys((*rows.labels, *columns.labels)))
        shape = [sizes[label] for label in labels]
        mask = np.ones([1] * len(labels), bool)
        for factor in term.factors:
            number, factor_labels = factor
            if number >= self._first_mask and set(factor_labels) <= set(labels):
                mask = mask & (self._values(_Term(1.0, sizes, (), (), (factor,)), labels) != 0)
        values = self._values(term, labels)
        arrays = (rows.index(labels, sizes), columns.index(labels, sizes), values, mask)
        *entries, mask = (np.broadcast_to(array, shape) for array in arrays)
        return [array[mask] for array in entries]

    def _blocks(self, shared_axes):
        """Return the entries as an array: first the axes that `shared_axes` pairs (output's with
        input's), then the other axes of the output, then those of the input."""
        rows, columns = self._unshared_axes(shared_axes)
        output_axes = [*(axis for axis, _ in shared_axes), *rows]
        axes = [("out", axis) for axis in output_axes] + [("in", axis) for axis in columns]
        shapes = {"out": self._output_shape, "in": self._input_shape}
        shape = [shapes[side][axis] for side, axis in axes]
        dense = np.zeros(shape, self.dtype)
        strides = dict(zip(axes, _strides(shape, 0), strict=True))
        output_strides = [strides["out", axis] for axis in range(len(self._output_shape))]
        # a shared axis of the input adds nothing: the index is that of the output's
        input_strides = [strides.get(("in", axis), 0) for axis in range(len(self._input_shape))]
        for term, output, input_ in self._patterns():
            index_map = _IndexMap(output, output_strides)
            index_map.add(input_, input_strides)
            write = _writer(index_map, index_map.labels, dict(enumerate(term.sizes)))
            write(dense.reshape(-1), self._values(term, index_map.labels))
        return dense

    def _unshared_axes(self, shared_axes):
        """List the axes of the output, and of the input, that are in no pair of `shared_axes`."""
        outputs, inputs = {axis for axis, _ in shared_axes}, {axis for _, axis in shared_axes}
        return (
            [axis for axis in range(len(self._output_shape)) if axis not in outputs],
            [axis for axis in range(len(self._input_shape)) if axis not in inputs],
        )


@cache
def _operator_class(cls):
    """Make the class of an operator. It imports SciPy's base class, which takes time, for the first
    operator."""
    from scipy.sparse.linalg import LinearOperator

    return type(cls.__name__, (cls, LinearOperator), {"__doc__": cls.__doc__})


def _dense(name, value, dtype):
    """Convert an operand to a contiguous array of the operator's dtype, or of a wider float
    type."""
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value
    array = _number_array(name, "of the operator", value)
    real = np.result_type(dtype, array.dtype) if array.dtype.kind == "f" else dtype
    return np.ascontiguousarray(array, real).reshape(array.shape)
