"""Which process runs which tests, where there are several.

pytest-xdist has marks of groups for this; they say nothing with pytest 9.2, and nobody is told.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/driver/test_build.py",
    "tests/driver/test_cli.py",
    "tests/driver/test_examples.py",
    "tests/emit/cuda/test_build_for_devices.py",
    "tests/templates/test_bounds.py",
    "tests/templates/test_support.py",
)
"""Files whose tests share what takes long to make, so that one process runs all of them."""


def unit(test: str) -> str:
    """What goes to a process as a whole: the file of a test, or the test alone."""
    path = test.partition("::")[0]
    return path if path in TOGETHER else test


class Together(LoadScopeScheduling):
    """The largest units first, each to the next process that has little left to do."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
