"""tr((XX)ᵀ(XX)) and its gradient in a compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

import derivatrix as dx
from derivatrix.pytensor import operator
from examples.square import energy
from tests.adapters.cost import Ways


def calls(n: int, random: np.random.Generator) -> dict[str, Ways]:
    """Return the calls to compare, by group."""
    point, module = random.normal(size=(n, n)), dx.compile(energy)

    def compiled(function: Callable[[Any], Any], mode: Any) -> Callable[[], Any]:
        X = pt.dmatrix("X")
        value = function(X)
        compiled_function = pytensor.function(
            [X], [value, pytensor.gradient.grad(value, X)], mode=mode
        )
        return lambda: compiled_function(point)

    op = operator(module)
    return {
        "value and gradient": {
            "PyTensor's own": compiled(lambda X: ((X @ X) ** 2).sum(), "NUMBA"),
            "derivatrix.pytensor": compiled(op, "NUMBA"),
            "called through Python": compiled(op, Mode("py")),
            "module alone": lambda: module.value_and_gradient(point),
        }
    }
