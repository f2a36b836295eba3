"""The default suite leaves out cases that another run has, and no others."""

import pytest

from tests import selection

FEW = {"a.py": {"test_many": 3, "test_long": 0, "test_few": 5}}
MANY = [f"tests/a.py::test_many[{n}::x]" for n in range(10)]
LONG, LATER = ["tests/a.py::test_long"], ["tests/a.py::test_other[1]", "tests/b.py::test_many[1]"]
TWO = ["tests/a.py::test_few[1]", "tests/a.py::test_few[2]"]


def test_few_are_left_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "FEW", FEW)
    kept = {MANY[0], MANY[3], MANY[6]}
    assert selection.left_out([*MANY, *LONG, *LATER, *TWO]) == {*MANY, *LONG} - kept


def test_a_name_that_no_test_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "FEW", FEW)
    with pytest.raises(KeyError, match="test_long"):
        selection.left_out([*MANY, *TWO])
    assert selection.left_out(LATER[1:]) == set()
