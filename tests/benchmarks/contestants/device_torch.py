"""PyTorch on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tests.benchmarks.contestants.torch import Compiled, Eager


class DeviceEager(Eager):
    def tensors(self, arguments: Sequence[np.ndarray]) -> list[torch.Tensor]:
        return _on_device(arguments)

    def finish(self) -> None:
        torch.cuda.synchronize()


class DeviceCompiled(Compiled):
    def tensors(self, arguments: Sequence[np.ndarray]) -> list[torch.Tensor]:
        return _on_device(arguments)

    def finish(self) -> None:
        torch.cuda.synchronize()


def _on_device(arguments: Sequence[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(array).cuda() for array in arguments]
