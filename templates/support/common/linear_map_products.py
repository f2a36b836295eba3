"""Products with the terms of an operator (see `linear_map`): where entries lie in memory, and the
array operations that one product with a vector or a matrix takes."""

# mypy: allow-untyped-defs

import itertools
import math

import numpy as np

_COLUMN = -1
"""The label of the columns of a matrix that an operator is applied to."""
_MOST_ORDERS = 4
"""Every order of so many arrays is tried."""


class _Walk:
    """Where entries lie in memory: at `offset`, plus a stride times each label, plus a stride
    times a table's entry at a label."""

    def __init__(self, pattern, strides):
        self.offset = 0
        self.strides: dict = {}
        self.tables: list = []
        self.follow(pattern, strides)

    def follow(self, pattern, strides):
        """Add what the labels on further axes do."""
        for place, stride in zip(pattern, strides, strict=True):
            if isinstance(place, int):
                self._step(place, stride)
            elif isinstance(place[1], int):
                table, label = place
                self._step(label, 0)
                self.tables.append((label, stride * np.asarray(table)))
            else:
                offset, steps = place
                self.offset += stride * offset
                for label, step in steps:
                    self._step(label, stride * step)

    def _step(self, label, stride):
        self.strides[label] = self.strides.get(label, 0) + stride

    @property
    def labels(self):
        return list(self.strides)

    def stride(self, label):
        return 1 if label == _COLUMN else self.strides[label]

    def index(self, labels, lengths):
        """The places as an array with an axis for each label."""
        found = np.full([1] * len(labels), self.offset)
        for axis, label in enumerate(labels):
            shape = [1] * len(labels)
            shape[axis] = lengths[label]
            if label == _COLUMN or label in self.strides:
                found = found + self.stride(label) * np.arange(lengths[label]).reshape(shape)
            for other, table in self.tables:
                if other == label:
                    found = found + table.reshape(shape)
        return found


def _strides(shape, columns):
    """The distances of neighbours along each axis, in entries, where each entry is a row of
    `columns` numbers (0: a number)."""
    found = []
    step = max(columns, 1)
    for size in reversed(shape):
        found.append(step)
        step *= size
    return found[::-1]


def _reader(walk, labels, lengths, dtype):
    """A function that gives the entries of a flat array, with an axis for each label."""
    if walk.tables:
        index = walk.index(labels, lengths)
        return lambda array: array.reshape(-1)[index]
    shape = tuple(lengths[label] for label in labels)
    strides = tuple(walk.stride(label) * dtype.itemsize for label in labels)
    offset = walk.offset * dtype.itemsize
    return lambda array: _view(shape, dtype, array, offset, strides)


def _view(shape, dtype, array, offset, strides):
    """Entries of a flat array; of none NumPy would ask where they lie."""
    return (
        np.ndarray(shape, dtype, array, offset, strides) if all(shape) else np.empty(shape, dtype)
    )


def _writer(walk, labels, lengths):
    """A function that adds an array with an axis for each label to the entries of a flat one."""
    missing = [label for label in walk.labels if label not in labels]
    axes = [*missing, *labels]
    shape = tuple(lengths[label] for label in axes)
    if walk.tables:
        index = walk.index(axes, lengths)
        return lambda out, value: np.add.at(out.reshape(-1), index, value)
    steps = tuple(walk.stride(label) for label in axes)

    def write(out, value):
        strides = tuple(step * out.itemsize for step in steps)
        view = _view(shape, out.dtype, out, walk.offset * out.itemsize, strides)
        view += value

    return write


def _whole(outputs, have, more):
    """How the axes of a result are to be ordered where it is the whole output, else None."""
    if len(outputs) != 1 or not all(isinstance(place, int) for place in outputs[0]):
        return None
    wanted = [*outputs[0], *more]
    if len(set(wanted)) < len(wanted) or set(wanted) != set(have):
        return None
    return [have.index(label) for label in wanted]


