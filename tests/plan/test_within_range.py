"""Quotients whose numerators and denominators are beyond the range of numbers, though the results
are not: float32 compared with float64, and float64 scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.scalar_values import Scalars, _alternating, _Step, divided_powers

m, n, p = dx.dims("m n p")
x, y, A, X = dx.vector("x", n), dx.vector("y", n), dx.matrix("A", n, n), dx.matrix("X", m, n)
x3, a, b = dx.vector("x", 3), dx.scalar("a"), dx.scalar("b")
COSINE = (x @ y) / (dx.norm(x) * dx.norm(y))
CASES = {
    "a quotient": ([a, b], a / b, (-25, 20)),
    "quotients": ([x, y], x / y, (-25, 20)),
    "Rayleigh": ([x, A], (x @ A @ x) / (x @ x), (-13, 13)),
    "Rayleigh's in space": ([x3], (x3 @ x3[::-1]) / (x3 @ x3), (-13, 13)),
    "cosine": ([x, y], COSINE, (-10, 13)),
    "unit vectors": ([x], x / dx.norm(x), (-13, 15)),
    "shares": ([x], dx.sum(x**2) / dx.sum(x) ** 2, (-13, 13)),
    "a projection": ([x, y], (x @ y) / (y @ y) * y, (-13, 13)),
    "rows": ([X], X / dx.norm(X, axis=1)[:, None], (-30, 30)),
}
HOMOGENEOUS = {
    "norm": ([x], dx.norm(x), (-18, 18)),
    "distance": ([x, y], dx.norm(x - y), (-18, 18)),
    "deviation": ([x], dx.std(x), (-18, 18)),
    "logarithm": ([x], dx.log(dx.norm(x)), (-18, 18)),
    "ratio": ([x, y], dx.norm(x) / dx.norm(y), (-18, 18)),
    "Rayleigh": ([x, A], (x @ A @ x) / (x @ x), (-18, 17)),
    "cosine": ([x, y], COSINE, (-18, 18)),
    "squared cosine": ([x, y], COSINE**2, (-18, 18)),
    "angle": ([x, y], dx.arccos(COSINE), (-18, 18)),
    "share": ([x, y], (x @ x) / (x @ x + y @ y), (-18, 18)),
    "third power": ([x], dx.norm(x, 3), (-12, 12)),
}
"""Functions of lengths whose first and second derivatives are compared."""
RANDOM = np.random.default_rng(5)
VALUES = {
    name: np.asarray(RANDOM.normal(size=shape) + 0.3)
    for name, shape in {"x": 3, "y": 3, "A": (3, 3), "X": (3, 3), "a": (), "b": ()}.items()
}


def function_of(name: str, cases: dict[str, Any] = CASES) -> Function:
    inputs, expression, _ = cases[name]
    return dx.function("f", inputs, expression, wrt=[leaf for leaf in inputs if leaf is not A])


def arguments(function: Function, kind: str, real: type, scale: float) -> dict[str, np.ndarray]:
    values = {leaf.name: VALUES[leaf.name] for leaf in function.inputs}
    scaled = {key: real(value if key == "A" else scale * value) for key, value in values.items()}
    if kind == "vjp":
        scaled["cotangent"] = real(np.ones([3] * function.expression.ndim))
    if kind in ("jvp", "hvp"):
        for leaf in function.derivatives.arguments(kind)[len(function.inputs) :]:
            shape = [3] * leaf.ndim
            scaled[leaf.name] = real(np.linspace(0.5, 1, 3**leaf.ndim).reshape(shape))
    return scaled


def flat(results: object) -> list[np.ndarray]:
    if isinstance(results, tuple):
        return [array for part in results for array in flat(part)]
    return [np.asarray(results)]


def check(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("name", [name for name in CASES if name != "rows"])
def test_texts(name: str) -> None:
    function, scope = function_of(name), {"np": np, "scipy": scipy}
    for kind in ("vjp", "jvp", "jacobian"):
        keys = function.derivatives.results(kind)
        formulas = [function.formula(kind, wrt=key or None, style="numpy") for key in keys]
        for exponent in CASES[name][2]:
            single, double = (
                {**scope, **arguments(function, kind, real, 10.0**exponent)}
                for real in (np.float32, np.float64)
            )
            check(*([eval(text, inputs) for text in formulas] for inputs in (single, double)), 1e-4)


def test_a_constant_beside_a_square() -> None:
    text = dx.function("f", [a], dx.arcsinh(a)).formula("gradient", style="numpy")
    assert eval(text, {"np": np, "a": 1e200}) == 1e-200


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str) -> None:
    function = function_of(name)
    module = dx.compile(function)
    for kind in ("vjp", "jvp", "jacobian"):
        for exponent in CASES[name][2]:
            values = [
                arguments(function, kind, real, 10.0**exponent) for real in (np.float32, np.float64)
            ]
            check(*(flat(getattr(module, kind)(*inputs.values())) for inputs in values), 1e-4)
        degree = 0 if name == "a projection" else -1  # of the derivative in a common scale
        for scale in (2.0**-266, 2.0**266):
            values = [arguments(function, kind, np.float64, size) for size in (scale, 1.0)]
            large, plain = (flat(getattr(module, kind)(*inputs.values())) for inputs in values)
            check(large, [array * scale**degree for array in plain], 1e-12)


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_second_derivatives(name: str) -> None:
    """Cubes of lengths are beyond the range of float32."""
    function = function_of(name, HOMOGENEOUS)
    module = dx.compile(function)
    for kind in ("gradient", "hessian", "hvp"):
        for exponent in HOMOGENEOUS[name][2]:
            single, double = (
                flat(
                    getattr(module, kind)(*arguments(function, kind, real, 10.0**exponent).values())
                )
                for real in (np.float32, np.float64)
            )
            check(single, double, 1e-4)


@pytest.mark.parametrize(
    "degrees",
    [[0, 1, -1, -1], [0, 3, 1, -2, -2], [1, 1, 2, -1, -1, -1, -1, -1, -1], [0, 1, 1, -2, -2]],
)
def test_partial_products_are_between_the_result_and_one(degrees: list[int]) -> None:
    """x y⁻², x y z⁻⁴ and so on, some of the factors in an inner loop."""
    steps = [
        _Step("times" if degree >= 0 else "div", place, degree, place % 2 * (degree == 1))
        for place, degree in enumerate(degrees)
    ]
    ordered = _alternating(steps)
    assert {*ordered} == {*steps}
    assert ordered[0].operator == "times"
    partial = np.cumsum([step.degree for step in ordered])
    assert partial.max() <= max(0, sum(degrees)) + max(degrees)
    assert partial.min() >= min(0, sum(degrees)) - 2


def test_powers_to_divide_by() -> None:
    for text in ("1", "2", "3", "7", "12", "1/2", "3/2", "5/2", "1/3", "7/3", "1.7"):
        exponent = sympy.sympify(text)
        parts = divided_powers(exponent)
        assert abs(sum(parts) - exponent) < 1e-15
        assert all(0 < 2 * part <= exponent for part in parts) or len(parts) == 1


def test_signs_stand_at_the_first_factor() -> None:
    """LLVM would distribute the sign of a product, and then reorder its factors."""
    table = Scalars()
    one, two = table.name("x", 1.0), table.name("y", 1.0)
    quotient = table.operate("div", one, table.operate("mul", two, two))
    product = table.product([table.name("c"), quotient], sympy.S.NegativeOne)
    (value,) = table.within_range([product])
    while table.entries[value][0] in ("times", "div"):
        value = table.entries[value][2][0]
    assert table.entries[value][0] == "neg"


def test_quotients_that_are_rounded_down() -> None:
    """x * (1 / 49) is less than 1 at x = 49."""
    numbers, x = np.arange(1.0, 3000), dx.vector("x", dx.dims("n"))
    outputs = {"quotient": x // 49, "rest": x % 49, "floor": dx.floor(-x / 49)}
    actual = dx.compile(dx.function("f", [x], outputs), kinds=["value"]).value(numbers)
    np.testing.assert_array_equal(actual.quotient, numbers // 49)
    np.testing.assert_array_equal(actual.rest, numbers % 49)
    np.testing.assert_array_equal(actual.floor, -numbers // 49)
