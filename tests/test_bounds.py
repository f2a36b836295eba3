"""No kernel touches what is outside its arrays, or reads what nobody has written."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from derivatrix.runtime.workers import Workers
from tests.bounds import Task, check, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded on Linux only")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with Workers(1, environment(str(tmp_path_factory.mktemp("checked")))) as processes:
        yield processes


SIZES = (0, 1, 2, 3, 7, 17, 33, 40)
SAMPLE = [
    Task("square", kinds=("vjp",), sizes=(*SIZES, 130, 300)),
    Task("classifier", kinds=("vjp",), sizes=(*SIZES, 70)),
    Task("inverse", kinds=("vjp",), sizes=(*SIZES, 70, 130, 300)),
    Task("solve(A,B) by A", kinds=("vjp",), sizes=(*SIZES, 130)),
    Task("nll", kinds=("vjp",), sizes=(*SIZES, 70, 130, 300)),
    Task("logdet(X'*diag(w)*X) by X w", kinds=("value",), sizes=(*SIZES, 300)),
    Task("abreast positive", kinds=("vjp",), sizes=SIZES),
    Task("abreast determinant", kinds=("vjp",), sizes=SIZES),
    Task("abreast softmax", kinds=("vjp",), sizes=SIZES),
    Task("abreast logarithm", kinds=("value",), sizes=SIZES),
    Task("abreast logarithms", kinds=("value",), sizes=SIZES),
    Task("abreast extrema", kinds=("vjp",), sizes=SIZES),
    Task("maxima", kinds=("vjp",), sizes=SIZES),
    Task("triangular determinants", kinds=("value",), sizes=(*SIZES, 70)),
    Task("tr(care(A,B,eye,R)) by A B R", kinds=("vjp",), sizes=SIZES),
    Task("dare(A,B,Q,R) by A B Q R", kinds=("vjp",), sizes=SIZES),
    Task("normF(logm(inv(A)*B))^2 by B", kinds=("vjp",), sizes=SIZES),
    Task("sum(exp(eigvals(X))) by X", kinds=("vjp",), sizes=SIZES),
    Task("sum(tanhm(S).^2) by S", kinds=("vjp",), sizes=SIZES),
    Task("sinm(X) by X", kinds=("vjp",), sizes=SIZES),
    Task("cosm(X) by X", kinds=("value",), sizes=SIZES),
    Task("sqrtm(X) by X", kinds=("vjp",), sizes=SIZES),
    Task("svdU(X).^2 by X", kinds=("vjp",), sizes=SIZES),
    Task("normnuc(X*A)^2 by X", kinds=("vjp",), sizes=SIZES),
    Task("polar(X) by X", kinds=("vjp",), sizes=SIZES),
    Task("pinv(X) by X", kinds=("vjp",), sizes=SIZES),
    Task("sum(log(diagvec(qrR(A*X)))) by X", kinds=("vjp",), sizes=SIZES),
    Task("luL(S) by S", kinds=("vjp",), sizes=(*SIZES, 70)),
    Task("-sum(softmax(eigvalsh(S)).*log(softmax(eigvalsh(S)))) by S", kinds=("vjp",), sizes=SIZES),
    Task("expm(skew(w))*v by w v", kinds=("vjp",), sizes=SIZES),
    Task("prod(A*x + 1)*x by A x", kinds=("vjp",), sizes=SIZES),
    Task("matrix_root", kinds=("value",), sizes=SIZES),
]


@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.name)
def test_sample(workers: Workers, task: Task) -> None:
    found = check(workers, task)
    assert not found.failures
    assert found.calls > found.refused


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
