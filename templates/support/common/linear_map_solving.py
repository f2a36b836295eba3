"""Solutions with an operator (see `linear_map`), by the structure of its terms."""

# mypy: allow-untyped-defs

import math

import numpy as np

_SINGULAR = 1e-13


def _solution(operator, array, columns):
    common = _common(operator)
    rows, others = operator._others(common)
    lead = tuple(operator.output_shape[axis] for axis, _ in common)
    right = array.reshape(*operator.output_shape, -1)
    right = right.transpose([axis for axis, _ in common] + rows + [right.ndim - 1])
    if not rows:
        weights = operator._blocks(common).reshape(lead)  # other axes are of length 1
        if not weights.all():
            raise np.linalg.LinAlgError(f"{operator.name}: the diagonal has a zero")
        found = right / weights[..., None]
    else:
        for method in (_factor_by_factor, _as_sylvester, _as_update):
            found = method(operator, common, rows, others, right)
            if found is not None:
                break
        else:
            size = math.prod(right.shape[len(lead) : -1])
            blocks = operator._blocks(common).reshape(*lead, size, -1)
            found = np.linalg.solve(blocks, right.reshape(*lead, size, -1))
    axes = [axis for _, axis in common] + others
    found = found.reshape(*(operator.input_shape[axis] for axis in axes), -1)
    found = found.transpose([*np.argsort(axes), len(axes)])
    return np.ascontiguousarray(found).reshape((-1, columns) if columns else -1)


def _common(operator):
    """The pairs of axes, of output and input, whose indices are equal in every term."""
    found = [_pairs(output, given) for _, output, given in operator._patterns()]
    return sorted(set.intersection(*found)) if found else []


def _factor_by_factor(operator, common, rows, others, right):
    """The solution for one term: each factor of a Kronecker product, or of what such
    blocks are made of, for itself. None where that is not how the term is."""
    if not _simple(operator._terms):
        return None
    ((coefficient, sizes, (output,), (given,), factors),) = operator._terms
    shared = [output[axis] for axis, _ in common]
    ends = [("out", axis) for axis in rows]
    found = np.moveaxis(right, -1, len(shared)) / coefficient
    for group in _components(factors, set(shared)):
        term = (1.0, sizes, (), (), group)
        labels = {label for _, own in group for label in own}
        up = [axis for axis in rows if output[axis] in labels]
        down = [axis for axis in others if given[axis] in labels]
        inner = [*(output[axis] for axis in up), *(given[axis] for axis in down)]
        matrix = operator._values(term, [*shared, *inner])
        high = math.prod(sizes[output[axis]] for axis in up)
        if high != math.prod(sizes[given[axis]] for axis in down):
            return None
        matrix = matrix.reshape(*matrix.shape[: len(shared)], high, high)
        first = len(shared) + 1
        places = [first + ends.index(("out", axis)) for axis in up]
        ends = [end for end in ends if end not in {("out", axis) for axis in up}]
        ends += [("in", axis) for axis in down]
        found = np.moveaxis(found, places, range(-len(places), 0)) if places else found[..., None]
        rest = found.shape[: found.ndim - max(len(places), 1)]
        flat = found.reshape(*rest[: len(shared)], -1, high)
        solved = np.linalg.solve(matrix, flat.swapaxes(-1, -2)).swapaxes(-1, -2)
        found = solved.reshape(*rest, *(sizes[given[axis]] for axis in down))
    if sorted(ends) != sorted(("in", axis) for axis in others):
        return None
    first = len(shared) + 1
    order = [first + ends.index(("in", axis)) for axis in others]
    return found.transpose([*range(len(shared)), *order, first - 1])


def _as_sylvester(operator, common, rows, others, right):
    """The solution V of A V + V Bᵀ = right for A ⊗ I + I ⊗ B, else None."""
    if common or len(rows) != 2 or len(others) != 2 or not _simple(operator._terms, 2):
        return None
    pairs = [sorted(_pairs(term[2][0], term[3][0])) for term in operator._terms]
    if [len(each) for each in pairs] != [1, 1]:
        return None
    ((a, c),), ((b, d),) = pairs
    if a == b or c == d:
        return None
    matrices = []
    for (row, column), own, term in zip(
        ((b, d), (a, c)), ((a, c), (b, d)), operator._terms, strict=True
    ):
        _, _, (output,), (given,), factors = term
        if output[own[0]] in {label for _, labels in factors for label in labels}:
            return None
        square = (term[1][output[row]], term[1][given[column]])
        matrices.append(
            np.broadcast_to(operator._values(term, [output[row], given[column]]), square)
        )
    from scipy.linalg import lapack, schur

    sides = right if b < a else right.swapaxes(0, 1)
    (first, left), (second, across) = schur(matrices[0]), schur(matrices[1].T)
    trsyl = lapack.get_lapack_funcs("trsyl", (first, second))
    found = np.empty_like(sides)
    for number in range(sides.shape[-1]):
        inner, factor, failure = trsyl(first, second, left.T @ sides[..., number] @ across)
        if failure:
            raise np.linalg.LinAlgError(f"{operator.name}: it is singular")
        found[..., number] = factor * (left @ inner @ across.T)
    return found if d < c else found.swapaxes(0, 1)


