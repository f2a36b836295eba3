"""The closed form in NumPy and SciPy, which is also what every result is checked against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.benchmarks.contestants.base import Candidate, Contestant
from tests.benchmarks.record import Row


class ByHand(Contestant):
    name = "by-hand"

    def __init__(self, threads: int) -> None:
        self.version = f"NumPy {np.__version__}"

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [Candidate("closed form", lambda: lambda: row.closed(*arguments))]
