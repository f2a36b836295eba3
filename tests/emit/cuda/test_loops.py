"""Loops over time in modules for CUDA devices, in Numba's simulator, against the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
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
    """A loop of the host launches the kernels of each step."""
    declared = getattr(loops, case)().function
    wrt = ("h0",) if kinds in (["jacobian"], ["hessian"]) else declared.wrt
    function = replace(declared, wrt=wrt, batch=tuple(batch)).with_kinds(kinds)
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
