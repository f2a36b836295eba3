"""Prediction of times on more processors: `python -m tests.benchmarks.scaling`. The model of
`scaling_model` is fitted, for each way of sharing work, to times of one and two threads of this
machine, and predicts times of more threads: with awake helpers, as in calls one right after the
other, and with helpers that sleep. The number of threads and parts is not modelled: processes with
so many threads run the calls here, however long that takes, and their results are compared with the
closed forms."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks import machine
from tests.benchmarks.contestants.derivatrix import Derivatrix
from tests.benchmarks.record import Case, Sizes
from tests.benchmarks.rows import ROWS
from tests.benchmarks.scaling_model import Call, Form, Machine, Model, fitted
from tests.benchmarks.timing import block, calibrate
from tests.packages import support_file

MEASURED = (1, 2)
ROUNDS = 9


class Subject(NamedTuple):
    """A row of the benchmark, at some sizes, whose work is shared in one form."""

    name: str
    form: Form
    row: str
    sizes: tuple[Sizes, ...]

    def cases(self) -> list[Case]:
        row = replace(next(row for row in ROWS if row.name == self.row), sizes=self.sizes)
        return [Case(row, place, "float64") for place in range(len(self.sizes))]


SUBJECTS = (
    Subject(
        "samples",
        Form(),
        "Kalman updates vjp",
        tuple({"batch": batch, "n": 6, "m": 3} for batch in (3_000, 10_000, 30_000, 100_000)),
    ),
    Subject("rows", Form(memory=True), "X X jacobian", tuple({"n": n} for n in (48, 56, 64, 72))),
    Subject(
        "sums",
        Form(sums=True),
        "Gaussian mixture gradient",
        tuple(
            {"N": samples, "K": clusters, "d": d}
            for clusters, d in ((10, 5), (25, 10))
            for samples in (3_000, 30_000, 300_000)
        ),
    ),
    Subject("BLAS", Form(blas=True), "X X vjp", tuple({"n": n} for n in (256, 512, 1024, 1536))),
)
"""The functions; arrays are larger than caches if memory limits the time."""


def in_process(threads: int) -> None:
    """Print as JSON what this process, which has so many threads, finds out: the calls of all
    subjects, and the seconds of `beginning`."""
    contestant = Derivatrix(threads)
    calls = [
        [called(contestant, case, each.form, threads) for case in each.cases()] for each in SUBJECTS
    ]
    print(json.dumps([calls, *beginning(pool_of(contestant), threads)]))


def called(contestant: Derivatrix, case: Case, form: Form, threads: int) -> Call:
    """A call, checked against the closed form, and measured where this machine has processors
    enough. BLAS's threads would wait for others that there are not."""
    arguments, measured = case.arguments(), threads in MEASURED
    work, results, seconds, plan = case.row.flops(**case.sizes), 0, 0.0, [(1, 1)]
    if measured or not form.blas:
        call = contestant.candidates(case.row, arguments)[0].make()
        with recorded(pool_of(contestant)) as plan:
            arrays = contestant.arrays(call())
        error = case.error(arrays, case.expected())
        if error > case.row.tolerance:
            raise ValueError(f"{case.row.name}, {case.label}, {threads} threads: error {error}")
        results = sum(array.size for array in arrays)
        if form.memory:
            work = sum(array.nbytes for array in (*arguments, *arrays))
        if measured:
            timed = partial(block, call, calibrate(call))
            seconds = min(machine.undisturbed(timed) for _ in range(ROUNDS))
    if form.blas:
        plan = [(threads, threads)]
    return Call(work, results, *plan[-1], seconds)


def pool_of(contestant: Derivatrix) -> Any:
    """The thread pool, which is the same for all modules."""
    module = next(iter(contestant.modules.values()))
    return support_file(module, "cpu.thread_pool")._THREAD_POOL


