"""Loops over time against `jax.lax.scan`: value, gradient and Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from derivatrix.compiler.ir.interpret import evaluate
from tests.loops import Case, elman, garch, hidden_markov, regulator
from tests.points import draw

pytestmark = pytest.mark.peers


def _elman(W: Any, U: Any, X: Any, h0: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(W @ h + U @ x)
        return h, h

    last, states = jax.lax.scan(step, h0, X)
    return jnp.sum(states**2) + jnp.sum(last)


def _garch(r: Any, w: Any, a: Any, b: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(s: Any, x: Any) -> Any:
        return w + a * x**2 + b * s, jnp.log(s) + x**2 / s

    return jnp.sum(jax.lax.scan(step, w / (1 + b), r)[1])


def _hidden_markov(A: Any, B: Any, start: Any) -> Any:
    import jax

    def step(alpha: Any, b: Any) -> Any:
        return jax.nn.logsumexp(alpha[:, None] + A, axis=0) + b, None

    return jax.nn.logsumexp(jax.lax.scan(step, start, B)[0])


def _regulator(A: Any, B: Any, Q: Any, R: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(P: Any, _: Any) -> Any:
        gain = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        return Q + A.T @ P @ (A - B @ gain), None

    return jnp.trace(jax.lax.scan(step, Q, None, length=4)[0])


@pytest.mark.parametrize(
    ("case", "peer"),
    [
        (elman(), _elman),
        (garch(), _garch),
        (hidden_markov(), _hidden_markov),
        (regulator(), _regulator),
    ],
    ids=lambda part: part.function.name if isinstance(part, Case) else "",
)
@pytest.mark.parametrize("length", (1, 9))
def test_loop(case: Case, peer: Callable[..., Any], length: int) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    function, sizes = case.function, {"T": length, "n": 3, "m": 2}
    generator = np.random.default_rng(length)
    values = {leaf.name: draw(leaf, generator, sizes) / 2 for leaf in function.inputs}
    arguments = tuple(values.values())
    places = tuple(range(len(arguments)))
    results = function.derivatives.results
    gradient, hessian = jax.grad(peer, places)(*arguments), jax.hessian(peer, places)(*arguments)
    (value,) = results("value").values()
    assert evaluate(value, values, sizes) == pytest.approx(float(peer(*arguments)), rel=1e-12)
    symmetric = [leaf.structure == "spd" for leaf in function.inputs]

    def projected(array: Any, axes: tuple[int, int], is_symmetric: bool) -> Any:
        return (array + np.swapaxes(array, *axes)) / 2 if is_symmetric else array

    for row, name in enumerate(values):
        expected = projected(np.asarray(gradient[row]), (0, -1), symmetric[row])
        result = evaluate(results("gradient")[name,], values, sizes)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-10)
        for column, other in enumerate(values):
            block = projected(np.asarray(hessian[row][column]), (0, 1), symmetric[row])
            block = projected(block, (-2, -1), symmetric[column])
            result = evaluate(results("hessian")[name, other], values, sizes)
            np.testing.assert_allclose(result, block, rtol=1e-8, atol=1e-9)
