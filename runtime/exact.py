"""Reference results that are exact but for their rounding to float64: the declaration and its
differences in 50 digits (`runtime.precise`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from derivatrix.runtime.differences import Estimate
from derivatrix.runtime.interface import Arrays, ModuleInterface, Point
from derivatrix.runtime.measure import Measurement, input_directions, tangents
from derivatrix.runtime.precise import NUMBERS, PreciseText, floats, numbers
from derivatrix.runtime.reference import OutOfDomain

MAX_DIRECTIONS = 10_000
"""Most directions of an input: more than a basis has at small sizes."""
DIFFERENCE_STEP = NUMBERS.mpf(10) ** -16
"""Central-difference step h: error ≈ h² + 10⁻⁵⁰/h."""
SECOND_STEP = 1e-16
"""Forward-difference step h of a first difference: error ≈ h, and 10⁻⁵⁰/(h DIFFERENCE_STEP)."""

Steps = Mapping[str, np.ndarray]


class Declared:
    """A declaration near a point, in 50 digits.

    text: its NumPy text. shape: the shape of its value. values: the point's sizes and arrays."""

    def __init__(
        self, text: str, shape: tuple[int, ...], values: Mapping[str, int | np.ndarray]
    ) -> None:
        self.text, self.shape = PreciseText(text), shape
        self.values = {
            name: value if isinstance(value, int) else numbers(value)
            for name, value in values.items()
        }

    def value(self, *moves: tuple[object, Steps]) -> np.ndarray:
        """Evaluate the declaration after `moves`, each a factor and the steps that it scales.

        Raises OutOfDomain where it has no value, Imprecise where it calls a function that has no
        implementation in 50 digits."""
        values = dict(self.values)
        for factor, steps in moves:
            for name, step in steps.items():
                values[name] = values[name] + factor * numbers(step)
        try:
            return self.text(values, self.shape)
        except (ArithmeticError, IndexError, ValueError) as error:
            raise OutOfDomain(f"{type(error).__name__}: {error}") from error

    def first(self, steps: Steps) -> Estimate:
        """Differentiate along `steps`."""
        return _rounded_estimate(self._central_difference(steps))

    def second(self, steps: Steps, moved: Steps, length: float) -> np.ndarray:
        """Differentiate along `steps`, and that along `moved`, with a forward step of `length`."""
        ahead = self._central_difference(steps, (NUMBERS.mpf(length), moved))
        return floats((ahead - self._central_difference(steps)) / length)

    def _central_difference(self, steps: Steps, *moves: tuple[object, Steps]) -> np.ndarray:
        h = DIFFERENCE_STEP
        return (self.value((h, steps), *moves) - self.value((-h, steps), *moves)) / (2 * h)


def _rounded_estimate(derivative: np.ndarray) -> Estimate:
    rounded = floats(derivative)
    return Estimate(rounded, np.abs(rounded) * np.finfo(np.float64).eps)


def declared_value(interface: ModuleInterface, point: Point) -> np.ndarray:
    """Compute the value at a point, exact but for rounding. Raises OutOfDomain and Imprecise."""
    return floats(_declared(interface, point).value())


def _declared(interface: ModuleInterface, point: Point) -> Declared:
    shape = interface.shape("value", "", point.sizes)
    return Declared(interface.declaration, shape, {**point.sizes, **point.values})


def measure(interface: ModuleInterface, point: Point, random: np.random.Generator) -> Measurement:
    """Measure the value and its derivatives at a point, exact but for rounding. The gradient is
    differentiated along the tangents alone, and not if an input is an orthogonal matrix: that would
    be a derivative along a curve.

    Raises OutOfDomain where the declaration has no value, Imprecise where it calls a function that
    has no implementation in 50 digits."""
    declared = _declared(interface, point)
    directions = input_directions(interface, point, MAX_DIRECTIONS, random)
    projected = tangents(interface, point)
    stacks = {name: stack for name, stack in directions.items() if len(stack)}
    first = {
        name: Estimate.stack([declared.first({name: step}) for step in stack])
        for name, stack in stacks.items()
    }
    has_curves = any(entry.structure == "orthogonal" for entry in interface.wrt)
    second_along = {
        name: _rounded_estimate(_gradient_along(declared, name, stack, projected))
        for name, stack in stacks.items()
        if "hvp" in interface.kinds and not has_curves
    }
    along = declared.first(projected)
    value = floats(declared.value())
    return Measurement(
        point, value, directions, first, along, {}, second_along, float32_agrees=True
    )


def _gradient_along(
    declared: Declared, name: str, stack: np.ndarray, tangents: Arrays
) -> np.ndarray:
    """Differentiate the gradient by input `name` along the tangents. The gradient is the sum of its
    projections on the directions of `stack`, as these are orthogonal."""
    projections = [
        np.multiply.outer(declared.second({name: step}, tangents, SECOND_STEP), step)
        / np.sum(step**2)
        for step in stack
    ]
    return np.sum(projections, axis=0)
