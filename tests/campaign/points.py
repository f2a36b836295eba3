"""Special points: zeros, ones, repeated and zero eigenvalues and singular values, ends of domains.
Where the declaration has a derivative there, as its differences in 50 digits say, the closed form
has to have it, too: nan, an error and another number are failures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.runtime.exact import Declared
from derivatrix.runtime.precise import NUMBERS, Imprecise
from derivatrix.runtime.reference import OutOfDomain
from tests.campaign import Outcome
from tests.identities import IDENTITIES
from tests.plain import run_plain
from tests.points import draw, numbers, within

SIZES = {"n": 3, "m": 4, "p": 5, "k": 2, "q": 2, "N": 6, "d": 3, "c": 2}
POINTS = 4
"""Points of one trial; each trial is of one identity."""
LEFT_OUT = {
    "jvp": ("qrQ(", "eighV(", "svdU(", "svdV(", "polar("),
    "hvp": (
        "qrQ(",
        "eighV(",
        "svdU(",
        "svdV(",
        "polar(",
        "svdvals(",
        "normnuc(",
    ),
}
"""Kind -> texts of functions that are known to lack this derivative, although it exists:
docs/explanation/reliability.md."""
AGREES = 1e-7
"""The relative difference up to which two numbers are the same."""

Values = dict[str, np.ndarray]
Made = Callable[[tuple[int, ...], np.random.Generator], np.ndarray]


def _repeated(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """A symmetric matrix with the eigenvalues 1, 1, 2, 2, ..."""
    basis = np.linalg.qr(random.normal(size=shape))[0]
    return (basis * (1 + np.arange(shape[-1]) // 2)) @ basis.swapaxes(-1, -2)


def _permuted(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    return np.eye(shape[-1])[random.permutation(shape[-1])]


ANY: tuple[Made, ...] = (
    lambda shape, random: np.zeros(shape),
    lambda shape, random: np.ones(shape),
    lambda shape, random: -np.ones(shape),
    lambda shape, random: random.integers(-1, 2, shape).astype(float),
    lambda shape, random: np.broadcast_to(random.normal(size=shape[-1:]), shape).copy(),
)
SQUARE: tuple[Made, ...] = (
    *ANY,
    lambda shape, random: np.eye(shape[-1]),
    lambda shape, random: np.diag(np.arange(shape[-1]) - 1.0),
    lambda shape, random: np.eye(shape[-1], k=1),
    _permuted,
    _repeated,
)
SYMMETRIC: tuple[Made, ...] = (
    *(ANY[:3]),
    lambda shape, random: np.eye(shape[-1]),
    lambda shape, random: np.diag(np.arange(shape[-1]) - 1.0),
    _repeated,
)
REGULAR: tuple[Made, ...] = (lambda shape, random: np.eye(shape[-1]), _repeated)
POSITIVE: tuple[Made, ...] = (lambda shape, random: np.ones(shape),)
SPECIAL: dict[str, tuple[Made, ...]] = {
    "symmetric": SYMMETRIC,
    "spd": REGULAR,
    "invertible": (*REGULAR, _permuted),
    "orthogonal": (lambda shape, random: np.eye(shape[-1]), _permuted),
    "positive": POSITIVE,
    "nonneg": POSITIVE,
    "lower": (lambda shape, random: np.eye(shape[-1]), lambda shape, random: np.tri(shape[-1])),
    "upper": (lambda shape, random: np.eye(shape[-1]), lambda shape, random: np.tri(shape[-1]).T),
    "diagonal": (lambda shape, random: np.eye(shape[-1]), lambda shape, random: np.zeros(shape)),
    "simplex": (lambda shape, random: np.full(shape, 1 / shape[-1]),),
}


class Case(NamedTuple):
    """A function at a point, with a tangent of each input that it is differentiated by, and what
    moves them."""

    function: Function
    values: Values
    tangents: Values


@cache
def functions() -> list[Function]:
    return [text_function(row.text, row.dims, row.wrt.split()) for row in IDENTITIES]


def trial(seed: int, number: int) -> Outcome:
    """Some special points of one identity."""
    place = number % len(IDENTITIES)
    function, written = functions()[place], IDENTITIES[place].text
    random = np.random.default_rng([seed, number])
    outcome = Outcome()
    for _ in range(POINTS):
        case = drawn(function, random)
        for kind in ("jvp", "hvp"):
            left_out = any(operation in written for operation in LEFT_OUT[kind])
            if kind in function.kinds and not left_out:
                check(kind, case, random, outcome)
    return outcome


def drawn(function: Function, random: np.random.Generator) -> Case:
    """A point at which every other input, and the first one at least, is special."""
    values = {}
    for place, leaf in enumerate(function.inputs):
        shape = numbers(leaf.shape, SIZES)
        structure = function.domains.get(leaf.name) or leaf.structure
        square = len(shape) == 2 and shape[0] == shape[1]
        makers = SPECIAL.get(structure, SQUARE if square else ANY)
        values[leaf.name] = draw(leaf, random, SIZES)
        if not place or random.integers(2):
            made = makers[random.integers(len(makers))](shape, random)
            values[leaf.name] = np.asarray(made, dtype=float).reshape(shape)
    return Case(function, values, tangents(function, values, random))


def tangents(function: Function, values: Values, random: np.random.Generator) -> Values:
    moving = [leaf for leaf in function.inputs if leaf.name in function.wrt]
    return {leaf.name: tangent(leaf, values[leaf.name], random) for leaf in moving}


def tangent(leaf: Leaf, value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return within(leaf, value, np.asarray(random.normal(size=value.shape)))


def check(kind: str, case: Case, random: np.random.Generator, outcome: Outcome) -> None:
    """Return whether the closed form has the derivative that exists at a point."""
    other = tangents(case.function, case.values, random)
    expected = limit(kind, case, other)
    if expected is None:
        return
    outcome.tried += 1
    with np.errstate(all="ignore"):
        try:
            actual = closed_form(kind, case, other)
        except np.linalg.LinAlgError as error:
            outcome.failures.append(f"{text(kind, case)}: LinAlgError: {error}, not {expected}")
            return
    if not same(actual, expected):
        outcome.failures.append(f"{text(kind, case)}: {actual}, not {expected}")


def closed_form(kind: str, case: Case, other: Values) -> np.ndarray:
    """The derivative along the tangents; the second one along the others, too."""
    derivatives = case.function.derivatives
    values = dict(case.values)
    for leaf in derivatives.wrt:
        values[derivatives.tangent(leaf).name] = case.tangents[leaf.name]
    shapes = [numbers(node.shape, SIZES) for node in derivatives.kernel(kind)[1].values()]
    arrays = [np.full(shape, np.nan) for shape in shapes]
    run_plain(kernel_plan(derivatives, kind), values, arrays)
    if kind == "jvp":
        return arrays[0]
    parts = zip(derivatives.kernel(kind)[1], arrays, strict=True)
    return np.asarray(sum(np.vdot(array, other[name]) for (name,), array in parts))


def limit(kind: str, case: Case, other: Values) -> np.ndarray | None:
    """The derivative of the declaration in 50 digits; None where it has none: differences of two
    sizes, or to both sides, differ, or are not linear in the tangents."""
    function = case.function
    if kind == "hvp" and any(leaf.structure == "orthogonal" for leaf in function.inputs):
        return None  # it is along curves, not lines
    shape = numbers(function.expression.shape, SIZES)
    declared = Declared(function.declaration, shape, {**SIZES, **case.values})
    try:
        if kind == "jvp":
            return _linear(lambda steps: _first(declared, steps), case.tangents, other)
        return _linear(lambda steps: _second(declared, other, steps), case.tangents, other)
    except (OutOfDomain, Imprecise):
        return None


def _first(declared: Declared, steps: Values) -> np.ndarray | None:
    here, lengths = declared.value(), (1e-16, -1e-16, 1e-12)
    ends = [declared.value((NUMBERS.mpf(length), steps)) for length in lengths]
    slopes = [np.float64((end - here) / length) for end, length in zip(ends, lengths, strict=True)]
    alike = all(same(slope, slopes[0]) for slope in slopes)
    return slopes[0] if alike else None


def _second(declared: Declared, one: Values, other: Values) -> np.ndarray | None:
    """The change of the derivative along `one`, where `other` leads."""
    if _first(declared, one) is None:
        return None
    changes = [declared.second(one, other, length) for length in (1e-12, -1e-12, 1e-10)]
    alike = all(same(change, changes[0]) for change in changes)
    return changes[0] if alike else None


def _linear(
    derivative: Callable[[Values], np.ndarray | None], one: Values, other: Values
) -> np.ndarray | None:
    both = {name: one[name] + other[name] for name in one}
    result = [derivative(steps) for steps in (one, other, both)]
    if any(part is None for part in result):
        return None
    first, second, total = result
    assert first is not None and second is not None and total is not None
    return first if same(total, first + second) else None


def same(one: np.ndarray, other: np.ndarray) -> bool:
    scale = max(1.0, float(np.abs(other).max(initial=0)))
    return bool(np.all(np.abs(one - other) <= AGREES * scale))


def text(kind: str, case: Case) -> str:
    entries = " ".join(f"{name}={value.tolist()}" for name, value in case.values.items())
    return f"{kind} of {case.function.expression} by {' '.join(case.function.wrt)} at {entries}"
