"""Kernels for CUDA devices, and the host functions that launch them.

A helper kernel of `support.cpu` has its counterpart here: the function of the same name in the file
of the same name, `f(run, *operands, *flags)`, with `failure=` last where it can fail.
"""
