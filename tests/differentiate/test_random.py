"""Random expressions over all operations: every derivative kind against central differences,
and every formula's NumPy text against the node it was printed from.

`pytest tests/differentiate/test_random.py --examples 5000` searches longer.
"""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

import derivatrix.compiler.frontends.arrays as dx
from derivatrix.compiler.formulas import STYLES, render
from derivatrix.compiler.frontends.function import Function, function
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf, Node, leaves
from tests.points import within
from tests.strategies import LEAVES, REGISTRY, arity, expressions, leaf_values
from tests.trees import check_text

STEP = 1e-3
ANY = expressions()


def declared(expression: Array) -> Function:
    """The expression as a function of all leaves in it."""
    used = sorted(leaves([expression.node]), key=lambda leaf: leaf.name)
    return function("f", [Array(leaf) for leaf in used], expression)


def directions(fn: Function, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The cotangent and a tangent of each input, within its structure."""
    generator = np.random.default_rng(5)
    owners = {fn.derivatives.tangent(leaf).name: leaf for leaf in fn.inputs}
    result = {}
    for leaf in (*fn.derivatives.arguments("vjp"), *fn.derivatives.arguments("jvp")):
        if leaf.role == "input":
            continue
        shape = tuple(int(size) for size in leaf.shape)
        array = np.asarray(generator.normal(size=shape))
        owner = owners.get(leaf.name)
        result[leaf.name] = within(owner, values[owner.name], array) if owner else array
    return result


class Point:
    """A random function at a point, moved along its tangents."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.leaves = {leaf.name: leaf for leaf in fn.inputs}
        given_values = leaf_values(3)
        self.values = {leaf.name: given_values[leaf.name] for leaf in fn.inputs}
        self.values |= directions(fn, self.values)
        self.tangents = {
            leaf.name: self.values[fn.derivatives.tangent(leaf).name] for leaf in fn.inputs
        }

    def at(self, node: Node) -> np.ndarray:
        return evaluate(node, self.values, {})

    def difference(self, node: Node, step: float) -> np.ndarray:
        def moved(by: float) -> np.ndarray:
            shifted = {name: self.values[name] + by * self.tangents[name] for name in self.tangents}
            return evaluate(node, {**self.values, **shifted}, {})

        near, far = moved(step) - moved(-step), moved(2 * step) - moved(-2 * step)
        return (8 * near - far) / (12 * step)

    def check_difference(self, product: np.ndarray, node: Node, leaf: Leaf | None = None) -> None:
        """`product` against differences of `node`, the gradient by an input where that is given;
        points where these are poor are left out."""
        coarse, fine = self.difference(node, 2 * STEP), self.difference(node, STEP)
        if leaf is not None:
            fine = within(leaf, self.values[leaf.name], fine)
            coarse = within(leaf, self.values[leaf.name], coarse)
        scale = max(1.0, float(np.abs(fine).max(initial=0)))
        assume(np.isfinite(fine).all() and np.abs(coarse - fine).max(initial=0) < 1e-6 * scale)
        np.testing.assert_allclose(product, fine, rtol=0, atol=1e-5 * scale)


def close(actual: Any, expected: np.ndarray, what: str = "") -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8 * scale, err_msg=what)


def check_derivatives(expression: Array) -> None:
    assume(leaves([expression.node]))
    fn = declared(expression)
    point, derivatives = Point(fn), fn.derivatives
    value = point.at(expression.node)
    assume(np.isfinite(value).all() and np.abs(value).max(initial=0) < 1e6)
    close(point.at(derivatives.results("value")[()]), value)
    jvp = point.at(derivatives.results("jvp")[()])
    point.check_difference(jvp, expression.node)
    vjp = {key: point.at(node) for key, node in derivatives.results("vjp").items()}
    backward = sum(np.vdot(array, point.tangents[name]) for (name,), array in vjp.items())
    close(backward, np.asarray(np.vdot(jvp, point.values["cotangent"])))
    forward = np.zeros(jvp.shape)
    for (name,), node in derivatives.results("jacobian").items():
        flat = point.at(node).reshape(*jvp.shape, -1)
        forward = forward + flat @ point.tangents[name].reshape(-1)
    close(forward, jvp)
    if not jvp.shape:
        gradients = derivatives.results("gradient")
        for key, node in derivatives.results("hvp").items():
            point.check_difference(point.at(node), gradients[key], point.leaves[key[0]])


def check_formulas(expression: Array) -> None:
    assume(leaves([expression.node]))
    fn = declared(expression)
    point = Point(fn)
    nodes = [expression.node]
    for kind in ("vjp", "jacobian"):
        nodes += fn.derivatives.results(kind).values()
    for node in nodes:
        expected = point.at(node)
        assume(np.isfinite(expected).all())
        text = render(node, "numpy")
        actual = eval(text, {"np": np, "scipy": scipy, **point.values})
        assert np.shape(actual) == expected.shape, text
        close(actual, expected)
        for style in STYLES:
            check_text(node, style)


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--examples"))


def run(check: Any, count: int, drawn: st.SearchStrategy[Array] = ANY) -> None:
    quiet = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
    with np.errstate(all="ignore"):
        seed(0)(
            settings(max_examples=count, deadline=None, suppress_health_check=quiet)(
                given(drawn)(check)
            )
        )()


@pytest.mark.parametrize("rule", REGISTRY, ids=lambda rule: f"{rule.operation.name}{rule.output}")
def test_every_operation_of_the_registry(rule: Any) -> None:
    """Each output of each record, so that none waits to be drawn."""
    arrays = [Array(LEAVES[name]) for name in "MHLO"[: arity(rule)]]
    result = rule(*arrays)
    weights = Array(LEAVES["w"]) if result.ndim else Array(LEAVES["s"])
    run(check_derivatives, 1, st.just(dx.sum(dx.tanh(result) * weights)))
    run(check_formulas, 1, st.just(result))


def test_derivatives_of_random_expressions(examples: int) -> None:
    run(check_derivatives, examples)


def test_formulas_of_random_expressions(examples: int) -> None:
    run(check_formulas, max(examples // 2, 1))
