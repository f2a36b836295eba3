"""A target is a record, in its folder and in one list, as docs/developers/architecture.md says."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.emit.targets import TARGETS
from tests import ROOT

PAGE = ROOT / "docs" / "developers" / "architecture.md"
n, m = dx.dims("n m")
X, A, x = dx.matrix("X", n, n), dx.matrix("A", m, n), dx.vector("x", n)
FUNCTIONS = [
    dx.function("square", [X], X @ X),
    dx.function("layer", [x, A], dx.tanh(A @ x), batch=[x]),
]


@pytest.fixture(autouse=True)
def numpy_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target of the page, in the list of targets."""
    blocks = re.findall("```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "TARGET = " in block)
    scope: dict[str, Any] = {}
    exec(code, scope)
    target = scope["TARGET"]
    monkeypatch.setitem(TARGETS, target.name, target)


def test_modules_of_the_target_are_built_verified_and_run(tmp_path: Path) -> None:
    options = {"targets": ("numpy", "cpu"), "kinds": ["vjp"]}
    result = dx.build(FUNCTIONS, tmp_path / "made", **options)
    assert all(report.passed for report in result.reports)
    assert dx.check(FUNCTIONS, tmp_path / "made", **options) == []
    modules = dx.load_package(tmp_path / "made")
    assert {f"{function.name}_numpy" for function in FUNCTIONS} < {*modules}
    values, cotangent = np.random.default_rng(0).normal(size=(2, 4, 4))
    actual = modules["square_numpy"].vjp(values, cotangent)
    np.testing.assert_allclose(actual, modules["square"].vjp(values, cotangent))
    assert "KERNELS" not in (tmp_path / "made" / "square_numpy.pyi").read_text("utf-8")
    module = modules["square_numpy"]
    assert all(hasattr(module, name) for name in module.__all__)
    with pytest.raises(ValueError, match="square: argument X has shape"):
        modules["square_numpy"].value(values[:2])


def test_a_wrong_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = dx.compile(FUNCTIONS[0], "numpy")
    assert dx.verify(module).passed
    vjp = module.vjp
    monkeypatch.setattr(module, "vjp", lambda X, Y, out=None: 1.001 * vjp(X, Y, out=out))
    assert not dx.verify(module).passed
