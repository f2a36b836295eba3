"""Several threads of Python that call kernels: what helps them, and what they leave to each other;
copies and the end of a process meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.templates.support.cpu import thread_pool
from derivatrix.templates.support.cpu.thread_pool import _ThreadPool, worker_loop
from tests.packages import support_file
from tests.templates.test_thread_pool import check_counts

n, c = dx.dims("n c")
x, W, b, X = dx.vector("x", n), dx.matrix("W", c, n), dx.vector("b", c), dx.matrix("X", n, n)
model = dx.function("model", [x, W, b], dx.softmax(W @ x + b), batch=[x])
square = dx.function("square", [X], X @ X)


@pytest.fixture
def pool() -> Iterator[_ThreadPool]:
    made = _ThreadPool()
    worker_loop(made.words)  # compiled, for threads that are to come at once
    yield made
    made.stop()


class Inside:
    """A thread that is in a kernel as long as the block lasts."""

    def __init__(self, pool: _ThreadPool, threads: int) -> None:
        self.pool, self.threads = pool, threads
        self.entered, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        def shared(*_: Any) -> bool:
            self.entered.set()
            self.done.wait()
            return False

        self.pool.submit(shared, self.threads, self.threads, 0, np.dtype(float), ())

    def __enter__(self) -> None:
        self.thread.start()
        self.entered.wait()

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def test_one_thread_of_blas(pool: _ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with small products in a loop over time, and no later kernels."""
    monkeypatch.setattr(thread_pool, "_get_blas_threads", lambda: count)
    threads = []

    def set_threads(number: int) -> None:
        nonlocal count
        count = number

    monkeypatch.setattr(thread_pool, "_set_blas_threads", set_threads)
    count = 4
    for run in (pool.run_by_one_thread, pool.run):
        run(lambda: threads.append(count))
    assert threads == [1, 4] and count == 4


def test_packages_have_one_pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, factor in (("one", 1), ("two", 2)):
        function = dx.function(name, [x], dx.exp(factor * x), batch=[x])
        dx.build(function, tmp_path / name, verify=False)
    first, second = (dx.load(tmp_path / name / f"{name}.py") for name in ("one", "two"))
    pools = [support_file(module, "cpu.thread_pool") for module in (first, second)]
    assert pools[0] is not pools[1] and pools[0]._THREAD_POOL is pools[1]._THREAD_POOL
    samples = np.zeros((100_000, 10))
    for module in (first, second):
        monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", 2)
    first.value(samples)
    before = threading.active_count()
    second.value(samples)
    assert threading.active_count() == before


def test_helpers_sleep_while_another_caller_has_them(pool: _ThreadPool) -> None:
    check_counts(pool, 2, 10)
    with Inside(pool, 2):
        call_count = pool.helpers[0].call_count
        for _ in range(20):
            check_counts(pool, 2, 10)
        assert pool.helpers[0].call_count == call_count
    check_counts(pool, 2, 10)
    assert pool.helpers[0].call_count == call_count + 1


def test_as_many_threads_as_callers_leave(pool: _ThreadPool) -> None:
    with Inside(pool, 1):
        check_counts(pool, 2, 10)
        assert not pool.helpers
        check_counts(pool, 4, 10)
        assert len(pool.helpers) == 2


def test_blas_has_what_callers_leave(pool: _ThreadPool) -> None:
    """And as many threads as before when they are gone; one in parts of shared work."""
    seen: list[int] = []

    def look(*_: Any) -> bool:
        seen.append(thread_pool._get_blas_threads())
        return False

    before = thread_pool._get_blas_threads()
    thread_pool._set_blas_threads(3)
    try:
        pool.run(look)
        most = seen[0]  # 1 where SciPy has another BLAS
        with Inside(pool, 1):
            pool.run(look)
        with Inside(pool, 1), Inside(pool, 1), Inside(pool, 1):
            pool.run(look)
        pool.submit(look, 2, 2, 0, np.dtype(float), ())
        pool.run(look)
        assert seen == [most, max(1, most - 1), 1, 1, most]
        with Inside(pool, 1):
            thread_pool._set_blas_threads(2)  # by somebody else
        assert thread_pool._get_blas_threads() == min(2, most)
    finally:
        thread_pool._set_blas_threads(before)


