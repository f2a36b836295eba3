"""Guesses of the sizes of inputs that a text does not declare, and remarks on what it spreads.

Each input is read as a scalar, vector or matrix of unknown sizes, which the expression equates. Of
the combinations that fit, the one is chosen whose names are most usual for what they are, and that
spreads the fewest scalars."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import sympy

from derivatrix.compiler.frontends.notation import assignments, next_choice
from derivatrix.compiler.frontends.notation.functions import is_name
from derivatrix.compiler.frontends.notation.inputs import declare
from derivatrix.compiler.frontends.notation.loops import free_names
from derivatrix.compiler.frontends.notation.meaning import Meaning
from derivatrix.compiler.frontends.notation.sizes import Sizes
from derivatrix.compiler.frontends.notation.syntax import Tree, parse_tree
from derivatrix.compiler.frontends.notation.tokens import Source
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.runtime.errors import NotationError

MAX_READINGS = 400
"""Most combinations of ranks, and of shapes of `ones`, that are tried."""
REMARK_COST = 2
"""Cost of a scalar that is added to every entry, in those of unusual names."""
TENSOR_COST = 3
"""Cost of an array of three axes, which only texts with `einsum` have."""
USUAL_NAMES = {
    "[A-Z].*": (3, 2, 0),
    "[u-z][0-9]*": (2, 0, 3),
    "[bpqr][0-9]*": (1, 0, 3),
    "s|t|alpha|beta|gamma|delta|eps|epsilon|eta|kappa|lam|lamda|rho|sigma|tau": (0, 3, 4),
    ".*": (0, 1, 2),
}
"""Pattern of names -> how unusual they are for a scalar, a vector and a matrix."""
SIZE_NAMES = ("n", "N")
"""Names that are sizes where the text uses them as numbers, as in X/n."""
NEW_SIZES = ("m", "n", "p", "q", "k", "l", "r", "d", "c", "h")
"""Names of guessed sizes, in order; a single one is n."""

Statements = list[tuple[str, Source, Tree]]


class _Reading(NamedTuple):
    """The shapes of the inputs of unknown sizes in a reading, and the remarks on it."""

    shapes: dict[str, Shape]
    remarks: list[str]


def guess_inputs(text: str, declared: Mapping[str, str]) -> dict[str, str]:
    """Guess the sizes of the inputs of a text that are not `declared`; none for a text or a
    declaration with an error."""
    try:
        inputs, sizes = declare(declared)
        statements = _statements(text)
    except NotationError:
        return {}
    outputs = {name for name, _, _ in statements}
    names = [
        name
        for name in dict.fromkeys(
            n for _, source, tree in statements for n in free_names(source, tree)
        )
        if name not in {"pi", *inputs, *sizes, *outputs} and not is_name(name)
    ]
    free_sizes = {name: dimensions.symbol(name) for name in names if name in SIZE_NAMES}
    names = [name for name in names if name not in free_sizes]
    numbers = {"pi": sympy.pi, **sizes, **free_sizes}
    tensor_costs = (TENSOR_COST,) if "einsum" in text else ()
    usual = {name: (*_costs(name), *tensor_costs) for name in names}
    unknown = Sizes().unknown()
    usual_ranks = {name: min(range(3), key=costs.__getitem__) for name, costs in usual.items()}
    best: dict[str, Shape] = {name: (unknown,) * rank for name, rank in usual_ranks.items()}
    least_cost = math.inf
    for cost, ranks in itertools.islice(_combinations(usual), MAX_READINGS):
        if cost >= least_cost:
            break
        reading = _interpret(statements, inputs, numbers, ranks)
        if reading is None:
            continue
        total = cost + REMARK_COST * len(reading.remarks)
        if total < least_cost:
            best, least_cost = reading.shapes, total
    other_names = {*names, *inputs, *map(str, numbers)} - {*free_sizes}
    return _with_size_names(best, [*free_sizes], other_names)


def remarks(text: str, dims: Mapping[str, str]) -> list[str]:
    """Say what a text of these inputs spreads. Raises NotationError for a text with an error."""
    inputs, sizes = declare(dims)
    reading = _interpret(_statements(text), inputs, {"pi": sympy.pi, **sizes}, {})
    return list(dict.fromkeys(reading.remarks)) if reading else []


def _statements(text: str) -> Statements:
    sources = [(name, Source(expression)) for name, expression in assignments(text)]
    return [(name, source, parse_tree(source)) for name, source in sources]


def _costs(name: str) -> tuple[int, ...]:
    return next(costs for names, costs in USUAL_NAMES.items() if re.fullmatch(names, name))


def _combinations(usual: Mapping[str, Sequence[int]]) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield combinations of ranks with their costs, the most usual ones first."""
    min_cost = sum(map(min, usual.values()))
    for cost in range(min_cost, sum(map(max, usual.values())) + 1):
        for ranks in _ranks_of_cost([*usual.values()], cost):
            yield cost, dict(zip(usual, ranks, strict=True))


