"""All that is used of Numba's internals and of LLVM, as functions that kernels call or are made by.

docs/numba.md has a table of what that is and why; tests/test_internals.py has a test for each row.
"""
