"""CasADi: expression graphs of scalars, for small sizes, called through its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np

from derivatrix.compiler.ir.dimensions import evaluate
from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Unable
from tests.benchmarks.record import Program, Row


def softmax(x: Any) -> Any:
    """Compute the softmax of a column, or of each row."""
    powers = ca.exp(x - ca.mmax(x))
    return powers / _totals(powers)


def log_softmax(x: Any) -> Any:
    """Compute the logarithm of the softmax of a column, or of each row."""
    return x - ca.mmax(x) - ca.log(_totals(ca.exp(x - ca.mmax(x))))


def _totals(x: Any) -> Any:
    columns = x.shape[1]
    return ca.sum1(x) if columns == 1 else ca.repmat(ca.sum2(x), 1, columns)


Shape = tuple[int, ...]

LARGEST = 4096
"""Entries of inputs, or of a result, above which graphs of scalars take too long to build."""


class Casadi(Contestant):
    """CasADi's arrays are matrices, and its derivatives are Jacobians of columns."""

    name = "casadi"
    keep = False
    library = SimpleNamespace(
        cos=ca.cos,
        cross=ca.cross,
        diagonal=ca.diag,
        dot=ca.dot,
        exp=ca.exp,
        eye=lambda like: ca.SX.eye(like.shape[0]),
        inv=ca.inv,
        log=ca.log,
        logsumexp=lambda x, axis=-1: ca.log(ca.sum1(ca.exp(x - ca.mmax(x)))) + ca.mmax(x),
        logdet=lambda A: 2 * ca.sum1(ca.log(ca.diag(ca.chol(A)))),
        cholesky=lambda A: ca.chol(A).T,
        relu=lambda x: ca.fmax(x, 0),
        sin=ca.sin,
        softmax=softmax,
        softplus=lambda x: ca.log1p(ca.exp(x)),
        solve=ca.solve,
        sqrt=ca.sqrt,
        sum=lambda x: ca.sum1(ca.sum2(x)),
        tanh=ca.tanh,
        trace=ca.trace,
        triangular=ca.solve,
        width=lambda X: X.shape[-1],
        log_softmax=log_softmax,
    )

    def __init__(self, threads: int) -> None:
        self.version = ca.__version__
        self.shapes: list[tuple[Shape, Shape]] = []
        """The shapes of each result: of the batch, and of a sample, whose entries CasADi stores
        column by column."""

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        if any(array.dtype != np.float64 for array in arguments):
            raise Unable("CasADi computes in float64")
        samples = [
            array[0] if flag else array
            for array, flag in zip(arguments, _batched(row, arguments), strict=True)
        ]
        if sum(sample.size for sample in samples) > LARGEST:
            raise Unable(f"CasADi's graphs of scalars: more than {LARGEST} entries")
        return [
            Candidate("SX" + suffix, partial(self._make, row, program, arguments, samples))
            for suffix, program in self.programs(row, "casadi")
        ]

    def _make(
        self,
        row: Row,
        program: Program,
        arguments: Sequence[np.ndarray],
        samples: Sequence[np.ndarray],
    ) -> Call:
        symbols = [_symbol(f"x{k}", sample) for k, sample in enumerate(samples)]
        outputs = _outputs(row, program, symbols)
        if sum(output.numel() for output in outputs) > LARGEST**2:
            raise Unable("CasADi's graphs of scalars: the result is too large")
        function = ca.Function("f", symbols, [ca.densify(output) for output in outputs])
        batched = _batched(row, arguments)
        count = 0
        if any(batched):
            count = len(arguments[batched.index(True)])
            shared = [k for k, flag in enumerate(batched) if not flag]
            function = function.map("batch", "serial", count, shared, [])
        columns = [_columns(array, flag) for array, flag in zip(arguments, batched, strict=True)]
        stacked = (count,) if count else ()
        self.shapes = [(stacked, shape) for shape in _shapes(row, samples)]
        buffered = _Buffered(function, columns)
        return buffered.kept if self.keep else buffered.new

    def arrays(self, result: Any) -> list[np.ndarray]:
        shaped = [
            (array.reshape((*shape, *stacked), order="F"), len(stacked))
            for array, (stacked, shape) in zip(result, self.shapes, strict=True)
        ]
        return [np.moveaxis(array, -1, 0) if flag else array for array, flag in shaped]


class Kept(Casadi):
    """Into memory that is kept from call to call."""

    name = "casadi-kept"
    keep = True


def _symbol(name: str, sample: np.ndarray) -> Any:
    rows, columns = (*sample.shape, 1, 1)[:2]
    return ca.SX.sym(name, rows, columns)


def _outputs(row: Row, program: Program, symbols: list[Any]) -> list[Any]:
    inputs = symbols[: len(row.inputs)]
    value = program(*inputs)
    wrt = [inputs[position] for position in row.wrt]
    match row.kind:
        case "vjp":
            cotangent = ca.vec(symbols[-1])
            return [ca.jtimes(ca.vec(value), variable, cotangent, True) for variable in wrt]
        case "gradient":
            return [ca.gradient(value, variable) for variable in wrt]
        case "jacobian":
            return [ca.jacobian(ca.vec(value), ca.vec(variable)) for variable in wrt]
        case "hessian":
            return [ca.hessian(value, wrt[0])[0]]
        case "newton":
            hessian, gradient = ca.hessian(value, wrt[0])
            return [ca.solve(hessian, gradient)]
    raise Unable(f"no {row.kind} here")


def _shapes(row: Row, samples: Sequence[np.ndarray]) -> list[Shape]:
    wrt = [samples[position].shape for position in row.wrt]
    if row.kind == "hessian":
        return [wrt[0] * 2]
    if row.kind != "jacobian":
        return wrt
    return [(*_value_shape(row, samples), *shape) for shape in wrt]


def _value_shape(row: Row, samples: Sequence[np.ndarray]) -> Shape:
    sizes: dict[str, int] = {}
    for leaf, sample in zip(row.function.inputs, samples, strict=False):
        sizes |= {str(symbol): n for symbol, n in zip(leaf.shape, sample.shape, strict=True)}
    return tuple(int(evaluate(size, sizes)) for size in row.function.expression.shape)


def _batched(row: Row, arguments: Sequence[np.ndarray]) -> list[bool]:
    """Return which arguments, the cotangent included, have a batch axis."""
    return [*row.batched, any(row.batched)][: len(arguments)]


def _columns(array: np.ndarray, batched: bool) -> np.ndarray:
    """The entries column by column, of each sample after the other."""
    return np.ravel(np.moveaxis(array, 0, -1) if batched else array, order="F")


class _Buffered:
    """A function with memory for its arguments (entries as CasADi keeps them) and results, which
    it keeps alive."""

    def __init__(self, function: Any, arguments: Sequence[np.ndarray]) -> None:
        self.function = function
        self.buffer, self.evaluate = function.buffer()
        self.inputs = list(arguments)
        self.outputs = [np.zeros(function.nnz_out(k)) for k in range(function.n_out())]
        self.pass_inputs()
        for k, array in enumerate(self.outputs):
            self.buffer.set_res(k, array.data)

    def pass_inputs(self) -> None:
        for k, array in enumerate(self.inputs):
            self.buffer.set_arg(k, array.data)

    def new(self) -> list[np.ndarray]:
        """Take the arguments where they lie, return new arrays."""
        self.pass_inputs()
        self.evaluate()
        return [array.copy() for array in self.outputs]

    def kept(self) -> list[np.ndarray]:
        """Read and write the same memory each time."""
        self.evaluate()
        return self.outputs
