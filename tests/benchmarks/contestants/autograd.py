"""autograd (HIPS): reverse mode over NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import autograd
import autograd.numpy as anp
import autograd.scipy.linalg as linalg
import autograd.scipy.special as special
import numpy as np

from tests.benchmarks.contestants.base import Candidate, Contestant, Unable
from tests.benchmarks.record import Program, Row


def softplus(x: Any) -> Any:
    return anp.logaddexp(0.0, x)


def log_softmax(x: Any) -> Any:
    return x - special.logsumexp(x, axis=-1, keepdims=True)


class Autograd(Contestant):
    name = "autograd"
    library = SimpleNamespace(
        cholesky=anp.linalg.cholesky,
        cos=anp.cos,
        cross=anp.cross,
        diagonal=lambda A: anp.diagonal(A, 0, -1, -2),
        dot=anp.dot,
        exp=anp.exp,
        eye=lambda like: anp.eye(like.shape[-1]),
        inv=anp.linalg.inv,
        log=anp.log,
        log_softmax=log_softmax,
        logdet=lambda A: anp.linalg.slogdet(A)[1],
        logsumexp=special.logsumexp,
        relu=lambda x: anp.maximum(x, 0.0),
        sin=anp.sin,
        softmax=lambda x: anp.exp(log_softmax(x)),
        softplus=softplus,
        solve=anp.linalg.solve,
        sqrt=anp.sqrt,
        sum=anp.sum,
        sylvester=linalg.solve_sylvester,
        tanh=anp.tanh,
        trace=anp.trace,
        triangular=lambda L, b: linalg.solve_triangular(L, b, lower=True),
        width=lambda X: X.shape[-1],
    )

    def __init__(self, threads: int) -> None:
        self.version = version("autograd")

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        if any(row.batched):
            raise Unable("autograd maps no function over a batch")
        return [
            Candidate(row.kind + suffix, partial(partial, _derivative(row, program), *arguments))
            for suffix, program in self.programs(row, "autograd")
        ]


def _derivative(row: Row, program: Program) -> Program:
    wrt = row.wrt if len(row.wrt) > 1 else row.wrt[0]
    match row.kind:
        case "gradient":
            return autograd.grad(program, wrt)
        case "vjp":
            pullback = autograd.make_vjp(program, wrt)
            return lambda *arguments: pullback(*arguments[:-1])[0](arguments[-1])
        case "jacobian" if len(row.wrt) == 1:
            return autograd.jacobian(program, wrt)
        case "hessian":
            return autograd.hessian(program, wrt)
        case "newton":
            gradient, hessian = autograd.grad(program, wrt), autograd.hessian(program, wrt)
            return lambda *inputs: np.linalg.solve(hessian(*inputs), gradient(*inputs))
    raise Unable(f"autograd has no {row.kind} by several inputs")
