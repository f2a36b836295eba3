"""Loops over segments (checkpoints) against plain loops: numbers, formulas and derivations."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate import segments
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import Apply, Leaf, Node, topological
from derivatrix.runtime.errors import DeclarationError
from tests import loops
from tests.loops import T, n, with_checkpoint
from tests.points import draw

DECLARATIONS: list[Callable[[], Any]] = [
    *(loops.elman, loops.backwards, loops.garch, loops.chebyshev),
    *(loops.hidden_markov, loops.regulator, loops.sinkhorn, loops.nested, loops.averaged),
    *(loops.updated_cholesky, loops.kalman),
]


def _has_segments(function: Function, kind: str) -> bool:
    nodes = topological(function.derivatives.batched(kind).values())
    return any(isinstance(node, Apply) and node.operation.segments is not None for node in nodes)


def _assert_same(
    plain: Function, segmented: Function, kind: str, lengths: Iterable[int] = (0, 1, 3, 7)
) -> None:
    """Compare the results of a kind in the interpreter."""
    results = [function.derivatives.batched(kind) for function in (plain, segmented)]
    for length in lengths:
        sizes = {"T": length, "n": 3, "m": 2, "batch": 2}
        generator = np.random.default_rng(length)
        values = {
            leaf.name: (0.3 if leaf.structure == "positive" else 0.5) * draw(leaf, generator, sizes)
            for leaf in plain.derivatives.arguments(kind)
        }
        expected, actual = (evaluate_all([*part.values()], values, sizes) for part in results)
        for key, one, other in zip(results[0], expected, actual, strict=True):
            np.testing.assert_allclose(other, one, 1e-9, 1e-11, err_msg=f"{kind} {key} {length}")


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda declaration: declaration.__name__)
def test_numbers_and_formulas(declaration: Callable[[], Any]) -> None:
    plain, segmented = declaration(), with_checkpoint(declaration, 3)
    plain, segmented = (getattr(case, "function", case) for case in (plain, segmented))
    for kind in ("value", "vjp"):
        assert _has_segments(segmented, kind)
        _assert_same(plain, segmented, kind)
    if declaration is not loops.nested:  # whose sums are written in another way
        assert segmented.derivatives.equations(kinds=["vjp"]) == plain.derivatives.equations(
            kinds=["vjp"]
        )


def test_second_derivatives() -> None:
    """Of the gradient, and of the JVP as a function of its own."""
    plain, segmented = loops.elman().function, with_checkpoint(loops.elman, 3).function
    _assert_same(plain, segmented, "hvp")
    _assert_same(plain, segmented, "hessian", [3])
    for kind in ("value", "jvp", "vjp"):
        _assert_same(plain.second, segmented.second, kind)


def test_loops_of_all_steps_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result of a loop asks for them, in each formula again."""
    makings: Counter[object] = Counter()

    def resize(node: Node, sizes: Mapping[Any, Any]) -> Node:
        makings[node] += not isinstance(node, Leaf)
        return resized(node, sizes)

    resized = segments.resize
    monkeypatch.setattr(segments, "resize", resize)
    a, X, start = dx.scalar("a"), dx.matrix("X", T, n), dx.vector("start", n)
    last, _ = dx.scan(lambda h, x: (dx.sin(a * h) + x / 7, None), start, X, checkpoint=7)
    function = dx.function("f", [a, X, start], dx.sum(last))
    for key in function.derivatives.results("gradient"):
        function.formula("gradient", key, style="numpy")
    assert max(makings.values()) == 1


def test_derivation_is_that_of_the_plain_loop() -> None:
    plain, segmented = loops.elman().function, with_checkpoint(loops.elman, 3).function
    assert segmented.declaration == plain.declaration
    assert segmented.steps("W") == plain.steps("W")
    for style in ("index", "numpy"):
        assert segmented.formula("gradient", "W", style) == plain.formula("gradient", "W", style)


def test_names_of_tangents_and_adjoints_are_no_names_of_parameters() -> None:
    """Names in a step that a differential and its transpose would have, too."""
    names = ("dh", "λ", "c0", "dx1")
    start, xs = dx.vector("start", n), dx.matrix("xs", T, n)
    parameters = [dx.vector(name, n) for name in names]

    def declare(steps: int | None) -> Function:
        def step(h: Any, x: Any) -> Any:
            h = dx.sin(h) * x + sum((k * p * h for k, p in enumerate(parameters, 1)), h)
            return h, h * parameters[1]

        last, ys = dx.scan(step, start, xs, checkpoint=steps)
        return dx.function("named", [start, xs, *parameters], dx.sum(last) + dx.sum(ys**2))

    plain, segmented = declare(None), declare(2)
    _assert_same(plain, segmented, "gradient")
    _assert_same(plain.second, segmented.second, "vjp", [4])


def test_function_is_called_and_pickled() -> None:
    """Its sizes and names are replaced in loops over segments, too."""
    segmented = with_checkpoint(loops.nested, 2).function
    assert pickle.loads(pickle.dumps(segmented)) == segmented
    W, X, h0 = dx.matrix("V", 3, 3), dx.tensor("Y", 5, 4, 3), dx.vector("g", 3)
    plain = dx.function("called", [W, X, h0], loops.nested().function(W, X, h0))
    called = dx.function("called", [W, X, h0], segmented(W, X, h0))
    _assert_same(plain, called, "gradient", [5])


def test_what_does_not_vary_has_no_adjoint() -> None:
    """The covariances of a Kalman filter do not depend on the observations."""
    function = with_checkpoint(lambda: loops.kalman(wrt=["Y"]), 3)
    nodes = topological(function.derivatives.batched("gradient").values())
    adjoints = [
        node.operation.segments
        for node in nodes
        if isinstance(node, Apply) and node.operation.segments and node.operation.segments.forward
    ]
    assert adjoints
    assert all(len(segments.carries) == 1 and not segments.sums for segments in adjoints)


def test_segments_start_with_the_structure_that_steps_keep() -> None:
    """Where the first carry is definite, that of the second segment may not be."""
    P, A, Q = dx.matrix("P", n, n, "spd"), dx.matrix("A", n, n), dx.matrix("Q", n, n, "spd")

    def step(P: Any, _: Any) -> Any:
        return A @ (P - P @ dx.inv(P + Q) @ P) @ A.mT + Q, None

    last, _ = dx.scan(step, P, length=4, checkpoint=2)
    (segments,) = {
        node.operation.segments
        for node in topological([last.node])
        if isinstance(node, Apply) and node.operation.segments
    }
    assert segments.carries[0].structure == "symmetric"


@pytest.mark.parametrize("checkpoint", [0, -1, True, 2.0, "3", T, np.bool_(True), 2**70])
def test_checkpoint_is_a_positive_integer(checkpoint: Any) -> None:
    def step(h: Any, x: Any) -> Any:
        return h * x, None

    start, xs = dx.vector("start", n), dx.matrix("xs", T, n)
    with pytest.raises(
        DeclarationError, match=r"scan: checkpoint of step is .*; it is an integer from 1 to "
    ):
        dx.scan(step, start, xs, checkpoint=checkpoint)
