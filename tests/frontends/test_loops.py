"""Loops over time: values against loops of Python, derivatives against differences."""

from __future__ import annotations

import itertools
import pickle
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import scipy

import derivatrix as dx
from derivatrix.compiler.differentiate.recurrence import step_text
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Apply, topological
from derivatrix.compiler.plan.recurrences import with_planned_loops
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError
from tests.loops import CASES, Case, T, dense_likelihood, kalman, n
from tests.points import along, draw

LENGTHS = (0, 1, 2, 7)
v, X = dx.vector("v", n), dx.matrix("X", T, n)
Values = Mapping[str, np.ndarray]


def _sizes(length: int) -> dict[str, int]:
    return {"T": length, "n": 3, "m": 2}


def _point(function: Function, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    scale = {"general": 0.6, "positive": 0.3}
    return {
        leaf.name: scale.get(leaf.structure, 1.0) * draw(leaf, generator, sizes)
        for leaf in function.inputs
    }


def _differences(
    function: Callable[[Values], Any], values: Values, name: str, structure: str
) -> np.ndarray:
    """The Jacobian by an input, from differences of order 4 along its structure."""
    array, step = values[name], 1e-3
    columns = []
    for at in np.ndindex(array.shape):
        direction = np.zeros_like(array)
        direction[at] = 1
        if structure == "spd":
            direction = (direction + direction.T) / 2
        f = [function({**values, name: array + k * step * direction}) for k in (-2, -1, 1, 2)]
        columns.append((f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step))
    jacobian = np.array(columns).reshape(array.shape + np.shape(function(values)))
    return (
        np.moveaxis(jacobian, range(array.ndim), range(-array.ndim, 0)) if array.ndim else jacobian
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
@pytest.mark.parametrize("length", LENGTHS)
def test_value(case: Case, length: int) -> None:
    sizes = _sizes(length)
    values = _point(case.function, sizes)
    expected = case.value(**values)
    (value,) = case.function.derivatives.results("value").values()
    text = eval(case.function.declaration, {"np": np, "scipy": scipy, **values})
    np.testing.assert_allclose(evaluate(value, values, sizes), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(text, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
@pytest.mark.parametrize("length", (0, 1, 3))
def test_first_derivatives(case: Case, length: int) -> None:
    function, sizes = case.function, _sizes(length)
    values = _point(function, sizes)
    generator = np.random.default_rng(3)
    structures = {leaf.name: leaf.structure for leaf in function.inputs}
    results = {kind: function.derivatives.results(kind) for kind in ("jacobian", "jvp", "vjp")}
    shape = np.shape(case.value(**values))
    cotangent = generator.normal(size=shape)
    tangents = {
        name: along(function.inputs[position], generator.normal(size=values[name].shape))
        for position, name in enumerate(structures)
    }
    named = {f"tangent_{name}": tangent for name, tangent in tangents.items()}
    expected_jvp = np.zeros(shape)
    for name, structure in structures.items():
        jacobian = evaluate(results["jacobian"][name,], values, sizes)
        expected = _differences(lambda at: case.value(**at), values, name, structure)
        np.testing.assert_allclose(jacobian, expected, rtol=1e-7, atol=1e-7)
        vjp = evaluate(results["vjp"][name,], {**values, "cotangent": cotangent}, sizes)
        np.testing.assert_allclose(
            vjp, np.tensordot(cotangent, jacobian, len(shape)), rtol=1e-10, atol=1e-10
        )
        expected_jvp += np.tensordot(jacobian, tangents[name], tangents[name].ndim)
    jvp = evaluate(results["jvp"][()], {**values, **named}, sizes)
    np.testing.assert_allclose(jvp, expected_jvp, rtol=1e-10, atol=1e-10)


SCALAR = [case for case in CASES if not case.function.expression.shape]


@pytest.mark.parametrize("case", SCALAR, ids=lambda case: case.function.name)
def test_second_derivatives(case: Case) -> None:
    function, sizes = case.function, _sizes(2)
    values = _point(function, sizes)
    gradient, hessian = (function.derivatives.results(kind) for kind in ("gradient", "hessian"))
    structures = {leaf.name: leaf.structure for leaf in function.inputs}
    for row, column in itertools.product(structures, repeat=2):
        expected = _differences(
            lambda at, row=row: evaluate(gradient[row,], at, sizes),
            values,
            column,
            structures[column],
        )
        block = evaluate(hessian[row, column], values, sizes)
        np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-6)


def _observations(length: int) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    sizes = _sizes(length)
    return sizes, _point(kalman(), sizes)


@pytest.mark.parametrize("length", (1, 4))
def test_kalman_filter_is_the_likelihood_of_all_observations(length: int) -> None:
    function = kalman()
    sizes, values = _observations(length)
    (value,) = function.derivatives.results("value").values()
    assert evaluate(value, values, sizes) == pytest.approx(dense_likelihood(**values), rel=1e-11)
    gradient = function.derivatives.results("gradient")
    for leaf in function.inputs:
        expected = _differences(
            lambda at: dense_likelihood(**at), values, leaf.name, leaf.structure
        )
        result = evaluate(gradient[leaf.name,], values, sizes)
        np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-8)


def test_hessian_of_the_kalman_filter() -> None:
    function = kalman(wrt=["R"])
    sizes, values = _observations(3)
    results = function.derivatives.results
    expected = _differences(
        lambda at: evaluate(results("gradient")["R",], at, sizes), values, "R", "spd"
    )
    hessian = evaluate(results("hessian")["R", "R"], values, sizes)
    np.testing.assert_allclose(hessian, expected, rtol=1e-7, atol=1e-7)


def test_formulas_are_recursions() -> None:
    """The adjoint recursion reads the states; 1 - tanh(z)² is written with them, not with z."""
    lines = CASES[0].function.derivatives.equation_lines("gradient")
    gradient, *definitions = [line.strip() for line in lines[0].splitlines()]
    assert gradient == "∇_W y = ((1 − h[1:, :]∘²) ⊙ λ[1:, :])ᵀ h[:T, :]"
    assert "where h[t + 1] = tanh(U X[t] + W h[t])" in definitions
    assert "h[0] = h₀" in definitions
    assert "λ[t] = 2 [t ≥ 1] h[t] + Wᵀ ((1 − h[t + 1]∘²) ⊙ λ[t + 1])" in definitions
    latex = CASES[0].function.formula("gradient", "W", "latex")
    assert r"h_{t + 1} = \tanh\left(U X_{t} + W h_{t}\right)" in latex
    assert "h_{0} =" not in latex  # the start h0 is written as the state at time 0
    by_index = CASES[0].function.formula("value", style="index")
    assert "h[t + 1,k] = tanh(Σ_i U[k,i] X[t,i] + Σ_i W[k,i] h[t,i]), h[0,k] = h₀[k]" in by_index


def test_formulas_of_stacked_and_of_nested_loops() -> None:
    """A loop for each entry has indices for it; a loop in a loop has another time."""
    hessian = CASES[0].function.formula("hessian", ("W", "U"))
    assert "dh[p,q,t + 1] = V₂[t,p] X[t,q] e_p + t₁ ⊙ (W dh[p,q,t,:]), dh[p,q,0] = 0" in hessian
    assert re.search(r"dλ\[(\w,\w),T\] = 2 \[T ≥ 1\] dh\[\1,T,:\]", hessian)
    nested = CASES[8].function.formula("value")
    assert "g[s + 1] = tanh(W g[s]) + h[t] ⊙ X[t,s,:], g[0] = h[t]" in nested
    assert "h[t + 1] = g[m, :]" in nested
    for style in ("unicode", "latex", "index"):
        assert "scan" not in CASES[8].function.formula("gradient", "W", style)


@pytest.mark.parametrize(("case", "wrt"), [(CASES[0], "W"), (CASES[0], "X"), (CASES[1], "h0")])
def test_derivation_names_the_recursions_and_their_rules(case: Case, wrt: str) -> None:
    """The differential is a recursion; the gradient follows by its transpose."""
    steps = case.function.steps(wrt)
    (forward,) = (step for step in steps if "differential of scan: dh[t + 1] =" in step.reason)
    (backward,) = (step for step in steps if "λ[t] = A[t]ᵀ λ[t + 1] + c[t]" in step.reason)
    assert steps.index(forward) < steps.index(backward)
    assert "dh[" in forward.text
    assert "λ[" not in forward.text
    assert "λ[" in backward.text
    assert "dh[" not in backward.text


def test_letters_of_times_are_no_letters_of_states() -> None:
    last, _ = dx.scan(lambda t, s: (t + s, None), v, X)
    function = dx.function("sums", [v, X], last)
    assert "t[s + 1] = X[s] + t[s]" in function.formula("value")
    starts = dict.fromkeys("tsrkuvw", v)
    last, _ = dx.scan(lambda c, x: ({name: a * x for name, a in c.items()}, None), starts, X)
    function = dx.function("many", [v, X], last["t"])
    assert "t[t1 + 1] = t[t1] ⊙ X[t1]" in function.formula("value")


def test_formulas_of_a_reversed_loop_and_of_several_carries() -> None:
    """Each carry has an equation, also where the result depends on one of them only."""
    backwards, chebyshev = (case.function for case in (CASES[1], CASES[3]))
    assert "h[t] = h[t + 1] ⊙ X[t] + sin(W h[t + 1])" in backwards.formula("value")
    assert "h[T] = h₀" in backwards.formula("value")
    text = chebyshev.formula("value")
    assert text.count("[t + 1] = ") == 2
    assert text.count("[0] = ") == 2


def test_steps_of_kernels_are_written_as_formulas() -> None:
    """Kernels name what they compute before the loop; names of terms differ from inputs."""

    def steps(case: Case, kind: str, wrt: str) -> set[str]:
        nodes = with_planned_loops([case.function.derivatives.results(kind)[wrt,]])
        applied = [node for node in topological(nodes) if isinstance(node, Apply)]
        return {step_text(node.operation.loop) for node in applied if node.operation.loop}

    forward, backward = "h = tanh(a + W h)", "λ = b + Wᵀ (λ ⊙ (1 − h_next∘²))"
    assert steps(CASES[0], "gradient", "W") == {forward, backward}
    assert "λ = b₁ + b λ" in steps(CASES[2], "gradient", "b")
    assert "g = h ⊙ u + tanh(g Wᵀ)" in steps(CASES[8], "gradient", "W")


def test_function_with_a_loop_is_called_and_pickled() -> None:
    function = CASES[0].function
    assert pickle.loads(pickle.dumps(function)) == function
    X, W = dx.matrix("V", 4, 2), dx.matrix("W", 3, 3)
    U, start = dx.matrix("U", 3, 2), dx.vector("start", 3)
    called = dx.function("called", [X, W, U, start], function(2 * W, U, X, start))
    generator = np.random.default_rng(1)
    values = {leaf.name: draw(leaf, generator, {}) for leaf in called.inputs}
    V, W_value, U_value, h0 = (values[name] for name in ("V", "W", "U", "start"))
    expected = CASES[0].value(2 * W_value, U_value, V, h0)
    assert evaluate(called.expression, values, {}) == pytest.approx(expected, rel=1e-13)


def test_text_runs_a_loop_with_two_carries_once() -> None:
    text = kalman().declaration
    assert text.count("np.vectorize") == 1
    step, _, after = text.partition("(*states[-1]")
    assert step.count("np.linalg.inv") == after.count("np.linalg.inv") == 1
    assert "optimize" not in text


def test_loop_of_a_derivative() -> None:
    """Gradient descent: the step is a derivative; its own derivative by the rate."""
    A, x0, rate = dx.matrix("A", n, n), dx.vector("x0", n), dx.scalar("rate")
    x = dx.vector("x", n)
    slope = dx.function("slope", [x, A], dx.grad(dx.sum(dx.cos(A @ x)), x))
    last, _ = dx.scan(lambda x, _: (x - rate * slope(x, A), None), x0, length=3)
    expression = dx.grad(dx.sum(last**2), rate)
    function = dx.function("trained", [A, x0, rate], expression)
    sizes = {"n": 3}
    values = _point(function, sizes)

    def loss(values: Values) -> Any:
        x = values["x0"]
        for _ in range(3):
            x = x + values["rate"] * values["A"].T @ np.sin(values["A"] @ x)
        return (x**2).sum()

    expected = _differences(loss, values, "rate", "general")
    np.testing.assert_allclose(evaluate(function.expression, values, sizes), expected, rtol=1e-9)


def test_symbols_of_a_step_stay_in_it() -> None:
    states: list[dx.Array] = []

    def step(h: dx.Array, x: dx.Array) -> tuple[dx.Array, None]:
        states.append(h)
        return h * x, None

    h0 = dx.vector("h0", n)
    dx.scan(step, h0, X)
    with pytest.raises(dx.DeclarationError, match=r"f: .* the step of a scan, 'h', which exists"):
        dx.function("f", [h0], 2 * states[0])


@pytest.mark.parametrize("axis", (0, 1, -1))
def test_running_product(axis: int) -> None:
    function = dx.function("products", [X], np.cumprod(X, axis))
    values = {"X": np.array([[0.5, 0.0, 2.0], [1.5, -1.0, 0.3]])}
    sizes = {"T": 2, "n": 3}
    expected = np.cumprod(values["X"], axis)
    np.testing.assert_array_equal(evaluate(function.expression, values, sizes), expected)
    (jacobian,) = function.derivatives.results("jacobian").values()
    differences = _differences(lambda at: np.cumprod(at["X"], axis), values, "X", "general")
    np.testing.assert_allclose(evaluate(jacobian, values, sizes), differences, atol=1e-9)


@pytest.mark.parametrize("axis", (0, 1, -1))
def test_running_log_of_sums_of_exponentials(axis: int) -> None:
    function = dx.function("sums", [X], dx.logcumsumexp(X, axis))
    values = {"X": np.array([[0.5, -800.0, 2.0], [1.5, 700.0, -np.inf], [-3.0, 710.0, 1.0]])}
    sizes = {"T": 3, "n": 3}
    expected = np.logaddexp.accumulate(values["X"], axis)
    np.testing.assert_array_equal(evaluate(function.expression, values, sizes), expected)
    values["X"] = np.array([[0.5, -8.0, 2.0], [1.5, 7.0, -5.0], [-3.0, 7.1, 1.0]])
    (jacobian,) = function.derivatives.results("jacobian").values()
    differences = _differences(
        lambda at: np.logaddexp.accumulate(at["X"], axis), values, "X", "general"
    )
    np.testing.assert_allclose(evaluate(jacobian, values, sizes), differences, atol=1e-9)


P, A, Q = dx.matrix("P", n, n, "spd"), dx.matrix("A", n, n), dx.matrix("Q", n, n, "spd")
KEPT: list[tuple[Callable[[Any], Any], str]] = [
    (lambda P: A @ P @ A.mT + Q, "spd"),
    (lambda P: dx.inv(dx.inv(P) + Q), "spd"),
    (lambda P: A @ (P - P @ dx.inv(P + Q) @ P) @ A.mT + Q, "symmetric"),
    (lambda P: P @ A, "general"),
]


@pytest.mark.parametrize(("step", "structure"), KEPT)
def test_carry_has_the_structure_that_steps_are_known_to_keep(
    step: Callable[[Any], Any], structure: str
) -> None:
    last, _ = dx.scan(lambda P, _: (step(P), None), P, length=3)
    (loop,) = {node.operation.loop for node in topological([last.node]) if isinstance(node, Apply)}
    assert loop is not None
    assert loop.carries[0].structure == structure


def test_carry_is_a_named_tuple_and_step_has_defaults() -> None:
    pair = namedtuple("pair", "mean count")

    def step(carry: Any, x: Any, rate: float = 0.5) -> Any:
        return pair(carry.mean + rate * (x - carry.mean), carry.count + 1), None

    last, _ = dx.scan(step, pair(v, 0), X)
    function = dx.function("averages", [v, X], last.mean * last.count)
    sizes = {"T": 2, "n": 3}
    values = _point(function, sizes)
    mean = values["v"]
    for x in values["X"]:
        mean = (mean + x) / 2
    np.testing.assert_allclose(evaluate(function.expression, values, sizes), 2 * mean, rtol=1e-14)


def test_keys_of_a_carry_may_be_in_any_order() -> None:
    def step(carry: Any, x: Any) -> Any:
        return {"b": ({"d": carry["a"], "c": x},), "a": carry["a"] + carry["b"][0]["c"]}, None

    last, _ = dx.scan(step, {"a": v, "b": ({"c": 2 * v, "d": 0 * v},)}, X)
    values = {"v": np.array([1.0, 2.0, 3.0]), "X": np.arange(6.0).reshape(2, 3)}
    parts = [last["a"], last["b"][0]["c"], last["b"][0]["d"]]
    a, c, d = (evaluate(part.node, values, {"T": 2, "n": 3}) for part in parts)
    np.testing.assert_allclose(a, 3 * values["v"] + values["X"][0])
    np.testing.assert_allclose(c, values["X"][1])
    np.testing.assert_allclose(d, 3 * values["v"])


def test_nan_passes_through() -> None:
    case = CASES[0]
    sizes = _sizes(3)
    values = _point(case.function, sizes)
    values["X"][1] = np.nan
    assert np.isnan(evaluate(case.function.expression, values, sizes))


def _leaking() -> None:
    kept: list[Any] = []

    def step(h: Any, x: Any) -> Any:
        kept.append(h)
        return h + x, None

    dx.scan(step, v, X)
    dx.scan(lambda g, y: (g + kept[0] * y, None), v, X)


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: dx.scan(lambda h, x: (dx.outer(h, x), None), v, X),
        ShapeError,
        r"h has shape \(n, n\)",
    ),
    (lambda: dx.scan(lambda h, x: ((h, x), None), v, X), DeclarationError, "another structure"),
    (
        lambda: dx.scan(lambda h, x: h, v, X),
        DeclarationError,
        r"returns Array\(h, shape=\(n,\)\), no pair \(carry, y\)",
    ),
    (
        lambda: dx.scan(lambda h, x: (dx.fixed_point(h * x, h, h), x), v, X),
        DeclarationError,
        "h is a symbol of the step of a scan, and cannot be an unknown",
    ),
    (
        lambda: dx.scan(lambda h, x: (dx.function("g", [h], h * h).derivative("jvp"), x), v, X),
        DeclarationError,
        "h is a symbol of the step of a scan, and cannot be an input",
    ),
    (lambda: dx.scan(lambda h, x: (h, x), v), DeclarationError, "neither xs nor a length"),
    (lambda: dx.scan(lambda h, x: (h, h), v, length=-1), DeclarationError, "no size"),
    (lambda: dx.scan(lambda h, x: (h, h), v, X, length=3), ShapeError, "lengths differ"),
    (lambda: dx.scan(lambda h, x: (h, h), v, (X, v)), ShapeError, "lengths differ"),
    (lambda: dx.scan(lambda h, x: (h, h), v, dx.scalar("s")), ShapeError, "no axis to loop over"),
    (lambda: dx.scan(lambda h: (h, h), v, X), DeclarationError, "two arguments"),
    (lambda: dx.scan(3, v, X), DeclarationError, "step is a function"),  # type: ignore[arg-type]
    (lambda: dx.scan(lambda h, x: (h, h), object(), X), UnsupportedError, "init"),
    (
        lambda: dx.scan(lambda h, x: (h @ X, None), v, X),
        ShapeError,
        r"scan: <lambda>: h @ X: h has shape \(n,\)",
    ),
    (lambda: dx.scan(lambda h, x: (h, h), v, [X, X]), DeclarationError, "xs is a list|x is a list"),
    (lambda: dx.scan(lambda h, x: (h, h), v, X, reverse="no"), DeclarationError, "True or False"),  # type: ignore[arg-type]
    (lambda: dx.scan(lambda h, x: (h, h), v, length=2.5), DeclarationError, "2.5 is no size"),
    (
        lambda: dx.scan(lambda c, x: ({"a": x}, None), {"a": v, "b": v}, X),
        DeclarationError,
        "another structure than init",
    ),
    (_leaking, DeclarationError, "symbol that exists only within the step"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert str(caught.value).startswith("scan: ")


def test_symbol_of_a_step_is_no_input() -> None:
    kept: list[Any] = []
    dx.scan(lambda h, x: (kept.append(h) or h + x, None), v, X)
    with pytest.raises(DeclarationError, match="leaked"):
        dx.function("leaked", [v], kept[0] + v)


def test_axes_that_were_merged() -> None:
    product = dx.cumprod(dx.ravel(X))
    values = np.linspace(0.5, 1.5, 6).reshape(2, 3)
    actual = evaluate(product.node, {"X": values}, {"T": 2, "n": 3})
    np.testing.assert_allclose(actual, np.cumprod(values), rtol=1e-15)
