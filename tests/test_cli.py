"""The command line, as a user meets it: what it prints, where, and its exit status."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from derivatrix.compiler import cli, pipeline
from tests.test_build import snapshot, spoil
from tests.test_packaging import ROOT, WITHOUT

pytestmark = pytest.mark.xdist_group("cli")

FUNCTIONS = """
import derivatrix as dx

n = dx.dims("n")
X = dx.matrix("X", n, n)
square = dx.function("square", [X], X @ X)
double = dx.function("double", [X], 2 * X)
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
    assert "passed" in result.output and "\x1b" not in result.output
    assert "certificate.md" in snapshot(tmp_path / "generated")

    result = run("verify", "generated")
    assert result.exit_code == 0, result.output
    assert "double" in result.output and "passed" in result.output

    result = run("check", "functions.py:double", "-o", "generated")
    assert (result.exit_code, result.output) == (0, "generated: up to date\n")

    result = run("check", "functions.py", "-o", "generated")
    assert result.exit_code == 1
    assert "generated: square.py is missing" in result.output
    assert "run: derivatrix build functions.py -o generated" in result.output


def test_build_without_verification(run, tmp_path):
    result = run("build", "functions.py", "-o", "generated", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "2 modules, not verified" in result.output
    result = run("build", "functions.py:square", "-o", "generated", "--no-verify")
    assert "removed double.py" in result.output
    assert {*snapshot(tmp_path / "generated")} == {"square.py", "__init__.py"}


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


def test_verify_needs_no_compiler(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "generated", "--no-verify").exit_code == 0
    code = WITHOUT.format(absent=("sympy", "jinja2"))
    code += "from derivatrix.compiler.cli import main; main(['verify', 'generated', '--verbose'])"
    done = python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "adjoint" in done.stdout


def test_verify_renews_the_certificate_but_no_file_of_others(run, tmp_path):
    assert run("build", "functions.py:double", "-o", "generated", "--no-verify").exit_code == 0
    assert run("verify", "generated").exit_code == 0
    (tmp_path / "generated" / "certificate.json").unlink()
    text = (tmp_path / "generated" / "certificate.md").read_text(encoding="utf-8")
    (tmp_path / "generated" / "certificate.md").write_text("mine")
    result = run("verify", "generated")
    assert result.exit_code == 0 and "certificate.md: not derivatrix's" in result.output
    assert (tmp_path / "generated" / "certificate.md").read_text() == "mine"
    (tmp_path / "generated" / "certificate.md").unlink()
    assert run("verify", "generated").exit_code == 0
    assert (tmp_path / "generated" / "certificate.md").read_text(encoding="utf-8") == text


def test_verify_what_is_not_there(run, tmp_path):
    result = run("verify", "nowhere")
    assert result.exit_code == 1 and "nowhere: not a directory" in result.output
    (tmp_path / "empty").mkdir()
    result = run("verify", "empty")
    assert result.exit_code == 1 and "derivatrix build" in result.output


def test_explain_shows_the_function_from_declaration_to_kernel(run):
    result = run("explain", "functions.py:square")
    assert result.exit_code == 0, result.output
    for text in ("X @ X", "vjp by X: Ȳ Xᵀ + Xᵀ Ȳ", "plan", "def vjp_kernel("):
        assert text in result.output
    assert "double" not in result.output
    assert "double" in run("explain", "functions.py").output


@pytest.mark.parametrize("style", cli.STYLES)
def test_explain_in_each_style(run, style):
    result = run("explain", "functions.py:square", "--style", style)
    assert result.exit_code == 0, result.output
    expected = {"unicode": "Ȳ Xᵀ", "latex": r"\bar{Y}", "numpy": "X.T", "index": "vjp"}
    assert expected[style] in result.output


@pytest.mark.parametrize("stage", cli.STAGES)
def test_every_stage_can_be_dumped(run, stage):
    result = run("explain", "functions.py:square", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert result.output.strip()
    assert "formulas" not in result.output


def test_the_stages_are_those_of_the_pipeline():
    assert tuple(pipeline.STAGES) == cli.STAGES


BAD_FILES = {
    "import": ("import nothing_of_the_kind\n", "line 1: ModuleNotFoundError"),
    "raises": ("x = 1\n\n\ndef f():\n    return x / 0\n\nf()\n", "line 5: ZeroDivisionError"),
    "exits": ("import sys\nsys.exit(0)\n", "line 2: SystemExit"),
    "syntax": ("x = 1\nx = (\n", "line 2: SyntaxError"),
    "bytes": ("x = '\0'\n", "bytes.py"),
    "empty": ("x = 1\n", "there is no function; declare one at the top level"),
    "shape": (
        "import derivatrix as dx\na, b = dx.dims('a b')\nP = dx.matrix('P', a, b)\n\nP @ P\n",
        "line 5: cannot multiply shapes (a, b) @ (a, b)",
    ),
    "twice": (
        FUNCTIONS + 'other = dx.function("square", [X], X)\n',
        "two functions are called 'square'",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_function_file_that_is_wrong(run, tmp_path, name):
    text, message = BAD_FILES[name]
    (tmp_path / f"{name}.py").write_text(text)
    before = snapshot(tmp_path)
    for arguments in (("build", f"{name}.py", "-o", "out"), ("explain", f"{name}.py")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.output and f"{name}.py" in result.output
        assert "Traceback" not in result.output
    assert snapshot(tmp_path) == before


def test_a_file_or_function_that_is_not_there(run):
    result = run("explain", "functoins.py")
    assert result.exit_code == 1
    assert "functoins.py: cannot be read: No such file or directory" in result.output
    result = run("explain", "functions.py:sqare")
    assert result.exit_code == 1
    assert "no function is called 'sqare'; did you mean square?" in result.output
    result = run("explain", "functions.py:zzz")
    assert "it declares square, double" in result.output


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


def test_a_target_that_is_not_there_yet(run, tmp_path):
    result = run("build", "functions.py", "-o", "out", "--target", "cpu", "--target", "cuda")
    assert result.exit_code == 1
    assert "there is no target 'cuda'" in result.output
    assert not (tmp_path / "out").exists()


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


@pytest.mark.parametrize("command", ["build", "verify", "check", "explain"])
def test_help_has_an_example(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"derivatrix {command} " in result.output.partition("Example:")[2]


def test_formulas_are_printed_where_the_terminal_knows_few_letters(run, tmp_path):
    code = "import sys; sys.stdout.reconfigure(encoding='cp1252')\n"
    code += "from derivatrix.compiler.cli import main; main(['explain', 'functions.py:square'])"
    done = python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert r"vjp by X: \u0232 X\u1d40" in done.stdout
