"""PyTensor's `Op`s of a generated module: its value, and the derivatives for its gradients."""

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
from derivatrix.runtime.adapters.contractions import tangential
from derivatrix.runtime.adapters.second import has_second, second_of, without_second
from derivatrix.runtime.adapters.sizes import float_type
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import interface_of

FLOATS = ("float32", "float64")


class GeneratedOp(Op):
    """A public function of a generated module.

    kind: "value" and, for a scalar function, "value_and_gradient" and "hvp", for an array function
    "vjp" and "jvp". Arguments are the inputs, then the cotangent, or a tangent of each input in
    `wrt`.
    """

    __props__ = ("module", "kind")

    def __init__(self, module: ModuleType, kind: str) -> None:
        self.module, self.kind = module, kind
        self.interface = interface_of(module)
        self.interface.require(kind)
        self.inputs = self.interface.inputs
        self.wrt = [self.inputs.index(entry) for entry in self.interface.wrt]
        self.is_scalar = self.interface.is_scalar
        # positions of the inputs by which "vjp" and "jvp" have derivatives
        self.curved: list[int] = []
        if self.interface.directions:
            self.curved = [self.inputs.index(entry) for entry in self.interface.directions]
        elif not self.interface.has_gradient and has_second(self.interface):
            self.curved = self.wrt

    def __reduce__(self) -> Any:
        return GeneratedOp, (self.module, self.kind)

    def __str__(self) -> str:
        return f"{self.interface.name}.{self.kind}"

    def __call__(self, /, *inputs: Any, **options: Any) -> Any:
        """Return the variable of the result, or a named tuple of those of several outputs, for
        inputs by position or name. Several batch axes, or none, become one before the Op, and again
        several after it."""
        expected = self.interface.arguments(self.kind)
        named = {name: options.pop(name) for name in expected if name in options}
        if named:
            inputs = in_order(str(self), expected, inputs, named)
        variables, axes = [*inputs], None
        if self.interface.batched and len(inputs) == len(expected):
            variables = [self._variable(name, x) for name, x in zip(expected, inputs, strict=True)]
            ranks = [len(entry.shape) if entry.batched else None for entry in expected.values()]
            axes = _several_axes(variables, ranks)
            if axes is not None:
                variables = [
                    x if rank is None else _merged(x, axes, rank)
                    for x, rank in zip(variables, ranks, strict=True)
                ]
        returns_list = options.pop("return_list", False)
        results: Any = super().__call__(*variables, return_list=True, **options)
        if axes is not None:
            results = [_with_axes(result, axes) for result in results]
        return results if returns_list else self.interface.packed_value(results)

    def make_node(self, *inputs: Any) -> Apply:
        expected = self.interface.arguments(self.kind)
        if len(inputs) != len(expected):
            raise ShapeError(f"{self}: {len(inputs)} arguments; expected {len(expected)}")
        variables = [self._variable(name, x) for name, x in zip(expected, inputs, strict=True)]
        for (name, entry), variable in zip(expected.items(), variables, strict=True):
            if variable.ndim != entry.rank:
                raise ShapeError(
                    f"{self}: argument {name} has {variable.ndim} axes; expected {entry.rank}"
                )
        real = float_type(variables)
        variables = [v if v.dtype == real else v.astype(real) for v in variables]
        gradients = [variables[position].type for position in self.wrt]
        values = [
            TensorType(real, (None,) * (len(interface.output) + interface.batched))
            for interface in self.interface.outputs
        ]
        types = {
            "value": values,
            "jvp": values,
            "value_and_gradient": [*values, *gradients],
            "vjp": gradients,
            "hvp": gradients,
        }
        return Apply(self, variables, [make_type() for make_type in types[self.kind]])

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
        entries = self.interface.arguments(self.kind).values()
        lengths = {x.shape[0] for e, x in zip(entries, inputs, strict=True) if e.batched}
        if len(lengths) > 1:
            raise ShapeError(f"{self}: the lengths of the batch axes differ: {sorted(lengths)}")
        result = getattr(self.module, self.kind)(*self.interface.grouped(self.kind, inputs))
        parts = self.interface.by_output(self.kind, result)
        arrays = [array for part in parts for array in part.values()]
        for array, output, storage in zip(arrays, node.outputs, output_storage, strict=True):
            storage[0] = np.asarray(array, dtype=output.dtype)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the cotangents of all arguments, from those of the outputs."""
        count = len(self.inputs)
        point = inputs[:count]
        by_wrt: list[Any] = []
        by_linear: list[Any] = []
        positions = self.wrt
        if self.kind == "value" and self.is_scalar:
            _, *gradients = self._outputs("value_and_gradient", point)
            by_wrt = [cotangents[0] * gradient for gradient in gradients]
        elif self.kind == "value":
            by_wrt = self._outputs("vjp", point, _with_zeros(cotangents, outputs))
        elif self.kind == "value_and_gradient":
            value, *directions = _with_zeros(cotangents, outputs)
            by_wrt = [value * gradient for gradient in outputs[1:]]
            if any(map(_is_connected, cotangents[1:])):
                products = self._outputs("hvp", point, directions)
                by_wrt = [term + product for term, product in zip(by_wrt, products, strict=True)]
        else:
            transposed = {"vjp": "jvp", "jvp": "vjp", "hvp": "hvp"}[self.kind]
            linear, cotangents = inputs[count:], _with_zeros(cotangents, outputs)
            by_linear = self._outputs(transposed, point, cotangents)
            positions = self.curved
            if positions:
                pair = (linear, cotangents) if self.kind == "jvp" else (cotangents, linear)
                by_wrt = self._second_outputs("vjp", point, *pair)
        by_input = [
            grad_not_implemented(self, position, variable, self._reason(position))
            for position, variable in enumerate(point)
        ]
        for position, cotangent in zip(positions, by_wrt, strict=True):
            by_input[position] = cotangent
        return by_input + by_linear

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Any]:
        """Return the tangents of the outputs, from those of all arguments."""
        count = len(self.inputs)
        point, is_linear = inputs[:count], self.kind in ("vjp", "jvp", "hvp")
        if not any(map(_is_connected, tangents)):
            return [disconnected_type() for _ in self.make_node(*inputs).outputs]
        for position, tangent in enumerate(tangents):
            is_constant = position not in (self.curved if is_linear else self.wrt)
            has_no_rule = is_constant and position < count
            if has_no_rule and _is_connected(tangent) and not _is_zero(tangent):
                raise UnsupportedError(f"{self}: {self._reason(position)}")
        if is_linear:
            linear = inputs[count:]
            results = self._outputs(self.kind, point, _with_zeros(tangents[count:], linear))
            by_inputs = [tangents[position] for position in self.curved]
            if any(map(_is_connected, by_inputs)):
                directions = _with_zeros(by_inputs, [inputs[position] for position in self.curved])
                products = self._second_outputs(self.kind, point, directions, linear)
                results = [term + product for term, product in zip(results, products, strict=True)]
            return results
        wrt = [inputs[position] for position in self.wrt]
        directions = _with_zeros([tangents[position] for position in self.wrt], wrt)
        if not self.is_scalar:
            return self._outputs("jvp", point, directions)
        _, *gradients = self._outputs("value_and_gradient", point)
        value = sum((g * t).sum() for g, t in zip(gradients, directions, strict=True))
        if self.kind == "value":
            return [value]
        return [value, *self._outputs("hvp", point, directions)]

    def L_op(self, inputs: Any, outputs: Any, output_grads: Any) -> list[Any]:
        """Call `pullback`, which has this name before PyTensor 3."""
        return self.pullback(inputs, outputs, output_grads)

    def R_op(self, inputs: Any, eval_points: Any) -> list[Any]:
        """Call `pushforward`, with None for no tangent, as PyTensor before 3 expects."""
        tangents = self.pushforward(inputs, None, eval_points)
        return [tangent if _is_connected(tangent) else None for tangent in tangents]

    def _outputs(self, kind: str, point: Any, linear: Any = ()) -> list[Any]:
        return list(GeneratedOp(self.module, kind).make_node(*point, *linear).outputs)

    def _second_outputs(self, kind: str, point: Any, directions: Any, linear: Any) -> list[Any]:
        """Differentiate a result of "vjp" or "jvp" along directions; in the module with second
        derivatives, along its own directions."""
        interface = self.interface if self.interface.directions else second_of(self.interface)
        inputs = point[: len(interface.inputs) - len(interface.directions)]
        projected = tangential(interface, inputs, directions)
        operator = GeneratedOp(interface.module, kind)
        return list(operator.make_node(*inputs, *projected, *linear).outputs)

    def _reason(self, position: int) -> str:
        """Explain why there is no derivative by an input, and what gives one."""
        if position not in self.wrt:
            return f"there is no derivative by {self.inputs[position].name}; declare it in wrt"
        if self.is_scalar or self.curved:
            return f"{self.interface.name}: there are no third derivatives"
        if self.interface.has_gradient:
            return f"{self.interface.name}: has no second derivatives, as it has a batch axis"
        return without_second(self.interface)


@register_specialize
@node_rewriter([GeneratedOp])
def value_with_gradient(fgraph: Any, node: Any) -> Any:
    """Replace a value by the first output of `value_and_gradient` if the graph has that for the
    same inputs."""
    if node.op.kind != "value" or not node.op.is_scalar:
        return None
    value_and_gradient = GeneratedOp(node.op.module, "value_and_gradient")
    for client, _ in fgraph.clients[node.inputs[0]]:
        if client.op == value_and_gradient and client.inputs == node.inputs:
            return [client.outputs[0]]
    return None


@numba_funcify.register(GeneratedOp)
def numba_funcify_generated(op: GeneratedOp, node: Any, **options: Any) -> Any:
    """Compile a function that allocates the results and calls the module's kernel."""
    if op.interface.target != "cpu":
        return generate_fallback_impl(op, node, **options)
    kernel = getattr(op.module, f"{op.kind}_kernel")
    signature = op.module.generated.data["signatures"][kernel.__name__]
    inputs, results = signature["inputs"], signature["outputs"]
    lines = [
        f"def {op.kind}({', '.join(inputs)}):",
        *(
            f"    {name} = {f'_ascontiguousarray({name})' if shape else f'{name}.item()'}"
            for name, shape in inputs.items()
        ),
        *(f"    {size} = {text}" for size, text in signature["sizes"].items()),
        *(
            f"    {name} = _empty(({''.join(f'{length}, ' for length in shape)}), _real)"
            for name, shape in results.items()
        ),
        f"    _kernel({', '.join([*inputs, *results])})",
        f"    return {', '.join(results)}",
    ]
    scope = {
        "_ascontiguousarray": np.ascontiguousarray,
        "_empty": np.empty,
        "_real": np.dtype(node.inputs[0].dtype),
        "_kernel": kernel,
    }
    exec("\n".join(lines), scope)
    return numba_njit(scope[op.kind])


