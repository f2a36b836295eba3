"""A small sample of each campaign."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests import campaign
from tests.campaign import NAMES, Outcome, outcomes, run, so_far

SAMPLE = 1
"""Trials of each campaign."""


@pytest.mark.parametrize("name", NAMES)
def test_sample(name: str) -> None:
    for outcome in itertools.islice(outcomes(name, 0), SAMPLE):
        assert outcome.tried
        assert not outcome.failures


def test_a_campaign_goes_on_where_it_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def made(name: str, seed: int, first: int = 0):  # type: ignore[no-untyped-def]
        for number in itertools.count(first):
            asked.append(number)
            yield Outcome(3, ["broken"] if number == 1 else [])

    monkeypatch.setattr(campaign, "outcomes", made)
    said: list[str] = []
    for _ in range(3):
        run(tmp_path, "expressions", 7, 0, said.append)
    (tmp_path / "expressions-7.jsonl").open("a").write('{"tri')
    progress = so_far(tmp_path / "expressions-7.jsonl")
    assert asked == [0, 1, 2]
    assert (progress.trials, progress.tried, progress.failed) == (3, 9, 1)
    assert said == ["expressions 7/1: broken"]
