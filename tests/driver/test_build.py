"""Packages of generated modules: written whole or not at all, the same everywhere, kept fresh."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix import runtime
from derivatrix.compiler.driver import build as building
from derivatrix.compiler.driver import worker_serialization as transfer
from derivatrix.compiler.ir.nodes import Apply
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.runtime import atomic_output as staging
from derivatrix.runtime import parallel
from derivatrix.runtime.load import import_name
from derivatrix.runtime.workers import Crash, Workers
from derivatrix.scipy import objective
from tests import ROOT
from tests.caches import derive_always
from tests.driver.test_packaging import WITHOUT
from tests.packages import package_of, support_of

n = dx.dims("n")
a = dx.vector("a", n)
double = dx.function("double", [a], 2 * a)
triple = dx.function("triple", [a], 3 * a)

CERTIFICATE = {"certificate.html", "certificate.json", "certificate.md"}
FILES = {"double.py", "double.pyi", "_formulas/double.py", "__init__.py", "py.typed", *CERTIFICATE}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A package with `double`, not to be changed."""
    directory = tmp_path_factory.mktemp("built") / "generated"
    return dx.build([double], directory)


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, but those of Python's and Numba's caches."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in files
        if "__pycache__" not in path.parts
    }


def changes(functions, directory: Path) -> list[building.Difference]:
    """Return the differences that `check` finds, but for the certificate."""
    return [part for part in dx.check(functions, directory) if part.file not in CERTIFICATE]


def runs(code: str, folder: Path) -> None:
    """A program in a folder ends without an error."""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def trust(monkeypatch, built):
    """Let `double` pass without being verified, for time's sake."""
    monkeypatch.setattr(parallel, "verify", lambda *_, **__: built.reports[0])


def spoil(monkeypatch):
    """Let the compiler write modules whose value is wrong by a part in 10000."""
    generate = building.generate

    def wrong(function, target="cpu"):
        generated = generate(function, target)
        text = "\n_right = value\n\n\ndef value(*a, out=None):\n    return _right(*a) * 1.0001\n"
        return replace(generated, text=generated.text + text)

    derive_always(monkeypatch)
    monkeypatch.setattr(building, "generate", wrong)


# Writing


def test_the_package_is_written_with_a_certificate(built):
    assert built.modules == ("double",)
    assert {*built.written} == FILES | support_of(double) == {*snapshot(built.directory)}
    assert built.removed == ()
    assert [report.passed for report in built.reports] == [True]
    certificate = json.loads((built.directory / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["passed"] is True
    assert certificate["modules"][0]["digest"] == dx.load(built.directory / "double.py").DIGEST


def test_the_package_works_without_the_compiler(built):
    code = (
        "import numpy as np, generated\n"
        "from generated import double\n"
        "assert generated.__all__ == ['double'] and 'double' in dir(generated)\n"
        "assert generated.double is double\n"
        "assert double.vjp(np.ones(2), np.ones(2)).tolist() == [2, 2]\n"
        "assert not hasattr(generated, 'triple')\n"
    )
    absent = ("derivatrix", "sympy", "jinja2")
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent) + code],
        cwd=built.directory.parent,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr


