"""Gradients and Hessian-vector products by the inputs in `wrt` with what is multiplied by them, as
arrays of JAX or of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from derivatrix.runtime.interface import ModuleInterface


def along(interface: ModuleInterface, arrays: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Σ <array, tangent>, for each sample."""
    lead = int(interface.batched)
    terms = [array * tangent for array, tangent in zip(arrays, tangents, strict=True)]
    sums = [term.reshape((*term.shape[:lead], prod(term.shape[lead:]))).sum(-1) for term in terms]
    return sum(sums[1:], sums[0])


def weighted(interface: ModuleInterface, arrays: Sequence[Any], weights: Any) -> list[Any]:
    """Arrays, one of each for each sample, times the samples' weights; summed over samples for
    inputs that all samples share."""
    found = []
    for entry, array in zip(interface.wrt, arrays, strict=True):
        product = weights.reshape((*weights.shape, *[1] * (array.ndim - weights.ndim))) * array
        found.append(product.sum(0) if interface.batched and not entry.batched else product)
    return found
