"""The pool of threads of a process, which compute parts of kernels, and the words in memory by
which they find work.

Helper threads that have computed a part wait for the next one in compiled code for 20 to 60 µs,
then sleep. The thread that offers work computes all parts that no helper takes, so that it never
waits for a helper to wake. Numba's own thread pool ends the process if two threads call it at once;
passing work to threads of `concurrent.futures` takes 45 µs.

One caller at a time has the helpers; other callers compute all parts themselves, and BLAS uses the
remaining threads. OpenBLAS's threads wait for each other without yielding their processors: with
more threads than processors, waiting takes longer than the work.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import atexit
import ctypes
import os
import sys
from queue import SimpleQueue
from threading import Condition, RLock, Thread, get_ident
from time import sleep
from types import ModuleType

import numpy as np

from ..internals.functions import compiled, linear_algebra
from ..internals.memory import atomic, invoke, look

BUSY = 0
"""Place of the word that is 1 while a caller has the helpers. Each word has its own cache line."""
OPEN = 8
"""1 while helpers may join the caller's work."""
FUNCTION = 16
"""The address of the function that computes a part of the work."""
DATA = 24
"""The address of the arguments of that function."""
COUNT = 32
"""The number of parts of the work."""
NEXT = 40
"""The number of the next part that nobody has taken."""
HELPERS = 48
"""The number of helpers that compute parts."""
FAILED = 56
"""1 if a part failed."""
WORDS = 64
"""The length of the array of words."""
MAX_LOOKS = 1000
"""Most times that a helper looks for work before it sleeps: 20 to 60 µs."""
MAX_TRIES = 5
"""Most times that a called helper looks for work. It naps after each, for NAP_SECONDS."""
NAP_SECONDS = 1e-4
_MAX_WAIT_SECONDS = 10.0
"""Longest wait of a fork, or of the end of a process, for kernels that other threads run."""

atomic_add = atomic("add")
atomic_exchange = atomic("xchg")


@compiled()
def claim(words):
    """Compute parts of the offered work until none is left."""
    function, data, count = words[FUNCTION], words[DATA], words[COUNT]
    while True:
        part = atomic_add(words, NEXT, 1)
        if part >= count:
            return
        if invoke(function, data, part):
            atomic_exchange(words, FAILED, 1)


@compiled(is_called_from_python=True)
def submit(words, function, arguments, count):
    """Compute all parts of some work, with the helpers if no other thread has them; return whether
    a part failed. function: the address of a function that computes a part from the address of
    `arguments`, an array of words, and the number of the part."""
    data = arguments.ctypes.data
    failed = 0
    if count == 1 or atomic_exchange(words, BUSY, 1):  # another thread has the helpers
        for part in range(count):
            failed |= invoke(function, data, part)
        return failed != 0
    words[FUNCTION], words[DATA], words[COUNT] = function, data, count
    atomic_exchange(words, FAILED, 0)
    atomic_exchange(words, NEXT, 0)
    atomic_exchange(words, OPEN, 1)
    claim(words)
    atomic_exchange(words, OPEN, 0)
    while look(words, HELPERS):
        pass
    failed = words[FAILED]
    atomic_exchange(words, BUSY, 0)
    return failed != 0


@compiled(is_called_from_python=True)
def worker_loop(words):
    """Compute parts of offered work until none has been offered for MAX_LOOKS looks; return whether
    this thread helped."""
    idle, helped = 0, False
    while idle < MAX_LOOKS:
        idle += 1
        if look(words, OPEN) and look(words, NEXT) < words[COUNT]:
            atomic_add(words, HELPERS, 1)
            if look(words, OPEN):  # the caller withdraws its work after all helpers have left
                claim(words)
            atomic_add(words, HELPERS, -1)
            idle, helped = 0, True
    return helped


def _openblas_function(name, fallback):
    """Look up a function of SciPy's OpenBLAS; return `fallback` if SciPy has another BLAS, whose
    threads nobody counts."""
    library = ctypes.PyDLL(linear_algebra("cython_blas").__file__)
    for prefix in ("scipy_openblas", "openblas"):
        try:
            return getattr(library, f"{prefix}_{name}")
        except AttributeError:
            pass
    return fallback


_get_blas_threads = _openblas_function("get_num_threads", lambda: 1)
_set_blas_threads = _openblas_function("set_num_threads", lambda count: None)


class _Helper:
    """A thread that computes parts of offered work, and sleeps while there is none.

    call_count: how often it was called. wake_ups: True wakes the sleeping thread, None ends it."""

    def __init__(self, words):
        self.words, self.call_count, self.is_asleep = words, 0, False
        self.wake_ups = SimpleQueue[bool | None]()
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            call_count = self.call_count
            self.help()
            self.is_asleep = True
            # a caller before this line saw the thread awake and sent no wake-up
            if call_count == self.call_count and self.wake_ups.get() is None:
                return
            self.is_asleep = False

    def help(self):
        """Compute parts of the offered work. If this thread runs on the processor of its caller,
        which has not offered the work yet, a nap returns the processor. A thread that naps whenever
        it finds no work waits for BLAS's threads, which look for work, too: a softmax's Jacobian
        took 130 µs instead of 70."""
        for _ in range(MAX_TRIES):
            if worker_loop(self.words):
                return
            sleep(NAP_SECONDS)

    def call(self):
        self.call_count += 1
        if self.is_asleep:
            self.is_asleep = False
            self.wake_ups.put(True)

    def stop(self):
        self.wake_ups.put(None)
        self.thread.join()


