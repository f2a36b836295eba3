"""The contestants on a CUDA device. Calls return before the device is done; `finish` waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import cupy
import numpy as np

import derivatrix as dx
from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Unable
from tests.benchmarks.contestants.derivatrix import plain
from tests.benchmarks.machine import Rates
from tests.benchmarks.record import Row, flat
from tests.benchmarks.timing import block, calibrate


class Derivatrix(Contestant):
    """Modules for the target cuda, on arrays of CuPy."""

    name = "derivatrix"

    def __init__(self, threads: int) -> None:
        self.version = dx.__version__
        self.modules: dict[str, ModuleType] = {}

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [Candidate(row.kind, partial(self.make, row, arguments))]

    def make(self, row: Row, arguments: Sequence[np.ndarray]) -> Call:
        """The call of a function of the row's module."""
        module, values = self.module(row), on_device(arguments)
        if row.kind == "newton":
            return lambda: cupy.linalg.solve(module.hessian(*values), module.gradient(*values))
        return plain(module, row.kind, values)

    def module(self, row: Row) -> ModuleType:
        """One module for all sizes of a row."""
        if row.function.name not in self.modules:
            self.modules[row.function.name] = dx.compile(row.function, target="cuda")
        return self.modules[row.function.name]

    def finish(self) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def arrays(self, result: Any) -> list[np.ndarray]:
        return flat(_host(result))


class Kept(Derivatrix):
    """Into arrays that are kept from call to call, given as `out`."""

    name = "derivatrix-kept"

    def make(self, row: Row, arguments: Sequence[np.ndarray]) -> Call:
        if row.kind == "newton":
            raise Unable("the solution is CuPy's, in a new array")
        function, values = getattr(self.module(row), row.kind), on_device(arguments)
        out = function(*values)
        return lambda: function(*values, out=out)


class ByHand(Contestant):
    """The closed form, in those functions of NumPy that CuPy has too."""

    name = "by-hand"

    def __init__(self, threads: int) -> None:
        self.version = f"CuPy {cupy.__version__}"

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        values = on_device(arguments)
        return [Candidate("closed form", lambda: lambda: row.closed(*values))]

    def finish(self) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def arrays(self, result: Any) -> list[np.ndarray]:
        return flat(_host(result))


def on_device(arguments: Sequence[np.ndarray]) -> list[Any]:
    """Arrays of CuPy, numbers as they are."""
    return [cupy.asarray(array) if array.ndim else float(array) for array in arguments]


def _host(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return [_host(part) for part in result]
    return cupy.asnumpy(result)


def rates() -> Rates:
    """Measure the rates of the device."""
    return Rates(
        dgemm=_products(np.float64),
        sgemm=_products(np.float32),
        copies={nbytes: _copies(nbytes) for nbytes in (1_000_000, 32_000_000, 2_000_000_000)},
    )


def _products(dtype: type[np.floating]) -> float:
    size = 8192
    A = cupy.ones((size, size), dtype)
    out = cupy.empty_like(A)
    return 2 * size**3 / _least(lambda: cupy.matmul(A, A, out=out))


def _copies(nbytes: int) -> float:
    source = cupy.ones(nbytes // 16)
    target = cupy.empty_like(source)
    return nbytes / _least(lambda: cupy.copyto(target, source))


def _least(call: Call) -> float:
    finish = cupy.cuda.get_current_stream().synchronize
    loops = calibrate(call, finish=finish)
    return min(block(call, loops, finish) for _ in range(10))
