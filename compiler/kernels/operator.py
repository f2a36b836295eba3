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

import numpy as np

from derivatrix.compiler.kernels.boundary import _number_array, _shape_text

_tri = np.tri
_packed = np.tril_indices
_COLUMN = -1
"""The label of the columns of a matrix that an operator is applied to."""
_MOST_ORDERS = 4
"""Every order of so many arrays is tried."""
_SINGULAR = 1e-13


class _Operator:
    """A linear map from arrays of `input_shape` to arrays of `output_shape`.

    `operator @ V` takes an array of the input's shape, a vector of its size, or a matrix of as
    many rows, and gives the same of the output's. As a matrix its shape is `shape`; SciPy's
    iterative methods take it as it is. `structure` says in words what it is made of.
    """

    __array_ufunc__ = None  # so that `array @ operator` comes here

    def __init__(self, name, structure, shapes, batched, projected, terms, parts, masks, dtype):
        self.name = name
        self.structure = structure
        self.output_shape, self.input_shape = shapes
        self.shape = (math.prod(self.output_shape), math.prod(self.input_shape))
        self.dtype = np.dtype(dtype)
        self.ndim = 2
        self._batched = batched
        self._projected = projected
        self._terms = terms
        self._parts = parts + masks
        self._masks = len(parts)
        self._transposed = None
        self._routes: dict = {}

    def __repr__(self):
        rows, columns = self.shape
        return f"<{self.name}: {rows} x {columns}, {self.structure}>"

    @property
    def T(self):
        """The transpose, a map from the output's arrays to the input's."""
        if self._transposed is None:
            other = copy.copy(self)
            other.name = f"{self.name}.T"
            other.output_shape, other.input_shape = self.input_shape, self.output_shape
            other.shape = self.shape[::-1]
            other._terms = tuple((c, s, ins, outs, f) for c, s, outs, ins, f in self._terms)
            other._routes = {}
            other._transposed = self
            self._transposed = other
        return self._transposed

    def __matmul__(self, other):
        return self._through(other, self.input_shape, self.output_shape, self._product)

    def __rmatmul__(self, other):
        array = np.asarray(other)
        if array.ndim == 2 and array.shape != self.output_shape:
            return (self.T @ array.T).T
        return self.T @ array

    def matvec(self, vector):
        """The product with a vector of as many entries as the matrix has columns."""
        array = _dense(self.name, vector, self.dtype)
        if array.size != self.shape[1]:
            raise ValueError(
                f"{self.name}: {array.size} numbers where {self.shape[1]} are expected"
            )
        return self._product(array.reshape(-1), 0)

    def rmatvec(self, vector):
        """The product of the transpose with a vector."""
        return self.T.matvec(vector)

    def matmat(self, matrix):
        """The product with a matrix of as many rows as this one has columns."""
        array = _dense(self.name, matrix, self.dtype).reshape(self.shape[1], -1)
        return self._product(array, array.shape[1])

    def rmatmat(self, matrix):
        """The product of the transpose with a matrix."""
        return self.T.matmat(matrix)

    def aslinearoperator(self):
        """The same as one of `scipy.sparse.linalg.LinearOperator`."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(
            self.shape, self.matvec, self.rmatvec, self.matmat, self.dtype, self.rmatmat
        )

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
        return self._through(other, self.output_shape, self.input_shape, self._solution)

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

    # Products

    def _product(self, array, columns):
        """The product with a contiguous vector, or with a matrix of `columns` columns."""
        key = columns, array.dtype
        if key not in self._routes:
            self._routes[key] = [self._route(term, *key) for term in self._terms]
        out = None
        for route in self._routes[key]:
            out = route(array, out)
        if out is None:
            return np.zeros(self.shape[:1] + (columns,) * (columns > 0), array.dtype)
        return out

    def _route(self, term, columns, dtype):
        """A function that adds the product of one term with an array to another array."""
        coefficient, sizes, outputs, inputs, factors = term
        lengths = {**dict(enumerate(sizes)), _COLUMN: columns}
        more = [_COLUMN] if columns else []
        written = [_Walk(pattern, _strides(self.output_shape, columns)) for pattern in outputs]
        read = [_Walk(pattern, _strides(self.input_shape, columns)) for pattern in inputs]
        have = [*read[0].labels, *more]
        readers = [_reader(walk, have, lengths, dtype) for walk in read]
        target = {*written[0].labels, *more}
        arrays = [(self._parts[number], labels) for number, labels in factors]
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
            value = value * np.einsum(*operands, present, optimize=len(factors) > 2)
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

    # Solving

    def _solution(self, array, columns):
        common = self._common()
        rows, others = self._others(common)
        lead = tuple(self.output_shape[axis] for axis, _ in common)
        right = array.reshape(*self.output_shape, -1)
        right = right.transpose([axis for axis, _ in common] + rows + [right.ndim - 1])
        if not rows:
            weights = self._blocks(common)
            if not weights.all():
                raise np.linalg.LinAlgError(f"{self.name}: the diagonal has a zero")
            found = right / weights[..., None]
        else:
            for method in (self._factor_by_factor, self._as_sylvester, self._as_update):
                found = method(common, rows, others, right)
                if found is not None:
                    break
            else:
                size = math.prod(right.shape[len(lead) : -1])
                blocks = self._blocks(common).reshape(*lead, size, -1)
                found = np.linalg.solve(blocks, right.reshape(*lead, size, -1))
        axes = [axis for _, axis in common] + others
        found = found.reshape(*(self.input_shape[axis] for axis in axes), -1)
        found = found.transpose([*np.argsort(axes), len(axes)])
        return np.ascontiguousarray(found).reshape((-1, columns) if columns else -1)

    def _common(self):
        """The pairs of axes, of output and input, whose indices are equal in every term."""
        found = [_pairs(output, given) for _, output, given in self._patterns()]
        return sorted(set.intersection(*found)) if found else []

    def _factor_by_factor(self, common, rows, others, right):
        """The solution for one term: each factor of a Kronecker product, or of what such
        blocks are made of, for itself. None where that is not how the term is."""
        if not _simple(self._terms):
            return None
        ((coefficient, sizes, (output,), (given,), factors),) = self._terms
        shared = [output[axis] for axis, _ in common]
        ends = [("out", axis) for axis in rows]
        found = np.moveaxis(right, -1, len(shared)) / coefficient
        for group in _components(factors, set(shared)):
            term = (1.0, sizes, (), (), group)
            labels = {label for _, own in group for label in own}
            up = [axis for axis in rows if output[axis] in labels]
            down = [axis for axis in others if given[axis] in labels]
            inner = [*(output[axis] for axis in up), *(given[axis] for axis in down)]
            matrix = self._values(term, [*shared, *inner])
            high = math.prod(sizes[output[axis]] for axis in up)
            if high != math.prod(sizes[given[axis]] for axis in down):
                return None
            matrix = matrix.reshape(*matrix.shape[: len(shared)], high, high)
            first = len(shared) + 1
            places = [first + ends.index(("out", axis)) for axis in up]
            ends = [end for end in ends if end not in {("out", axis) for axis in up}]
            ends += [("in", axis) for axis in down]
            found = (
                np.moveaxis(found, places, range(-len(places), 0)) if places else found[..., None]
            )
            rest = found.shape[: found.ndim - max(len(places), 1)]
            flat = found.reshape(*rest[: len(shared)], -1, high)
            solved = np.linalg.solve(matrix, flat.swapaxes(-1, -2)).swapaxes(-1, -2)
            found = solved.reshape(*rest, *(sizes[given[axis]] for axis in down))
        if sorted(ends) != sorted(("in", axis) for axis in others):
            return None
        first = len(shared) + 1
        order = [first + ends.index(("in", axis)) for axis in others]
        return found.transpose([*range(len(shared)), *order, first - 1])

    def _as_sylvester(self, common, rows, others, right):
        """The solution V of A V + V Bᵀ = right for A ⊗ I + I ⊗ B, else None."""
        if common or len(rows) != 2 or len(others) != 2 or not _simple(self._terms, 2):
            return None
        pairs = [sorted(_pairs(term[2][0], term[3][0])) for term in self._terms]
        if [len(each) for each in pairs] != [1, 1]:
            return None
        ((a, c),), ((b, d),) = pairs
        if a == b or c == d:
            return None
        matrices = []
        for (row, column), own, term in zip(
            ((b, d), (a, c)), ((a, c), (b, d)), self._terms, strict=True
        ):
            _, _, (output,), (given,), factors = term
            if output[own[0]] in {label for _, labels in factors for label in labels}:
                return None
            square = (term[1][output[row]], term[1][given[column]])
            matrices.append(
                np.broadcast_to(self._values(term, [output[row], given[column]]), square)
            )
        from scipy.linalg import lapack, schur

        sides = right if b < a else right.swapaxes(0, 1)
        (first, left), (second, across) = schur(matrices[0]), schur(matrices[1].T)
        trsyl = lapack.get_lapack_funcs("trsyl", (first, second))
        found = np.empty_like(sides)
        for number in range(sides.shape[-1]):
            inner, factor, failure = trsyl(first, second, left.T @ sides[..., number] @ across)
            if failure:
                raise np.linalg.LinAlgError(f"{self.name}: it is singular")
            found[..., number] = factor * (left @ inner @ across.T)
        return found if d < c else found.swapaxes(0, 1)

    def _as_update(self, common, rows, others, right):
        """The solution for a diagonal with a matrix of low rank added (Woodbury), else None."""
        diagonal = []
        left, across = [], []
        pairing = None
        lead = tuple(self.output_shape[axis] for axis, _ in common)
        shape = tuple(self.output_shape[axis] for axis in rows)
        for term in self._terms:
            if not _simple([term]):
                return None
            pairs = _pairs(term[2][0], term[3][0]) - set(common)
            if len(pairs) == len(rows) == len(others):
                if pairing not in (None, pairs):
                    return None
                pairing = pairs
                labels = [term[2][0][axis] for axis in (*dict(common), *rows)]
                diagonal.append(np.broadcast_to(self._values(term, labels), lead + shape))
        if pairing is None:
            return None
        order = [dict(pairing)[axis] for axis in rows]
        for term in self._terms:
            pairs = _pairs(term[2][0], term[3][0]) - set(common)
            if not pairs:
                halves = self._halves(term, common, rows, order)
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
        small = np.eye(rank, dtype=self.dtype) + inner
        least = np.linalg.norm(small, -2, (-2, -1))
        if (least <= _SINGULAR * (1 + np.linalg.norm(inner, 2, (-2, -1)))).any():
            raise np.linalg.LinAlgError(f"{self.name}: it is singular")
        found = right.reshape(*lead, size, -1) / weights
        found = found - scaled @ np.linalg.solve(small, wide @ found)
        found = found.reshape(*lead, *shape, -1)
        places = [len(lead) + order.index(axis) for axis in others]
        return found.transpose([*range(len(lead)), *places, found.ndim - 1])

    def _halves(self, term, common, rows, order):
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
            values = self._values((scale, sizes, (), (), part), [*shared, *labels])
            halves.append(np.broadcast_to(values, [sizes[label] for label in (*shared, *labels)]))
        lead = [sizes[label] for label in shared]
        rank = math.prod(sizes[label] for label in summed)
        return halves[0].reshape(*lead, -1, rank), halves[1].reshape(*lead, rank, -1)


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


def _dense(name, value, dtype):
    """An argument as a contiguous array of a type that products have."""
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value
    array = _number_array(name, "of the operator", value)
    real = np.result_type(dtype, array.dtype) if array.dtype.kind == "f" else dtype
    return np.ascontiguousarray(array, real).reshape(array.shape)


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
    return lambda array: np.ndarray(shape, dtype, array, offset, strides)


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
        view = np.ndarray(shape, out.dtype, out, walk.offset * out.itemsize, strides)
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
        current, total = set(have), 0
        for number, (_, labels) in enumerate(order):
            total += math.prod(lengths[label] for label in current.union(labels))
            later = (own for _, own in order[number + 1 :])
            current = current.union(labels) & target.union(*later)
        return total

    if len(factors) <= _MOST_ORDERS:
        return min(itertools.permutations(factors), key=cost)
    order: list = []
    rest = list(factors)
    while rest:
        found = min(
            range(len(rest)), key=lambda n: cost([*order, rest[n], *rest[:n], *rest[n + 1 :]])
        )
        order.append(rest.pop(found))
    return order


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
    inner = math.prod(lengths[label] for label in summed)
    shape = (*lead, -1, inner) if right else (*lead, inner, -1)
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
    shape = (*sizes[:stacked], math.prod(sizes[stacked : stacked + rows]), -1)
    return array.transpose([labels.index(label) for label in order]).reshape(shape)


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
