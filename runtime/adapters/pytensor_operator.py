"""PyTensor's `Op`s of a generated module: its value, and the derivatives that their gradients are
made of."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type, grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify, numba_njit
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.rewriting.basic import register_specialize
from pytensor.tensor.type import TensorType

from derivatrix.runtime.adapters.arguments import in_order, number
from derivatrix.runtime.adapters.sizes import float_type
from derivatrix.runtime.adapters.structures import project
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.templates.support.common.signature import indented, tuple_text

FLOATS = ("float32", "float64")


class GeneratedOp(Op):
    """A public function of a generated module.

    kind: "value" and, of a scalar function, "value_and_gradient" and "hvp"; of an array function
    "vjp" and "jvp". It takes the function's inputs, then the cotangent, or a tangent for each input
    that the module differentiates by.
    """

    __props__ = ("module", "kind")

    def __init__(self, module: ModuleType, kind: str) -> None:
        self.module, self.kind = module, kind
        self.interface = ModuleInterface(module)
        self.interface.require(kind)
        self.inputs = self.interface.inputs
        self.wrt = [self.inputs.index(entry) for entry in self.interface.wrt]
        self.is_scalar = not self.interface.output and not self.interface.batched

    def __reduce__(self) -> Any:
        return GeneratedOp, (self.module, self.kind)

    def __str__(self) -> str:
        return f"{self.interface.name}.{self.kind}"

    def __call__(self, /, *inputs: Any, **options: Any) -> Any:
        """The variable of the result, of inputs in their order or by name. Structured ones are
        replaced by the nearest of their structure."""
        expected = self.interface.arguments(self.kind)
        named = {name: options.pop(name) for name in expected if name in options}
        if named:
            inputs = in_order(str(self), expected, inputs, named)
        node = self.make_node(*inputs)  # which says what does not fit
        nearest = [
            project(entry.structure, variable, _lower, _upper)
            for entry, variable in zip(self.inputs, node.inputs, strict=False)
        ]
        return super().__call__(*nearest, *node.inputs[len(nearest) :], **options)

    def make_node(self, *inputs: Any) -> Apply:
        expected = self.interface.arguments(self.kind)
        if len(inputs) != len(expected):
            raise ShapeError(f"{self}: {len(inputs)} arguments; expected {len(expected)}")
        given = [self._variable(name, each) for name, each in zip(expected, inputs, strict=True)]
        for (name, entry), variable in zip(expected.items(), given, strict=True):
            if variable.ndim != entry.rank:
                raise ShapeError(
                    f"{self}: argument {name} has {variable.ndim} axes; expected {entry.rank}"
                )
        real = float_type(given)
        given = [each if each.dtype == real else each.astype(real) for each in given]
        own = [given[place].type for place in self.wrt]
        value = TensorType(real, (None,) * (len(self.interface.output) + self.interface.batched))
        kinds = {
            "value": [value],
            "jvp": [value],
            "value_and_gradient": [value, *own],
            "vjp": own,
            "hvp": own,
        }
        return Apply(self, given, [kind() for kind in kinds[self.kind]])

    def _variable(self, name: str, value: Any) -> Any:
        try:
            variable = pt.as_tensor_variable(number(value))
        except (TypeError, NotImplementedError) as error:
            raise UnsupportedError(
                f"{self}: argument {name} is {type(value).__name__}; expected a tensor variable"
            ) from error
        if variable.dtype not in FLOATS:
            raise UnsupportedError(
                f"{self}: argument {name} is a tensor of {variable.dtype}; expected float32 or "
                f'float64: convert it, as with {name}.astype("float64")'
            )
        return variable

    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        found = getattr(self.module, self.kind)(*inputs)
        if self.kind == "value_and_gradient":
            value, gradient = found
            found = (value, *_tuple(gradient))
        results = zip(_tuple(found), node.outputs, output_storage, strict=True)
        for result, output, storage in results:
            storage[0] = np.asarray(result, dtype=output.dtype)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Cotangents of the inputs, from those of the outputs."""
        count = len(self.inputs)
        point, more = inputs[:count], inputs[count:]
        rest: list[Any] = []
        if self.kind == "value" and self.is_scalar:
            _, *gradients = self._derived("value_and_gradient", point)
            own = [cotangents[0] * each for each in gradients]
        elif self.kind == "value":
            own = self._derived("vjp", point, _like(cotangents, outputs))
        elif self.kind == "value_and_gradient":
            value, *along = _like(cotangents, outputs)
            own = [value * each for each in outputs[1:]]
            if any(_is_given(each) for each in cotangents[1:]):
                second = self._derived("hvp", point, along)
                own = [first + each for first, each in zip(own, second, strict=True)]
        else:
            turned = {"vjp": "jvp", "jvp": "vjp", "hvp": "hvp"}[self.kind]
            rest = self._derived(turned, point, _like(cotangents, outputs))
            own = [self._missing(place, inputs[place]) for place in self.wrt]
        by_place = dict(zip(self.wrt, own, strict=True))
        assert len(rest) == len(more)
        return [
            by_place[place] if place in by_place else self._missing(place, point[place])
            for place in range(count)
        ] + rest

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Any]:
        """Tangents of the outputs, from those of the inputs."""
        count = len(self.inputs)
        point, linear = inputs[:count], self.kind in ("vjp", "jvp", "hvp")
        if not any(_is_given(each) for each in tangents):
            return [disconnected_type() for _ in self.make_node(*inputs).outputs]
        for place, tangent in enumerate(tangents):
            without = place < count if linear else place not in self.wrt
            if without and _is_given(tangent) and not _is_zero(tangent):
                raise UnsupportedError(f"{self}: {self._reason(place)}")
        if linear:
            return self._derived(self.kind, point, _like(tangents[count:], inputs[count:]))
        along = [tangents[place] for place in self.wrt]
        along = _like(along, [inputs[place] for place in self.wrt])
        if not self.is_scalar:
            return self._derived("jvp", point, along)
        _, *gradients = self._derived("value_and_gradient", point)
        value = sum((g * t).sum() for g, t in zip(gradients, along, strict=True))
        return [value] if self.kind == "value" else [value, *self._derived("hvp", point, along)]

    def L_op(self, inputs: Any, outputs: Any, output_grads: Any) -> list[Any]:
        """`pullback`, by its name before PyTensor 3."""
        return self.pullback(inputs, outputs, output_grads)

    def R_op(self, inputs: Any, eval_points: Any) -> list[Any]:
        """`pushforward`, as PyTensor before 3 asks for it."""
        found = self.pushforward(inputs, None, eval_points)
        return [each if _is_given(each) else None for each in found]

    def _derived(self, kind: str, point: Any, more: Any = ()) -> list[Any]:
        return list(GeneratedOp(self.module, kind).make_node(*point, *more).outputs)

    def _missing(self, place: int, variable: Any) -> Any:
        return grad_not_implemented(self, place, variable, self._reason(place))

    def _reason(self, place: int) -> str:
        if place not in self.wrt:
            return f"there is no derivative by {self.inputs[place].name}; declare it in wrt"
        order = "third" if self.is_scalar else "second"
        return f"a module has no {order} derivatives of a function such as {self.interface.name}"


