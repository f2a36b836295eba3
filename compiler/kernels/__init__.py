"""Helper kernels: Python functions that Numba compiles, embedded in generated modules as source.

Linear algebra takes stacked arrays: `(stack, n, n)` matrices, `(stack, n)` vectors, `(stack,)`
numbers; all C-contiguous and of one float type. Singular or indefinite matrices raise
`numpy.linalg.LinAlgError`.
"""