def test_verifying_a_package_leaves_it_importable_under_its_own_name(built):
    """Under both names it runs the same machine code."""
    use = "from generated import double; double.value([1.0]); double.jvp([1.0], [1.0])"
    check = "from derivatrix.runtime import load_package, verify\n"
    check += "assert verify(load_package('generated')['double']).passed"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for code in (check, use, check):
        process = subprocess.run(
            [sys.executable, "-c", code],
            cwd=built.directory.parent,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr


def test_the_text_holds_no_path_and_is_the_same_everywhere(built, tmp_path):
    file = tmp_path / "functions.py"
    file.write_text(
        "import derivatrix as dx\n"
        "a = dx.vector('a', dx.dims('n'))\n"
        "double = dx.function('double', [a], 2 * a)\n"
    )
    expected = snapshot(built.directory)
    for seed in ("0", "1"):
        place = tmp_path / f"seed{seed}"
        place.mkdir()
        command = ["-m", "derivatrix.compiler.cli", "build", str(file), "-o", "out", "--no-verify"]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        environment["DERIVATRIX_CACHE"] = str(place / "cache")  # else both find one text
        subprocess.run([sys.executable, *command], cwd=place, env=environment, check=True)
        files = snapshot(place / "out")
        assert b"    \"double\": '../../functions.py',\n" in files.pop("__init__.py")
        assert files == {
            name: text
            for name, text in expected.items()
            if name not in CERTIFICATE and name != "__init__.py"
        }
    assert len({(tmp_path / f"seed{seed}/out/__init__.py").read_bytes() for seed in "01"}) == 1
    for text in expected.values():
        assert str(built.directory.parent).encode() not in text
        assert str(ROOT).encode() not in text


def test_a_second_build_changes_nothing(built, monkeypatch):
    trust(monkeypatch, built)
    before = {path: path.stat().st_mtime_ns for path in built.directory.glob("*.*")}
    assert dx.build([double], built.directory).written == ()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_progress_counts_every_step(built, tmp_path, monkeypatch, forgotten):
    trust(monkeypatch, built)
    told = []
    dx.build([double], tmp_path / "out", progress=lambda *step: told.append(step))
    assert list(dict.fromkeys((done, total) for _, done, total in told)) == [(0, 2), (1, 2)]
    assert all("double" in text for text, _, _ in told)


def test_without_verification_there_is_no_certificate(built, tmp_path, monkeypatch):
    trust(monkeypatch, built)
    directory = tmp_path / "out"
    dx.build([double], directory)
    result = dx.build([double, triple], directory, verify=False)
    assert result.reports == ()
    assert {*result.removed} == CERTIFICATE
    assert {*snapshot(directory)} == package_of(double, triple)


def test_modules_that_no_function_belongs_to_any_more_are_removed(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "by_hand.py").write_text("mine = 1")
    result = dx.build([triple], tmp_path, verify=False)
    assert result.removed == ("double.py", "_formulas/double.py", "double.pyi")
    assert {*snapshot(tmp_path)} == package_of(triple) | {"notes.txt", "by_hand.py"}


def test_a_module_edited_by_hand_beyond_recognition_is_not_removed(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "double.py").write_text("mine = 1")
    assert dx.build([triple], tmp_path, verify=False).removed == (
        "_formulas/double.py",
        "double.pyi",
    )
    assert (tmp_path / "double.py").read_text() == "mine = 1"


# Doing only what is needed


def build_again(built, tmp_path, monkeypatch, change):
    """Change a copy of `built`, build again, and return the modules that this verifies."""
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    change(copy)
    trust(monkeypatch, built)
    result = dx.build([double], copy)
    assert snapshot(copy) == snapshot(built.directory)
    assert result.reports[0].passed
    return result.verified


def edited(name, old, new):
    def change(directory):
        path = directory / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return change


def overwritten(text):
    def change(directory):
        (directory / "certificate.json").write_text(text, encoding="utf-8")

    return change


def test_a_module_that_is_certified_is_not_verified_again(built, tmp_path, monkeypatch):
    assert built.verified == ("double",)
    assert build_again(built, tmp_path, monkeypatch, lambda directory: None) == ()


def test_helpers_that_another_module_brings_leave_it_certified(built, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    report = replace(built.reports[0], function="brings")
    monkeypatch.setattr(parallel, "verify", lambda module, **_: report)
    brings = dx.function("brings", [a], dx.logsumexp(a))
    assert not (copy / "_support" / "cpu" / "rows.py").exists()
    assert dx.build([double, brings], copy).verified == ("brings",)
    assert (copy / "_support" / "cpu" / "rows.py").exists()


@pytest.mark.parametrize(
    "change",
    [
        edited("double.py", "# Public functions\n", "# Public functions \n"),
        edited("certificate.json", '"platform": "', '"platform": "another '),
        edited("certificate.json", '"verification": "', '"verification": "0'),
        edited("certificate.json", '"passed": true', '"passed": 1'),
        edited("certificate.json", '"passed": true,\n     "note"', '"passed": false,\n     "note"'),
        edited("certificate.json", '"digest": "', '"digest": "0'),
        edited("certificate.json", '"function": "double"', '"function": "triple"'),
        edited("certificate.json", '"error": 0.0', '"error": "none"'),
        edited("certificate.json", '"errors": [', '"errors": [0.5, '),
        edited("certificate.json", ' "made_with"', ' "made"'),
        edited("certificate.json", '"modules": [', '"modules": [3, '),
        lambda directory: (directory / "certificate.json").unlink(),
        lambda directory: (directory / "double.py").unlink(),
        *(overwritten(text) for text in ("", "{", '{"format": 1, "pa', "[]", "null", '"x"', "{}")),
        *(overwritten(text) for text in ("\0\ufffd", "[" * 100_000, '{"format": 1, "modules": 3}')),
    ],
)
def test_other_modules_are(built, tmp_path, monkeypatch, change):
    assert build_again(built, tmp_path, monkeypatch, change) == ("double",)


def test_a_report_survives_its_certificate(built):
    (report,) = built.reports
    copy = runtime.Report.from_dict(report.to_dict())
    assert copy.to_dict() == report.to_dict()
    infinite = runtime.Row("value", "value", "", "", np.inf, 0.0, False, "it is wrong")
    failed = runtime.Report("f", "0", (infinite,))
    assert runtime.Report.from_dict(failed.to_dict()) == failed


# Other processes


def test_what_other_processes_answer():
    """Results in order, errors by their type, and what became of a process."""
    states = []

    def answers(call, *arguments):
        with Workers(2) as workers:
            return workers.map(call, arguments, lambda *state: states.append(state))

    assert answers("math:sqrt", 4, 9, 16) == [2, 3, 4]
    assert states[0] == ([0, 1], 0) and states[-1] == ([], 3)
    (error,) = answers("derivatrix.runtime.parallel:verify_file", ("nowhere.py", False, ""))
    assert type(error) is dx.LoadError and "nowhere.py: cannot be read" in str(error)
    (crash,) = answers("math:sqrt", -1)
    assert crash.reason == "ValueError: math domain error" and "Traceback" in crash.trace
    ends = answers("os:_exit", 3, 4)
    assert {end.reason for end in ends} == {f"its process ended with status {i}" for i in (3, 4)}
    (crash,) = answers("signal:raise_signal", int(signal.SIGTERM))
    assert crash.reason == "its process was ended by SIGTERM"


def test_verification_that_breaks_off_names_the_module(tmp_path, monkeypatch):
    """And leaves nothing behind."""
    monkeypatch.setattr(
        Workers, "map", lambda self, call, arguments, changed: [Crash("gone")] * len(arguments)
    )
    with pytest.raises(dx.VerificationError, match="double: verification broke off: gone"):
        dx.build([double, triple], tmp_path, jobs=2)
    assert snapshot(tmp_path) == {}


def test_many_functions_are_derived_by_several_processes(monkeypatch, forgotten):
    """They give the same modules; an operation that they do not know is derived here."""
    X = dx.matrix("X", n, n)
    unknown = dx.Array(Apply(replace(OPERATIONS["expm"], name="odd"), ((X.node, ()),)))
    functions = [
        dx.function("model", [a, X], dx.softmax(dx.solve(X, a) + np.arange(3.0).sum()), batch=[a]),
        dx.function("picked", [X], dx.sum(dx.tril(X[1:, :-1])) + dx.logdet(X @ X.T)),
        dx.function("unknown", [X], unknown),
        *(dx.function(f"times_{i}", [a], i * a) for i in range(5)),
    ]
    work, progress, answers = [(function, "cpu") for function in functions], [], []

    def recorded(*arguments):
        answers.extend(transfer.generate_in_workers(*arguments))
        return list(answers)

    monkeypatch.setattr(building, "generate_in_workers", recorded)
    with Workers(2) as workers:
        steps = building._Steps(work, 1, workers, lambda *step: progress.append(step))
        modules = steps.generate()
    assert modules == [*map(building.generate, functions)]
    assert answers == [*modules[:2], None, *modules[3:]]
    assert progress[0] == ("model, picked: deriving", 0, 8)
    assert ("unknown: deriving for cpu", 2, 8) in progress


def test_a_warm_build_leaves_nothing_to_compile(tmp_path):
    """The code is found in a process that imports the modules under the name of the package."""
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "__init__.py").write_text("raised = 1 / 0 if False else None\n")
    total = dx.function("total", [a], dx.sum(dx.exp(a)))
    kinds = ["value", "vjp", "hvp", "hessian", "hessian_operator"]
    dx.build([total], tmp_path / "outer" / "inner", verify=False, warm=True, kinds=kinds)
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from outer.inner import total\n"
        "from outer.inner._support.cpu import thread_pool\n"
        "for real in (np.float64, np.float32):\n"
        "    x = np.ones(3, real)\n"
        "    more = {'vjp': (real(1),), 'jvp': (x,), 'hvp': (x,)}\n"
        "    for name in total.FUNCTIONS:\n"
        "        getattr(total, name)(x, *more.get(name, ()))\n"
        "        kernel = getattr(total, name + '_kernel')\n"
        "        stats = getattr(total, kernel.__name__ + '_share', kernel).stats\n"
        "        assert stats.cache_hits and not stats.cache_misses, (name, stats)\n"
        "    imported = 'numba.np.arrayobj' in sys.modules  # which only compiling needs\n"
        "    assert not imported or real is np.float32\n"
        "    total.hessian(np.ones(3000, real))\n"
        "    total.value(np.ones(1000000, real))\n"
        "    total.hessian_operator(x)\n"
        "    data, kernels = total.generated.data, [total.hessian_parts_kernel]\n"
        "    for name in ('_hessian_kernel_in_parts', '_value_kernel_in_parts'):\n"
        "        kernels.append(data[name].part.for_kernels())\n"
        "    for kernel in kernels:\n"
        "        assert len(kernel.stats.cache_hits) == 1 + (real is np.float32), kernel\n"
        "        assert not kernel.stats.cache_misses, kernel\n"
        "thread_pool.worker_loop(thread_pool._THREAD_POOL.words)\n"
        "assert not thread_pool.worker_loop.stats.cache_misses\n"
        "assert not thread_pool.submit.stats.cache_misses\n"
    )
    runs(code, tmp_path)


