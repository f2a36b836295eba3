"""The campaign of builds notices a build that is not careful."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.builds import place
from tests.campaign.builds.place import VICTIM, Place, Version, ended, refusal


@pytest.mark.parametrize("victim", [VICTIM, "tests.campaign.careless"])
def test_a_killed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str) -> None:
    monkeypatch.setattr(place, "VICTIM", victim)
    old, new = (Version(tmp_path, number, ("one", "two")) for number in (20, 70))
    here = Place(tmp_path)
    here.build(old)
    status, _, _ = ended(here.start(new, "--no-verify", accident="kill", step=3, events="moves"))
    assert status == -9
    problems = here.whole([old, new])
    if victim == VICTIM:
        assert problems == [] and here.mended(new) == []
    else:
        assert all("takes half a package" in problem for problem in problems) and problems


def test_errors_that_are_not_ones_of_derivatrix() -> None:
    assert refusal(1, "", "Traceback (most recent call last):\nOSError: /out")
    assert refusal(1, "", "derivatrix: it does not work")
    assert refusal(-11, "", "")
    assert not refusal(1, "", "derivatrix: /out: cannot be written")
