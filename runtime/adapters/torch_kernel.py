"""Functions of a generated module on tensors of PyTorch, without derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from derivatrix.runtime.adapters.sizes import float_type, sizes_of
from derivatrix.runtime.adapters.structures import LINEAR, project
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

REAL = (torch.float64, torch.float32)
STRIDED = torch.strided


class Kernel:
    """A function of a module, of `kind` "value", "vjp", "jvp" or "hvp", on tensors.

    `parameters`: the names of what it takes; `varies`: for each whether it has the batch axis;
    `count`: how many tensors it returns."""

    def __init__(self, interface: ModuleInterface, kind: str) -> None:
        self.interface, self.kind = interface, kind
        arguments = interface.arguments(kind)
        self.parameters = [*arguments]
        self.varies = [entry.batched for entry in arguments.values()]
        self.count = len(interface.keys(kind))
        self._structures = [entry.structure for entry in interface.inputs]
        self._is_structured = not {*self._structures}.isdisjoint(LINEAR)
        self._module, self._on_device = interface.module, interface.target == "cuda"
        self.device = "cuda" if self._on_device else "cpu"

    def __call__(self, *tensors: Tensor) -> Any:
        """What the module's function returns: a tensor, or a tuple of them."""
        result = getattr(self._module, self.kind)(*self._passed(tensors))
        if self.count > 1:
            return tuple([_tensor(each) for each in result])
        return _tensor(result)

    def fill(self, out: Tensor, *tensors: Tensor) -> None:
        """Have the module's function write its one result to `out`."""
        destination = out.detach() if self._on_device else out.numpy()
        getattr(self._module, self.kind)(*self._passed(tensors), out=destination)

    def _passed(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """What the module takes for tensors: arrays of the same memory, numbers for rank 0; for a
        device, the tensors; structured inputs projected. Raises UnsupportedError for tensors that
        it does not take."""
        found: list[Any] = []
        for tensor in self._nearest(tensors) if self._is_structured else tensors:
            here = tensor.is_cuda if self._on_device else tensor.is_cpu
            if not here or tensor.dtype not in REAL or tensor.layout is not STRIDED:
                raise self._refusal(tensors)
            if self._on_device:
                found.append(tensor.detach())
            else:
                array = tensor.numpy()
                found.append(array if array.ndim else array[()])
        return found

    def _nearest(self, tensors: tuple[Tensor, ...]) -> list[Tensor]:
        """The tensors, inputs projected; the module projects tangents and cotangents itself."""
        if not all(map(self._takes, tensors)):
            raise self._refusal(tensors)
        inputs = [
            project(structure, tensor, torch.tril, torch.triu)
            for structure, tensor in zip(self._structures, tensors, strict=False)
        ]
        return [*inputs, *tensors[len(inputs) :]]

    def fake(self, *tensors: Tensor) -> Any:
        """Tensors of the shapes and types that a call returns, with nothing in them.

        Raises ShapeError where the inputs' shapes disagree."""
        if not all(map(self._takes, tensors)):
            raise self._refusal(tensors)
        inputs = self.interface.inputs
        shapes = {e.name: t.shape for e, t in zip(inputs, tensors, strict=False)}
        sizes = sizes_of(self.interface, shapes)
        dtype = getattr(torch, float_type(tensors))
        results = [
            tensors[0].new_empty(self.interface.shape(self.kind, key, sizes), dtype=dtype)
            for key in self.interface.keys(self.kind)
        ]
        return results[0] if self.count == 1 else tuple(results)

    def _takes(self, tensor: Tensor) -> bool:
        here = tensor.is_cuda if self._on_device else tensor.is_cpu
        known = here or tensor.is_meta
        return known and tensor.dtype in REAL and tensor.layout is STRIDED

    def _refusal(self, tensors: tuple[Tensor, ...]) -> UnsupportedError:
        """For the first tensor that the module does not take."""
        pairs = zip(self.parameters, tensors, strict=True)
        name, tensor = next(pair for pair in pairs if not self._takes(pair[1]))
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
    """A tensor of the memory of an array or a number; one of a device as it is."""
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(np.asarray(array))
