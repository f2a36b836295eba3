"""derivatrix, called through the public functions of its generated modules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np

import derivatrix as dx
from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Unable
from tests.benchmarks.record import Row


class Derivatrix(Contestant):
    """One module for all sizes of a row."""

    name = "derivatrix"

    def __init__(self, threads: int) -> None:
        self.version = dx.__version__
        self.modules: dict[str, ModuleType] = {}
        self.stages: dict[str, float] = {}

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [Candidate(row.kind, lambda: self._make(row, arguments))]

    def notes(self) -> Mapping[str, float]:
        return self.stages

    def _make(self, row: Row, arguments: Sequence[np.ndarray]) -> Call:
        self.stages = {}
        module = self._module(row)
        values = [array if array.ndim else float(array) for array in arguments]
        started = time.perf_counter()
        call = newton(module, values) if row.kind == "newton" else plain(module, row.kind, values)
        call()
        self.stages["kernels"] = time.perf_counter() - started
        return call

    def _module(self, row: Row) -> ModuleType:
        if row.function.name not in self.modules:
            started = time.perf_counter()
            self.modules[row.function.name] = dx.compile(row.function)
            self.stages["module"] = time.perf_counter() - started
        return self.modules[row.function.name]


def plain(module: ModuleType, kind: str, values: Sequence[np.ndarray | float]) -> Call:
    function = getattr(module, kind)
    return lambda: function(*values)


def newton(module: ModuleType, values: Sequence[np.ndarray | float]) -> Call:
    """The Newton step as a user of the module writes it."""
    hessian, gradient, solve = module.hessian, module.gradient, np.linalg.solve

    def call() -> np.ndarray:
        return solve(hessian(*values), gradient(*values))

    return call


class Kept(Derivatrix):
    """Into arrays that are kept from call to call, given as `out`."""

    name = "derivatrix-kept"

    def _make(self, row: Row, arguments: Sequence[np.ndarray]) -> Call:
        if row.kind == "newton":
            raise Unable("the solution is NumPy's, in a new array")
        function = getattr(self._module(row), row.kind)
        values = [array if array.ndim else float(array) for array in arguments]
        out = function(*values)
        return lambda: function(*values, out=out)