class _ThreadPool:
    """The threads that call kernels, and helper threads, which start at the first need.

    words: those by which helpers find work; serial_words: the same without helpers. callers: the
    threads in a kernel; serial_callers: those for whom BLAS has one thread; served_caller: the one
    that has the helpers.
    only_caller: the only thread that may begin a kernel; None if all may. program_blas_threads: the
    number of BLAS's threads as the program set it; blas_threads: as it is now.
    Callers are identified by thread: after an interrupt between two statements, the next call of
    the thread replaces the interrupted one. For the same reason `lock` is entered directly: Ctrl-C
    within the methods of Condition, which are Python code, would leave it locked.
    """

    def __init__(self):
        self.has_exit_handlers = False
        self.reset()

    def reset(self):
        """Forget all threads but this one: in a forked process there are no others."""
        self.words, self.serial_words = np.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64)
        self.serial_words[BUSY] = 1
        self.helpers, self.callers, self.serial_callers = [], set(), set()
        self.served_caller = self.only_caller = None
        self.program_blas_threads = self.blas_threads = 0
        self.lock = RLock()
        self.changed = Condition(self.lock)

    def submit(self, call, threads, *arguments):
        """Return call(words, *arguments), which offers work to at most `threads` threads by these
        words."""
        try:
            return call(self.enter(threads), *arguments)
        finally:
            self.leave()

    def run(self, kernel, *arguments):
        """Call a kernel for one thread, and the threads of BLAS."""
        try:
            self.enter(1)
            kernel(*arguments)
        finally:
            self.leave()

    def run_by_one_thread(self, kernel, *arguments):
        """Call a kernel for one thread, with one thread of BLAS."""
        try:
            self.enter(1, is_serial=True)
            kernel(*arguments)
        finally:
            self.leave()

    def enter(self, threads, is_serial=False):
        """Count this thread as a caller; return the words by which helpers find its work, or the
        words that no helper reads. is_serial: whether BLAS has one thread."""
        me = get_ident()
        with self.lock:
            if not self.has_exit_handlers:
                self.add_exit_handlers()
            if self.only_caller not in (None, me):
                self.changed.wait_for(lambda: self.only_caller in (None, me), _MAX_WAIT_SECONDS)
            self.callers.add(me)
            (self.serial_callers.add if is_serial else self.serial_callers.discard)(me)
            helpers = threads - len(self.callers)
            if helpers > 0 and self.served_caller is None and self.only_caller is None:
                self.served_caller = me
                self.call_helpers(helpers)
            self.limit_blas()
            return self.words if self.served_caller == me else self.serial_words

    def leave(self):
        me = get_ident()
        with self.lock:
            self.callers.discard(me)
            self.serial_callers.discard(me)
            if self.served_caller == me:
                self.served_caller = None
            self.limit_blas()
            if self.only_caller is not None:  # it waits for the other callers to leave
                self.changed.notify_all()

    def call_helpers(self, count):
        """Wake `count` helpers; start those that do not exist yet."""
        while len(self.helpers) < count:
            self.helpers.append(_Helper(self.words))
        for helper in self.helpers[:count]:
            helper.call()

    def limit_blas(self):
        """Set the number of BLAS's threads: those that callers do not take, and one while threads
        share work or a caller wants one."""
        count = _get_blas_threads()
        if count != self.blas_threads:  # set by the program since
            self.program_blas_threads = count
        busy = len(self.callers) - 1 if self.callers else 0
        is_single = self.served_caller is not None or bool(self.serial_callers)
        self.blas_threads = 1 if is_single else max(1, self.program_blas_threads - busy)
        if self.blas_threads != count:
            _set_blas_threads(self.blas_threads)

    def add_exit_handlers(self):
        """Stop helpers at the end of the process and before a fork: a lock that a thread holds in
        BLAS would stay locked in the forked process, and BLAS that ends under a thread may crash
        the process."""
        self.has_exit_handlers = True
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.close, after_in_parent=self.open, after_in_child=self.reset
            )

    def close(self):
        """Let no other thread begin a kernel, and wait until all others have left theirs."""
        me = get_ident()
        with self.lock:
            self.changed.wait_for(lambda: self.only_caller in (None, me), _MAX_WAIT_SECONDS)
            self.only_caller = me
            self.changed.wait_for(lambda: self.callers <= {me}, _MAX_WAIT_SECONDS)

    def open(self):
        """Let all threads begin kernels again."""
        with self.lock:
            self.only_caller = None
            self.changed.notify_all()

    def stop(self):
        """End the helpers; from now on only this thread begins kernels, without helpers."""
        self.close()
        while self.helpers:
            self.helpers.pop().stop()


_POOL_MODULE = "_derivatrix_thread_pool_3"
"""The module of `sys.modules` that holds the pool, for all generated modules of a process. The
number is the version of the words and of the pool's methods."""
_THREAD_POOL = vars(sys.modules.setdefault(_POOL_MODULE, ModuleType(_POOL_MODULE))).setdefault(
    "pool", _ThreadPool()
)
