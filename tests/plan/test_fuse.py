"""Loops that become one, those that stay apart, and matrices that lie as what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.steps import Clear, Loop, LoopNest
from derivatrix.compiler.plan.visit import accesses
from tests.plain import check_plain, steps_of

N, n, m, k = dx.dims("N n m k")
A, B, X = dx.matrix("A", n, n), dx.matrix("B", n, n), dx.matrix("X", N, n)
W, V = dx.matrix("W", m, n), dx.matrix("V", k, m)
a, b = dx.vector("a", n), dx.vector("b", n)


def nests(function: Function, kind: str) -> list[LoopNest]:
    check_plain(function, kind, {"N": 5, "n": 4, "m": 3, "k": 2})
    return [step for step in steps_of(function, kind) if isinstance(step, LoopNest)]


def innermost(body: Sequence[Any]) -> Iterator[Loop]:
    for part in body:
        if isinstance(part, Loop):
            inner = list(innermost(part.body))
            yield from inner or [part]


def test_sums_that_read_one_matrix_are_one_loop() -> None:
    """(A + A') a, onto a vector of zeros; and two products with the same matrix."""
    (nest,) = nests(dx.function("quadratic", [A, a], a @ A @ a, wrt=[a]), "gradient")
    assert isinstance(nest.body[0], Clear) and len(list(innermost(nest.body))) == 1
    (nest,) = nests(dx.function("products", [A, a, b], (A @ a) * (A @ b)), "value")
    assert len(list(innermost(nest.body))) == 1


def test_sums_of_different_entries_stay_apart() -> None:
    (nest,) = nests(dx.function("products", [A, B, a, b], (A @ a) * (B @ b)), "value")
    assert len(list(innermost(nest.body))) == 2


def test_functions_have_loops_of_their_own() -> None:
    """They are vectorised there, beside loops that sum they are not."""
    loss = dx.function("loss", [X, a], dx.sum(dx.log(1 + dx.exp(X @ a))), wrt=[a])
    sums, functions, _ = nests(loss, "hvp")
    assert "exp" in functions.comment and "sum" not in functions.comment
    assert "sum" in sums.comment and "exp" not in sums.comment


def test_elementwise_matrices_lie_as_what_they_are_made_of() -> None:
    """The derivative of a layer is read along its rows, also where only products follow."""
    layers = dx.sum((dx.tanh(X @ W.T) @ V.T) ** 2)
    result = nests(dx.function("layers", [X, W, V], layers, wrt=[W, V]), "gradient")
    loops = [loop for nest in result for loop in innermost(nest.body)]
    loads = [(load, loop) for loop in loops for load, _ in accesses(loop.body)]
    rows = [(load, loop) for load, loop in loads if len(load.indices) == 2]
    assert rows and all(load.indices[-1] == loop.index for load, loop in rows)


def test_a_number_is_cleared_apart_from_loops() -> None:
    """The zero second derivative by s has no axis that a loop could run along."""
    s = dx.scalar("s")
    check_plain(dx.function("scaled", [s, a], s * (a @ a)), "hessian", {"n": 4})
    check_plain(dx.function("sums", [s, a], s * dx.sum(dx.exp(a))), "hessian", {"n": 4})
