"""Closed-form derivatives of matrix functions, as Numba kernels."""
