"""Sorted vectors: values, ties, derivatives by permutation, and kernels."""

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate

n, m = dx.dims("n m")
x, A = dx.vector("x", n), dx.matrix("A", n, m)
TIED = np.array([2.0, -1.0, 2.0, 0.0, -0.0, 2.0, -1.0])


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_values_along_axes(axis):
    values = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(
        evaluate(dx.sort(A, axis).node, {"A": values}, {"n": 4, "m": 3}), np.sort(values, axis)
    )


def test_numpys_function():
    assert np.sort(A, 0).node is np.sort(A, axis=0, kind="stable").node is dx.sort(A, 0).node


def test_formulas():
    function = dx.function("f", [x], dx.sort(x))
    assert function.formula("value") == "sort(x)"
    assert function.formula("jvp") == "ẋ[argsort(x)]"
    assert function.formula("vjp") == "ȳ[argsort(argsort(x))]"


def test_equal_entries_keep_their_order():
    module = dx.compile(dx.function("f", [x], dx.sort(x)))
    tangent = np.arange(7.0)
    order = np.argsort(TIED, kind="stable")
    np.testing.assert_array_equal(module.value(TIED), np.sort(TIED))
    np.testing.assert_array_equal(module.jvp(TIED, tangent), tangent[order])
    np.testing.assert_array_equal(module.vjp(TIED, tangent[order]), tangent)
    np.testing.assert_array_equal(module.jacobian(TIED), np.eye(7)[order])
