"""Kernels of loops over segments (checkpoints) against plain loops in the interpreter."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import evaluate
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.plan.steps import Allocate, Plan
from derivatrix.compiler.structured import structured
from derivatrix.runtime import trials
from derivatrix.runtime.interface import interfaces
from tests import loops
from tests.loops import T, m, n, with_checkpoint
from tests.plain import run_plain
from tests.points import draw

LENGTHS = (0, 1, 2, 3, 4, 6, 7)
"""Numbers of steps, for segments of 3."""


def _check(plain: Function, segmented: Function, lengths: Sequence[int] = LENGTHS) -> None:
    """Compare kernels, as plain Python, with the results of plain loops."""
    for kind in segmented.kinds:
        plan, results = kernel_plan(segmented.derivatives, kind), plain.derivatives.batched(kind)
        is_run = any("segment_scan" in called.name for called in plan.with_callees)
        assert is_run or kind == "jacobian"
        for length in lengths:
            sizes = {"T": length, "n": 3, "m": 2, "batch": 4}
            generator = np.random.default_rng(length)
            values = {
                leaf.name: (0.3 if leaf.structure == "positive" else 0.5)
                * draw(leaf, generator, sizes)
                for leaf in plain.derivatives.arguments(kind)
            }
            expected = evaluate_all([*results.values()], values, sizes)
            actual = [np.full(array.shape, np.nan) for array in expected]
            run_plain(plan, values, actual)
            for key, one, other in zip(results, expected, actual, strict=True):
                np.testing.assert_allclose(
                    other, one, 1e-9, 1e-11, err_msg=f"{kind} {key} {length}"
                )


CASES = [
    *(loops.elman, loops.backwards, loops.garch, loops.chebyshev, loops.hidden_markov),
    *(loops.averaged, loops.updated_cholesky),
]


@pytest.mark.parametrize("declaration", CASES, ids=lambda declaration: declaration.__name__)
def test_kernels(declaration: Callable[[], Any]) -> None:
    plain, segmented = (case.function for case in (declaration(), with_checkpoint(declaration, 3)))
    kinds = ["value", "jvp", "vjp"] if plain.expression.shape else ["value_and_gradient"]
    _check(plain.with_kinds(kinds), segmented.with_kinds(kinds))


def test_jacobian_by_an_input_that_no_carry_depends_on() -> None:
    plain, segmented = loops.chebyshev(), with_checkpoint(loops.chebyshev, 3)
    jacobians = [case.function.with_kinds(["jacobian"]) for case in (plain, segmented)]
    _check(*jacobians, lengths=(0, 1, 4))


@pytest.mark.parametrize("reverse", [False, True])
def test_carries_and_outputs(reverse: bool) -> None:
    """Carries and outputs of several shapes, and a step that reads the number of steps and a size
    that none of its arrays has."""
    W, a = dx.matrix("W", n, n), dx.scalar("a")
    X, h0, z = dx.matrix("X", T, n), dx.vector("h0", n), dx.vector("z", m)

    def declare(checkpoint: int | None) -> Function:
        def step(carry: Any, x: Any) -> Any:
            h, s = carry["h"], carry["s"]
            h = dx.sin(W @ h) + x * s / (T + 1)
            return {"h": h, "s": dx.cos(s) + dx.sum(h) / m}, (a * h * x, s)

        last, (us, ss) = dx.scan(step, {"h": h0, "s": a}, X, reverse=reverse, checkpoint=checkpoint)
        result = us + dx.outer(ss, last["h"]) + dx.sum(z) * last["s"]
        return dx.function("carries", [W, a, X, h0, z], result, kinds=["value", "jvp", "vjp"])

    _check(declare(None), declare(3), [0, 1, 3, 7])


@pytest.mark.parametrize(("steps", "length"), [(3, 7), (8, 7)])
def test_number_of_steps_is_literal(steps: int, length: int) -> None:
    """Without xs and outputs."""
    h0, k = dx.vector("h0", 2), dx.scalar("k")

    def declare(checkpoint: int | None) -> Function:
        last, _ = dx.scan(
            lambda h, _: (dx.sin(k * h), None), h0, length=length, checkpoint=checkpoint
        )
        return dx.function("literal", [h0, k], last, kinds=["vjp"])

    _check(declare(None), declare(steps), [length])


def test_loop_in_a_loop() -> None:
    X, h0 = dx.tensor("X", T, m, n), dx.vector("h0", n)

    def declare(outer: int | None, inner: int | None) -> Function:
        def step(h: Any, x: Any) -> Any:
            g, us = dx.scan(lambda g, u: (dx.sin(g) + u * h, g * u), h, x, checkpoint=inner)
            return g, dx.sum(us)

        last, ys = dx.scan(step, h0, X, checkpoint=outer)
        return dx.function("nested", [X, h0], dx.sum(last) + dx.sum(ys**2), kinds=["gradient"])

    _check(declare(None, None), declare(2, 3), [0, 1, 5])


def _symmetric() -> Function:
    """A function whose gradient by S is one for each sample, and is projected."""
    S, X, h0 = dx.matrix("S", n, n, "symmetric"), dx.matrix("X", T, n), dx.vector("h0", n)
    last, _ = dx.scan(lambda h, x: (dx.sin(S @ h) + x, None), h0, X)
    return dx.function("symmetric", [S, X, h0], dx.sum(last**2))


@pytest.mark.parametrize(
    ("declaration", "batch", "kinds"),
    [
        (loops.elman, ("X",), ["value", "vjp", "gradient"]),
        (loops.elman, ("X", "W"), ["vjp"]),
        (loops.backwards, ("X", "h0"), ["jvp", "vjp", "jacobian"]),
        (_symmetric, ("X",), ["gradient"]),
    ],
)
def test_samples(declaration: Callable[[], Any], batch: tuple[str, ...], kinds: list[str]) -> None:
    """Threads share samples, too; cotangents of parameters are sums over these."""
    plain, segmented = (
        replace(getattr(case, "function", case), batch=batch).with_kinds(kinds)
        for case in (declaration(), with_checkpoint(declaration, 3))
    )
    _check(plain, segmented, [0, 3, 7])


def test_second_derivatives() -> None:
    plain, segmented = (
        replace(case.function, wrt=("U", "h0")).with_kinds(["hvp", "hessian"])
        for case in (loops.elman(), with_checkpoint(loops.elman, 3))
    )
    _check(plain, segmented, [1, 4])


def test_operators_run_loops() -> None:
    derivatives = with_checkpoint(loops.backwards, 3).function.derivatives
    operators = structured(derivatives, ["jvp", "vjp"]).operators
    assert operators and all(operator.runs_loops for operator in operators)


def _work_bytes(plan: Plan, sizes: dict[str, int]) -> float:
    """Bytes of the work arrays of a kernel, and of those that it calls."""
    arrays = [
        buffer
        for called in plan.with_callees
        for step in called.steps
        if isinstance(step, Allocate)
        for buffer in step.buffers
    ]
    return sum(8 * np.prod([evaluate(size, sizes) for size in a.shape]) for a in arrays)


def test_memory() -> None:
    """No array but results is as long as the series: 0.6 MB instead of 77."""
    sizes = {"T": 200_000, "n": 16, "m": 16, "_segment_steps": 500}
    W, U = dx.matrix("W", n, n), dx.matrix("U", n, m)
    X, h0 = dx.matrix("X", T, m), dx.vector("h0", n)

    def step(h: Any, x: Any) -> Any:
        h = dx.tanh(W @ h + U @ x)
        return h, h

    for checkpoint, megabytes in ((None, (70, 80)), (500, (0, 1))):
        last, states = dx.scan(step, h0, X, checkpoint=checkpoint)
        network = dx.function("network", [W, U, X, h0], states)
        work = _work_bytes(kernel_plan(network.derivatives, "vjp"), sizes) / 1e6
        assert megabytes[0] <= work <= megabytes[1]
    only_last = dx.function("only_last", [W, U, X, h0], last)
    assert _work_bytes(kernel_plan(only_last.derivatives, "value"), sizes) < 1e6


def test_value_and_gradient_run_over_the_series_once_to_keep_the_carries() -> None:
    text = generate(
        with_checkpoint(loops.garch, 3).function.with_kinds(["value_and_gradient"])
    ).text
    kernel = text[text.index("def value_and_gradient_kernel") : text.index("# Public functions")]
    assert re.findall(r"for s\d* in range\((.*)\):", kernel) == [
        "((T + 2) // 3)",
        "((T + 2) // 3) - 1, -1, -1",
    ]


def _declared() -> Function:
    r, a, start = dx.vector("r", T), dx.scalar("a"), dx.scalar("start")

    def step(s: Any, x: Any) -> Any:
        return a * dx.sin(s) + x * dx.exp(x), s * x

    last, ys = dx.scan(step, start + 1, r, checkpoint=2)
    return dx.function("segments", [r, a, start], dx.sum(ys) + last, kinds=["value", "vjp"])


FAULTS = {
    "segments without their last step": (r"r\[2\*(s\d*) : 2\*\1 \+ 2\]", r"r[2*\1 : 2*\1 + 1]"),
    "the first carry in all segments of the adjoint": (r"(λ\[s \+ 1\], s\d)\[s\]", r"\1[0]"),
    "a sum of one segment": (r"out_2\[0\] \+= ", "out_2[0] = "),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("segments") / "generated"
    dx.build([_declared()], directory)
    return directory


def _notices(module: ModuleType) -> bool:
    """Whether a row of the first point at which a module is verified is no success."""
    (interface,) = interfaces(module)
    result = next(trials.small(interface, {"T": 4}, 0, slow=True))
    return not all(row.passed for row in result.rows)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("fault", FAULTS)
def test_verification_notices_faults(fault: str, package: Path, tmp_path: Path) -> None:
    directory = tmp_path / "generated"
    shutil.copytree(package, directory)
    path = directory / "segments.py"
    text = path.read_text(encoding="utf-8")
    wrong = re.sub(*FAULTS[fault], text)
    assert wrong != text
    path.write_text(wrong, encoding="utf-8")
    assert _notices(dx.load(path))


def test_verification_passes(package: Path) -> None:
    assert not _notices(dx.load(package / "segments.py"))
