"""The sizes at which a module runs its branches: found in a marked copy, in a process beside.

Verification calls the module itself at the sizes chosen here; the copy says which they are, and
which lines no point reaches.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime import sampling, special
from derivatrix.runtime.interface import CallError, ModuleInterface, Point, Sizes
from derivatrix.runtime.load import load
from derivatrix.runtime.reference import BrokenText, OutOfDomain
from derivatrix.runtime.report import Reach
from derivatrix.runtime.work import Work
from derivatrix.runtime.workers import Crash, Workers

ENVIRONMENT = {"NUMBA_OPT": "0"}
"""The copy is compiled in half the time without LLVM's optimisation."""

SIZES = tuple(sorted({2**k + 1 for k in range(2, 20)} | {3 * 2**k + 1 for k in range(2, 9)}))
"""Sizes to try besides those around the module's constants: odd, so that blocks leave a rest."""
MOST_CONSTANT = 1100
"""The largest constant that may be a threshold of one size."""
LARGE = 65
"""One assignment is chosen in which no size is smaller, if there is one."""
LARGEST_CHOSEN = 300
"""The largest size of that assignment, if there is one with no larger size."""
ENTRIES = 1_000_000
"""The most entries that the arguments and results of a call may have."""
DENSE_ENTRIES = 20_000_000
"""The most entries that they may have at the assignment whose smallest size is `LARGE`."""
MAX_OPERATIONS = 1e9
"""Operations (`Work`) of the declaration, about a second; for more of them nothing is called."""
MAX_DERIVATIVE_OPERATIONS = 5e10
"""Those that a derivative may take if each entry of it takes as many as one of the value."""
SEARCH_OPERATIONS = 5e9
"""Operations that all calls of the search may take, each for that many of the declaration; it tries
the smallest sizes first."""


@dataclass(frozen=True)
class Run:
    """An assignment of sizes: the kinds that can be called there (and the operator, if it can be),
    and the marks they make."""

    sizes: dict[str, int]
    kinds: tuple[str, ...]
    marks: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Survey:
    """The sizes at which to call a module, in the order chosen, and what all points reach."""

    runs: tuple[Run, ...]
    reach: Reach


SURVEYS = 20
"""The most surveys that one process makes: it keeps all that it compiles."""


class _Processes:
    """The processes that make surveys. Starting one takes as long as many a survey: where several
    modules are verified it is kept for the next one."""

    def __init__(self) -> None:
        self._keepers = 0
        self._idle: list[tuple[Workers, int]] = []

    def take(self) -> tuple[Workers, int]:
        """A process, and how many surveys it may make yet."""
        return self._idle.pop() if self._idle else (Workers(1, ENVIRONMENT), SURVEYS)

    def give(self, workers: Workers, left: int) -> None:
        """A process that has nothing to do."""
        if self._keepers and left:
            self._idle.append((workers, left))
        else:
            workers.end()

    def keep(self) -> None:
        """From now on, until this process ends."""
        self._keepers += 1

    @contextmanager
    def kept(self) -> Iterator[None]:
        self.keep()
        try:
            yield
        finally:
            self._keepers -= 1
            while self._idle and not self._keepers:
                self._idle.pop()[0].end()


PROCESSES = _Processes()

_KNOWN: dict[tuple[str, bytes, int], Survey] = {}
"""The surveys made by this process, by the module's name, its contents and the seed."""


class Search:
    """The survey of a module, made in a process beside this one while this one goes on."""

    def __init__(self, module: ModuleType, seed: int) -> None:
        path = getattr(module, "__file__", None)
        self._interface = ModuleInterface(module)
        self._workers, self._left = PROCESSES.take()
        self._thread = ThreadPoolExecutor(1)
        self._answer: Future[list[Any]] | None = None
        self._key: tuple[str, bytes, int] | None = None
        if path is not None and Path(path).is_file():
            self._key = module.__name__, Path(path).read_bytes(), seed
            if self._key not in _KNOWN:
                argument = {"path": os.fspath(path), "seed": seed}
                call = f"{__name__}:surveyed"
                self._answer = self._thread.submit(
                    self._workers.map, call, [argument], lambda at_work, done: None
                )

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._answer is None:
            PROCESSES.give(self._workers, self._left)
        elif self._answer.done():
            PROCESSES.give(self._workers, self._left - 1)
        else:
            self._workers.end()
        self._thread.shutdown()

    def result(self) -> Survey:
        """The survey; of the usual sizes, and with a note that says why, where there is none."""
        if self._key is None:
            return self._usual("the module has no file")
        if self._answer is not None and self._key not in _KNOWN:
            (answer,) = self._answer.result()
            if isinstance(answer, Exception | Crash):
                return self._usual(answer.reason if isinstance(answer, Crash) else str(answer))
            runs = (Run(entry["sizes"], tuple(entry["kinds"])) for entry in answer["runs"])
            _KNOWN[self._key] = Survey(tuple(runs), Reach.from_dict(answer["reach"]))
        return _KNOWN[self._key]

    def _usual(self, reason: str) -> Survey:
        interface = self._interface
        runs = [
            Run(sizes, tuple(k for k in interface.kinds if entries(interface, k, sizes) <= ENTRIES))
            for sizes in (sampling.enlarged(interface, LARGE)[:1] if interface.size_names else [])
        ]
        return Survey(tuple(runs), Reach(note=f"which lines ran is not known: {reason}"))


