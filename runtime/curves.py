"""Errors of central differences beside a module's derivatives, as curves over their step.

For smooth f the error of (f(x + h t) - f(x - h t)) / 2h is a multiple of h² plus, by the rounding
of f, a multiple of 1/h: a V over h in a log-log plot (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, 1.11). Beside a wrong derivative the curve stays above the tip of the V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from derivatrix.runtime import measure, sampling
from derivatrix.runtime.checks import Trial, push
from derivatrix.runtime.interface import Point
from derivatrix.runtime.reference import OutOfDomain
from derivatrix.runtime.report import STEPS, Curve

Arrays = tuple[np.ndarray, ...]
BY_ONE_INPUT = ("jacobian", "gradient", "value_and_gradient")


def curves(trial: Trial) -> Iterator[Curve]:
    """Yield the curves of all derivatives in a trial. A derivative by one input is contracted with
    the tangent of this input; JVP, Hessian and HVP are compared along all tangents together."""
    results, point = trial.copies, trial.point
    tangents = measure.tangents(trial.interface, point)

    def value(point: Point) -> Arrays:
        return (trial.interface.declared_value(point),)

    has_first = any(kind in results for kind in ("vjp", *BY_ONE_INPUT))
    for entry in trial.interface.wrt if has_first else ():
        name, tangent = entry.name, tangents[entry.name]
        differences = _differences(value, point, {name: tangent})
        if "vjp" in results:
            actual = np.asarray(np.vdot(results["vjp"][name], tangent))
            pulled = [arrays and (np.vdot(point.cotangent, arrays[0]),) for arrays in differences]
            yield _curve(trial, "vjp", name, actual, pulled)
        for kind in BY_ONE_INPUT:
            if kind in results:
                product, _ = push(trial, entry, results[kind][name])
                yield _curve(trial, kind, name, product, differences)
    if "jvp" in results:
        differences = _differences(value, point, tangents)
        yield _curve(trial, "jvp", "", results["jvp"][""], differences)
    if trial.expected.second_along:
        yield from _second_curves(trial, tangents)


def _second_curves(trial: Trial, tangents: Mapping[str, np.ndarray]) -> Iterator[Curve]:
    """Yield the curves of Hessian and HVP, from differences of the module's gradient."""
    wrt, results = trial.interface.wrt, trial.copies
    gradients = _differences(partial(measure.slopes, trial.interface), trial.point, tangents)
    for position, row in enumerate(wrt):
        value = trial.point.values[row.name]
        differences = [
            arrays and (sampling.tangential(row.structure, value, arrays[position]),)
            for arrays in gradients
        ]
        if "hessian" in results:
            blocks = ((entry, results["hessian"][f"{row.name}, {entry.name}"]) for entry in wrt)
            product = sum(push(trial, entry, block)[0] for entry, block in blocks)
            yield _curve(trial, "hessian", row.name, np.asarray(product), differences)
        if "hvp" in results:
            yield _curve(trial, "hvp", row.name, results["hvp"][row.name], differences)


def _differences(
    function: Callable[[Point], Arrays], point: Point, tangents: Mapping[str, np.ndarray]
) -> list[Arrays | None]:
    """Compute central differences along the tangents for each of STEPS, None outside the domain."""
    line, length = measure.line_along(function, point, tangents)
    differences: list[Arrays | None] = []
    for step in STEPS if length else ():
        distance = step / length
        try:
            sides = zip(line(distance), line(-distance), strict=True)
        except OutOfDomain:
            differences.append(None)
        else:
            differences.append(tuple((ahead - behind) / (2 * distance) for ahead, behind in sides))
    return differences or [None] * len(STEPS)


def _curve(
    trial: Trial, kind: str, key: str, actual: np.ndarray, differences: list[Arrays | None]
) -> Curve:
    size = measure.scale(actual, trial.floor)
    errors = tuple(
        measure.largest(arrays[0].reshape(actual.shape) - actual) / size if arrays else math.inf
        for arrays in differences
    )
    return Curve(kind, key, trial.point.label, errors)
