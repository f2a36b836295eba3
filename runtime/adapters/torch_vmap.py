"""Operators under torch.vmap."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from derivatrix.runtime.adapters.stacks import equals_calls_by_sample

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_operator import Dispatched

Dims = tuple[int | None, ...]


def vmap(operator: Dispatched, info: Any, in_dims: Dims, *tensors: Tensor) -> tuple[Any, Any]:
    """Call an operator for stacks of samples along `in_dims`: the operator with batch axes if that
    gives the same, else this one sample by sample. Return the results and their batch axes."""
    size, count = info.batch_size, operator.kernel.count
    samples_first = [
        tensor if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]
    out_dims = (0,) * count if count > 1 else 0
    batched = _batched_operator(operator, in_dims)
    if batched is not None:
        entries = batched.kernel.parameters.values()
        ranks = [t.ndim - len(e.shape) for e, t in zip(entries, tensors, strict=True)]
        # axes of samples that `in_dims` leaves; the stacked axis must stand before all of them
        counts = [rank - (dim is not None) for rank, dim in zip(ranks, in_dims, strict=True)]
        stacks = tuple(
            tensor
            if dim is None
            else tensor.reshape(size, *[1] * (max(counts) - count), *tensor.shape[1:])
            for count, dim, tensor in zip(counts, in_dims, samples_first, strict=True)
        )
        return batched.overload(*batched.kernel.broadcast(stacks)), out_dims
    if size == 0:
        samples = _select(lambda stack: stack.new_empty(stack.shape[1:]), in_dims, samples_first)
        results = [operator.kernel.fake(*samples)]
    else:
        rows = (_select(itemgetter(row), in_dims, samples_first) for row in range(size))
        results = [operator.overload(*samples) for samples in rows]
    if count == 1:
        return _stack(results, size), out_dims
    return tuple(_stack(parts, size) for parts in zip(*results, strict=True)), out_dims


def _batched_operator(operator: Dispatched, in_dims: Dims) -> Dispatched | None:
    """Return the operator with batch axes, if one call of it equals calls by sample."""
    kind, has_batch = operator.kernel.kind, operator.kernel.interface.batched
    family = operator.family if has_batch else operator.family.batched
    is_stacked = [dim is not None for dim in in_dims]
    if family is None or not equals_calls_by_sample(family.interface, kind, is_stacked):
        return None
    return family.operators[kind]


def _select(
    sample: Callable[[Tensor], Tensor], in_dims: Dims, tensors: list[Tensor]
) -> list[Tensor]:
    """Take a sample of each stack; tensors without a batch axis are taken whole."""
    return [
        tensor if dim is None else sample(tensor)
        for tensor, dim in zip(tensors, in_dims, strict=True)
    ]


def _stack(results: Any, size: int) -> Tensor:
    if size == 0:
        return results[0].new_empty((0, *results[0].shape))
    return torch.stack(list(results))
