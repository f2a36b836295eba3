"""The benchmark's rows are right, and its machinery works; how fast anything is, is not tested."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from derivatrix.compiler.ir.interpret import evaluate_all
from tests.benchmarks import machine, plot, race, table, timing
from tests.benchmarks.__main__ import main
from tests.benchmarks.contestants import CONTESTANTS, FRAMEWORKS
from tests.benchmarks.contestants.base import Candidate, Contestant, Unable
from tests.benchmarks.race import Entry, Failed, Outcome, Worker
from tests.benchmarks.record import Case, Row, cases, device_cases, flat
from tests.benchmarks.rows import ROWS, case_of
from tests.benchmarks.specialist import kernels
from tests.benchmarks.worker import Prepared, Turn

HADAMARD = "a * b jacobian"
RATES = machine.Rates(dgemm=1e9, sgemm=2e9, copies={1000: 1e10, 10**6: 1e9})


def tiny(row: Row) -> Case:
    """The row at small sizes that are in the same order as its first."""
    first = row.sizes[0]
    ranks = {name: rank for rank, name in enumerate(sorted(first, key=lambda name: first[name]))}
    sizes = {name: min(size, 2 + ranks[name]) for name, size in first.items()}
    return Case(dataclasses.replace(row, sizes=(sizes,)), 0, "float64")


def derived(case: Case) -> list[np.ndarray]:
    """The row's derivative by derivatrix, evaluated without a kernel."""
    row, derivatives = case.row, case.row.function.derivatives
    values = dict(zip([*row.inputs, "cotangent"], case.arguments(), strict=False))
    kinds = ("hessian", "gradient") if row.kind == "newton" else (row.kind,)
    nodes = [node for kind in kinds for node in derivatives.batched(kind).values()]
    arrays = evaluate_all(nodes, values, case.sizes)
    return [np.linalg.solve(*arrays)] if row.kind == "newton" else arrays


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_closed_form_is_the_derivative(row: Row) -> None:
    case = tiny(row)
    assert case.error(derived(case), case.expected()) < 1e-10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_size_has_a_floor(row: Row) -> None:
    for case in cases([dataclasses.replace(row, sizes=row.sizes[:1])]):
        expected = case.expected()
        assert 0 < race.floor(case, expected, RATES) < 1
        assert case.error([1.01 * array for array in expected], expected) > case.tolerance


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    functions = {(row.function.name, row.function.expression, row.function.wrt) for row in ROWS}
    assert len({name for name, *_ in functions}) == len(functions)
    for row in ROWS:
        assert {*row.without} <= {"jax", "torch", "pytensor", "casadi", "autograd"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", kernels())
def test_a_specialists_kernel_is_right(name: str) -> None:
    case = case_of(name, 0, "float64")
    results = kernels()[name](*case.arguments())
    assert case.error(flat(results), case.expected()) < case.tolerance


def test_the_specialist_is_no_framework() -> None:
    assert "specialist" in CONTESTANTS
    others = {"derivatrix", "by-hand", "specialist", "derivatrix-kept", "casadi-kept"}
    assert {*CONTESTANTS} - others == {*FRAMEWORKS}


class Rival:
    """A contestant in this process that takes the same time always."""

    def __init__(self, seconds: float, factor: float = 1, reason: str = "") -> None:
        self.seconds, self.factor, self.reason = seconds, factor, reason
        self.turns = 0

    def prepare(self, case: Case) -> Prepared:
        if self.reason:
            raise Failed(self.reason)
        arrays = [self.factor * array for array in case.expected()]
        return Prepared("only", 0.5, {"kernels": 0.25}, arrays, {})

    def measure(self) -> float:
        self.turns += 1
        return self.seconds

    def peak(self) -> int | None:
        return 1000

    def rest(self) -> float:
        return 0.0


def outcome(ours: float, theirs: float, size: int = 0, **others: Rival) -> Outcome:
    rivals = {"derivatrix": Rival(ours), "jax": Rival(theirs), **others}
    return race.run(case_of(HADAMARD, size, "float64"), rivals, 0.1, 1, RATES)


def test_a_race_takes_turns_and_leaves_out_who_is_wrong() -> None:
    wrong, unable = Rival(1e-9, factor=1.001), Rival(1e-9, reason="it cannot")
    result = outcome(2e-6, 1e-6, torch=wrong, casadi=unable)
    assert len(result.entries["derivatrix"].times) == len(result.entries["jax"].times) == 5
    assert "differs from the closed form" in result.entries["torch"].reason
    assert result.entries["casadi"].reason == "it cannot"
    assert wrong.turns == unable.turns == 0
    assert result.entries["jax"].peak == 1000
    assert table.ratio(result) == 0.5
    json.dumps(result.record())


def test_a_contestant_that_fails_midway_says_so() -> None:
    class Ending(Rival):
        def measure(self) -> float:
            raise Failed("its process ended")

    result = outcome(1e-6, 2e-6, autograd=Ending(1e-9))
    assert result.entries["autograd"].reason == "its process ended"
    assert table.best(result) == ("jax", result.entries["jax"])


def test_tables_show_losses_first(tmp_path: Path) -> None:
    outcomes = [outcome(1e-6, 4e-6), outcome(4e-6, 1e-6, size=1)]
    outcomes.append(outcome(1e-6, 1e-6, size=2, casadi=Rival(1, reason="it cannot")))
    names = ["derivatrix", "jax", "casadi"]
    text = table.report(outcomes, names, {"processor": "some"})
    rows = [line for line in text.splitlines() if line.startswith("| a \\* b")]
    assert [row.split(" | ")[3] for row in rows[:3]] == ["0.25", "1.00", "4.00"]
    assert "- [1] it cannot" in text
    assert "by 1.00 (geometric mean of 3 cases); it loses 1 of them" in text
    console = Console(record=True, width=200)
    console.print(table.terminal(table.times(outcomes, names, table.Notes()), names))
    assert "0.25" in console.export_text()
    plot.pictures(outcomes, names, tmp_path / "times.png")
    assert (tmp_path / "times.png").stat().st_size > 1000


def test_the_specialist_is_compared_apart() -> None:
    outcomes = [outcome(4e-6, 8e-6, specialist=Rival(2e-6)), outcome(1e-6, 2e-6, size=1)]
    assert table.best(outcomes[0]) == ("jax", outcomes[0].entries["jax"])
    assert table.specialist_ratio(outcomes[0]) == 0.5
    header, first, second = table.times(outcomes, ["derivatrix"], table.Notes())
    column = header.index("specialist")
    assert (first[column], second[column]) == ("0.50", "-")
    text = table.summary(outcomes)
    assert "specialist's time over derivatrix's is 0.50 (geometric mean of 1 cases)" in text
    assert "below 1 in 1 of them" in text


def test_failures_come_before_losses() -> None:
    failed = outcome(1e-6, 1e-6)
    failed.entries["derivatrix"] = Entry(reason="no kernel")
    assert table.ordered([outcome(2e-6, 1e-6), failed])[0] is failed
    assert "failed in 1 cases" in table.summary([failed, outcome(2e-6, 1e-6)])


class Fake(Contestant):
    """A contestant with a variant that fails, a slow one and a quick one."""

    name = version = "fake"

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        if row.kind == "vjp":
            raise Unable("no vjp")

        def call(seconds: float) -> Any:
            time.sleep(seconds)
            return row.closed(*arguments)

        def make(seconds: float) -> Callable[[], Any]:
            return partial(call, seconds)

        return [
            Candidate("failing", partial(make, -1)),
            Candidate("slow", partial(make, 0.003)),
            Candidate("quick", partial(make, 0)),
        ]


def test_a_worker_keeps_the_quickest_variant() -> None:
    turn = Turn(Fake())
    prepared = turn.prepare((HADAMARD, 0, "float64"))
    assert prepared.variant == "quick"
    assert prepared.failures["failing"].startswith("ValueError: sleep")
    np.testing.assert_array_equal(prepared.arrays[0], np.diag(turn.call().diagonal()))
    assert turn.measure() > 0
    with pytest.raises(Unable, match="no vjp"):
        turn.prepare(("X X vjp", 0, "float64"))


def test_a_worker_is_a_process_with_settings_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    worker = Worker("by-hand", 1, tmp_path, tmp_path / "log")
    try:
        case = case_of(HADAMARD, 0, "float64")
        entry = race.prepare(case, worker, case.expected())
        assert (entry.reason, entry.error) == ("", 0.0)
        assert worker.measure() > 0
        with pytest.raises(Failed, match="StopIteration"):
            worker.prepare(Case(dataclasses.replace(case.row, title="none"), 0, "float64"))
        worker.process.kill()
        worker.process.join()
        with pytest.raises(Failed, match="process ended"):
            worker.measure()
    finally:
        worker.close()
    theirs = machine.environment(3, tmp_path)
    assert "OPENBLAS_CORETYPE" not in theirs
    assert theirs["OMP_NUM_THREADS"] == "3"


def test_a_block_is_repeated_where_threads_share_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = iter([0.0, 0.5, 0.5, 0.7, 0.7, 0.701, 0, 9, 9, 99])
    monkeypatch.setattr(machine, "waited", lambda process: next(waits))
    monkeypatch.setattr(machine, "WAITING", 0.1)
    times = iter([0.05, 0.04, 0.03, 0.02, 0.01])

    def measured() -> float:
        time.sleep(0.02)
        return next(times)

    assert machine.undisturbed(measured) == 0.03
    assert machine.undisturbed(measured, most=0.03) == 0.01


def test_who_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Worker) -> str:
        raise Failed("not installed: No module named 'jax'")

    monkeypatch.setattr(Worker, "_start", refuse)
    with race.workers(["jax"], 1, tmp_path, lambda name: tmp_path / name) as (found, missing):
        assert (found, missing) == ({}, {"jax": "not installed: No module named 'jax'"})


def test_peak_memory_counts_the_result() -> None:
    # more than 32 MiB, which malloc may take from what it kept
    peak = timing.peak_bytes(lambda: np.ones(8_000_000))
    assert peak is None or peak > 60_000_000


def test_the_rate_of_a_copy_depends_on_its_size() -> None:
    assert [RATES.copying(size) for size in (10, 2000, 10**9)] == [1e10, 1e9, 1e9]


def test_cases_for_a_device_are_the_largest_ones() -> None:
    row = next(row for row in ROWS if row.larger)
    result = list(device_cases([row]))
    assert [case.sizes for case in result[: 1 + len(row.larger)]] == [row.sizes[-1], *row.larger]


def test_the_command_lists_rows_and_refuses_unknown_contestants() -> None:
    runner = CliRunner()
    listed = runner.invoke(main, ["--list", "--rows", "attention"])
    assert listed.output.split("\n")[:2] == ["attention vjp", "attention, batched vjp"]
    refused = runner.invoke(main, ["--contestants", "matlab"])
    assert refused.exit_code == 2
    assert all(name in refused.output for name in CONTESTANTS)
