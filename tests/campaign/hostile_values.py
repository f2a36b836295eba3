"""Objects that are no arrays, numbers that no float64 has and sizes that no axis has, where arrays,
numbers and sizes are expected."""

from __future__ import annotations

import decimal
import fractions
import itertools
import math
import random
from collections.abc import Callable, Iterator

import numpy as np
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from tests.campaign.hostile_case import CODE, Case
from tests.campaign.hostile_names import shown

n, k = sympy.Symbol("n"), dx.dims("k")
OBJECTS: tuple[object, ...] = (
    *(None, True, ..., NotImplemented, object(), type, len, lambda x: x, Exception("x"), slice(1)),
    *(0, -1, 1, 2**63, 2**70, 10**5000, -(10**5000), 1.5, 1e308, 1e-320, 5e-324, -0.0),
    *(math.nan, math.inf, -math.inf, 1j, complex("nan"), np.float64("nan"), np.complex64(1)),
    *(decimal.Decimal("1e400"), decimal.Decimal("nan"), fractions.Fraction(1, 3)),
    *(fractions.Fraction(10**400), fractions.Fraction(1, 10**400)),
    *([], (), [[]], [1, [2]], [[1, 2], [3]], [None], ["x"], {1, 2}, {"a": 1}, range(3), b"ab", "x"),
    *(np.array([None, 1]), np.array([[1, 2], [3]], dtype=object), np.array("x"), np.array([1j])),
    *(
        np.ma.array([1.0, 2.0], mask=[0, 1]),
        np.zeros((0, 3)),
        np.matrix([[1.0]]),
        np.array([np.nan]),
    ),
    *(np.zeros(3, "M8[s]"), np.zeros(2, [("a", float)]), np.array([1e300]), np.longdouble("1e400")),
    *(sympy.nan, sympy.oo, sympy.zoo, sympy.I, sympy.true, sympy.pi, sympy.Rational(1, 3)),
    *(sympy.Integer(10) ** 400, sympy.Float("1e400"), sympy.Float("1e-400"), sympy.sqrt(-1)),
    *(n, n / 2, n**n, -n, n - 10, n**65, (n + k + 1) ** 60, sympy.sqrt(n), sympy.floor(n / 2)),
    *(sympy.Symbol("x", imaginary=True), sympy.Symbol("n", negative=True), sympy.Dummy("n")),
    *(
        sympy.Function("g")(n),
        sympy.Matrix([[1]]),
        sympy.ImmutableMatrix([[1]]),
        sympy.Lambda(n, n),
    ),
    *(sympy.Matrix([[sympy.nan]]), sympy.Integral(n, n), sympy.Derivative(n**2, n), n < 3),
    *(dx.vector("q", "k"), dx.scalar("q"), dx.matrix("q", 2, 3), iter([1]), memoryview(b"ab")),
)
SIZES = (
    *("", "0", "-1", "n-9", "n/2", "n*(n+1)/2", "n*(n-1)*(n-2)*(n-3)/5", "1.5", "1e3", "1e400"),
    *("n^n", "n^65", "(n+1)^64", "(a+b+c+d+e+f+g)^20", "2^1000", "9^9^9^9", "2^10000000", "n^2.5"),
    *(
        "1/0*n",
        "0/0",
        "sqrt(n)",
        "n'",
        "[n]",
        "n[0]",
        '"n"',
        "exp(n)",
        "eye",
        "ones",
        "tr(n)",
        "pi",
    ),
    *(
        "(" * 300 + "n" + ")" * 300,
        "+".join(f"a{i}" for i in range(500)),
        "n " * 100,
        "-" * 5000 + "n",
    ),
    *(
        "/2*".join(f"a{i}" for i in range(40)),
        "*".join("abcdefghklmpqrst"),
        "9" * 5000,
        "n spd spd",
    ),
    *("n n spd", "spd", "n n n spd", "n m spd", "n, m", "n; m", "n:m", *CODE),
)


def of(x: dx.Array, expression: object) -> Function:
    return dx.function("f", [x], expression)


x, X = dx.vector("x", "k"), dx.matrix("X", "k", "k")
PLACES: dict[str, Callable[..., object]] = {
    "asarray": lambda value: of(x, dx.asarray(value) * x),
    "expression": lambda value: of(x, value),
    "add": lambda value: of(x, np.add(x, value)),
    "multiply": lambda value: of(x, dx.multiply(x, value)),
    "power": lambda value: of(x, dx.power(x, value)),
    "base": lambda value: of(x, dx.power(value, x)),
    "divide": lambda value: of(x, dx.divide(x, value)),
    "index": lambda value: of(x, x[value]),
    "slice": lambda value: of(x, x[:value]),
    "step": lambda value: of(x, x[::value]),
    "axis": lambda value: of(X, dx.sum(X, axis=value)),
    "order": lambda value: of(X, dx.norm(X, value)),
    "reshape": lambda value: of(X, dx.reshape(X, value)),
    "broadcast": lambda value: of(x, dx.broadcast_to(x, value)),
    "size": lambda value: of(dx.vector("y", value), dx.vector("y", value) * 2),
    "eye": lambda value: of(x, dx.eye(value) @ x),
    "ones": lambda value: of(x, dx.ones(value) * dx.sum(x)),
    "full": lambda value: of(x, dx.full(2, value) * dx.sum(x)),
    "matrix power": lambda value: of(X, dx.matrix_power(X, value)),
    "where": lambda value: of(x, dx.where(value, x, 0)),
    "concatenate": lambda value: of(x, dx.concatenate(value)),
    "block": lambda value: of(X, dx.block([[X, value]])),
    "einsum": lambda value: of(x, dx.einsum("i,i->i", x, value)),
    "transpose": lambda value: of(X, dx.transpose(X, value)),
    "clip": lambda value: of(x, dx.clip(x, value, 2)),
    "solve": lambda value: of(X, dx.solve(X, value)),
    "inputs": lambda value: dx.function("f", value, x * 2),
    "input": lambda value: dx.function("f", [value], x * 2),
    "wrt": lambda value: dx.function("f", [x], x * 2, wrt=value),
    "function": lambda value: dx.derive(value),
    "parse": lambda value: dx.parse("x", x=value),
}


def cases(generator: random.Random, count: int) -> Iterator[Case]:
    """Objects in places, and texts of sizes."""
    for _ in range(count):
        if generator.random() < 0.2:
            yield size_case(generator.choice(SIZES))
        else:
            yield case(generator.choice([*PLACES]), generator.choice(OBJECTS))


def case(place: str, value: object) -> Case:
    """An object in a place."""
    return Case(f"{place} {shown(value)}", lambda: PLACES[place](value))


def size_case(text: str) -> Case:
    """A text of sizes."""
    label = f"sizes {ascii(text)[:100]}"
    return Case(label, lambda: dx.function("f", ["x"], dx.parse("2*x", x=text)))


def everything() -> Iterator[Case]:
    """Every object in every place."""
    for place, value in itertools.product(PLACES, OBJECTS):
        yield case(place, value)
    for text in SIZES:
        yield size_case(text)
