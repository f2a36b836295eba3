"""The nearest matrices of a declared structure, which kernels read instead of an argument.

An argument that has its structure, as most have, is not copied: it takes one pass over its entries
to find that out. Otherwise the nearest matrices are written to memory that the kernel frees.
"""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

from ..internals.functions import compiled
from ..internals.memory import heap_array, shaped

ANY_WIDTH = 1 << 40
"""A bandwidth that no matrix exceeds."""
NOT_NEGATIVE = (1 << 48) - 1
"""A mask of places, which tells the compiler that they do not count from the end."""


@compiled()
def nearest_symmetric(array):
    """Return (A + Aᵀ) / 2 for all matrices A of an array, or the array itself if they are
    symmetric; and the memory of the result, which has to be given back, or 0."""
    matrices = shaped(array, stack_shape(array))
    if is_symmetric(matrices):
        return array, 0
    nearest, memory = heap_array(array)
    out = shaped(nearest, matrices.shape)
    stack, n, _ = matrices.shape
    half = array.dtype.type(0.5)
    for s in range(stack):
        for i in range(n):
            for j in range(n):  # the sum of large entries could overflow
                out[s, i, j] = half * matrices[s, i, j] + half * matrices[s, j, i]
    return nearest, memory


@compiled(linked=True)
def stack_shape(array):
    """Return the shape of all square matrices of an array as one stack."""
    n = array.shape[-1]
    return (array.size // (n * n) if n else 0), n, n


@compiled(linked=True)
def is_symmetric(matrices):
    """Return whether A = Aᵀ for all matrices A of a stack; False if an entry is nan."""
    stack, n, _ = matrices.shape
    for s in range(stack):  # tiles save time from 300 rows on alone, and compile thrice as long
        for i in range(n):
            for j in range(i):
                if matrices[s, i, j] != matrices[s, j, i]:
                    return False
    return True


@compiled()
def nearest_band(array, below, above):
    """Return the entries on the diagonal and on the next `below` and `above` diagonals, with zeros
    elsewhere; copy and return memory as `nearest_symmetric`."""
    matrices = shaped(array, stack_shape(array))
    if is_band(matrices, below, above):
        return array, 0
    nearest, memory = heap_array(array)
    out = shaped(nearest, matrices.shape)
    stack, n, _ = matrices.shape
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                is_kept = -below <= j - i <= above
                out[s, i, j] = matrices[s, i, j] if is_kept else 0
    return nearest, memory


@compiled(linked=True)
def is_band(matrices, below, above):
    """Return whether all entries of a stack beside these diagonals are zero."""
    stack, n, _ = matrices.shape
    for s in range(stack):
        for i in range(n):
            differs = False  # no way out of a row, else its loops would not become vector code
            for j in range(i - below):
                differs |= matrices[s, i, j] != 0
            start = (i + above + 1) & NOT_NEGATIVE
            for place in range(n - start):
                differs |= matrices[s, i, start + place] != 0
            if differs:
                return False
    return True


@compiled(linked=True)
def nearest_lower(array):
    """Return the lower triangles, as `nearest_band` does."""
    return nearest_band(array, ANY_WIDTH, 0)


@compiled(linked=True)
def nearest_upper(array):
    """Return the upper triangles, as `nearest_band` does."""
    return nearest_band(array, 0, ANY_WIDTH)


@compiled(linked=True)
def nearest_diagonal(array):
    """Return the diagonals, as `nearest_band` does."""
    return nearest_band(array, 0, 0)
