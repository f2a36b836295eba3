"""Seconds and bytes of a call."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLOCK = 0.02
"""Seconds that a block of calls takes, where a single call is not longer."""


def at_once() -> None:
    """Wait for nothing: calls are complete when they return."""


def block(call: Callable[[], Any], loops: int, finish: Callable[[], None] = at_once) -> float:
    """Seconds a call, over `loops` calls after one that is not counted; `finish` waits for them."""
    call()
    finish()
    with without_collection():
        started = time.perf_counter()
        for _ in range(loops):
            call()
        finish()
        return (time.perf_counter() - started) / loops


def calibrate(
    call: Callable[[], Any], seconds: float = BLOCK, finish: Callable[[], None] = at_once
) -> int:
    """Count the calls that fill a block."""
    loops = 1
    while True:
        taken = block(call, loops, finish) * loops
        if taken >= seconds / 4:
            return max(1, round(loops * seconds / taken))
        loops *= 4


def quickest(calls: list[Callable[[], Any]], finish: Callable[[], None] = at_once) -> int:
    """The position of the call that takes least."""
    if len(calls) == 1:
        return 0
    times = [_least(call, finish) for call in calls]
    return times.index(min(times))


def _least(call: Callable[[], Any], finish: Callable[[], None]) -> float:
    loops = calibrate(call, BLOCK / 4, finish)
    first = block(call, loops, finish)
    if first > BLOCK:
        return first
    return min(first, block(call, loops, finish), block(call, loops, finish))


def peak_bytes(call: Callable[[], Any]) -> int | None:
    """The most memory that the process holds during a call, more than before it, result included;
    None where the system does not tell (it does on Linux)."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    gc.collect()
    reset.write_text("5", encoding="ascii")
    before = _memory("VmRSS")
    result = call()
    peak = _memory("VmHWM")
    del result
    return max(0, peak - before)


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
