"""Operators of PyTorch's dispatcher that can be differentiated in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch._library.custom_ops import CustomOpDef
from torch.autograd import forward_ad
from torch.autograd.function import Function

from derivatrix.runtime.adapters.torch_kernel import Kernel
from derivatrix.runtime.adapters.torch_rules import Rules, Tensors
from derivatrix.runtime.adapters.torch_vmap import vectorized
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_family import Family


NUMBERS = {
    *(bool, int, float),
    *(kind for kind in np.sctypeDict.values() if issubclass(kind, np.integer | np.floating)),
}
"""Types of numbers. `isinstance` of a tensor takes a tenth of the time of a call."""
LIBRARY = torch.library.Library("derivatrix", "FRAGMENT")


class Dispatched:
    """A kernel as the operator `derivatrix::NAME` of PyTorch's dispatcher, `overload`.

    `torch.library.custom_op` makes such operators, too, but without forward mode and without
    derivatives under torch.func, and its wrappers take as long again as a call."""

    def __init__(self, name: str, kernel: Kernel, names: list[str], family: Family) -> None:
        self.kernel, self.family = kernel, family
        results = ", ".join(["Tensor"] * kernel.count)
        arguments = ", ".join(f"Tensor {each}" for each in names)
        schema = f"({arguments}) -> {results if kernel.count == 1 else f'({results})'}"
        LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
        self.overload: Any = getattr(torch.ops.derivatrix, name).default
        derivatives = differentiable(self.overload, kernel.kind, family.rules)
        LIBRARY.impl(name, kernel.__call__, "CompositeExplicitAutograd")
        LIBRARY.impl(name, derivatives, "Autograd")
        torch.library.register_fake(f"derivatrix::{name}", kernel.fake, lib=LIBRARY)
        torch.library.register_vmap(f"derivatrix::{name}", self._vectorized, lib=LIBRARY)

    def _vectorized(self, info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> Any:
        return vectorized(self, info.batch_size, in_dims, tensors)


class Operator(Dispatched, CustomOpDef):
    """The value of a generated module; see `derivatrix.torch.operator`.

    A CustomOpDef, for PyTorch to take it as an operator, but nothing can be registered anew."""

    def __init__(self, name: str, kernel: Kernel, names: list[str], family: Family) -> None:
        super().__init__(name, kernel, names, family)
        self._namespace, self._name, self._opoverload = "derivatrix", name, self.overload
        self._schema = dict(zip(kernel.parameters, names, strict=True))

    def __call__(
        self, /, *inputs: Tensor | float, out: Tensor | None = None, **named: Tensor | float
    ) -> Tensor:
        if out is None and not named:
            for value in inputs:
                if type(value) in NUMBERS:
                    break
            else:
                return self.overload(*inputs)
        tensors = [*map(self._tensor, inputs)]
        others = {self._schema.get(name, name): self._tensor(named[name]) for name in named}
        if out is None:
            return self.overload(*tensors, **others)
        return self.family.fill(tensors, others, out)

    def _tensor(self, value: Any) -> Tensor:
        """A number as a tensor of the type that the module takes it for; others as they are."""
        if type(value) not in NUMBERS:
            return value
        dtype = torch.float32 if isinstance(value, np.float32) else torch.float64
        return torch.tensor(float(value), dtype=dtype, device=self.kernel.device)

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        return self.family.reduced()


def differentiable(overload: Any, kind: str, rules: Rules) -> Callable[..., Any]:
    """What the dispatcher calls for tensors that may need derivatives."""
    backward_rule, forward_rule = rules.backward(kind), rules.forward(kind)
    count, problem = rules.missing(kind)

    class Differentiated(Function):
        """Reverse mode alone: in a `jvp` of its own, other levels of torch.func would be lost."""

        @staticmethod
        def forward(ctx: Any, duals: Tensors, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*duals)
            ctx.set_materialize_grads(False)
            with torch._C._AutoDispatchBelowAutograd():
                return overload(*tensors)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
            needed = ctx.needs_input_grad[1:]
            if all(cotangent is None for cotangent in cotangents):
                return None, *(None for _ in needed)
            return None, *backward_rule(ctx.saved_tensors, needed, cotangents)

    apply = _apply(Differentiated)

    def reverse(tensors: Tensors, duals: Tensors) -> Any:
        if not torch.is_grad_enabled() or not torch._C._any_requires_grad(*tensors):
            with torch._C._AutoDispatchBelowAutograd():
                return overload(*tensors)
        if not torch._C._are_functorch_transforms_active():
            return recorded(tensors, duals)
        with enable_single_level_autograd_function():
            return recorded(tensors, duals)

    def recorded(tensors: Tensors, duals: Tensors) -> Any:
        refused = [_apply(Refused)(problem, each) for each in tensors[:count]]
        return apply(duals, *refused, *tensors[count:])

    def both(*tensors: Tensor) -> Any:
        # where PyTorch compiles torch.func, the level of forward_ad is not known
        if forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active():
            return reverse(tensors, tensors)
        parts = [forward_ad.unpack_dual(tensor, level=0) for tensor in tensors]
        tangents = [part.tangent for part in parts]
        if all(tangent is None for tangent in tangents):
            return reverse(tensors, tensors)
        primals = tuple(part.primal for part in parts)
        found, moved = reverse(primals, tensors), forward_rule(primals, tangents)
        if isinstance(found, tuple):
            return tuple(map(_dual, found, moved))
        return _dual(found, moved[0])

    return both


class Refused(Function):
    """A tensor as it is, but by which there is no derivative. Only where one is asked for does
    PyTorch come by here."""

    @staticmethod
    def forward(ctx: Any, problem: str, tensor: Tensor) -> Tensor:
        ctx.problem = problem
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        raise UnsupportedError(ctx.problem)


def _apply(function: type[Function]) -> Callable[..., Any]:
    """`function.apply` for one level of what torch.func transforms, as the dispatcher comes by for
    each; `function.apply` itself begins again with all of them."""
    once: Any = super(Function, function)
    return once.apply


def _dual(primal: Tensor, tangent: Tensor) -> Tensor:
    return forward_ad.make_dual(primal, tangent, level=0)
