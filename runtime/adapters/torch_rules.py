"""Rules that differentiate a module's functions by calls of its functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from derivatrix.runtime.adapters.contractions import along, tangential, weighted
from derivatrix.runtime.adapters.second import has_second, without_second
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

Tangents = Sequence[Tensor | None]
"""Tangents or cotangents, None for zero."""
Tensors = tuple[Tensor, ...]
NeedsGrad = Sequence[bool]
Backward = Callable[[Tensors, NeedsGrad, Tangents], Tangents]
Forward = Callable[[Tensors, Tangents], Tensors]


class Rules:
    """The rules of a module's functions. Arguments of a function are the inputs, then a cotangent
    of each output, or directions in the order of `wrt`. calls: the functions for tensors by kind,
    which have derivatives themselves. second: the rules of the module with second derivatives of an
    array-valued function, which is loaded when they are needed.

    `vjp` and `jvp` of that module are linear in the directions among their inputs, too, and
    symmetric: f''[V, W] = f''[W, V]. By its other inputs they have no derivatives."""

    def __init__(
        self,
        interface: ModuleInterface,
        calls: Mapping[str, Callable[..., Any]],
        second: Callable[[], Rules],
    ) -> None:
        self._interface, self._calls, self._second = interface, calls, second
        self._count = len(interface.inputs)
        self._wrt_positions = [interface.inputs.index(entry) for entry in interface.wrt]
        self._point_count = self._count - len(interface.directions)
        directions = [*range(self._point_count, self._count)]
        # of the inputs by which `vjp` and `jvp` have derivatives
        self._curved_positions = directions or self._wrt_positions
        self._has_second = bool(directions) or (
            "hvp" in interface.kinds if interface.has_gradient else has_second(interface)
        )
        # a Hessian's product then has a batch axis that its direction lacks: no symmetric map
        self._shared = interface.batched and not all(entry.batched for entry in interface.wrt)

    def backward(self, kind: str) -> Backward:
        """Return the rule for the cotangents of a function's arguments, from those of its results,
        not all of them None; None for arguments that need no gradient."""
        return getattr(self, f"_{kind}_backward")

    def forward(self, kind: str) -> Forward:
        """Return the rule for the tangents of a function's results, from those of its arguments,
        not all of them None."""
        return getattr(self, f"_{kind}_forward")

    def missing(self, kind: str) -> tuple[int, str]:
        """Return the number of leading arguments by which a function has no derivatives, and the
        reason."""
        name, third = self._interface.name, "there are no third derivatives"
        if kind == "hvp":
            count = self._count + len(self._wrt_positions) if self._shared else self._count
            return count, f"{name}: {third}"
        if kind == "value":
            return 0, ""
        if self._has_second:
            return (self._point_count if self._interface.directions else 0), f"{name}: {third}"
        if not self._interface.has_gradient:
            return self._count, without_second(self._interface)
        return self._count, (
            f"{name}: this module was built without hvp; add it to kinds= and build it again"
        )

    def _value_backward(
        self, inputs: Tensors, needs_grad: NeedsGrad, cotangents: Tangents
    ) -> Tangents:
        if not _needs(needs_grad, self._wrt_positions):
            return [None] * self._count
        derivatives = self._call("vjp", *inputs, *cotangents)
        return self._by_input(derivatives, self._wrt_positions)

    def _value_forward(self, inputs: Tensors, tangents: Tangents) -> Tensors:
        return self._call("jvp", *inputs, *self._wrt_tangents(inputs, tangents))

    def _vjp_backward(
        self, arguments: Tensors, needs_grad: NeedsGrad, cotangents: Tangents
    ) -> Tangents:
        inputs, primal_cotangents = self._split(arguments)
        directions = self._with_zeros(inputs, cotangents)
        by_inputs = self._jvp_gradient(inputs, needs_grad, directions, primal_cotangents)
        by_cotangents: Tangents = [None] * len(primal_cotangents)
        if any(needs_grad[self._count :]):
            by_cotangents = self._call("jvp", *inputs, *directions)
        return [*by_inputs, *by_cotangents]

    def _vjp_forward(self, arguments: Tensors, tangents: Tangents) -> Tensors:
        inputs, cotangents = self._split(arguments)
        input_tangents, cotangent_tangents = self._split(tangents)
        terms = []
        if _has_tensor(cotangent_tangents):
            terms.append(self._call("vjp", *inputs, *_filled(cotangents, cotangent_tangents)))
        if _has_tensor(input_tangents):
            directions = self._curved_tangents(inputs, input_tangents)
            terms.append(self._second_vjp(inputs, directions, cotangents))
        return _sum(terms)

    def _jvp_backward(
        self, arguments: Tensors, needs_grad: NeedsGrad, cotangents: Tangents
    ) -> Tangents:
        inputs, directions = self._split(arguments)
        by_inputs = self._jvp_gradient(inputs, needs_grad, directions, cotangents)
        by_directions: Tangents = [None] * len(directions)
        if any(needs_grad[self._count :]):
            by_directions = self._call("vjp", *inputs, *cotangents)
        return [*by_inputs, *by_directions]

    def _jvp_forward(self, arguments: Tensors, tangents: Tangents) -> Tensors:
        inputs, directions = self._split(arguments)
        input_tangents, direction_tangents = self._split(tangents)
        terms = []
        if _has_tensor(direction_tangents):
            terms.append(self._call("jvp", *inputs, *self._with_zeros(inputs, direction_tangents)))
        if _has_tensor(input_tangents):
            tangents = self._curved_tangents(inputs, input_tangents)
            terms.append(self._second_jvp(inputs, tangents, directions))
        return _sum(terms)

    def _hvp_backward(
        self, arguments: Tensors, needs_grad: NeedsGrad, cotangents: Tangents
    ) -> Tangents:
        inputs, directions = self._split(arguments)
        by_directions: Tangents = [None] * len(directions)
        if not self._shared and any(needs_grad[self._count :]):
            by_directions = self._call("hvp", *inputs, *self._with_zeros(inputs, cotangents))
        return [*[None] * self._count, *by_directions]

    def _hvp_forward(self, arguments: Tensors, tangents: Tangents) -> Tensors:
        inputs, _ = self._split(arguments)
        input_tangents, direction_tangents = self._split(tangents)
        if _has_tensor(input_tangents):
            raise UnsupportedError(self.missing("hvp")[1])
        return self._call("hvp", *inputs, *self._with_zeros(inputs, direction_tangents))

    def _split(self, arguments: Any) -> tuple[Any, Any]:
        """Split arguments, or their tangents, after the inputs."""
        return arguments[: self._count], arguments[self._count :]

    def _call(self, kind: str, *tensors: Tensor | None) -> Tensors:
        self._interface.require(kind)
        result = self._calls[kind](*tensors)
        return result if isinstance(result, tuple) else (result,)

    def _by_input(self, derivatives: Tensors, positions: Sequence[int]) -> Tangents:
        """Place derivatives by the inputs at `positions` among those by all, which are None."""
        by_input: list[Tensor | None] = [None] * self._count
        for position, derivative in zip(positions, derivatives, strict=True):
            by_input[position] = derivative
        return by_input

    def _jvp_gradient(
        self, inputs: Tensors, needs_grad: NeedsGrad, directions: Sequence[Tensor], cotangents: Any
    ) -> Tangents:
        """Differentiate <cotangents, JVP along directions> by each input; None where no gradient is
        needed, and where `missing` refuses it."""
        positions = self._curved_positions
        if not self._has_second or not _needs(needs_grad, positions):
            return [None] * self._count
        return self._by_input(self._second_vjp(inputs, directions, cotangents), positions)

    def _second_vjp(
        self, inputs: Tensors, directions: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> Tensors:
        """Differentiate <cotangents, JVP along directions> by the inputs in wrt."""
        if not self._interface.has_gradient:
            return self._call_second("vjp", inputs, directions, cotangents)
        return tuple(weighted(self._interface, self._hvp(inputs, directions), *cotangents))

    def _second_jvp(
        self, inputs: Tensors, tangents: Sequence[Tensor], directions: Sequence[Tensor]
    ) -> Tensors:
        """Differentiate the JVP along directions, along tangents of the inputs in wrt."""
        if not self._interface.has_gradient:
            return self._call_second("jvp", inputs, tangents, directions)
        return (along(self._interface, self._hvp(inputs, directions), tangents),)

    def _call_second(
        self, kind: str, inputs: Tensors, directions: Sequence[Tensor], linear: Sequence[Tensor]
    ) -> Tensors:
        """Call the derivative of `vjp` or `jvp` along directions; in the module with second
        derivatives, that along its own directions."""
        point = inputs[: self._point_count]
        arguments = (*point, *tangential(self._interface, point, directions), *linear)
        rules = self if self._interface.directions else self._second()
        return rules._call(kind, *arguments)

    def _hvp(self, inputs: Tensors, directions: Sequence[Tensor]) -> Tensors:
        if not self._has_second:
            raise UnsupportedError(self.missing("vjp")[1])
        return self._call("hvp", *inputs, *directions)

    def _curved_tangents(self, inputs: Tensors, tangents: Tangents) -> list[Tensor]:
        """Select the tangents of the inputs by which `vjp` and `jvp` have derivatives; raises
        UnsupportedError for another tangent."""
        if not self._interface.directions:
            return self._wrt_tangents(inputs, tangents)
        if _has_tensor(tangents[: self._point_count]):
            raise UnsupportedError(self.missing("vjp")[1])
        return self._with_zeros(inputs, tangents[self._point_count :])

    def _wrt_tangents(self, inputs: Tensors, tangents: Tangents) -> list[Tensor]:
        """Select the tangents of the inputs in wrt; raises UnsupportedError for another tangent."""
        for position, tangent in enumerate(tangents):
            if tangent is not None and position not in self._wrt_positions:
                name = self._interface.inputs[position].name
                raise UnsupportedError(
                    f"{self._interface.name}: argument {name} has a tangent, and no derivative: it "
                    "is not in wrt; declare it so, or pass it without a tangent"
                )
        return self._with_zeros(inputs, [tangents[position] for position in self._wrt_positions])

    def _with_zeros(self, inputs: Tensors, tangents: Tangents) -> list[Tensor]:
        """Replace None by zeros in tangents of the inputs in wrt."""
        return _filled([inputs[position] for position in self._wrt_positions], tangents)


def _needs(needs_grad: NeedsGrad, positions: Sequence[int]) -> bool:
    return any(needs_grad[position] for position in positions)


def _filled(tensors: Sequence[Tensor], tangents: Tangents) -> list[Tensor]:
    """Replace None by zeros in tangents of tensors."""
    return [
        torch.zeros_like(tensor) if tangent is None else tangent
        for tensor, tangent in zip(tensors, tangents, strict=True)
    ]


def _has_tensor(tensors: Tangents) -> bool:
    return any(tensor is not None for tensor in tensors)


def _sum(terms: list[Tensors]) -> Tensors:
    return tuple(sum(parts[1:], parts[0]) for parts in zip(*terms, strict=True))