def test_a_verified_build_leaves_its_code(tmp_path):
    """Programs that import the package find the code that verification compiled, also after another
    build, which leaves the files of the support unchanged."""
    kinds = ["value", "jvp"]
    # no program can import this one
    dx.build([triple], tmp_path / "1c", verify=False, warm=True, kinds=kinds)
    total = dx.function("total", [a], dx.logsumexp(a))
    other = dx.function("other", [a], 2 * dx.logsumexp(a))
    dx.build([total, triple], tmp_path / "made", kinds=kinds)
    dx.build([other, total, triple], tmp_path / "made", kinds=kinds)
    code = (
        "import numpy as np\n"
        "from made import other, total, triple\n"
        "from made._support.cpu.rows import logsumexp\n"
        "x = np.ones(3)\n"
        "other.value(x), total.value(x), triple.jvp(x, x)\n"
        "called = (other.value_kernel, total.value_kernel, triple.jvp_kernel, logsumexp)\n"
        "for kernel in called:\n"
        "    stats = kernel.for_kernels().stats\n"
        "    assert stats.cache_hits and not stats.cache_misses, (kernel, stats)\n"
    )
    runs(code, tmp_path)
    assert not [*tmp_path.rglob("*.nb[ci]")]  # it is in the user's folder, for all packages


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("a/b/c", "b.c.f"), ("a/b/1c", ""), ("a/1b/c", "c.f"), ("a", "a.f")),
        *(("math", ""), ("1a/json/b", ""), ("a/1b/derivatrix", ""), ("sympy", "")),
    ],
)
def test_the_name_that_a_module_is_imported_by(tmp_path, folder, name):
    place = tmp_path / folder
    place.mkdir(parents=True)
    for directory in (place, *place.parents)[: folder.count("/")]:
        (directory / "__init__.py").touch()
    assert import_name(place / "f.py") == name


