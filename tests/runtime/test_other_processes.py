"""Modules, what they return, operators and declarations go to other processes by pickle."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.arrays import apply
from derivatrix.compiler.ir.operation import OPERATIONS
from derivatrix.compiler.operations.softmax import SOFTMAX
from tests import ROOT

n, c = dx.dims("n c")
x, W, S = dx.vector("x", n), dx.matrix("W", c, n), dx.matrix("S", n, n, "spd")
P, w = dx.matrix("P", n, n), dx.vector("w", 3)
model = dx.function("elsewhere", [x, W], dx.logsumexp(W @ x), batch=[x])
X_value, W_value = np.random.default_rng(0).normal(size=(2, 3, 3))
OTHER_VERSION = "import derivatrix.version; derivatrix.version.VERSION = '9.9'"


def elsewhere(given: Any, code: str, before: str = "", cache: Path | None = None) -> Any:
    """Run `code` in another process on the unpickled `given`; return its result, or the text of an
    error."""
    program = (
        f"{before}\nimport pickle, sys\ntry:\n    given = pickle.load(sys.stdin.buffer)\n"
        f"    result = {code}\nexcept Exception as error:\n"
        "    result = f'{type(error).__name__}: {error}'\n"
        "sys.stdout.buffer.write(pickle.dumps(result))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(given),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}
        | ({"DERIVATRIX_CACHE": str(cache)} if cache else {}),
    )
    assert process.returncode == 0, process.stderr.decode()
    return pickle.loads(process.stdout)


@pytest.fixture(scope="module")
def module():
    return dx.compile(model)


def test_functions_named_tuples_and_operators(module):
    expected = module.gradient(X_value, W_value)
    operators = module.hessian_operator(X_value, W_value)
    code = "(given[0](*given[1]), given[2].W, given[3].x.x @ given[1][0])"
    given = (module.gradient, (X_value, W_value), expected, operators)
    actual, tuple_part, product = elsewhere(given, code)
    assert type(actual) is type(expected) is module.Gradient
    np.testing.assert_array_equal(actual.W, expected.W)
    np.testing.assert_array_equal(tuple_part, expected.W)
    np.testing.assert_allclose(product, operators.x.x @ X_value)


def test_a_module_is_not_copied(module):
    holder = {"module": module}
    for same in (
        copy.copy(module),
        copy.deepcopy(holder)["module"],
        pickle.loads(pickle.dumps(module)),
    ):
        assert same is module


def test_a_module_takes_its_text_to_another_cache(module, tmp_path):
    code = "(given.__file__, given.gradient(*{}).W, given.gradient.__module__)"
    arrays = f"({X_value.tolist()}, {W_value.tolist()})"
    file, result, name = elsewhere(module, code.format(arrays), cache=tmp_path / "cache")
    assert Path(file).is_relative_to(tmp_path) and name == module.__name__
    np.testing.assert_array_equal(result, module.gradient(X_value, W_value).W)


def test_threads_that_unpickle_at_once(module, tmp_path):
    before = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def called(each):\n"
        "    found = pickle.loads(each)\n"
        "    return getattr(found, 'value', found)([[1.0]], [[1.0]])[0]\n"
    )
    given = [pickle.dumps(each) for each in (module, module.value)]
    code = "[*ThreadPoolExecutor(4).map(called, given)]"
    assert elsewhere(given * 4, code, before) == [1.0] * 8
    own = tmp_path / "cache"
    assert elsewhere(given[:1] * 8, code, before, own) == [1.0] * 8


def test_a_function_without_its_module_says_so_when_it_is_called(module, tmp_path):
    answer = elsewhere(module.value, "given([[1.0]], [[1.0]])", cache=tmp_path / "cache")
    assert (
        answer.startswith(f"LoadError: {module.__package__}") and str(tmp_path / "cache") in answer
    )
    assert "DERIVATRIX_CACHE" in answer and "derivatrix build" in answer
    # where the module has come since, the function is there
    code = "(pickle.loads(given[1]), pickle.loads(given[2]).value([[1.0]], [[1.0]]))[1].tolist()"
    given = ("", pickle.dumps(module.value), pickle.dumps(module))
    assert elsewhere(given, code, cache=tmp_path / "new") == [1.0]


@pytest.mark.parametrize("what", ["module", "value", "function", "array"])
def test_another_version_says_so(module, what):
    given = {"module": module, "value": module.value, "function": model, "array": W @ x}[what]
    use = {
        "module": "given.value([[1.0]], [[1.0]])",
        "value": "given([[1.0]], [[1.0]])",
        "function": "__import__('derivatrix').compile(given)",
        "array": "1.0 + given",
    }
    answer = elsewhere(given, use[what], OTHER_VERSION)
    assert answer.startswith("LoadError: ")
    assert f"derivatrix {dx.__version__}, and this one has 9.9; install the same" in answer


def test_another_build_of_one_version_says_so(module, tmp_path):
    _, (name, place, support, texts) = module.__reduce__()
    line = next(line_text for line_text in support.splitlines() if "cpu/kernels.py" in line_text)
    changed = support.replace(line, "    'cpu/kernels.py': 'other',")
    code = (
        "__import__('derivatrix.runtime.compiled').runtime.compiled.restored(*given).value([[1.0]])"
    )
    answer = elsewhere((name, place, changed, texts), code, cache=tmp_path)
    assert "another build of derivatrix" in answer and "cpu/kernels.py differ" in answer


def test_modules_of_packages_and_files(tmp_path, monkeypatch):
    dx.build([model], tmp_path / "boxed", verify=False)
    loaded = dx.load(tmp_path / "boxed" / "elsewhere.py")
    code = "given.value([[1.0]], [[1.0]]).tolist()"
    assert elsewhere(loaded, code) == [1.0] and copy.deepcopy(loaded) is loaded
    answer = elsewhere(loaded.value, "given([[1.0]], [[1.0]])")
    assert "loaded from a file" in answer and "derivatrix.load(path)" in answer
    program = (
        "import copy, pickle, sys\nfrom boxed import elsewhere\n"
        "assert copy.deepcopy([elsewhere])[0] is elsewhere\n"
        "assert pickle.loads(pickle.dumps(elsewhere)) is elsewhere\n"
        "assert not any(name.startswith('derivatrix') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


DECLARED = {
    "model": lambda: model,
    "root": lambda: dx.function("root", [S], dx.root(P @ P - S, P, S)),
    "derivative": lambda: dx.function("f", [S, x], dx.logdet(S) + x @ x, wrt=[S]).derivative("S"),
    "literal": lambda: dx.function("literal", [w], dx.softmax(np.arange(1.0, 4.0) * w)),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_functions(name):
    function = DECLARED[name]()
    again = pickle.loads(pickle.dumps(function))
    assert again == function and hash(again) == hash(function) and again is not function
    assert again.expression is function.expression and dx.compile(again) is dx.compile(function)
    code = "(given, given.formula('value'))"
    assert elsewhere(function, code) == (function, function.formula("value"))
    assert function != model or function is model


def test_arrays():
    assert pickle.loads(pickle.dumps(W @ x)).node is (W @ x).node
    deep = x
    for _ in range(3000):
        deep = dx.tanh(deep)
    assert pickle.loads(pickle.dumps(deep)).node is deep.node


def test_operations_that_other_processes_do_not_know(monkeypatch):
    own = replace(SOFTMAX, name="own_softmax")
    array = apply(own, x)
    with pytest.raises(pickle.PicklingError, match=r"own_softmax is not registered.*register it"):
        pickle.dumps(array)
    monkeypatch.setitem(OPERATIONS, "own_softmax", own)
    assert pickle.loads(pickle.dumps(array)).node is array.node
    answer = elsewhere(array, "given")
    assert answer.startswith("DeclarationError: no operation is called 'own_softmax'")
