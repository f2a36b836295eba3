"""Points beside the thresholds of a declaration, where two numbers that it compares nearly agree.

A branch that is taken from a wrong number on shows there and hardly at random points.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.domains import Random, contains
from derivatrix.runtime.interface import Input, ModuleInterface, Point
from derivatrix.runtime.reference import OutOfDomain, Text

DISTANCE = 2e-5
"""How far apart the compared numbers are: differences with steps of 1e-6 stay on one side."""
MAX_THRESHOLDS = 6
"""The most thresholds of one declaration beside which there are points."""
MAX_NEWTON_STEPS = 8
SLOPE_STEP = 1e-6
MIN_SLOPE = 1e-3
"""Numbers that change more slowly do not depend on the input, but for rounding."""

PAIRS = ("maximum", "minimum", "greater", "greater_equal", "less", "less_equal")
SIGNS = ("abs", "sign", "heaviside")
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


class ComparedNumbers:
    """The differences of the numbers that a NumPy text compares with each other or with zero."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(f"(\n{text}\n)", mode="eval")
        self._text = Text(ast.unparse(_Recorded().visit(tree)))

    def __call__(self, interface: ModuleInterface, point: Point) -> list[np.ndarray]:
        """The differences at a point, in the order in which they are computed. Raises OutOfDomain
        where the text has no value."""
        differences: list[np.ndarray] = []

        def recorded(function: Callable[..., Any], *arguments: Any) -> Any:
            other = arguments[1] if function.__name__ in PAIRS else 0.0
            difference = np.asarray(np.subtract(arguments[0], other))
            if difference.dtype.kind == "f" and difference.size:
                differences.append(difference)
            return function(*arguments)

        values: dict[str, Any] = {**point.sizes, **point.values, "_recorded": recorded}
        self._text(values, interface.shape("value", "", point.sizes))
        return differences


class _Recorded(ast.NodeTransformer):
    """Calls of `_recorded` in the places of comparisons."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func).removeprefix("np.") in (*PAIRS, *SIGNS) and not node.keywords:
            node = ast.Call(ast.Name("_recorded", ast.Load()), [node.func, *node.args], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = COMPARISONS.get(type(node.ops[0]))
        if name is None or len(node.ops) > 1:
            return node
        function = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        arguments = [function, node.left, *node.comparators]
        return ast.Call(ast.Name("_recorded", ast.Load()), arguments, [])


def points(interface: ModuleInterface, point: Point, random: Random) -> Iterator[Point]:
    """Points on both sides of each threshold, from this one along a random direction of an input.
    None where the declaration compares nothing that the inputs change."""
    compared = ComparedNumbers(interface.module.DECLARATION)
    try:
        count = min(len(compared(interface, point)), MAX_THRESHOLDS)
    except OutOfDomain:
        return
    directions = [
        (
            entry,
            sampling.project(entry.structure, sampling.weights(entry.full(point.sizes), random)),
        )
        for entry in interface.inputs
        if entry.structure != "orthogonal"
    ]
    for number in range(count):
        for side, name in ((1, "above"), (-1, "below")):
            for entry, direction in directions:
                line = _Line(interface, compared, point, number, entry, direction)
                beside = line.solve(side * DISTANCE)
                if beside is not None:
                    label = f"{name} threshold {number + 1}, {point.label}"
                    yield replace(beside, label=label)
                    break


class _Line:
    """One of the compared differences along a direction of an input."""

    def __init__(
        self,
        interface: ModuleInterface,
        compared: ComparedNumbers,
        point: Point,
        number: int,
        entry: Input,
        direction: np.ndarray,
    ) -> None:
        self.interface, self.compared, self.number = interface, compared, number
        self.point, self.entry, self.direction = point, entry, direction

    def moved(self, distance: float) -> Point:
        name = self.entry.name
        value = np.asarray(self.point.values[name] + distance * self.direction)
        return replace(self.point, values={**self.point.values, name: value})

    def difference(self, distance: float) -> np.ndarray:
        return self.compared(self.interface, self.moved(distance))[self.number]

    def solve(self, target: float) -> Point | None:
        """The point where an entry of the difference has a value, by Newton's method from the
        entry that is nearest; None where the method does not come to one in the domain."""
        place: tuple[np.intp, ...] | None = None
        distance = 0.0
        try:
            for _ in range(MAX_NEWTON_STEPS):
                difference = self.difference(distance)
                slope = (self.difference(distance + SLOPE_STEP) - difference) / SLOPE_STEP
                if place is None:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        far = np.abs((target - difference) / slope)
                    far = np.where(np.abs(slope) > MIN_SLOPE, far, np.inf)
                    place = tuple(np.unravel_index(np.argmin(far), far.shape))
                    if not np.isfinite(far[place]):
                        return None
                missing = float(target - difference[place])
                if abs(missing) <= DISTANCE / 4:
                    moved = self.moved(distance)
                    value = moved.values[self.entry.name]
                    inside = contains(self.entry.structure, value)
                    return moved if inside and contains(self.entry.domain, value) else None
                distance += missing / float(slope[place])
        except (OutOfDomain, IndexError, ZeroDivisionError):
            return None
        return None
