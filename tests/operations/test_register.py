"""Operations of users' own: the page that explains them is run as it stands, and faults planted in
its record do not pass verification."""

import importlib
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numba import njit

import derivatrix as dx
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.operations import OPERATIONS
from tests import ROOT

PAGE = ROOT / "docs" / "how-to" / "custom-operations.md"


def blocks():
    """The Python files of the page by name."""
    texts = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {text.split()[1]: text for text in texts}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The page's files in a directory that is importable, its operation forgotten afterwards."""
    for name, text in blocks().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("vector_product", "gyroscope"):
        sys.modules.pop(name, None)
    OPERATIONS.pop("vector_product", None)
    vars(dx).pop("vector_product", None)


def test_the_page_does_what_it_says(files, capsys):
    importlib.import_module("gyroscope")
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")
    command = ["-m", "derivatrix", "build", "gyroscope.py", "-o", "generated", "--kinds", "vjp"]
    process = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=files)
    assert process.returncode == 0, process.stdout + process.stderr
    use = "import numpy as np; from generated import gyroscope; print(gyroscope.vjp.__name__)"
    process = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=files)
    assert process.stdout == "vjp\n", process.stderr


def wrong_differential(at):
    return (dx.vector_product(at.arguments[1], at.tangents[0]),)


def wrong_transpose(at, cotangent):
    return dx.vector_product(cotangent, at.arguments[1])


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ({"differential": wrong_differential}, {"differences"}),
        ({"transposes": {0: wrong_transpose, 1: wrong_transpose}}, {"adjoint", "differences"}),
        ({"numpy": lambda arguments, *_: f"np.cross({arguments[1]}, {arguments[0]})"}, {"value"}),
    ],
)
def test_a_fault_in_the_record_does_not_pass(files, fault, checks):
    record = importlib.import_module("vector_product").CROSS
    OPERATIONS.pop("vector_product")
    dx.register(replace(record, **fault))
    w, v = dx.vector("w", 3), dx.vector("v", 3)
    report = dx.verify(dx.compile(dx.function("product", [w, v], dx.vector_product(w, v), wrt=[w])))
    assert checks <= {row.check for row in report.failures}


def test_what_cannot_be_registered_is_refused():
    with pytest.raises(dx.DeclarationError, match="'inv'"):
        dx.register(replace(OPERATIONS["inv"], description=""))
    with pytest.raises(dx.DeclarationError, match="function"):
        dx.register(lambda x: x)


def kernels_of_one_name(factor):
    """A kernel made in a function, of the name of one of this file."""

    def fill_twice(x, out):
        out[:] = factor * x

    return fill_twice


def fill_twice(x, out):
    out[:] = 2 * x


K = 3.0


@njit
def fill_by_global(x, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = K * x[i, j]


def test_a_work_array_leaves_the_globals_of_a_kernel_alone():
    """The operation's letter is a name in the kernel's file."""
    changed = {"name": "thrice", "kernel": fill_by_global, "letters": ("K",)}
    record = replace(OPERATIONS["softmax"], **changed, columns=None, unrolled=None)
    X = dx.matrix("X", 2, 3)
    module = dx.compile(dx.function("f", [X], dx.sum(calling(record)(X) ** 2), kinds=["value"]))
    assert module.value(np.ones((2, 3))) == 54


@pytest.mark.parametrize("kernel", [kernels_of_one_name(3.0), lambda x, out: None])
def test_a_kernel_is_at_the_top_of_its_file(kernel):
    assert fill_twice is not kernel
    changed = {"name": "twice", "kernel": kernel, "columns": None, "unrolled": None}
    record = replace(OPERATIONS["softmax"], **changed)
    x = dx.vector("x", 3)
    with pytest.raises(dx.UnsupportedError, match="top level of its file"):
        dx.compile(dx.function("f", [x], calling(record)(x)))
