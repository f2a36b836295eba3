"""No kernel touches what is outside its arrays, or reads what nobody has written."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from derivatrix.runtime.workers import Workers
from derivatrix.templates.support.cpu import blas
from tests.bounds import OPERATOR, TYPES, Task, check, environment

KERNELS = Path(blas.__file__).parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded on Linux only")


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
        ("inverse", "vjp", DOUBLE, 70, 130, 300),
        ("nll", "vjp", SINGLE, 70, 130, 300),
        ("cholesky", "value", TYPES, 70, 300),
        ("maxima", "vjp", TYPES),
        ("batch last softmax", "vjp", SINGLE),
        ("prod(A*x + 1)*x by A x", "vjp", DOUBLE),
        ("svdU(X).^2 by X", "vjp", DOUBLE),
        ("-sum(softmax(eigvalsh(S)).*log(softmax(eigvalsh(S)))) by S", "vjp", SINGLE),
        ("sqrtm(X) by X", "vjp", SINGLE),
        ("care(A,B,Q,R) by A B Q R", "value", DOUBLE),
        ("logm", "value", SINGLE),
        ("cosm(X) by X", "value", DOUBLE),
        ("normF(skew(A*x)*B)^2 by A x B", "vjp", SINGLE),
        ("det(X) by X", "vjp", TYPES),
        ("gain", "vjp", TYPES),
    )
]
"""A task for each file of helpers, in one precision at least. The large sizes use panels, tiles and
several threads."""
LATE = [
    Task(name, kinds=(kind,), sizes=(*SIZES, *large), types=types)
    for name, kind, types, *large in (
        ("solve(A,B) by A", "vjp", TYPES, 130),
        ("inverse", "vjp", SINGLE, 70, 130, 300),
        ("nll", "vjp", DOUBLE, 70, 130, 300),
        ("logdet(X'*diag(w)*X) by X w", "value", TYPES, 300),
        ("packed", "value", TYPES),
        ("batch last matrix", "vjp", SINGLE),
        ("batch last positive", "vjp", TYPES),
        ("batch last determinant", "vjp", TYPES),
        ("batch last logarithm", "value", TYPES),
        ("batch last logarithms", "value", TYPES),
        ("batch last extrema", "vjp", TYPES),
        ("batch last log softmax", "value", TYPES),
        ("projector", "vjp", TYPES),
        ("triangular determinants", "value", TYPES, 70),
        ("triangular solution", "vjp", TYPES, 70, 300),
        ("tr(care(A,B,eye,R)) by A B R", "vjp", TYPES),
        ("dare(A,B,Q,R) by A B Q R", "vjp", TYPES),
        ("normF(logm(inv(A)*B))^2 by B", "vjp", TYPES),
        ("sum(exp(eigvals(X))) by X", "vjp", TYPES),
        ("sum(tanhm(S).^2) by S", "vjp", TYPES),
        ("sinm(X) by X", "vjp", TYPES),
        ("det(X) by X", "hessian", TYPES),
        ("det(X) by X", "hvp", TYPES),
        ("det(X) by X", OPERATOR, TYPES),
        ("svdU(X).^2 by X", "vjp", SINGLE),
        ("normnuc(X*A)^2 by X", "vjp", TYPES),
        ("polar(X) by X", "vjp", TYPES),
        ("pinv(X) by X", "vjp", TYPES),
        ("sum(log(diagvec(qrR(A*X)))) by X", "vjp", TYPES),
        ("luL(S) by S", "vjp", TYPES, 70),
        ("expm(skew(w))*v by w v", "vjp", TYPES),
        ("matrix_root", "value", TYPES),
    )
]
"""The other helpers, too."""
ALL = [*SAMPLE, *(pytest.param(task, marks=pytest.mark.thorough) for task in LATE)]


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name} in {' '.join(task.types)}")
def test_sample(workers: Workers, task: Task) -> None:
    result = check(workers, task)
    assert not result.failures
    assert result.calls > result.refused


def test_the_sample_calls_all_helpers_that_have_arrays(workers: Workers) -> None:
    """The usual one something of each file, with the late ones every function."""
    helpers = {
        (path.stem, node.name)
        for path in KERNELS.glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and has_arrays(node)
    }
    requests = [vars(task) for task in (*SAMPLE, *LATE)]
    answers = workers.map("tests.checked:reached", requests, lambda *_: None)
    usual = {name for names in answers[: len(SAMPLE)] for name in names}
    called = {name for names in answers for name in names}
    files = {file for file, name in helpers if name in usual}
    assert {file for file, _ in helpers} == files
    never = {name for _, name in helpers} - called
    assert never == {"worker_loop"}  # which threads call all the time


def has_arrays(function: ast.FunctionDef) -> bool:
    """Check whether a helper is compiled and indexes arrays."""
    compiled = any("compiled(" in ast.unparse(decorator) for decorator in function.decorator_list)
    return compiled and any(isinstance(node, ast.Subscript) for node in ast.walk(function))


LEFT = "    give_back(memory)\n"
"""The end of a kernel that fills `out` (c,) from `x` (m,), by way of `t0` (c,)."""
HERE = (
    "from ._support import built_with\n",
    "from ._support import built_with\n"
    "import numpy as np\n"
    "from derivatrix.templates.support.internals.memory import shaped\n"
    "from tests.outside import written_at\n",
)
OUTSIDE = "was ended by SIGSEGV"
LINES = {
    **{
        f"{word} {array}": (line.format(array), OUTSIDE)
        for array in ("out", "x", "t0")
        for word, line in (
            ("write past the end of", "written_at({0}, len({0}))"),
            ("write before", "written_at({0}, -1)"),
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
    counted = ('kernel(fastmath={"reassoc"})', 'kernel(counted=True, fastmath={"reassoc"})')
    planted = (HERE, (LEFT, f"    {line}\n{LEFT}"), counted)
    task = Task("softmax", kinds=("value",), sizes=(3,), types=("float64",), planted=planted)
    result = check(workers, task)
    assert any(told in failure for failure in result.failures), result.failures


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("s0 += W[i, j]", "s0 = W[i, j]", ""),
        ("t0[i] = b[i]", "pass", "reads what nobody has written"),
        ("softmax(shaped(t0, (1, c)), shaped(out, (1, c)))", "pass", "reads what nobody has"),
    ],
)
def test_what_is_not_written_is_found(workers: Workers, old: str, new: str, told: str) -> None:
    """And nothing else is: a wrong number is told by other tests."""
    task = Task("softmax", kinds=("value",), sizes=(3,), types=("float64",), planted=((old, new),))
    result = check(workers, task)
    assert bool(result.failures) == bool(told)
    assert all(told in failure for failure in result.failures)


def test_a_wrong_step_between_rows_for_blas_is_found(workers: Workers) -> None:
    planted = (("largest(builder.sdiv(step, size), columns)", "builder.add(columns, INDEX(1))"),)
    task = Task("square", kinds=("value",), sizes=(17,), types=("float64",), planted=planted)
    assert OUTSIDE in check(workers, task).failures[0]


def test_a_part_that_fails_is_found(workers: Workers) -> None:
    """Though the usual kernel is called then, which does not."""
    loop = '"for _start in range(_first, _last, step):",'
    outside = '*(f"{name}[len({name})] = 0" for name in work.names[:1]),'
    planted = ((loop, f"{outside} {loop}"),)
    task = Task("classifier", kinds=("vjp",), sizes=(3,), types=("float64",), planted=planted)
    assert "a part failed" in check(workers, task).failures[0]
