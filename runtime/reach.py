"""The sizes, besides small ones, at which verification calls a module: beyond its thresholds.

Kernels take other branches at other sizes. The module itself says where: its public functions have
conditions on sizes under which one thread does all the work, and its compiled functions, those of
the support included, hold the whole numbers that they compare lengths with.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derivatrix.runtime import sampling
from derivatrix.runtime.code import called_functions, integer_constants
from derivatrix.runtime.interface import ModuleInterface, Sizes
from derivatrix.runtime.report import Reach
from derivatrix.runtime.work import ENTRY_OPS, MAX_VALUE_OPS, Work

MIN_THRESHOLD, MAX_THRESHOLD = 6, 1100
"""Range of the whole numbers that count as thresholds of a length. Verification has smaller sizes
anyway; kernels compare larger numbers with products of lengths."""
POWERS_OF_TWO = tuple(2**k for k in range(3, 20))
"""Sizes beyond these are candidates, too, until each condition is false at one of them."""
LARGE_SIZE = 65
"""The smallest size of the first run, which is always made, with as many kinds as possible."""
MAX_ENTRIES = 1_000_000
"""Most entries of the arguments and results of a call, where a run calls several kinds."""
MAX_DENSE_ENTRIES = 20_000_000
"""Most entries for a kind that has thresholds, and of work arrays."""
MAX_DERIVATIVE_OPS = 5e10
"""Most operations of a derivative, if each of its entries takes as many as one of the value."""
MAX_TOTAL_OPS = 4e9
"""Most operations of all calls together."""


@dataclass(frozen=True)
class Run:
    """An assignment of sizes, and the kinds (and the operator) to call there."""

    sizes: dict[str, int]
    kinds: tuple[str, ...]


def choose_runs(
    interface: ModuleInterface, make: Callable[[Run], bool] = lambda run: True
) -> tuple[list[Run], Reach]:
    """Choose the runs to make, make them, and report the thresholds that they pass.

    The choice is a greedy set cover: each run adds most branches that no earlier run takes, at the
    least work. The branches of a kind are the intervals between its thresholds that the sizes lie
    in, and the values of its conditions.
    make: makes a run; returns False if nothing was compared, as the declaration has no value there
    that rounding does not decide. Other runs take the place of such a one."""
    thresholds = _Thresholds(interface)
    small = Run(sampling.assignments(interface, {})[0], interface.kinds)
    covered = {*thresholds.branches(small)}
    runs: list[Run] = []
    candidates: list[tuple[Run, float]] = []
    if interface.size_names:
        work = Work(interface)
        possible = _candidates(interface, thresholds, work)
        candidates = [(run, _operations(interface, run, work)) for run in possible]
    budget = MAX_TOTAL_OPS
    while candidates:
        gains = [len({*thresholds.branches(run)} - covered) for run, _ in candidates]
        is_first = [min(run.sizes.values()) == LARGE_SIZE and not runs for run, _ in candidates]
        best = max(range(len(gains)), key=lambda i: (is_first[i], gains[i], -candidates[i][1]))
        if not (gains[best] or is_first[best]):
            break
        run, cost = candidates.pop(best)
        budget -= cost
        if make(run):
            runs.append(run)
            covered.update(thresholds.branches(run))
        else:
            candidates = [(r, c) for r, c in candidates if r.sizes != run.sizes]
        candidates = [(r, c) for r, c in candidates if c <= budget]
    return runs, thresholds.reach(runs)


class _Thresholds:
    """The thresholds of a module: the numbers that compiled functions compare lengths with, each
    with the names of these functions, and the conditions of public functions, by kind."""

    def __init__(self, interface: ModuleInterface) -> None:
        module = interface.module
        self.numbers = threshold_numbers(v for v in vars(module).values() if hasattr(v, "py_func"))
        self._numbers_of_kind = {
            kind: sorted(threshold_numbers([getattr(module, kind, None)]))
            for kind in (*interface.kinds, interface.operator)
        }
        data = getattr(getattr(module, "generated", None), "data", {})
        self.conditions: Mapping[str, Sequence[str]] = data.get("conditions", {})
        self._entries: Mapping[str, str] = data.get("entries", {})

    def has(self, kind: str) -> bool:
        """Return whether the function of a kind has thresholds."""
        return bool(self._numbers_of_kind[kind] or self.conditions.get(kind))

    def filled_entries(self, kind: str, sizes: Sizes) -> int:
        """Count the entries of the results and work arrays of a call."""
        return int(eval(self._entries.get(kind) or "0", {}, dict(sizes)))

    def branches(self, run: Run) -> Iterator[tuple[str, str, object]]:
        """Yield, for each kind, the interval that each size lies in, and each condition's value."""
        for kind in run.kinds:
            for name, size in run.sizes.items():
                yield kind, name, bisect_left(self._numbers_of_kind[kind], size)
            for text in self.conditions.get(kind, ()):
                yield kind, text, eval(text, {"min": min}, run.sizes)

    def reach(self, runs: Sequence[Run]) -> Reach:
        """Count the thresholds that some run passes, and describe the others."""
        largest: dict[str, int] = {}
        for run in runs:
            largest = {name: max(size, largest.get(name, 0)) for name, size in run.sizes.items()}
        missed = [
            f"{', '.join(sorted(names))}: some size is {number} at most"
            for number, names in sorted(self.numbers.items())
            if number >= min(largest.values(), default=0)
        ]
        false = {
            (kind, text) for run in runs for kind, text, value in self.branches(run) if not value
        }
        conditions = {(kind, text) for kind, texts in self.conditions.items() for text in texts}
        missed += [f"{kind}: {text} at all sizes" for kind, text in sorted(conditions - false)]
        total = len(self.numbers) + len(conditions)
        return Reach(total - len(missed), total, tuple(missed))


