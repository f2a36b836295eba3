"""Five-point central differences along a line, with an estimate of their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from derivatrix.runtime.reference import OutOfDomain

Line = Callable[[float], tuple[np.ndarray, ...]]

STEPS = tuple(2.0**power for power in (-9, -12, -15, -6, -18, -3, -21, 0, -24, 3, -27, 6))
"""Tried in turn: the first suits most functions, smaller ones a kink or pole that is near or fast
oscillation, larger ones a value with large rounding errors."""
USUAL = 4
"""How many of them are tried before a derivative that is only accurate will do."""
ACCURATE = 1e-9
"""The relative error of a derivative that is accurate."""
EXACT = 1e-10
"""The relative error of a derivative that is not worth another step."""


@dataclass(frozen=True)
class Estimate:
    """A derivative and, entry by entry, how far off it may be; `constant` where the function was
    the same at every point of the formulas."""

    derivative: np.ndarray
    error: np.ndarray
    constant: bool = False


def differentiate(
    line: Line, centre: tuple[np.ndarray, ...], length: float, most: int = len(STEPS)
) -> tuple[Estimate, ...]:
    """The derivatives at 0 of the arrays that `line` returns, `centre` being its values there.

    `length` is how far the line goes for a unit of its argument, `most` how many steps are tried.
    For every array the step is chosen where the formulas of step h and h/2 differ least: their
    difference is the error. Where that is not exact, the error is at least the difference from
    what the next best step gives.
    """
    nothing = [Estimate(np.zeros_like(value), np.full_like(value, np.inf)) for value in centre]
    best, second = nothing, nothing
    for number, step in enumerate(STEPS[:most]):
        try:
            estimates = _estimates(line, centre, step / length)
        except OutOfDomain:
            continue
        if step > max(STEPS[:USUAL]):
            estimates = list(map(_agreeing, best, estimates))
        ranked = [sorted(parts, key=_worst) for parts in zip(best, second, estimates, strict=True)]
        best, second = [parts[0] for parts in ranked], [parts[1] for parts in ranked]
        enough = EXACT if number < USUAL else ACCURATE
        if all(_relative(estimate) <= enough for estimate in best):
            break
    return tuple(map(_confirmed, best, second))


def _agreeing(best: Estimate, wide: Estimate) -> Estimate:
    """The estimate of a wide step if it is within what is known, else the best again: far away a
    function may be flat, or the same on both sides."""
    apart = np.abs(wide.derivative - best.derivative)
    return wide if (apart <= 4 * best.error).all() else best


def _confirmed(best: Estimate, second: Estimate) -> Estimate:
    if _relative(best) <= EXACT:
        return best
    apart = np.abs(best.derivative - second.derivative)
    return Estimate(best.derivative, np.maximum(best.error, apart), best.constant)


def _worst(estimate: Estimate) -> float:
    return float(estimate.error.max(initial=0.0))


def _relative(estimate: Estimate) -> float:
    """The error in parts of the derivative; 0 where that is zero at every step."""
    error, size = _worst(estimate), float(np.abs(estimate.derivative).max(initial=0.0))
    if estimate.constant or error == 0:
        return 0.0
    return error / size if size > 0 else np.inf


def _estimates(line: Line, centre: tuple[np.ndarray, ...], step: float) -> list[Estimate]:
    """Estimates with the formula (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h at h and h/2."""
    inner, middle, outer = (_odd(line, step * factor) for factor in (0.5, 1.0, 2.0))
    estimates = []
    for value, near, at, far in zip(centre, inner, middle, outer, strict=True):
        coarse = (8 * at - far) / (12 * step)
        fine = (8 * near - at) / (6 * step)
        rounding = 4 * np.finfo(np.float64).eps * np.abs(value).max(initial=0.0) / step
        constant = not (near.any() or at.any() or far.any())
        estimates.append(Estimate(fine, np.abs(fine - coarse) + rounding, constant))
    return estimates


def _odd(line: Line, step: float) -> list[np.ndarray]:
    return [ahead - behind for ahead, behind in zip(line(step), line(-step), strict=True)]
