"""A process's pool of threads, and its callers of kernels.

One caller at a time has the helpers; other callers work alone, and BLAS uses the remaining threads.
OpenBLAS's threads wait for each other without giving up their processors: if these are fewer than
the threads, waiting takes longer than the work.
"""

# mypy: allow-untyped-defs

import atexit
import ctypes
import os
import sys
from queue import SimpleQueue
from threading import Condition, RLock, Thread, get_ident
from time import sleep
from types import ModuleType

import numpy as np

from ..internals.functions import linear_algebra
from .shared_work import BUSY, WORDS, worker_loop

TRIES = 5
"""How many times a thread that was called looks for work, each followed by a nap."""
NAP = 1e-4
"""Seconds."""
_LONGEST_WAIT = 10.0
"""Seconds that a fork, and the end of a process, wait for kernels that other threads are in."""


def _of_openblas(name, otherwise):
    """A function of SciPy's OpenBLAS; `otherwise` where SciPy has another BLAS, which is left
    alone."""
    library = ctypes.PyDLL(linear_algebra("cython_blas").__file__)
    for prefix in ("scipy_openblas", "openblas"):
        try:
            return getattr(library, f"{prefix}_{name}")
        except AttributeError:
            pass
    return otherwise


_get_blas_threads = _of_openblas("get_num_threads", lambda: 1)
_set_blas_threads = _of_openblas("set_num_threads", lambda count: None)


class _Helper:
    """A thread that takes part in what the words say, or sleeps."""

    def __init__(self, words):
        self.words, self.called, self.asleep = words, 0, False
        self.calls = SimpleQueue[bool | None]()
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while True:
            called = self.called
            self.help()
            self.asleep = True
            # whoever called before that saw it awake
            if called == self.called and self.calls.get() is None:
                return
            self.asleep = False

    def help(self):
        """Take part in what is offered. Whoever called may have yet to offer its work, if this
        thread has taken its processor: it gets it back then."""
        for _ in range(TRIES):
            if worker_loop(self.words):
                return
            sleep(NAP)

    def call(self):
        self.called += 1
        if self.asleep:
            self.asleep = False
            self.calls.put(True)

    def stop(self):
        self.calls.put(None)
        self.thread.join()


class _ThreadPool:
    """The callers of kernels, and helper threads, which are started when they are needed.

    helped: the caller that has the helpers. closed: the only thread that may begin a kernel; None
    if all may. found, given: the number of BLAS's threads as the program set it, and as it is now.
    Callers are identified by thread, so that the next call of one that was interrupted between two
    statements replaces it. For the same reason `lock` is entered directly: Ctrl-C within the
    methods of Condition, which are Python code, would leave it locked.
    """

    def __init__(self):
        self.known = False
        self.begin()

    def begin(self):
        """There is no thread but this one, as in a process that was forked."""
        self.words, self.alone = np.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64)
        self.alone[BUSY] = 1
        self.helpers, self.callers = [], set()
        self.helped = self.closed = None
        self.found = self.given = 0
        self.lock = RLock()
        self.changed = Condition(self.lock)

    def submit(self, kernel, threads, parts, length, real, arguments):
        """Call a ParallelKernel for each part, by so many threads at most, with floats of type
        `real`; return whether one failed."""
        try:
            words = self.enter(threads)
            return kernel(words, parts, length, real, arguments)
        finally:
            self.leave()

    def run(self, kernel, *arguments):
        """Call a kernel that is for one thread, and BLAS's."""
        try:
            self.enter(1)
            kernel(*arguments)
        finally:
            self.leave()

    def enter(self, threads):
        """Count this thread as a caller; the words by which others help it, or nobody does."""
        me = get_ident()
        with self.lock:
            if not self.known:
                self.know_process()
            if self.closed not in (None, me):
                self.changed.wait_for(lambda: self.closed in (None, me), _LONGEST_WAIT)
            self.callers.add(me)
            helpers = threads - len(self.callers)
            if helpers > 0 and self.helped is None and self.closed is None:
                self.helped = me
                self.call(helpers)
            self.give_blas()
            return self.words if self.helped == me else self.alone

    def leave(self):
        me = get_ident()
        with self.lock:
            self.callers.discard(me)
            if self.helped == me:
                self.helped = None
            self.give_blas()
            if self.closed is not None:  # whoever closed it waits for callers to leave
                self.changed.notify_all()

    def call(self, count):
        """Wake so many helpers."""
        while len(self.helpers) < count:
            self.helpers.append(_Helper(self.words))
        for helper in self.helpers[:count]:
            helper.call()

    def give_blas(self):
        """Leave BLAS the threads that callers do not take; one in each part of shared work."""
        now = _get_blas_threads()
        if now != self.given:
            self.found = now
        busy = len(self.callers) - 1 if self.callers else 0
        self.given = 1 if self.helped is not None else max(1, self.found - busy)
        if self.given != now:
            _set_blas_threads(self.given)

    def know_process(self):
        """Be told of its end, and of its copies: a lock that a thread held in BLAS would stay
        locked in a copy, and BLAS that ends under a thread may take the process with it."""
        self.known = True
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.close, after_in_parent=self.open, after_in_child=self.begin
            )

    def close(self):
        """Let no other thread begin a kernel, and wait until none is in one."""
        me = get_ident()
        with self.lock:
            self.changed.wait_for(lambda: self.closed in (None, me), _LONGEST_WAIT)
            self.closed = me
            self.changed.wait_for(lambda: self.callers <= {me}, _LONGEST_WAIT)

    def open(self):
        with self.lock:
            self.closed = None
            self.changed.notify_all()

    def stop(self):
        """No more kernels but of this thread, and none that others help."""
        self.close()
        while self.helpers:
            self.helpers.pop().stop()


_POOL_MODULE = "_derivatrix_thread_pool_1"
"""What all generated modules of a process have in common, under the number of a version that counts
what they do to it: the words, and the methods of the pool."""
_THREAD_POOL = vars(sys.modules.setdefault(_POOL_MODULE, ModuleType(_POOL_MODULE))).setdefault(
    "pool", _ThreadPool()
)
