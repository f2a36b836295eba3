"""PyTensor, with its Numba and its C backend."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode, get_mode
from pytensor.gradient import Lop, jacobian
from pytensor.graph.replace import vectorize_graph

from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Unable
from tests.benchmarks.record import Program, Row


class Numba(Contestant):
    """A function compiled by Numba."""

    name = "pytensor-numba"
    library = SimpleNamespace(
        cholesky=pt.linalg.cholesky,
        cos=pt.cos,
        cross=lambda a, b: pt.stack([a[k - 2] * b[k - 1] - a[k - 1] * b[k - 2] for k in range(3)]),
        diagonal=pt.diagonal,
        dot=pt.dot,
        exp=pt.exp,
        expm=pt.linalg.expm,
        eye=lambda like: pt.eye(like.shape[-1], dtype=like.dtype),
        inv=pt.linalg.inv,
        log=pt.log,
        log_softmax=partial(pt.special.log_softmax, axis=-1),
        logdet=lambda A: pt.linalg.slogdet(A)[1],
        logsumexp=lambda x, axis: pt.logsumexp(x, axis=axis),
        relu=lambda x: pt.maximum(x, 0),
        sin=pt.sin,
        softmax=partial(pt.special.softmax, axis=-1),
        softplus=pt.softplus,
        solve=pt.linalg.solve,
        sqrt=pt.sqrt,
        sum=pt.sum,
        tanh=pt.tanh,
        trace=pt.linalg.trace,
        triangular=partial(pt.linalg.solve_triangular, lower=True),
        width=lambda X: X.shape[-1].astype(X.dtype),
        sylvester=pt.linalg.solve_sylvester,
    )

    def __init__(self, threads: int) -> None:
        self.version = pytensor.__version__
        self.functions: dict[tuple[str, str, str], Any] = {}

    def mode(self) -> Any:
        return get_mode("NUMBA")

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [
            Candidate(row.kind + suffix, partial(self._make, row, program, arguments, suffix))
            for suffix, program in self.programs(row, "pytensor")
        ]

    def _make(
        self, row: Row, program: Program, arguments: Sequence[np.ndarray], suffix: str
    ) -> Call:
        dtype = str(arguments[0].dtype)
        key = row.name, dtype, suffix
        if key not in self.functions:
            self.functions[key] = self._compile(row, program, dtype)
        function = self.functions[key]
        return lambda: function(*arguments)

    def _compile(self, row: Row, program: Program, dtype: str) -> Any:
        """A function for all sizes."""
        pytensor.config.floatX = dtype
        symbols = _symbols(row, dtype)
        outputs = _outputs(row, program, symbols)
        function = pytensor.function(symbols, outputs, mode=self.mode())
        function.trust_input = True
        return function


class C(Numba):
    """A function of compiled C, run by PyTensor's virtual machine."""

    name = "pytensor-c"

    def mode(self) -> Any:
        return Mode(linker="cvm", optimizer="fast_run")


def _symbols(row: Row, dtype: str) -> list[Any]:
    """Make symbols for the row's inputs, and for a vjp the cotangent, with literal sizes."""
    leaves = row.function.derivatives.arguments("vjp" if row.kind == "vjp" else "value")
    shapes = [[int(n) if n.is_Integer else None for n in leaf.shape] for leaf in leaves]
    return [
        pt.tensor(leaf.name, shape=tuple(shape), dtype=dtype)
        for leaf, shape in zip(leaves, shapes, strict=True)
    ]


def _outputs(row: Row, program: Program, symbols: list[Any]) -> list[Any]:
    """The derivative's expressions. The program is of one sample, so it gets symbols of its own,
    which the batches replace."""
    inputs = [
        pt.tensor(f"sample_{symbol.name}", shape=symbol.type.shape[1:], dtype=symbol.dtype)
        if batched
        else symbol
        for symbol, batched in zip(symbols, row.batched, strict=False)
    ]
    value = program(*inputs)
    wrt = [inputs[position] for position in row.wrt]
    replaced = {
        inner: outer for inner, outer in zip(inputs, symbols, strict=False) if inner is not outer
    }
    if row.kind == "vjp":
        if replaced:
            value = vectorize_graph(value, replace=replaced)
        chosen = [symbols[position] for position in row.wrt]
        return list(Lop(value, chosen, symbols[-1]))
    derivatives = _derivatives(row.kind, value, wrt)
    return vectorize_graph(derivatives, replace=replaced) if replaced else derivatives


def _derivatives(kind: str, value: Any, wrt: list[Any]) -> list[Any]:
    match kind:
        case "gradient":
            return list(pytensor.grad(value, wrt))
        case "jacobian":
            return [_jacobian(value, variable) for variable in wrt]
        case "hessian":
            return [_jacobian(pytensor.grad(value, wrt[0]), wrt[0])]
        case "newton":
            gradient = pytensor.grad(value, wrt[0])
            hessian = _jacobian(gradient, wrt[0])
            return [pt.linalg.solve(hessian, gradient, assume_a="pos")]
    raise Unable(f"no {kind} here")


def _jacobian(value: Any, wrt: Any) -> Any:
    """J[out..., in...]; PyTensor's own takes vectors. Vectorized: its other way, a loop over the
    rows, compiles for minutes."""
    flat = jacobian(value.ravel(), wrt, vectorize=True)
    shape = [*(value.shape[k] for k in range(value.ndim)), *(wrt.shape[k] for k in range(wrt.ndim))]
    return flat.reshape(shape, ndim=len(shape))
