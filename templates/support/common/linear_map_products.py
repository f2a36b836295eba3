"""Products with the terms of an operator (see `linear_map`): the position of entries in memory, and
the array operations of one product with a vector or a matrix."""

# mypy: allow-untyped-defs

import heapq
import math
from typing import Any, NamedTuple

import numpy as np

_COLUMN = -1
"""The label of the columns of a matrix that an operator is applied to."""


class _Term(NamedTuple):
    """A summand of an operator: coefficient · Σ of the product of `factors`, over all labels that
    are on no axis.

    sizes: the length of each label. factors: pairs of an array's number in the operator's parts and
    the labels of its axes. outputs, inputs: patterns, of which each places the term in the matrix
    once; a pattern has an entry for each axis: a label, (offset, ((label, step), ...)) for the
    index offset + Σ step · label, or (table, label) for table[label]."""

    coefficient: Any
    sizes: tuple
    outputs: tuple
    inputs: tuple
    factors: tuple

    @property
    def labels(self):
        """The labels of all factors."""
        return {label for _, labels in self.factors for label in labels}

    def with_equal(self, output, input_):
        """Restrict the term to the entries where the labels of an output and an input pattern are
        equal, axis by axis."""
        names = list(range(len(self.sizes)))
        for one, other in zip(output, input_, strict=True):
            names = [names[one] if name == names[other] else name for name in names]
        factors = tuple(
            (part, tuple(names[label] for label in labels)) for part, labels in self.factors
        )
        return self._replace(outputs=(tuple(names[label] for label in output),), factors=factors)


class _IndexMap:
    """The position of entries in memory: offset + Σ stride · label + Σ stride · table[label]."""

    def __init__(self, pattern, strides):
        self.offset = 0
        self.strides: dict = {}
        self.tables: list = []
        self.add(pattern, strides)

    def add(self, pattern, strides):
        """Add the contribution of further axes."""
        for place, stride in zip(pattern, strides, strict=True):
            if isinstance(place, int):
                self._add_stride(place, stride)
            elif isinstance(place[1], int):
                table, label = place
                self._add_stride(label, 0)
                self.tables.append((label, stride * np.asarray(table)))
            else:
                offset, steps = place
                self.offset += stride * offset
                for label, step in steps:
                    self._add_stride(label, stride * step)

    def _add_stride(self, label, stride):
        self.strides[label] = self.strides.get(label, 0) + stride

    @property
    def labels(self):
        return list(self.strides)

    def stride(self, label):
        return 1 if label == _COLUMN else self.strides[label]

    def index(self, labels, lengths):
        """Return the positions as an array with an axis for each label."""
        positions = np.full([1] * len(labels), self.offset)
        for axis, label in enumerate(labels):
            shape = [1] * len(labels)
            shape[axis] = lengths[label]
            if label == _COLUMN or label in self.strides:
                steps = self.stride(label) * np.arange(lengths[label])
                positions = positions + steps.reshape(shape)
            for table_label, table in self.tables:
                if table_label == label:
                    positions = positions + table.reshape(shape)
        return positions


def _strides(shape, columns):
    """Compute the strides of a C-contiguous array, in numbers, whose entries are rows of `columns`
    numbers; for 0 columns, numbers."""
    strides = []
    stride = max(columns, 1)
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return strides[::-1]


def _reader(index_map, labels, lengths, dtype):
    """Make a function that views the entries of a flat array with an axis for each label."""
    if index_map.tables:
        index = index_map.index(labels, lengths)
        return lambda array: array.reshape(-1)[index]
    shape = tuple(lengths[label] for label in labels)
    strides = tuple(index_map.stride(label) * dtype.itemsize for label in labels)
    offset = index_map.offset * dtype.itemsize
    return lambda array: _view(shape, dtype, array, offset, strides)


def _view(shape, dtype, array, offset, strides):
    """Make a strided view of a flat array; NumPy would check the bounds of an empty one, too."""
    return (
        np.ndarray(shape, dtype, array, offset, strides) if all(shape) else np.empty(shape, dtype)
    )


def _writer(index_map, labels, lengths):
    """Make a function (out, value) that adds an array with an axis for each label to a flat
    array."""
    broadcast = [label for label in index_map.labels if label not in labels]
    axes = [*broadcast, *labels]
    shape = tuple(lengths[label] for label in axes)
    if index_map.tables:
        index = index_map.index(axes, lengths)
        return lambda out, value: np.add.at(out.reshape(-1), index, value)
    step_sizes = tuple(index_map.stride(label) for label in axes)

    def write(out, value):
        strides = tuple(step * out.itemsize for step in step_sizes)
        view = _view(shape, out.dtype, out, index_map.offset * out.itemsize, strides)
        view += value

    return write


def _axis_order(outputs, labels, column):
    """Find the transposition that turns a value with axes `labels` into the whole output; None if
    the output is not the value's transpose."""
    if len(outputs) != 1 or not all(isinstance(place, int) for place in outputs[0]):
        return None
    output_labels = [*outputs[0], *column]
    if len(set(output_labels)) < len(output_labels) or set(output_labels) != set(labels):
        return None
    return [labels.index(label) for label in output_labels]


