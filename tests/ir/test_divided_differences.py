"""Divided differences, against their definition in 60 digits."""

from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.divided_differences import VARIABLE, differences
from derivatrix.compiler.ir.nodes import slot

FUNCTIONS = {
    "exp": (sympy.exp(VARIABLE), mpmath.exp),
    "tanh": (sympy.tanh(VARIABLE), mpmath.tanh),
    "sin": (sympy.sin(VARIABLE), mpmath.sin),
}
POINTS = [
    (-4e6, -0.5),  # exp underflows at the first point and between the two
    (-4e6, -4e6),
    (-1e5, 3.0),
    (-800.0, 0.3),
    (1e-9, 0.0),
    (0.3, 0.3),
    (-0.5, -3.0, -4e6),
    (0.1, 0.1, -4e6),
    (0.1, 0.1, 0.1 + 1e-9),
]


def exact(function, points: Sequence[mpmath.mpf]) -> mpmath.mpf:
    """The difference by its definition."""
    if len(points) == 1:
        return function(points[0])
    apart = points[-1] - points[0]
    return (exact(function, points[1:]) - exact(function, points[:-1])) / apart


@pytest.mark.parametrize("points", POINTS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_differences(name: str, points: tuple[float, ...]) -> None:
    expression, function = FUNCTIONS[name]
    slots = [slot(place) for place in range(len(points))]
    arguments = [np.asarray(point) for point in points]
    with np.errstate(all="ignore"):
        actual = scalar_functions.evaluate(differences(expression)(*slots), arguments)
    with mpmath.workdps(90):
        moved = sorted(mpmath.mpf(p) + k * mpmath.mpf(10) ** -25 for k, p in enumerate(points))
        expected = float(exact(function, moved))
    assert abs(actual - expected) <= 1e-14 * abs(expected) + 1e-24
