"""JAX on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from tests.benchmarks.contestants.base import Call, Candidate
from tests.benchmarks.contestants.jax import TRANSFORMS, Jax
from tests.benchmarks.record import Program, Row


class DeviceJax(Jax):
    """Its calls are waited for by `finish` alone."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        jax.devices("cuda")  # raises where there is none
        self.last: list[Any] = []

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        return [
            Candidate(variant + suffix, partial(self._make, derivative, arguments))
            for suffix, program in self.programs(row, "jax")
            for variant, derivative in TRANSFORMS.derivatives(row, program).items()
        ]

    def finish(self) -> None:
        jax.block_until_ready(self.last)

    def _make(self, derivative: Program, arguments: Sequence[np.ndarray]) -> Call:
        compiled = jax.jit(derivative)
        arrays = [jax.device_put(array) for array in arguments]

        def call() -> Any:
            self.last = [compiled(*arrays)]
            return self.last[0]

        return call
