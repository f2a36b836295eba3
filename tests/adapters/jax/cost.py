"""The VJP of X @ X and the gradient of tr((XX)ᵀ(XX)), jitted, and the gradient at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import derivatrix as dx
import derivatrix.jax
from examples.square import energy, square
from tests.adapters.cost import Ways


def calls(n: int, random: np.random.Generator) -> dict[str, Ways]:
    """Return the calls to compare, by group."""
    jax.config.update("jax_enable_x64", True)
    X, cotangent = random.normal(size=(2, n, n))
    here = [jnp.asarray(X), jnp.asarray(cotangent)]

    def backward(function: Callable[..., jax.Array]) -> Callable[[], Any]:
        compiled_function = jax.jit(lambda X, cotangent: jax.vjp(function, X)[1](cotangent)[0])
        return lambda: compiled_function(*here).block_until_ready()

    def gradient(function: Callable[..., jax.Array]) -> Callable[[], Any]:
        compiled_function = jax.jit(jax.grad(function))
        return lambda: compiled_function(here[0]).block_until_ready()

    vjp, grad = dx.compile(square).vjp, dx.compile(energy).gradient
    result = {}
    for group, declared, own, compiled_function, alone in (
        ("VJP", square, lambda X: X @ X, backward, lambda: vjp(X, cotangent)),
        ("gradient", energy, lambda X: jnp.sum((X @ X) ** 2), gradient, lambda: grad(X)),
    ):
        result[group] = {
            "JAX's own": compiled_function(own),
            "derivatrix.jax": compiled_function(derivatrix.jax.function(declared)),
            "pure_callback": compiled_function(derivatrix.jax.function(declared, native=False)),
            "module alone": alone,
        }

    def eager_gradient(function: Callable[..., jax.Array]) -> Callable[[], Any]:
        return lambda: jax.grad(function)(here[0]).block_until_ready()

    result["gradient, without jit"] = {
        "JAX's own under jit": eager_gradient(jax.jit(lambda X: jnp.sum((X @ X) ** 2))),
        "JAX's own": eager_gradient(lambda X: jnp.sum((X @ X) ** 2)),
        "derivatrix.jax": eager_gradient(derivatrix.jax.function(energy)),
    }
    return result