def _as_update(operator, common, rows, others, right):
    """The solution for a diagonal with a matrix of low rank added (Woodbury), else None."""
    diagonal = []
    left, across = [], []
    pairing = None
    lead = tuple(operator.output_shape[axis] for axis, _ in common)
    shape = tuple(operator.output_shape[axis] for axis in rows)
    for term in operator._terms:
        if not _simple([term]):
            return None
        pairs = _pairs(term[2][0], term[3][0]) - set(common)
        if len(pairs) == len(rows) == len(others):
            if pairing not in (None, pairs):
                return None
            pairing = pairs
            labels = [term[2][0][axis] for axis in (*dict(common), *rows)]
            diagonal.append(np.broadcast_to(operator._values(term, labels), lead + shape))
    if pairing is None:
        return None
    order = [dict(pairing)[axis] for axis in rows]
    for term in operator._terms:
        pairs = _pairs(term[2][0], term[3][0]) - set(common)
        if not pairs:
            halves = _halves(operator, term, common, rows, order)
            if halves is None:
                return None
            left.append(halves[0])
            across.append(halves[1])
        elif pairs != pairing:
            return None
    size = math.prod(shape)
    weights = np.sum(diagonal, axis=0).reshape(*lead, size, 1)
    rank = sum(half.shape[-1] for half in left)
    if rank >= size or not weights.all():
        return None
    scaled = np.concatenate(left, -1) / weights
    wide = np.concatenate(across, -2)
    inner = wide @ scaled
    small = np.eye(rank, dtype=operator.dtype) + inner
    least = np.linalg.norm(small, -2, (-2, -1))
    if (least <= _SINGULAR * (1 + np.linalg.norm(inner, 2, (-2, -1)))).any():
        raise np.linalg.LinAlgError(f"{operator.name}: it is singular")
    found = right.reshape(*lead, size, -1) / weights
    found = found - scaled @ np.linalg.solve(small, wide @ found)
    found = found.reshape(*lead, *shape, -1)
    places = [len(lead) + order.index(axis) for axis in others]
    return found.transpose([*range(len(lead)), *places, found.ndim - 1])


def _halves(operator, term, common, rows, order):
    """The matrices U and W of a term U W (stacked along the common axes), else None."""
    coefficient, sizes, (output,), (given,), factors = term
    shared = [output[axis] for axis, _ in common]
    up, down = [output[axis] for axis in rows], [given[axis] for axis in order]
    left = [factor for factor in factors if not set(factor[1]) & set(down)]
    across = [factor for factor in factors if factor not in left]
    if any(set(labels) & set(up) for _, labels in across):
        return None
    axes = {*shared, *up, *down}
    summed = sorted({label for _, labels in factors for label in labels} - axes)
    halves = []
    for part, scale, labels in (
        (left, coefficient, [*up, *summed]),
        (across, 1.0, [*summed, *down]),
    ):
        values = operator._values((scale, sizes, (), (), part), [*shared, *labels])
        halves.append(np.broadcast_to(values, [sizes[label] for label in (*shared, *labels)]))
    lead = [sizes[label] for label in shared]
    rank = math.prod(sizes[label] for label in summed)
    size = math.prod(sizes[label] for label in up)
    return halves[0].reshape(*lead, size, rank), halves[1].reshape(*lead, rank, size)


def _pairs(output, given):
    """The axes of output and input that have the same label, and no other axis has."""
    used = [label for place in (*output, *given) for label in _labels(place)]
    return {
        (row, column)
        for row, label in enumerate(output)
        for column, other in enumerate(given)
        if isinstance(label, int) and label == other and used.count(label) == 2
    }


def _labels(place):
    if isinstance(place, int):
        return (place,)
    return (place[1],) if isinstance(place[1], int) else tuple(label for label, _ in place[1])


def _simple(terms, count=1):
    """Whether there are so many terms, each with one pattern of distinct labels a side."""
    sides = [side for term in terms for side in term[2:4]]
    return len(terms) == count and all(
        len(side) == 1
        and all(isinstance(place, int) for place in side[0])
        and len(set(side[0])) == len(side[0])
        for side in sides
    )


def _components(factors, apart):
    """The factors in groups that share no labels but those of `apart`."""
    groups: list = []
    for factor in factors:
        labels = set(factor[1]) - apart
        joined = [group for group in groups if group[0] & labels]
        groups = [group for group in groups if not group[0] & labels]
        members = [other for group in joined for other in group[1]]
        groups.append((labels.union(*(group[0] for group in joined)), [*members, factor]))
    return [tuple(members) for _, members in groups]
