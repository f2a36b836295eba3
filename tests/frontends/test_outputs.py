"""Functions with several outputs, against the functions of the single outputs."""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate_all
from tests.points import SIZES, draw
from tests.strategies import LEAVES, REGISTRY, arity, leaf_values

n, m = dx.dims("n m")
A, B = dx.matrix("A", m, n), dx.matrix("B", m, n)
x, b, s = dx.vector("x", n), dx.vector("b", m), dx.scalar("s")
X, S = dx.matrix("X", n, n), dx.matrix("S", n, n, "spd")
residual = A @ x - b
fit = dx.function("fit", [A, x, b], {"residual": residual, "loss": dx.sum(residual**2)})
layer = dx.function(
    "layer", [A, x, b], {"scores": A @ x + b, "squashed": dx.tanh(A @ x)}, batch=[x]
)
normal = dx.function(
    "normal", [S, x], {"whitened": dx.solve(S, x), "density": -dx.logdet(S) - x @ dx.solve(S, x)}
)
FUNCTIONS = (fit, layer, normal)


def results(fn: Function, kind: str, values: dict[str, np.ndarray]) -> dict[Any, np.ndarray]:
    nodes = fn.derivatives.batched(kind)
    return dict(zip(nodes, evaluate_all([*nodes.values()], values, SIZES), strict=True))


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.name)
def test_each_output_has_the_derivatives_that_it_has_alone(fn: Function) -> None:
    random = np.random.default_rng(0)
    leaves = [*fn.derivatives.arguments("vjp"), *fn.derivatives.arguments("jvp")]
    values = {leaf.name: draw(leaf, random) for leaf in leaves}
    together = {kind: results(fn, kind, values) for kind in fn.kinds}
    sums = {key: np.zeros_like(array) for key, array in together["vjp"].items()}
    for name, single in zip(fn.output_names, fn.by_output, strict=True):
        values["cotangent"] = values[f"cotangent_{name}"]
        for kind in ("value", "jvp", "jacobian"):
            for key, array in results(single, kind, values).items():
                np.testing.assert_allclose(together[kind][name, *key], array, atol=1e-12)
        for key, array in results(single, "vjp", values).items():
            sums[key] += array
    for key, array in together["vjp"].items():
        np.testing.assert_allclose(array, sums[key], atol=1e-12)


@pytest.mark.parametrize("rule", REGISTRY, ids=lambda rule: f"{rule.operation.name}{rule.output}")
def test_every_operation_as_one_of_two_outputs(rule: Any) -> None:
    inputs = [Array(LEAVES[name]) for name in "MHLO"[: arity(rule)]]
    first = rule(*inputs)
    alone = dx.function("alone", inputs, first, wrt=inputs[:1])
    both = dx.function("both", inputs, {"first": first, "second": inputs[0] * 2}, wrt=inputs[:1])
    values = leaf_values(3)
    for kind in ("value", "jacobian"):
        expected = alone.derivatives.results(kind)
        actual = both.derivatives.results(kind)
        for key, node in expected.items():
            pair = evaluate_all([actual["first", *key], node], values, {})
            np.testing.assert_allclose(pair[0], pair[1], rtol=1e-9, atol=1e-9)


def test_shared_parts_are_computed_once() -> None:
    """One factorisation serves the values, and one the VJP, of both outputs."""
    text = generate(normal).text
    kernels = text.split("@generated.kernel")
    for name in ("value_kernel", "vjp_kernel"):
        (kernel,) = [part for part in kernels if f"def {name}(" in part]
        assert kernel.count("cholesky_factor(") == 1


def test_formulas_name_the_outputs() -> None:
    assert fit.formula("value", output="loss") == "‖A x − b‖²"
    assert fit.formula("jacobian", "x", output="residual") == "A"
    assert "∂residual/∂x = A" in str(fit.derivatives)
    assert "residual_bar" in fit.formula("vjp", "x")
    assert fit.formula("vjp", "x", style="latex").count(r"\overline{\mathrm{") >= 1
    assert str(fit.steps("x", output="loss")).splitlines()[-1].startswith("∇")