def surveyed(argument: Mapping[str, Any]) -> dict[str, Any]:
    """The survey of the module in a file as plain data: what the process does."""
    from derivatrix.runtime.marks import Copy

    # calls by address, which Numba takes for addresses of this process where LLVM does not optimise
    warnings.filterwarnings("ignore", "Cannot cache compiled function")
    copy = Copy(load(Path(argument["path"])))
    runner = _Runner(copy, argument["seed"])
    small = runner.small()
    names = runner.interface.size_names
    runs = list(runner.tried(_candidates(runner.interface, copy.constants))) if names else []
    chosen = _chosen(runs, small, names)
    reached = small.union(*(run.marks for run in chosen))
    missed: dict[str, list[int]] = {}
    for number in sorted(copy.counted - reached):
        function, line = copy.places[number]
        missed.setdefault(function, []).append(line)
    pairs = tuple((name, tuple(sorted(set(lines)))) for name, lines in missed.items())
    reach = Reach(len(reached), len(copy.counted), pairs)
    return {
        "runs": [{"sizes": run.sizes, "kinds": run.kinds} for run in chosen],
        "reach": reach.to_dict(),
    }


class _Runner:
    """Calls the copy and collects the marks."""

    def __init__(self, copy: Any, seed: int) -> None:
        self.copy = copy
        self.seed = seed
        self.interface = ModuleInterface(copy.module)
        operator = (self.interface.operator,) if self.interface.operator else ()
        self.kinds = (*self.interface.kinds, *operator)

    def small(self) -> set[int]:
        """The marks of the points that verification has at small sizes."""
        interface = self.interface
        sizes = sampling.assignments(interface, {})[:2]
        points = [self._point(entry) for entry in sizes]
        larger = sampling.large(interface)
        points += [self._point(larger)] if larger is not None else []
        points += special.points(interface, {}, self.seed)
        points += special.beside_thresholds(interface, {}, self.seed)
        for point in points:
            if point is not None:
                self._call(point, self.kinds)
        return set(self.copy.taken())

    def tried(self, candidates: Iterable[dict[str, int]]) -> Iterable[Run]:
        work, spent = Work(self.interface), 0.0
        for sizes in candidates:
            operations = work.operations(sizes)
            kinds = self._kinds(sizes, operations)
            spent += operations * len(kinds)
            if spent > SEARCH_OPERATIONS:
                return
            point = self._point(sizes) if kinds and operations <= MAX_OPERATIONS else None
            if point is not None:
                ran = self._call(point, kinds)
                yield Run(sizes, ran, frozenset(self.copy.taken()))

    def _kinds(self, sizes: Sizes, operations: float) -> tuple[str, ...]:
        """The kinds whose arrays are not too large, nor too much work."""
        least = min(sizes.values())
        dense = DENSE_ENTRIES if LARGE <= least < 1.1 * LARGE else ENTRIES
        most = MAX_DERIVATIVE_OPERATIONS / operations * entries(self.interface, "value", sizes)
        return tuple(
            kind for kind in self.kinds if entries(self.interface, kind, sizes) <= min(dense, most)
        )

    def _point(self, sizes: Sizes) -> Point | None:
        """A point with these sizes where the declaration has a value."""
        random = np.random.default_rng([self.seed, *sizes.values()])
        for point in itertools.islice(sampling.draws(self.interface, sizes, random), special.DRAWN):
            with suppress(OutOfDomain, BrokenText):
                self.interface.declared_value(point)
                return point
        return None

    def _call(self, point: Point, kinds: Sequence[str]) -> tuple[str, ...]:
        """The kinds that ran."""
        ran = []
        for kind in kinds:
            with suppress(CallError):
                if kind == self.interface.operator:
                    self.interface.operators(point)
                else:
                    self.interface.results(kind, point)
                ran.append(kind)
        return tuple(ran)


def entries(interface: ModuleInterface, kind: str, sizes: Sizes) -> int:
    """The entries of the largest array that a call takes or returns. An operator's are few where
    its parts are matrices at most, else about those of the dense array."""
    if kind == interface.operator:
        few = max(interface.parts, default=0) <= 2
        kind = "value" if few else kind.removesuffix("_operator")
    results = [math.prod(interface.shape(kind, key, sizes)) for key in interface.keys(kind)]
    return max(*results, *(math.prod(entry.full(sizes)) for entry in interface.inputs), 0)


def _candidates(interface: ModuleInterface, constants: Sequence[int]) -> list[dict[str, int]]:
    """Assignments to try, the smallest first: all sizes alike, or one of them and the others
    small. Sizes are those of `SIZES`, and on both sides of the module's constants."""
    around = {c + more for c in constants if c <= MOST_CONSTANT for more in (0, 1)}
    found: list[dict[str, int]] = []
    for size in sorted({*SIZES, *around}):
        for sizes in sampling.enlarged(interface, size):
            if entries(interface, "value", sizes) <= ENTRIES and sizes not in found:
                found.append(sizes)
    return sorted(found, key=lambda sizes: entries(interface, "value", sizes))


def _chosen(runs: Sequence[Run], small: set[int], names: Sequence[str]) -> list[Run]:
    """The runs to make again with the module itself: for every kind one with all sizes large, and
    then those that add most to what is reached."""
    chosen: list[Run] = []
    reached = set(small)

    def take(run: Run) -> None:
        if run not in chosen:
            chosen.append(run)
            reached.update(run.marks)

    large = [run for run in runs if min(run.sizes.values()) >= LARGE]
    most = LARGEST_CHOSEN + len(names)
    large = [run for run in large if max(run.sizes.values()) <= most] or large[:1]
    if large:
        take(large[-1])
        take(max(large, key=lambda run: len(run.kinds)))  # the first of those with the most
    while rest := [run for run in runs if not run.marks <= reached]:
        take(max(rest, key=lambda run: len(run.marks - reached)))
    return chosen
