"""Random expressions over the whole registry: every derivative kind by formula against central
differences and against the other kinds, and every formula's text against what it stands for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from derivatrix.compiler.ir.arrays import Array
from tests.campaign import Outcome
from tests.differentiate.test_random import check_derivatives, check_formulas
from tests.strategies import expressions

EXAMPLES = 10
"""Expressions of one trial, for each check."""
DEPTHS = (2, 3, 4, 5)


def trial(seed: int, number: int) -> Outcome:
    """Some expressions, of a depth that the trial's number says."""
    outcome = Outcome()
    drawn = expressions(depth=DEPTHS[number % len(DEPTHS)])
    for check in (check_derivatives, check_formulas):
        outcome.failures += found(check, drawn, outcome, hash((seed, number)))
    return outcome


def found(
    check: Callable[[Array], None],
    drawn: st.SearchStrategy[Array],
    outcome: Outcome,
    seed: int,
) -> list[str]:
    """The smallest expression that a check refuses, and why, if there is one. Expressions at which
    differences are poor, or values not finite, do not count as tried."""
    refused: list[str] = []

    def counted(expression: Array) -> None:
        try:
            check(expression)
        except AssertionError as error:
            refused.append(f"{check.__name__} of {expression.node}: {error}")
            raise
        outcome.tried += 1

    run = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )(given(drawn)(counted))
    with np.errstate(all="ignore"):
        try:
            seeded(seed)(run)()
        except AssertionError:
            return refused[-1:]  # Hypothesis tries the smallest one last
    return []
