"""Jacobians and Hessians of loops over time as operators: their products run the loops."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.structured import structured
from tests.points import draw

T, n = dx.dims("T n")
S, X, h0 = dx.matrix("S", n, n, "symmetric"), dx.matrix("X", T, n), dx.vector("h0", n)


def step(h: Any, x: Any) -> Any:
    h = dx.tanh(S @ h / 3 + x)
    return h, h**2


LAST, STATES = dx.scan(step, h0, X)
ARRAYS = dx.function(
    "arrays",
    [S, X, h0],
    {"last": LAST, "states": STATES},
    batch=[X],
    kinds=["vjp", "jacobian_operator"],
)
NUMBER = dx.function("number", [S, X, h0], dx.sum(STATES), kinds=["hessian_operator"])


def arguments(function: Function, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    return {
        leaf.name: draw(leaf, generator, sizes)
        for leaf in function.derivatives.arguments("jacobian")
    }


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("function", [ARRAYS, NUMBER], ids=lambda function: function.name)
def test_products_are_those_of_the_array(function: Function, length: int) -> None:
    module = dx.compile(function)
    kind = "hessian" if function.is_scalar else "jacobian"
    sizes = {"T": length, "n": 2, "batch": 2}
    values = arguments(function, sizes)
    result = getattr(module, f"{kind}_operator")(*values.values())
    generator = np.random.default_rng(3)
    for (row, column), node in function.derivatives.batched(kind).items():
        operator = getattr(getattr(result, row), column)
        assert operator.structure == "loop"
        dense = evaluate(node, values, sizes)
        np.testing.assert_allclose(operator.todense(), dense, rtol=1e-12, atol=1e-13)
        matrix = operator.tosparse().toarray()
        for map_, entries in ((operator, matrix), (operator.T, matrix.T)):
            vector = generator.normal(size=map_.shape[1])
            product = (entries @ vector).reshape(map_.output_shape)
            shaped = map_ @ vector.reshape(map_.input_shape)
            np.testing.assert_allclose(shaped, product, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(map_.matvec(vector), product.ravel(), atol=1e-13)
            columns = generator.normal(size=(map_.shape[1], 2))
            np.testing.assert_allclose(map_.matmat(columns), entries @ columns, atol=1e-12)


def test_several_batch_axes() -> None:
    module = dx.compile(ARRAYS)
    sizes = {"T": 3, "n": 2, "batch": 6}
    values = arguments(ARRAYS, sizes)
    flat = module.jacobian_operator(*values.values()).states
    values["X"] = values["X"].reshape(2, 3, 3, 2)
    split = module.jacobian_operator(*values.values()).states
    for name in ("X", "S"):
        one, other = getattr(split, name), getattr(flat, name)
        assert one.output_shape == (2, 3, 3, 2)
        tangent = np.ones(one.input_shape)
        product = (other @ tangent.reshape(other.input_shape)).reshape(one.output_shape)
        np.testing.assert_allclose(one @ tangent, product, rtol=1e-14)
        entries = other.todense()
        np.testing.assert_allclose(one.todense(), entries.reshape(2, 3, *entries.shape[1:]))


def test_an_operator_holds_the_point_and_is_pickled() -> None:
    module = dx.compile(NUMBER)
    values = arguments(NUMBER, {"T": 3, "n": 2})
    operator = module.hessian_operator(*values.values()).X.X
    tangent = np.ones((3, 2))
    product = operator @ tangent
    values["X"][:] = 7
    np.testing.assert_array_equal(operator @ tangent, product)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(operator)) @ tangent, product)
    np.testing.assert_array_equal(operator.T @ tangent, product)


def test_systems_are_solved_with_the_array() -> None:
    """The last state of a loop without parameters, by its start."""
    last, _ = dx.scan(lambda h, x: (dx.tanh(h) + x * h, None), h0, X)
    module = dx.compile(dx.function("ends", [X, h0], last, wrt=[h0], kinds=["vjp", "jvp"]))
    assert not hasattr(module, "jacobian_operator")
    kinds = ["vjp", "jacobian_operator"]
    function = dx.function("solved", [X, h0], last, wrt=[h0], kinds=kinds)
    operator = dx.compile(function).jacobian_operator(np.ones((4, 3)), np.arange(3.0))
    right = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(operator @ operator.solve(right), right, rtol=1e-12)
    assert operator.diagonal().shape == (3,) and operator.trace() == operator.diagonal().sum()


def test_no_array_of_a_loop_has_an_axis_for_each_input() -> None:
    """An operator with products needs no kernel that runs a loop for each entry."""
    form = structured(ARRAYS.derivatives, ["vjp", "jvp"])
    assert form.parts == () and all(operator.runs_loops for operator in form.operators)
    form = structured(ARRAYS.derivatives, ["jvp"])
    assert form.parts != () and not any(operator.runs_loops for operator in form.operators)
