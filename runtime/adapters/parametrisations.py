"""Parametrisations θ -> φ(θ) of the arrays of a structure by free numbers, with derivatives.

They act on the last axes; leading axes broadcast.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
from scipy.special import softmax

Array = np.ndarray
Shape = tuple[int, ...]

MAX_CAYLEY_PARAMETER = 1e6
"""Largest parameter of an orthogonal matrix; beyond it, changes of θ are rounding in φ(θ)."""


class General:
    """The identity φ(θ) = θ, and the base of all parametrisations. `free` is θ."""

    linear = True
    has_centre = True
    """True if φ(0) is fixed."""
    boundary = "is on the boundary"
    """Description of the arrays of the structure that no θ gives."""

    def centred(self, array: Array) -> General:
        """Return the parametrisation, with φ(0) = `array` if it has no centre yet."""
        return self

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of θ for arrays of this shape."""
        return shape

    def free(self, array: Array) -> Array:
        """Compute θ from φ(θ). For an array without the structure the result is nan, or the θ of
        another array, or LinAlgError is raised."""
        return array

    def array(self, free: Array) -> Array:
        """Compute φ(θ)."""
        return free

    def tangent(self, free: Array, direction: Array) -> Array:
        """Differentiate φ along a direction."""
        return self.array(direction)

    def pullback(self, free: Array, cotangent: Array) -> Array:
        """Apply the transpose of `tangent`: the gradient by θ of <cotangent, φ(θ)>."""
        return cotangent

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        """Differentiate `pullback` by θ along a direction, for a constant cotangent."""
        return np.zeros_like(direction)


class Positive(General):
    """φ(θ) = exp θ."""

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
    """φ(θ) = softmax of (θ, 0)."""

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
        shares, tangent = self.array(free), self.tangent(free, direction)
        mean = (shares * cotangent).sum(-1, keepdims=True)
        mean_tangent = (tangent * cotangent).sum(-1, keepdims=True)
        return (tangent * (cotangent - mean) - shares * mean_tangent)[..., :-1]


