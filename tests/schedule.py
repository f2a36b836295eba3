"""The order of the test files: the slowest first. Each file runs in one process, which makes shared
fixtures once."""

LONGEST = (
    "tests/driver/test_build.py",
    "tests/operations/test_equations.py",
    "tests/emit/test_modules.py",
    "tests/plan/test_batch_last.py",
    "tests/operations/test_spectral.py",
    "tests/operations/test_matrix_functions.py",
    "tests/driver/test_cli.py",
    "tests/plan/test_sample_sums.py",
    "tests/operations/test_factorisations.py",
    "tests/emit/test_names.py",
    "tests/docs/test_pages.py",
    "tests/differentiate/test_identities.py",
    "tests/differentiate/test_random.py",
    "tests/campaign/test_campaigns.py",
    "tests/emit/cuda/test_device_kernels.py",
)
"""The files whose tests take longest, in this order, so that no process is left with one of them
when the others have nothing to do."""


def place(test: str) -> int:
    """Order tests, given by their names in pytest: those of LONGEST first."""
    path = test.partition("::")[0]
    return LONGEST.index(path) if path in LONGEST else len(LONGEST)
