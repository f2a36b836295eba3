"""Arrays of a structure as arrays of numbers that are free: θ -> φ(θ), with its derivatives.

They are taken of the last axes, so that stacks are, too; leading axes broadcast.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
from scipy.special import softmax

Array = np.ndarray
Shape = tuple[int, ...]

FARTHEST = 1e6
"""Numbers of an orthogonal matrix beyond which nothing moves any more."""


class General:
    """The array itself; above all what linear parametrisations have in common."""

    linear = True
    placed = True
    """Whether it is known what θ = 0 is."""
    boundary = "is on the boundary"
    """What is said of arrays of the structure that no θ has."""

    def about(self, array: Array) -> General:
        """The same where it is placed, else placed so that an array has θ = 0."""
        return self

    def shape(self, shape: Shape) -> Shape:
        """The shape of θ for arrays of this shape."""
        return shape

    def free(self, array: Array) -> Array:
        """The θ of an array of the structure; nan or LinAlgError, or that of another array, if it
        is not of the structure."""
        return array

    def array(self, free: Array) -> Array:
        """φ(θ)."""
        return free

    def tangent(self, free: Array, direction: Array) -> Array:
        """The derivative of φ along a direction."""
        return self.array(direction)

    def pullback(self, free: Array, cotangent: Array) -> Array:
        """The transpose of `tangent`: the derivative by θ of <cotangent, φ(θ)>."""
        return cotangent

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        """The derivative of `pullback` along a direction, the cotangent held."""
        return np.zeros_like(direction)


class Positive(General):
    """exp θ."""

    linear = False

    def free(self, array: Array) -> Array:
        return np.log(array)

    def array(self, free: Array) -> Array:
        return np.exp(free)

    def tangent(self, free: Array, direction: Array) -> Array:
        return np.exp(free) * direction

    def pullback(self, free: Array, cotangent: Array) -> Array:
        return np.exp(free) * cotangent

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        return np.exp(free) * direction * cotangent


class Simplex(General):
    """softmax of (θ, 0)."""

    linear = False

    def shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)

    def free(self, array: Array) -> Array:
        return np.log(array[..., :-1]) - np.log(array[..., -1:])

    def array(self, free: Array) -> Array:
        return np.asarray(softmax(_with_zero(free), axis=-1))

    def tangent(self, free: Array, direction: Array) -> Array:
        return _centred(self.array(free), _with_zero(direction))

    def pullback(self, free: Array, cotangent: Array) -> Array:
        return _centred(self.array(free), cotangent)[..., :-1]

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        shares, change = self.array(free), self.tangent(free, direction)
        mean = (shares * cotangent).sum(-1, keepdims=True)
        turned = (change * cotangent).sum(-1, keepdims=True)
        return (change * (cotangent - mean) - shares * turned)[..., :-1]


class Entries(General):
    """Square matrices by some of their entries: those of a triangle, or the diagonal."""

    def __init__(self, upper: bool = False, diagonal: bool = False, mirrored: bool = False) -> None:
        self.upper, self.diagonal, self.mirrored = upper, diagonal, mirrored

    def _places(self, size: int) -> tuple[Array, Array]:
        if self.diagonal:
            return np.arange(size), np.arange(size)
        rows, columns = _triangle(size)
        return (columns, rows) if self.upper else (rows, columns)

    def shape(self, shape: Shape) -> Shape:
        size = shape[-1]
        return (*shape[:-2], size if self.diagonal else size * (size + 1) // 2)

    def free(self, array: Array) -> Array:
        return array[(..., *self._places(array.shape[-1]))]

    def array(self, free: Array) -> Array:
        count = free.shape[-1]
        size = count if self.diagonal else _order(count)
        found = np.zeros((*free.shape[:-1], size, size))
        rows, columns = self._places(size)
        if self.mirrored:
            found[..., columns, rows] = free
        found[..., rows, columns] = free
        return found

    def pullback(self, free: Array, cotangent: Array) -> Array:
        rows, columns = self._places(cotangent.shape[-1])
        found = cotangent[..., rows, columns]
        if self.mirrored:
            found = found + (rows != columns) * cotangent[..., columns, rows]
        return found


LOWER = Entries()


class Definite(General):
    """L Lᵀ, where L is lower triangular, with exp of the entries of θ on its diagonal."""

    linear = False

    def shape(self, shape: Shape) -> Shape:
        return LOWER.shape(shape)

    def free(self, array: Array) -> Array:
        entries = LOWER.free(np.linalg.cholesky(array))
        diagonal = _on_diagonal(entries)
        return np.where(diagonal, np.log(np.where(diagonal, entries, 1)), entries)

    def array(self, free: Array) -> Array:
        factor, _ = _factor(free)
        return factor @ factor.mT

    def tangent(self, free: Array, direction: Array) -> Array:
        factor, slope = _factor(free)
        half = LOWER.array(slope * direction) @ factor.mT
        return half + half.mT

    def pullback(self, free: Array, cotangent: Array) -> Array:
        factor, slope = _factor(free)
        return slope * LOWER.pullback(free, (cotangent + cotangent.mT) @ factor)

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        factor, slope = _factor(free)
        both = cotangent + cotangent.mT
        changed = LOWER.pullback(free, both @ LOWER.array(slope * direction))
        steeper = _on_diagonal(free) * direction * LOWER.pullback(free, both @ factor)
        return slope * (changed + steeper)


class Orthogonal(General):
    """Q₀ (I - A)⁻¹ (I + A), the Cayley transform, where A is skew-symmetric with θ/2 below its
    diagonal, about a matrix Q₀. It has all rotations of Q₀, by less than half a turn in any plane.

    With M = (I - A)⁻¹ it is Q₀ (2M - I), and the differential of M is M dA M."""

    linear = False
    boundary = (
        "is a reflection of the array that was packed first, or half a turn from it; make another "
        "objective to start there"
    )

    def __init__(self, start: Array | None = None) -> None:
        self._start = np.eye(1) if start is None else start
        self.placed = start is not None

    def about(self, array: Array) -> General:
        if self.placed:
            return self
        left, _, right = np.linalg.svd(array)
        return Orthogonal(left @ right)  # the nearest one, the array itself where it is orthogonal

    def shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)

    def free(self, array: Array) -> Array:
        eye = np.eye(array.shape[-1])
        free = -4 * _below(np.linalg.inv(eye + self._start.mT @ array))
        return np.where(np.abs(free) < FARTHEST, free, np.nan)

    def array(self, free: Array) -> Array:
        return self._start @ (2 * self._factor(free) - np.eye(self._start.shape[-1]))

    def tangent(self, free: Array, direction: Array) -> Array:
        factor = self._factor(free)
        return self._start @ factor @ self._skew(direction) @ factor

    def pullback(self, free: Array, cotangent: Array) -> Array:
        factor = self._factor(free)
        return _turning(factor.mT @ self._start.mT @ cotangent @ factor.mT)

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        factor, turned = self._factor(free), self._start.mT @ cotangent
        change = factor @ self._skew(direction) @ factor / 2
        return _turning(change.mT @ turned @ factor.mT + factor.mT @ turned @ change.mT)

    def _skew(self, free: Array) -> Array:
        """The skew-symmetric matrix with these entries below its diagonal."""
        size = self._start.shape[-1]
        found = np.zeros((*free.shape[:-1], size, size))
        found[(..., *np.tril_indices(size, -1))] = free
        return found - found.mT

    def _factor(self, free: Array) -> Array:
        """M."""
        return np.linalg.inv(np.eye(self._start.shape[-1]) - self._skew(free) / 2)


PARAMETRISATIONS: dict[str, General] = {
    "general": General(),
    "invertible": General(),
    "positive": Positive(),
    "nonneg": Positive(),
    "simplex": Simplex(),
    "lower": LOWER,
    "upper": Entries(upper=True),
    "diagonal": Entries(diagonal=True),
    "symmetric": Entries(mirrored=True),
    "spd": Definite(),
    "orthogonal": Orthogonal(),
}
"""By the structure that an input is declared with."""


def _with_zero(free: Array) -> Array:
    return np.concatenate([free, np.zeros((*free.shape[:-1], 1))], axis=-1)


def _centred(shares: Array, array: Array) -> Array:
    """The product with diag(s) - s sᵀ."""
    return shares * (array - (shares * array).sum(-1, keepdims=True))


@lru_cache(maxsize=16)
def _triangle(size: int) -> tuple[Array, Array]:
    """The rows and the columns of the entries of a lower triangle, row by row."""
    rows, columns = np.tril_indices(size)
    return rows, columns


def _order(count: int) -> int:
    """The order of the triangular matrix with so many entries."""
    return (isqrt(8 * count + 1) - 1) // 2


def _below(array: Array) -> Array:
    """The entries below the diagonal, row by row."""
    return array[(..., *np.tril_indices(array.shape[-1], -1))]


def _turning(cotangent: Array) -> Array:
    """The cotangent of a skew-symmetric matrix as that of its entries below the diagonal."""
    return _below(cotangent - cotangent.mT)


def _on_diagonal(entries: Array) -> Array:
    """Which entries of a lower triangle, row by row, are on its diagonal."""
    rows, columns = _triangle(_order(entries.shape[-1]))
    return rows == columns


def _factor(free: Array) -> tuple[Array, Array]:
    """L, and the derivative of each of its entries by that of θ."""
    diagonal = _on_diagonal(free)
    slope = np.exp(np.where(diagonal, free, 0))
    return LOWER.array(np.where(diagonal, slope, free)), slope
