"""The model of threads does what it says, and is fitted to what it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks.contestants.derivatrix import Derivatrix
from tests.benchmarks.record import Case
from tests.benchmarks.rows import ROWS
from tests.benchmarks.scaling import beginning, called, pool_of, predicted
from tests.benchmarks.scaling_model import Call, Form, Machine, Model, fitted, simulated
from tests.packages import support_file

IDEAL = Machine(claim=0)


@pytest.mark.parametrize(
    ("begin", "parts", "claim", "expected"),
    [
        ([0], 3, 0, 3),
        ([0, 0], 4, 0, 2),
        ([0, 0], 3, 0, 2),
        ([0, 10], 3, 0, 3),
        ([0, 1.5], 3, 0, 2.5),
        ([0, 0], 2, 0.5, 2),
        ([2, 2, 2], 3, 0, 3),
    ],
)
def test_who_is_free_takes_the_next_part(
    begin: list[float], parts: int, claim: float, expected: float
) -> None:
    assert simulated(begin, parts, 1.0, claim) == expected


@pytest.mark.parametrize("form", [Form(), Form(memory=True), Form(sums=True)])
def test_a_model_is_found_again(form: Form) -> None:
    model = Model(2e-5, 3e-10, 0.25)
    sizes = [(work, results) for work in (1e6, 1e7, 1e8) for results in (10, 10_000)]
    calls = [Call(*size, threads, threads) for size in sizes for threads in (1, 2)]
    calls = [call._replace(seconds=model.seconds(call, form, Machine())) for call in calls]
    np.testing.assert_allclose(fitted(calls, form), model, rtol=1e-4)


def test_threads_that_nothing_keeps_from_work() -> None:
    model, one, many = Model(0, 1e-9), Call(1e9, 1, 1, 1), Call(1e9, 1, 64, 64)
    assert predicted(model, one, many, Form(), IDEAL) == (64, "work")
    assert predicted(model, one, many, Form(memory=True), IDEAL._replace(saturated=8))[0] == 8
    speed, most = predicted(model, one, many, Form(), IDEAL._replace(wake=1e-3))
    assert most == "beginning" and speed == pytest.approx(1 / (1 / 64 + 63e-3))
    two = one._replace(threads=2, parts=2)
    speed, _ = predicted(model, one, two, Form(), IDEAL._replace(start=0.1))
    assert speed == pytest.approx(1 / 0.6)  # the second half begins 0.1 s later
    summed = Call(1e9, 1_000, 64, 64)
    speed, most = predicted(model, one, summed, Form(sums=True), IDEAL._replace(add=1e-6))
    assert most == "adding up" and speed == pytest.approx(1 / (1 / 64 + 64e-3))
    speed, most = predicted(model._replace(alone=1), one, many, Form(), IDEAL)
    assert most == "one thread alone" and speed == pytest.approx(2 / (1 + 1 / 64))


def test_a_call_is_measured_and_checked() -> None:
    row = next(row for row in ROWS if row.name == "X X jacobian")
    case = Case(replace(row, sizes=({"n": 24},)), 0, "float64")
    contestant = Derivatrix(2)
    call = called(contestant, case, Form(memory=True), 2)
    (module,) = contestant.modules.values()
    assert call.threads == call.parts == min(2, support_file(module, "cpu.kernels")._THREADS)
    assert call.work == 8 * (24**2 + 24**4) and call.results == 24**4 and call.seconds > 0
    wrong = replace(case.row, closed=lambda X: np.zeros((*X.shape, *X.shape)))
    with pytest.raises(ValueError, match="X X jacobian, n=24, 2 threads"):
        called(contestant, Case(wrong, 0, "float64"), Form(memory=True), 2)
    pool = pool_of(contestant)
    assert min(beginning(pool, 2)) > 0
    assert pool.helpers and not any("help" in vars(helper) for helper in pool.helpers)
