"""Each file is run by one process, the longest files first."""

import pytest

from tests import ROOT
from tests.schedule import LONGEST, place


def test_the_longest_come_first_and_the_others_stay_in_order() -> None:
    tests = ["tests/a.py::test_a[x::y]", f"{LONGEST[1]}::test_b", "tests/c.py::test_c"]
    tests += [f"{LONGEST[0]}::test_d", f"{LONGEST[1]}::test_e"]
    assert sorted(tests, key=place) == [tests[i] for i in (3, 1, 4, 0, 2)]


@pytest.mark.parametrize("path", LONGEST)
def test_the_files_are_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_a_file_goes_to_one_process_in_the_order_of_the_tests(
    request: pytest.FixtureRequest,
) -> None:
    options = request.config.getini("addopts")
    assert "--dist=loadfile" in options and "--no-loadscope-reorder" in options
