"""Expressions that are very deep or very long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from tests.campaign.hostile_case import Case

x, X = dx.vector("x", "n"), dx.matrix("X", "n", "n")


def repeated(step: Callable[[Any, int], Any], first: Any, times: int) -> Any:
    """step(...step(step(first, 0), 1)..., times - 1)."""
    return reduce(step, range(times), first)


def of(expression: object, *inputs: dx.Array, wrt: list[str] | None = None) -> Function:
    return dx.function("f", list(inputs) or [x], expression, wrt=wrt)


def product(count: int) -> Function:
    """A product of so many matrices, differentiated by the first."""
    others = [dx.matrix(f"A{number}", "n", "n") for number in range(count)]
    return of(repeated(lambda value, i: value @ others[i], X, count), X, *others, wrt=["X"])


def many(count: int) -> Function:
    """A function of so many inputs, differentiated by two."""
    inputs = [dx.vector(f"a{number}", "n") for number in range(count)]
    return of(sum(dx.sum(input * input) for input in inputs), *inputs, wrt=["a0", "a1"])


def twice_read(made: dx.Array) -> Function:
    """Make an expression that two loops read."""
    return of(X @ made + made, X, x, wrt=["x"])


def parsed(text: str) -> Function:
    return dx.function("f", ["x"], dx.parse(text, x="n"))


def symbolic(step: Callable[[Any], Any], times: int) -> Function:
    """A SymPy expression, made step by step."""
    symbol = sympy.Symbol("s")
    expression = symbol
    for _ in range(times):
        expression = step(expression)
    return dx.function("f", [symbol], expression)


LARGE: dict[str, tuple[Callable[[], Function], Callable[..., Any] | None]] = {
    "5000 equal terms": (lambda: of(repeated(lambda v, i: v + x, x, 4999)), lambda x: 5000 * x),
    "5000 terms": (
        lambda: of(repeated(lambda v, i: v + dx.exp(x * (i + 1) / 5000), x, 5000)),
        None,
    ),
    "50 terms": (
        lambda: of(repeated(lambda v, i: v + dx.exp(x * (i + 1) / 50), x, 50)),
        lambda x: x + sum(np.exp(x * i / 50) for i in range(1, 51)),
    ),
    "500 nested tanh": (lambda: of(repeated(lambda v, i: dx.tanh(v), x, 500)), None),
    "20 nested tanh": (
        lambda: of(repeated(lambda v, i: dx.tanh(v), x, 20)),
        partial(repeated, lambda v, i: np.tanh(v), times=20),
    ),
    "300 brackets": (lambda: parsed("(" * 300 + "x" + ")" * 300), None),
    "30 brackets": (lambda: parsed("(" * 30 + "x" + ")" * 30), lambda x: x),
    "300 calls": (lambda: parsed("exp(" * 300 + "x" + ")" * 300), None),
    "a MB of terms": (lambda: parsed("+".join(["x"] * 500_000)), lambda x: 500_000 * x),
    "a MB of signs": (lambda: parsed("-" * 1_000_000 + "x"), lambda x: x),
    "a MB of brackets": (lambda: parsed("(" * 1_000_000), None),
    "a MB of digits": (lambda: parsed("9" * 1_000_000 + "*x"), None),
    "a MB of a name": (lambda: parsed("y" * 1_000_000), None),
    "a MB of spaces": (lambda: parsed(" " * 1_000_000 + "x"), lambda x: x),
    "a MB of nothing": (lambda: parsed("\0" * 1_000_000), None),
    "a MB of transposes": (lambda: parsed("x" + "'" * 1_000_000), None),
    "20 matrices": (lambda: product(20), lambda *arrays: np.linalg.multi_dot(arrays)),
    "40 equal matrices": (lambda: of(repeated(lambda v, i: v @ X, X, 39), X), None),
    "100 inputs": (lambda: many(100), lambda *arrays: sum(np.sum(a * a) for a in arrays)),
    "doubled 60 times": (lambda: of(repeated(lambda v, i: v + v, x, 60)), lambda x: 2.0**60 * x),
    "squared 60 times": (lambda: of(repeated(lambda v, i: v * v, x, 60)), None),
    "squared 5 times": (lambda: of(repeated(lambda v, i: v * v, x, 5)), lambda x: x**32),
    "sine plus itself 60 times": (lambda: of(repeated(lambda v, i: dx.sin(v) + v, x, 60)), None),
    "sine plus itself 40 times, twice read": (
        lambda: twice_read(repeated(lambda v, i: dx.sin(v) + v, x, 40)),
        None,
    ),
    "transpose times itself 24 times": (lambda: of(repeated(lambda v, i: v.T * v, X, 24), X), None),
    "reversed times itself 12 times": (
        lambda: of(repeated(lambda v, i: v[::-1] * v, dx.vector("y", 40), 12), dx.vector("y", 40)),
        None,
    ),
    "trace times itself 10 times": (
        lambda: of(repeated(lambda v, i: dx.trace(v) * v, X, 10), X),
        None,
    ),
    "logistic map 12 times": (
        lambda: of(repeated(lambda v, i: 0.7 * v * (1 - v), dx.scalar("s"), 12), dx.scalar("s")),
        lambda s: repeated(lambda v, i: 0.7 * v * (1 - v), s, 12),
    ),
    "Newton and Schulz, 12 times": (
        lambda: of(repeated(lambda v, i: 1.5 * v - 0.5 * v @ v.T @ v, X, 12), X),
        None,
    ),
    "power 1000": (lambda: of(dx.matrix_power(X, 1000), X), None),
    "power 10": (
        lambda: of(dx.matrix_power(X, 10), X),
        lambda X: np.linalg.matrix_power(X, 10),
    ),
    "power 10**9": (lambda: of(dx.matrix_power(X, 10**9), X), None),
    "power -10**5000": (lambda: of(dx.matrix_power(X, -(10**5000)), X), None),
    "entries to the power 1000": (lambda: of(x**1000), lambda x: x**1000),
    "transposed 5000 times": (lambda: of(repeated(lambda v, i: v.T, X, 5000), X), lambda X: X),
    "sliced 200 times": (
        lambda: of(repeated(lambda v, i: v[1:], dx.vector("y", 300), 200), dx.vector("y", 300)),
        lambda y: y[200:],
    ),
    "tiny": (lambda: of(x * 1e-300 * 1e-300), None),
    "huge": (lambda: of(x * 1e300 * 1e300), None),
    "SymPy, 400 nested tanh": (
        lambda: symbolic(lambda v: sympy.tanh(v, evaluate=False), 400),
        None,
    ),
    "SymPy, squared 12 times": (
        lambda: symbolic(lambda v: sympy.Mul(v, v, evaluate=False), 12),
        None,
    ),
    "SymPy, 300 terms": (
        lambda: symbolic(lambda v: v + sympy.Symbol("s") ** 2, 300),
        lambda s: s + 300 * s**2,
    ),
}
"""Expressions by what they are, and their values where these are plain."""
SECONDS = 60.0
"""Most time of a case; most take a second."""


def cases(number: int) -> Iterator[Case]:
    """One of them for each trial, in turn."""
    label = [*LARGE][number % len(LARGE)]
    yield case(label)


def case(label: str) -> Case:
    make, expected = LARGE[label]
    return Case(label, make, expected, seconds=SECONDS)
