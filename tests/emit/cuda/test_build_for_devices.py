"""Packages with modules for the CPU and for CUDA devices side by side."""

import importlib
import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import derivatrix as dx
from derivatrix.compiler import cli
from derivatrix.compiler.driver import build as building
from derivatrix.compiler.emit.cuda import resources
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.runtime import certificate, parallel, simulated
from tests.driver.test_build import imported, snapshot
from tests.packages import package_of

TARGETS = ("cpu", "cuda")
FUNCTIONS = """
import derivatrix as dx

n = dx.dims("n")
a = dx.vector("a", n)
double = dx.function("double", [a], 2 * a)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a function file and its package, not to be changed."""
    directory = tmp_path_factory.mktemp("both")
    (directory / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def built(place):
    return run(place, "build", "--target", "cpu", "--target", "cuda")


def run(place, command, *options):
    """The output of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        first = ["functions.py", "-o"] if command != "verify" else []
        return CliRunner().invoke(cli.main, [command, *first, "generated", *options])


@pytest.fixture
def copied(place, built, tmp_path, monkeypatch):
    """A copy, in which verification says of each module that it was done again."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    done = {}

    def verify(module, **_):
        done[module.__name__] = module
        name = module.__name__.rpartition(".")[2]
        return next(report for report in reports if f"{name}_".startswith(f"{report.function}_"))

    entries = json.loads((place / "generated/certificate.json").read_text())["modules"]
    reports = [dx.runtime.Report.from_dict(entry) for entry in entries]
    reports.sort(key=lambda report: -len(report.function))
    monkeypatch.setattr(parallel, "verify", verify)
    return tmp_path, done


def test_both_are_written_and_verified(place, built):
    assert built.exit_code == 0, built.output
    assert "in Numba's simulator of a device: double_cuda" in built.output
    (double,) = load_functions(place / "functions.py")
    files = package_of(double, targets=TARGETS)
    assert {*snapshot(place / "generated")} == files | {
        "certificate.html",
        "certificate.json",
        "certificate.md",
    }
    package = dx.load_package(place / "generated")
    assert {name: module.TARGET for name, module in package.items()} == {
        "double": "cpu",
        "double_cuda": "cuda",
    }
    here, there = package.values()
    assert here.FORMULAS == there.FORMULAS and here.FUNCTIONS == there.FUNCTIONS


def test_the_certificate_says_where(place, built):
    record = json.loads((place / "generated/certificate.json").read_text(encoding="utf-8"))
    places = {entry["function"]: entry["place"] for entry in record["modules"]}
    assert places == {"double": "", "double_cuda": simulated.PLACE}
    text = (place / "generated/certificate.md").read_text(encoding="utf-8")
    assert (
        f"double_cuda: passed {len(record['modules'][1]['rows'])} checks in {simulated.PLACE}"
        in text
    )


def test_a_second_build_changes_nothing(copied):
    directory, done = copied
    before = snapshot(directory)
    result = run(directory, "build", "--target", "cpu", "--target", "cuda")
    assert "0 verified, 2 unchanged; wrote nothing new" in result.output
    assert not done and snapshot(directory) == before


def test_with_a_device_the_simulators_word_is_not_enough(copied, monkeypatch):
    directory, done = copied
    monkeypatch.setattr(certificate, "has_device", lambda: True)
    result = run(directory, "build", "--target", "cpu", "--target", "cuda")
    assert "1 verified, 1 unchanged" in result.output
    assert [module.TARGET for module in done.values()] == ["cuda"]


def test_check_compares_both(place, built, copied):
    directory, _ = copied
    options = ("--target", "cpu", "--target", "cuda")
    assert "up to date" in run(directory, "check", *options).output
    result = run(directory, "check").output
    assert "double_cuda.py is extra" in result and "run: derivatrix build" in result
    (directory / "generated/double_cuda.py").unlink()
    result = run(directory, "check", *options).output
    assert "double_cuda.py is missing" in result
    assert "-o generated --target cpu --target cuda" in result


def test_verify_checks_both(place, built, tmp_path):
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "generated/double_cuda.py"
    text = path.read_text(encoding="utf-8")
    assert "real(2)" in text
    path.write_text(text.replace("real(2)", "real(2.001)"), encoding="utf-8")
    result = run(tmp_path, "verify")
    assert result.exit_code == 1
    assert "generated: 1 of 2 modules failed" in result.output
    assert "double_cuda: FAILED" in result.output


def test_names_that_are_made_twice(tmp_path):
    a = dx.vector("a", dx.dims("n"))
    functions = [dx.function(name, [a], 2 * a) for name in ("double", "double_cuda")]
    for call in (dx.build, dx.check):
        with pytest.raises(dx.DeclarationError, match="double for cuda and of double_cuda for cpu"):
            call(functions, tmp_path / "generated", targets=TARGETS)
    assert not (tmp_path / "generated").exists()


def test_what_generated_modules_import_is_known(place, built):
    result = imported(place / "generated")
    assert result <= {*building.RESERVED_NAMES}
    assert {"_support", "numba", "numpy"} <= result


def test_modules_for_devices_can_be_imported_without_one(place, built):
    module = dx.load(place / "generated/double_cuda.py")
    if not simulated.has_device():
        with pytest.raises(RuntimeError, match="double: no CUDA device can be used"):
            module.value(np.ones(3))
    warm = dx.build(
        dx.function("none", [dx.vector("a", dx.dims("n"))], dx.vector("a", dx.dims("n"))),
        place / "warm",
        "cuda",
        verify=False,
        warm=True,
    )
    assert warm.modules == ("none_cuda",)


@pytest.mark.toolkit
def test_explain_shows_kernels_and_what_they_take(place):
    """Two prints are equal, also for other devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        command = ["explain", "functions.py:double", "--target", "cuda"]
        first, second, other = (
            CliRunner().invoke(cli.main, [*command, *options])
            for options in ([], [], ["--architecture", "8.0"])
        )
        wrong = CliRunner().invoke(cli.main, [*command, "--architecture", "next"])
        nowhere = CliRunner().invoke(cli.main, [*command, "--architecture", "1.0"])
    assert first.exit_code == other.exit_code == 0, first.output
    assert first.output == second.output
    assert "jacobian by a: 2 I" in first.output
    heading, kernel = "double: kernels", r"\njacobian_kernel_1 +\d+ +0 +0 +0 +out\[i, i\] = 2"
    assert re.search(kernel, first.output.partition(heading)[2])
    assert "Compiled for compute capability 9.0, float64" in first.output
    assert "Compiled for compute capability 8.0, float64" in other.output
    assert wrong.exit_code == nowhere.exit_code == 1
    assert "derivatrix: 'next' is no compute capability" in wrong.output
    assert "cannot be compiled here for devices of compute capability 1.0" in nowhere.output


def test_what_compiling_takes(monkeypatch):
    """Without the toolkit there is a plain word."""
    kernel = resources.Kernel("one", "", "void(real[::1])", lambda x: None)
    import_module = importlib.import_module

    def without(name):
        if name in ("numba.cuda", "cuda.bindings.nvjitlink"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", without)
    for call in (kernel.ptx, lambda: resources.assembled("")):
        with pytest.raises(dx.UnsupportedError, match=r"pip install 'derivatrix\[cuda\]'"):
            call()
    with pytest.raises(dx.UnsupportedError, match="its kernels are not for CUDA devices"):
        resources.kernels(pytest)


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    """Numba's own simulator lacks what kernels use; the fault is not the module's."""
    a = dx.vector("a", 2)
    double = dx.function("double", [a], 2 * a)
    monkeypatch.setattr(simulated, "find_spec", lambda name: None)
    with pytest.raises(dx.MissingPackageError, match=r"double_cuda: .*derivatrix\[cuda\]"):
        dx.build(double, tmp_path, "cuda")
    assert not list(tmp_path.iterdir())
    assert dx.build(double, tmp_path, "cuda", verify=False).modules == ("double_cuda",)
