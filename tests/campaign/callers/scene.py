"""The parts of each use: calls with expected results, a random generator, the outcome."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from tests.campaign import Outcome
from tests.campaign.callers.calls import Call, calls_of, checked

PATIENCE = 60.0
"""Seconds after which a thread is taken to hang."""


@dataclass
class Scene:
    """paths: the files of the modules."""

    paths: Sequence[str]
    seed: int
    random: Random
    outcome: Outcome = field(default_factory=Outcome)

    @cached_property
    def calls(self) -> list[Call]:
        return calls_of(self.paths, self.seed)

    def check(self, where: str = "") -> None:
        """Every call once with new results and once with ours, by this thread."""
        self.add(2 * len(self.calls), checked(self.calls), where)

    def check_in_thread(self, where: str) -> None:
        """Check in another thread, which may find that it deadlocks."""
        result: list[list[str]] = []
        thread = threading.Thread(target=lambda: result.append(checked(self.calls)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        hangs = [f"another thread has waited {PATIENCE} s"]
        self.add(2 * len(self.calls), result[0] if result else hangs, where)

    def add(self, tried: int, problems: Sequence[str], where: str = "") -> None:
        self.outcome.tried += tried
        self.outcome.failures += [f"{where}: {problem}" for problem in problems]

    @contextmanager
    def busy(self, count: int) -> Iterator[None]:
        """So many threads call kernels as long as the block lasts; what is wrong goes into the
        outcome."""
        ended = threading.Event()

        def work(random: Random) -> None:
            while not ended.is_set():
                problem = random.choice(self.calls).problem(out=random.random() < 0.5)
                self.add(1, [problem] if problem else [], "meanwhile")

        threads = [
            threading.Thread(target=work, args=[Random(self.random.random())], daemon=True)
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(PATIENCE)
            if any(thread.is_alive() for thread in threads):
                self.add(1, [f"a busy thread has not ended after {PATIENCE} s"])
