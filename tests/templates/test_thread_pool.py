"""Threads that share the work of a kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from derivatrix.templates.support.cpu.shared_work import (
    NEXT,
    WORDS,
    ParallelKernel,
    atomic_add,
    worker_loop,
)
from derivatrix.templates.support.cpu.thread_pool import _ThreadPool
from derivatrix.templates.support.internals.functions import compiled


@compiled(counted=True)
def count_part(rows, counts, part_counts, number, part, parts, first, last):
    """Notes all that a part gets."""
    rows[:] += number
    counts[0] += last - first
    counts[1] += rows.shape[0]
    counts[2] += part
    part_counts[part] += parts


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
def note_phase(notes, number, sums, phase, part):
    notes[phase, part] += number + phase
    if phase == 0 and part == 0:
        sums[()] = number


COUNT = ParallelKernel(
    count_part, ["real:2", "int64:1", "int64:1", "real", *["intp"] * 4], "sowwpnfl"
)
COUNT_ALIGNED = ParallelKernel(count_part, COUNT.kinds, "Sowwpnfl")
MEET = ParallelKernel(meet_others, ["int64:1", "intp", "intp"], "wpn")
FAIL = ParallelKernel(fail_part, ["int64:1", "intp"], "wp")
FLOAT = np.dtype(np.float64)


@pytest.fixture
def pool() -> Iterator[_ThreadPool]:
    made = _ThreadPool()
    worker_loop(made.words)  # compiled, for threads that are to come at once
    yield made
    made.stop()


def check_counts(pool: _ThreadPool, count: int, length: int) -> None:
    rows, counts = np.zeros((length, 2)), np.zeros((count, 3), np.int64)
    part_counts = np.zeros(count, np.int64)
    assert not pool.submit(COUNT, count, count, length, FLOAT, (rows, counts, part_counts, 2.5))
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
    assert not pool.submit(COUNT_ALIGNED, 3, 3, 50, FLOAT, rows)
    np.testing.assert_array_equal(counts[:, 0], [16, 16, 18])
    np.testing.assert_array_equal(counts[:, 1], counts[:, 0])


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_phases_and_numbers(pool: _ThreadPool, real: type) -> None:
    """A kernel of two phases is given a number, an array without axes, and the phase."""
    kernel = ParallelKernel(note_phase, ["real:2", "real", "real:0", "intp", "intp"], "wwwhp", 2)
    notes, sums = np.zeros((2, 4), real), np.zeros((), real)
    assert not pool.submit(kernel, 2, 4, 0, np.dtype(real), (notes, real(0.5), sums))
    np.testing.assert_array_equal(notes, [[0.5] * 4, [1.5] * 4])
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
    assert not pool.submit(MEET, count, count, 0, FLOAT, (started,))
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
        assert pool.submit(FAIL, count, count, 0, FLOAT, (marks,)) == (count > 3)
        assert (marks == 1).all()
    check_counts(pool, 3, 10)


def test_nobody_helps(pool: _ThreadPool) -> None:
    """Whoever offers work does what nobody takes."""
    marks = np.zeros(3, np.int64)
    assert not FAIL(np.zeros(WORDS, np.int64), 3, 0, FLOAT, (marks,))
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
