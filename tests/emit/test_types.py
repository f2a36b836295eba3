"""The names, help and types of generated modules."""

import ast
import inspect
import os
import re
import subprocess
import sys

import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from tests import ROOT
from tests.typed import functions, planted, write

ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: ", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a package and programs, and these by their names."""
    place = tmp_path_factory.mktemp("typed")
    return place, write(place)


def test_mypy_finds_the_planted_errors_and_no_others(folder):
    place, paths = folder
    files = [*paths.values(), *place.glob("generated/*.pyi")]
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", *map(str, files)],
        cwd=place,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1, process.stderr
    result = {(match["file"], int(match["line"])) for match in ERROR.finditer(process.stdout)}
    assert result == {("wrong.py", line) for line in planted(paths["wrong"])}, process.stdout


def test_the_page_runs(folder):
    place, paths = folder
    command = [sys.executable, str(paths["page"])]
    process = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


@pytest.fixture(scope="module")
def modules():
    return {function.name: dx.compile(function) for function in functions()}


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.name)
def test_stubs_say_what_modules_have(modules, function):
    stub = ast.parse(generate(function).types)
    (public,) = [
        ast.literal_eval(each.value)
        for each in stub.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
    ]
    module = modules[function.name]
    assert public == sorted(module.__all__) == dir(module)
    assert len(public) == len({*public})
    scope: dict[str, object] = {}
    exec(f"from {module.__name__} import *", scope)
    assert scope.keys() - {"__builtins__"} == {*public}
    for each in stub.body:
        if isinstance(each, ast.FunctionDef):
            function = getattr(module, each.name)
            names = [arg.arg for arg in (*each.args.args, *each.args.kwonlyargs)]
            assert names == [*inspect.signature(getattr(function, "py_func", function)).parameters]
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            fields = [ast.unparse(line.target) for line in each.body]
            assert tuple(fields) == getattr(module, each.name)._fields


def test_help_says_formulas_shapes_and_errors(modules):
    text = modules["scaled"].vjp.__doc__
    assert "by A: −ȳ s A⁻¹ b bᵀ A⁻¹" in text
    assert "A: shape (n, n)" in text and "cotangent: shape ()" in text
    assert "result.b: shape (n,)" in text
    assert all(name in text for name in ("TypeError", "ValueError", "LinAlgError"))
    text = modules["model"].vjp.__doc__
    assert "Formulas, for one sample" in text and "x: shape (*batch, n)" in text
    assert "sizes without k >= 1" in text and "LinAlgError" not in text
    text = modules["scaled"].value_and_gradient.__doc__
    assert "value: s (bᵀ A⁻¹ b)" in text and "result.gradient.A: shape (n, n)" in text
    assert "by A, b: " in modules["scaled"].hessian_operator.__doc__


def test_help_names_the_error_of_functions_that_can_fail():
    n = dx.dims("n")
    A = dx.matrix("A", n, n)
    module = dx.compile(dx.function("volume", [A], dx.logdet(A)), kinds=["value", "vjp"])
    assert "LinAlgError" not in module.value.__doc__
    assert "LinAlgError" in module.vjp.__doc__


def test_derivatrix_lists_its_own_names_only():
    names = {*dir(dx)}
    assert {"matrix", "expm", "function", "verify", "runtime", "ShapeError"} <= names
    assert not names & {"Any", "TYPE_CHECKING", "annotations", "importlib", "sys", "compiler"}
