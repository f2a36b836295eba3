"""The campaign of mutations tells faults that pass from those that are refused."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from derivatrix.compiler.ir import structure
from derivatrix.compiler.operations import OPERATIONS
from tests.campaign.mutations import written
from tests.campaign.mutations.compiled import passes
from tests.campaign.mutations.written import changed, functions, spliced, statements
from tests.identities import IDENTITIES, Identity

IDENTITY = Identity("inv(eye + X*X')*y", "X: n n, y: n", "X", "")


def test_what_is_refused_and_what_passes(tmp_path: Path) -> None:
    inverse = OPERATIONS["inv"]
    right = inverse.differential

    def halved(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(vars(inverse), "differential", lambda at: (right(at)[0] / 2,))

    def slower(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(structure, "_facts_of_sum", lambda node: frozenset())

    assert passes(IDENTITY, lambda patch: None, tmp_path / "same") is None
    assert passes(IDENTITY, halved, tmp_path / "wrong") is False
    assert passes(IDENTITY, slower, tmp_path / "right") is True


@pytest.mark.parametrize("kind", [written.kernel, written.helper])
def test_what_is_left_as_it_was_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Any]
) -> None:
    """So that what is refused is refused for its fault."""
    identity = next(row for row in IDENTITIES if row.text == "chol(X)")
    monkeypatch.setattr(written, "IDENTITIES", [identity])
    monkeypatch.setattr(written, "changed", lambda _, statement: ("kept", ast.unparse(statement)))
    assert kind(random.Random(0), tmp_path / "made")[1]


TEXT = '''def f(x, out):
    """∂"""
    out[:] = np.empty(3)  # ∂
    for i in range(3):
        s = 1.0
        s += (x[i] *
              2.0)
        out[i] = s
    gemm(x, out)
    check_f(x)
'''


def test_statements_of_a_kernel() -> None:
    (function,) = functions(TEXT)
    result = {ast.unparse(statement): statement for _, statement in statements(function)}
    lines = {ast.unparse(statement): line for line, statement in statements(function)}
    assert lines == {"s += x[i] * 2.0": 5, "out[i] = s": 5, "gemm(x, out)": 1}
    assert {*result} == {"s += x[i] * 2.0", "out[i] = s", "gemm(x, out)"}
    for name, statement in result.items():
        texts = {
            spliced(TEXT, statement, changed(random.Random(n), statement)[1]) for n in range(20)
        }
        assert len(texts) == (1 if name.startswith("gemm") else 3)
        assert TEXT not in texts
        for text in texts:
            ast.parse(text)
