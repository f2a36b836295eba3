"""Points and directions for a function, drawn inside each input's structure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import Dimension, evaluate
from derivatrix.compiler.ir.nodes import Leaf

SIZES = {"n": 3, "m": 4, "c": 2, "batch": 5, "k": 3}


def numbers(shape: Sequence[Dimension], sizes: Mapping[str, int] = SIZES) -> tuple[int, ...]:
    """A shape of symbols as one of integers."""
    return tuple(int(evaluate(size, sizes)) for size in shape)


def draw(
    leaf: Leaf, generator: np.random.Generator, sizes: Mapping[str, int] = SIZES
) -> np.ndarray:
    """A value for an input."""
    array = np.asarray(generator.normal(size=numbers(leaf.shape, sizes)))
    match leaf.structure:
        case "spd":
            return array @ array.swapaxes(-1, -2) / array.shape[-1] + np.eye(array.shape[-1])
        case "positive" | "nonneg":
            return 0.5 + np.exp(0.5 * array)
        case "simplex":
            array = 0.5 + np.exp(0.5 * array)
            return array / array.sum(-1, keepdims=True)
        case "invertible":
            return array + 3 * np.eye(array.shape[-1])
        case "lower" | "upper" | "diagonal":
            return along(leaf, array) + 2 * np.eye(array.shape[-1])
        case "orthogonal":
            return np.linalg.qr(array)[0]
    return along(leaf, array)


def along(leaf: Leaf, array: np.ndarray) -> np.ndarray:
    """The part of `array` that keeps the structure of `leaf`."""
    match leaf.structure:
        case "symmetric" | "spd":
            return (array + array.swapaxes(-1, -2)) / 2
        case "lower":
            return np.tril(array)
        case "upper":
            return np.triu(array)
        case "diagonal":
            return array * np.eye(array.shape[-1])
    return array


def within(leaf: Leaf, value: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The part of `array`, in the last two axes, that keeps the structure of `leaf` at a value: at
    an orthogonal matrix Q that of the form Q times a skew matrix."""
    if leaf.structure != "orthogonal":
        return along(leaf, array)
    inner = value.swapaxes(-1, -2) @ array
    return value @ (inner - inner.swapaxes(-1, -2)) / 2


def draw_all(
    function: Function, seed: int = 0, sizes: Mapping[str, int] = SIZES
) -> dict[str, np.ndarray]:
    """Values for the inputs, the cotangent and the tangents of a function."""
    generator = np.random.default_rng(seed)
    derivatives = function.derivatives
    leaves = {
        leaf.name: leaf for kind in ("value", "vjp", "jvp") for leaf in derivatives.arguments(kind)
    }
    owners = {derivatives.tangent(leaf).name: leaf for leaf in derivatives.wrt}
    values: dict[str, np.ndarray] = {}
    for name, leaf in leaves.items():
        if leaf.role == "input":
            values[name] = draw(leaf, generator, sizes)
        else:
            shape = numbers(leaf.shape, sizes)
            array = np.asarray(generator.normal(size=shape))
            owner = owners.get(name)
            values[name] = within(owner, values[owner.name], array) if owner else along(leaf, array)
    return values


def leaves(result: Any) -> list[Any]:
    """The arrays in nested tuples, in order."""
    if isinstance(result, tuple):
        return [leaf for part in result for leaf in leaves(part)]
    return [result]
