"""What verification reaches: branches for large sizes, special points; and what it does not."""

import dataclasses
import itertools
import time
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix import runtime
from derivatrix.compiler.driver import comparison
from derivatrix.runtime import reach, sampling, special, trials, workers
from derivatrix.runtime.domains import contains
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.marks import MARK, Copy
from derivatrix.runtime.reach import Run
from derivatrix.runtime.report import Reach, Report, Row
from derivatrix.runtime.work import Work
from tests import fakes
from tests.packages import loaded

n, m = dx.dims("n m")
X = dx.matrix("X", n, n)


@pytest.fixture(scope="module")
def square():
    return dx.compile(dx.function("square", [X], X @ X))


def spoilt(module, tmp_path, old, new):
    """The module from a file in which a line of a kernel is another."""
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    assert text.count(old) == 1
    formulas = Path(module.__file__).parent / "_formulas" / "square.py"
    return loaded(tmp_path, "square", text.replace(old, new), formulas.read_text(encoding="utf-8"))


GEMM = "    gemm(1.0, X, True, cotangent, False, 0.0, out)  # out = Xᵀ cotangent\n"


@pytest.mark.parametrize("least", [40, 300])
def test_a_kernel_wrong_at_large_sizes_alone_fails(square, tmp_path, least):
    line = f"    if len(X) > {least}:\n        out[0, 0] += 0.5\n"
    wrong = spoilt(square, tmp_path, GEMM, f"{GEMM}{line}")
    report = runtime.verify(wrong)
    failures = {(row.check, row.function) for row in report.failures}
    assert failures & {("adjoint", "jvp"), ("products", "vjp")}


def test_a_right_module_passes_and_says_what_was_reached(square):
    report = runtime.verify(square)
    assert report.passed, str(report)
    assert report.reach.total > 8 and report.reach.reached > 8
    assert "shared_work" not in str(report)
    named = {name for name, _ in report.reach.missed}
    assert not {name for name in named if name.endswith("_kernel")}
    assert f"reached {report.reach.reached} of {report.reach.total} branches" in str(report)


def survey(module):
    """How many branches there are, and which of the module's own are not reached; of its support
    it depends on the moment which threads come first."""
    found = runtime.verify(module).reach
    return found.total, [entry for entry in found.missed if entry[0].isidentifier()]


def test_searches_share_a_process_where_it_is_kept(monkeypatch):
    """It makes the same surveys; it is not used again in the midst of one."""
    monkeypatch.setattr(reach, "PROCESSES", reach._Processes())
    monkeypatch.setattr(reach, "_KNOWN", {})
    monkeypatch.setattr(workers, "_living", set())
    x = dx.vector("x", n)
    modules = [dx.compile(dx.function("cubes", [x], each)) for each in (x**3, dx.sum(x**3))]
    alone = [survey(module) for module in modules]
    assert not workers._living and alone[0] != alone[1]
    reach._KNOWN.clear()
    with reach.PROCESSES.kept():
        assert [survey(module) for module in modules] == alone
        (process,) = workers._living
        assert process.poll() is None
        with reach.Search(modules[0], seed=1):
            assert process.poll() is None
        assert process.poll() is not None and not workers._living
        reach._KNOWN.clear()
        assert survey(modules[1]) == alone[1]
        assert len(workers._living) == 1
    assert not workers._living