def _steps(value_labels, target, arrays, coefficient, lengths, dtype):
    """List the functions that, one after the other, turn a value with axes `value_labels` into the
    product with the arrays, summed over all labels but `target`; and the labels of the result's
    axes.

    A label of `target` that neither the value nor an array has is on no axis of the result."""
    scale = float(coefficient)
    factors = []
    for array, labels in arrays:
        required = target.union(
            value_labels, *(names for _, names in arrays if names is not labels)
        )
        remaining = tuple(label for label in labels if label in required)
        summed = tuple(axis for axis, label in enumerate(labels) if label not in required)
        array = array.sum(axis=summed) if summed else array
        if remaining:
            factors.append((array, remaining))
        else:
            scale *= float(array)
    required = target.union(*(labels for _, labels in factors))
    steps = []
    summed = tuple(axis for axis, label in enumerate(value_labels) if label not in required)
    if summed:
        steps.append(lambda value: value.sum(axis=summed))
        value_labels = [label for label in value_labels if label in required]
    order, _ = _order(value_labels, target, factors, lengths)
    smallest = min(range(len(order)), key=lambda number: order[number][0].size, default=None)
    for number, (array, labels) in enumerate(order):
        array = array * dtype.type(scale) if number == smallest and scale != 1 else array
        remaining = target.union(*(labels for _, labels in order[number + 1 :]))
        step, value_labels = _step(value_labels, array, labels, remaining, lengths)
        steps.append(step)
    if not order and scale != 1:
        number = dtype.type(scale)
        steps.append(lambda value: number * value)
    return steps, value_labels


def _order(value_labels, target, factors, lengths):
    """Order the factors for the fewest multiplications of a value by one after the other, and
    return these as well. The set of the factors used decides which labels the value has, so that
    the best order is a shortest path over these sets (Dijkstra's algorithm)."""
    labels = [frozenset(names) for _, names in factors]
    paths: list = [(0, ())]
    visited = set()
    while True:
        cost, order = heapq.heappop(paths)
        used = frozenset(order)
        if used in visited:
            continue
        if len(order) == len(factors):
            return [factors[number] for number in order], cost
        visited.add(used)
        unused = [number for number in range(len(factors)) if number not in used]
        required = target.union(*(labels[number] for number in unused))
        current = required.intersection({*value_labels}.union(*(labels[n] for n in used)))
        for number in unused:
            work = math.prod(lengths[label] for label in current | labels[number])
            heapq.heappush(paths, (cost + work, (*order, number)))


def _step(value_labels, array, labels, remaining, lengths):
    """Return a function that multiplies a value by an array and sums over all labels but
    `remaining`, and the labels of its result: a product of stacks of matrices where there is
    something to sum."""
    summed = [label for label in value_labels if label in labels and label not in remaining]
    stack = [label for label in value_labels if label in labels and label in remaining]
    value_only = [label for label in value_labels if label not in labels]
    array_only = [label for label in labels if label not in value_labels]
    if not summed:
        return _scaling(value_labels, array, labels, array_only, lengths)
    if stack and not value_only and not array_only:
        axes = [[value_labels.index(x) for x in names] for names in (value_labels, labels, stack)]
        return lambda value: np.einsum(value, axes[0], array, axes[1], axes[2]), stack

    def matrix_view(names, rows, columns):
        axes = [names.index(label) for label in (*stack, *rows, *columns)]
        sizes = (math.prod(lengths[label] for label in group) for group in (rows, columns))
        return axes, (*(lengths[label] for label in stack), *sizes)

    # the array on the side where the value's summed axes are: the value is not copied
    is_right = value_labels[-len(summed) :] == summed
    if is_right:
        axes, shape = matrix_view(value_labels, value_only, summed)
        array_axes, array_shape = matrix_view(labels, summed, array_only)
        result_labels = [*stack, *value_only, *array_only]
    else:
        axes, shape = matrix_view(value_labels, summed, value_only)
        array_axes, array_shape = matrix_view(labels, array_only, summed)
        result_labels = [*stack, *array_only, *value_only]
    matrices = array.transpose(array_axes).reshape(array_shape)
    result_shape = tuple(lengths[label] for label in result_labels)

    def multiply(value):
        value = value.transpose(axes).reshape(shape)
        return (value @ matrices if is_right else matrices @ value).reshape(result_shape)

    return multiply, result_labels


def _scaling(value_labels, array, labels, array_only, lengths):
    """Return a function that multiplies a value by an array without a sum, and the labels of its
    result."""
    order = [label for label in value_labels if label in labels] + array_only
    result_labels = [*value_labels, *array_only]
    weights = array.transpose([labels.index(label) for label in order])
    weights = weights.reshape([lengths[x] if x in labels else 1 for x in result_labels])
    if not array_only:
        return lambda value: value * weights, value_labels
    new_axes = (1,) * len(array_only)
    return lambda value: value.reshape(value.shape + new_axes) * weights, result_labels
