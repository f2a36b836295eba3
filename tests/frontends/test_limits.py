"""Expressions that are too deep, too long or too large are refused soon, with a clear error."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, output_names
from derivatrix.compiler.frontends.limits import MAX_DEPTH, MAX_OPERATIONS, stated_depth
from derivatrix.compiler.ir.interpret import evaluate

n, k = dx.dims("n k")
x, X = dx.vector("x", n), dx.matrix("X", n, n)
HUGE = 10**5000


def repeated(step: Callable[[Any, int], Any], times: int) -> Any:
    return reduce(step, range(times), x)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: dx.function("f", [x], repeated(lambda v, i: dx.tanh(v), 500)), f"at most {MAX_DEPTH}"),
    (
        lambda: dx.function("f", [x], repeated(lambda v, i: v + dx.exp(i * x), MAX_OPERATIONS)),
        f"at most {MAX_OPERATIONS} are compiled",
    ),
    (lambda: dx.matrix_power(X, 10**9), "beyond 1000"),
    (lambda: dx.fractional_matrix_power(X, 2000), r"beyond 1000; .* expm\(exponent \* logm\(A\)\)"),
    (lambda: dx.roll(x, n - k), "roll: the sign of the shift n - k|roll: the sign of the shift -k"),
    (lambda: dx.matrix_power(X, HUGE), "thousands of digits"),
    (lambda: dx.vector("y", HUGE), "too large for a size"),
    (lambda: dx.vector("y", 2**63), "too large for a size"),
    (lambda: dx.vector("y", n**100), "too large for a size"),
    (lambda: dx.vector("y", (n + k + 1) ** 60), "too large for a size"),
    (lambda: dx.vector("y", sympy.ImmutableMatrix([[1]])), "an integer or a symbol"),
    (lambda: dx.tensor("y", *[2] * 40), "40 axes"),
    (lambda: dx.vector(HUGE, 2), "thousands of digits"),
    (lambda: dx.vector("y", 2, np.array([1, 2])), "unknown structure"),
    (lambda: dx.parse("n^n", x="n"), "a power of a number"),
    (lambda: dx.parse("x*9^9^9^9", x="n"), "no finite number"),
    (lambda: dx.parse("x*2^10000000", x="n"), "a power of a number"),
    (lambda: dx.parse("x*((n+1)^60*(m+n)^60)", x="n m"), "too many terms"),
    (lambda: dx.parse("+".join("x" * 60_000), x="n"), "letters; at most"),
    (lambda: dx.parse("x", x="/2*".join(f"a{i}" for i in range(40))), "a whole number"),
    (lambda: dx.parse("x", x="n*(n-1)*(n-2)*(n-3)/5"), "a whole number"),
    (lambda: dx.parse("x", **{"y" * 10_000: "n"}), "10000 letters"),
    (lambda: dx.parse("x", x="n" * 10_000), "cannot name a size"),
    (lambda: dx.asarray(sympy.Symbol("\ud800")), "must be a Python identifier"),
    (lambda: x[[[1], [1, 2]]], "ragged"),
    (lambda: dx.sum(x, axis=HUGE), "out of bounds"),
    (lambda: dx.norm(x, HUGE), "has no rule"),
    (lambda: dx.norm(x, np.array([1, 2])), "has no rule"),
    (lambda: dx.reshape(x, np.array([1, None])), "an integer or a symbol"),
    (lambda: dx.transpose(X, 0), "a list of axes"),
    (lambda: dx.concatenate(3), "a list of arrays"),
    (lambda: dx.function("f", [x], x, wrt=np.array("x")), "a list of inputs"),
    (lambda: dx.function("f", [x], x, wrt=[HUGE]), "thousands of digits"),
    (lambda: dx.function("f", [x], x).formula("vjp", 1), "there is no vjp by '1'"),
    (lambda: dx.function("f", [x], x).formula(np.array([1, 2])), "there is no array"),
    (lambda: dx.function("f", [x], x).formula("vjp", style=[]), "no style"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(dx.DerivatrixError, match=message) as raised:
        make()
    assert len(str(raised.value)) < 1000


def test_recursion_that_is_too_deep_is_said_of_the_function() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(dx.UnsupportedError, match=r"^f: "), stated_depth("f"):
        deeper()


def test_a_sympy_expression_that_is_too_deep() -> None:
    expression = sympy.Symbol("s")
    for _ in range(300):
        expression = sympy.tanh(expression, evaluate=False)
    with pytest.raises(dx.UnsupportedError, match="deep"):
        dx.function("f", ["s"], expression)


def test_long_sums_are_derived() -> None:
    """Nested sums are flattened once, not once for each level."""
    function = dx.function("f", [x], repeated(lambda v, i: v + x, 2499))
    assert function.formula("value") == "2500 x"
    assert function.formula("vjp") == "2500 ȳ"


@pytest.mark.parametrize("step", [lambda v, i: v + v, lambda v, i: v * v])
def test_what_is_shared_is_not_written_out(step: Callable[[Any, int], Any]) -> None:
    assert len(generate(dx.function("f", [x], repeated(step, 12))).text) < 60_000


def test_results_have_names_of_their_own() -> None:
    assert output_names([(), ("value",)]) == {(): "out_value", ("value",): "out_value_"}
    assert len(set(output_names([("a", "b_c"), ("a_b", "c")]).values())) == 2
    value = dx.vector("value", n)
    module = dx.compile(dx.function("f", [value], dx.sum(value * value)))
    value_found, gradient = module.value_and_gradient(np.ones(3))
    assert value_found == 3 and gradient.tolist() == [2, 2, 2]


def test_inputs_may_have_all_the_letters_that_results_are_called_by() -> None:
    inputs = [dx.vector(name, n) for name in (*"YZFGHPQRUVW", "Value")]
    function = dx.function("f", inputs, sum(inputs, dx.zeros(n)))
    assert function.formula("vjp", "Y") == "ȳ₁"


def test_an_empty_slice_has_derivatives() -> None:
    function = dx.function("f", [x], x[:0])
    generate(function)
    (vjp,) = function.derivatives.results("vjp").values()
    np.testing.assert_array_equal(evaluate(vjp, {"Y_bar": np.ones(0)}, {"n": 3}), np.zeros(3))
