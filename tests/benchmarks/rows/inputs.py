"""Inputs that several rows draw."""

from __future__ import annotations

import numpy as np


def conditioned(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Square matrices whose inverse is no larger than they are."""
    size = shape[-1]
    return generator.normal(size=shape) / np.sqrt(size) + 3 * np.eye(size)


def scaled(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Entries such that products with it keep their size."""
    return generator.normal(size=shape) / np.sqrt(shape[-1])


def covariance(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive definite matrices."""
    factor = scaled(generator, *shape)
    return factor @ factor.swapaxes(-1, -2) + np.eye(shape[-1])
