"""Kernels of loops over time against the interpreter, for any number of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import dump, generate, kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from tests.loops import (
    chebyshev,
    dense_likelihood,
    elman,
    garch,
    kalman,
    nested,
    root_in_step,
    updated_cholesky,
)
from tests.points import draw, numbers

FIRST = ["value", "vjp", "jvp"]
FUNCTIONS = [
    elman().function.with_kinds([*FIRST, "gradient", "hvp"]),
    garch().function.with_kinds(["value_and_gradient", "hvp"]),
    chebyshev().function.with_kinds([*FIRST, "jacobian"]),
    nested().function.with_kinds(FIRST),
    root_in_step().function.with_kinds(FIRST),
    updated_cholesky().function.with_kinds(FIRST),
]


def _check(function: Function, module: Any, length: int) -> None:
    """Compare all kernels of a module with the interpreter's values of their results."""
    sizes = {"T": length, "n": 3, "m": 2, "batch": 4}
    generator = np.random.default_rng(length)
    derivatives = function.derivatives
    for kind in function.kinds:
        values = {}
        for leaf in derivatives.arguments(kind):
            scale = 0.3 if leaf.structure == "positive" else 0.5
            values[leaf.name] = scale * draw(leaf, generator, sizes)
        results = {key: evaluate(n, values, sizes) for key, n in derivatives.batched(kind).items()}
        returned = getattr(module, kind)(*values.values())
        for key, expected in results.items():
            np.testing.assert_allclose(
                _part(returned, kind, key, function.wrt), expected, rtol=1e-9, atol=1e-11
            )


def _part(returned: Any, kind: str, key: Sequence[str], wrt: Sequence[str]) -> Any:
    """The result of a key in what a function of a module returns."""
    if kind == "value_and_gradient":
        returned = returned.gradient if key else returned.value
    if len(wrt) == 1:
        return returned
    for name in key:
        returned = getattr(returned, name)
    return returned


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_kernels(function: Function) -> None:
    module = dx.compile(function)
    for length in (0, 1, 2, 7, 30):
        _check(function, module, length)


def test_jacobians_and_hessians() -> None:
    declared = elman().function
    function = replace(declared, wrt=("U", "h0")).with_kinds(["jacobian", "hessian"])
    module = dx.compile(function)
    for length in (0, 1, 3):
        _check(function, module, length)


def test_batch() -> None:
    """Samples share the product of each step; one that has no batch axis is summed over it."""
    declared = elman().function
    function = replace(declared, batch=("X",)).with_kinds(["value", "vjp"])
    module = dx.compile(function)
    for length in (0, 3):
        _check(function, module, length)


def test_threads_share_samples() -> None:
    """Each thread loops over time for its samples; threads add up their sums."""
    function = replace(elman().function, batch=("X",)).with_kinds(["value", "vjp"])
    module = dx.compile(function)
    value, vjp = (kernel_plan(function.derivatives, kind).partition for kind in ("value", "vjp"))
    assert value is not None and value.axis == "samples" and not value.has_sums
    assert vjp is not None and vjp.has_sums
    for kind in ("value", "vjp"):
        *_, small_steps = module.generated.data["conditions"][kind]
        assert "n" in small_steps and "T" not in small_steps
    generator = np.random.default_rng(4)
    sizes = {"T": 60, "n": 24, "m": 20, "batch": 37}
    values = {
        leaf.name: 0.2 * draw(leaf, generator, sizes)
        for leaf in function.derivatives.arguments("vjp")
    }
    W, U, X, h0, cotangent = values.values()
    expected = [module.vjp(W, U, x[None], h0, c[None]) for x, c in zip(X, cotangent, strict=True)]
    actual = module.vjp(W, U, X, h0, cotangent)
    for name in ("W", "U", "h0"):
        total = sum(getattr(sample, name) for sample in expected)
        np.testing.assert_allclose(getattr(actual, name), total, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(actual.X, np.concatenate([s.X for s in expected]), atol=1e-12)
    values_of_samples = [module.value(W, U, x[None], h0)[0] for x in X]
    np.testing.assert_allclose(module.value(W, U, X, h0), values_of_samples, rtol=1e-12)


def test_kalman_filter() -> None:
    function = kalman(wrt=["A", "R", "P0"], kinds=["value_and_gradient"])
    module = dx.compile(function)
    for length in (1, 2, 30):
        _check(function, module, length)
    sizes: Mapping[str, int] = {"T": 40, "n": 4, "m": 3}
    generator = np.random.default_rng(5)
    values = [
        (0.4 if leaf.name in "AC" else 1.0) * draw(leaf, generator, sizes)
        for leaf in function.inputs
    ]
    assert all(
        value.shape == numbers(leaf.shape, sizes)
        for value, leaf in zip(values, function.inputs, strict=True)
    )
    assert module.value(*values) == pytest.approx(dense_likelihood(*values), rel=1e-10)


def test_verification_of_a_step_with_an_inverse() -> None:
    """The declaration, whose operations are counted, has the step as a function of its own."""
    V, X = dx.matrix("V", 2, 2, "spd"), dx.matrix("X", 3, 2)
    last, _ = dx.scan(lambda P, x: (dx.inv(P) + dx.outer(x, x), None), V, X)
    module = dx.compile(dx.function("inverted", [V, X], dx.trace(last), kinds=["gradient"]))
    report = dx.verify(module)
    assert report.passed, str(report)


def test_products_without_the_carry_are_computed_before_the_loop() -> None:
    plan = dump(elman().function.with_kinds(["value"]), "plan")
    before, loop = plan.split("for t ", 1)
    assert "gemm" in before and "X(T, m) @ U" in before
    assert not re.search(r"\bU\b", loop.split("nest out")[0])


def test_equal_parts_of_a_loop_and_of_what_precedes_it_are_computed_once() -> None:
    """One factorisation in each step, and one for the adjoints and the gradients of all steps."""
    text = generate(kalman(kinds=["gradient"])).text
    assert text.split("def gradient_kernel")[1].count("cholesky_factor(") == 1


def test_axes_are_reordered_by_one_function() -> None:
    """Copies with axes in another order are compiled once, not in each kernel. A copy for BLAS is
    read and written along the last axis."""
    function = replace(elman().function, batch=("X",)).with_kinds(["vjp"])
    text = generate(function).text
    assert re.search(r"copy_permuted\(X, X_copy, 1, 0, 2\)", text)


def test_text_does_not_depend_on_other_loops() -> None:
    """Symbols of a step have names of their own; they do not show in the module."""
    function = root_in_step().function.with_kinds(FIRST)
    assert generate(function).text == generate(root_in_step().function.with_kinds(FIRST)).text
    assert not re.search(r"_scan\d+_", generate(function).text)
