"""Five-point central differences along a line, with an estimate of their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from derivatrix.runtime.reference import OutOfDomain

Line = Callable[[float], tuple[np.ndarray, ...]]

STEPS = (2.0**-9, 2.0**-12, 2.0**-15, 2.0**-6)
"""Tried in turn: the first suits most functions, the next ones a kink or pole that is near, the
last one noise."""


@dataclass(frozen=True)
class Estimate:
    """A derivative and, entry by entry, how far off it may be."""

    derivative: np.ndarray
    error: np.ndarray


def differentiate(
    line: Line, centre: tuple[np.ndarray, ...], length: float
) -> tuple[Estimate, ...]:
    """The derivatives at 0 of the arrays that `line` returns, `centre` being its values there.

    `length` is how far the line goes for a unit of its argument. For every array the step is
    chosen where the formulas of step h and h/2 differ least: their difference is the error.
    """
    best = [Estimate(np.zeros_like(value), np.full_like(value, np.inf)) for value in centre]
    for step in STEPS:
        try:
            estimates = _estimates(line, centre, step / length)
        except OutOfDomain:
            continue
        best = [min(pair, key=_worst) for pair in zip(best, estimates, strict=True)]
        if all(map(_settled, best)):
            break
    return tuple(best)


def _worst(estimate: Estimate) -> float:
    return float(estimate.error.max(initial=0.0))


def _settled(estimate: Estimate) -> bool:
    return _worst(estimate) <= 1e-10 * float(np.abs(estimate.derivative).max(initial=0.0))


def _estimates(line: Line, centre: tuple[np.ndarray, ...], step: float) -> list[Estimate]:
    """Estimates with the formula (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h at h and h/2."""
    inner, middle, outer = (_odd(line, step * factor) for factor in (0.5, 1.0, 2.0))
    estimates = []
    for value, near, at, far in zip(centre, inner, middle, outer, strict=True):
        coarse = (8 * at - far) / (12 * step)
        fine = (8 * near - at) / (6 * step)
        rounding = 4 * np.finfo(np.float64).eps * np.abs(value).max(initial=0.0) / step
        estimates.append(Estimate(fine, np.abs(fine - coarse) + rounding))
    return estimates


def _odd(line: Line, step: float) -> list[np.ndarray]:
    return [ahead - behind for ahead, behind in zip(line(step), line(-step), strict=True)]