def _steps(have, target, arrays, coefficient, lengths, dtype):
    """The functions that turn an array with the labels `have` into one with those of `target`
    (as far as they have an array), and the labels that the last one's axes have."""
    scale = float(coefficient)
    factors = []
    for array, labels in arrays:
        others = {label for other, own in arrays if own is not labels for label in own}
        kept = [label for label in labels if label in others | target | set(have)]
        alone = tuple(axis for axis, label in enumerate(labels) if label not in kept)
        array = array.sum(axis=alone) if alone else array
        if kept:
            factors.append((array, tuple(kept)))
        else:
            scale *= float(array)
    needed = target.union(*(labels for _, labels in factors))
    steps = []
    alone = tuple(axis for axis, label in enumerate(have) if label not in needed)
    if alone:
        steps.append(lambda value: value.sum(axis=alone))
        have = [label for label in have if label in needed]
    order = _order(have, target, factors, lengths)
    smallest = min(range(len(order)), key=lambda number: order[number][0].size, default=None)
    for number, (array, labels) in enumerate(order):
        array = array * dtype.type(scale) if number == smallest and scale != 1 else array
        keep = target.union(*(own for _, own in order[number + 1 :]))
        step, have = _step(have, array, labels, keep, lengths)
        steps.append(step)
    if not order and scale != 1:
        number = dtype.type(scale)
        steps.append(lambda value: number * value)
    return steps, have


def _order(have, target, factors, lengths):
    """The factors in the order that takes the fewest multiplications."""

    def cost(order):
        return _work(have, target, [labels for _, labels in order], lengths)

    if len(factors) <= _MOST_ORDERS:
        return min(itertools.permutations(factors), key=cost)
    order: list = []
    rest = list(factors)
    while rest:
        orders = ([*order, rest[n], *rest[:n], *rest[n + 1 :]] for n in range(len(rest)))
        order.append(min(orders, key=cost)[len(order)])
        rest = [factor for factor in rest if factor is not order[-1]]
    return order


def _work(have, target, order, lengths):
    """The multiplications that a product with arrays of these labels takes, one by one."""
    current, total = set(have), 0
    for number, labels in enumerate(order):
        total += math.prod(lengths[label] for label in current.union(labels))
        current = current.union(labels) & target.union(*order[number + 1 :])
    return total


def _step(have, array, labels, keep, lengths):
    """A function that multiplies with an array and sums over what is not kept, and the labels
    of its result."""
    summed = [label for label in have if label in labels and label not in keep]
    stacked = [label for label in have if label in labels and label in keep]
    own = [label for label in have if label not in labels]
    new = [label for label in labels if label not in have]
    if not summed:
        return _scaling(have, array, labels, new, lengths)
    if stacked and not own and not new:
        axes = [[have.index(label) for label in each] for each in (have, labels, stacked)]
        return lambda value: np.einsum(value, axes[0], array, axes[1], axes[2]), stacked
    right = have[-len(summed) :] == summed
    sides = [*stacked, *summed, *new] if right else [*stacked, *new, *summed]
    ready = _matrices(
        array, labels, sides, len(stacked), len(summed) if right else len(new), lengths
    )
    order = [*stacked, *own, *summed] if right else [*stacked, *summed, *own]
    axes = [have.index(label) for label in order]
    lead = tuple(lengths[label] for label in stacked)
    inner, outer = (math.prod(lengths[label] for label in each) for each in (summed, own))
    shape = (*lead, outer, inner) if right else (*lead, inner, outer)
    result = [*stacked, *own, *new] if right else [*stacked, *new, *own]
    sizes = tuple(lengths[label] for label in result)

    def multiply(value):
        value = value.transpose(axes).reshape(shape)
        return (value @ ready if right else ready @ value).reshape(sizes)

    return multiply, result


def _scaling(have, array, labels, new, lengths):
    order = [label for label in have if label in labels] + new
    ready = array.transpose([labels.index(label) for label in order])
    ready = ready.reshape([lengths[x] if x in labels else 1 for x in (*have, *new)])
    if not new:
        return lambda value: value * ready, have
    more = (1,) * len(new)
    return lambda value: value.reshape(value.shape + more) * ready, [*have, *new]


def _matrices(array, labels, order, stacked, rows, lengths):
    """An array as matrices: axes ordered, the first `stacked` kept, `rows` of them rows."""
    sizes = [lengths[label] for label in order]
    end = stacked + rows
    shape = (*sizes[:stacked], math.prod(sizes[stacked:end]), math.prod(sizes[end:]))
    return array.transpose([labels.index(label) for label in order]).reshape(shape)
