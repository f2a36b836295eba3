"""derivatrix, called through the public functions of its generated modules."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import ModuleType

import numpy as np
from scipy import linalg

import derivatrix as dx
from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Unable
from tests.benchmarks.record import Row

Values = Sequence[np.ndarray | float]
Making = Callable[[ModuleType, str, Values], Call]
Solver = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Derivatrix(Contestant):
    """One module for all sizes of a row."""

    name = "derivatrix"

    def __init__(self, threads: int) -> None:
        self.version = dx.__version__
        self.modules: dict[str, ModuleType] = {}
        self.stages: dict[str, float] = {}

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        if row.kind != "newton":
            return [Candidate(row.kind, partial(self._make, row, arguments, plain))]
        return [
            Candidate(f"newton, {solver}", partial(self._make, row, arguments, step))
            for solver, step in STEPS.items()
        ]

    def notes(self) -> Mapping[str, float]:
        return self.stages

    def _make(self, row: Row, arguments: Sequence[np.ndarray], made: Making) -> Call:
        self.stages = {}
        module = self._module(row)
        values = [array if array.ndim else float(array) for array in arguments]
        started = time.perf_counter()
        call = made(module, row.kind, values)
        call()
        self.stages["kernels"] = time.perf_counter() - started
        return call

    def _module(self, row: Row) -> ModuleType:
        if row.function.name not in self.modules:
            started = time.perf_counter()
            self.modules[row.function.name] = dx.compile(row.function)
            self.stages["module"] = time.perf_counter() - started
        return self.modules[row.function.name]


def plain(module: ModuleType, kind: str, values: Values) -> Call:
    function = getattr(module, kind)
    return lambda: function(*values)


def newton(solve: Solver, module: ModuleType, kind: str, values: Values) -> Call:
    """The Newton step as a user of the module writes it."""
    hessian, gradient = module.hessian, module.gradient
    return lambda: solve(hessian(*values), gradient(*values))


@cache
def definite_solver() -> ModuleType:
    """A module whose value is the solution of a system with a positive definite matrix."""
    d = dx.dims("d")
    matrix, vector = dx.matrix("H", d, d, structure="spd"), dx.vector("g", d)
    return dx.compile(dx.function("newton_step", [matrix, vector], dx.solve(matrix, vector)))


def newton_by_kernels(module: ModuleType, kind: str, values: Values) -> Call:
    """Solve by Newton's method with our own solver."""
    return newton(definite_solver().value, module, kind, values)


STEPS: dict[str, Making] = {
    "derivatrix": newton_by_kernels,
    "numpy": partial(newton, np.linalg.solve),
    "scipy": partial(newton, partial(linalg.solve, assume_a="pos", check_finite=False)),
}
"""The solvers, by package. For large matrices SciPy should solve, with the BLAS of the kernels: the
threads of another BLAS wait for work and occupy the processors."""


class Kept(Derivatrix):
    """Into arrays that are kept from call to call, given as `out`."""

    name = "derivatrix-kept"

    def _make(self, row: Row, arguments: Sequence[np.ndarray], made: Making) -> Call:
        if row.kind == "newton":
            raise Unable("the solution is NumPy's, in a new array")
        function = getattr(self._module(row), row.kind)
        values = [array if array.ndim else float(array) for array in arguments]
        out = function(*values)
        return lambda: function(*values, out=out)
