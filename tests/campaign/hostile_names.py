"""Names that are no names, in all places that take one."""

from __future__ import annotations

import keyword
import random
from collections.abc import Callable, Iterator

import numpy as np
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.local_names import RESERVED
from tests.campaign.hostile_case import CODE, Case

FIXED = (
    *CODE,
    *("", " ", "x'", 'x"', "x\\", "x\ny", 'x"""', "'''", "{{x}}", "{%x%}", "{x}", "%s", "%(x)s"),
    *(
        "../x",
        "a/b",
        "/etc/passwd",
        "C:\\x",
        "x\0",
        "x.py",
        "x;y",
        "x#",
        "x y",
        "\ud800",
        "\x1b[2J",
    ),
    *("__class__", "__name__", "__builtins__", "__import__", "_", "_x", "__"),
    *("print", "list", "type", "sum", "min", "eval", "exec", "open", "breakpoint"),
    *("np", "numba", "scipy", "math", "out", "batch", "cotangent", "tangent", "tangent_x", "out_x"),
    *(
        "value",
        "gradient",
        "vjp",
        "jacobian",
        "vjp_kernel",
        "check_vjp_kernel",
        "out_value",
        "dtype",
    ),
    *("self", "cls", "x_bar", "X_bar", "t1", "i", "I", "E", "S", "N", "pi", "eye", "ones", "tr"),
    *("ﬁ", "ℌ", "µ", "ſ", "ª", "𝐱", "х", "é", "e\u0301", "x\u200b", "\u202ex", "℘", "x·y"),
    *("x" * 60, "x" * 61, "x" * 10_000, "é" * 40, "1", "2n", "nan", "inf", "0x10", "1e5", "n+1"),
)
OTHERS = (
    1,
    1.5,
    None,
    b"x",
    ("x",),
    float("nan"),
    10**5000,
    np.str_("z"),
    sympy.Symbol("q"),
    [],
    {},
)
"""Values that are no text."""
LETTERS = "xyn_0'\"\\\n\r\t{}%/.;#()[]=:ﬁ𝐱·\u0301\u200bé"


def drawn(generator: random.Random, texts: bool) -> object:
    """A hostile name; only a text where `texts` asks for one."""
    kind = generator.random()
    if kind < 0.15 and not texts:
        return generator.choice(OTHERS)
    if kind < 0.3:
        return generator.choice((*keyword.kwlist, *keyword.softkwlist, *sorted(RESERVED)))
    if kind < 0.5:
        return "".join(generator.choices(LETTERS, k=generator.randint(1, 6)))
    return generator.choice(FIXED)


def doubled(x: object) -> object:
    """The value of most functions here."""
    return 2 * np.sum(np.asarray(x) ** 2)


def of_vector(vector: object) -> Function:
    return dx.function("f", [vector], 2 * dx.sum(vector * vector))  # type: ignore[operator]


def symbol(name: str, **assumptions: bool) -> Function:
    """A SymPy symbol as the input, whose assumptions may not be so."""
    made = sympy.Symbol(name, **assumptions)
    return dx.function("f", [made], 2 * made**2)


def matrix_symbol(name: str) -> Function:
    made = sympy.MatrixSymbol(name, 3, 3)
    return dx.function("f", [made], 2 * sympy.Trace(made * made.T))


def normal_pair(name: str) -> Function:
    """Two inputs whose names may be one after Python has read them."""
    one, two = sympy.Symbol(name), sympy.Symbol("fi")
    return dx.function("f", [one, two], one * two)


ANY: dict[str, Callable[..., object]] = {
    "function": lambda name: dx.function(
        name, [dx.vector("x", "n")], 2 * dx.sum(dx.vector("x", "n") * dx.vector("x", "n"))
    ),
    "input": lambda name: of_vector(dx.vector(name, "n")),
    "size": lambda name: of_vector(dx.vector("x", name)),
    "dims": lambda name: of_vector(dx.vector("x", dx.dims(name))),
    "structure": lambda name: of_vector(dx.vector("x", "n", name)),
    "parse": lambda name: dx.function("f", ["x"], dx.parse(name, x="n")),
    "parse size": lambda name: dx.function("f", ["x"], 2 * dx.sum(dx.parse("x.*x", x=name))),
    "wrt": lambda name: dx.function("f", [dx.vector("x", 2)], dx.vector("x", 2), wrt=[name]),
    "inputs": lambda name: dx.function("f", name, dx.vector("x", 2)),
    "batch": lambda name: dx.function("f", [dx.vector("x", 2)], dx.vector("x", 2), batch=name),
    "kind": lambda name: of_vector(dx.vector("x", "n")).formula(name),
    "formula wrt": lambda name: of_vector(dx.vector("x", "n")).formula("vjp", name),
    "style": lambda name: of_vector(dx.vector("x", "n")).formula("vjp", style=name),
    "derivative": lambda name: of_vector(dx.vector("x", "n")).derivative(name),
    "einsum": lambda name: dx.einsum(name, dx.vector("x", "n"), dx.vector("x", "n")),
}
"""Places that take any object, and what they make of it."""
TEXTS: dict[str, Callable[[str], object]] = {
    "symbol": symbol,
    "symbol, positive integer": lambda name: symbol(name, integer=True, positive=True),
    "symbol, negative": lambda name: symbol(name, negative=True),
    "symbol, imaginary": lambda name: symbol(name, imaginary=True),
    "matrix symbol": matrix_symbol,
    "matrix symbol size": lambda name: dx.function(
        "f", ["M"], sympy.Trace(sympy.MatrixSymbol("M", sympy.Symbol(name), sympy.Symbol(name)))
    ),
    "pair": normal_pair,
    "parse input": lambda name: dx.function(
        "f", [name], dx.parse(f"2*sum({name}.^2)", **{name: "n"})
    ),
    "parse input unused": lambda name: dx.parse("2", **{name: "n"}),
}
"""Places that take texts alone; others are refused by SymPy or Python itself."""
KNOWN = (
    "function",
    "input",
    "size",
    "dims",
    "parse size",
    "symbol",
    "matrix symbol",
    "parse input",
)
"""Places whose functions are twice the sum of squares."""


def cases(generator: random.Random, count: int) -> Iterator[Case]:
    """Names in places."""
    for _ in range(count):
        place = generator.choice((*ANY, *TEXTS))
        name = drawn(generator, place in TEXTS)
        yield case(place, name)


def case(place: str, name: object) -> Case:
    """A name in a place."""
    function = ANY.get(place) or TEXTS[place]
    known = doubled if place in KNOWN else None
    return Case(f"{place} {shown(name)}", lambda: function(name), known)  # type: ignore[arg-type]


def shown(value: object) -> str:
    """The value for a report."""
    try:
        return ascii(value)[:80]
    except ValueError:
        return f"a {type(value).__name__} of thousands of digits"
