"""Loops over time, as kernels run them, have the values of the loops that they are made from."""

import numpy as np
import pytest

from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import topological
from derivatrix.compiler.plan.recurrences import is_range, with_planned_loops
from tests.loops import chebyshev, elman, garch, nested
from tests.points import draw

FUNCTIONS = [case().function for case in (elman, garch, chebyshev, nested)]


@pytest.mark.parametrize("length", (0, 1, 4))
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_values_are_those_of_the_declared_loops(function: Function, length: int) -> None:
    sizes = {"T": length, "n": 3, "m": 2}
    generator = np.random.default_rng(length)
    for kind in ("value", "vjp"):
        arguments, results = function.derivatives.kernel(kind)
        values = {leaf.name: 0.5 * abs(draw(leaf, generator, sizes)) for leaf in arguments}
        nodes = [*results.values()]
        expected = evaluate_all(nodes, values, sizes)
        actual = evaluate_all(with_planned_loops(nodes), values, sizes)
        for array, right in zip(actual, expected, strict=True):
            np.testing.assert_allclose(array, right, rtol=1e-10, atol=1e-12)


def test_states_are_read_in_place() -> None:
    nodes = [*elman().function.derivatives.kernel("vjp")[1].values()]
    assert any(map(is_range, topological(with_planned_loops(nodes))))
