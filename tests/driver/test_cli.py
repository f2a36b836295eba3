"""The command line, as a user meets it: what it prints, where, and its exit status."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from derivatrix.compiler import cli
from derivatrix.compiler.driver import pipeline
from derivatrix.compiler.formulas import STYLES
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.runtime import Report, Row, load, parallel
from derivatrix.runtime.errors import DeclarationError
from tests import ROOT
from tests.caches import derive_always
from tests.cases import STAGE_TEXTS
from tests.driver.test_build import snapshot, spoil
from tests.driver.test_packaging import WITHOUT
from tests.packages import package_of, support_of

FUNCTIONS = """
import derivatrix as dx

n = dx.dims("n")
X = dx.matrix("X", n, n)
square = dx.function("square", [X], X @ X)
double = dx.function("double", [X], 2 * X, kinds=["value", "vjp"])
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command line in an empty directory that holds functions.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    runner = CliRunner()

    def invoke(*arguments):
        return runner.invoke(cli.main, arguments)

    return invoke


def python(tmp_path, *arguments):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PATH": ""},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def test_build_verify_check(run, tmp_path):
    result = run("build", "functions.py:double", "-o", "generated")
    assert result.exit_code == 0, result.output
    assert "generated: 1 module, verified; wrote double.py" in result.output
    (double,) = load_functions("functions.py:double")
    files = f", _formulas (1 file), _support ({len(support_of(double))} files)\n"
    assert files in result.output
    assert "passed" in result.output and "\x1b" not in result.output
    assert "certificate.md" in snapshot(tmp_path / "generated")

    result = run("verify", "generated")
    assert result.exit_code == 0, result.output
    assert "double" in result.output and "passed" in result.output
    assert "generated: 1 module, verified" in result.output

    result = run("check", "functions.py:double", "-o", "generated")
    assert (result.exit_code, result.output) == (0, "generated: up to date\n")

    result = run("check", "functions.py", "-o", "generated")
    assert result.exit_code == 1
    assert "generated: square.py is missing" in result.output
    assert "run: derivatrix build functions.py -o generated" in result.output


def test_the_table_of_results_is_whole_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = (Row("value", "value", "", "point 1", 0.0, 1e-9, True),)
    cli._print_table([Report("a_function_with_quite_a_name" * 5, "", rows)])
    header, line = capsys.readouterr().out.splitlines()
    assert line.startswith("a_function_with_quite_a_name" * 5) and line.rstrip().endswith("passed")
    assert header.split()[-1] == "result"


def test_build_without_verification(run, tmp_path):
    result = run("build", "functions.py", "-o", "generated", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "2 modules, not verified" in result.output
    result = run("build", "functions.py:square", "-o", "generated", "--no-verify")
    assert "removed double.py, double.pyi, _formulas (1 file), of an earlier build" in result.output
    (square,) = load_functions("functions.py:square")
    assert {*snapshot(tmp_path / "generated")} == package_of(square)


def test_a_failed_verification(run, tmp_path, monkeypatch):
    spoil(monkeypatch)
    result = run("build", "functions.py:double", "-o", "generated")
    assert result.exit_code == 1
    assert "double: verification failed" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "generated").exists()

    assert run("build", "functions.py:double", "-o", "wrong", "--no-verify").exit_code == 0
    result = run("verify", "wrong")
    assert result.exit_code == 1
    assert "FAILED" in result.output and "difference" in result.output
    assert "wrong: 1 of 1 module failed" in result.output


