"""Functions as building blocks against JAX: `python -m tests.benchmarks.composition`.

Kalman steps with two outputs, the gradient of a gradient penalty, and Laplacians. Both
contestants take turns in one process; a ratio above 1 is JAX's time over that of derivatrix.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import click
import jax
import jax.numpy as jnp
import numpy as np

import derivatrix as dx

TOLERANCE = 1e-8
SECONDS_PER_TURN = 0.05

Call = Callable[[], Any]


class Contest(NamedTuple):
    """Two calls that return the same arrays. rival: who makes the second one."""

    title: str
    ours: Call
    theirs: Call
    rival: str = "JAX"


def kalman_step(n: int, m: int, samples: int) -> Contest:
    """Predict and update: both outputs, and their VJP by all inputs."""
    x, P = dx.vector("x", "n"), dx.matrix("P", "n", "n", "spd")
    y, H = dx.vector("y", "m"), dx.matrix("H", "m", "n")
    R, Q = dx.matrix("R", "m", "m", "spd"), dx.matrix("Q", "n", "n", "spd")
    F = dx.matrix("F", "n", "n")
    before, spread = F @ x, F @ P @ F.T + Q
    gain = spread @ H.T @ dx.inv(H @ spread @ H.T + R)
    outputs = {"mean": before + gain @ (y - H @ before), "covariance": spread - gain @ H @ spread}
    step = dx.function("step", [x, P, y, F, Q, H, R], outputs, batch=[x, P, y])
    module = dx.compile(step)

    def value(x: Any, P: Any, y: Any, F: Any, Q: Any, H: Any, R: Any) -> Any:
        P, R, Q = (P + P.T) / 2, (R + R.T) / 2, (Q + Q.T) / 2
        before, spread = F @ x, F @ P @ F.T + Q
        solved = jax.scipy.linalg.solve(H @ spread @ H.T + R, H @ spread, assume_a="pos")
        return before + solved.T @ (y - H @ before), spread - solved.T @ H @ spread

    mapped = jax.vmap(value, in_axes=(0, 0, 0, None, None, None, None))

    @jax.jit
    def both(arguments: Any, cotangents: Any) -> Any:
        result, pull = jax.vjp(mapped, *arguments)
        return result, pull(cotangents)

    random = np.random.default_rng(0)

    def definite(*lead: int, size: int) -> np.ndarray:
        factor = random.normal(size=(*lead, size, size))
        return factor @ factor.mT / size + np.eye(size)

    arguments = (
        random.normal(size=(samples, n)),
        definite(samples, size=n),
        random.normal(size=(samples, m)),
        random.normal(size=(n, n)) / n**0.5,
        definite(size=n),
        random.normal(size=(m, n)),
        definite(size=m),
    )
    cotangents = random.normal(size=(samples, n)), random.normal(size=(samples, n, n))
    on_device = jax.device_put((arguments, cotangents))
    return Contest(
        f"Kalman step, n = {n}, m = {m}, {samples:,} samples",
        lambda: (module.value(*arguments), module.vjp(*arguments, cotangents)),
        lambda: jax.block_until_ready(both(*on_device)),
    )


def gradient_penalty(d: int, h: int, samples: int) -> Contest:
    """The gradient of the mean of ‖∇f‖² by the weights of a network f with two layers."""
    W, V = dx.matrix("W", "h", "d"), dx.matrix("V", "h", "h")
    w, x = dx.vector("w", "h"), dx.vector("x", "d")
    network = dx.function("network", [W, V, w, x], w @ dx.tanh(V @ dx.tanh(W @ x)), batch=[x])
    X = dx.matrix("X", "N", "d")
    penalty = dx.function(
        "penalty", [W, V, w, x], dx.sum(dx.grad(network(W, V, w, x), x) ** 2), batch=[x]
    )
    loss = dx.function("loss", [W, V, w, X], dx.mean(penalty(W, V, w, X)), wrt=[W, V, w])
    module = dx.compile(loss, kinds=["gradient"])

    def output(x: Any, W: Any, V: Any, w: Any) -> Any:
        return w @ jnp.tanh(V @ jnp.tanh(W @ x))

    def mean(W: Any, V: Any, w: Any, X: Any) -> Any:
        slopes = jax.vmap(jax.grad(output), in_axes=(0, None, None, None))(X, W, V, w)
        return jnp.mean(jnp.sum(slopes**2, axis=1))

    compiled = jax.jit(jax.grad(mean, argnums=(0, 1, 2)))
    random = np.random.default_rng(0)
    arguments = (
        random.normal(size=(h, d)) / d**0.5,
        random.normal(size=(h, h)) / h**0.5,
        random.normal(size=h),
        random.normal(size=(samples, d)),
    )
    on_device = jax.device_put(arguments)
    return Contest(
        f"gradient of a gradient penalty, d = {d}, {h} and {h} units, {samples:,} samples",
        lambda: module.gradient(*arguments),
        lambda: jax.block_until_ready(compiled(*on_device)),
    )


def laplacian(d: int, h: int, samples: int) -> Contest:
    """The Laplacian of a network with two layers, at all samples; JAX's forward over reverse."""
    W, V = dx.matrix("W", "h", "d"), dx.matrix("V", "h", "h")
    w, x = dx.vector("w", "h"), dx.vector("x", "d")
    network = w @ dx.tanh(V @ dx.tanh(W @ x))
    function = dx.function("laplacian", [W, V, w, x], dx.laplacian(network, x), batch=[x])
    module = dx.compile(function, kinds=["value"])

    def output(x: Any, W: Any, V: Any, w: Any) -> Any:
        return w @ jnp.tanh(V @ jnp.tanh(W @ x))

    def trace(x: Any, W: Any, V: Any, w: Any) -> Any:
        slope = jax.grad(output)

        def second(direction: Any) -> Any:
            tangent = jax.jvp(lambda point: slope(point, W, V, w), (x,), (direction,))[1]
            return tangent @ direction

        return jnp.sum(jax.vmap(second)(jnp.eye(d)))

    compiled = jax.jit(jax.vmap(trace, in_axes=(0, None, None, None)))
    random = np.random.default_rng(0)
    W_value = random.normal(size=(h, d)) / d**0.5
    V_value = random.normal(size=(h, h)) / h**0.5
    w_value, points = random.normal(size=h), random.normal(size=(samples, d))
    on_device = jax.device_put((points, W_value, V_value, w_value))
    return Contest(
        f"Laplacian of a network, d = {d}, {h} and {h} units, {samples:,} samples",
        lambda: module.value(W_value, V_value, w_value, points),
        lambda: jax.block_until_ready(compiled(*on_device)),
    )


