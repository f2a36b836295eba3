"""Functions of a generated module for tensors of PyTorch, without derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from derivatrix.runtime.adapters.sizes import batch_axes, float_type, sizes_of
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

REAL = (torch.float64, torch.float32)
STRIDED = torch.strided


class Kernel:
    """A function of a module, of `kind` "value", "vjp", "jvp" or "hvp", for tensors.

    parameters: its arguments by name; sample_ranks: of those with batch axes, the
    number of axes of a sample, by position. count: the number of tensors that it returns.
    is_by_output: whether the module's function returns a tuple with an array for each output."""

    def __init__(self, interface: ModuleInterface, kind: str) -> None:
        self.interface, self.kind = interface, kind
        self.parameters = interface.arguments(kind)
        self.sample_ranks = {
            position: len(entry.shape)
            for position, entry in enumerate(self.parameters.values())
            if entry.batched
        }
        self.count = len(interface.all_results(kind))
        self._module, self._on_device = interface.module, interface.target == "cuda"
        self.is_by_output = kind in ("value", "jvp") and bool(interface.output_names)
        self._takes_tuple = kind == "vjp" and bool(interface.output_names)
        self.device = "cuda" if self._on_device else "cpu"

    def __call__(self, *tensors: Tensor) -> Any:
        """Call the module's function; return a tensor, or a tuple of them."""
        result = getattr(self._module, self.kind)(*self._arrays(tensors))
        if self.count > 1:
            return tuple([_tensor(array) for array in result])
        return _tensor(result[0] if self.is_by_output else result)

    def broadcast(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Expand the arguments that have batch axes to the axes of all of them."""
        ranks = self.sample_ranks
        batch_shapes = [t.shape[: t.ndim - ranks[i]] for i, t in enumerate(tensors) if i in ranks]
        if all(axes == batch_shapes[0] for axes in batch_shapes[1:]):
            return tensors
        shapes = {name: t.shape for name, t in zip(self.parameters, tensors, strict=True)}
        axes = batch_axes(self.interface, self.parameters, shapes)
        return tuple(
            tensor.expand(*axes, *tensor.shape[tensor.ndim - ranks[position] :])
            if position in ranks
            else tensor
            for position, tensor in enumerate(tensors)
        )

    def fill(self, *tensors: Tensor) -> None:
        """Have the module's function write its results to the last tensors."""
        inputs, out = tensors[: -self.count], tensors[-self.count :]
        destinations = tuple(t.detach() if self._on_device else t.numpy() for t in out)
        destination = destinations if self.is_by_output else destinations[0]
        getattr(self._module, self.kind)(*self._arrays(inputs), out=destination)

    def _arrays(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """Convert tensors to the module's arguments: arrays of the same memory, numbers for rank 0;
        for a device, the tensors. Raises UnsupportedError for tensors that the module does not
        take."""
        arrays: list[Any] = []
        for tensor in tensors:
            # written out, not `_accepts`: this is the hot path of a call
            is_here = tensor.is_cuda if self._on_device else tensor.is_cpu
            if not is_here or tensor.dtype not in REAL or tensor.layout is not STRIDED:
                raise self._error(tensors)
            if self._on_device:
                arrays.append(tensor.detach())
            else:
                array = tensor.numpy()
                arrays.append(array if array.ndim else array[()])  # kernels take numbers for rank 0
        return self.interface.grouped(self.kind, arrays) if self._takes_tuple else arrays

    def fake(self, *tensors: Tensor) -> Any:
        """Return empty tensors of the shapes and types of a call's results.

        Raises ShapeError if the inputs' shapes disagree."""
        if not all(map(self._accepts, tensors)):
            raise self._error(tensors)
        shapes = {name: t.shape for name, t in zip(self.parameters, tensors, strict=True)}
        sizes = sizes_of(self.interface, shapes)
        axes = batch_axes(self.interface, self.parameters, shapes)
        dtype = getattr(torch, float_type(tensors))
        results = []
        for interface, key in self.interface.all_results(self.kind):
            shape = interface.shape(self.kind, key, sizes)
            if interface.has_batch(self.kind, key):
                shape = (*axes, *shape[1:])
            results.append(tensors[0].new_empty(shape, dtype=dtype))
        return results[0] if self.count == 1 else tuple(results)

    def _accepts(self, tensor: Tensor) -> bool:
        is_here = tensor.is_cuda if self._on_device else tensor.is_cpu
        return (is_here or tensor.is_meta) and tensor.dtype in REAL and tensor.layout is STRIDED

    def _error(self, tensors: tuple[Tensor, ...]) -> UnsupportedError:
        """Make the error for the first tensor that the module does not take."""
        pairs = zip(self.parameters, tensors, strict=True)
        name, tensor = next(pair for pair in pairs if not self._accepts(pair[1]))
        if tensor.dtype not in REAL:
            problem = (
                f"of {tensor.dtype}; expected torch.float64 or torch.float32, as of .double() or "
                ".float()"
            )
        elif tensor.layout is not STRIDED:
            problem = f"of {tensor.layout}; expected torch.strided, as of .to_dense()"
        else:
            problem = (
                f"on {tensor.device}; expected one on {self.device}: move "
                "it with .to(), or make an operator of a module that is built for its device"
            )
        return UnsupportedError(f"{self.interface.name}: argument {name} is a tensor {problem}")


def _tensor(array: Any) -> Tensor:
    """View an array or a number as a tensor; a tensor of a device is returned as it is."""
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(np.asarray(array))
