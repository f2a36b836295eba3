"""Solutions of systems with an operator (see `linear_map`), by the structure of its terms.

`shared` are the pairs of axes, of output and input, along which the operator is block diagonal: the
solvers treat these axes as a stack. `rows` and `columns` are the other axes of output and input.
The right-hand sides have the axes (*shared, *rows, side), solutions (*shared, *columns, side)."""

# mypy: allow-untyped-defs

import math

import numpy as np

from .linear_map_products import _Term

_SINGULAR = 1e-13
"""A singular value this small, relative to the largest, counts as zero."""


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
        solution[..., number] = scale * (a_vectors @ transformed @ b_vectors.T)
    return solution if j_column < i_column else solution.swapaxes(0, 1)


def _solve_low_rank_update(operator, shared, rows, columns, right):
    """Compute the solution for diag(d) + U W of low rank, by Woodbury's formula; None for another
    operator."""
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
    scaled_u, w = np.concatenate(us, -1) / d, np.concatenate(ws, -2)
    update = w @ scaled_u
    capacitance = np.eye(rank, dtype=operator.dtype) + update
    least = np.linalg.norm(capacitance, -2, (-2, -1))
    if (least <= _SINGULAR * (1 + np.linalg.norm(update, 2, (-2, -1)))).any():
        raise np.linalg.LinAlgError(f"{operator.name}: it is singular")
    solution = right.reshape(*stack, size, -1) / d
    solution = solution - scaled_u @ np.linalg.solve(capacitance, w @ solution)
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
