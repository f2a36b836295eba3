"""Products of derivatives by the inputs in `wrt`, for arrays of JAX, PyTorch and PyTensor."""

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


def tangential(
    interface: ModuleInterface, inputs: Sequence[Any], directions: Sequence[Any]
) -> list[Any]:
    """Project directions at orthogonal inputs on the tangent space, (V - Q Vᵀ Q) / 2: only along
    these are derivatives of a JVP second derivatives."""
    values = {entry.name: array for entry, array in zip(interface.inputs, inputs, strict=False)}
    projected = []
    for entry, direction in zip(interface.wrt, directions, strict=True):
        if entry.structure == "orthogonal":
            matrix = values[entry.name]
            direction = (direction - matrix @ direction.mT @ matrix) / 2
        projected.append(direction)
    return projected


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
