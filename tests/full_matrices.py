"""Functions of structured matrices, and full matrices to give them: functions return for these what
they return for the nearest matrices of the structure."""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

import derivatrix as dx

STRUCTURES = ("symmetric", "spd", "lower", "upper", "diagonal")
POINT = np.array([0.5, -1.0, 2.0])


def nearest(structure: str, matrix: np.ndarray) -> np.ndarray:
    """The nearest matrices of a structure in the last two axes, whatever other entries are."""
    known = {
        "lower": np.tril(np.ones_like(matrix)),
        "upper": np.triu(np.ones_like(matrix)),
        "diagonal": np.eye(matrix.shape[-1]),
    }
    if structure in known:
        return np.where(known[structure], matrix, 0)
    return matrix / 2 + matrix.mT / 2


def full() -> np.ndarray:
    """A matrix of no structure, whose nearest matrices are invertible, and definite."""
    return 2 * np.eye(3) + np.random.default_rng(5).uniform(-0.6, 0.6, (3, 3))


def scalar_function(structure: str, n: Any, batch: Sequence[str] = ()) -> dx.Function:
    """A function whose kernels read all of a matrix and those that read a triangle."""
    M, x = dx.matrix("M", n, n, structure), dx.vector("x", n)
    value = x @ dx.tanh(M @ x) + dx.sum(dx.solve(M, x) ** 2) + dx.trace(M @ M @ M)
    return dx.function(f"scalar_{structure}", [M, x], value, batch=batch)


@cache
def scalar(structure: str, batch: tuple[str, ...] = ()) -> ModuleType:
    return dx.compile(scalar_function(structure, dx.dims("n"), batch))


@cache
def product(structure: str, batch: tuple[str, ...] = ()) -> ModuleType:
    n = dx.dims("n")
    M, x = dx.matrix("M", n, n, structure), dx.vector("x", n)
    return dx.compile(dx.function(f"product_{structure}", [M, x], M @ x, batch=batch))
