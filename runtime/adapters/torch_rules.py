"""The derivatives of a module's functions, by the functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from derivatrix.runtime.adapters.contractions import along, weighted
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

Given = Sequence[Tensor | None]
Tensors = tuple[Tensor, ...]
Needed = Sequence[bool]
Backward = Callable[[Tensors, Needed, Given], Given]
Forward = Callable[[Tensors, Given], Tensors]


class Rules:
    """How each function of a module is differentiated.

    What a function is given begins with the inputs; directions are in the order of `wrt`. `calls`,
    by kind, are the functions on tensors, each with derivatives of its own."""

    def __init__(self, interface: ModuleInterface, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._interface, self._calls = interface, calls
        self._count = len(interface.inputs)
        self._places = [interface.inputs.index(entry) for entry in interface.wrt]
        # then a product has a sample axis that its direction has not, and is no symmetric map
        self._shared = interface.batched and not all(entry.batched for entry in interface.wrt)

    def backward(self, kind: str) -> Backward:
        """The cotangents of what a function was given, from those of what it returned, of which one
        at least is a tensor; None where they are not `needed`."""
        return getattr(self, f"_{kind}_backward")

    def forward(self, kind: str) -> Forward:
        """The tangents of what a function returned, from those of what it was given, of which one
        at least is a tensor."""
        return getattr(self, f"_{kind}_forward")

    def missing(self, kind: str) -> tuple[int, str]:
        """By how many of the first of what a function is given it has no derivatives, and why."""
        name = self._interface.name
        if kind == "hvp":
            count = self._count + len(self._places) if self._shared else self._count
            return count, f"{name}: has no third derivatives"
        if kind == "value" or "hvp" in self._interface.kinds:
            return 0, ""
        if not self._interface.output:
            return self._count, (
                f"{name}: this module was built without hvp; add it to kinds= and build it again"
            )
        return self._count, (
            f"{name}: has no second derivatives, since its value is no scalar; declare a scalar "
            "function, such as the loss with it, or leave out create_graph=True"
        )

    def _value_backward(self, given: Tensors, needed: Needed, cotangents: Given) -> Given:
        if not self._by_inputs(needed):
            return [None] * self._count
        return self._spread(self._call("vjp", *given, cotangents[0]))

    def _value_forward(self, given: Tensors, tangents: Given) -> Tensors:
        return self._call("jvp", *given, *self._directions(given, tangents))

    def _vjp_backward(self, given: Tensors, needed: Needed, cotangents: Given) -> Given:
        inputs, cotangent = given[:-1], given[-1]
        directions = self._filled(inputs, cotangents)
        by_inputs: Given = [None] * self._count
        if self._twice(needed):
            by_inputs = self._spread(self._second(inputs, cotangent, directions))
        by_cotangent = self._call("jvp", *inputs, *directions) if needed[-1] else (None,)
        return [*by_inputs, *by_cotangent]

    def _vjp_forward(self, given: Tensors, tangents: Given) -> Tensors:
        inputs, cotangent = given[:-1], given[-1]
        moves, turn = tangents[:-1], tangents[-1]
        found = []
        if turn is not None:
            found.append(self._call("vjp", *inputs, turn))
        if _some(moves):
            found.append(self._second(inputs, cotangent, self._directions(inputs, moves)))
        return _added(found)

    def _jvp_backward(self, given: Tensors, needed: Needed, cotangents: Given) -> Given:
        inputs, directions = given[: self._count], given[self._count :]
        (cotangent,) = cotangents
        by_inputs: Given = [None] * self._count
        if cotangent is not None and self._twice(needed):
            by_inputs = self._spread(self._second(inputs, cotangent, directions))
        by_directions: Given = [None] * len(directions)
        if any(needed[self._count :]):
            by_directions = self._call("vjp", *inputs, cotangent)
        return [*by_inputs, *by_directions]

    def _jvp_forward(self, given: Tensors, tangents: Given) -> Tensors:
        inputs, directions = given[: self._count], given[self._count :]
        moves, turns = tangents[: self._count], tangents[self._count :]
        found = []
        if _some(turns):
            found.append(self._call("jvp", *inputs, *self._filled(inputs, turns)))
        if _some(moves):
            products = self._products(inputs, directions)
            others = self._directions(inputs, moves)
            found.append((along(self._interface, products, others),))
        return _added(found)

    def _hvp_backward(self, given: Tensors, needed: Needed, cotangents: Given) -> Given:
        inputs, directions = given[: self._count], given[self._count :]
        by_directions: Given = [None] * len(directions)
        if not self._shared and any(needed[self._count :]):
            by_directions = self._call("hvp", *inputs, *self._filled(inputs, cotangents))
        return [*[None] * self._count, *by_directions]

    def _hvp_forward(self, given: Tensors, tangents: Given) -> Tensors:
        inputs = given[: self._count]
        moves, turns = tangents[: self._count], tangents[self._count :]
        if _some(moves):
            raise UnsupportedError(self.missing("hvp")[1])
        return self._call("hvp", *inputs, *self._filled(inputs, turns))

    def _call(self, kind: str, *tensors: Tensor | None) -> Tensors:
        self._interface.require(kind)
        found = self._calls[kind](*tensors)
        return found if isinstance(found, tuple) else (found,)

    def _by_inputs(self, needed: Needed) -> bool:
        return any(needed[place] for place in self._places)

    def _twice(self, needed: Needed) -> bool:
        return "hvp" in self._calls and self._by_inputs(needed)

    def _spread(self, parts: Tensors) -> Given:
        """One for each input, None for those that are not in wrt."""
        found: list[Tensor | None] = [None] * self._count
        for place, part in zip(self._places, parts, strict=True):
            found[place] = part
        return found

    def _second(self, inputs: Tensors, cotangent: Tensor, directions: Sequence[Tensor]) -> Tensors:
        """The derivative of <directions, gradients> times the cotangent, by each input in wrt."""
        return tuple(weighted(self._interface, self._products(inputs, directions), cotangent))

    def _products(self, inputs: Tensors, directions: Sequence[Tensor]) -> Tensors:
        if "hvp" not in self._calls:
            raise UnsupportedError(self.missing("vjp")[1])
        return self._call("hvp", *inputs, *directions)

    def _directions(self, inputs: Tensors, tangents: Given) -> list[Tensor]:
        """Tangents of the inputs in wrt, from those of all inputs."""
        for place, tangent in enumerate(tangents):
            if tangent is not None and place not in self._places:
                name = self._interface.inputs[place].name
                raise UnsupportedError(
                    f"{self._interface.name}: argument {name} has a tangent, and no derivative: it "
                    "is not in wrt; declare it so, or pass it without a tangent"
                )
        return self._filled(inputs, [tangents[place] for place in self._places])

    def _filled(self, inputs: Tensors, tangents: Given) -> list[Tensor]:
        return [
            torch.zeros_like(inputs[place]) if tangent is None else tangent
            for place, tangent in zip(self._places, tangents, strict=True)
        ]


def _some(tensors: Given) -> bool:
    return any(tensor is not None for tensor in tensors)


def _added(found: list[Tensors]) -> Tensors:
    return tuple(sum(parts[1:], parts[0]) for parts in zip(*found, strict=True))