@contextmanager
def recorded(pool: Any) -> Iterator[list[tuple[int, int]]]:
    """The numbers of threads and parts of the work that is shared meanwhile, after (1, 1)."""
    usual, result = pool.submit, [(1, 1)]

    def submit(
        compute: object, threads: int, numbers: tuple[int, int, int], *others: object
    ) -> bool:
        result.append((threads, numbers[1]))
        return usual(compute, threads, numbers, *others)

    pool.submit = submit
    try:
        yield result
    finally:
        del pool.submit


def beginning(pool: Any, threads: int) -> tuple[float, float]:
    """Seconds that a caller takes to wake one of its helpers, all of which sleep, and that each of
    them takes to begin, one after the other: medians."""
    if threads == 1:
        return 0.0, 0.0
    pool.enter(threads)
    pool.leave()
    began: list[float] = []
    for helper in pool.helpers:
        helper.help = lambda: began.append(time.perf_counter())
    wakes, starts = [], []
    for _ in range(ROUNDS):
        time.sleep(0.05)
        began.clear()
        before = time.perf_counter()
        pool.enter(threads)
        entered = time.perf_counter()
        pool.leave()
        while len(began) < threads - 1:
            time.sleep(0.001)
        wakes.append((entered - before) / (threads - 1))
        starts.append((max(began) - entered) / (threads - 1))
    for helper in pool.helpers:
        del helper.help
    return statistics.median(wakes), statistics.median(starts)


class Found(NamedTuple):
    """The output of a process."""

    calls: list[list[Call]]
    wake: float
    start: float


def found_with(threads: int, scratch: Path) -> Found:
    """Run a process with so many threads, and return its output."""
    code = f"from tests.benchmarks import scaling; scaling.in_process({threads})"
    environment = machine.environment(threads, scratch)
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    calls, wake, start = json.loads(process.stdout)
    return Found(
        [[Call(*call) for call in kinds_of_calls] for kinds_of_calls in calls], wake, start
    )


def predicted(model: Model, one: Call, call: Call, form: Form, there: Machine) -> tuple[float, str]:
    """Predict how many times as fast as one thread a call is, and the main reason why it is not as
    many times as there are processors."""
    losses = model._replace(slower=0.0).losses(call, form, there)
    speed = model.seconds(one, form, there) / sum(losses.values())
    return speed, max(losses, key=losses.__getitem__)


@click.command(help=__doc__)
@click.option("--threads", default="16,64", show_default=True, help="Of machines to predict.")
@click.option(
    "--saturated", default=8.0, show_default=True, help="How many threads get all of memory there."
)
def main(threads: str, saturated: float) -> None:
    more = [int(text) for text in threads.split(",")]
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        result = {count: found_with(count, Path(scratch)) for count in (*MEASURED, *more)}
    last = result[more[-1]]
    awake = Machine(saturated=saturated)
    asleep = awake._replace(wake=last.wake, start=last.start)
    heads = [head for count in more for head in (f"of {count}", "awake", "asleep", "takes most")]
    table = Table("µs", "1 thread", "2 threads", "by the model", *heads)
    for place, (name, form, *_) in enumerate(SUBJECTS):
        ones, twos = (result[count].calls[place] for count in MEASURED)
        model = fitted([*ones, *twos], form)
        for number, case in enumerate(SUBJECTS[place].cases()):
            one, two = ones[number], twos[number]
            times = (one.seconds, two.seconds, model.seconds(two, form, Machine()))
            cells = [f"{seconds * 1e6:.4g}" for seconds in times]
            for count in more:
                call = result[count].calls[place][number]
                quick, _ = predicted(model, one, call, form, awake)
                slow, most = predicted(model, one, call, form, asleep)
                cells += [str(call.threads), f"{quick:.1f}", f"{slow:.1f}", most]
            table.add_row(f"{name}: {case.label}", *cells)
        table.add_section()
        print(f"{name}:", *(f"{key} {value:.3g}" for key, value in model._asdict().items()))
    print(f"seconds that waking a helper takes {last.wake:.3g}, its beginning {last.start:.3g}")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
