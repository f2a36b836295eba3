"""The second files of modules, `_formulas/NAME.py`, have the public functions as source."""

import ast
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.emit.cpu.kernel_calls import filled_entries, kernel_call
from derivatrix.compiler.emit.texts import code_lines
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.templates.support.internals import user_cache
from tests import ROOT
from tests.packages import write_files

(SQUARE,) = load_functions(f"{ROOT}/examples/square.py:square")
(LOSS,) = load_functions(f"{ROOT}/examples/digits.py:loss")
MAX_LENGTH = 100


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_lines_are_short_but_for_strings(target: str) -> None:
    text = generate(LOSS, target).data
    _, _, functions = text.partition("# Kernels" if target == "cpu" else "# Public functions")
    docstrings = "\n".join(
        ast.get_docstring(node, clean=False) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    )
    long = [line for line in functions.splitlines() if len(line) > MAX_LENGTH]
    assert [line for line in long if line not in docstrings.splitlines()] == []


def test_functions_are_found_in_their_file() -> None:
    module = dx.compile(SQUARE)
    assert Path(inspect.getsourcefile(module.vjp) or "").parent.name == "_formulas"
    assert inspect.getsource(module.vjp).startswith("def vjp(X, cotangent, *, out=None):\n")
    assert module.vjp.__module__ == module.__name__
    assert pickle.loads(pickle.dumps(module.vjp)) is module.vjp
    np.testing.assert_array_equal(module.value(np.eye(2)), np.eye(2))


def test_machine_code_is_of_both_files(tmp_path: Path) -> None:
    path = write_files(tmp_path, generate(SQUARE).texts) / "square.py"
    second = tmp_path / "_formulas" / "square.py"

    def digest() -> str:
        return user_cache._digest(str(path), user_cache._state(second))

    before = digest()
    second.write_text(second.read_text("utf-8").replace("16384", "8192"), encoding="utf-8")
    assert digest() != before


def test_conditions_have_the_public_names_of_sizes() -> None:
    """Kernels call sizes of these names something else."""
    n, m, N = dx.dims("first part parts")
    x, A, S = dx.vector("x", n), dx.matrix("A", m, n), dx.matrix("S", n, n, "spd")
    R = dx.matrix("R", n, n)
    X, w = dx.matrix("X", N, n), dx.vector("w", n)
    sizes = {"first": 3, "part": 2, "parts": 4, "batch": 5}
    partitions = set()
    for function in (
        dx.function("square", [S], S @ S),
        dx.function("general", [R], R @ R),
        dx.function("layer", [x, A], dx.tanh(A @ x), batch=[x]),
        dx.function("loss", [X, w], dx.sum(dx.exp(X @ w))),
        dx.function("likelihood", [x, S], dx.logdet(S) + x @ dx.inv(S) @ x, batch=[x, S]),
    ):
        for kind in function.kinds:
            plan = kernel_plan(function.derivatives, kind)
            partitions |= {(p.axis, p.has_sums, p.is_batch_last) for p in plan.partitions}
            for text in (*kernel_call(plan).conditions, filled_entries(plan) or "0"):
                eval(text, {"min": min}, sizes)
    assert len(partitions) > 3


@pytest.mark.parametrize(
    "line",
    [
        "    f(aaaa, (bbbb, cccc, dddd), 'eeee ffff', gggg)",
        "if (aaaa > bbbb or cccc < dddd or not (eeee == ffff)):",
        "x = 'aaaa bbbb cccc dddd eeee'",
        "x = [aaaa]",
    ],
)
def test_long_lines_are_broken_within_brackets(line: str) -> None:
    lines = code_lines(line, 24)
    assert " ".join(part.strip() for part in lines) == line.strip()
    assert len(lines) == 1 or max(map(len, lines)) <= 24
    body = "\n    pass" if line.endswith(":") else ""
    ast.parse(inspect.cleandoc("\n".join(lines)) + body)


def test_lines_are_broken_between_the_outer_parts() -> None:
    assert code_lines("ffff(aaaa, (bb, cc, dd), eeee)", 21) == [
        "ffff(aaaa,",
        "        (bb, cc, dd),",
        "        eeee)",
    ]
