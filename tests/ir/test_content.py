"""Operations are known by what they are, not by their names: in expressions, in formulas, in
kernels, and in the digests by which modules are told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import digest, generate
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.ir.content import content, content_digest
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Constant, Map, slot
from derivatrix.compiler.operations import OPERATIONS, Operation

n = dx.dims("n")
B, P, Q = dx.matrix("B", n, n), dx.matrix("P", n, n), dx.matrix("Q", n, n)
s, t, u = dx.scalar("s"), dx.scalar("t"), dx.scalar("u")
M, start = B + 3 * dx.eye(n), dx.eye(n)
SMALL = np.random.default_rng(0).normal(size=(3, 3)) / 10

square, cube = dx.root(P @ P - M, P, start), dx.root(P @ P @ P - M, P, start)
half = dx.fixed_point((P + M) / 2 - P @ P / 8, P, start)
third = dx.fixed_point(M / 3 + P / 9, P, start)
least, other = (dx.argmin(u**4 / 4 + c * u**2 / 2 - s * u, u, s) for c in (1, 2))
careful, silent = (dx.root(t + t**3 - s, t, s, failure) for failure in ("error", "nan"))
inner = dx.root(t + t**3 - s, t, s)
nested, flat = dx.root(u + u**3 - inner, u, s), dx.root(u + u**3 - s, u, s)

PAIRS = {
    "roots": (square, cube),
    "a root and one turned": (square, cube.T),
    "fixed points": (half, third),
    "minima": (least, other),
    "a root within another and that": (nested, flat),
    "roots of one unknown's square": (
        dx.root(t * t - 4 - s, t, s + 2),
        dx.root(t * t - 4.000000001 - s, t, s + 2),
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_two_equations_in_one_expression(pair) -> None:
    first, second = pair
    leaf = B if first.ndim else s
    value = {leaf.name: SMALL if first.ndim else np.asarray(0.4)}
    function = dx.function("f", [leaf], first - second + dx.tanh(first) * second)
    one, two = (evaluate(array.node, value, {"n": 3}) for array in pair)
    (node,) = function.derivatives.results("value").values()
    expected = one - two + np.tanh(one) * two
    np.testing.assert_allclose(evaluate(node, value, {"n": 3}), expected, rtol=0, atol=1e-13)
    assert np.abs(one - two).max() > 1e-12
    scope = {"np": np, "scipy": __import__("scipy"), **value}
    actual = eval(function.formula("value", style="numpy"), scope)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)
    shown = function.formula("value")
    assert sum(shown.count(name) for name in ("root(", "fixed_point(", "argmin(")) >= 2


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_two_functions_of_one_name(pair) -> None:
    leaf = B if pair[0].ndim else s
    first, second = (dx.function("f", [leaf], expression) for expression in pair)
    assert digest(first) != digest(second)
    assert generate(first).text != generate(second).text


def test_a_root_that_may_fail_is_another_one() -> None:
    assert careful.node.key != silent.node.key
    function = dx.function("f", [s], careful - silent)
    assert function.formula("value") != "0"
    digests = {digest(dx.function("f", [s], expression)) for expression in (careful, silent)}
    assert len(digests) == 2
    text = generate(function).text
    assert len({line for line in text.splitlines() if line.startswith("def newton_root")}) == 2


def test_modules_of_two_roots() -> None:
    """The issue's own example, and two functions of one name in one session."""
    total = square + cube.T
    value = dx.compile(dx.function("f", [B], total - total.T)).value(SMALL)
    roots = [
        dx.compile(dx.function("g", [B], expression)).value(SMALL) for expression in (square, cube)
    ]
    for power, root in enumerate(roots, 2):
        expected = SMALL + 3 * np.eye(3)
        np.testing.assert_allclose(np.linalg.matrix_power(root, power), expected, atol=1e-13)
    expected = roots[0] + roots[1].T
    np.testing.assert_allclose(value, expected - expected.T, rtol=0, atol=1e-13)
    assert np.abs(value).max() > 1e-3


SCRIPT = """
import numpy as np
import derivatrix as dx
import double

s, t, x = dx.scalar("s"), dx.scalar("t"), dx.vector("x", 3)
root = dx.compile(dx.function("f", [s], dx.root(t**{power} - s, t, s + 1)))
twice = dx.compile(dx.function("g", [x], dx.double(x)))
print(root.value(3.0), *twice.value(np.ones(3)), *twice.jvp(np.ones(3), np.ones(3)), twice.DIGEST)
"""

DOUBLE = """
import derivatrix as dx
import numpy as np
from numba import njit

@njit
def fill_double(x, out):
    for s in range(len(out)):
        for i in range(3):
            out[s, i] = {factor} * x[s, i]

def multiplied(x):
    return FACTOR * x

FACTOR = {factor}

dx.register(dx.Operation(
    name="double", ranks=(1,), shapes=lambda cores, parameters: (cores[0],),
    value=lambda arrays, parameters: (multiplied(arrays[0]),),
    differential=lambda at: (multiplied(at.tangents[0]),),
    transposes={{0: lambda at, cotangent: multiplied(cotangent)}},
    numpy=lambda arguments, *_: f"{{FACTOR}} * ({{arguments[0]}})",
    unicode="double({{0}})", latex="double({{0}})", kernel=fill_double,
))
"""