def test_a_caller_that_was_interrupted_is_forgotten(pool: _ThreadPool) -> None:
    pool.enter(2)
    pool.run(lambda: None)
    assert not pool.callers and pool.served_caller is None

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(interrupt)
    assert not pool.callers


def test_no_kernel_begins_after_the_end(pool: _ThreadPool) -> None:
    """Threads that call kernels wait when the process ends, but not the one that ends it."""
    calls = [0, 0, 0]
    going = True

    def work(place: int) -> None:
        while going:
            check_counts(pool, 2, 7)
            calls[place] += 1

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(3)]
    for thread in threads:
        thread.start()
    while not all(calls):
        pass
    pool.stop()
    assert not pool.callers and not pool.helpers
    ended = list(calls)
    check_counts(pool, 2, 7)
    threading.Event().wait(0.2)
    assert sum(calls) <= sum(ended) + 3  # those that had left their kernel
    going = False
    pool.open()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def modules() -> list[ModuleType]:
    return [dx.compile(model), dx.compile(square)]


def test_callers_of_several_kernels(
    modules: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All get what one alone gets."""
    classes, squares = modules
    monkeypatch.setattr(support_file(classes, "cpu.kernels"), "_THREADS", 2)
    generator = np.random.default_rng(0)
    shapes = (20_000, 16), (10, 16), (10,), (20_000, 10)
    arrays = [generator.normal(size=shape) for shape in shapes]
    pair = generator.normal(size=(2, 130, 130))
    expected, product = classes.vjp(*arrays), squares.vjp(*pair)
    wrong = []

    def work() -> None:
        for _ in range(20):
            actual = classes.vjp(*arrays)
            if not all(map(np.array_equal, actual, expected)):
                wrong.append("model")
            if not np.allclose(squares.vjp(*pair), product, rtol=1e-9, atol=1e-9):
                wrong.append("square")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not support_file(classes, "cpu.thread_pool")._THREAD_POOL.callers


BUSY = """
import os, signal, threading, time
import numpy as np
from generated import square as module
pair = np.random.default_rng(0).normal(size=(2, 256, 256))
expected = module.vjp(*pair)
def work():
    while True:
        module.vjp(*pair)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
FORKING = """
for _ in range(3):
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(not np.allclose(module.vjp(*pair), expected, rtol=1e-9, atol=1e-9))
    assert os.waitpid(child, 0)[1] == 0
"""
INTERRUPTED = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # in OpenBLAS's threads
from generated._support.cpu.thread_pool import _THREAD_POOL as pool
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(500):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        while True:
            pool.run(int)
    except KeyboardInterrupt:
        pass
other = threading.Thread(target=pool.run, args=[int], daemon=True)
other.start()
other.join(30)
assert not other.is_alive()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
def test_others_go_on_after_interruptions(place: Path) -> None:
    """A lock that the interrupted thread has taken is not left locked. Python 3.11 does not look
    for a signal that the system gave to another thread, until something else makes it."""
    run(INTERRUPTED, place)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_copy_of_a_busy_process(place: Path) -> None:
    """No thread holds a lock of OpenBLAS then, that nobody would open in the copy."""
    run(BUSY + FORKING, place)


def test_the_end_of_a_busy_process(place: Path) -> None:
    for _ in range(3):
        run(BUSY, place)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package `generated` of `square`."""
    folder = tmp_path_factory.mktemp("busy")
    dx.build(square, folder / "generated", verify=False)
    return folder


def run(code: str, place: Path) -> None:
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    process = subprocess.run(command, cwd=place, env=environment, timeout=120)
    assert process.returncode == 0
