"""Products of derivatives by the inputs in `wrt`, for arrays of JAX and of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from derivatrix.runtime.interface import ModuleInterface


def along(interface: ModuleInterface, arrays: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Compute Σ <array, tangent> over the inputs, for each sample."""
    lead = int(interface.batched)
    terms = [array * tangent for array, tangent in zip(arrays, tangents, strict=True)]
    sums = [term.reshape((*term.shape[:lead], prod(term.shape[lead:]))).sum(-1) for term in terms]
    return sum(sums[1:], sums[0])


def weighted(interface: ModuleInterface, arrays: Sequence[Any], weights: Any) -> list[Any]:
    """Multiply each sample's arrays by its weight, and sum over the samples for inputs that all of
    them share."""
    products = []
    for entry, array in zip(interface.wrt, arrays, strict=True):
        product = weights.reshape((*weights.shape, *[1] * (array.ndim - weights.ndim))) * array
        products.append(product.sum(0) if interface.batched and not entry.batched else product)
    return products
