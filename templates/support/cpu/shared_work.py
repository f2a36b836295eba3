"""Threads that share the work of a kernel.

After a part of some work, helper threads wait for the next in compiled code for 20 to 60 µs, then
sleep. The thread that offers work computes all parts that no helper takes, so that it never waits
for one to wake. Numba's own thread pool ends the process if two threads call it at once; to pass
work to threads of `concurrent.futures` takes 45 µs.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from ..internals.functions import compiled
from ..internals.memory import atomic, invoke, look

BUSY = 0
"""The word that is 1 while a caller has the helpers; each word has a cache line of its own."""
OPEN = 8
"""1 while helpers may join its work."""
FUNCTION = 16
"""The address of the function that does a part of the work."""
DATA = 24
"""The address of that function's arguments."""
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
PATIENCE = 1000
"""Times that a thread looks for work before it sleeps: 20 to 60 µs."""


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
    """Compute all parts of some work, with the helpers that are free; return whether one failed.
    `function`: the address of a function that computes a part, called with the address of
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
    """Compute parts of offered work until none has been offered for some time; return whether any
    was."""
    idle, helped = 0, False
    while idle < PATIENCE:
        idle += 1
        if look(words, OPEN) and look(words, NEXT) < words[COUNT]:
            atomic_add(words, HELPERS, 1)
            if look(words, OPEN):  # what was offered stays until all helpers have left
                claim(words)
            atomic_add(words, HELPERS, -1)
            idle, helped = 0, True
    return helped
