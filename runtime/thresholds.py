"""Points beside the thresholds of a declaration, where two numbers that it compares nearly agree.

They reveal a branch that is taken from a wrong number on; random points hardly ever do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.domains import Random, contains
from derivatrix.runtime.interface import Input, ModuleInterface, Point
from derivatrix.runtime.reference import OutOfDomain, Text
from derivatrix.runtime.syntax import parse_python

DISTANCE = 2e-5
"""Difference of the compared numbers: finite differences with steps of 1e-6 stay on one side."""
MAX_THRESHOLDS = 6
"""The most thresholds of one declaration that points are made for."""
MAX_NEWTON_STEPS = 8
SLOPE_STEP = 1e-6
MIN_SLOPE = 1e-3
"""Smaller slopes along an input are rounding: the number does not depend on that input."""

COMPARE_TWO = ("maximum", "minimum", "greater", "greater_equal", "less", "less_equal")
COMPARE_WITH_ZERO = ("abs", "sign", "heaviside")
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


class ComparedNumbers:
    """The differences of the numbers that a NumPy text compares with each other or with zero."""

    def __init__(self, text: str) -> None:
        tree = parse_python(f"(\n{text}\n)", mode="eval")
        self._text = Text(ast.unparse(_RecordCalls().visit(tree)))

    def __call__(self, interface: ModuleInterface, point: Point) -> list[np.ndarray]:
        """List the differences at a point, in the order of evaluation. Raises OutOfDomain where
        the text has no value."""
        differences: list[np.ndarray] = []

        def record(function: Callable[..., Any], *arguments: Any) -> Any:
            right = arguments[1] if function.__name__ in COMPARE_TWO else 0.0
            difference = np.asarray(np.subtract(arguments[0], right))
            if difference.dtype.kind == "f" and difference.size:
                differences.append(difference)
            return function(*arguments)

        values: dict[str, Any] = {**point.sizes, **point.values, "_record": record}
        self._text(values, interface.shape("value", "", point.sizes))
        return differences


class _RecordCalls(ast.NodeTransformer):
    """Replaces comparisons by calls of `_record` with NumPy's function and its arguments."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func).removeprefix("np.")
        if name in (*COMPARE_TWO, *COMPARE_WITH_ZERO) and not node.keywords:
            node = ast.Call(ast.Name("_record", ast.Load()), [node.func, *node.args], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        name = COMPARISONS.get(type(node.ops[0]))
        if name is None or len(node.ops) > 1:
            return node
        function = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        arguments = [function, node.left, *node.comparators]
        return ast.Call(ast.Name("_record", ast.Load()), arguments, [])


def points(interface: ModuleInterface, point: Point, random: Random) -> Iterator[Point]:
    """Yield points on both sides of each threshold, reached from `point` along a random direction
    of one input; none where the declaration compares nothing that depends on the inputs."""
    compared = ComparedNumbers(interface.declaration)
    try:
        count = min(len(compared(interface, point)), MAX_THRESHOLDS)
    except OutOfDomain:
        return
    straight = [entry for entry in interface.inputs if entry.structure != "orthogonal"]
    weights = [sampling.random_weights(entry.full(point.sizes), random) for entry in straight]
    for number in range(count):
        for sign, side in ((1, "above"), (-1, "below")):
            for entry, weight in zip(straight, weights, strict=True):
                direction = sampling.project(entry.structure, weight)
                line = _Line(interface, compared, point, number, entry, direction)
                neighbour = line.solve(sign * DISTANCE)
                if neighbour is not None:
                    yield replace(neighbour, label=f"{side} threshold {number + 1}, {point.label}")
                    break


@dataclass(frozen=True)
class _Line:
    """Difference `number` of `compared`, as a function of the distance from `point` along a
    direction of the input `entry`."""

    interface: ModuleInterface
    compared: ComparedNumbers
    point: Point
    number: int
    entry: Input
    direction: np.ndarray

    def point_at(self, distance: float) -> Point:
        name = self.entry.name
        value = np.asarray(self.point.values[name] + distance * self.direction)
        return replace(self.point, values={**self.point.values, name: value})

    def difference(self, distance: float) -> np.ndarray:
        return self.compared(self.interface, self.point_at(distance))[self.number]

    def solve(self, target: float) -> Point | None:
        """Find the point where one entry of the difference equals `target`, by Newton's method for
        the entry whose first step is shortest; None if it finds no point of the domain."""
        index: tuple[np.intp, ...] | None = None
        distance = 0.0
        try:
            for _ in range(MAX_NEWTON_STEPS):
                difference = self.difference(distance)
                slope = (self.difference(distance + SLOPE_STEP) - difference) / SLOPE_STEP
                if index is None:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        steps = np.abs((target - difference) / slope)
                    steps = np.where(np.abs(slope) > MIN_SLOPE, steps, np.inf)
                    index = tuple(np.unravel_index(np.argmin(steps), steps.shape))
                    if not np.isfinite(steps[index]):
                        return None
                residual = float(target - difference[index])
                if abs(residual) <= DISTANCE / 4:
                    point = self.point_at(distance)
                    value = point.values[self.entry.name]
                    domains = (self.entry.structure, self.entry.domain)
                    return point if all(contains(domain, value) for domain in domains) else None
                distance += residual / float(slope[index])
        except (OutOfDomain, IndexError, ZeroDivisionError):
            return None
        return None
