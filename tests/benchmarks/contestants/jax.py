"""JAX, with jit and 64-bit types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import linalg

from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Transforms
from tests.benchmarks.record import Program, Row

TRANSFORMS = Transforms(
    grad=jax.grad,
    vjp=jax.vjp,
    jacrev=jax.jacrev,
    jacfwd=jax.jacfwd,
    vmap=jax.vmap,
    solve=partial(linalg.solve, assume_a="pos"),
)


class Jax(Contestant):
    name = "jax"
    library = SimpleNamespace(
        cholesky=jnp.linalg.cholesky,
        cos=jnp.cos,
        cross=jnp.cross,
        diagonal=jnp.diagonal,
        dot=jnp.dot,
        exp=jnp.exp,
        expm=linalg.expm,
        eye=lambda like: jnp.eye(like.shape[-1], dtype=like.dtype),
        inv=jnp.linalg.inv,
        log=jnp.log,
        log_softmax=jax.nn.log_softmax,
        logdet=lambda A: jnp.linalg.slogdet(A)[1],
        logsumexp=jax.nn.logsumexp,
        relu=jax.nn.relu,
        sin=jnp.sin,
        softmax=jax.nn.softmax,
        softplus=jax.nn.softplus,
        solve=jnp.linalg.solve,
        sqrt=jnp.sqrt,
        sum=jnp.sum,
        sylvester=linalg.solve_sylvester,
        tanh=jnp.tanh,
        trace=jnp.trace,
        triangular=partial(linalg.solve_triangular, lower=True),
        width=lambda X: X.shape[-1],
    )

    def __init__(self, threads: int) -> None:
        jax.config.update("jax_enable_x64", True)
        self.version = jax.__version__

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [
            Candidate(variant + suffix, partial(_make, derivative, arguments))
            for suffix, program in self.programs(row, "jax")
            for variant, derivative in TRANSFORMS.derivatives(row, program).items()
        ]


def _make(derivative: Program, arguments: Sequence[np.ndarray]) -> Call:
    compiled = jax.jit(derivative)
    arrays = [jax.device_put(array) for array in arguments]
    return lambda: jax.block_until_ready(compiled(*arrays))