@register_specialize
@node_rewriter([GeneratedOp])
def value_with_gradient(fgraph: Any, node: Any) -> Any:
    """Take a value from the function that computes it with a gradient, where there is one of the
    same inputs."""
    if node.op.kind != "value" or not node.op.is_scalar:
        return None
    both = GeneratedOp(node.op.module, "value_and_gradient")
    for client, _ in fgraph.clients[node.inputs[0]]:
        if client.op == both and client.inputs == node.inputs:
            return [client.outputs[0]]
    return None


@numba_funcify.register(GeneratedOp)
def numba_funcify_generated(op: GeneratedOp, node: Any, **options: Any) -> Any:
    """A compiled function that makes the arrays of results and calls the module's kernel."""
    if op.interface.target != "cpu":
        return generate_fallback_impl(op, node, **options)
    kernel = getattr(op.module, f"{op.kind}_kernel")
    signature, *_ = op.module.generated.kernels[kernel]
    shapes = [tuple_text(shape) for shape in signature.outputs.values()]
    results = ", ".join(signature.outputs)
    lines = [
        f"def {op.kind}({', '.join(signature.inputs)}):",
        *(
            f"    {name} = {f'_ascontiguousarray({name})' if shape else f'{name}.item()'}"
            for name, shape in signature.inputs.items()
        ),
        *indented(signature.size_lines(shapes)),
        *(
            f"    {name} = _empty({shape}, _real)"
            for name, shape in zip(signature.outputs, shapes, strict=True)
        ),
        f"    _kernel({', '.join(signature.arrays)})",
        f"    return {results}",
    ]
    scope = {
        "_ascontiguousarray": np.ascontiguousarray,
        "_empty": np.empty,
        "_real": np.dtype(node.inputs[0].dtype),
        "_kernel": kernel,
    }
    exec("\n".join(lines), scope)
    return numba_njit(scope[op.kind])


def _lower(matrix: Any) -> Any:
    """The lower triangle; `pt.tril` multiplies by zero, and keeps nan above it."""
    return pt.switch(pt.tri(*matrix.shape[-2:], dtype="bool"), matrix, 0)


def _upper(matrix: Any) -> Any:
    """The upper triangle."""
    return pt.switch(pt.tri(*matrix.shape[-2:], k=-1, dtype="bool"), 0, matrix)


def _is_given(tangent: Any) -> bool:
    return tangent is not None and not isinstance(tangent.type, DisconnectedType)


def _is_zero(tangent: Any) -> bool:
    """Whether a tangent is zeros: PyTensor has such for what it does not differentiate by."""
    try:
        return bool(get_underlying_scalar_constant_value(tangent) == 0)
    except NotScalarConstantError:
        return False


def _like(given: Any, variables: Any) -> list[Any]:
    """Tangents or cotangents of variables, zeros where there are none."""
    return [
        each.astype(variable.dtype) if _is_given(each) else pt.zeros_like(variable)
        for each, variable in zip(given, variables, strict=True)
    ]


def _tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
