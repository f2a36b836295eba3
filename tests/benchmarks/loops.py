"""Loops over time against JAX and PyTensor: `python -m tests.benchmarks.loops`.

The gradient of a Kalman filter's likelihood, and the VJP of a recurrent network. Two contestants
at a time take turns in one process; a ratio above 1 is the other's time over that of derivatrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt

import derivatrix as dx
from tests.benchmarks.composition import Contest, compare
from tests.loops import kalman


def kalman_gradient(n: int, p: int, T: int) -> Iterator[Contest]:
    """The gradient of the log-likelihood by all inputs."""
    module = dx.compile(kalman(kinds=["gradient"]))

    @jax.jit
    def gradient(*arguments: Any) -> Any:
        return jax.grad(value, argnums=tuple(range(7)))(*arguments)

    def value(Y: Any, A: Any, C: Any, Q: Any, R: Any, x0: Any, P0: Any) -> Any:
        Q, R, P0 = (Q + Q.T) / 2, (R + R.T) / 2, (P0 + P0.T) / 2

        def step(carry: Any, y: Any) -> Any:
            x, P = carry
            factor = jnp.linalg.cholesky(C @ P @ C.T + R)
            v = y - C @ x
            gain = jax.scipy.linalg.cho_solve((factor, True), C @ P).T
            logdet = 2 * jnp.sum(jnp.log(jnp.diag(factor)))
            square = v @ jax.scipy.linalg.cho_solve((factor, True), v)
            term = -(square + logdet + p * jnp.log(2 * jnp.pi)) / 2
            return (A @ (x + gain @ v), A @ (P - gain @ C @ P) @ A.T + Q), term

        return jnp.sum(jax.lax.scan(step, (x0, P0), Y)[1])

    random = np.random.default_rng(0)
    A, C = 0.25 * random.normal(size=(n, n)), 0.25 * random.normal(size=(p, n))
    given = [random.normal(size=(T, p)), A, C, np.eye(n), np.eye(p), np.zeros(n), np.eye(n)]
    device = [jnp.asarray(array) for array in given]
    by_pytensor = pytensor_kalman_gradient(p)
    title = f"Kalman likelihood's gradient, n = {n}, p = {p}, T = {T}"
    ours = partial(module.gradient, *given)
    yield Contest(title, ours, lambda: jax.block_until_ready(gradient(*device)))
    yield Contest(title, ours, partial(by_pytensor, *given), "PyTensor")


def pytensor_kalman_gradient(p: int) -> Any:
    """Compile the gradient of the log-likelihood by PyTensor."""
    Y, A, C, Q, R, P0 = map(pt.dmatrix, ("Y", "A", "C", "Q", "R", "P0"))
    x0 = pt.dvector("x0")

    def step(y: Any, x: Any, P: Any, A: Any, C: Any, Q: Any, R: Any) -> Any:
        S, v = C @ P @ C.T + R, y - C @ x
        gain = pt.linalg.solve(S, C @ P, assume_a="pos").T
        logdet = 2 * pt.sum(pt.log(pt.diag(pt.linalg.cholesky(S))))
        square = v @ pt.linalg.solve(S, v, assume_a="pos", b_ndim=1)
        term = -(square + logdet + p * np.log(2 * np.pi)) / 2
        return A @ (x + gain @ v), A @ (P - gain @ C @ P) @ A.T + Q, term

    starts, noises = [x0, (P0 + P0.T) / 2, None], [(Q + Q.T) / 2, (R + R.T) / 2]
    *_, terms = pytensor.scan(step, [Y], starts, [A, C, *noises], return_updates=False)
    inputs = [Y, A, C, Q, R, x0, P0]
    return pytensor.function(inputs, pytensor.grad(terms.sum(), inputs), mode="NUMBA")


def recurrent_vjp(n: int, T: int, samples: int) -> Iterator[Contest]:
    """The VJP of h[t + 1] = tanh(W h[t] + U x[t]) by weights, inputs and start."""
    W, U, h0 = dx.matrix("W", "n", "n"), dx.matrix("U", "n", "n"), dx.vector("h0", "n")
    X = dx.matrix("X", "T", "n")

    def step_with(library: Any, W: Any, U: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = library.tanh(W @ h + U @ x)
            return h, h

        return step

    states = dx.scan(step_with(dx, W, U), h0, X)[1]
    batch = ["X"] if samples > 1 else []
    module = dx.compile(dx.function("network", [W, U, X, h0], states, kinds=["vjp"], batch=batch))

    def value(W: Any, U: Any, X: Any, h0: Any) -> Any:
        return jax.lax.scan(step_with(jnp, W, U), h0, X)[1]

    mapped = jax.vmap(value, in_axes=(None, None, 0, None)) if batch else value

    @jax.jit
    def vjp(cotangent: Any, *arguments: Any) -> Any:
        return jax.vjp(mapped, *arguments)[1](cotangent)

    random = np.random.default_rng(0)
    leading = (samples,) if batch else ()
    weights = [random.normal(size=(n, n)) / np.sqrt(n) for _ in range(2)]
    inputs, cotangent = random.normal(size=(2, *leading, T, n))
    given = [*weights, inputs, np.zeros(n), cotangent]
    device = [jnp.asarray(array) for array in given]
    by_pytensor = pytensor_recurrent_vjp(samples)
    title = f"recurrent network's VJP, n = {n}, T = {T}, {samples} samples"
    ours = partial(module.vjp, *given)
    yield Contest(title, ours, lambda: jax.block_until_ready(vjp(device[-1], *device[:-1])))
    yield Contest(title, ours, partial(by_pytensor, *given), "PyTensor")


def pytensor_recurrent_vjp(samples: int) -> Any:
    """Compile the VJP of the network by PyTensor, whose states are rows of a matrix for several
    samples."""
    W, U, h0 = pt.dmatrix("W"), pt.dmatrix("U"), pt.dvector("h0")
    kind = pt.dtensor3 if samples > 1 else pt.dmatrix
    X, cotangent = kind("X"), kind("cotangent")
    steps, start = X, h0
    if samples > 1:
        steps, start = X.transpose(1, 0, 2), pt.tile(h0, (samples, 1))
    states = pytensor.scan(
        lambda x, h, W, U: pt.tanh(h @ W.T + x @ U.T),
        [steps],
        [start],
        [W, U],
        return_updates=False,
    )
    states = states.transpose(1, 0, 2) if samples > 1 else states
    cotangents = pytensor.gradient.Lop(states, [W, U, X, h0], cotangent)
    return pytensor.function([W, U, X, h0, cotangent], cotangents, mode="NUMBA")


def contests() -> Iterator[Contest]:
    yield from kalman_gradient(10, 5, 200)
    yield from recurrent_vjp(64, 500, 1)
    yield from recurrent_vjp(64, 500, 32)


@click.command()
@click.option("--turns", default=15, show_default=True, help="Of each contestant.")
def main(turns: int) -> None:
    """Compare loops over time with JAX's and PyTensor's."""
    compare(contests(), turns)


if __name__ == "__main__":
    main()
