"""Kernels that a specialist for Numba writes by hand, for the rows that have them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numba
import numpy as np

from tests.benchmarks.contestants.base import Candidate, Contestant, Unable
from tests.benchmarks.record import Row
from tests.benchmarks.specialist import SINGLE, kernels

SPINS = "3000"
"""Rounds in which a thread looks for work before it sleeps. With OpenMP's default of 300,000, two
threads on one processor take 8 ms for 10 µs of work, in each call."""


class Specialist(Contestant):
    name = "specialist"

    def __init__(self, threads: int) -> None:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
        self.version = f"Numba {numba.__version__}"
        self.kernels = kernels()

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        derivative = self.kernels.get(row.name)
        if derivative is None:
            raise Unable("no kernel written by hand")
        if arguments[0].dtype != np.float64 and row.name not in SINGLE:
            raise Unable("no kernel written by hand for float32")
        return [Candidate("kernels", lambda: lambda: derivative(*arguments))]
