"""Products and solutions with the terms of an operator (see `linear_map`).

A product needs the position of entries in memory, and array operations on a vector or a matrix.
Systems are solved by the structure of the terms: `shared` are the pairs of axes, of output and
input, along which the operator is block diagonal, which solvers treat as a stack; `rows` and
`columns` are the other axes of output and input. The right-hand sides have the axes (*shared,
*rows, side), solutions (*shared, *columns, side)."""

# mypy: allow-untyped-defs

import heapq
import math
from typing import Any, NamedTuple

import numpy as np

_COLUMN = -1
"""The label of the columns of a matrix that an operator is applied to."""
_SINGULAR = 1e-13
"""A singular value this small, relative to the largest, counts as zero."""
_MAX_REFINEMENTS = 3
"""Most times that Woodbury's formula is applied to the residual of a solution."""
_MAX_ROUNDINGS = 1000
"""Largest residual of a solution by Woodbury's formula, in rounding errors of its terms."""


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


# Solutions


def _solution(operator, array, side_count):
    """Solve with a vector (side_count 0) or a matrix of `side_count` right-hand sides."""
    shared = _shared_axes(operator)
    rows, columns = operator._unshared_axes(shared)
    stack = tuple(operator._output_shape[axis] for axis, _ in shared)
    right = array.reshape(*operator._output_shape, -1)
    right = right.transpose([*(axis for axis, _ in shared), *rows, right.ndim - 1])
    if not rows:
        weights = operator._blocks(shared).reshape(stack)  # all further axes have length 1
        if not weights.all():
            raise np.linalg.LinAlgError(f"{operator.name}: the diagonal has a zero")
        solution = right / weights[..., None]
    else:
        for method in (_solve_kronecker, _solve_sylvester, _solve_low_rank_update):
            solution = method(operator, shared, rows, columns, right)
            if solution is not None:
                break
        else:
            size = math.prod(right.shape[len(stack) : -1])
            blocks = operator._blocks(shared).reshape(*stack, size, -1)
            solution = np.linalg.solve(blocks, right.reshape(*stack, size, -1))
    axes = [*(axis for _, axis in shared), *columns]
    solution = solution.reshape(*(operator._input_shape[axis] for axis in axes), -1)
    solution = solution.transpose([*np.argsort(axes), len(axes)])
    return np.ascontiguousarray(solution).reshape((-1, side_count) if side_count else -1)


def _shared_axes(operator):
    """List the pairs of axes, of output and input, whose indices are equal in every term."""
    pairs = [_pairs(output, input_) for _, output, input_ in operator._patterns()]
    return sorted(set.intersection(*pairs)) if pairs else []


def _solve_kronecker(operator, shared, rows, columns, right):
    """Compute the solution for one term that is a Kronecker product of square matrices, or a stack
    of such; None for another operator."""
    if not _are_simple(operator._terms, 1):
        return None
    ((coefficient, sizes, (output,), (input_,), factors),) = operator._terms
    stack_labels = [output[axis] for axis, _ in shared]
    first = len(stack_labels) + 1
    solution = np.moveaxis(right, -1, first - 1) / coefficient
    axes = [("out", axis) for axis in rows]  # those of `solution` from `first` on
    for group in _components(factors, set(stack_labels)):
        term = _Term(1.0, sizes, (), (), group)
        row_axes = [axis for axis in rows if output[axis] in term.labels]
        column_axes = [axis for axis in columns if input_[axis] in term.labels]
        row_labels = [output[axis] for axis in row_axes]
        column_labels = [input_[axis] for axis in column_axes]
        matrix = operator._values(term, [*stack_labels, *row_labels, *column_labels])
        size = math.prod(sizes[label] for label in row_labels)
        if size != math.prod(sizes[label] for label in column_labels):
            return None
        matrix = matrix.reshape(*matrix.shape[: first - 1], size, size)
        solved = [("out", axis) for axis in row_axes]
        places = [first + axes.index(axis) for axis in solved]
        axes = [axis for axis in axes if axis not in solved]
        axes += [("in", axis) for axis in column_axes]
        if places:
            solution = np.moveaxis(solution, places, range(-len(places), 0))
        else:
            solution = solution[..., None]
        lead = solution.shape[: solution.ndim - max(len(places), 1)]
        flat = solution.reshape(*lead[: first - 1], -1, size)
        flat = np.linalg.solve(matrix, flat.swapaxes(-1, -2)).swapaxes(-1, -2)
        solution = flat.reshape(*lead, *(sizes[label] for label in column_labels))
    if sorted(axes) != sorted(("in", axis) for axis in columns):
        return None
    order = [first + axes.index(("in", axis)) for axis in columns]
    return solution.transpose([*range(first - 1), *order, first - 1])


