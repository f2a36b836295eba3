"""Threads that share the work of a kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from derivatrix.templates.support.cpu.kernels import SharedKernel
from derivatrix.templates.support.cpu.thread_pool import (
    NEXT,
    WORDS,
    _ThreadPool,
    atomic_add,
    worker_loop,
)
from derivatrix.templates.support.internals.functions import compiled


@compiled(counted=True)
def count_part(rows, counts, part_counts, number, part, parts, first, last, block):
    """Notes all that a part gets."""
    rows[:] += number
    counts[0] += last - first
    counts[1] += rows.shape[0]
    counts[2] += part
    part_counts[part] += parts * block


@compiled()
def meet_others(started, part, parts):
    """Waits, but not forever, until every part has started."""
    atomic_add(started, 0, 1)
    for _ in range(1_000_000_000):
        if atomic_add(started, 0, 0) >= parts:
            return
    atomic_add(started, 0, 1000)


@compiled()
def fail_part(marks, part):
    marks[part] += 1
    if part == 3:
        raise ValueError("part 3")


@compiled()
def note_number(notes, number, sums, part):
    notes[part] += number
    if part == 0:
        sums[()] = number


def shared(part: Any, kinds: Sequence[str], codes: str) -> SharedKernel:
    return SharedKernel(None, part, kinds, codes)


COUNT = shared(count_part, ["real:2", "int64:1", "int64:1", "real", *["intp"] * 5], "sowwpnflb")
COUNT_ALIGNED = shared(count_part, COUNT.kinds, "Sowwpnflb")
MEET = shared(meet_others, ["int64:1", "intp", "intp"], "wpn")
FAIL = shared(fail_part, ["int64:1", "intp"], "wp")
FLOAT = np.dtype(np.float64)


def submitted(
    pool: _ThreadPool,
    kernel: SharedKernel,
    count: int,
    length: int,
    given: Sequence[Any],
    real: Any = FLOAT,
) -> bool:
    """Let threads do so many parts of a kernel; whether one failed."""
    return bool(pool.submit(kernel.compute, count, (length, count, 1), real, given))


@pytest.fixture
def pool() -> Iterator[_ThreadPool]:
    made = _ThreadPool()
    worker_loop(made.words)  # compiled, for threads that are to come at once
    yield made
    made.stop()


def check_counts(pool: _ThreadPool, count: int, length: int) -> None:
    rows, counts = np.zeros((length, 2)), np.zeros((count, 3), np.int64)
    part_counts = np.zeros(count, np.int64)
    assert not submitted(pool, COUNT, count, length, (rows, counts, part_counts, 2.5))
    assert (rows == 2.5).all()
    borders = np.arange(count + 1) * length // count
    np.testing.assert_array_equal(counts[:, 0], np.diff(borders))
    np.testing.assert_array_equal(counts[:, 1], np.diff(borders))
    np.testing.assert_array_equal(counts[:, 2], np.arange(count))
    assert (part_counts == count).all()


@pytest.mark.parametrize(("count", "length"), [(1, 10), (2, 10), (3, 10), (5, 3), (2, 0)])
def test_every_part_is_done_once(pool: _ThreadPool, count: int, length: int) -> None:
    for _ in range(200):
        check_counts(pool, count, length)


def test_parts_of_samples_begin_with_a_cache_line(pool: _ThreadPool) -> None:
    counts, part_counts = np.zeros((3, 3), np.int64), np.zeros(3, np.int64)
    rows = (np.zeros((50, 2)), counts, part_counts, 1.0)
    assert not submitted(pool, COUNT_ALIGNED, 3, 50, rows)
    np.testing.assert_array_equal(counts[:, 0], [16, 16, 18])
    np.testing.assert_array_equal(counts[:, 1], counts[:, 0])


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_numbers(pool: _ThreadPool, real: type) -> None:
    """A kernel is given a number and an array without axes."""
    kernel = shared(note_number, ["real:1", "real", "real:0", "intp"], "wwwp")
    notes, sums = np.zeros(4, real), np.zeros((), real)
    assert not submitted(pool, kernel, 4, 0, (notes, real(0.5), sums), np.dtype(real))
    np.testing.assert_array_equal(notes, [0.5] * 4)
    assert sums == 0.5


def test_callers_may_meet(pool: _ThreadPool) -> None:
    """One of them has the helpers, the others do their work alone."""
    wrong: list[BaseException] = []

    def work(count: int) -> None:
        try:
            for _ in range(2000):
                check_counts(pool, count, 7)
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(count,)) for count in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def check_meeting(pool: _ThreadPool, count: int) -> None:
    started = np.zeros(1, np.int64)
    assert not submitted(pool, MEET, count, 0, (started,))
    assert started[0] == count


def test_parts_are_done_at_the_same_time(pool: _ThreadPool) -> None:
    """Both threads that wait for work and threads that sleep take part."""
    check_meeting(pool, 1)
    for pause in (0.0, 0.0, 0.05, 0.0, 0.05):
        time.sleep(pause)
        check_meeting(pool, 2)


def test_a_caller_with_much_to_do_between(pool: _ThreadPool) -> None:
    """A helper that ran out of patience, but could not say so yet, comes all the same."""
    check_meeting(pool, 1)
    for _ in range(20):
        stop = time.perf_counter() + 0.002
        while time.perf_counter() < stop:
            pass
        check_meeting(pool, 2)


def test_a_part_may_fail(pool: _ThreadPool) -> None:
    for count in (3, 4, 9):
        marks = np.zeros(count, np.int64)
        assert submitted(pool, FAIL, count, 0, (marks,)) == (count > 3)
        assert (marks == 1).all()
    check_counts(pool, 3, 10)


def test_nobody_helps(pool: _ThreadPool) -> None:
    """Whoever offers work does what nobody takes."""
    marks = np.zeros(3, np.int64)
    assert not FAIL.compute(np.zeros(WORDS, np.int64), (0, 3, 1), FLOAT, (marks,))
    assert (marks == 1).all()


def test_no_thread_stays(pool: _ThreadPool) -> None:
    before = threading.active_count()
    check_counts(pool, 4, 10)
    assert len(pool.helpers) == 3 and threading.active_count() == before + 3
    assert pool.words[NEXT] >= 4
    pool.stop()
    assert threading.active_count() == before


ENDING = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from tests.templates.test_thread_pool import _ThreadPool, check_counts
check_counts(_ThreadPool(), 3, 10)
"""


def test_a_process_ends_with_helpers_at_work() -> None:
    process = subprocess.run([sys.executable, "-c", ENDING, "."], timeout=100)
    assert process.returncode == 0
