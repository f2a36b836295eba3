"""Loops over time in modules for CUDA devices, in Numba's simulator, against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.arrays import apply
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.simulated import as_on_device
from tests import loops
from tests.emit.cuda.test_simulated import small_launches
from tests.points import draw, leaves
from tests.simulation import simulated


@pytest.mark.parametrize(
    ("case", "kinds", "batch"),
    [
        ("elman", ["value", "jvp", "gradient", "hvp"], []),
        ("elman", ["vjp"], ["X"]),
        ("elman", ["hessian"], []),
        ("garch", ["value_and_gradient"], []),
        ("oscillator", ["vjp"], ["driving"]),
        ("backwards", ["jacobian"], []),
        ("nested", ["vjp"], []),
        ("updated_cholesky", ["vjp"], []),
        ("root_in_step", ["vjp"], []),
    ],
)
@simulated
def test_kernels(case: str, kinds: list[str], batch: list[str]) -> None:
    declared = getattr(loops, case)().function
    wrt = ("h0",) if kinds in (["jacobian"], ["hessian"]) else declared.wrt
    compare(replace(declared, wrt=wrt, batch=tuple(batch)).with_kinds(kinds), kinds)


def compare(function: Function, kinds: Sequence[str]) -> None:
    """Compare a module in Numba's simulator with the interpreter."""
    module = dx.compile(function, target="cuda")
    for length in (0, 1, 3):
        sizes = {"T": length, "n": 2, "m": 2, "batch": 3}
        generator = np.random.default_rng(length)
        with as_on_device(module), small_launches(module):
            for kind in kinds:
                arguments, results = function.derivatives.kernel(kind)
                values = {leaf.name: 0.4 * draw(leaf, generator, sizes) for leaf in arguments}
                expected = evaluate_all([*results.values()], values, sizes)
                returned = leaves(getattr(module, kind)(*values.values()))
                for actual, exact in zip(returned, expected, strict=True):
                    np.testing.assert_allclose(actual, exact, rtol=1e-9, atol=1e-11)


T, n = dx.dims("T n")
SERIES, WEIGHTS, STARTS = dx.matrix("X", T, 2), dx.matrix("W", 2, 2), dx.vector("start", 2)
SCALE = dx.scalar("a")
WIDE, WIDE_WEIGHTS, WIDE_STARTS = dx.matrix("X", T, n), dx.matrix("W", n, n), dx.vector("start", n)


def network(carry: Any, x: Any) -> Any:
    return dx.tanh(WEIGHTS @ carry + x), dx.sum(carry * x)


def of_entries(carry: Any, x: Any) -> Any:
    return SCALE * carry + dx.tanh(carry * x), dx.sin(carry)


def neighbours(carry: Any, x: Any) -> Any:
    return dx.sin(carry[::-1]) + x, carry


def of_the_mean(carry: Any, x: Any) -> Any:
    return dx.tanh(carry) * dx.mean(carry) + x, carry


def products(carry: Any, x: Any) -> Any:
    return dx.tanh(WIDE_WEIGHTS @ carry + x), carry


def looped(step: Any, inputs: Sequence[Any], batch: Sequence[Any], reverse: bool) -> Function:
    *weights, start, series = inputs
    last, outputs = dx.scan(step, start, series, reverse=reverse)
    return dx.function(
        "looped", [*weights, start, series], dx.sum(last**2) + dx.sum(outputs), batch=batch
    )


LITERAL, SYMBOLIC = (WEIGHTS, STARTS, SERIES), (WIDE_STARTS, WIDE)
CASES: dict[str, tuple[Any, Sequence[Any], Sequence[Any], bool]] = {
    "samples": (network, LITERAL, LITERAL[1:], True),
    "a shared series": (network, LITERAL, LITERAL[1:2], True),
    "one sample": (network, LITERAL, (), True),
    "entries": (of_entries, (SCALE, *SYMBOLIC), (), True),
    "entries of samples": (of_entries, (SCALE, *SYMBOLIC), SYMBOLIC, True),
    "reversed entries": (neighbours, SYMBOLIC, (), False),
    "reversed entries of samples": (neighbours, SYMBOLIC, SYMBOLIC, False),
    "a mean": (of_the_mean, SYMBOLIC, SYMBOLIC, False),
    "a product": (products, (WIDE_WEIGHTS, *SYMBOLIC), (), False),
}
"""Name -> step, inputs, those with batch axes, and whether a thread runs all steps."""


@pytest.mark.parametrize(
    ("case", "reverse"), [(case, bool(number % 2)) for number, case in enumerate(CASES)]
)
@simulated
def test_loops_in_one_kernel(case: str, reverse: bool) -> None:
    """A thread runs all steps of its sample, or of its entry, if they read nothing else."""
    step, inputs, batch, is_one_kernel = CASES[case]
    function = looped(step, inputs, batch, reverse).with_kinds(["gradient"])
    text = generate(function, target="cuda").text
    launches = text[text.index("# What launches them") :]
    assert ("for t in range" in launches) != is_one_kernel
    # a sum over times and entries has a thread for each sample at least
    assert "for i in range(T)" not in text or not is_one_kernel
    compare(function, ["gradient"])


def test_segments() -> None:
    """On a device, loops with checkpoints are plain loops."""
    functions = [loops.garch().function, loops.with_checkpoint(loops.garch, 2).function]
    plain, segmented = (
        generate(function.with_kinds(["value_and_gradient"]), target="cuda").text.split("# Kernels")
        for function in functions
    )
    assert segmented[1] == plain[1]


@simulated
def test_failure_in_a_step() -> None:
    module = dx.compile(loops.updated_cholesky().function.with_kinds(["value"]), target="cuda")
    with as_on_device(module), pytest.raises(np.linalg.LinAlgError, match=r"^updated_cholesky: "):
        module.value(np.ones((2, 2)), -9 * np.eye(2))


def test_step_of_an_operation_without_a_kernel() -> None:
    """The error names the operation."""
    T, n = dx.dims("T n")
    X, P = dx.matrix("X", T, n), dx.matrix("P", n, n)
    tripled = dx.Operation(
        name="tripled",
        ranks=(2,),
        shapes=lambda shapes, _: (shapes[0],),
        value=lambda arguments, _: (3 * arguments[0],),
        differential=lambda at: (3 * at.tangents[0],),
        numpy=lambda arguments, *_: f"3 * {arguments[0]}",
        unicode="triple({0})",
        kernel="triples.tripled",
    )
    last, _ = dx.scan(lambda C, x: (apply(tripled, C) + dx.outer(x, x), None), P, X)
    function = dx.function("tripling", [X, P], dx.trace(last), kinds=["value"])
    with pytest.raises(UnsupportedError, match=r"^tripling: .* for CUDA devices of tripled"):
        generate(function, "cuda")