def test_functions_of_one_output() -> None:
    only = dx.function("both", [x, b, s], {"a": s * x, "b_": s * b})["a"]
    assert [leaf.name for leaf in only.inputs] == ["x", "s"] and only.name == "both_a"
    assert only.wrt == ("x", "s")


def test_a_named_tuple_declares_outputs() -> None:
    class State(NamedTuple):
        position: Any
        velocity: Any

    fn = dx.function("state", [x, s], State(x * s, x + s))
    assert fn.output_names == ("position", "velocity")
    with pytest.raises(AttributeError):
        fn(x, 1.0).acceleration  # noqa: B018
    assert fn(2 * x, 1.0).velocity.shape == (n,)


def test_a_list_of_scalars_is_one_array() -> None:
    fn = dx.function("stacked", [s], [s, s**2])
    assert fn.output_names == () and fn.expression.shape == (2,)


def test_the_derivative_has_all_outputs() -> None:
    slope = fit.derivative("x", "x")
    assert slope.output_names == fit.output_names
    assert slope.formula("value", output="loss") == "2 Aᵀ A"
    assert slope.formula("value", output="residual") == "0"


def test_pickles_are_equal() -> None:
    assert pickle.loads(pickle.dumps(fit)) == fit


def test_texts_of_assignments() -> None:
    outputs = dx.parse("r = A*x - b; loss = r'*r;", A="m n", x="n", b="m")
    fn = dx.function("fit", ["A", "x", "b"], {"residual": outputs["r"], "loss": outputs["loss"]})
    assert str(fn.derivatives) == str(fit.derivatives)
    assert dx.parse("[1, 2; 3, 4] * x", x="2").shape == (2,)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: dx.function("f", [x], {}), "f: a function needs at least one output"),
    (lambda: dx.function("f", [x], {"x": x * 2}), "f: 'x' names both an input and an output"),
    (lambda: dx.function("f", [x], {"a b": x * 2}), "f: the name of an output must be a Python"),
    (lambda: dx.function("f", [x], {"class": x * 2}), "f: 'class' cannot name an output"),
    (lambda: dx.function("f", [x], {3: x * 2}), "f: the name of an output must be a Python"),
    (
        lambda: dx.function("f", [x, s], {"a": x * s, "c": s * 2}, wrt=[x]),
        r"f: the output 'c' depends on none of the inputs to differentiate by \(x\)",
    ),
    (lambda: dx.function("f", [x], {"a": x * 2}, kinds=["gradient"]), "f: kinds names 'gradient'"),
    (lambda: fit["slope"], "fit: there is no output 'slope'; it has residual, loss"),
    (lambda: layer["scores"]["a"], "there is no output 'a'; it has one output without a name"),
    (lambda: fit.formula("value"), "fit: which output.* choose from residual, loss"),
    (lambda: fit.formula("vjp", "x", output="loss"), "fit: the vjp has no outputs"),
    (lambda: fit.formula("jacobian", "q", output="loss"), "there is no jacobian by 'q'"),
    (lambda: fit.formula("hessian", "x", output="loss"), "fit: there is no 'hessian'"),
    (lambda: fit.steps("x"), r'take one of them, as in fit\["residual"\]'),
    (lambda: fit.expression, "fit: it has the outputs residual, loss"),
    (lambda: dx.parse("r = x; x", x="n"), "'x' is no assignment"),
    (lambda: dx.parse("x = 2*x", x="n"), "'x' is assigned to"),
    (lambda: dx.parse("r = 2; s = 3", x="n"), "the input 'x' is declared and never used"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(dx.DerivatrixError, match=message):
        call()


def test_reports_name_the_outputs() -> None:
    parts = pytest.importorskip("derivatrix.compiler.report.parts")
    titles = [formula["title"] for formula in parts.formulas(fit, "jacobian")]
    assert titles[:2] == ["Jacobian of residual by A", "Jacobian of residual by x"]
    assert [part["by"] for part in parts.derivations(fit)][-1] == "b, of loss"
