"""Kernels for CUDA devices, and the host functions that launch them.

A helper kernel of `support.cpu` has its counterpart here: the function of the same name in the file
of the same name, `f(run, *operands, *flags)`. One that can fail has as its last argument `failure`,
the index of the check that it fails."""
