"""Five-point central differences along a line, with an estimate of their error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from derivatrix.runtime.reference import OutOfDomain

Line = Callable[[float], tuple[np.ndarray, ...]]

STEPS = tuple(2.0**power for power in (-9, -12, -15, -6, -18, -3, -21, 0, -24, 3, -27, 6))
"""Steps to try, in order: the first suits most functions, smaller ones a kink or pole nearby or
fast oscillation, larger ones a value with large rounding errors."""
USUAL_STEPS = 4
"""Number of STEPS that are tried for a relative error of EXACT_ERROR; further ones are tried only
until ACCURATE_ERROR is reached."""
ACCURATE_ERROR = 1e-9
EXACT_ERROR = 1e-10
MAX_QUANTUM = 2.0**-40
"""Largest change of a value that may be one unit of rounding, that of terms which cancel in it, as
in softmax where a probability is nearly 1: smaller steps find no change, and a derivative of 0."""


@dataclass(frozen=True)
class Estimate:
    """A derivative and a bound on the error of each entry; `constant` if the function had the same
    value at every point of the formulas."""

    derivative: np.ndarray
    error: np.ndarray
    constant: bool = False

    @classmethod
    def stack(cls, estimates: Sequence[Estimate]) -> Estimate:
        """Stack estimates along a new first axis."""
        return cls(
            np.stack([estimate.derivative for estimate in estimates]),
            np.stack([estimate.error for estimate in estimates]),
            all(estimate.constant for estimate in estimates),
        )


def differentiate(
    line: Line, centre: tuple[np.ndarray, ...], length: float, max_steps: int = len(STEPS)
) -> tuple[Estimate, ...]:
    """Differentiate the arrays that `line` returns at 0, where their values are `centre`.

    `length` is the distance that the line covers per unit of its argument.
    For every array the step is chosen for which the formulas of step h and h/2 differ least: their
    difference is the error. Unless that is below EXACT_ERROR, the error is at least the difference
    from the result of the second best step.
    """
    unknown = [Estimate(np.zeros_like(value), np.full_like(value, np.inf)) for value in centre]
    best, second = unknown, unknown
    quanta = [np.zeros_like(value) for value in centre]
    for number, step in enumerate(STEPS[:max_steps]):
        try:
            estimates = _estimates(line, centre, step / length, quanta)
        except OutOfDomain:
            continue
        if step > max(STEPS[:USUAL_STEPS]):
            estimates = list(map(_reject_if_inconsistent, best, estimates))
        triples = zip(best, second, estimates, strict=True)
        ranked = [sorted(triple, key=_largest_error) for triple in triples]
        best, second = [triple[0] for triple in ranked], [triple[1] for triple in ranked]
        tolerance = EXACT_ERROR if number < USUAL_STEPS else ACCURATE_ERROR
        if all(_relative_error(estimate) <= tolerance for estimate in best):
            break
    return tuple(map(_with_confirmed_error, best, second))


def _reject_if_inconsistent(best: Estimate, wide: Estimate) -> Estimate:
    """Return the estimate of a wide step, or `best` if it is outside the error of that: far away a
    function may be flat, or the same on both sides."""
    difference = np.abs(wide.derivative - best.derivative)
    return wide if (difference <= 4 * best.error).all() else best


def _with_confirmed_error(best: Estimate, second: Estimate) -> Estimate:
    if _relative_error(best) <= EXACT_ERROR:
        return best
    difference = np.abs(best.derivative - second.derivative)
    return Estimate(best.derivative, np.maximum(best.error, difference), best.constant)


def _largest_error(estimate: Estimate) -> float:
    return float(estimate.error.max(initial=0.0))


def _relative_error(estimate: Estimate) -> float:
    error, size = _largest_error(estimate), float(np.abs(estimate.derivative).max(initial=0.0))
    if estimate.constant or error == 0:
        return 0.0
    return error / size if size > 0 else np.inf


def _estimates(
    line: Line, centre: tuple[np.ndarray, ...], step: float, quanta: list[np.ndarray]
) -> list[Estimate]:
    """Apply the formula (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, whose error is O(h⁴), with
    h = step and step / 2.

    quanta: the smallest change of each entry at earlier steps, if it may be a unit of rounding,
    else 0; it bounds the error of an entry that does not change at this step. This step's changes
    are entered."""

    def central(h: float) -> list[np.ndarray]:
        return [ahead - behind for ahead, behind in zip(line(h), line(-h), strict=True)]

    estimates = []
    arrays = zip(centre, central(0.5 * step), central(step), central(2 * step), strict=True)
    for number, (value, half, full, double) in enumerate(arrays):
        changes = np.abs([half, full, double])
        is_moving = changes.any(axis=0)
        coarse = (8 * full - double) / (12 * step)
        fine = (8 * half - full) / (6 * step)
        rounding = 4 * np.finfo(np.float64).eps * np.abs(value).max(initial=0.0) / step
        quantum = np.where(is_moving, 0.0, quanta[number]) / step
        error = np.abs(fine - coarse) + rounding + quantum
        estimates.append(Estimate(fine, error, not is_moving.any()))
        smallest = np.where(changes > 0, changes, np.inf).min(axis=0)
        is_smaller = smallest < np.where(quanta[number] > 0, quanta[number], MAX_QUANTUM)
        quanta[number] = np.where(is_smaller, smallest, quanta[number])
    return estimates
