"""Nests that read the same argument are brought together."""

from __future__ import annotations

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.reordering import with_readers_together
from derivatrix.compiler.plan.steps import LoopNest, Step
from derivatrix.compiler.plan.visit import buffers
from tests.plain import check_plain

n = dx.dims("n")
A, B, x = dx.matrix("A", n, n), dx.matrix("B", n, n), dx.vector("x", n)


def readers(function: Function, kind: str, name: str) -> int:
    """Count the steps that read an argument."""
    steps = kernel_plan(function.derivatives, kind).steps
    return sum(name in {buffer.name for buffer in buffers(step)} for step in steps)


def test_an_argument_is_read_in_one_pass() -> None:
    """B x and what is multiplied by the transpose of B, with other steps between them."""
    chain = dx.function("chain", [A, B, x], A @ (B @ x))
    assert readers(chain, "vjp", "B") == 1
    check_plain(chain, "vjp", {"n": 4})


def test_what_is_needed_between_stays_there() -> None:
    """The second reader needs what is made of the first one's result, a vector or a number."""
    for body in (dx.sum(dx.tanh(A @ x) * (A @ dx.tanh(A @ x))), (x @ A @ x) / (x @ x)):
        function = dx.function("bound", [A, x], body)
        for kind in ("value", "gradient"):
            check_plain(function, kind, {"n": 4})


def test_few_pairs_are_tried() -> None:
    """Only pairs with a common argument are tried: large plans have hundreds of steps."""
    layers, weights = x, [dx.matrix(f"W{number}", n, n) for number in range(6)]
    for weight in weights:
        layers = dx.tanh(weight @ layers)
    deep = dx.function("deep", [x, *weights], dx.sum(layers), wrt=weights)
    steps = kernel_plan(deep.derivatives, "gradient").steps
    tried: list[tuple[Step, Step]] = []

    def fits(first: Step, second: Step) -> bool:
        tried.append((first, second))
        return False

    assert with_readers_together(steps, fits) == list(steps)
    for pair in tried:
        shared = set.intersection(*({*buffers(step)} for step in pair))
        assert all(isinstance(step, LoopNest) for step in pair)
        assert any(buffer.role == "argument" and len(buffer.shape) > 1 for buffer in shared)
    assert len(tried) <= len(weights)
