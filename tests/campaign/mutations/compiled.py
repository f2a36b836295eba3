"""Faults in the compiler: it builds a function with them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler import simplify as simplifying
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir import structure
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.nodes import Apply, Node, Sum, einsum, topological
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.operations import OPERATIONS
from tests.caches import derive_always, forget
from tests.identities import IDENTITIES, Identity

Found = tuple[str, bool | None]
"""The change, and whether the build passed; None if the fault changed nothing."""
Change = Callable[[Array], Array]
Plant = Callable[[pytest.MonkeyPatch], None]
Named = tuple[str, Identity]

TRIED = 8
"""Identities in which a rule may be used."""
RULES = ("RULES", "FINAL_RULES", "MAP_RULES", "APPLY_RULES", "FINAL_APPLY_RULES")
FACTS = ("symmetric", "lower", "upper", "diagonal", "orthogonal", "spd")
FACTORS = {
    "negated": sympy.S.NegativeOne,
    "times 1 + 1e-4": sympy.Rational(10001, 10000),
    "times 1 - 1e-4": sympy.Rational(9999, 10000),
}


def _turned(array: Array) -> Array:
    square = array.ndim >= 2 and array.shape[-1] == array.shape[-2]
    return array.mT if square else array


def _shortened(array: Array) -> Array:
    node = array.node
    return Array(Sum(node.terms[:-1], node.shape)) if isinstance(node, Sum) else array


CHANGES: dict[str, Change] = {
    **{name: lambda array, factor=factor: array * factor for name, factor in FACTORS.items()},
    "transposed": _turned,
    "without its last term": _shortened,
}


def function_of(identity: Identity) -> Function:
    return text_function(identity.text, identity.dims, identity.wrt.split())


@cache
def users() -> dict[Operation, list[Identity]]:
    """The identities in which an operation is."""
    result = defaultdict(list)
    for identity in IDENTITIES:
        nodes = topological([function_of(identity).expression])
        for operation in {node.operation for node in nodes if isinstance(node, Apply)}:
            result[operation].append(identity)
    return result


def passes(identity: Identity, plant: Plant, folder: Path) -> bool | None:
    """Return whether a build passes with a fault; None if the fault leaves the module unchanged."""
    forget()
    right = generate(function_of(identity)).text
    with pytest.MonkeyPatch.context() as patch:
        derive_always(patch)
        plant(patch)
        forget()
        try:
            function = function_of(identity)
            if generate(function).text == right:
                return None
            dx.build(function, folder, jobs=1)
        except Exception as error:  # whatever a wrong compiler raises, it makes no module
            if extract_tb(error.__traceback__)[-1].filename == __file__:
                raise  # it is this campaign that is wrong
            return False
        finally:
            forget()
    return True


def differential(chance: random.Random, folder: Path) -> Found:
    operation, identity = _operation(chance, users())
    name, change = chance.choice([*CHANGES.items()])
    right, place = operation.differential, chance.randrange(8)

    def wrong(point: Any) -> tuple[Array, ...]:
        results = [*right(point)]
        results[place % len(results)] = change(results[place % len(results)])
        return tuple(results)

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(vars(operation), "differential", wrong)

    told = f"that of {operation.name} {name}, in {identity.text} by {identity.wrt}"
    return told, passes(identity, plant, folder)


def transpose(chance: random.Random, folder: Path) -> Found:
    """The adjoint of an operation that is linear in an argument; it is used in derivatives."""
    operation, identity = _operation(chance, [user for user in users() if user.transposes])
    name, change = chance.choice([*CHANGES.items()])
    position = chance.choice([*operation.transposes])
    right = operation.transposes[position]

    def wrong(point: Any, cotangent: Array) -> Array:
        return change(right(point, cotangent))

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(vars(operation), "transposes", {**operation.transposes, position: wrong})

    told = f"of {operation.name} in argument {position} {name}, in {identity.text}"
    return f"{told} by {identity.wrt}", passes(identity, plant, folder)


def _operation(chance: random.Random, among: Iterable[Operation]) -> tuple[Operation, Identity]:
    operation = chance.choice(sorted(among, key=lambda each: each.name))
    return operation, chance.choice(users()[operation])


class Place(NamedTuple):
    """The place of a rule: the tuple `name` of an owner, and the position in it."""

    owner: dict[str, Any]
    name: str
    number: int

    @property
    def rule(self) -> Callable[[Any], Any]:
        rule: Callable[[Any], Any] = self.owner[self.name][self.number]
        return rule

    def replace(self, patch: pytest.MonkeyPatch, rule: Callable[[Any], Any]) -> None:
        rules = [*self.owner[self.name]]
        rules[self.number] = rule
        patch.setitem(self.owner, self.name, tuple(rules))


def rules() -> list[Place]:
    owners = [(vars(simplifying), name) for name in RULES]
    owners += [(vars(operation), "rules") for operation in OPERATIONS.values()]
    return [Place(owner, name, i) for owner, name in owners for i in range(len(owner[name]))]


def rule(chance: random.Random, folder: Path) -> Found:
    place = chance.choice(rules())
    name, factor = chance.choice([*FACTORS.items()])
    right = place.rule

    def wrong(node: Any) -> Any:
        actual = right(node)
        return None if actual is None else _scaled(actual, factor)

    called = getattr(right, "__name__", repr(right))
    for identity in chance.sample(IDENTITIES, TRIED):
        passed = passes(identity, lambda patch: place.replace(patch, wrong), folder)
        if passed is not None:
            return f"{called} {name}, in {identity.text} by {identity.wrt}", passed
    return called, None


def _scaled(found: Any, factor: sympy.Expr) -> Any:
    """A node or a product times a number."""
    if not isinstance(found, Node):
        return found.scaled(factor)
    axes = range(found.ndim)
    return einsum([(found, axes)], axes, factor)


def fact(chance: random.Random, folder: Path) -> Found:
    """Something that is not so is known of all matrices that are made in one way."""
    added = frozenset({chance.choice(FACTS)})
    operation = chance.choice([*OPERATIONS.values()])
    kind = chance.choice(["_einsum", "_sum", "_map", "_constant", operation.name])
    if kind == operation.name:
        right = operation.facts

        def plant(patch: pytest.MonkeyPatch) -> None:
            patch.setitem(
                vars(operation), "facts", lambda known, output: right(known, output) | added
            )

        choice = users().get(operation, [])
    else:
        usual = getattr(structure, kind)

        def plant(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(structure, kind, lambda given: usual(given) | added)

        choice = [*IDENTITIES]
    for identity in chance.sample(choice, min(TRIED, len(choice))):
        passed = passes(identity, plant, folder)
        if passed is not None:
            return f"{kind} is {', '.join(added)}, in {identity.text} by {identity.wrt}", passed
    return kind, None
