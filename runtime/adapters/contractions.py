"""Products of derivatives by the inputs in `wrt`, for arrays of JAX and of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from derivatrix.runtime.interface import ModuleInterface


def along(interface: ModuleInterface, arrays: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Compute Σ <array, tangent> over the inputs, for each sample."""
    sums = []
    for entry, array, tangent in zip(interface.wrt, arrays, tangents, strict=True):
        term, lead = array * tangent, array.ndim - len(entry.shape)
        sums.append(term.reshape((*term.shape[:lead], prod(term.shape[lead:]))).sum(-1))
    return sum(sums[1:], sums[0])


def weighted(interface: ModuleInterface, arrays: Sequence[Any], weights: Any) -> list[Any]:
    """Multiply each sample's arrays by its weight, and sum over the samples for inputs that all of
    them share."""
    products = []
    for entry, array in zip(interface.wrt, arrays, strict=True):
        product = weights.reshape((*weights.shape, *[1] * (array.ndim - weights.ndim))) * array
        if interface.batched and not entry.batched:
            core = product.shape[weights.ndim :]
            product = product.reshape((prod(weights.shape), *core)).sum(0)
        products.append(product)
    return products
