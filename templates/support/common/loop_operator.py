"""Jacobians and Hessians of loops over time as linear maps: each product runs the loop."""

# mypy: allow-untyped-defs

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .linear_map import _Operator


class _LoopDerivatives(NamedTuple):
    """The public functions that multiply by all blocks of a Jacobian or Hessian, at a point.

    forward, backward: jvp and vjp, or hvp and None, as a Hessian is symmetric. arguments: the
    point. places: input that is differentiated by -> its position in `arguments`. outputs: the
    names of several outputs."""

    forward: Any
    backward: Any
    arguments: tuple
    places: dict
    outputs: tuple

    def multiply(self, row, column, tangent):
        """Multiply the block of an output, or of an input by which a Hessian has a row, and of the
        input `column` by a tangent of this input."""
        tangents = [
            tangent if name == column else np.zeros_like(self.arguments[place])
            for name, place in self.places.items()
        ]
        names = self.outputs if self.backward else self.places
        return _part(self.forward(*self.arguments, *tangents), names, row)

    def multiply_transposed(self, row, column, cotangent):
        """Multiply the transposed block by a cotangent of the output."""
        if self.backward is None:
            return self.multiply(column, row, cotangent)
        if self.outputs:
            cotangent = tuple(cotangent if name == row else None for name in self.outputs)
        return _part(self.backward(*self.arguments, cotangent), self.places, column)


def _part(result, names, name):
    """Return one part of what a function with a result for each name returns."""
    return result[[*names].index(name)] if isinstance(result, tuple) else result


class _LoopOperator(_Operator):
    """A linear map that runs loops for each product, and has an array only where it is needed.

    block: the names of its row and column. derivatives: the fields of `_LoopDerivatives`."""

    def __init__(self, name, structure, shapes, batched, projected, block, derivatives, dtype):
        super().__init__(name, structure, shapes, batched, projected, (), (), (), dtype)
        self._derivatives = _LoopDerivatives(*derivatives)
        self._block, self._is_transposed = block, False

    def _exchange_sides(self):
        super()._exchange_sides()
        self._is_transposed = not self._is_transposed
        self.__dict__.pop("_explicit", None)

    def _product(self, array, columns):
        if columns:
            products = [self._product(column, 0) for column in array.T]
            return np.stack(products, axis=1)
        if not all(self.shape):
            return np.zeros(self.shape[0], array.dtype)
        derivatives = self._derivatives
        multiply = derivatives.multiply_transposed if self._is_transposed else derivatives.multiply
        row, column = self._block
        return multiply(row, column, array.reshape(self._input_shape)).reshape(-1)

    @cached_property
    def _explicit(self):
        """An operator with the entries of this map as its array. A product with the unit tangent of
        all samples gives the entries of a column, as samples do not mix."""
        axes = self._input_shape[self._batched :]
        size = math.prod(axes)
        units = np.eye(size, dtype=self.dtype).reshape(size, *axes)
        tangents = [np.broadcast_to(unit, self._input_shape).reshape(-1) for unit in units]
        columns = [self._product(tangent, 0) for tangent in tangents]
        array = np.array(columns, self.dtype).reshape(size, *self._output_shape)
        rank = len(self._output_shape)
        outputs, inputs = tuple(range(rank)), tuple(range(rank, rank + len(axes)))
        array = np.moveaxis(array, 0, -1).reshape(*self._output_shape, *axes)
        shared = outputs[: self._batched]
        term = (1.0, array.shape, (outputs,), (shared + inputs,), ((0, outputs + inputs),))
        shapes = self._output_shape, self._input_shape
        arguments = (self.name, self.structure, shapes, self._batched, self._projected)
        explicit = _Operator(*arguments, (term,), (array,), (), self.dtype)
        explicit.output_shape, explicit.input_shape = self.output_shape, self.input_shape
        return explicit

    def todense(self):
        return self._explicit.todense()

    def tosparse(self):
        return self._explicit.tosparse()

    def diagonal(self):
        return self._explicit.diagonal()

    def _solve(self, array, columns):
        return self._explicit._solve(array, columns)
