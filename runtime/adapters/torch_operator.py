"""Operators of PyTorch's dispatcher with derivatives in reverse and forward mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from derivatrix.runtime.adapters.torch_vmap import vmap
from derivatrix.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_family import Family


NUMBERS = {
    *(bool, int, float),
    *(kind for kind in np.sctypeDict.values() if issubclass(kind, np.integer | np.floating)),
}
"""Types of numbers, for a look-up: `isinstance` of a tensor takes a tenth of the time of a call."""
LIBRARY = torch.library.Library("derivatrix", "FRAGMENT")


class Dispatched:
    """A kernel as the operator `derivatrix::NAME` of PyTorch's dispatcher, `overload`.

    `torch.library.custom_op` makes such operators, too, but without forward mode or derivatives
    under torch.func, and its wrappers double the time of a call."""

    def __init__(self, name: str, kernel: Kernel, names: list[str], family: Family) -> None:
        self.kernel, self.family = kernel, family
        results = ", ".join(["Tensor"] * kernel.count)
        arguments = ", ".join(f"Tensor {parameter}" for parameter in names)
        schema = f"({arguments}) -> {results if kernel.count == 1 else f'({results})'}"
        LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
        self.overload: Any = getattr(torch.ops.derivatrix, name).default
        with_derivatives = differentiable(self.overload, kernel, family.rules)
        LIBRARY.impl(name, kernel.__call__, "CompositeExplicitAutograd")
        LIBRARY.impl(name, with_derivatives, "Autograd")
        torch.library.register_fake(f"derivatrix::{name}", kernel.fake, lib=LIBRARY)
        # autocast computes it in float32, as it does PyTorch's own linear algebra
        torch.library.register_autocast(
            f"derivatrix::{name}", kernel.device, torch.float32, lib=LIBRARY
        )
        torch.library.register_vmap(f"derivatrix::{name}", partial(vmap, self), lib=LIBRARY)


class Operator(Dispatched, CustomOpDef):
    """The value of a generated module; see `derivatrix.torch.operator`.

    It derives from CustomOpDef so that PyTorch treats it as an operator; nothing can be registered
    with it."""

    def __init__(self, name: str, kernel: Kernel, names: list[str], family: Family) -> None:
        super().__init__(name, kernel, names, family)
        self._namespace, self._name, self._opoverload = "derivatrix", name, self.overload
        self._schema = dict(zip(kernel.parameters, names, strict=True))

    def __call__(
        self, /, *inputs: Tensor | float, out: Tensor | None = None, **named: Tensor | float
    ) -> Tensor:
        if out is None and not named:  # a loop: `any` of a generator takes 0.4 µs more
            for value in inputs:
                if type(value) in NUMBERS:
                    break
            else:
                return self.overload(*inputs)
        tensors = [*map(self._tensor, inputs)]
        by_name = {self._schema.get(name, name): self._tensor(named[name]) for name in named}
        if out is None:
            return self.overload(*tensors, **by_name)
        return self.family.fill(tensors, by_name, out)

    def _tensor(self, value: Any) -> Tensor:
        """Convert a number to a tensor of the type that modules choose; return others as they
        are."""
        if type(value) not in NUMBERS:
            return value
        dtype = torch.float32 if isinstance(value, np.float32) else torch.float64
        return torch.tensor(float(value), dtype=dtype, device=self.kernel.device)

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        return self.family.reduced()


class TupleOperator(Operator):
    """The value of a generated module with several outputs: a named tuple of tensors."""

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        result = super().__call__(*inputs, out=out, **named)
        if out is not None:
            return out
        tensors = result if self.kernel.count > 1 else (result,)
        return self.kernel.interface.module.Value(*tensors)


def differentiable(overload: Any, kernel: Kernel, rules: Rules) -> Callable[..., Any]:
    """Make the function that the dispatcher calls for tensors that may need derivatives."""
    backward_rule, forward_rule = rules.backward(kernel.kind), rules.forward(kernel.kind)
    count, problem = rules.missing(kernel.kind)
    # cotangents and tangents have the axes of the value's expanded arguments
    may_broadcast = kernel.kind == "value" and len(kernel.sample_ranks) > 1

    class ReverseMode(Function):
        """It has no `jvp`: there, other levels of torch.func would be lost."""

        @staticmethod
        def forward(ctx: Any, duals: Tensors, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*duals)
            # `vjp` takes a cotangent of each output: PyTorch makes zeros of None
            ctx.set_materialize_grads(kernel.is_by_output)
            if not torch._C._are_functorch_transforms_active():
                with torch._C._AutoDispatchBelowAutograd():
                    return overload(*tensors)
            # PyTorch has disabled derivatives here, for the outer levels of torch.func as well
            below = torch._C._AutoDispatchBelowAutograd
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), below():
                return overload(*tensors)

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
            needs_grad = ctx.needs_input_grad[1:]
            if all(cotangent is None for cotangent in cotangents):
                return None, *(None for _ in needs_grad)
            return None, *backward_rule(ctx.saved_tensors, needs_grad, cotangents)

    apply = _single_level_apply(ReverseMode)

    def reverse(tensors: Tensors, duals: Tensors) -> Any:
        if not torch.is_grad_enabled() or not torch._C._any_requires_grad(*tensors):
            with torch._C._AutoDispatchBelowAutograd():
                return overload(*tensors)
        if not torch._C._are_functorch_transforms_active():
            return record(tensors, duals)
        with enable_single_level_autograd_function():
            return record(tensors, duals)

    def record(tensors: Tensors, duals: Tensors) -> Any:
        refuse = _single_level_apply(NotDifferentiable)
        return apply(duals, *(refuse(problem, t) for t in tensors[:count]), *tensors[count:])

    def forward_and_reverse(*tensors: Tensor) -> Any:
        if may_broadcast:
            tensors = kernel.broadcast(tensors)
        # where PyTorch compiles torch.func, the level of forward_ad is not known
        if forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active():
            return reverse(tensors, tensors)
        parts = [forward_ad.unpack_dual(tensor, level=0) for tensor in tensors]
        tangents = [part.tangent for part in parts]
        if all(tangent is None for tangent in tangents):
            return reverse(tensors, tensors)
        primals = tuple(part.primal for part in parts)
        results, result_tangents = reverse(primals, tensors), forward_rule(primals, tangents)
        if isinstance(results, tuple):
            return tuple(map(_dual, results, result_tangents))
        return _dual(results, result_tangents[0])

    return forward_and_reverse


class NotDifferentiable(Function):
    """The identity, whose derivative raises UnsupportedError if PyTorch asks for it."""

    @staticmethod
    def forward(ctx: Any, problem: str, tensor: Tensor) -> Tensor:
        ctx.problem = problem
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        raise UnsupportedError(ctx.problem)


def _single_level_apply(function: type[Function]) -> Callable[..., Any]:
    """Return `function.apply` for one level of torch.func's transformations. The dispatcher calls
    an operator at each level; `function.apply` itself would start again with all of them."""
    base: Any = super(Function, function)
    return base.apply


def _dual(primal: Tensor, tangent: Tensor) -> Tensor:
    return forward_ad.make_dual(primal, tangent, level=0)
