"""What a call costs within JAX: `python -m tests.adapters.jax.cost [--rounds N]`.

The VJP of X @ X and the gradient of tr((XX)ᵀ(XX)), jitted, in double precision: JAX's own, ours
called by XLA, ours called through `jax.pure_callback`, and the module's function without JAX. The
four take turns; microseconds a call, least, median and greatest of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import derivatrix as dx
import derivatrix.jax
from examples.square import energy, square
from tests.benchmarks.timing import block, calibrate

SIZES = (4, 32, 512)


def own_square(X: jax.Array) -> jax.Array:
    return X @ X


def own_energy(X: jax.Array) -> jax.Array:
    return jnp.sum((X @ X) ** 2)


def calls(n: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is compared: derivative -> contestant -> call."""
    X, cotangent = np.random.default_rng(n).normal(size=(2, n, n))
    here = [jnp.asarray(X), jnp.asarray(cotangent)]

    def backward(function: Callable[..., jax.Array]) -> Callable[[], Any]:
        made = jax.jit(lambda X, cotangent: jax.vjp(function, X)[1](cotangent)[0])
        return lambda: made(*here).block_until_ready()

    def gradient(function: Callable[..., jax.Array]) -> Callable[[], Any]:
        made = jax.jit(jax.grad(function))
        return lambda: made(here[0]).block_until_ready()

    found = {}
    for title, declared, own, made in (
        ("vjp of X @ X", square, own_square, backward),
        ("gradient of tr((XX)'(XX))", energy, own_energy, gradient),
    ):
        module = dx.compile(declared)
        found[title] = {
            "JAX's own": made(own),
            "derivatrix": made(derivatrix.jax.function(module)),
            "through pure_callback": made(derivatrix.jax.function(module, native=False)),
        }
    vjp, grad = dx.compile(square).vjp, dx.compile(energy).gradient
    found["vjp of X @ X"]["without JAX"] = lambda: vjp(X, cotangent)
    found["gradient of tr((XX)'(XX))"]["without JAX"] = lambda: grad(X)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    jax.config.update("jax_enable_x64", True)
    for n in SIZES:
        for title, contestants in calls(n).items():
            loops = {name: calibrate(call) for name, call in contestants.items()}
            times: dict[str, list[float]] = {name: [] for name in contestants}
            for _ in range(rounds):
                for name, call in contestants.items():
                    times[name].append(block(call, loops[name]) * 1e6)
            least = min(times["JAX's own"])
            for name, own in times.items():
                figures = f"{min(own):10.2f} {statistics.median(own):10.2f} {max(own):10.2f}"
                print(f"n = {n:3} {title:26} {name:22} {figures}  x {min(own) / least:.2f}")


if __name__ == "__main__":
    main()
