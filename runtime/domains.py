"""The domains and structures that inputs are declared with: random arrays, and membership."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]
Random = np.random.Generator


@dataclass(frozen=True)
class Domain:
    """A set of real arrays.

    draw: draws a random member. contains: whether an array is a member, as one truth value or
    several that must all hold. middle: the entries of a centre (the diagonal, for `square` ones)
    such that the segment from it to any member lies in the domain; None if there is no centre.
    narrower: subsets to draw from if a function is not defined on all of the domain."""

    draw: Callable[[Shape, Random], np.ndarray]
    contains: Callable[[np.ndarray], np.ndarray | bool] = lambda array: True
    middle: float | None = None
    square: bool = False
    narrower: tuple[str, ...] = ()


def draw(name: str, shape: Shape, random: Random, spread: float) -> np.ndarray:
    """Draw an array of the domain `name`, at `spread` times its distance from the middle."""
    is_square = len(shape) >= 2 and shape[-1] == shape[-2]
    domain = DOMAINS["general" if DOMAINS[name].square and not is_square else name]
    array = np.asarray(domain.draw(shape, random))
    if spread == 1 or domain.middle is None:
        return array
    middle = domain.middle * (np.eye(shape[-1]) if domain.square else 1.0)
    return np.asarray(middle + spread * (array - middle))


def contains(name: str, array: np.ndarray) -> bool:
    """Return whether an array belongs to the domain or structure `name`; true for unknown names."""
    return name not in DOMAINS or bool(np.all(DOMAINS[name].contains(array)))


def _general(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(random.standard_normal(shape))


def _positive(shape: Shape, random: Random) -> np.ndarray:
    return np.asarray(np.exp(random.uniform(-0.69, 0.69, shape)))


def _simplex(shape: Shape, random: Random) -> np.ndarray:
    array = _positive(shape, random)
    return np.asarray(array / array.sum(-1, keepdims=True))


def _spd(shape: Shape, random: Random) -> np.ndarray:
    factor = _general(shape, random)
    return factor @ np.swapaxes(factor, -1, -2) / shape[-1] + np.eye(shape[-1])


def _triangular(shape: Shape, random: Random) -> np.ndarray:
    dominant, small = _dominant(shape, random), random.uniform(-0.4, 0.4, shape)
    return dominant + small * (1 - np.eye(shape[-1]))


def _dominant(shape: Shape, random: Random) -> np.ndarray:
    size = shape[-1]
    diagonal = np.eye(size) * random.uniform(1.5, 2.5, (*shape[:-2], 1, size))
    return _general(shape, random) * (0.5 / size) + diagonal


def _orthogonal(shape: Shape, random: Random) -> np.ndarray:
    factor, triangle = np.linalg.qr(_general(shape, random))
    signs = np.sign(np.diagonal(triangle, axis1=-2, axis2=-1))
    return np.asarray(factor * signs[..., None, :])


def _shared_orthogonal(shape: Shape, random: Random) -> np.ndarray:
    """Draw one orthogonal matrix for all samples, so that a direction is tangential at each."""
    return np.broadcast_to(_orthogonal(shape[-2:], random), shape).copy()


def _invertible(shape: Shape, random: Random) -> np.ndarray:
    """Draw matrices with singular values between 1 and 2 and either sign of the determinant."""
    singular_values = random.uniform(1.0, 2.0, (*shape[:-2], 1, shape[-1]))
    return (_orthogonal(shape, random) * singular_values) @ _orthogonal(shape, random)


def _real_spectrum(shape: Shape, random: Random) -> np.ndarray:
    """Draw matrices with distinct real eigenvalues of either sign, eigenvectors not orthogonal."""
    size = shape[-1]
    eigenvalues = np.arange(size) - size / 2 + random.uniform(0.1, 0.4, (*shape[:-2], 1, size))
    vectors = _dominant(shape, random)
    return np.asarray((vectors * eigenvalues) @ np.linalg.inv(vectors))


def _is_spd(array: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(array) > 1e-6 * np.abs(array).max(initial=0.0)


def _is_orthogonal(array: np.ndarray) -> bool:
    return np.allclose(array @ np.swapaxes(array, -1, -2), np.eye(array.shape[-1]))


def _is_invertible(array: np.ndarray) -> np.ndarray:
    return np.linalg.cond(array) < 1e6


def _has_nonzero_diagonal(array: np.ndarray) -> np.ndarray:
    return np.diagonal(array, axis1=-2, axis2=-1) != 0


def _is_simplex(array: np.ndarray) -> bool:
    return bool((array >= 0).all()) and np.isclose(array.sum(), array[..., 0].size, 1e-9, 0)


DOMAINS = {
    "general": Domain(_general, middle=0.0),
    "positive": Domain(_positive, lambda a: a > 0, 1.0, narrower=("fraction", "above one")),
    "small": Domain(lambda shape, r: r.uniform(-0.4, 0.4, shape), lambda a: np.abs(a) < 0.5, 0.0),
    "fraction": Domain(
        lambda shape, r: r.uniform(0.15, 0.85, shape), lambda a: (a > 0) & (a < 1), 0.5
    ),
    "spd": Domain(_spd, _is_spd, 2.0, square=True),
    "dominant": Domain(_dominant, _is_invertible, 2.0, square=True),
    "above one": Domain(lambda shape, r: r.uniform(1.3, 2.5, shape), lambda a: a > 1, 1.9),
    "lower": Domain(_triangular, _has_nonzero_diagonal, 2.0, square=True),
    "upper": Domain(_triangular, _has_nonzero_diagonal, 2.0, square=True),
    "diagonal": Domain(_dominant, _has_nonzero_diagonal, 2.0, square=True),
    "orthogonal": Domain(_shared_orthogonal, _is_orthogonal, square=True),
    "nonneg": Domain(_positive, lambda a: a >= 0, 1.0, narrower=("fraction", "above one")),
    "simplex": Domain(_simplex, _is_simplex),
    "invertible": Domain(_invertible, _is_invertible, square=True, narrower=("dominant", "spd")),
    "real spectrum": Domain(_real_spectrum, lambda a: False, square=True, narrower=("spd",)),
}
UNDECLARED = ("general", "positive", "small", "fraction", "spd", "dominant", "above one")
"""The domains to draw an input from that declares none, in order."""
