"""The certificate as a page, and the errors of differences over their step."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from derivatrix import runtime
from derivatrix.runtime.certificate_page import POINTS, _kind
from derivatrix.runtime.report import STEPS
from tests import fakes
from tests.fakes import FAKES
from tests.markup import alone

POINT = re.compile(r"step (\S+), error (\S+)")


def written(directory, *reports):
    """Return the entries of the JSON certificate for each module, and the HTML page."""
    runtime.write_certificate(directory, reports)
    modules = json.loads((directory / "certificate.json").read_text("utf-8"))["modules"]
    return modules, (directory / "certificate.html").read_text("utf-8")


def spoiled(make, kind):
    """The report on a module of which one function is off by 1e-4."""
    module = make()
    right = getattr(module, kind)

    def wrong(*arguments, out=None):
        result = right(*arguments, out=out)
        result *= 1 + 1e-4
        return result

    setattr(module, kind, wrong)
    return runtime.verify(module)


def best(report, kind):
    """Collect at each point the smallest error of the differences of one function."""
    return [min(curve.errors) for curve in report.curves if curve.function == kind]


def test_the_plots_show_the_numbers_for_programs(tmp_path):
    modules, text = written(tmp_path, runtime.verify(fakes.nll()), runtime.verify(fakes.square()))
    recorded = [
        (step, error)
        for module in modules
        for curve in sorted_by_plot(module["curves"])
        for step, error in zip(module["steps"], curve["errors"], strict=True)
        if error is not None
    ]
    titles = [POINT.fullmatch(title) for title in alone(text).all("title") if "step" in title]
    assert [tuple(map(float, title.groups())) for title in titles] == recorded
    assert len(recorded) > 100


def sorted_by_plot(curves):
    """The curves, those of one plot one after the other."""
    order = list(dict.fromkeys((curve["function"], curve["input"]) for curve in curves))
    return sorted(curves, key=lambda curve: order.index((curve["function"], curve["input"])))


def test_circles_lie_where_the_numbers_say(tmp_path):
    _, text = written(tmp_path, runtime.verify(fakes.nll()))
    circle = re.compile(r'cx="(\S+)" cy="(\S+)" r="3.2"><title>step (\S+), error ([^<]+)<')
    result = np.array(circle.findall(text), float)
    x, y, step, error = result.T
    assert np.linalg.matrix_rank(np.column_stack([x, np.ones(len(x))])) == 2
    for place, value in ((x, step), (y, np.clip(error, 1e-16, 1.0))):
        slope, start = np.polyfit(np.log10(value), place, 1)
        np.testing.assert_allclose(slope * np.log10(value) + start, place, atol=0.06)


@pytest.mark.parametrize("name", sorted(FAKES))
def test_right_derivatives_agree_at_the_best_step(name):
    report = runtime.verify(FAKES[name]())
    kinds = {row.function for row in report.rows if row.check == "differences"}
    at = {row.point for row in report.rows if row.check == "control"}
    assert {curve.function for curve in report.curves} == kinds
    assert {curve.point for curve in report.curves} == at
    assert all(min(curve.errors) < 1e-7 for curve in report.curves), report.curves


def test_the_error_is_a_v():
    curve = next(curve for curve in runtime.verify(fakes.nll()).curves if curve.function == "jvp")
    errors = np.array(curve.errors)
    tip = int(errors.argmin())
    assert 3 <= tip <= 7
    truncation = np.polyfit(np.log10(STEPS[:3]), np.log10(errors[:3]), 1)[0]
    assert truncation == pytest.approx(2, abs=0.1)
    assert errors[-1] > 100 * errors[tip]


@pytest.mark.parametrize("kind", ["vjp", "jvp", "jacobian"])
def test_a_planted_fault_is_a_flat_line_and_a_failed_row(tmp_path, kind):
    report = spoiled(fakes.square, kind)
    assert all(error == pytest.approx(1e-4, rel=0.1) for error in best(report, kind))
    others = {"vjp", "jvp", "jacobian"} - {kind}
    assert all(error < 1e-8 for other in others for error in best(report, other))
    _, text = written(tmp_path, report)
    page = alone(text)
    assert f"square: {report.title.partition(': ')[2]}" in page.all("h2", class_="bad")
    assert any(f"differences of {kind}" in line for line in page.all("p", class_="bad"))
    assert "FAILED" in page.all("td", class_="bad")


def test_a_step_out_of_the_domain_is_a_gap(tmp_path):
    report = runtime.verify(fakes.square())
    curve = replace(report.curves[0], errors=(math.inf, *report.curves[0].errors[1:]))
    (module,), text = written(tmp_path, replace(report, curves=(curve,)))
    assert module["curves"][0]["errors"][0] is None
    assert runtime.Report.from_dict(module).curves[0].errors[0] == math.inf
    assert len(alone(text).all("circle")) == len(STEPS) - 1


def test_points_are_told_by_their_kinds():
    kinds = [kind for _, kind in POINTS]
    labels = ("point 1: n=3", "50 digits, point 2", "n=257, spread 0.01", "special points")
    assert [_kind(label) for label in labels] == kinds
    assert _kind("zeros in X, n=2") == _kind("random, n=1") == kinds[-1]
