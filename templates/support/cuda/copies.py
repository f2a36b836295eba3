"""Copies of stacks of matrices, of blocks of them, and transposes; identity matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel, position


def copy_block(run, source, target, transposed=False, negated=False, top=0, place=(0, 0)):
    """Copy the matrices of `source` (stack, m, n) from row `top` on to those of `target` from the
    row and column `place` on, as much as fits; transposed if `transposed`, multiplied by -1 if
    `negated`. Of complex numbers the real parts are copied."""
    _, m, n = source.shape
    stack, target_rows, target_columns = target.shape
    rows, columns = (n, m - top) if transposed else (m - top, n)
    shape = min(rows, target_rows - place[0]), min(columns, target_columns - place[1])
    flags = int(transposed), int(negated)
    numbers = *flags, top, *place, *shape
    run.launch(copy_entries, stack * shape[0] * shape[1], source, target, *numbers)


def copy_stack(run, source, target):
    """target = source, of one shape (stack, m, n)."""
    copy_block(run, source, target)


def copied(run, source, dtype=None):
    """Copy an array to a new one, of the type of the run by default."""
    target = run.empty(source.shape, dtype)
    copy_block(run, source, target)
    return target


def transpose(run, source, target):
    """target (stack, n, m) = each matrix of `source` (stack, m, n) transposed."""
    copy_block(run, source, target, transposed=True)


def in_rows(run, b, solve):
    """Apply `solve`, which replaces the rows of an array (stack, columns, n), to the columns of `b`
    (stack, n, columns)."""
    stack, n, columns = b.shape
    if columns == 1 and b.size > 0:
        solve(b.reshape(stack, 1, n))
        return
    transposed = run.empty((stack, columns, n))
    transpose(run, b, transposed)
    solve(transposed)
    transpose(run, transposed, b)


def set_identity(run, out):
    """out (stack, n, n) = identity matrices."""
    run.launch(fill_identity, out.size, out)


NUMBERS = ", int64" * 7
PAIRS = ("real", "real"), ("real", "float64"), ("float64", "real")
COMPLEX_PAIRS = ("real", "complex128"), ("complex128", "real")


@kernel(*(f"{a}[:, :, ::1], {b}[:, :, ::1]{NUMBERS}" for a, b in (*PAIRS, *COMPLEX_PAIRS)))
def copy_entries(source, target, transposed, negated, top, row, column, rows, columns):
    """`copy_block` of blocks (rows, columns), entry by entry."""
    shape = target.shape[0], rows, columns
    for number in range(cuda.grid(1), target.shape[0] * rows * columns, cuda.gridsize(1)):
        s, i, j = position(number, shape)
        entry = (source[s, top + j, i] if transposed else source[s, top + i, j]).real
        target[s, row + i, column + j] = -entry if negated else entry


@kernel("real[:, :, ::1]")
def fill_identity(out):
    """out (stack, n, n) = identity matrices."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        out[s, i, j] = i == j
