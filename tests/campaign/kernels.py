"""Random functions of matrices and vectors of symbolic sizes, compiled: what their kernels compute
in both precisions, for sizes from 0 to 64, against the interpreter; and of stacks, against their
samples one after the other."""

from __future__ import annotations

import random
from types import ModuleType

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from tests.campaign import Outcome
from tests.differentiate.test_identities import Setting
from tests.emit.cuda.test_random_rows import INPUTS, mentions, texts
from tests.emit.cuda.test_simulated import problems
from tests.identities import Identity
from tests.points import draw_all, leaves

SIZES = (0, 1, 2, 3, 7, 17)
LARGE = 64
"""The size of one axis; the others are at most 3, as Hessians have the fourth power of entries."""
BATCHES = (0, 1, 5)
DRAWN = 4
"""Choices of sizes for a function."""
KINDS = ("value", "vjp", "jvp")
"""The kinds that are compared for stacks."""


def trial(seed: int, number: int) -> Outcome:
    """A function, and the same with one of its inputs as a stack."""
    chance, outcome = random.Random(f"{seed} {number}"), Outcome()
    text = drawn(chance)
    names = [name for name in INPUTS if mentions(text, name)]
    dims = ", ".join(f"{name}: {INPUTS[name]}" for name in names)
    identity = Identity(text, dims, chance.choice(names), "")
    function = text_function(text, dims, [identity.wrt])
    inputs, expression = [*map(dx.Array, function.inputs)], dx.Array(function.expression)
    stack = chance.choice(names)
    stacked = dx.function("f", inputs, expression, batch=[stack], wrt=[identity.wrt])
    module, other = dx.compile(function), dx.compile(stacked)
    for _ in range(DRAWN):
        sizes = chosen(chance)
        if not all(eval(needed, {}, sizes) for needed in module.REQUIREMENTS):
            continue
        if "logsumexp" in text and 0 in sizes.values():  # of nothing it is -inf, times 0 nan
            continue
        with np.errstate(all="ignore"):
            result = [*problems(function, module, Setting(identity, function, sizes))]
            for batch in BATCHES:
                result += apart(stacked, {**sizes, "batch": batch}, module, other)
        outcome.tried += 1
        told = f"{text} by {identity.wrt}, {stack} stacked, {sizes}"
        outcome.failures += [f"{told}: {problem}" for problem in result]
    return outcome


def chosen(chance: random.Random) -> dict[str, int]:
    sizes = {name: chance.choice(SIZES) for name in "mnk"}
    if chance.random() < 0.25:
        sizes = {name: min(size, 3) for name, size in sizes.items()}
        sizes[chance.choice("mk")] = LARGE
    return sizes


def drawn(chance: random.Random) -> str:
    """The text of a function; the first that Hypothesis draws is always the simplest one."""
    result: list[str] = []

    def kept(text: str) -> None:
        result.append(text)

    run = settings(
        max_examples=10,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(texts())(kept))
    seeded(chance.random())(run)()
    return result[-1]


def apart(
    stacked: Function, sizes: dict[str, int], single: ModuleType, other: ModuleType
) -> list[str]:
    """Compare results of stacks with those of their samples; return the differences."""
    values, told = draw_all(stacked, seed=0, sizes=sizes), []
    for kind in KINDS:
        arguments = stacked.derivatives.arguments(kind)
        given = [values[leaf.name] for leaf in arguments]
        cut = [[str(size) for size in leaf.shape][:1] == ["batch"] for leaf in arguments]
        (actual,) = leaves(getattr(other, kind)(*given))
        samples = []
        for i in range(sizes["batch"]):
            own = [a[i] if is_sliced else a for a, is_sliced in zip(given, cut, strict=True)]
            samples += leaves(getattr(single, kind)(*own))
        shared = kind == "vjp" and stacked.wrt[0] not in stacked.batch
        expected = np.zeros(actual.shape) if shared or not samples else np.stack(samples)
        if shared:
            expected = sum(samples, expected)
        size = np.abs(expected).max(initial=1e-2)
        if actual.shape != expected.shape:
            told.append(f"{kind} of {sizes['batch']}: {actual.shape}, not {expected.shape}")
        elif not np.allclose(actual, expected, rtol=0, atol=1e-9 * size, equal_nan=True):
            told.append(f"{kind} of {sizes['batch']}: off by {np.abs(actual - expected).max()}")
    return told
