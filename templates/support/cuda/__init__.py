"""Kernels for CUDA devices, and the host functions that launch them.

A helper kernel of `support.cpu` has its counterpart here: the function of the same name in the file
of the same name, `f(run, *operands, *flags)`. One that can fail has as its last argument `failure`,
the index of the check that it fails: a kernel cannot raise an error, so it writes to
`run.failures[failure]`, which the host reads when the results are delivered.

Kernels in the precision of the run make their numbers by the type of an array, as
`x.dtype.type(0)`: a literal is double, and would make the arithmetic double, too."""
