"""Threads that share the work of a kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from numba import njit

from derivatrix.templates.support.cpu.shared_work import (
    NEXT,
    WORDS,
    _Shared,
    atomic_add,
    submit,
    worker_loop,
)
from derivatrix.templates.support.cpu.thread_pool import _ThreadPool
from derivatrix.templates.support.internals.memory import part_of


@njit(nogil=True)
def count_part(given, own, whole, number, part, parts, first, last):
    """Notes all that a part gets."""
    given[:] += number
    own[0] += last - first
    own[1] += given.shape[0]
    own[2] += part
    whole[part] += parts


@njit(nogil=True)
def count_parts(words, addresses, count, length, given, own, whole, number):
    arguments = (given, own, whole, number)
    return submit(words, part_of(addresses[1], "sowwpnfl", arguments, length, count), count)


@njit(nogil=True)
def meet_others(started, part, parts):
    """Waits, but not forever, until every part has started."""
    atomic_add(started, 0, 1)
    for _ in range(1_000_000_000):
        if atomic_add(started, 0, 0) >= parts:
            return
    atomic_add(started, 0, 1000)


@njit(nogil=True)
def meet(words, addresses, count, length, started):
    return submit(words, part_of(addresses[1], "wpn", (started,), length, count), count)


@njit(nogil=True)
def fail_part(marks, part):
    marks[part] += 1
    if part == 3:
        raise ValueError("part 3")


@njit(nogil=True)
def fail(words, addresses, count, length, marks):
    return submit(words, part_of(addresses[1], "wp", (marks,), length, count), count)


COUNT = _Shared(count_parts, count_part, ["real:2", "int64:1", "int64:1", "real", *["intp"] * 4])
MEET = _Shared(meet, meet_others, ["int64:1", "intp", "intp"])
FAIL = _Shared(fail, fail_part, ["int64:1", "intp"])
FLOAT = np.dtype(np.float64)


@pytest.fixture
def pool() -> Iterator[_ThreadPool]:
    made = _ThreadPool()
    worker_loop(made.words)  # compiled, for threads that are to come at once
    yield made
    made.stop()


def check_counts(pool: _ThreadPool, count: int, length: int) -> None:
    given, own = np.zeros((length, 2)), np.zeros((count, 3), np.int64)
    whole = np.zeros(count, np.int64)
    assert not pool.submit(COUNT, count, count, length, FLOAT, (given, own, whole, 2.5))
    assert (given == 2.5).all()
    borders = np.arange(count + 1) * length // count
    np.testing.assert_array_equal(own[:, 0], np.diff(borders))
    np.testing.assert_array_equal(own[:, 1], np.diff(borders))
    np.testing.assert_array_equal(own[:, 2], np.arange(count))
    assert (whole == count).all()


@pytest.mark.parametrize(("count", "length"), [(1, 10), (2, 10), (3, 10), (5, 3), (2, 0)])
def test_every_part_is_done_once(pool: _ThreadPool, count: int, length: int) -> None:
    for _ in range(200):
        check_counts(pool, count, length)


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
    assert not FAIL(FLOAT, np.zeros(WORDS, np.int64), 3, 0, marks)
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
    done = subprocess.run([sys.executable, "-c", ENDING, "."], timeout=100)
    assert done.returncode == 0