def threshold_numbers(functions: Iterable[object]) -> dict[int, set[str]]:
    """Collect the whole numbers that could be thresholds in functions and in the compiled functions
    that they call, each with the names of the functions that hold it."""
    numbers: dict[int, set[str]] = {}
    for function in called_functions(functions):
        for value in integer_constants(function):
            if MIN_THRESHOLD <= value <= MAX_THRESHOLD:
                numbers.setdefault(value, set()).add(function.__name__)
    for number in [*numbers]:  # "n <= 32" and "n < 33" are one threshold
        if number + 1 in numbers:
            numbers[number + 1] |= numbers.pop(number)
    return numbers


def _candidates(interface: ModuleInterface, thresholds: _Thresholds, work: Work) -> Iterator[Run]:
    """Yield the possible runs: all sizes beyond a threshold, or one of them, the others small."""
    kinds = (*interface.kinds, *([interface.operator] if interface.operator else []))
    numbers = {*thresholds.numbers, *POWERS_OF_TWO}
    for size in sorted({LARGE_SIZE, *(number + 1 for number in numbers)}):
        for sizes in sampling.enlarged(interface, size):
            operations = work.operations(sizes)
            if operations > MAX_VALUE_OPS:
                continue
            fitting = [k for k in kinds if thresholds.filled_entries(k, sizes) <= MAX_DENSE_ENTRIES]
            counts = {kind: entries(interface, kind, sizes) for kind in fitting}
            if "value" not in counts:
                continue
            limit = min(MAX_DENSE_ENTRIES, MAX_DERIVATIVE_OPS * counts["value"] / operations)
            dense = [k for k in fitting if MAX_ENTRIES < counts[k] <= limit and thresholds.has(k)]
            run_kinds = tuple(kind for kind in fitting if counts[kind] <= min(limit, MAX_ENTRIES))
            if "value" in run_kinds:
                yield Run(sizes, run_kinds)
                yield from (Run(sizes, (*run_kinds, kind)) for kind in dense)


def _operations(interface: ModuleInterface, run: Run, work: Work) -> float:
    """Estimate the operations of all calls of a run."""
    results = sum(entries(interface, kind, run.sizes) for kind in run.kinds)
    return len(run.kinds) * work.operations(run.sizes) + ENTRY_OPS * results


def entries(interface: ModuleInterface, kind: str, sizes: Sizes) -> int:
    """Count the entries of all results of a call, or of its largest argument. An operator whose
    parts are matrices at most counts as the value, any other as its dense array."""
    if kind == interface.operator:
        has_matrix_parts = max(interface.parts, default=0) <= 2
        kind = "value" if has_matrix_parts else kind.removesuffix("_operator")
    results = [
        math.prod(output.shape(kind, key, sizes))
        for output in interface.outputs
        for key in output.keys(kind)
    ]
    return max(sum(results), *(math.prod(entry.full(sizes)) for entry in interface.inputs))
