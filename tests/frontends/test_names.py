"""Names: whatever declares them, one gate keeps generated text what it is."""

import ast
import builtins
import dataclasses
import dis
import os
import re
from collections.abc import Callable

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.ir.identifiers import MAX_NAME_BYTES
from derivatrix.compiler.operations import OPERATIONS, register
from tests.cases import CASES

n = dx.dims("n")
x = dx.vector("x", n)
SYMBOLS = {"integer": True, "positive": True}

HOSTILE = [
    "globals()[__import__('os').system('touch canary')]",
    "__import__('os').system('touch canary')",
    "n\nimport os; os.system('touch canary')",
    'n"""',
    "n'",
    'n"',
    "n\\",
    "{n}",
    "{{ n }}",
    "n m",
    "n;",
    "n#",
    "",
    "2n",
    "a" * (MAX_NAME_BYTES + 1),
    "a" * 5000,
    "ﬁ",
    "x·y",
    "℘",
    "lambda",
    "match",
    "print",
    "min",
    "__class__",
]


def with_size(size):
    return dx.function("f", [dx.vector("y", size)], dx.vector("y", size) * 2)


def with_matrix(size):
    matrix = sympy.MatrixSymbol("M", size, size)
    return dx.function("f", [matrix], matrix * matrix)


def with_root(name):
    unknown = sympy.Symbol(name, real=True)
    return dx.function("f", ["s"], dx.root(unknown**2 - dx.scalar("s"), unknown, dx.scalar("s")))


def with_symbol(name):
    return dx.function("f", [sympy.Symbol(name, real=True)], sympy.Symbol(name, real=True) ** 2)


def registered(name):
    record = OPERATIONS["inv"]
    return register(dataclasses.replace(record, name=name))


FRONT_ENDS = {
    "dims": lambda name: with_size(dx.dims(name)),
    "text size": with_size,
    "symbol size": lambda name: with_size(sympy.Symbol(name)),
    "symbol size as ours": lambda name: with_size(sympy.Symbol(name, **SYMBOLS)),
    "dummy size": lambda name: with_size(sympy.Dummy(name)),
    "sum of sizes": lambda name: with_size(sympy.Symbol(name) + sympy.Symbol("k")),
    "symbol matrix size": lambda name: with_matrix(sympy.Symbol(name)),
    "input": lambda name: dx.function("f", [dx.vector(name, n)], dx.vector(name, n) * 2),
    "symbol input": with_symbol,
    "symbol matrix": lambda name: dx.function(
        "f", [sympy.MatrixSymbol(name, 3, 3)], sympy.MatrixSymbol(name, 3, 3) * 2
    ),
    "dummy input": lambda name: dx.function("f", [sympy.Dummy(name)], sympy.Dummy(name) ** 2),
    "applied function": lambda name: dx.function(
        "f", [sympy.Symbol("s")], sympy.Function(name)(sympy.Symbol("s"))
    ),
    "function": lambda name: dx.function(name, [x], x * 2),
    "wrt": lambda name: dx.function("f", [x], x * 2, wrt=[name]),
    "batch": lambda name: dx.function("f", [x], x * 2, batch=[name]),
    "unknown": with_root,
    "notation input": lambda name: dx.function("f", [name], dx.parse("2*x", **{name: "n"})),
    "notation size": lambda name: dx.function("f", ["x"], dx.parse("2*x", x=name)),
}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_hostile_names_are_refused(tmp_path, monkeypatch, front_end):
    """And nothing of what they say is done."""
    monkeypatch.chdir(tmp_path)
    fine = {"notation size": ("n m", "", "n'", "2n"), "dims": ("n m",)}
    for name in HOSTILE:
        if name in fine.get(front_end, ()):
            continue
        with pytest.raises((dx.DeclarationError, dx.NotationError, dx.UnsupportedError)):
            FRONT_ENDS[front_end](name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["my op", "2", "op'", "op\n", "a" * 5000])
def test_operations_of_hostile_names_are_refused(name):
    with pytest.raises(dx.DeclarationError, match="the name of an operation"):
        registered(name)
    assert name not in OPERATIONS


def words(text):
    """Every name in a module's text."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        names |= {getattr(node, field, None) for field in ("id", "arg", "name", "asname")}
    return {name for name in names if isinstance(name, str)}


def scopes(text):
    """The functions of a module's text, without the helpers before the kernels."""
    _, _, kernels = text.partition("\n# Kernels\n")
    return [node for node in ast.parse(kernels).body if isinstance(node, ast.FunctionDef)]


