"""JAX and PyTorch on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.contestants.base import Call, Candidate
from tests.benchmarks.record import Program, Row


def jax(threads: int) -> Any:
    """JAX's contestant, whose calls are waited for by `finish` alone."""
    import jax

    from tests.benchmarks.contestants.jax import TRANSFORMS, Jax

    def make(derivative: Program, arguments: Sequence[np.ndarray], last: list[Any]) -> Call:
        compiled = jax.jit(derivative)
        arrays = [jax.device_put(array) for array in arguments]

        def call() -> Any:
            last[:] = [compiled(*arrays)]
            return last[0]

        return call

    class DeviceJax(Jax):
        def __init__(self, threads: int) -> None:
            super().__init__(threads)
            jax.devices("cuda")  # raises where there is none
            self.last: list[Any] = []

        def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
            return [
                Candidate(variant + suffix, partial(make, derivative, arguments, self.last))
                for suffix, program in self.programs(row, "jax")
                for variant, derivative in TRANSFORMS.derivatives(row, program).items()
            ]

        def finish(self) -> None:
            jax.block_until_ready(self.last)

    return DeviceJax(threads)


def torch(threads: int) -> Any:
    """PyTorch's contestant."""
    return _on_device("Eager", threads)


def torch_compile(threads: int) -> Any:
    """PyTorch's contestant through torch.compile."""
    return _on_device("Compiled", threads)


def _on_device(kind: str, threads: int) -> Any:
    import torch

    from tests.benchmarks.contestants import torch as host

    class Device(getattr(host, kind)):  # type: ignore[misc]
        def tensors(self, arguments: Sequence[np.ndarray]) -> list[torch.Tensor]:
            return [torch.from_numpy(array).cuda() for array in arguments]

        def finish(self) -> None:
            torch.cuda.synchronize()

    return Device(threads)
