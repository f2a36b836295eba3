"""No kernel touches what is outside its arrays, or reads what nobody has written."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from derivatrix.compiler.kernels import base
from derivatrix.runtime.workers import Workers
from tests.bounds import TYPES, Task, check, environment

KERNELS = Path(base.__file__).parent
pytestmark = [
    pytest.mark.xdist_group("bounds"),
    pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded on Linux only"),
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with Workers(1, environment(str(tmp_path_factory.mktemp("checked")))) as processes:
        yield processes


SIZES = (0, 1, 2, 3, 7, 17, 33, 40)
DOUBLE, SINGLE = ((real,) for real in TYPES)
SAMPLE = [
    Task(name, kinds=(kind,), sizes=(*SIZES, *large), types=types)
    for name, kind, types, *large in (
        ("square", "vjp", TYPES, 130, 300),
        ("classifier", "vjp", TYPES, 70),
        ("inverse", "vjp", TYPES, 70, 130, 300),
        ("solve(A,B) by A", "vjp", SINGLE, 130),
        ("nll", "vjp", TYPES, 70, 130, 300),
        ("logdet(X'*diag(w)*X) by X w", "value", DOUBLE, 300),
        ("cholesky", "value", SINGLE, 70, 300),
        ("packed", "value", DOUBLE),
        ("abreast positive", "vjp", SINGLE),
        ("abreast determinant", "vjp", DOUBLE),
        ("abreast softmax", "vjp", SINGLE),
        ("abreast logarithm", "value", DOUBLE),
        ("abreast logarithms", "value", SINGLE),
        ("abreast extrema", "vjp", DOUBLE),
        ("maxima", "vjp", SINGLE),
        ("triangular determinants", "value", DOUBLE, 70),
        ("tr(care(A,B,eye,R)) by A B R", "vjp", DOUBLE),
        ("dare(A,B,Q,R) by A B Q R", "vjp", SINGLE),
        ("normF(logm(inv(A)*B))^2 by B", "vjp", DOUBLE),
        ("sum(exp(eigvals(X))) by X", "vjp", SINGLE),
        ("sum(tanhm(S).^2) by S", "vjp", DOUBLE),
        ("sinm(X) by X", "vjp", SINGLE),
        ("cosm(X) by X", "value", DOUBLE),
        ("sqrtm(X) by X", "vjp", SINGLE),
        ("svdU(X).^2 by X", "vjp", DOUBLE),
        ("normnuc(X*A)^2 by X", "vjp", SINGLE),
        ("polar(X) by X", "vjp", DOUBLE),
        ("pinv(X) by X", "vjp", SINGLE),
        ("sum(log(diagvec(qrR(A*X)))) by X", "vjp", DOUBLE),
        ("luL(S) by S", "vjp", SINGLE, 70),
        ("-sum(softmax(eigvalsh(S)).*log(softmax(eigvalsh(S)))) by S", "vjp", DOUBLE),
        ("expm(skew(w))*v by w v", "vjp", SINGLE),
        ("prod(A*x + 1)*x by A x", "vjp", DOUBLE),
        ("matrix_root", "value", SINGLE),
    )
]
"""Of each helper something, in one precision at least. The large sizes are those of panels, tiles
and of several threads."""


@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.name)
def test_sample(workers: Workers, task: Task) -> None:
    found = check(workers, task)
    assert not found.failures
    assert found.calls > found.refused


def test_the_sample_calls_every_helper_that_has_arrays(workers: Workers) -> None:
    answers = workers.map("tests.checked:reached", [vars(task) for task in SAMPLE], lambda *_: None)
    called = {name for names in answers for name in names}
    missing = {
        f"{path.stem}.{node.name}"
        for path in KERNELS.glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and has_arrays(node) and node.name not in called
    }
    assert missing == {"crew.help_others"}  # threads call it, all the time


def has_arrays(function: ast.FunctionDef) -> bool:
    """Whether a function of a helper is compiled, and is given more than numbers."""
    compiled = any("compiled(" in ast.unparse(each) for each in function.decorator_list)
    return compiled and any(isinstance(node, ast.Subscript) for node in ast.walk(function))


LEFT = "    give_back(memory)\n"
"""The end of a kernel that fills `out` (c,) from `x` (m,), by way of `t0` (c,)."""
HERE = (
    "import numpy as np\n",
    "import numpy as np\n"
    "from derivatrix.compiler.kernels.base import shaped\n"
    "from derivatrix.compiler.kernels.workspace import stream\n",
)
OUTSIDE = "was ended by SIGSEGV"
LINES = {
    **{
        f"{word} {array}": (line.format(array), OUTSIDE)
        for array in ("out", "x", "t0")
        for word, line in (
            ("write past the end of", "stream({0}, (len({0}),), 1.0)"),
            ("write before", "stream({0}, (-1,), 1.0)"),
            ("read past the end of", "out[0] += shaped({0}, (len({0}) + 1,))[-1]"),
        )
    },
    "an index that is too large": ("out[c] = 0", "IndexError"),
    "an index that is too small": ("out[-1 - c] = 0", "IndexError"),
    "write to an argument": ("x[0] = 0", "writes to an argument"),
    "read a new array": ("out[0] += np.empty(3)[0]", "reads what nobody has written"),
}
USUAL = ("write past the end of out", "write before x", "read past the end of t0")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if told != OUTSIDE or name in USUAL else pytest.mark.thorough)
        for name, (_, told) in LINES.items()
    ],
)
def test_a_planted_line_is_found(workers: Workers, name: str) -> None:
    line, told = LINES[name]
    made = '(fastmath={"reassoc"})\ndef value_kernel'
    counted = (made, made.replace("(", "(counted=True, ", 1))
    planted = (HERE, (LEFT, f"    {line}\n{LEFT}"), counted)
    task = Task("softmax", kinds=("value",), sizes=(3,), types=("float64",), planted=planted)
    found = check(workers, task)
    assert any(told in failure for failure in found.failures), found.failures


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("s0 += W[i, j]", "s0 = W[i, j]", ""),
        ("t0[i] = b[i]", "pass", "reads what nobody has written"),
        ("softmax(shaped(t0, (1, c)), shaped(out, (1, c)))", "pass", "reads what nobody has"),
    ],
)
def test_what_is_not_written_is_found(workers: Workers, old: str, new: str, told: str) -> None:
    task = Task("softmax", kinds=("value",), sizes=(3,), types=("float64",), planted=((old, new),))
    found = check(workers, task)
    assert bool(found.failures) == bool(told)
    assert all(told in failure for failure in found.failures)


def test_a_wrong_step_between_rows_for_blas_is_found(workers: Workers) -> None:
    planted = (("largest(builder.sdiv(step, size), columns)", "builder.add(columns, one)"),)
    task = Task("square", kinds=("value",), sizes=(17,), types=("float64",), planted=planted)
    assert OUTSIDE in check(workers, task).failures[0]


def test_a_part_that_fails_is_found(workers: Workers) -> None:
    """Though the usual kernel is called then, which does not."""
    loop = "    for start in range(first, last, step):"
    planted = ((loop, f"    sum_0[len(sum_0)] = 0\n{loop}"),)
    task = Task("classifier", kinds=("vjp",), sizes=(3,), types=("float64",), planted=planted)
    assert "a part failed" in check(workers, task).failures[0]
