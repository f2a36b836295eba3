"""Ops of functions with several outputs."""

import pickle
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.gradient import Rop, verify_grad

import derivatrix as dx
from derivatrix.pytensor import operator

n = dx.dims("n")
x, P = dx.vector("x", n), dx.matrix("P", n, n)


def outputs(x: Any, P: Any) -> dict[str, Any]:
    return {"mean": dx.tanh(P @ x), "energy": dx.trace(P @ P) * dx.sum(x**2), "product": P @ P.T}


def reference(x: Any, P: Any) -> list[Any]:
    return [pt.tanh(P @ x), pt.trace(P @ P) * (x**2).sum(), P @ P.T]


FUNCTION = dx.function("moments", [x, P], outputs(x, P))
BY_SAMPLE = dx.function("moments", [x, P], outputs(x, P), batch=[x])
PYTHON = Mode("py")
MODES = pytest.mark.parametrize("mode", ["NUMBA", PYTHON], ids=["NUMBA", "PYTHON"])


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape) for shape in shapes]


def assert_equal(actual: list[Any], expected: list[Any], inputs: Any, values: Any, mode: Any):
    """Compare variables, computed in `mode`, with expressions of PyTensor's own operations.

    Python runs these: Numba takes up to 27 s to compile those of a test."""
    results = pytensor.function(inputs, actual, mode=mode)(*values)
    expected_results = pytensor.function(inputs, expected, mode=PYTHON)(*values)
    for result, expected_result in zip(results, expected_results, strict=True):
        np.testing.assert_allclose(result, expected_result, rtol=1e-10, atol=1e-12)


@MODES
def test_values_are_a_named_tuple_of_variables(mode: Any) -> None:
    inputs = pt.dvector("x"), pt.dmatrix("P")
    result = operator(FUNCTION)(P=inputs[1], x=inputs[0])
    assert result._fields == ("mean", "energy", "product")
    assert [part.ndim for part in result] == [1, 0, 2]
    assert_equal([*result], reference(*inputs), inputs, drawn((3,), (3, 3)), mode)


@MODES
@pytest.mark.parametrize("used", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_gradients_of_some_outputs(used: Any, mode: Any) -> None:
    inputs = pt.dvector("x"), pt.dmatrix("P")

    def gradients(parts: Any) -> list[Any]:
        total = sum((parts[position] ** 2).sum() for position in used)
        return pytensor.grad(total, list(inputs), disconnected_inputs="ignore")

    ours, expected = gradients(operator(FUNCTION)(*inputs)), gradients(reference(*inputs))
    assert_equal(ours, expected, inputs, drawn((3,), (3, 3)), mode)


@MODES
def test_second_derivatives(mode: Any) -> None:
    def slope(x: Any, P: Any) -> Any:
        mean, energy, product = operator(FUNCTION)(x, P)
        return pytensor.grad((mean**2).sum() * energy + product.sum(), P)

    random = np.random.default_rng(1)
    verify_grad(slope, drawn((3,), (3, 3)), rng=random, mode=mode, abs_tol=1e-6, rel_tol=1e-6)


def test_the_pushforward() -> None:
    inputs = pt.dvector("x"), pt.dmatrix("P")
    tangents = pt.dvector("dx"), pt.dmatrix("dP")
    ours = Rop([*operator(FUNCTION)(*inputs)], inputs, tangents, use_op_rop_implementation=True)
    expected = Rop(reference(*inputs), inputs, tangents)
    values = drawn((3,), (3, 3), (3,), (3, 3))
    assert_equal(ours, expected, [*inputs, *tangents], values, PYTHON)


@MODES
def test_batch_axes(mode: Any) -> None:
    stack, P = pt.dtensor3("x"), pt.dmatrix("P")
    result = operator(BY_SAMPLE)(stack, P)
    assert [part.ndim for part in result] == [3, 2, 4]
    rows = stack.reshape((-1, 3))
    samples = [reference(rows[row], P) for row in range(4)]
    expected = [pt.stack(parts) for parts in zip(*samples, strict=True)]
    shapes = (2, 2, 3), (2, 2), (2, 2, 3, 3)
    expected = [part.reshape(shape) for part, shape in zip(expected, shapes, strict=True)]
    totals = [(parts[0] ** 2).sum() + parts[1].sum() for parts in (result, expected)]
    ours, other = (pytensor.grad(total, [stack, P]) for total in totals)
    values = drawn((2, 2, 3), (3, 3))
    assert_equal([*result, *ours], [*expected, *other], [stack, P], values, mode)


@MODES
def test_a_single_named_output(mode: Any) -> None:
    inputs = pt.dvector("x"), pt.dmatrix("P")
    result = operator(dx.function("mean", [x, P], {"mean": P @ x}))(*inputs)
    assert result._fields == ("mean",)
    gradient = pytensor.grad(result.mean.sum(), inputs[0])
    expected = [inputs[1] @ inputs[0], inputs[1].sum(axis=0)]
    assert_equal([result.mean, gradient], expected, inputs, drawn((3,), (3, 3)), mode)


def test_operators_are_pickled() -> None:
    op = operator(FUNCTION)
    assert pickle.loads(pickle.dumps(op)) == op