# Refusing


@pytest.mark.parametrize("name", ["double.py", "__init__.py", *sorted(CERTIFICATE)])
def test_hand_written_files_are_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("# mine\n")
    with pytest.raises(dx.BuildError, match=rf"did not write {name}.*Nothing was written"):
        dx.build([triple, double], tmp_path)
    assert snapshot(tmp_path) == {name: b"# mine\n"}


@pytest.mark.parametrize("text", ['{"mine": 1}', "[1, 2]"])
def test_json_of_others_beside_a_package_is_not_overwritten(built, tmp_path, monkeypatch, text):
    trust(monkeypatch, built)
    dx.build([double], tmp_path, verify=False)
    (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(dx.BuildError, match=r"did not write certificate\.json"):
        dx.build([double], tmp_path)
    assert (tmp_path / "certificate.json").read_text() == text


def test_a_failed_verification_leaves_everything_as_it_was(tmp_path, monkeypatch):
    directory, kinds = tmp_path / "out", ["value"]
    dx.build([triple], directory, kinds=kinds)
    before = snapshot(tmp_path)
    spoil(monkeypatch)
    with pytest.raises(dx.VerificationError, match="double: verification failed"):
        dx.build([double, triple], directory, kinds=kinds)
    assert snapshot(tmp_path) == before
    with pytest.raises(dx.VerificationError, match="Nothing was written"):
        dx.build([double], tmp_path / "new", kinds=kinds)
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert sorted(os.listdir(directory)) == [
        "__init__.py",
        "__pycache__",  # with the file of the lock
        "_formulas",
        "_support",
        *sorted(CERTIFICATE),
        "py.typed",
        "triple.py",
        "triple.pyi",
    ]


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(dx.BuildError, match="is no directory"):
            dx.build([double], place)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(staging.tempfile, "mkdtemp", refuse)
    with pytest.raises(dx.BuildError, match="cannot be written: Permission denied"):
        dx.build([double], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_that_collide(tmp_path):
    same_name = dx.function("double", [a], a + a)
    with pytest.raises(dx.DeclarationError, match="two functions are called 'double'"):
        dx.build([double, same_name], tmp_path)
    upper = dx.function("Double", [a], a + a)
    with pytest.raises(dx.DeclarationError, match="double and Double would be one file"):
        dx.build([double, upper], tmp_path)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("name", ["__init__", "__getattr__", "__path__", *building.RESERVED_NAMES])
def test_names_that_no_module_can_have(tmp_path, name):
    with pytest.raises(dx.DeclarationError, match=name):
        dx.build([dx.function(name, [a], a + a)], tmp_path)
    assert snapshot(tmp_path) == {}


def test_names_that_generated_modules_import_are_known(built):
    packages = imported(built.directory)
    assert packages <= {*building.RESERVED_NAMES}
    assert {"_support", "numba", "numpy"} <= packages


def imported(directory: Path) -> set[str]:
    """The packages that the files of a generated package import, and what its modules do."""
    modules = set()
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (not node.level or path.parent == directory):
                modules.add(node.module or "")
    return {name.partition(".")[0] for name in modules if name}


def test_names_that_python_writes_otherwise(tmp_path):
    with pytest.raises(dx.DeclarationError, match="reads 'µ' as 'μ'"):
        dx.function("\u00b5", [a], a + a)


def test_one_function_alone_or_given_twice_is_one(tmp_path):
    assert dx.build(double, tmp_path / "alone", verify=False).modules == ("double",)
    assert dx.build([double, double], tmp_path, ("cpu", "cpu"), verify=False).modules == ("double",)


def untaught(x):
    return x


@pytest.mark.parametrize("wrong", [None, 5, "double", a, 2 * a, untaught, dx])
def test_what_is_no_function(tmp_path, wrong):
    """Each of them names what came and says what to do."""
    for place, call in {
        "derive": lambda: dx.derive(wrong),
        "compile": lambda: dx.compile(wrong),
        "build": lambda: dx.build(wrong, tmp_path),
        "check": lambda: dx.check([double, wrong], tmp_path),
    }.items():
        with pytest.raises(
            dx.DeclarationError, match=f"^{place}: .*is no derivatrix function; "
        ) as e:
            call()
        assert f"of type {type(wrong).__name__})" in str(e.value)
    assert snapshot(tmp_path) == {}


def test_no_function_at_all(tmp_path):
    for call in (dx.build, dx.check):
        with pytest.raises(dx.DeclarationError, match="no function was given"):
            call([], tmp_path)


@pytest.mark.parametrize("wrong", [None, 5, b"out", ["out"]])
def test_what_is_no_path(wrong):
    for call in (dx.build, dx.check):
        with pytest.raises(dx.UnsupportedError, match=r"out_dir is .* expected the path"):
            call(double, wrong)


@pytest.mark.parametrize("wrong", ["", "  ", "a\0b"])
def test_paths_of_nothing(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (dx.build, dx.check):
        with pytest.raises(dx.BuildError, match="is no path of a directory"):
            call(double, wrong)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        (("abacus",), "no target 'abacus'; choose from cpu"),
        ("abacus", "no target 'abacus'; choose from cpu"),
        (["cpu", "metal"], "no target 'metal'; choose from cpu, cuda"),
        ((), "targets is empty; expected"),
        (None, "targets is None; expected"),
        ([["cpu"]], r"no target \['cpu'\]"),
    ],
)
def test_targets_that_there_are_not(built, tmp_path, targets, text):
    for directory in (built.directory, tmp_path / "out"):
        before = snapshot(directory)
        for call in (dx.build, dx.check):
            with pytest.raises(dx.UnsupportedError, match=text):
                call([double], directory, targets=targets)
        assert snapshot(directory) == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2"])
def test_numbers_of_processes_that_there_cannot_be(tmp_path, wrong):
    with pytest.raises(dx.UnsupportedError, match=r"build: jobs is .*; expected a number"):
        dx.build(double, tmp_path, jobs=wrong)


@pytest.mark.parametrize("target", ["gpu", None, ["cpu"]])
def test_targets_that_compile_has_not(target):
    with pytest.raises(dx.UnsupportedError, match="no target"):
        dx.compile(double, target=target)


def test_the_name_of_one_target_will_do(built, monkeypatch):
    trust(monkeypatch, built)
    assert dx.build(double, built.directory, targets="cpu").written == ()
    assert dx.check(double, built.directory, targets="cpu") == []


def test_the_result_of_a_build_is_short(built):
    assert "double" in repr(built) and len(repr(built)) < 500


# Damage


def truncated(text: str) -> str:
    return text[: min(200, len(text) // 2)]


def conflict(text: str) -> str:
    heading, body = text.split("\n", 1)
    return f"<<<<<<< ours\n{heading}\n=======\n{heading}.\n>>>>>>> theirs\n{body}"


def licence(text: str) -> str:
    return f"# SPDX-License-Identifier: BSD-3-Clause\n{text}"


def empty(text: str) -> str:
    return ""


def zeros(text: str) -> str:
    return "\0" * len(text)


@pytest.mark.parametrize("damage", [truncated, conflict, licence, empty, zeros, str.swapcase])
@pytest.mark.parametrize("name", sorted(FILES))
def test_damaged_files_of_derivatrix_are_replaced(built, tmp_path, monkeypatch, name, damage):
    """But what derivatrix cannot know for its own is left alone; a certificate for programs is
    known by that for people."""
    trust(monkeypatch, built)
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / name
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    if damage is str.swapcase and not name.endswith(".json"):
        before = snapshot(copy)
        with pytest.raises(dx.BuildError, match=f"did not write {name}"):
            dx.build([double], copy)
        assert snapshot(copy) == before
        return
    assert dx.build([double], copy).written == (name,)
    assert snapshot(copy) == snapshot(built.directory)


def test_everything_damaged_at_once(built, tmp_path, monkeypatch):
    trust(monkeypatch, built)
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        (copy / name).write_bytes((copy / name).read_bytes()[:200])
    dx.build([double], copy)
    assert snapshot(copy) == snapshot(built.directory)


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_empty_file_alone_is_not_taken_for_derivatrix_s(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(dx.BuildError, match=f"did not write {name}"):
        dx.build([double], tmp_path)
    assert snapshot(tmp_path) == {name: b""}


def test_a_damaged_list_does_not_lead_out_of_the_directory(built, tmp_path, monkeypatch):
    trust(monkeypatch, built)
    shutil.copy(built.directory / "double.py", tmp_path / "triple.py")
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy)
    package = copy / "__init__.py"
    package.write_text(
        package.read_text(encoding="utf-8").replace('["double"]', '["../triple", 5]')
    )
    assert dx.build([double], copy).removed == ()
    assert (tmp_path / "triple.py").exists()


# Other things in the directory


def test_links_and_directories_with_names_of_modules(built, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy)
    (copy / ".#double.py").symlink_to("user@host.1234:5678")  # as Emacs locks a file
    (copy / ".hidden.py").write_bytes(b"\xff\0 no Python")
    (copy / "folder.py").mkdir()
    (copy / "loop.py").symlink_to("loop.py")
    os.mkfifo(copy / "pipe.py")
    folders = {"_formulas", "_support"}
    strangers = {path.name for path in copy.iterdir()} - FILES - folders
    assert dx.check([double], copy) == []
    result = dx.build([double, triple], copy, verify=False)
    assert {*result.written} == {
        "triple.py",
        "triple.pyi",
        "_formulas/triple.py",
        "__init__.py",
    }
    assert {*result.removed} == CERTIFICATE
    package_files = {
        "double.py",
        "double.pyi",
        "triple.py",
        "triple.pyi",
        "__init__.py",
        "py.typed",
    }
    expected = package_files | folders | strangers
    assert {path.name for path in copy.iterdir()} == expected


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_in_the_place_of_one(tmp_path, make):
    make(tmp_path / "double.py")
    with pytest.raises(dx.BuildError, match=r"did not write double\.py"):
        dx.build([double], tmp_path)
    states = {part.file: part.state for part in dx.check([double], tmp_path)}
    assert states == dict.fromkeys(package_of(double), "missing")


def test_a_linked_directory(built, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    dx.build([double], tmp_path / "link", verify=False)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "double.py").is_file()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(dx.BuildError, match="dangling: is no directory"):
        dx.build([double], tmp_path / "dangling")


def test_checking_what_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(dx.BuildError, match="is no directory"):
        dx.check([double], tmp_path / "file")


# Builds that are killed, and builds at the same time

SLOW = """
import sys, time
import derivatrix as dx
from derivatrix.runtime import parallel

a = dx.vector("a", dx.dims("n"))
parallel.verify = lambda *_, **__: (print("ready", flush=True), time.sleep(60))
dx.build(dx.function("slow", [a], a * a), sys.argv[1])
"""


def start(directory):
    """A build that hangs while it verifies."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, directory],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def stages(*directories):
    return [path for place in directories for path in place.glob(f"{staging.PREFIX}*")]


@pytest.mark.parametrize("exists", [True, False])
def test_what_a_killed_build_left_is_swept_away_but_not_that_of_one_at_work(tmp_path, exists):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    mine = tmp_path / f"{staging.PREFIX}settings"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    process = start(out)
    try:
        (at_work,) = {*stages(tmp_path, out)} - {mine}
        dx.build([double], out, verify=False)
        assert {*stages(tmp_path, out)} == {mine, at_work}
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (at_work / "slow.py").exists()
        dx.build([double], out, verify=False)
        assert stages(tmp_path, out) == [mine]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_builds_at_the_same_time_leave_one_of_their_packages(tmp_path):
    """Each installs its own files as a whole: the end is that of one after another."""
    out, errors = tmp_path / "out", []

    def work(functions):
        try:
            for _ in range(4):
                dx.build(functions, out, verify=False)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[[f]]) for f in (double, triple)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stages(tmp_path, out) == []
    assert {*snapshot(out)} in (package_of(double), package_of(triple))
    assert [] in (changes([double], out), changes([triple], out))


@pytest.mark.parametrize("last_move", range(1, 9))
def test_a_build_that_ends_among_its_moves_leaves_no_half_package(
    tmp_path, monkeypatch, forgotten, last_move
):
    """The support is the same, and so are the names: no module is taken beside one of the other
    build."""
    old, new = ([dx.function(f, [a], k * a) for f in ("one", "two")] for k in (2, 3))
    dx.build(old, tmp_path, verify=False)
    moves = []

    def move(source, target):
        moves.append(target)
        if len(moves) > last_move:
            raise KeyboardInterrupt
        os.rename(source, target)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(building.os, "replace", move)
        dx.build(new, tmp_path, verify=False)
    if last_move < 6:
        with pytest.raises(dx.LoadError, match="build the package again"):
            dx.load_package(tmp_path)
        dx.build(new, tmp_path, verify=False)
    assert len(moves) == min(last_move + 1, 6) and changes(new, tmp_path) == []
    modules = dx.load_package(tmp_path)
    assert [module.DECLARATION for module in modules.values()] == ["3 * a", "3 * a"]


def test_a_full_disk_leaves_the_package_as_it_was(tmp_path, monkeypatch):
    dx.build(double, tmp_path, verify=False)
    before, mkdir = snapshot(tmp_path), Path.mkdir

    def full(path, *arguments, **options):
        if path.parent == tmp_path and path.name == "_formulas":
            raise OSError(28, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(dx.BuildError, match="cannot be written: No space left"):
        dx.build([double, triple], tmp_path, verify=False)
    assert snapshot(tmp_path) == before


def test_files_are_moved_by_one_build_at_a_time(tmp_path):
    thread = threading.Thread(target=dx.build, args=(double, tmp_path), kwargs={"verify": False})
    with staging.locked(tmp_path):
        thread.start()
        deadline = time.monotonic() + 20
        while not any((path / "__init__.py").exists() for path in stages(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        thread.join(0.3)
        assert thread.is_alive() and snapshot(tmp_path).keys().isdisjoint(FILES)
    thread.join()
    assert package_of(double) == {*snapshot(tmp_path)}


def test_a_file_that_comes_into_the_way_during_the_build(built, tmp_path, monkeypatch):
    trust(monkeypatch, built)

    def write(text, done, total):
        if "verifying" in text:
            (tmp_path / "double.py").write_text("mine = 1\n")

    with pytest.raises(dx.BuildError, match=r"did not write double\.py"):
        dx.build([double], tmp_path, progress=write)
    assert snapshot(tmp_path) == {"double.py": b"mine = 1\n"}


# Checking


def test_a_fresh_package_is_fresh(built):
    assert dx.check([double], built.directory) == []


def test_stale_missing_and_extra_files_are_found(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "double.py").write_bytes((tmp_path / "double.py").read_bytes() + b"\n")
    before = snapshot(tmp_path)
    differences = {(part.file, part.state) for part in dx.check([double], tmp_path)}
    assert differences == {
        ("double.py", "stale"),
        ("__init__.py", "stale"),
        ("triple.py", "extra"),
        ("triple.pyi", "extra"),
        ("_formulas/triple.py", "extra"),
    }
    assert snapshot(tmp_path) == before
    states = {part.state for part in dx.check([double], tmp_path / "nowhere")}
    assert states == {"missing"}


def without_pass(text: str) -> str:
    return text.replace('"passed": true', '"passed": false', 1)


@pytest.mark.parametrize(
    ("file", "change", "state"),
    [
        ("certificate.json", None, "missing"),
        ("certificate.json", lambda text: "", "damaged"),
        ("certificate.json", lambda text: text[: len(text) // 2], "damaged"),
        ("certificate.json", lambda text: '{"format": 2}', "damaged"),
        ("certificate.json", without_pass, "failing"),
        ("certificate.json", lambda text: text.replace('"digest": "', '"digest": "0'), "stale"),
        ("certificate.json", lambda text: text + "\n", "stale"),
        ("certificate.md", lambda text: text.replace("passed", "failed"), "stale"),
        ("certificate.html", None, "missing"),
        ("_support/mine.py", lambda text: "mine = 1\n", "foreign"),
        ("_formulas/mine.txt", lambda text: "mine\n", "foreign"),
        ("_support/common/arguments.py", lambda text: text + "\n", "stale"),
        ("_support/common/arguments.py", None, "missing"),
        ("double.pyi", lambda text: "", "stale"),
        ("_formulas/double.py", None, "missing"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_reported(built, tmp_path, file, change, state):
    shutil.copytree(built.directory, tmp_path / "copy")
    path = tmp_path / "copy" / file
    if change is None:
        path.unlink()
    else:
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        path.write_text(change(before), encoding="utf-8")
        assert change(before) != before
    differences = dx.check([double], tmp_path / "copy")
    assert (file, state) in {(part.file, part.state) for part in differences}
    assert {part.file for part in differences} <= {file, *CERTIFICATE}


# In a session


def test_compile_gives_the_same_module_again(cache_directory):
    module = dx.compile(double)
    assert dx.compile(double) is module
    assert dx.compile(dx.function("double", [a], 2 * a)) is module
    assert module.vjp(np.ones(2), np.ones(2)).tolist() == [2, 2]
    file = Path(module.__file__)
    assert file.parents[2] == Path(cache_directory).resolve()
    assert file.parents[1].name == module.SUPPORT
    assert module.DIGEST.startswith(file.parent.name)
    assert dx.verify(module).function == file.stem == "double"


def test_functions_of_one_name_are_told_apart():
    square = dx.function("double", [a], a * a)
    assert dx.compile(square) is not dx.compile(double)
    assert dx.compile(square).value(np.array([3.0])).tolist() == [9]


def test_a_spoilt_cache_file_is_written_again(monkeypatch, tmp_path):
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    file = Path(dx.compile(triple).__file__)
    text = file.read_bytes()
    file.write_text("raise SystemExit")
    dx.compile(triple)
    assert file.read_bytes() == text


def test_a_cache_file_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path))
    file = Path(dx.compile(triple).__file__)
    file.unlink()
    file.mkdir()
    with pytest.raises(dx.BuildError, match=r"triple\.py: cannot be written"):
        dx.compile(triple)
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == ["triple.pyi"]


@pytest.mark.parametrize("names", [(staging.MARKER, "new.py"), (), ("derivatrix.lock",)], ids=str)
def test_what_a_killed_process_left_in_the_cache_is_swept_away(monkeypatch, tmp_path, names):
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    file = Path(dx.compile(triple).__file__)
    remains = file.parent / f"{staging.PREFIX}left"
    remains.mkdir()
    for name in names:
        (remains / name).touch()
    os.utime(remains, (0, 0))
    file.unlink()
    dx.compile(triple)
    assert not remains.exists()


@pytest.mark.parametrize("names", [(), ("derivatrix.lock",)], ids=str)
def test_a_staging_directory_that_a_build_is_about_to_mark_is_left_alone(tmp_path, names):
    begun = tmp_path / f"{staging.PREFIX}begun"
    begun.mkdir()
    for name in names:
        (begun / name).touch()
    with staging.staging(tmp_path):
        assert begun.is_dir()
    assert [*tmp_path.iterdir()] == [begun]


def test_the_removal_of_a_staging_directory_that_is_interrupted_is_ended_later(
    monkeypatch, tmp_path
):
    remains = tmp_path / f"{staging.PREFIX}left"
    remains.mkdir()
    for name in ("a.py", staging.MARKER, "z.py"):
        (remains / name).touch()
    monkeypatch.setattr(staging.shutil, "rmtree", lambda *_, **__: None)
    staging._remove(remains)
    assert (remains / staging.MARKER).is_file()
    monkeypatch.undo()
    with staging.staging(tmp_path):
        assert not remains.exists()


def test_a_user_without_a_home(monkeypatch):
    monkeypatch.delenv("DERIVATRIX_CACHE")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert dx.compile(triple).value(np.ones(1)).tolist() == [3]


def test_without_a_writable_cache_a_temporary_one_is_used(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "file" / "cache"))
    module = dx.compile(triple)
    assert module.value(np.ones(1)).tolist() == [3]
    assert dx.compile(triple) is module


def test_the_temporary_cache_is_removed_without_a_warning():
    code = "from derivatrix.runtime.cache import _temporary_cache; print(_temporary_cache())"
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert not Path(ended.stdout.strip()).exists()


def test_what_an_array_valued_function_lacks_is_told():
    module = dx.compile(triple)
    with pytest.raises(AttributeError, match=r"triple: there is no gradient; .* jacobian and vjp"):
        _ = module.gradient
    with pytest.raises(AttributeError, match="triple: there is no nothing; this module has"):
        _ = module.nothing
    with pytest.raises(ValueError, match=r"has shape \(2, 1\); .* a column is given as .*\[:, 0\]"):
        module.value(np.ones((2, 1)))


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_a_package_with_a_damaged_module_does_not_verify(built, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy)
    module = min(path for path in copy.glob("*.py") if path.name != "__init__.py")
    if damage == "remove":
        module.unlink()
    else:
        text = module.read_text(encoding="utf-8")
        module.write_text(text[: text.index("def ") + 8], encoding="utf-8")
    with pytest.raises(dx.LoadError, match=module.stem):
        dx.load_package(copy)


# Second derivatives


def test_modules_with_second_derivatives_of_arrays(tmp_path):
    """Of array-valued functions, with their inputs and directions; a later build removes them."""
    X = dx.matrix("X", 2, 2)
    functions = [dx.function("square", [X], X @ X), dx.function("total", [X], dx.sum(X))]
    result = dx.build(functions, tmp_path / "out", second=True)
    assert result.modules == ("square", "total", "square_second")
    assert all(report.passed for report in result.reports)
    second = dx.load(tmp_path / "out" / "square_second.py")
    assert second.FUNCTIONS == ("value", "vjp", "jvp")
    assert second.PRIMAL == dx.load(tmp_path / "out" / "square.py").DIGEST
    assert "the value is the jvp of square" in " ".join(second.__doc__.split())
    assert not dx.check(functions, tmp_path / "out", second=True)
    assert "square_second.py" in dx.build(functions, tmp_path / "out").removed
    both = dx.build(functions[0], tmp_path / "both", ("cpu", "cuda"), verify=False, second=True)
    assert both.modules == ("square", "square_cuda", "square_second", "square_second_cuda")


def test_a_function_with_the_name_of_another_ones_second_derivatives(tmp_path):
    X = dx.matrix("X", 2, 2)
    functions = [dx.function("f", [X], X @ X), dx.function("f_second", [X], X @ X @ X)]
    with pytest.raises(dx.DeclarationError, match="two functions are called 'f_second'"):
        dx.build(functions, tmp_path / "out", second=True)


# Kinds


def test_kinds_leave_out_what_nobody_calls(tmp_path):
    """Module, types, formulas and certificate; operators are kinds, and each is verified."""
    X = dx.matrix("X", 2, 2)
    functions = [
        dx.function("first", [X], X @ X, kinds=["jacobian_operator"]),
        dx.function("second", [X], dx.trace(X @ X)),
    ]
    result = dx.build(functions, tmp_path / "out", kinds=["value_and_gradient", "vjp"])
    assert all(report.passed for report in result.reports)
    first, second = (dx.load(tmp_path / "out" / f"{part.name}.py") for part in functions)
    assert (first.FUNCTIONS, first.OPERATOR) == (("value", "jvp"), "jacobian_operator")
    assert (second.FUNCTIONS, second.OPERATOR) == (("value", "vjp", "value_and_gradient"), "")
    assert set(second.FORMULAS) == {"value", "vjp", "gradient"}
    types = (tmp_path / "out" / "second.pyi").read_text()
    assert "def vjp(" in types and "def jvp(" not in types and "hessian_operator" not in types
    checked = {row.function for row in result.reports[0].rows if row.check == "operator"}
    assert checked == {"jacobian"}
    assert not dx.check(functions, tmp_path / "out", kinds=["value_and_gradient", "vjp"])
    assert {part.file for part in dx.check(functions, tmp_path / "out")} >= {"second.py"}


def test_a_kind_that_was_left_out_says_so():
    X = dx.matrix("X", 2, 2)
    module = dx.compile(dx.function("f", [X], X @ X), kinds=["vjp"])
    assert module.FUNCTIONS == ("value", "vjp")
    with pytest.raises(AttributeError, match="f: this module was built without jacobian; add it"):
        _ = module.jacobian
    with pytest.raises(
        AttributeError, match="f: there is no gradient; a function that returns an array"
    ):
        _ = module.gradient
    with pytest.raises(dx.UnsupportedError, match="built without jacobian; add it to kinds="):
        objective(module).jac(np.ones(4))


@pytest.mark.parametrize("kinds", [["gradient"], ["vlaue"], [], 3, ["hessian_operator"], [None]])
def test_kinds_that_there_are_not(kinds):
    X = dx.matrix("X", 2, 2)
    choices = "choose from value, vjp, jvp, jacobian, jacobian_operator$"
    with pytest.raises(dx.DeclarationError, match=rf"f: kinds .*{choices}"):
        dx.function("f", [X], X @ X, kinds=kinds)
    if kinds != ["gradient"] and kinds != ["hessian_operator"]:
        with pytest.raises(dx.DeclarationError, match=r"f: kinds .*choose from"):
            dx.compile(dx.function("f", [X], X @ X), kinds=kinds)


def test_functions_that_are_left_out_of_the_list_are_noticed(monkeypatch):
    X = dx.matrix("X", 2, 2)
    module = dx.compile(dx.function("f", [X], X @ X), kinds=["vjp", "jvp"])
    monkeypatch.setattr(module, "FUNCTIONS", ("value", "vjp"))
    assert "functions" in {row.check for row in dx.verify(module).failures}


def test_a_long_module_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(building, "MAX_MODULE_LINES", 100)
    X = dx.matrix("X", 2, 2)
    text = r"^f: the module has \d+ lines, .* s to compile; leave out .*kinds="
    with pytest.warns(dx.LongModuleWarning, match=text):
        dx.compile(dx.function("f", [X], X @ X))
