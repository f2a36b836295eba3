"""How far central differences are from a module's derivatives, over the size of their step.

With f smooth, (f(x + h t) - f(x - h t)) / 2h is off by a multiple of h² and, by the rounding of f,
by a multiple of 1/h: over h a V (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
1.11). Above its tip stays what is compared with a derivative that is wrong.
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
FIRST = ("vjp", "jacobian", "gradient", "value_and_gradient")


def curves(trial: Trial) -> Iterator[Curve]:
    """The curves of all derivatives that the module has returned, each along the point's tangent
    of the input that it is by; those of JVP, Hessian and HVP along all tangents."""
    tangents = measure.tangents(trial.interface, trial.point)
    for entry in trial.interface.wrt:
        moved = _differences(
            partial(_value, trial), trial.point, {entry.name: tangents[entry.name]}
        )
        for kind in FIRST:
            if kind == "vjp" and kind in trial.kept:
                actual = np.asarray(np.vdot(trial.kept[kind][entry.name], tangents[entry.name]))
                pulled = [own and (np.vdot(trial.point.cotangent, own[0]),) for own in moved]
                yield _curve(trial, kind, entry.name, actual, pulled)
            elif kind in trial.kept:
                product, _ = push(trial, entry, trial.kept[kind][entry.name])
                yield _curve(trial, kind, entry.name, product, moved)
    if "jvp" in trial.kept:
        moved = _differences(partial(_value, trial), trial.point, tangents)
        yield _curve(trial, "jvp", "", trial.kept["jvp"][""], moved)
    if trial.expected.second_along:
        yield from _second(trial, tangents)


def _second(trial: Trial, tangents: Mapping[str, np.ndarray]) -> Iterator[Curve]:
    """The curves of Hessian and HVP, by the module's own gradient."""
    interface = trial.interface
    moved = _differences(partial(measure.slopes, interface), trial.point, tangents)
    for position, row in enumerate(interface.wrt):
        value = trial.point.values[row.name]
        found = [
            own and (sampling.tangential(row.structure, value, own[position]),) for own in moved
        ]
        if "hessian" in trial.kept:
            blocks = trial.kept["hessian"]
            pushed = (
                push(trial, each, blocks[f"{row.name}, {each.name}"])[0] for each in interface.wrt
            )
            yield _curve(trial, "hessian", row.name, np.asarray(sum(pushed)), found)
        if "hvp" in trial.kept:
            yield _curve(trial, "hvp", row.name, trial.kept["hvp"][row.name], found)


def _value(trial: Trial, point: Point) -> Arrays:
    return (trial.interface.declared_value(point),)


def _differences(
    function: Callable[[Point], Arrays], point: Point, tangents: Mapping[str, np.ndarray]
) -> list[Arrays | None]:
    """Central differences along the tangents for each of STEPS; None where a point has no value."""
    line, length = measure.line_along(function, point, tangents)
    found: list[Arrays | None] = []
    for step in STEPS if length else ():
        distance = step / length
        try:
            sides = zip(line(distance), line(-distance), strict=True)
        except OutOfDomain:
            found.append(None)
        else:
            found.append(tuple((ahead - behind) / (2 * distance) for ahead, behind in sides))
    return found or [None] * len(STEPS)


def _curve(
    trial: Trial, kind: str, key: str, actual: np.ndarray, found: list[Arrays | None]
) -> Curve:
    size = measure.scale(actual, trial.floor)
    errors = tuple(
        measure.largest(own[0].reshape(actual.shape) - actual) / size if own else math.inf
        for own in found
    )
    return Curve(kind, key, trial.point.label, errors)
