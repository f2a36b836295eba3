"""All uses of Numba's internals and of LLVM: functions that kernels call or that make kernels.

docs/developers/numba.md lists these uses and their reasons; tests/templates/test_internals.py tests
each row of the list.
"""
