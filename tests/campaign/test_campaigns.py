"""A small sample of each campaign."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import derivatrix
from derivatrix.runtime.errors import DeclarationError
from tests import campaign
from tests.campaign import NAMES, Outcome, cases, hostile, hostile_large, outcomes, run, so_far
from tests.campaign.hostile_case import PLANTED, Case

SAMPLE = 1
"""Trials of each campaign."""
NEEDS = {"peers": [pytest.mark.peers]}
"""Campaigns that need more than the default suite has."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS.get(name, [])) for name in NAMES])
def test_sample(name: str) -> None:
    for outcome in itertools.islice(outcomes(name, 0), SAMPLE):
        assert outcome.tried
        assert not outcome.failures


@pytest.mark.peers
def test_peers_differ_by_a_millionth(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    from tests.campaign import peers

    expression = derivatrix.exp(derivatrix.matrix("M", 3, 3))
    peers.check(expression)
    monkeypatch.setattr(
        peers, "jax_function", lambda text: lambda v: 1.000001 * jax.numpy.exp(v["M"])
    )
    with pytest.raises(AssertionError, match="value"):
        peers.check(expression)


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


def test_a_test_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "test_some.py"
    path.write_text("def test_one(): pass\n\n\ndef test_other(): raise OSError('broken')\n")
    monkeypatch.setattr(cases, "left_out", lambda: [f"{path}::test_one", f"{path}::test_other"])
    outcome = cases.trial(0, 0)
    assert outcome.tried == cases.TESTS
    (failure,) = outcome.failures
    assert failure.endswith("test_other - OSError: broken")


def test_hostile_cases_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that raises what is no error of derivatrix is reported."""

    def broken(text: str, **dims: str) -> None:
        raise KeyError(text)

    assert not hostile.verdict(hostile.texts.case("tr(X", {"X": "n n"}))
    monkeypatch.setattr(derivatrix, "parse", broken)
    assert "KeyError" in hostile.verdict(hostile.texts.case("tr(X", {"X": "n n"}))


@pytest.mark.parametrize(
    "label", ["sine plus itself 40 times, twice read", "transpose times itself 24 times"]
)
def test_what_is_read_twice_at_each_step_takes_no_time_that_doubles(label: str) -> None:
    with hostile.elsewhere():
        assert not hostile.verdict(hostile_large.case(label))


HOSTILE: dict[str, Callable[[], object]] = {
    "was run": lambda: setattr(builtins, PLANTED, 1),
    "was made": lambda: Path("made").touch(),
    "MB more of memory": lambda: b"." * ((hostile.most_memory() + 700) << 20),
    "takes more than 1 seconds": lambda: [None for _ in itertools.count() if not _ + 1],
    "RecursionError": lambda: deeper(),
    "letters": lambda: long_message(),
    "the value is": lambda: derivatrix.function("f", ["x"], derivatrix.parse("3*x", x="n")),
}


def deeper() -> None:
    deeper()


def long_message() -> None:
    raise DeclarationError("x" * 3000)


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_found_in_hostile_cases(what: str) -> None:
    seconds = 1 if "1 seconds" in what else None
    case = Case("case", HOSTILE[what], lambda x: 2 * x, False, seconds)
    with hostile.elsewhere():
        assert what in hostile.verdict(case)
