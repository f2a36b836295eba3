"""Lengths at zero: derivatives of what is made of them, where there are any, compared with
differences in 50 digits, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.simplify import lengths
from tests.campaign import Outcome
from tests.campaign.points import SIZES, Case, check, closed_form, tangents
from tests.points import draw, numbers

n = dx.dims("n")
x, y = dx.vector("x", n), dx.vector("y", n)

SMOOTH = {
    "a vector": ("x*norm2(x)", "x: n", "x"),
    "a cube": ("norm2(x)^3", "x: n", "x"),
    "several": ("norm2(x)*norm2(y)*y", "x: n, y: n", "x y"),
    "a matrix": ("X*normF(X)", "X: m n", "X"),
    "a deviation": ("(x - mean(x)*ones)*sqrt(var(x))", "x: n", "x"),
    "a definite form": ("sqrt(x'*A*x)*x", "x: n, A: n n spd", "x"),
    "a cubed form": ("sqrt(x'*A*x)^3", "x: n, A: n n spd", "x"),
    "of a function": ("norm2(sin(x))^5", "x: n", "x"),
}
"""What has first derivatives at zero, and the scalars second ones."""
DIVIDED = ["x/norm2(x)", "norm2(x)^0.5", "sqrt(sum(x))", "log(norm2(x))", "x*norm2(x)/norm2(x)^2"]


def at_zero(function: Function) -> Case:
    """All inputs zero that it is differentiated by."""
    random = np.random.default_rng(3)
    values = {
        leaf.name: np.zeros(numbers(leaf.shape, SIZES))
        if leaf.name in function.wrt
        else draw(leaf, random, SIZES)
        for leaf in function.inputs
    }
    return Case(function, values, tangents(function, values, random))


def checked(function: Function) -> Outcome:
    outcome, random = Outcome(), np.random.default_rng(0)
    for kind in ("jvp", "hvp"):
        if kind in function.kinds:
            check(kind, at_zero(function), random, outcome)
    return outcome


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_at_zero(name: str) -> None:
    text, dims, wrt = SMOOTH[name]
    function = text_function(text, dims, wrt.split())
    outcome = checked(function)
    assert outcome.tried == 2 - bool(function.expression.shape)
    assert not outcome.failures


def test_entries_and_other_norms() -> None:
    lengths_of_two = [dx.hypot(x, y), dx.vector_norm(x - y, 3), dx.vector_norm(x + y, 1.5)]
    for length in lengths_of_two:
        outcome = checked(dx.function("f", [x, y], x * length))
        assert outcome.tried == 1
        assert not outcome.failures


@pytest.mark.parametrize("text", DIVIDED)
def test_what_has_no_derivative_and_no_slopes_at_zero(text: str) -> None:
    case = at_zero(text_function(text, "x: n", ["x"]))
    with np.errstate(all="ignore"):
        assert not np.isfinite(closed_form("jvp", case, case.tangents)).all()


@pytest.mark.usefixtures("forgotten")
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    function = text_function("x*norm2(x)", "x: n", ["x"])
    monkeypatch.setattr(lengths.sympy, "Piecewise", lambda *pieces: sympy.nan * pieces[1][0])
    assert checked(function).failures


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_kernels(real: type) -> None:
    """The subgradient is 0, what is no number stays none, and verification knows of the kink."""
    function = dx.compile(dx.function("f", [x], dx.norm(x)))
    zero = np.zeros(5, real)
    np.testing.assert_array_equal(function.gradient(zero), zero)
    np.testing.assert_array_equal(function.hessian(zero), np.zeros((5, 5)))
    assert np.isnan(function.gradient(np.full(5, np.nan, real))).all()
    np.testing.assert_allclose(function.gradient(zero + 3), zero + 5**-0.5, rtol=1e-6)
    assert dx.verify(function).passed