def require_apart(text, name):
    """Check that `name` is a global of the module or a local variable of its functions, not both
    (except for helpers, which public functions do not read), and that a kernel assigns to none of
    its arguments and sizes."""
    top = {getattr(node, "name", "") for node in ast.parse(text).body}
    kinds = {"value", "vjp", "jvp", "jacobian", "jacobian_operator"}
    kernels = {scope.name for scope in scopes(text)} - kinds
    for scope in scopes(text):
        parameters = {node.arg for node in scope.args.args}
        names = [node for node in ast.walk(scope) if isinstance(node, ast.Name)]
        stored = [node.id for node in names if isinstance(node.ctx, ast.Store)]
        if name in parameters or name in stored:
            assert name not in (kernels if scope.name in kinds else top - kinds), scope.name
        if scope.name not in kinds:
            sizes = re.search(rf"\b{name} = \w+\.shape", ast.unparse(scope))
            assert name not in parameters or name not in stored, (scope.name, name)
            assert stored.count(name) == 1 or not sizes, (scope.name, name)


def declared(name, size):
    """A function that is computed in several ways, by threads too."""
    points, weights = dx.vector(name, size), dx.matrix("W", 3, size)
    return dx.function("f", [points, weights], dx.softmax(weights @ points), batch=[points])


def test_names_of_generated_text_are_refused_or_kept_apart():
    """Names from a module's text are used as the name of an input, and of a size."""
    text = generate(declared("x", n)).text
    local = {name_in_text for scope in scopes(text) for name_in_text in words(ast.unparse(scope))}
    always = {"vjp_kernel", "out", "cotangent", "np", "real", "words", "memory", "gemm", "dtype"}
    refused = set()
    for word in sorted(always | {*sorted(local)[::12]}):
        for name, size in ((word, n), ("x", word)):
            try:
                text_with_name = generate(declared(name, size)).text
            except dx.DeclarationError:
                refused.add(word)
            else:
                require_apart(text_with_name, word)
    assert {"vjp_kernel", "out", "cotangent", "np"} <= refused
    assert not {"real", "words", "memory", "gemm", "dtype"} & refused


@pytest.mark.parametrize("name", ["real", "words", "gemm", "n" * MAX_NAME_BYTES])
def test_names_of_helpers_and_locals_may_be_used(name):
    for declaration in (declared(name, n), declared("x", name)):
        module = dx.compile(declaration)
        points, weights = np.ones((2, 4)), np.eye(3, 4)
        np.testing.assert_allclose(module.value(points, weights).sum(), 2)
        assert module.vjp(points, weights, np.ones((2, 3)))[0].shape == (2, 4)


def test_functions_of_the_longest_names_keep_their_code(tmp_path, monkeypatch):
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    module = dx.compile(dx.function("f" * MAX_NAME_BYTES, [x], dx.logsumexp(x), batch=[x]))
    module.value_and_gradient(np.ones((3, 2)))
    assert [*(tmp_path / "cache").rglob("*value_and_gradient_kernel*.nbc")]


def test_public_functions_read_no_name_without_an_underscore():
    """So an input may have the name of a helper. Python's builtins are excepted: no input has their
    names."""
    for case in CASES[::6]:
        module = dx.compile(case)
        for name in (*module.FUNCTIONS, module.OPERATOR):
            steps = [*dis.get_instructions(getattr(module, name))]
            global_names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
            assert global_names
            for global_name in global_names:
                assert global_name.startswith("_") or hasattr(builtins, global_name), (
                    case.name,
                    name,
                    global_name,
                )


def test_the_module_names_of_a_package(tmp_path):
    upper = dx.function("Square", [x], x * x)
    lower = dx.function("square", [x], x * x)
    with pytest.raises(dx.DeclarationError, match="one file"):
        dx.build([upper, lower], tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_input_called_like_the_check_of_a_kernel_is_refused():
    name = dx.vector("check_vjp_kernel", "n")
    with pytest.raises(dx.DeclarationError, match="can be called check_vjp_kernel"):
        dx.compile(dx.function("f", [name], dx.sum(name * name)))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_input_called_like_a_constant_of_its_module_is_refused(target):
    weights = np.arange(60.0)
    (name,) = re.findall(r"(?m)^(constant_\w+) = ", generate(weighted("y", weights), target).text)
    with pytest.raises(dx.DeclarationError, match=f"no input or size can be called {name};"):
        generate(weighted(name, weights), target)


def weighted(name, weights):
    y = dx.vector(name, len(weights))
    return dx.function("f", [y], dx.sum(dx.constant(weights) * y * y))


REAL, POSITIVE = sympy.Symbol("t"), sympy.Symbol("t", positive=True)


@pytest.mark.parametrize(
    "build",
    [
        lambda: dx.function("f", ["t"], REAL * POSITIVE),
        lambda: dx.grad(REAL * POSITIVE, "t"),
        lambda: dx.hessian(REAL * POSITIVE, POSITIVE),
        lambda: dx.root(dx.scalar("t") - dx.scalar("t", "positive"), dx.scalar("t"), 1.0),
    ],
)
def test_two_symbols_of_one_name(build: Callable[[], object]) -> None:
    with pytest.raises(dx.DeclarationError, match=r"called t: t \(\).* t \(\) positive; rename"):
        build()
