"""The contestants' processes, which take turns."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tests.benchmarks import machine
from tests.benchmarks.record import Case
from tests.benchmarks.timing import BLOCK
from tests.benchmarks.worker import Prepared, serve

LIMIT = 120.0
"""Seconds after which a contestant that does not answer is ended."""

LEAST, MOST = 3, 60
"""The fewest and the most blocks that are timed."""

WIDE_KINDS = ("jacobian", "hessian")
"""Kinds whose peak memory is measured."""


class Failed(Exception):
    """Why a contestant has no result."""


class Rival(Protocol):
    """The interface of a contestant in a race, in this process or another."""

    def prepare(self, case: Case) -> Prepared: ...

    def measure(self) -> float: ...

    def peak(self) -> int | None: ...

    def rest(self) -> float: ...


class Worker:
    """A contestant in a process of its own, which is started again if it ends or hangs."""

    def __init__(self, name: str, threads: int, scratch: Path, log: Path, device: str = "") -> None:
        self.name, self.threads, self.scratch, self.log = name, threads, scratch, log
        self.device = device
        self.version = self._start()
        self.longest = 0.0
        """Seconds until its threads were idle after a block, at most."""

    def _start(self) -> str:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self.name, self.threads, self.device, self.log)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        with machine.settings(self.threads, self.scratch, self.device):
            self.process.start()
        theirs.close()
        return str(self._receive())

    def _receive(self) -> Any:
        try:
            if not self.connection.poll(LIMIT):
                raise Failed(f"no answer after {LIMIT:.0f} s")
            done, result = self.connection.recv()
        except (EOFError, ConnectionError):
            raise Failed("its process ended") from None
        if not done:
            raise Failed(result)
        return result

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            self.connection.send((method, arguments))
        except (OSError, ValueError):
            raise Failed("its process ended") from None
        return self._receive()

    def prepare(self, case: Case) -> Prepared:
        if not self.process.is_alive():
            self._start()
        try:
            prepared: Prepared = self._ask("prepare", case.reference())
        except Failed as failure:
            if "no answer" in str(failure):
                self.close()
            raise
        return prepared

    def measure(self) -> float:
        return float(self._ask("measure"))

    def peak(self) -> int | None:
        bytes_: int | None = self._ask("peak")
        return bytes_

    def rest(self) -> float:
        taken = machine.settle(self.process.pid)
        self.longest = max(self.longest, taken)
        return taken

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def rates(threads: int, scratch: Path, log: Path, device: str = "") -> machine.Rates:
    """The machine's rates, in a process with a worker's settings."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=serve, args=(theirs, "rates", threads, device, log), daemon=True
    )
    with machine.settings(threads, scratch, device):
        process.start()
    result: machine.Rates
    _, result = ours.recv()
    process.join()
    return result


@dataclass
class Entry:
    """A contestant's result in a case: seconds of the blocks, or the reason why there are none."""

    reason: str = ""
    variant: str = ""
    error: float = 0.0
    first: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    peak: int | None = None
    times: list[float] = field(default_factory=list)

    @property
    def least(self) -> float:
        return min(self.times)

    @property
    def median(self) -> float:
        return float(np.median(self.times))


@dataclass
class Outcome:
    """A case, with an entry for each contestant."""

    row: str
    sizes: dict[str, int]
    label: str
    dtype: str
    threads: int
    floor: float
    entries: dict[str, Entry] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Convert to JSON."""
        return asdict(self)


@contextmanager
def workers(
    names: Sequence[str],
    threads: int,
    scratch: Path,
    log: Callable[[str], Path],
    device: str = "",
) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """The contestants' processes, and why others are missing."""
    result, missing = {}, {}
    with ExitStack() as stack:
        for name in names:
            try:
                worker = Worker(name, threads, scratch, log(name), device)
            except Failed as failure:
                missing[name] = str(failure)
                continue
            stack.callback(worker.close)
            result[name] = worker
        yield result, missing


def run(
    case: Case,
    rivals: Mapping[str, Rival],
    seconds: float,
    threads: int,
    rates: machine.Rates,
) -> Outcome:
    """Prepare and check every contestant, then let them time blocks in turn, for `seconds` each."""
    expected = case.expected()
    outcome = Outcome(
        row=case.row.name,
        sizes=dict(case.sizes),
        label=case.label,
        dtype=case.dtype,
        threads=threads,
        floor=floor(case, expected, rates),
    )
    outcome.entries = {name: prepare(case, rival, expected) for name, rival in rivals.items()}
    racing = {
        name: (rivals[name], entry) for name, entry in outcome.entries.items() if not entry.reason
    }
    for turn in range(MOST):
        for rival, entry in racing.values():
            if not entry.reason and (turn < LEAST or _spent(entry) < seconds):
                _measure(rival, entry)
    return outcome


def prepare(case: Case, rival: Rival, expected: list[np.ndarray]) -> Entry:
    """A contestant's first call, checked against the closed form."""
    try:
        prepared = rival.prepare(case)
        error = case.error(prepared.arrays, expected)
        if error > case.tolerance:
            return Entry(reason=f"wrong: differs from the closed form by {error:.1e}")
        peak = rival.peak() if case.row.kind in WIDE_KINDS else None
        rival.rest()
    except Failed as failure:
        return Entry(reason=str(failure))
    return Entry(
        variant=prepared.variant,
        error=error,
        first=prepared.first,
        stages=prepared.stages,
        failures=prepared.failures,
        peak=peak,
    )


def _measure(rival: Rival, entry: Entry) -> None:
    try:
        entry.times.append(rival.measure())
    except Failed as failure:
        entry.reason = str(failure)
    rival.rest()


def _spent(entry: Entry) -> float:
    return sum(max(time, BLOCK) for time in entry.times)


def floor(case: Case, expected: list[np.ndarray], rates: machine.Rates) -> float:
    """Seconds below which nobody can get: the row's flops at the rate of matrix products, or its
    inputs read and results written at the rate of copies of that size."""
    product = rates.dgemm if case.dtype == "float64" else rates.sgemm
    entries = sum(array.size for array in (*case.arguments(), *expected))
    nbytes = entries * np.dtype(case.dtype).itemsize
    return max(case.row.flops(**case.sizes) / product, nbytes / rates.copying(nbytes))
