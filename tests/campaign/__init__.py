"""Campaigns: checks that anyone can run for an hour or a night, on trials that never end.

A campaign is a module here with a function `trial(seed, number) -> Outcome`, which makes up its own
case from the two numbers, so that any trial can be run again. Trials run in a process of their own:
one that crashes or takes too long is a failure, not the end of the campaign.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from derivatrix.runtime.workers import Crash, Workers

NAMES = (
    *("expressions", "peers", "kernels", "points", "mutations", "callers", "builds", "hostile"),
    "cases",
)
"""The modules in this folder that are campaigns."""
LONGEST = 900.0
"""Seconds after which a trial is ended, and counts as failed."""
TOGETHER = 100
"""Trials that one process does: it keeps all that it compiles."""


@dataclass
class Outcome:
    """tried: cases; failures: of each that failed, what shows it, the smallest that was found."""

    tried: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass
class Progress:
    """The state of a campaign."""

    name: str
    seed: int
    trials: int = 0
    tried: int = 0
    failed: int = 0
    seconds: float = 0

    def add(self, outcome: Outcome, seconds: float) -> None:
        self.trials += 1
        self.tried += outcome.tried
        self.failed += len(outcome.failures)
        self.seconds += seconds


def trial(request: tuple[str, int, int]) -> dict[str, Any]:
    """The outcome of one trial, in a process that is ended where it takes too long."""
    name, seed, number = request
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        result: Outcome = importlib.import_module(f"tests.campaign.{name}").trial(seed, number)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return asdict(result)


def outcomes(name: str, seed: int, first: int = 0) -> Iterator[Outcome]:
    """The outcome of each trial from the first on, without end."""
    number = first
    while True:
        with Workers(1) as workers:
            for _ in range(TOGETHER):
                request = (name, seed, number)
                (answer,) = workers.map("tests.campaign:trial", [request], lambda *_: None)
                if isinstance(answer, Crash):
                    yield Outcome(1, [f"{answer.reason}\n{answer.trace}"])
                elif isinstance(answer, Exception):
                    yield Outcome(1, [f"{type(answer).__name__}: {answer}"])
                else:
                    yield Outcome(**answer)
                number += 1


def record(folder: Path, name: str, seed: int) -> Path:
    """The file that the outcomes of a campaign are written to, a line each."""
    return folder / f"{name}-{seed}.jsonl"


def so_far(path: Path) -> Progress:
    """Read a record, whose last line may be half written."""
    name, _, seed = path.stem.rpartition("-")
    progress = Progress(name, int(seed))
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    for line in lines:
        entry = json.loads(line)
        progress.add(Outcome(entry["tried"], entry["failures"]), entry["seconds"])
    return progress


def run(folder: Path, name: str, seed: int, minutes: float, say: Callable[[str], None]) -> Progress:
    """Go on with a campaign for some minutes, from where its record ends."""
    path = record(folder, name, seed)
    progress = so_far(path)
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    with path.open("a", encoding="utf-8") as lines:
        began = time.monotonic()
        for outcome in outcomes(name, seed, progress.trials):
            seconds = time.monotonic() - began
            for failure in outcome.failures:
                say(f"{name} {seed}/{progress.trials}: {failure}")
            progress.add(outcome, seconds)
            lines.write(json.dumps({**asdict(outcome), "seconds": round(seconds, 3)}) + "\n")
            lines.flush()
            began = time.monotonic()
            if began > end:
                return progress
    raise AssertionError("trials never end")
