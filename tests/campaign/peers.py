"""Random expressions over the whole registry against JAX, which evaluates the declaration's NumPy
text with its own `numpy` and `scipy` and differentiates that: values, JVPs, VJPs and HVPs. What JAX
has no function or derivative for does not count as tried. Needs `pip install jax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import assume

from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.nodes import leaves
from tests.campaign import Outcome
from tests.campaign.expressions import DEPTHS, found
from tests.differentiate.test_random import Point, close, declared
from tests.jax_texts import UNKNOWN, Arrays, jax_function
from tests.points import within
from tests.strategies import expressions

LARGEST = 1e6
"""Values and derivatives beyond are not compared: a function is badly conditioned there."""


def trial(seed: int, number: int) -> Outcome:
    """Some expressions, of a depth that the trial's number says."""
    outcome = Outcome()
    drawn = expressions(depth=DEPTHS[number % len(DEPTHS)])
    outcome.failures += found(check, drawn, outcome, hash((seed, number)))
    return outcome


def check(expression: Array) -> None:
    """The derivatives of an expression by each of its leaves, together."""
    assume(leaves([expression.node]))
    fn = declared(expression)
    point, derivatives = Point(fn), fn.derivatives
    names = list(point.leaves)
    theirs = jax_function(fn.declaration)
    values = {name: point.values[name] for name in names}
    tangents = {name: point.tangents[name] for name in names}

    value, slope = known(lambda: jax.jvp(theirs, (values,), (tangents,)))
    assume(moderate(value, slope))
    close(point.at(derivatives.results("value")[()]), value, "value")
    close(point.at(derivatives.results("jvp")[()]), slope, "JVP")

    cotangent = point.values["cotangent"]
    (backward,) = known(lambda: jax.vjp(theirs, values)[1](cotangent))
    compare("VJP", point, derivatives.results("vjp"), backward)
    if not slope.shape:
        _, curved = known(lambda: jax.jvp(gradient(theirs, point), (values,), (tangents,)))
        compare("HVP", point, derivatives.results("hvp"), curved)


def compare(kind: str, point: Point, nodes: Any, theirs: dict[str, Any]) -> None:
    """Compare the results for each input, projected to its structure."""
    assume(moderate(*theirs.values()))
    for (name,), node in nodes.items():
        expected = within(point.leaves[name], point.values[name], np.asarray(theirs[name]))
        close(point.at(node), expected, f"{kind} by {name}")


def gradient(theirs: Callable[[Arrays], Any], point: Point) -> Callable[[Arrays], Any]:
    """The gradient in JAX, by orthogonal matrices along those only: there the derivative of a
    gradient depends on what it is away from them."""

    def projected(values: Arrays) -> Arrays:
        found = jax.grad(theirs)(values)
        for name, leaf in point.leaves.items():
            if leaf.structure == "orthogonal":
                Q, G = values[name], found[name]
                found[name] = (G - Q @ G.T @ Q) / 2
        return found

    return projected


def known(call: Callable[[], Any]) -> Any:
    """Call JAX; an expression without a counterpart or a derivative there is skipped."""
    try:
        return call()
    except UNKNOWN:
        assume(False)


def moderate(*arrays: Any) -> bool:
    return all(np.isfinite(a).all() and np.abs(a).max(initial=0) < LARGEST for a in arrays)
