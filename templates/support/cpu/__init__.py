"""Helper kernels: Python functions that Numba compiles, embedded in generated modules as source.

Linear algebra takes stacked arrays: `(stack, n, n)` matrices, `(stack, n)` vectors, `(stack,)`
numbers; all C-contiguous and of one type, float64 or float32. Helpers check none of this: the
kernels of a generated module do, with `memory.require_arrays`, before they call any. Results go to
the arrays given last, which are overwritten. A helper that can fail, at a singular or an
indefinite matrix, returns whether it did not; the kernel that called it raises
`numpy.linalg.LinAlgError` with the names of the function and of the operation. One that needs
memory takes `memory.work_arrays` and gives them back before it returns; one that makes NumPy's
arrays, or assigns one array to another, is `compiled(counted=True)`.
"""
