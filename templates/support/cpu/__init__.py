"""Helper kernels for the CPU: Python functions that Numba compiles and generated modules import.

Linear algebra works on stacks: `(stack, n, n)` matrices, `(stack, n)` vectors, `(stack,)` numbers;
all C-contiguous and of one type, float64 or float32. Helpers check none of this: the kernels of a
generated module do so first, by `memory._require_arrays`. The last arguments are the results, which
are overwritten. A helper that can fail, at a singular or an indefinite matrix, returns False then;
the kernel that called it raises `numpy.linalg.LinAlgError` with the names of the function and of
the operation. A helper that needs memory takes `memory.work_arrays` and gives them back before it
returns; one that allocates NumPy arrays, or assigns one array to another, is
`compiled(counted=True)`."""