def _solve_sylvester(operator, shared, rows, columns, right):
    """The solution V of A V + V Bᵀ = right for A ⊗ I + I ⊗ B; None for another operator."""
    if shared or len(rows) != 2 or len(columns) != 2 or not _are_simple(operator._terms, 2):
        return None
    identities = [_pairs(term.outputs[0], term.inputs[0]) for term in operator._terms]
    if [len(pairs) for pairs in identities] != [1, 1]:
        return None
    ((i_row, i_column),), ((j_row, j_column),) = identities  # the axes of I in A ⊗ I, and in I ⊗ B
    if i_row == j_row or i_column == j_column:
        return None
    matrices = []
    for term, identity_row, row, column in zip(
        operator._terms, (i_row, j_row), (j_row, i_row), (j_column, i_column), strict=True
    ):
        _, sizes, (output,), (input_,), _ = term
        if output[identity_row] in term.labels:
            return None
        labels = [output[row], input_[column]]
        square = [sizes[label] for label in labels]
        matrices.append(np.broadcast_to(operator._values(term, labels), square))
    from scipy.linalg import lapack, schur

    sides = right if j_row < i_row else right.swapaxes(0, 1)
    (a_form, a_vectors), (b_form, b_vectors) = schur(matrices[0]), schur(matrices[1].T)
    trsyl = lapack.get_lapack_funcs("trsyl", (a_form, b_form))
    solution = np.empty_like(sides)
    for number in range(sides.shape[-1]):
        transformed = a_vectors.T @ sides[..., number] @ b_vectors
        transformed, scale, failure = trsyl(a_form, b_form, transformed)
        if failure:
            raise np.linalg.LinAlgError(f"{operator.name}: it is singular")
        solution[..., number] = a_vectors @ transformed @ b_vectors.T / scale
    return solution if j_column < i_column else solution.swapaxes(0, 1)


def _solve_low_rank_update(operator, shared, rows, columns, right):
    """Compute the solution for diag(d) + U W of low rank, by Woodbury's formula; None for another
    operator, or if small entries of d beside large ones make the formula inaccurate."""
    stack = tuple(operator._output_shape[axis] for axis, _ in shared)
    shape = tuple(operator._output_shape[axis] for axis in rows)
    diagonals, low_rank_terms, pairing = [], [], None
    for term in operator._terms:
        if not _are_simple([term], 1):
            return None
        pairs = _pairs(term.outputs[0], term.inputs[0]) - set(shared)
        if not pairs:
            low_rank_terms.append(term)
        elif len(pairs) == len(rows) == len(columns) and pairing in (None, pairs):
            pairing = pairs
            labels = [term.outputs[0][axis] for axis in (*dict(shared), *rows)]
            diagonals.append(np.broadcast_to(operator._values(term, labels), stack + shape))
        else:
            return None
    if pairing is None:
        return None
    order = [dict(pairing)[axis] for axis in rows]
    us, ws = [], []
    for term in low_rank_terms:
        halves = _low_rank_factors(operator, term, shared, rows, order)
        if halves is None:
            return None
        us.append(halves[0])
        ws.append(halves[1])
    size = math.prod(shape)
    d = np.sum(diagonals, axis=0).reshape(*stack, size, 1)
    rank = sum(u.shape[-1] for u in us)
    if rank >= size or not d.all():
        return None
    u, w = np.concatenate(us, -1), np.concatenate(ws, -2)
    scaled_u = u / d
    update = w @ scaled_u
    capacitance = np.eye(rank, dtype=operator.dtype) + update

    def residual_of(vectors, sides):
        """Return sides - (diag(d) + U W) vectors, and its largest entry over that of the terms."""
        residual = sides - d * vectors - u @ (w @ vectors)
        terms = abs(sides) + abs(d * vectors) + abs(u) @ (abs(w) @ abs(vectors))
        error, scale = (abs(values).max((-2, -1), initial=0) for values in (residual, terms))
        return residual, np.divide(error, scale, out=np.zeros(stack), where=scale > 0)

    right = right.reshape(*stack, size, -1)
    max_error = _MAX_ROUNDINGS * np.finfo(right.dtype).eps
    if rank:
        _, values, vectors = np.linalg.svd(capacitance)
        is_small = values[..., -1] <= _SINGULAR * (1 + np.linalg.norm(update, 2, (-2, -1)))
        if is_small.any():  # if diag(d) + U W is singular, it maps this vector to 0
            _, product = residual_of(scaled_u @ vectors[..., -1:, :].mT, 0)
            if (is_small & (product <= max_error)).any():
                raise np.linalg.LinAlgError(f"{operator.name}: it is singular")
            return None
    solution, residual = np.zeros_like(right), right
    for _ in range(_MAX_REFINEMENTS):
        step = residual / d
        solution = solution + step - scaled_u @ np.linalg.solve(capacitance, w @ step)
        residual, size_of_residual = residual_of(solution, right)
        if not (size_of_residual > max_error).any():  # nan stays nan
            break
    else:
        return None
    solution = solution.reshape(*stack, *shape, -1)
    places = [len(stack) + order.index(axis) for axis in columns]
    return solution.transpose([*range(len(stack)), *places, solution.ndim - 1])


