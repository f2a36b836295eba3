"""Copies of stacks of matrices: as they are, transposed; identity matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel
from .blocks import SMALL, STEP, blocks_for, entries


def copy_stack(run, source, target):
    """target = source, of one shape (stack, m, n)."""
    run.launch(copy_entries, *entries(source.size), source, target)


def transpose(run, source, target):
    """target (stack, n, m) = each matrix of `source` (stack, m, n) transposed."""
    stack, rows, columns = source.shape
    if rows <= SMALL and columns <= SMALL:
        run.launch(transpose_entries, *entries(source.size), source, target)
        return
    tiles = ((rows + SMALL - 1) // SMALL) * ((columns + SMALL - 1) // SMALL)
    run.launch(transpose_tiles, blocks_for(stack * tiles, 1), (SMALL, 8), source, target)


def set_identity(run, out):
    """out (stack, n, n) = identity matrices."""
    run.launch(fill_identity, *entries(out.size), out)


@kernel("real[:, :, ::1], real[:, :, ::1]")
def copy_entries(source, target):
    """target = source, entry by entry."""
    stack, rows, columns = source.shape
    for entry in range(cuda.grid(1), stack * rows * columns, cuda.gridsize(1)):
        j = entry % columns
        i = entry // columns % rows
        s = entry // columns // rows
        target[s, i, j] = source[s, i, j]


@kernel("real[:, :, ::1], real[:, :, ::1]")
def transpose_entries(source, target):
    """target (stack, n, m) = source (stack, m, n) transposed, entry by entry."""
    stack, rows, columns = target.shape
    for entry in range(cuda.grid(1), stack * rows * columns, cuda.gridsize(1)):
        j = entry % columns
        i = entry // columns % rows
        s = entry // columns // rows
        target[s, i, j] = source[s, j, i]


@kernel("real[:, :, ::1]")
def fill_identity(out):
    """out (stack, n, n) = identity matrices."""
    stack, n, _ = out.shape
    for entry in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        j = entry % n
        i = entry // n % n
        out[entry // n // n, i, j] = i == j


@kernel("real[:, :, ::1], real[:, :, ::1]")
def transpose_tiles(source, target):
    """target (stack, n, m) = source (stack, m, n) transposed, tile by tile."""
    stack, rows, columns = source.shape
    tile = cuda.shared.array((SMALL, STEP), source.dtype)
    x = cuda.threadIdx.x
    high, wide = (rows + SMALL - 1) // SMALL, (columns + SMALL - 1) // SMALL
    for job in range(cuda.blockIdx.x, stack * high * wide, cuda.gridDim.x):
        s = job // (high * wide)
        top, left = job // wide % high * SMALL, job % wide * SMALL
        for y in range(cuda.threadIdx.y, SMALL, cuda.blockDim.y):
            if top + y < rows and left + x < columns:
                tile[y, x] = source[s, top + y, left + x]
        cuda.syncthreads()
        for y in range(cuda.threadIdx.y, SMALL, cuda.blockDim.y):
            if left + y < columns and top + x < rows:
                target[s, left + y, top + x] = tile[x, y]
        cuda.syncthreads()
