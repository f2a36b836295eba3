"""A contestant's process: it prepares a row, and times a block of calls when it is its turn."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks import machine, timing
from tests.benchmarks.contestants import find
from tests.benchmarks.contestants.base import Candidate, Contestant, Unable
from tests.benchmarks.rows import case_of


class Prepared(NamedTuple):
    """A contestant's answer to a case: the variant it chose, its first call's seconds from
    tracing on, what the call returned, and the variants that failed."""

    variant: str
    first: float
    stages: Mapping[str, float]
    arrays: list[np.ndarray]
    failures: Mapping[str, str]


class Ready(NamedTuple):
    """A variant that has been called once."""

    variant: str
    call: Callable[[], Any]
    first: float
    stages: Mapping[str, float]


@dataclass
class Turn:
    """A contestant at work on one case at a time."""

    contestant: Contestant
    call: Callable[[], Any] = lambda: None
    loops: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    """The variants chosen before, by row and type."""

    def prepare(self, reference: tuple[str, int, str]) -> Prepared:
        """Compile every variant, call it once and keep the quickest. Raises Unable where none
        works."""
        case = case_of(*reference)
        self.failures = {}
        self.call, self.loops = (lambda: None), 0
        candidates = self.contestant.candidates(case.row, case.arguments())
        if (known := self.known.get((case.row.name, case.dtype))) and self.contestant.slow:
            candidates = [candidate for candidate in candidates if candidate.variant == known]
        ready = [done for candidate in candidates if (done := self._try(candidate)) is not None]
        if not ready:
            raise Unable("; ".join(f"{name}: {text}" for name, text in self.failures.items()))
        calls, finish = [candidate.call for candidate in ready], self.contestant.finish
        best = ready[machine.undisturbed(lambda: timing.quickest(calls, finish))]
        self.call = best.call
        gc.collect()
        self.known[case.row.name, case.dtype] = best.variant
        arrays = self.contestant.arrays(best.call())
        return Prepared(best.variant, best.first, best.stages, arrays, self.failures)

    def _try(self, candidate: Candidate) -> Ready | None:
        started = time.perf_counter()
        try:
            call = candidate.make()
            call()
            self.contestant.finish()
        except Exception as error:  # whatever another package raises, it is reported
            traceback.print_exc()
            self.failures[candidate.variant] = one_line(error)
            return None
        first = time.perf_counter() - started
        return Ready(candidate.variant, call, first, dict(self.contestant.notes()))

    def measure(self) -> float:
        """Seconds a call, in one block."""
        finish = self.contestant.finish
        if not self.loops:
            self.loops = machine.undisturbed(lambda: timing.calibrate(self.call, finish=finish))
        return machine.undisturbed(lambda: timing.block(self.call, self.loops, finish))

    def peak(self) -> int | None:
        """Bytes that one call needs at most, its result included."""
        return timing.peak_bytes(self.call)


def serve(connection: Connection, name: str, threads: int, device: str, log: Path) -> None:
    """Answer requests (method, arguments) with (done, result or reason) until there is None."""
    _redirect(log)
    if name == "rates":
        connection.send((True, device_rates() if device else machine.rates(threads)))
        return
    try:
        turn = Turn(find(name, threads, device))
    except ImportError as error:
        connection.send((False, f"not installed: {error}"))
        return
    connection.send((True, turn.contestant.version))
    with suppress(EOFError):
        while (request := connection.recv()) is not None:
            connection.send(_answer(turn, *request))


def device_rates() -> machine.Rates:
    """Measure the rates of the CUDA device."""
    from tests.benchmarks.contestants import device  # which needs CuPy

    return device.rates()


def _answer(turn: Turn, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, getattr(turn, method)(*arguments)
    except Exception as error:  # whatever another package raises, it is reported
        traceback.print_exc()
        return False, one_line(error)


def one_line(error: Exception) -> str:
    """An error's kind and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if isinstance(error, Unable):
        return text
    return f"{type(error).__name__}: {text}"[:160]


def _redirect(log: Path) -> None:
    """Redirect the contestant's output to a file."""
    with log.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