def test_lines_that_no_size_reaches_are_listed(square, tmp_path):
    wrong = spoilt(square, tmp_path, GEMM, f"{GEMM}    if len(X) < 0:\n        out[0, 0] += 0.5\n")
    found = reach.surveyed({"path": wrong.__file__, "seed": 0})["reach"]
    with open(wrong.__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    (line,) = found["missed"]["vjp_kernel"]
    assert lines[line - 1] == "        out[0, 0] += 0.5"


def test_a_copy_has_a_mark_for_every_branch_of_a_compiled_function(square):
    copy = Copy(square)
    point = next(sampling.draws(ModuleInterface(square), {"n": 3}, np.random.default_rng(0)))
    result = copy.module.jacobian(*point.values.values())
    assert np.array_equal(result, square.jacobian(*point.values.values()))
    made = {copy.places[place] for place in copy.taken()}
    assert {name for name, _ in made} == {"jacobian_kernel", "border (_support/cpu/parts.py)"}
    assert len([name for name, _ in made if name.isidentifier()]) == 5 and copy.taken() == []
    assert not hasattr(square, MARK)


def test_points_do_not_depend_on_the_speed_of_the_machine(square, monkeypatch):
    runner = reach._Runner(Copy(square), 0)
    candidates = [{"n": 5}, {"n": 65}, {"n": 129}]
    usual = list(runner.tried(candidates))
    assert [run.sizes for run in usual] == candidates
    monkeypatch.setattr(time, "process_time", itertools.count(0, 100).__next__)
    assert list(reach._Runner(runner.copy, 0).tried(candidates)) == usual


def test_work_grows_as_the_declaration_says():
    y = dx.vector("y", n)
    counts = {
        "elementwise": (dx.sum(dx.exp(y)), [y], 1),
        "pairs": (dx.sum(dx.exp(y[:, None] * y[None, :])), [y], 2),
        "product": (X @ X, [X], 3),
        "inverse": (dx.inv(X), [X], 3),
    }
    for name, (expression, inputs, power) in counts.items():
        function = dx.function(name, inputs, expression)
        work = Work(comparison._interface(function))
        growth = work.operations({"n": 2000}) / work.operations({"n": 1000})
        assert 2 ** (power - 0.3) < growth < 2 ** (power + 0.1), name


def test_branches_that_raise_are_not_counted(square):
    """Neither in the module nor in its support, whose places are named with their files."""
    copy = Copy(square)
    own = Path(square.__file__)
    files = set()
    for name, line in copy.places:
        function, _, file = name.removesuffix(")").partition(" (")
        path = own.parents[1] / file if file else own
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not lines[line - 1].strip().startswith("raise")
        assert any(text.startswith(f"def {function}(") for text in lines)
        files.add(file)
    assert {"", "_support/cpu/shared_work.py"} <= files


def conditional(module, kind, when):
    """The module with a function that is wrong where `when` says so of its first argument."""
    function = getattr(module, kind)

    def wrong(*arguments, out=None):
        result = function(*arguments, out=out)
        if when(np.asarray(arguments[0])):
            result += 1e-3 * (1 + np.abs(result))
        return result

    setattr(module, kind, wrong)
    return module


CONDITIONS = {
    "size > 64": lambda array: len(array) > 64,
    "size 1": lambda array: len(array) == 1,
    "zeros": lambda array: not array.any(),
    "ones": lambda array: (array == 1).all(),
    "a large entry": lambda array: array.max() > 1e3,
    "a large negative entry": lambda array: array.min() < -1e3,
    "equal rows": lambda array: len(array) > 1 and array.any() and (array == array[0]).all(),
    "no positive entry": lambda array: len(array) > 1 and array.any() and (array <= 0).all(),
}


@pytest.mark.parametrize("kind", ["value", "vjp", "jvp"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_function_wrong_in_special_cases_alone_fails(name, kind):
    report = runtime.verify(conditional(fakes.square(), kind, CONDITIONS[name]))
    failures = {row.function for row in report.failures}
    assert failures <= {kind, "jvp"} if kind == "vjp" else kind in failures
    assert not report.passed


def test_at_large_sizes_only_what_is_checked_is_called():
    """Where second derivatives are not, the gradient is not for their differences."""
    module = fakes.energy()
    called = []
    right = module.gradient

    def noted(*arguments, out=None):
        called.append(len(arguments[0]))
        return right(*arguments, out=out)

    module.gradient = noted
    interface = ModuleInterface(module)
    for kinds in (("value", "jvp"), ("value", "jvp", "hvp")):
        rows = [
            row for found in trials.large(interface, Run({"n": 65}, kinds), 0) for row in found.rows
        ]
        assert {row.function for row in rows} == {*kinds} and all(row.passed for row in rows)
        assert ("hvp" in kinds) == (
            ("differences", "hvp") in [(row.check, row.function) for row in rows]
        )
        assert bool(called) == ("hvp" in kinds)


def test_kinks_and_poles_are_no_faults():
    """The module is right: the declaration has no derivative, or no value, at special points."""
    x = dx.vector("x", n)
    y = dx.vector("y", n)
    for name, expression in {
        "kinks": dx.sum(abs(x) * dx.maximum(x, y)) + dx.max(x),
        "poles": dx.sum(x / y) + dx.sum(dx.log(abs(x))),
        "jumps": dx.sum(dx.sign(x) * y * dx.floor(y)),
    }.items():
        module = dx.compile(dx.function(name, [x, y], expression))
        interface = ModuleInterface(module)
        rows = trials._specials(interface, {}, 0).rows
        assert rows and all(row.passed for row in rows), [row for row in rows if not row.passed]


@pytest.mark.parametrize(
    ("structure", "domain"),
    [
        *(("general", domain) for domain in ("", "positive", "nonneg", "fraction")),
        *((structure, "") for structure in ("symmetric", "spd", "lower", "diagonal")),
    ],
)
def test_special_points_are_inside(structure, domain):
    module = fakes.square()
    (given,) = module.INPUTS
    module.INPUTS = ({**given, "structure": structure, "domain": domain},)
    interface = ModuleInterface(module)
    found = list(special.points(interface, {}, 0))
    assert {1} < {point.sizes["n"] for point in found}
    for point in found:
        assert contains(structure, point.values["X"]) and contains(domain, point.values["X"])
        assert np.array_equal(sampling.project(structure, point.values["X"]), point.values["X"])
    labels = " ".join(point.label for point in found)
    assert ("zeros" in labels) == (
        domain in ("", "nonneg") and structure in ("general", "symmetric")
    )


def test_reach_survives_a_certificate():
    row = Row("value", "value", "", "point 1", 0.0, 1e-9, True)
    report = Report("f", "0", (row,), reach=Reach(3, 5, (("f_kernel", (7, 9)),)))
    assert Report.from_dict(report.to_dict()) == report
    assert "reached 3 of 5 branches" in str(report) and "f_kernel: 7, 9" in str(report)
    with pytest.raises(TypeError):
        Report.from_dict({**report.to_dict(), "reach": dataclasses.asdict(Reach(missed={"f": 3}))})
