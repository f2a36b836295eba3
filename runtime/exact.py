"""What a module's results should be at a point, to nearly all their digits: the declaration and
its differences in 50 digits (`runtime.precise`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from derivatrix.runtime.differences import Estimate
from derivatrix.runtime.interface import Arrays, ModuleInterface, Point
from derivatrix.runtime.measure import Measurement, input_directions, tangents
from derivatrix.runtime.precise import NUMBERS, PreciseText, numbers
from derivatrix.runtime.reference import OutOfDomain

ALL = 10_000
"""Directions of an input: at small sizes all of them."""
STEP = NUMBERS.mpf(10) ** -16
"""Of first differences: their error is about its square, and 10⁻⁵⁰ over it."""
SECOND_STEP = 1e-16
"""By which first differences are moved for second ones, to one side."""

Steps = Mapping[str, np.ndarray]


class Declared:
    """A declaration near a point, in 50 digits.

    text: the declaration's; shape: of its value; values: the point's sizes and arrays."""

    def __init__(
        self, text: str, shape: tuple[int, ...], values: Mapping[str, int | np.ndarray]
    ) -> None:
        self.text, self.shape = PreciseText(text), shape
        self.values = {
            name: value if isinstance(value, int) else numbers(value)
            for name, value in values.items()
        }

    def value(self, *moved: tuple[object, Steps]) -> np.ndarray:
        """The value where each of `moved` is a length, and what some inputs are moved along.

        Raises OutOfDomain where there is none, Imprecise where it is not known in 50 digits."""
        values = dict(self.values)
        for length, steps in moved:
            for name, step in steps.items():
                values[name] = values[name] + length * numbers(step)
        try:
            return self.text(values, self.shape)
        except (ArithmeticError, IndexError, ValueError) as error:
            raise OutOfDomain(f"{type(error).__name__}: {error}") from error

    def first(self, steps: Steps) -> Estimate:
        """The derivative along some steps."""
        ahead, behind = (self.value((sign * STEP, steps)) for sign in (1, -1))
        return _estimate((ahead - behind) / (2 * STEP))

    def change(self, one: Steps, other: Steps, length: float) -> np.ndarray:
        """The change per length of the derivative along `one`, from here to where `other` leads."""
        there = (NUMBERS.mpf(length), other)
        ends = [
            self.value((sign * STEP, one), *at) * sign for at in ((there,), ()) for sign in (1, -1)
        ]
        return _floats((ends[0] + ends[1] - ends[2] - ends[3]) / (2 * STEP * length))


def _floats(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def _estimate(derivative: np.ndarray) -> Estimate:
    found = _floats(derivative)
    return Estimate(found, np.abs(found) * np.finfo(np.float64).eps)


def declared_value(interface: ModuleInterface, point: Point) -> np.ndarray:
    """The value at a point, exact but for its rounding. Raises OutOfDomain and Imprecise."""
    return _floats(_declared(interface, point).value())


def _declared(interface: ModuleInterface, point: Point) -> Declared:
    shape = interface.shape("value", "", point.sizes)
    return Declared(interface.module.DECLARATION, shape, {**point.sizes, **point.values})


def measure(interface: ModuleInterface, point: Point, random: np.random.Generator) -> Measurement:
    """The value and derivatives at a point, exact but for their own rounding; those of the gradient
    along the tangents alone, and none where an input is an orthogonal matrix: they are derivatives
    along curves.

    Raises OutOfDomain where the declaration has no value, Imprecise where that is not known."""
    declared = _declared(interface, point)
    stacks = input_directions(interface, point, ALL, random)
    moving = tangents(interface, point)
    first = {
        name: _stacked([declared.first({name: step}) for step in stack])
        for name, stack in stacks.items()
        if len(stack)
    }
    second_along = {}
    straight = all(entry.structure != "orthogonal" for entry in interface.wrt)
    if "hvp" in interface.kinds and straight:
        second_along = {
            name: _estimate(_change_of_gradient(declared, name, stack, moving))
            for name, stack in stacks.items()
            if len(stack)
        }
    along = declared.first(moving)
    value = _floats(declared.value())
    return Measurement(point, value, stacks, first, along, {}, second_along, single=True)


def _stacked(parts: list[Estimate]) -> Estimate:
    return Estimate(
        np.stack([part.derivative for part in parts]), np.stack([part.error for part in parts])
    )


def _change_of_gradient(
    declared: Declared, name: str, stack: np.ndarray, tangents: Arrays
) -> np.ndarray:
    """The derivative of the gradient by an input along the tangents; of its parts along the
    directions of `stack`, which are at right angles to each other."""
    parts = [
        np.multiply.outer(declared.change({name: step}, tangents, SECOND_STEP), step)
        / np.sum(step**2)
        for step in stack
    ]
    return np.sum(parts, axis=0)
