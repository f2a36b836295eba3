"""The sizes at which verification calls a module besides small ones: beyond its thresholds.

Kernels run other code at other sizes. Where that changes, the module says itself: its public
functions have conditions on sizes under which one thread does all the work, and its compiled
functions, those of the support too, name the whole numbers that they compare lengths with.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derivatrix.runtime import sampling
from derivatrix.runtime.code import called_functions
from derivatrix.runtime.interface import ModuleInterface, Sizes
from derivatrix.runtime.report import Reach
from derivatrix.runtime.work import ENTRY_OPS, Work

MIN_NUMBER, MAX_NUMBER = 6, 1100
"""Whole numbers in compiled functions that count as thresholds of a length: there are small sizes
up to the first, and beyond the second numbers are compared with products of lengths."""
POWERS = tuple(2**k for k in range(3, 20))
"""Sizes beyond these are tried, too, until each condition is false at one of them."""
LARGE = 65
"""One assignment is chosen in which this is the smallest size, with as many kinds as can be."""
ENTRIES = 1_000_000
"""The most entries that the arguments and results of a call have where others are called, too."""
DENSE_ENTRIES = 20_000_000
"""The most entries of a kind that has thresholds, at that assignment or beyond one."""
MAX_OPERATIONS = 1e9
"""Operations (`Work`) of the declaration in one call, about a second."""
MAX_DERIVATIVE_OPERATIONS = 5e10
"""Operations of a derivative, if each entry of it takes as many as one of the value."""
MAX_TOTAL_OPERATIONS = 4e9
"""Operations of all calls together: for each, those of the declaration, and of its entries."""


@dataclass(frozen=True)
class Run:
    """An assignment of sizes, and the kinds (and the operator) to be called there."""

    sizes: dict[str, int]
    kinds: tuple[str, ...]


def survey(interface: ModuleInterface) -> tuple[list[Run], Reach]:
    """The runs to make, and the thresholds beyond which they come.

    Each run adds most to what the others cover, for the least work: for each kind every size in
    every interval between neighbouring numbers, and every condition false."""
    thresholds = _Thresholds(interface)
    covered = {*thresholds.sides(Run(sampling.assignments(interface, {})[0], interface.kinds))}
    chosen: list[Run] = []
    if interface.size_names:
        work = Work(interface)
        runs = list(_runs(interface, thresholds, work))
        costs = [_operations(interface, run, work) for run in runs]
        left = MAX_TOTAL_OPERATIONS
        large = (number for number, run in enumerate(runs) if min(run.sizes.values()) == LARGE)
        number = next(large, -1)
        while number >= 0:
            chosen.append(runs[number])
            left -= costs[number]
            covered.update(thresholds.sides(runs[number]))
            gains = [len({*thresholds.sides(run)} - covered) for run in runs]
            useful = [i for i, gain in enumerate(gains) if gain and costs[i] <= left]
            number = max(useful, key=lambda i: (gains[i], -costs[i]), default=-1)
    return chosen, thresholds.reach(chosen)


class _Thresholds:
    """The numbers that compiled functions compare lengths with, with the names of these functions,
    and the conditions of public functions, by kind."""

    def __init__(self, interface: ModuleInterface) -> None:
        module = interface.module
        kernels = [value for value in vars(module).values() if hasattr(value, "py_func")]
        self.functions = _numbers(kernels)
        kinds = (*interface.kinds, interface.operator)
        self._numbers = {kind: sorted(_numbers([getattr(module, kind, None)])) for kind in kinds}
        generated = getattr(module, "generated", None)
        self.conditions: Mapping[str, Sequence[str]] = getattr(generated, "conditions", {})

    def are_in(self, kind: str) -> bool:
        """Whether the function of a kind has thresholds."""
        return bool(self._numbers[kind] or self.conditions.get(kind))

    def sides(self, run: Run) -> Iterator[tuple[str, str, object]]:
        """The interval of a kind that each size lies in, and whether each condition holds."""
        for kind in run.kinds:
            for name, size in run.sizes.items():
                yield kind, name, bisect_left(self._numbers[kind], size)
            for text in self.conditions.get(kind, ()):
                yield kind, text, eval(text, {"min": min}, run.sizes)

    def reach(self, runs: Sequence[Run]) -> Reach:
        """The thresholds that some run is beyond."""
        largest: dict[str, int] = {}
        for run in runs:
            largest = {name: max(size, largest.get(name, 0)) for name, size in run.sizes.items()}
        missed = [
            f"{', '.join(sorted(names))}: some size is {number} at most"
            for number, names in sorted(self.functions.items())
            if number >= min(largest.values(), default=0)
        ]
        false = {(kind, text) for run in runs for kind, text, side in self.sides(run) if not side}
        every = {(kind, text) for kind, texts in self.conditions.items() for text in texts}
        missed += [f"{kind}: {text} at all sizes" for kind, text in sorted(every - false)]
        total = len(self.functions) + len(every)
        return Reach(total - len(missed), total, tuple(missed))


def _numbers(functions: Iterable[object]) -> dict[int, set[str]]:
    """The whole numbers that could be thresholds in functions and in the compiled ones that they
    call, and the names of these functions."""
    numbers: dict[int, set[str]] = {}
    for function in called_functions(functions):
        code, names = function.__code__, function.__globals__
        for value in (*code.co_consts, *map(names.get, code.co_names)):
            if type(value) is int and MIN_NUMBER <= value <= MAX_NUMBER:
                numbers.setdefault(value, set()).add(function.__name__)
    for number in [*numbers]:  # "n <= 32" and "n < 33" are one threshold
        if number + 1 in numbers:
            numbers[number + 1] |= numbers.pop(number)
    return numbers


def _runs(interface: ModuleInterface, thresholds: _Thresholds, work: Work) -> Iterator[Run]:
    """List the candidates: all sizes beyond a threshold, or one of them and the others small."""
    every = (*interface.kinds, *([interface.operator] if interface.operator else []))
    numbers = {*thresholds.functions, *POWERS}
    for size in sorted({LARGE, *(number + 1 for number in numbers)}):
        for sizes in sampling.enlarged(interface, size):
            operations = work.operations(sizes)
            share = entries(interface, "value", sizes) / operations
            most = min(DENSE_ENTRIES, MAX_DERIVATIVE_OPERATIONS * share)
            counts = {kind: entries(interface, kind, sizes) for kind in every}
            dense = [
                kind for kind in every if ENTRIES < counts[kind] <= most and thresholds.are_in(kind)
            ]
            usual = tuple(
                kind
                for kind in every
                if counts[kind] <= min(most, ENTRIES)
                or (kind in dense and min(sizes.values()) == LARGE)
            )
            if operations <= MAX_OPERATIONS and "value" in usual:
                yield Run(sizes, usual)
                for kind in dense:
                    if kind not in usual:
                        yield Run(sizes, (*usual, kind))


def _operations(interface: ModuleInterface, run: Run, work: Work) -> float:
    """About how many operations the calls of a run take."""
    results = sum(entries(interface, kind, run.sizes) for kind in run.kinds)
    return len(run.kinds) * work.operations(run.sizes) + ENTRY_OPS * results


def entries(interface: ModuleInterface, kind: str, sizes: Sizes) -> int:
    """The entries of the largest array that a call takes or returns. An operator's are few where
    its parts are matrices at most, else about those of the dense array."""
    if kind == interface.operator:
        few = max(interface.parts, default=0) <= 2
        kind = "value" if few else kind.removesuffix("_operator")
    results = [math.prod(interface.shape(kind, key, sizes)) for key in interface.keys(kind)]
    return max(*results, *(math.prod(entry.full(sizes)) for entry in interface.inputs), 0)
