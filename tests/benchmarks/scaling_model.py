"""A model of the time of calls whose work threads share.

One thread works alone for a time. The caller wakes sleeping helpers, which begin one after the
other, as each needs Python's lock for a moment; a free thread takes the next part, one after the
other, too. A part takes as long as its share of the work: of floating-point operations, or of bytes
if memory limits it, which take longer once the threads saturate memory. If results are sums, one
thread adds up the partial sums."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares


class Form(NamedTuple):
    """A way of sharing work. memory: whether bytes take the time; sums: whether parts have results
    that are added up; blas: whether the threads are BLAS's own, which need no lock of Python's."""

    memory: bool = False
    sums: bool = False
    blas: bool = False


class Call(NamedTuple):
    """A call: its work, how many numbers its results are, how many threads do how many parts, and
    its seconds, 0 where they are not measured."""

    work: float
    results: int
    threads: int
    parts: int
    seconds: float = 0.0


class Machine(NamedTuple):
    """Seconds: wake, of a caller, to wake a helper that sleeps; start, until it has begun; claim,
    to take a part, when another thread has taken the one before; add, to add up a number that
    another thread has made. The last two are assumed: two threads do not show them. saturated: how
    many threads get all that memory gives."""

    wake: float = 0.0
    start: float = 0.0
    claim: float = 1e-7
    add: float = 3e-9
    saturated: float = math.inf


class Model(NamedTuple):
    """Seconds of one form: alone in each call, and for a unit of work. slower: what part more of
    its time work takes where several threads share the machine that the model is fitted to, whose
    processors have memory in common, and often more than that."""

    alone: float
    unit: float
    slower: float = 0.0

    def losses(self, call: Call, form: Form, machine: Machine) -> dict[str, float]:
        """The seconds of a call, by what takes them; `work` is what threads would take that nothing
        keeps from it."""
        work = self.unit * call.work
        each = work / call.parts
        ready = [0.0] * call.threads
        level = simulated(ready, call.parts, each)
        claimed = simulated(ready, call.parts, each, machine.claim)
        woken = (call.threads - 1) * machine.wake
        begin = [woken + number * machine.start for number in range(call.threads)]
        began = simulated(ready if form.blas else begin, call.parts, each, machine.claim)
        shared = call.threads > 1
        waiting = max(0.0, call.threads / machine.saturated - 1) if form.memory else 0.0
        return {
            "work": work / call.threads,
            "one thread alone": self.alone,
            "uneven parts": level - work / call.threads,
            "taking parts": claimed - level,
            "beginning": began - claimed,
            "processors": level * self.slower * shared,
            "memory": level * waiting,
            "adding up": machine.add * call.results * call.parts * (form.sums and shared),
        }

    def seconds(self, call: Call, form: Form, machine: Machine) -> float:
        return sum(self.losses(call, form, machine).values())


def simulated(begin: Sequence[float], parts: int, seconds: float, claim: float = 0.0) -> float:
    """When the last of some parts is done, each of which takes so long, by threads that begin at
    these times; they take parts one after the other, each in `claim` seconds."""
    free = sorted(begin)
    last = taken = 0.0
    for _ in range(parts):
        taken = max(taken, heapq.heappop(free)) + claim
        heapq.heappush(free, taken + seconds)
        last = max(last, taken + seconds)
    return last


def fitted(calls: Sequence[Call], form: Form) -> Model:
    """The model whose times, with helpers awake, are nearest to those measured, relative to
    these."""
    longest = max(calls, key=lambda call: call.seconds)
    scales = np.array([1e-6, longest.seconds / longest.work, 0.1])

    def errors(values: np.ndarray) -> list[float]:
        model = Model(*(values * scales))
        return [model.seconds(call, form, Machine()) / call.seconds - 1 for call in calls]

    return Model(*(least_squares(errors, np.ones(3), bounds=(0, np.inf)).x * scales))
