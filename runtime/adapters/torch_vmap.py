"""Operators under torch.vmap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_operator import Dispatched

Dims = tuple[int | None, ...]


def vectorized(
    operator: Dispatched, size: int, in_dims: Dims, tensors: tuple[Tensor, ...]
) -> tuple[Any, Any]:
    """What an operator returns for stacks of `size` samples along `in_dims`, and along which axes:
    by one call of the batched operator where there is one for these, else sample by sample."""
    moved = [
        tensor if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]
    several = operator.kernel.count > 1
    out_dims = (0,) * operator.kernel.count if several else 0
    batched = _batched(operator, in_dims)
    if batched is not None:
        return batched.overload(*_expanded(batched, size, in_dims, moved)), out_dims
    if size == 0:
        results = [operator.kernel.fake(*_empty(in_dims, moved))]
    else:
        results = [operator.overload(*_sample(row, in_dims, moved)) for row in range(size)]
    if not several:
        return _stacked(results, size), out_dims
    return tuple(_stacked(parts, size) for parts in zip(*results, strict=True)), out_dims


def _batched(operator: Dispatched, in_dims: Dims) -> Dispatched | None:
    """The operator of the batched module, if all that varies has a batch axis there, and so have
    all cotangents, which it otherwise sums over the samples."""
    family = operator.family.batched
    if family is None:
        return None
    found = family.operators[operator.kernel.kind]
    varying = zip(found.kernel.varies, in_dims, strict=True)
    if not all(varies or dim is None for varies, dim in varying):
        return None
    if found.kernel.kind == "vjp" and not all(e.batched for e in family.interface.wrt):
        return None
    return found


def _expanded(batched: Dispatched, size: int, in_dims: Dims, tensors: list[Tensor]) -> list[Tensor]:
    return [
        tensor.expand(size, *tensor.shape) if varies and dim is None else tensor
        for varies, dim, tensor in zip(batched.kernel.varies, in_dims, tensors, strict=True)
    ]


def _sample(row: int, in_dims: Dims, tensors: list[Tensor]) -> list[Tensor]:
    return [
        tensor if dim is None else tensor[row] for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


def _empty(in_dims: Dims, tensors: list[Tensor]) -> list[Tensor]:
    return [
        tensor if dim is None else tensor.new_empty(tensor.shape[1:])
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


def _stacked(results: Any, size: int) -> Tensor:
    if size == 0:
        return results[0].new_empty((0, *results[0].shape))
    return torch.stack(list(results))