def contests() -> Iterator[Contest]:
    for n, m in ((6, 3), (40, 10)):
        for samples in (1, 10_000) if n == 6 else (1, 1_000):
            yield kalman_step(n, m, samples)
    yield gradient_penalty(30, 64, 1_000)
    yield laplacian(30, 64, 1_000)


def ratios(contest: Contest, turns: int) -> tuple[list[float], list[float]]:
    """The seconds of a call of each, taking turns; raises AssertionError if results differ."""
    ours, theirs = (jax.tree.leaves(call()) for call in (contest.ours, contest.theirs))
    for array, expected in zip(ours, theirs, strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(array, expected, rtol=0, atol=TOLERANCE * scale)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for call, seconds in zip((contest.ours, contest.theirs), times, strict=True):
            seconds.append(_seconds(call))
    return times


def _seconds(call: Call) -> float:
    """The seconds of a call, the mean over those that fit into a turn."""
    count, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < SECONDS_PER_TURN:
        call()
        count += 1
    return elapsed / count


def compare(contests: Iterable[Contest], turns: int) -> None:
    """Print the times of contests and the rival's time over that of derivatrix."""
    jax.config.update("jax_enable_x64", True)
    for contest in contests:
        ours, theirs = ratios(contest, turns)
        quotients = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        low, high = quotients[0], quotients[-1]
        click.echo(
            f"{contest.title}: {statistics.median(ours) * 1e6:,.1f} µs, {contest.rival} "
            f"{statistics.median(theirs) * 1e6:,.1f} µs, ratio {statistics.median(quotients):.2f} "
            f"({low:.2f} to {high:.2f}), of the least times {min(theirs) / min(ours):.2f}"
        )


@click.command()
@click.option("--turns", default=15, show_default=True, help="Of each contestant.")
def main(turns: int) -> None:
    """Compare derivatrix's functions of functions with JAX's."""
    compare(contests(), turns)


if __name__ == "__main__":
    main()