class Entries(General):
    """Square matrices whose free numbers are the entries of a triangle, or of the diagonal."""

    def __init__(self, upper: bool = False, diagonal: bool = False, mirrored: bool = False) -> None:
        self.upper, self.diagonal, self.mirrored = upper, diagonal, mirrored

    def _indices(self, size: int) -> tuple[Array, Array]:
        if self.diagonal:
            return np.arange(size), np.arange(size)
        rows, columns = _triangle(size)
        return (columns, rows) if self.upper else (rows, columns)

    def shape(self, shape: Shape) -> Shape:
        size = shape[-1]
        return (*shape[:-2], size if self.diagonal else size * (size + 1) // 2)

    def free(self, array: Array) -> Array:
        return array[(..., *self._indices(array.shape[-1]))]

    def array(self, free: Array) -> Array:
        count = free.shape[-1]
        size = count if self.diagonal else _order(count)
        matrix = np.zeros((*free.shape[:-1], size, size))
        rows, columns = self._indices(size)
        if self.mirrored:
            matrix[..., columns, rows] = free
        matrix[..., rows, columns] = free
        return matrix

    def pullback(self, free: Array, cotangent: Array) -> Array:
        rows, columns = self._indices(cotangent.shape[-1])
        entries = cotangent[..., rows, columns]
        if self.mirrored:
            entries = entries + (rows != columns) * cotangent[..., columns, rows]
        return entries


LOWER = Entries()


class Definite(General):
    """φ(θ) = L Lᵀ, where L has θ in its lower triangle, with exp of the entries on the diagonal."""

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
        symmetric = cotangent + cotangent.mT
        by_factor = LOWER.pullback(free, symmetric @ LOWER.array(slope * direction))
        by_slope = _on_diagonal(free) * direction * LOWER.pullback(free, symmetric @ factor)
        return slope * (by_factor + by_slope)


class Orthogonal(General):
    """The Cayley transform φ(θ) = Q₀ (I - A)⁻¹ (I + A), where A is skew-symmetric with θ/2 below
    its diagonal. It gives all rotations of Q₀ by less than half a turn in every plane.

    With M = (I - A)⁻¹ it is Q₀ (2M - I), and the differential of M is M dA M."""

    linear = False
    boundary = (
        "is a reflection of the array that was packed first, or half a turn from it; make another "
        "objective to start there"
    )

    def __init__(self, centre: Array | None = None) -> None:
        self._centre = np.eye(1) if centre is None else centre
        self.has_centre = centre is not None

    def centred(self, array: Array) -> General:
        if self.has_centre:
            return self
        left, _, right = np.linalg.svd(array)
        return Orthogonal(left @ right)  # the nearest orthogonal matrix: removes rounding

    def shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)

    def free(self, array: Array) -> Array:
        eye = np.eye(array.shape[-1])
        # Q₀ᵀ φ = 2M - I, so that (I + Q₀ᵀ φ)⁻¹ = (I - A)/2; below the diagonal A is θ/2
        free = -4 * _below_diagonal(np.linalg.inv(eye + self._centre.mT @ array))
        return np.where(np.abs(free) < MAX_CAYLEY_PARAMETER, free, np.nan)

    def array(self, free: Array) -> Array:
        return self._centre @ (2 * self._factor(free) - np.eye(self._centre.shape[-1]))

    def tangent(self, free: Array, direction: Array) -> Array:
        factor = self._factor(free)
        return self._centre @ factor @ self._skew(direction) @ factor

    def pullback(self, free: Array, cotangent: Array) -> Array:
        factor = self._factor(free)
        return _skew_pullback(factor.mT @ self._centre.mT @ cotangent @ factor.mT)

    def curvature(self, free: Array, direction: Array, cotangent: Array) -> Array:
        factor, rotated = self._factor(free), self._centre.mT @ cotangent
        tangent = factor @ self._skew(direction) @ factor / 2
        return _skew_pullback(tangent.mT @ rotated @ factor.mT + factor.mT @ rotated @ tangent.mT)

    def _skew(self, free: Array) -> Array:
        """Make the skew-symmetric matrix with these entries below its diagonal."""
        size = self._centre.shape[-1]
        lower = np.zeros((*free.shape[:-1], size, size))
        lower[(..., *np.tril_indices(size, -1))] = free
        return lower - lower.mT

    def _factor(self, free: Array) -> Array:
        """Compute M."""
        return np.linalg.inv(np.eye(self._centre.shape[-1]) - self._skew(free) / 2)


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
"""The parametrisation of each structure that an input may be declared with."""


def _with_zero(free: Array) -> Array:
    return np.concatenate([free, np.zeros((*free.shape[:-1], 1))], axis=-1)


def _centred(shares: Array, array: Array) -> Array:
    """Multiply an array by diag(s) - s sᵀ, where s are the shares."""
    return shares * (array - (shares * array).sum(-1, keepdims=True))


@lru_cache(maxsize=16)
def _triangle(size: int) -> tuple[Array, Array]:
    """Return the rows and the columns of the entries of a lower triangle, row by row."""
    return np.tril_indices(size)


def _order(count: int) -> int:
    """Return the order of the triangular matrix with `count` entries."""
    return (isqrt(8 * count + 1) - 1) // 2


def _below_diagonal(array: Array) -> Array:
    """Return the entries below the diagonal, row by row."""
    return array[(..., *np.tril_indices(array.shape[-1], -1))]


def _skew_pullback(cotangent: Array) -> Array:
    """Pull the cotangent of a skew-symmetric matrix back to its entries below the diagonal."""
    return _below_diagonal(cotangent - cotangent.mT)


def _on_diagonal(entries: Array) -> Array:
    """Mark the entries of a lower triangle, row by row, that are on its diagonal."""
    rows, columns = _triangle(_order(entries.shape[-1]))
    return rows == columns


def _factor(free: Array) -> tuple[Array, Array]:
    """Compute L, and the derivative of each of its entries by the same entry of θ."""
    diagonal = _on_diagonal(free)
    slope = np.exp(np.where(diagonal, free, 0))
    return LOWER.array(np.where(diagonal, slope, free)), slope
