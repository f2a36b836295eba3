"""Very many calls: the memory of the process stays what it was."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
from pathlib import Path

from tests.campaign.callers.calls import Call, small
from tests.campaign.callers.scene import Scene

CALLS = 100_000
TRACED = 10_000
"""Calls whose Python objects are counted, which takes longer."""
RESIDENT_GROWTH = 3 << 20
"""Bytes by which the process may grow in `CALLS` calls: parts of the heap that are in use anew."""
TRACED_GROWTH = 64 << 10
STATUS = Path("/proc/self/statm")
PAGE = 4096


def steady(scene: Scene) -> None:
    """Calls with small arguments, those that raise among them, by one thread and by eight."""
    calls = small(scene.calls)
    for count in (1, 8):
        grows(scene, calls, count)
    scene.check("after very many calls")


def grows(scene: Scene, calls: list[Call], threads: int) -> None:
    """Return whether memory grows with the number of calls, after warming up."""
    repeat(calls, threads, CALLS // 5)
    before = resident()
    repeat(calls, threads, CALLS // 2)
    growth = resident() - before
    wrong = f"grew by {growth} bytes in {CALLS // 2} calls"
    scene.add(CALLS // 2, [wrong] if growth > RESIDENT_GROWTH else [], f"{threads} threads")
    tracemalloc.start()
    repeat(calls, threads, TRACED // 5)
    before = traced()
    repeat(calls, threads, TRACED)
    growth = traced() - before
    tracemalloc.stop()
    wrong = f"Python's objects grew by {growth} bytes in {TRACED} calls"
    scene.add(TRACED, [wrong] if growth > TRACED_GROWTH else [], f"{threads} threads")


def repeat(calls: list[Call], threads: int, count: int) -> None:
    """So many calls in all, in turn, every second time with results in arrays of ours."""

    def work() -> None:
        turns = itertools.cycle(itertools.product(calls, (False, True)))
        for call, out in itertools.islice(turns, count // threads):
            call.problem(out)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def resident() -> int:
    """Bytes of the process in memory; 0 where the system does not say it."""
    gc.collect()
    return int(STATUS.read_text().split()[1]) * PAGE if STATUS.exists() else 0


def traced() -> int:
    """Bytes of Python's objects."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