def test_verify_needs_no_compiler(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "generated", "--no-verify").exit_code == 0
    code = WITHOUT.format(absent=("sympy", "jinja2"))
    code += "from derivatrix.compiler.cli import main; main(['verify', 'generated', '--verbose'])"
    process = python(tmp_path, "-c", code)
    assert process.returncode == 0, process.stderr
    assert "differences" in process.stdout


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ((), 1, "needs packages that cannot be imported"),
        (("--steps",), 2, "leave out --steps"),
        (("--style", "latex"), 2, "leave out --style"),
        (("--stage", "plan"), 2, "leave out --stage"),
        (("--all",), 2, "leave out --all"),
    ],
)
def test_a_report_that_cannot_be_made(run, tmp_path, monkeypatch, options, status, said):
    for name in ("latex2mathml", "latex2mathml.converter"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("mathml", "parts", "page"):
        monkeypatch.delitem(sys.modules, f"derivatrix.compiler.report.{name}", raising=False)
    result = run("explain", "functions.py:square", "--html", "out.html", *options)
    assert result.exit_code == status
    assert said in result.output
    assert status == 2 or "pip install 'derivatrix[html]'" in result.output
    assert not (tmp_path / "out.html").exists()


def test_verify_renews_the_certificate_but_no_file_of_others(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "generated", "--no-verify").exit_code == 0
    before = snapshot(tmp_path / "generated")
    assert run("verify", "generated").exit_code == 0
    assert snapshot(tmp_path / "generated") == before
    assert run("verify", "generated", "--write").exit_code == 0
    assert run("check", "functions.py:double", "-o", "generated").exit_code == 0
    (tmp_path / "generated" / "certificate.json").unlink()
    text = (tmp_path / "generated" / "certificate.md").read_text(encoding="utf-8")
    (tmp_path / "generated" / "certificate.md").write_text("mine")
    result = run("verify", "generated", "--write")
    assert result.exit_code == 0 and "certificate.md: derivatrix did not write it" in result.output
    assert (tmp_path / "generated" / "certificate.md").read_text() == "mine"
    (tmp_path / "generated" / "certificate.md").unlink()
    assert run("verify", "generated", "--write").exit_code == 0
    assert (tmp_path / "generated" / "certificate.md").read_text(encoding="utf-8") == text


def test_verify_what_is_not_there(run, tmp_path):
    result = run("verify", "nowhere")
    assert result.exit_code == 1 and "nowhere: not a directory" in result.output
    (tmp_path / "empty").mkdir()
    result = run("verify", "empty")
    assert result.exit_code == 1 and "derivatrix build" in result.output


def test_explain_shows_declaration_and_formulas(run):
    result = run("explain", "functions.py:square")
    assert result.exit_code == 0, result.output
    for text in ("function square", "X: (n, n)", "vjp by X: Ȳ Xᵀ + Xᵀ Ȳ"):
        assert text in result.output
    assert "plan" not in result.output and "def " not in result.output
    assert len(result.output.splitlines()) < 15


def test_explain_all_shows_plan_and_module_too(run):
    result = run("explain", "functions.py:square", "--all")
    assert result.exit_code == 0, result.output
    for text in ("= X²", "vjp by X: Ȳ Xᵀ + Xᵀ Ȳ", "square: plan", "def vjp_kernel("):
        assert text in result.output
    assert "double" not in result.output
    assert run("explain", "functions.py", "--all").output.count("def vjp_kernel(") == 2
    text = run("explain", "2*X", "--dims", "X: n n", "--all")
    assert "def vjp_kernel(" in text.output


def test_explain_lists_several_functions_in_short(run):
    result = run("explain", "functions.py")
    assert result.exit_code == 0, result.output
    for text in (
        "square(X (n, n)) -> (n, n)",
        "value: X²",
        "vjp by X: Ȳ Xᵀ + Xᵀ Ȳ",
        "double(X (n, n)) -> (n, n)",
        "2 functions; for more about one of them: derivatrix explain functions.py:square",
    ):
        assert text in result.output
    assert len(result.output.splitlines()) < 15
    assert run("explain", "functions.py", "--stage", "plan").output.count("vjp_kernel: ") == 2


def test_a_text_without_its_sizes_is_told_from_a_file(run):
    result = run("explain", "tr(A*X*inv(B))")
    assert result.exit_code == 2
    assert "for a text give the sizes of A, X, B, too" in result.output
    assert "--dims 'A: n n, X: n n, B: n n'" in result.output


def test_build_of_a_text(run):
    arguments = ("--dims", "A: n m, X: m n", "--name", "f", "-o", "generated", "--no-verify")
    assert run("build", "--text", "tr(A*X)", *arguments, "--wrt", "X").exit_code == 0
    module = load("generated/f.py")
    np.testing.assert_array_equal(module.gradient([[1.0, 2.0]], [[3.0], [4.0]]), [[1.0], [2.0]])
    again = run("build", "--text", "A", "--dims", "A: n", "--name", "g", *arguments[4:])
    assert "generated: 2 modules" in again.output and "removed" not in again.output
    for wrong, said in (
        (("functions.py", "--text", "A", *arguments), "--text stands in the place of FILE"),
        (("--text", "A", "-o", "generated"), "--text needs --dims, --name, too"),
        (("functions.py", *arguments), "go with --text"),
    ):
        result = run("build", *wrong)
        assert result.exit_code == 2 and said in result.output
    assert "declared and never used" in run("build", "--text", "1", *arguments).output


def test_files_that_pyproject_names(run, tmp_path):
    assert "or write a table [tool.derivatrix]" in run("build").output
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "more.py").write_text(FUNCTIONS.replace("double", "triple"))
    (tmp_path / "pyproject.toml").write_text(
        "[tool.derivatrix]\noutput = 'generated'\n"
        "functions = ['functions.py:double', 'inner/more.py:triple']\n"
    )
    result = run("check")
    assert result.exit_code == 1 and "run: derivatrix build\n" in result.output
    result = run("build", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "generated: 2 modules" in result.output
    assert run("check").output.startswith("generated: up to date; there is no certificate")
    assert run("build", "functions.py").exit_code == run("build", "-o", "out").exit_code == 2


@pytest.mark.parametrize("style", STYLES)
def test_explain_in_each_style(run, style):
    result = run("explain", "functions.py:square", "--style", style)
    assert result.exit_code == 0, result.output
    expected = {"unicode": "Ȳ Xᵀ", "latex": r"\bar{Y}", "numpy": "X.T", "index": "vjp"}
    expected |= {"vec": "(I ⊗ X) + (Xᵀ ⊗ I)", "vec-latex": r"\otimes", "vec-numpy": "np.kron"}
    assert expected[style] in result.output


@pytest.mark.parametrize("stage", cli.STAGES)
def test_every_stage_can_be_dumped(run, stage):
    result = run("explain", "functions.py:square", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert STAGE_TEXTS[stage] in result.output
    assert ": formulas" not in result.output


def test_the_stages_are_those_of_the_pipeline():
    assert tuple(pipeline.STAGES) == cli.STAGES


BAD_FILES = {
    "import": ("import nothing_of_the_kind\n", ":1: ModuleNotFoundError: No module"),
    "raises": ("x = 1\n\n\ndef f():\n    return x / 0\n\nf()\n", ":5: ZeroDivisionError"),
    "silent": ("x = 1\nassert x == 2\n", ":2: AssertionError\n"),
    "exits": ("import sys\nsys.exit(0)\n", ":2: SystemExit: 0"),
    "stops": ("class Stop(BaseException): ...\n\nraise Stop('here')\n", ":3: Stop: here"),
    "unspeakable": (
        "class E(Exception):\n    def __str__(self):\n        return 1\nraise E\n",
        ":4: E: <exception str() failed>",
    ),
    "clears": ("import sys\nsys.path.clear()\nsys.modules.pop(__name__)\n1 / 0\n", ":4: ZeroDi"),
    "syntax": ("x = 1\nx = (\n", ":2: SyntaxError: '(' was never closed\n"),
    "beside": (
        "import syntax_of_mine\n",
        ":1: SyntaxError: invalid syntax (syntax_of_mine.py, line",
    ),
    "encoding": ("# -*- coding: klingon -*-\n", "encoding.py: SyntaxError: unknown encoding"),
    "bytes": ("x = '\0'\n", "bytes.py"),
    "deep": (f"x = {'-' * 100_000}1\n", "deep.py: no Python file: "),
    "empty": ("x = 1\n", "there is no function; declare one at the top level"),
    "shape": (
        "import derivatrix as dx\na, b = dx.dims('a b')\nP = dx.matrix('P', a, b)\n\nP @ P\n",
        "shape.py:5: ",
    ),
    "keyword": (FUNCTIONS + 'dx.function("lambda", [X], X)\n', "'lambda' is a Python keyword"),
    "builtin": (FUNCTIONS + 'dx.function("sum", [X], X)\n', "'sum' shadows a Python builtin"),
    "twice": (
        FUNCTIONS + 'other = dx.function("square", [X], X)\n',
        "two functions are called 'square'",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_function_file_that_is_wrong(run, tmp_path, name):
    text, message = BAD_FILES[name]
    (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "syntax_of_mine.py").write_text("1 +\n")
    before, path = snapshot(tmp_path), [*sys.path]
    for arguments in (("build", f"{name}.py", "-o", "out"), ("explain", f"{name}.py")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.output and f"{name}.py" in result.output
        assert "Traceback" not in result.output
    assert snapshot(tmp_path) == before
    assert sys.path == path and "derivatrix_functions" not in sys.modules


def test_a_function_file_that_interrupts(run, tmp_path):
    """Like Ctrl-C, the error is not turned into another one, which a caller could catch."""
    (tmp_path / "long.py").write_text("x = 1\nraise KeyboardInterrupt\n")
    result = run("build", "long.py", "-o", "out")
    assert result.exit_code == 130
    assert "derivatrix: interrupted, long.py:2" in result.output
    with pytest.raises(KeyboardInterrupt):
        load_functions("long.py")


def test_a_function_file_is_compiled_as_it_stands(tmp_path):
    """Without the compiler's own `from __future__ import annotations`."""
    (tmp_path / "plain.py").write_text("def f(x: nothing): ...\n")
    with pytest.raises(DeclarationError, match=r"plain\.py:1: NameError"):
        load_functions(tmp_path / "plain.py")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("functoins.py", "functoins.py: cannot be read: No such file or directory"),
        ("functoins.py:square", "functoins.py: cannot be read: No such file or directory"),
        (".", ".: a directory; name a Python file"),
        ("functions.py:", "the name of a function is missing after the colon; it declares square"),
        ("functions.py:sqare", "called 'sqare' (it declares square, double); did you mean square?"),
        ("functions.py:zzz", "no function is called 'zzz' (it declares square, double)\n"),
        ("functions.py:squ-are", "no function is called 'squ-are' (it declares square, double)"),
    ],
)
def test_a_file_or_function_that_is_not_there(run, tmp_path, file, message):
    for arguments in (
        ("explain", file),
        ("build", file, "-o", "out"),
        ("check", file, "-o", "out"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.output
    assert not (tmp_path / "out").exists()


def test_a_file_with_a_colon_in_its_name(run, tmp_path):
    (tmp_path / "functions.py:square").write_text("1 / 0")
    assert (
        "functions.py:square:1: ZeroDivisionError" in run("explain", "functions.py:square").output
    )


def test_a_file_can_import_what_lies_beside_it_and_no_main_is_run(run, tmp_path):
    (tmp_path / "sizes_of_mine.py").write_text("import derivatrix as dx\nm = dx.dims('m')\n")
    (tmp_path / "with_sizes.py").write_text(
        "import derivatrix as dx\nfrom sizes_of_mine import m\n"
        "f = dx.function('f', [dx.vector('v', m)], dx.sum(dx.vector('v', m)))\n"
        "if __name__ == '__main__':\n    raise RuntimeError\n"
    )
    before = list(sys.path)
    assert run("explain", "with_sizes.py", "--stage", "declare").exit_code == 0
    assert sys.path == before


def test_hand_written_files_are_refused(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "square.py").write_text("mine = 1\n")
    result = run("build", "functions.py", "-o", "out")
    assert result.exit_code == 1
    assert "derivatrix did not write square.py" in result.output
    assert snapshot(tmp_path / "out") == {"square.py": b"mine = 1\n"}


def test_targets_that_are_there(run):
    options = ("--target", "cpu", "--target", "cpu")
    assert run("build", "functions.py", "-o", "out", "--no-verify", *options).exit_code == 0
    assert run("check", "functions.py", "-o", "out", *options).exit_code == 0
    assert run("explain", "functions.py", "--target", "cpu").exit_code == 0


def test_an_output_that_is_no_directory(run, tmp_path):
    before = snapshot(tmp_path)
    for place, message in (("", "'' is no path"), ("functions.py", "is no directory")):
        for command in ("build", "check"):
            result = run(command, "functions.py", "-o", place)
            assert result.exit_code == 1 and message in result.output
    assert snapshot(tmp_path) == before


def test_the_command_that_check_gives_can_be_pasted(run):
    result = run("check", "functions.py", "-o", "a place")
    assert "run: derivatrix build functions.py -o 'a place'" in result.output


def test_what_is_foreign_is_to_be_removed(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "generated").exit_code == 0
    (tmp_path / "generated" / "_support" / "mine.py").write_text("mine = 1\n")
    result = run("check", "functions.py:double", "-o", "generated")
    assert result.exit_code == 1 and "_support/mine.py is foreign" in result.output
    assert "remove foreign files" in result.output and "run:" not in result.output


def test_wrong_command_lines_have_status_2(run):
    for arguments in (
        ("build",),
        ("build", "functions.py"),
        ("build", "functions.py", "-o", "out", "--target", "abacus"),
        ("explain", "functions.py", "--stage", "stage"),
        ("conjure",),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert "Usage:" in result.output


COMMANDS = ["build", "verify", "check", "explain", "playground"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"derivatrix {command} " in result.output.partition("Example:")[2]
    if command not in ("verify", "playground"):
        assert "cpu|cuda" in result.output


def test_help_lists_the_commands_in_the_order_of_their_use_and_whole(run):
    listed = run("--help").output.partition("Commands:")[2].splitlines()[1:]
    assert [line.split()[0] for line in listed] == COMMANDS
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


SLOW = """
import signal, time
from derivatrix.runtime import parallel

signal.signal(signal.SIGINT, signal.default_int_handler)  # these may be ignored from the start
signal.signal(signal.SIGHUP, signal.SIG_DFL)

class Loader:
    def __del__(self):  # as in a callback of Numba's compiler, an exception raised here is lost
        print("ready", flush=True)
        time.sleep(60)

def verify(*_, **__):
    while True:
        Loader()

parallel.verify = verify
from derivatrix.compiler.cli import main
main(["build", "functions.py:square", "-o", "out"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_build_that_is_stopped_leaves_nothing(run, tmp_path, number):
    before = {path.name for path in tmp_path.iterdir()}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    assert any(path.name.startswith(".derivatrix-") for path in tmp_path.iterdir())
    process.send_signal(number)
    started = time.monotonic()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -number  # as of a command without a handler of its own
    assert time.monotonic() - started < 10
    assert errors.endswith("\n\nderivatrix: interrupted\n")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


BUSY = """
import signal, threading, time
from derivatrix.runtime import workers

signal.signal(signal.SIGINT, signal.default_int_handler)

def tell():
    while len(workers._processes) < 2:
        time.sleep(0.01)
    print(*(process.pid for process in workers._processes), flush=True)

threading.Thread(target=tell, daemon=True).start()
from derivatrix.compiler.cli import main
main(["build", "functions.py", "-o", "out", "--jobs", "2"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc about processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_build(run, tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    others = process.stdout.readline().split()
    assert len(others) == 2 and all(map(lives, others))
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -number
    wait_for_the_end(others)
    if number == signal.SIGINT:
        assert errors.endswith("\nderivatrix: interrupted\n")
        assert {path.name for path in tmp_path.iterdir()} == {"functions.py"}


def wait_for_the_end(processes):
    """Wait for processes to end by themselves after the one that started them."""
    deadline = time.monotonic() + 20
    while any(map(lives, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lives(process):
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


ENDS = {
    "import os; os._exit(0)": 1,
    "import os; os._exit(3)": 3,
    "import sys; sys.exit(0)": 1,
    "raise SystemExit(0)": 1,
    "import os, sys; os.execv(sys.executable, [sys.executable, '-c', ''])": 1,
    "import ctypes; ctypes.CDLL(None).exit(0)": 1,
    "import atexit, os; atexit.register(os._exit, 0); 1 / 0": 1,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": 1,
    "import os; os.close(1)": 120,
}
"""Last lines of files, and the exit status of what runs them."""


@pytest.mark.skipif(sys.platform == "win32", reason="processes of POSIX")
@pytest.mark.parametrize("line", ENDS)
def test_a_file_that_ends_its_process_is_an_error(run, tmp_path, line):
    (tmp_path / "functions.py").write_text(f"{FUNCTIONS}\n{line}\n")
    command = ("-m", "derivatrix", "explain", "functions.py", "--stage", "declare")
    process = python(tmp_path, *command)
    assert process.returncode == ENDS[line]
    assert process.stderr.splitlines()[-1].startswith(("derivatrix: ", "OSError: "))


@pytest.mark.parametrize("command", ["build", "check"])
def test_no_command_ends_well_without_its_work(run, tmp_path, command):
    (tmp_path / "functions.py").write_text(f"{FUNCTIONS}\nimport os\nos._exit(0)\n")
    process = python(tmp_path, "-m", "derivatrix", command, "functions.py", "-o", "out")
    assert process.returncode == 1 and not (tmp_path / "out").exists()
    assert "ended with status 0 before the command was done" in process.stderr


def test_a_module_that_ends_its_process_is_not_verified(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "out", "--no-verify").exit_code == 0
    module = tmp_path / "out" / "double.py"
    module.write_text(module.read_text(encoding="utf-8") + "\nimport os\nos._exit(0)\n")
    process = python(tmp_path, "-m", "derivatrix", "verify", "out")
    assert process.returncode == 1
    assert "ended with status 0 before the command was done" in process.stderr


WAITING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""


def attend_to_interrupts():
    """Restore the handling of interrupts in a started process: shells let background processes
    ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc about processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_process_of_a_command_ends_with_it(tmp_path, number):
    (tmp_path / "functions.py").write_text(WAITING)
    process = subprocess.Popen(
        [sys.executable, "-m", "derivatrix", "explain", "functions.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=attend_to_interrupts,
    )
    other = process.stdout.readline().strip()
    assert lives(other) and other != str(process.pid)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -number
    assert errors == "\nderivatrix: interrupted\n"
    wait_for_the_end([other])


def test_only_what_changed_is_verified_again(run, tmp_path, monkeypatch):
    derive_always(monkeypatch)
    verified = []

    def verify(module, **options):
        name = Path(module.__file__).stem
        verified.append(name)
        return Report(name, module.DIGEST, (Row("value", "value", "", "", 0.0, 1e-9, True),))

    monkeypatch.setattr(parallel, "verify", verify)
    build = ("build", "functions.py", "-o", "out", "--jobs", "1")
    result = run(*build)
    assert "out: 2 modules, verified; wrote square.py" in result.stdout
    steps = re.sub(r", about \d+ s left", "", result.stderr).splitlines()
    assert steps == [
        "[1/4] square: deriving for cpu",
        "[2/4] double: deriving for cpu",
        "[3/4] square: verifying: --no-verify leaves that out",
        "[4/4] double: verifying: --no-verify leaves that out",
    ]
    result = run(*build)
    assert result.stdout == "out: 2 modules, 0 verified, 2 unchanged; wrote nothing new\n"
    assert verified == ["square", "double"]
    (tmp_path / "functions.py").write_text(FUNCTIONS.replace("2 * X", "X + 3 * X"))
    result = run(*build)
    assert "2 modules, 1 verified, 1 unchanged; wrote double.py, certificate" in result.stdout
    assert verified == ["square", "double", "double"] and "square" not in result.stdout


def test_handlers_of_signals_are_left_as_they_were(run):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run("explain", "functions.py", "--stage", "declare")
    run("explain", "nowhere.py")
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_formulas_are_printed_where_the_terminal_knows_few_letters(run, tmp_path):
    code = "import sys; sys.stdout.reconfigure(encoding='cp1252')\n"
    code += "from derivatrix.compiler.cli import main; main(['explain', 'functions.py:square'])"
    process = python(tmp_path, "-c", code)
    assert process.returncode == 0, process.stderr
    assert r"vjp by X: \u0232 X\u1d40" in process.stdout


def test_kinds_of_a_build(run, tmp_path):
    """They are part of what is checked, and pyproject.toml can have them, too."""
    build = run("build", "functions.py", "-o", "out", "--no-verify", "--kinds", "value, vjp")
    assert build.exit_code == 0, build.output
    assert load(tmp_path / "out" / "square.py").FUNCTIONS == ("value", "vjp")
    assert run("check", "functions.py", "-o", "out", "--kinds", "vjp").exit_code == 0
    stale = run("check", "functions.py", "-o", "out", "--kinds", "jvp")
    assert stale.exit_code == 1 and "--kinds jvp" in stale.output
    settings = 'functions = ["functions.py"]\noutput = "out"\nkinds = ["vjp"]\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.derivatrix]\n{settings}")
    assert run("check").exit_code == 0
    wrong = run("build", "functions.py", "-o", "out", "--kinds", "gradients")
    assert wrong.exit_code == 1 and "kinds names 'gradients'" in wrong.output


def test_second_derivatives_of_a_build(run, tmp_path):
    """Their modules are verified and checked like others; pyproject.toml can have them, too."""
    build = run("build", "functions.py:square", "-o", "out", "--second")
    assert build.exit_code == 0 and "out: 2 modules, verified" in build.output
    verified = run("verify", "out")
    assert verified.exit_code == 0 and "out: 2 modules, verified" in verified.output
    assert run("check", "functions.py:square", "-o", "out", "--second").exit_code == 0
    stale = run("check", "functions.py:square", "-o", "out")
    assert stale.exit_code == 1 and "square_second.py is extra" in stale.output
    assert run("build", "functions.py:square", "-o", "out", "--no-verify").exit_code == 0
    stale = run("check", "functions.py:square", "-o", "out", "--second")
    assert stale.exit_code == 1 and "square_second.py is missing" in stale.output
    assert "-o out --second" in stale.output
    settings = 'functions = ["functions.py:square"]\noutput = "out"\nsecond = true\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.derivatrix]\n{settings}")
    assert run("check").exit_code == 1
    assert run("build").exit_code == run("check").exit_code == 0


def test_a_long_module_is_told_of(run, monkeypatch):
    monkeypatch.setattr("derivatrix.compiler.driver.build.MAX_MODULE_LINES", 50)
    shown = run("build", "functions.py:square", "-o", "out", "--no-verify").output
    assert shown.count("derivatrix: square: the module has") == 1 and "Warning" not in shown