def session(folder: Path, seed: int) -> list[float]:
    environment = {
        **os.environ,
        "DERIVATRIX_CACHE": str(folder / "cache"),
        "PYTHONHASHSEED": str(seed),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "use.py"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_what_changes_between_sessions(tmp_path: Path) -> None:
    """Another root of one name, and an operation of the user's whose file has changed."""
    actual = {}
    for seed, (power, factor) in enumerate([(2, 2.0), (3, 3.0), (2, 2.0)]):
        (tmp_path / "use.py").write_text(SCRIPT.format(power=power), encoding="utf-8")
        (tmp_path / "double.py").write_text(DOUBLE.format(factor=factor), encoding="utf-8")
        *numbers, mark = session(tmp_path, seed)
        expected = [3 ** (1 / power), *[factor] * 6]
        np.testing.assert_allclose([float(number) for number in numbers], expected, rtol=1e-14)
        actual.setdefault(factor, set()).add(mark)
    assert [len(marks) for marks in actual.values()] == [1, 1]
    assert actual[2.0] != actual[3.0]


def made(factor: float, numbers: tuple[float, ...] = (1.0,)) -> Operation:
    """An operation that exists for a number, as a user's factory would make it."""
    return replace(
        OPERATIONS["prod"], value=lambda arrays, parameters: (factor * arrays[0].prod(-1),)
    )


def helper(x: float) -> float:
    return 2 * x


def helped(x: float) -> float:
    return helper(x) + 1


def recursive(x: float) -> float:
    return recursive(x - 1) if x else 0.0


@pytest.mark.parametrize(
    "fault",
    [
        {"name": "other"},
        {"differential": lambda at: (at.tangents[0],)},
        {"value": lambda arrays, parameters: (arrays[0].prod(-1) + 1,)},
        {"transposes": {0: lambda at, cotangent: cotangent}},
        {"numpy": lambda arguments, *_: "0"},
        {"unicode": "other({0})"},
        {"kernel": OPERATIONS["max"].kernel},
        {"failure": "it is wrong"},
        {"domain": ("positive",)},
        {"facts": lambda arguments, output: frozenset({"symmetric"})},
        {"rules": (lambda node: None,)},
        {"requires": lambda cores: [cores[0][0] - 2]},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_every_field_of_a_record_counts(fault: dict[str, object]) -> None:
    record = OPERATIONS["prod"]
    changed = replace(record, **fault)
    assert changed.key != record.key
    assert replace(record).key == record.key
    x = dx.vector("x", n)
    functions = [dx.function("f", [x], calling(operation)(x)) for operation in (record, changed)]
    assert digest(functions[0]) != digest(functions[1])


def closure(number: object) -> Callable[[], object]:
    return lambda: number


def default(number: object) -> Callable[[], object]:
    def function(number: object = number) -> object:
        return number

    return function


def in_global(number: object) -> Callable[[], object]:
    scope = {"number": number, "__name__": "users"}
    exec("def function():\n    return [number for _ in '1']", scope)
    return scope["function"]


def in_method(number: object) -> Callable[[], object]:
    return Holder(number).get


class Holder:
    def __init__(self, number: object) -> None:
        self.number = number

    def get(self) -> object:
        return self.number


@pytest.mark.parametrize(
    "holding",
    [closure, default, in_global, in_method, Holder, lambda number: partial(print, number)],
    ids=["closure", "default", "global", "method", "object", "partial"],
)
def test_what_a_function_holds_counts(holding: Callable[[object], object]) -> None:
    kinds = [
        *(0.1, 0.1 + 2**-56, 1, 1.0, True, "1", b"1", None, -0.0, 0.0, 2 + 1j),
        *((1, 2), [1, 2], {1: 2}, {1, 2}, (1, (2,)), ((1,), 2), "(1,2)"),
        *(np.array([1.0, 2.0]), np.array([1, 2]), np.array([[1.0, 2.0]])),
        *(np.sin, np.cos, np.linalg.inv, sympy.Rational(1, 3), helper, helped, recursive, Holder),
        *(dx.inv, dx.expm, B, P),
    ]
    texts = [content_digest(holding(kind)) for kind in kinds]
    assert len(set(texts)) == len(kinds)
    assert texts == [content_digest(holding(kind)) for kind in kinds]


def test_sources_and_bytecode() -> None:
    one, two = lambda x: x + 1, lambda x: x + 2
    assert content_digest(one) != content_digest(two)
    texts = {content_digest(eval(f"lambda x: x + {number}")) for number in (1, 1.0, 2, "'1'")}
    assert len(texts) == 4
    assert made(2.0).key != made(3.0).key
    assert made(2.0).key == made(2.0).key


def test_numbers_of_sympy_are_exact() -> None:
    near = sympy.Float(0.1 + 2**-56), sympy.Float(0.1), sympy.Rational(1, 10)
    assert len({str(number) for number in near[:2]}) == 1
    assert len({content(number) for number in near}) == 3
    x = dx.vector("x", n).node
    assert len({Map(number * sympy.exp(slot(0)), (x,)).key for number in near}) == 3
    assert Constant(np.array([0.0])).key != Constant(np.array([-0.0])).key


def test_what_cannot_be_read_is_refused() -> None:
    refused = pytest.raises(dx.DeclarationError, match="TextIOWrapper objects have no contents")
    with open(os.devnull) as file, refused:
        content_digest(closure(file))