def _ranks_of_cost(costs: Sequence[Sequence[int]], total: int) -> Iterator[tuple[int, ...]]:
    """Yield the choices of a rank for each input whose costs add up to `total`. costs: for each
    input, by its rank."""
    if not costs:
        if not total:
            yield ()
        return
    costs_of_first, *other_costs = costs
    if total < sum(map(min, costs)) or total > sum(map(max, costs)):
        return
    for rank, cost in enumerate(costs_of_first):
        for ranks in _ranks_of_cost(other_costs, total - cost):
            yield (rank, *ranks)


def _interpret(
    statements: Statements,
    inputs: Mapping[str, Array],
    numbers: Mapping[str, sympy.Expr],
    ranks: Mapping[str, int],
) -> _Reading | None:
    """Read a text with inputs of these ranks and unknown sizes; None if they do not fit."""
    sizes = Sizes()
    unknown = {
        name: Array(Leaf(name, tuple(sizes.unknown() for _ in range(rank))))
        for name, rank in ranks.items()
    }
    remark_texts: list[str] = []
    outputs: dict[str, Array] = {}
    for name, source, tree in statements:
        choice: list[str] = []
        value = None
        while value is None:
            meaning = Meaning(source, {**inputs, **unknown, **outputs}, numbers, choice)
            meaning.sizes = sizes.copy()  # of the statements before; a failed reading changes them
            try:
                value = meaning.read(tree)
            except NotationError:
                choice = next_choice(meaning.choice)
                if not choice:
                    return None
        sizes = meaning.sizes
        outputs[name] = Array(Leaf(name or "value", sizes.known(value.shape)))
        remark_texts += meaning.remarks
    shapes = {name: sizes.known(array.node.shape) for name, array in unknown.items()}
    return _Reading(shapes, remark_texts)


def _with_size_names(
    shapes: Mapping[str, Shape], free_sizes: Sequence[str], used_names: set[str]
) -> dict[str, str]:
    """Write shapes with names for the sizes that are still unknown."""
    axes = list(itertools.chain(*shapes.values()))
    unknown = list(dict.fromkeys(s for axis in axes for s in sorted(axis.free_symbols, key=str)))
    unknown = [symbol for symbol in unknown if symbol.name.startswith("?")]
    order = NEW_SIZES if len(unknown) > 1 else ("n", *NEW_SIZES)
    letters = [name for name in (*free_sizes, *order) if name not in used_names]
    letters = [*dict.fromkeys(letters), *(f"n{number}" for number in range(1, len(unknown) + 1))]
    names = {s: dimensions.symbol(letter) for s, letter in zip(unknown, letters, strict=False)}
    return {
        name: " ".join(_size_text(axis.xreplace(names)) for axis in shape)
        for name, shape in shapes.items()
    }


def _size_text(size: sympy.Expr) -> str:
    return str(size).replace(" ", "").replace("**", "^")