def _low_rank_factors(operator, term, shared, rows, columns):
    """Return the matrices U and W of a term U W, stacked along the shared axes; None for another
    term."""
    coefficient, sizes, (output,), (input_,), factors = term
    stack_labels = [output[axis] for axis, _ in shared]
    row_labels = [output[axis] for axis in rows]
    column_labels = [input_[axis] for axis in columns]
    u_factors = [factor for factor in factors if not set(factor[1]) & set(column_labels)]
    w_factors = [factor for factor in factors if factor not in u_factors]
    if any(set(labels) & set(row_labels) for _, labels in w_factors):
        return None
    summed = sorted(term.labels - {*stack_labels, *row_labels, *column_labels})
    stack, size, rank = (
        [sizes[label] for label in labels] for labels in (stack_labels, row_labels, summed)
    )

    def product(factors, scale, labels, shape):
        labels = [*stack_labels, *labels]
        values = operator._values(_Term(scale, sizes, (), (), factors), labels)
        values = np.broadcast_to(values, [sizes[label] for label in labels])
        return values.reshape(*stack, *map(math.prod, shape))

    u = product(u_factors, coefficient, [*row_labels, *summed], (size, rank))
    return u, product(w_factors, 1.0, [*summed, *column_labels], (rank, size))


def _pairs(output, input_):
    """List the pairs of axes, of output and input, that have a label which no other axis has."""
    labels = [label for place in (*output, *input_) for label in _labels(place)]
    return {
        (row, column)
        for row, row_label in enumerate(output)
        for column, column_label in enumerate(input_)
        if isinstance(row_label, int) and row_label == column_label and labels.count(row_label) == 2
    }


def _labels(place):
    """List the labels in a pattern's entry for one axis."""
    if isinstance(place, int):
        return (place,)
    return (place[1],) if isinstance(place[1], int) else tuple(label for label, _ in place[1])


def _are_simple(terms, count):
    """Return whether there are `count` terms, each with one pattern of distinct labels for output
    and input."""
    sides = [side for term in terms for side in (term.outputs, term.inputs)]
    return len(terms) == count and all(
        len(side) == 1
        and all(isinstance(place, int) for place in side[0])
        and len(set(side[0])) == len(side[0])
        for side in sides
    )


def _components(factors, stack_labels):
    """Group the factors that are connected by labels other than `stack_labels`."""
    groups: list = []
    for factor in factors:
        labels = set(factor[1]) - stack_labels
        connected = [group for group in groups if group[0] & labels]
        groups = [group for group in groups if not group[0] & labels]
        members = [member for _, members in connected for member in members]
        groups.append((labels.union(*(names for names, _ in connected)), [*members, factor]))
    return [tuple(members) for _, members in groups]