def _several_axes(variables: Sequence[Any], ranks: Sequence[int | None]) -> Any:
    """Return the lengths of the batch axes, broadcast; None if each variable has one, and none is
    stretched, as only axes that are known to have length 1 are. ranks: the number of axes of a
    sample, None for variables without batch axes."""
    pairs = zip(variables, ranks, strict=True)
    stacks = [(x, x.ndim - rank) for x, rank in pairs if rank is not None]
    counts = [count for _, count in stacks]
    is_one = {x.type.shape[:1] == (1,) for x, _ in stacks}
    if min(counts) < 0 or (set(counts) == {1} and len(is_one) == 1):
        return None
    shapes = [
        [1 if x.type.shape[axis] == 1 else x.shape[axis] for axis in range(count)]
        for x, count in stacks
    ]
    return pt.broadcast_shape(*shapes, arrays_are_shapes=True)


def _merged(variable: Any, axes: Any, rank: int) -> Any:
    """Merge the batch axes of a variable, broadcast to `axes`, into one."""
    core = tuple(variable.shape)[variable.ndim - rank :]
    stretched = pt.broadcast_to(variable, (*axes, *core))
    return pt.reshape(stretched, (pt.prod(pt.stack(axes)) if axes else 1, *core), ndim=1 + rank)


def _with_axes(variable: Any, axes: Any) -> Any:
    """Split the one batch axis of a variable into `axes`."""
    shape = (*axes, *tuple(variable.shape)[1:])
    return pt.reshape(variable, shape, ndim=len(shape))


def _is_connected(tangent: Any) -> bool:
    return tangent is not None and not isinstance(tangent.type, DisconnectedType)


def _is_zero(tangent: Any) -> bool:
    """Return whether a tangent is constant zeros, as PyTensor passes for inputs not in `wrt`."""
    try:
        return bool(get_underlying_scalar_constant_value(tangent) == 0)
    except NotScalarConstantError:
        return False


def _with_zeros(tangents: Any, variables: Any) -> list[Any]:
    """Replace missing tangents or cotangents of variables by zeros."""
    return [
        tangent.astype(variable.dtype) if _is_connected(tangent) else pt.zeros_like(variable)
        for tangent, variable in zip(tangents, variables, strict=True)
    ]
