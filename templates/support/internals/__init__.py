"""All that is used of Numba's internals and of LLVM, as functions that kernels call or are made by.

docs/developers/numba.md says what that is and why; tests/templates/test_internals.py tests each row
of it.
"""
