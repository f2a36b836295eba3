"""Generated modules for SciPy's optimisers, whose variable is one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from derivatrix.runtime.adapters.scipy_inputs import Inputs, Part, Point
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import interface_of

Array = np.ndarray


class Objective:
    """A generated module's function of a flat vector x, made by `derivatrix.scipy.objective`.

    `pack` and `unpack` convert the free inputs to x and back. A structured input has a
    parametrisation, so that any x is a point. A scalar function has `fun`, `jac`, `hess`, `hessp`;
    an array function `residual`, `jac` (a matrix), `jac_operator`, of several outputs one after the
    other. Results are float64.
    """

    def __init__(
        self,
        module: ModuleType,
        wrt: Sequence[str] | None,
        fixed: Mapping[str, Any],
        weighted: Callable[[], ModuleType] | None = None,
    ) -> None:
        """weighted: makes a module of Σ wᵢ fᵢ, with the weights w of each output as its last
        inputs, which `hess` of an array function f needs."""
        self.module = module
        self._interface = interface_of(module)
        self.name = self._interface.name
        self._inputs = Inputs(self._interface, wrt, fixed)
        self._weighted = weighted
        self._evaluation: tuple[Array, float, dict[str, Array]] | None = None

    def __repr__(self) -> str:
        names = ", ".join(self._inputs.fixed)
        suffix = f", with {names} given" if names else ""
        return f"<objective {self.name} of {', '.join(self._inputs.names)}{suffix}>"

    def pack(self, values: Any = None, /, **named: Any) -> Array:
        """Return the vector of the free inputs' arrays: by name, or a mapping from names, a tuple
        in their order, or the array of a single free input. Raises ShapeError, and DeclarationError
        for an array without its input's structure."""
        return self._inputs.pack(values, named)

    def unpack(self, x: Any) -> Any:
        """Return the free inputs' arrays at a vector, as a named tuple."""
        return self._inputs.unpack(x)

    def fun(self, x: Any) -> float:
        """Return the value of a scalar function; `jac` at the same vector reuses its gradient."""
        return self._evaluate(self._scalar_point("fun", x))[1]

    def residual(self, x: Any) -> Array:
        """Return the value of an array function, flat; several outputs, one after the other."""
        point = self._array_point("residual", x)
        parts = self._call_by_output("value", *self._inputs.values(point))
        return _stacked([np.array(part[""]).reshape(-1) for part in parts])

    def jac(self, x: Any) -> Array:
        """Return the gradient of a scalar function, or the Jacobian matrix of an array function,
        with a row for each entry of `residual`."""
        if self._interface.is_scalar:
            point = self._inputs.point(x)
            return point.pullback(self._evaluate(point)[2])
        point = self._array_point("jac", x)
        rows = [
            np.concatenate(
                [_matrix(point, part, jacobians[part.entry.name]) for part in point.parts], axis=1
            )
            for jacobians in self._call_by_output("jacobian", *self._inputs.values(point))
        ]
        return _stacked(rows)

    def jac_operator(self, x: Any) -> LinearOperator:
        """Return the Jacobian of an array function as an operator, whose products are the module's
        `jvp` and `vjp`."""
        # a copy: the operator outlives this call, and the caller may change x
        point = self._array_point("jac_operator", np.array(x))
        values = self._inputs.values(point)
        shapes = self._inputs.value_shapes(point)

        def product(vector: Array) -> Array:
            tangents = self._inputs.tangents(point, vector.reshape(-1))
            parts = self._call_by_output("jvp", *values, *tangents)
            return _stacked([np.asarray(part[""]).reshape(-1) for part in parts])

        def transposed_product(vector: Array) -> Array:
            return point.pullback(self._call("vjp", *values, *_split(vector, shapes)))

        shape = sum(map(prod, shapes)), len(point.vector)
        return LinearOperator(shape, product, transposed_product, dtype=np.float64)

    def hess(self, x: Any, v: Any = None) -> Array:
        """Return the Hessian of a scalar function, times the number v if given; of an array
        function f the Hessian of Σ vᵢ fᵢ, as SciPy's constraints need it."""
        if not self._interface.is_scalar:
            return self._weighted_hessian(x, v)
        point = self._inputs.point(x)
        blocks = self._call("hessian", *self._inputs.values(point))
        hessian = np.block(
            [
                [
                    _block(
                        point.vector, row, column, blocks[f"{row.entry.name}, {column.entry.name}"]
                    )
                    for column in point.parts
                ]
                for row in point.parts
            ]
        )
        # each parametrisation has its own parameters: its curvature is in a diagonal block
        for part, gradient in self._curved_parts(point):
            basis = np.eye(prod(part.free)).reshape(-1, *part.free)
            curvature = part.map.curvature(part.of(point.vector), basis, gradient)
            hessian[part.place, part.place] += curvature.reshape(len(basis), -1)
        return hessian if v is None else hessian * np.asarray(v, np.float64).reshape(())

    def hessp(self, x: Any, p: Any) -> Array:
        """Return the product of the Hessian of a scalar function at x with a vector p."""
        point, direction = self._scalar_point("hessp", x), self._inputs.point(p).vector
        tangents = self._inputs.tangents(point, direction)
        product = point.pullback(self._call("hvp", *self._inputs.values(point), *tangents))
        for part, gradient in self._curved_parts(point):
            curvature = part.map.curvature(part.of(point.vector), part.of(direction), gradient)
            product[part.place] += curvature.reshape(-1)
        return product

    def _call(self, kind: str, *arguments: Array) -> dict[str, Any]:
        """Call a function of the module with a single result for all outputs, and return its arrays
        by key. Raises UnsupportedError if the module was built without it."""
        return self._call_by_output(kind, *arguments)[0]

    def _call_by_output(self, kind: str, *arguments: Array) -> list[dict[str, Any]]:
        """Call a function of the module, and return its arrays by key for each output."""
        self._interface.require(kind)
        values = self._interface.grouped(kind, arguments)
        return self._interface.by_output(kind, getattr(self.module, kind)(*values))

    def _scalar_point(self, method: str, x: Any) -> Point:
        if not self._interface.is_scalar:
            result = "an array, one number a sample" if self._interface.has_gradient else "an array"
            if self._interface.output_names:
                result = ", ".join(self._interface.output_names)
            raise UnsupportedError(
                f"{self.name}: {method} is of scalar functions, and this one returns {result}; use "
                "residual, or declare the sum of its entries"
            )
        return self._inputs.point(x)

    def _array_point(self, method: str, x: Any) -> Point:
        if self._interface.is_scalar:
            raise UnsupportedError(
                f"{self.name}: {method} is of functions that return arrays, and this one is "
                "scalar; use fun"
            )
        return self._inputs.point(x)

    def _evaluate(self, point: Point) -> tuple[Array, float, dict[str, Array]]:
        """Return the vector with the value and the gradients there, which are computed once for
        successive calls at the same vector."""
        evaluation = self._evaluation
        if evaluation is None or not np.array_equal(evaluation[0], point.vector):
            gradients = self._call("value_and_gradient", *self._inputs.values(point))
            value = float(gradients.pop(""))
            # a copy: the caller may change its vector in place
            evaluation = self._evaluation = point.vector.copy(), value, gradients
        return evaluation

    def _curved_parts(self, point: Point) -> list[tuple[Part, Array]]:
        """List the parts whose parametrisation has a second derivative, with their gradients."""
        curved = [part for part in point.parts if not part.map.linear]
        gradients = self._evaluate(point)[2] if curved else {}
        return [(part, gradients[part.entry.name]) for part in curved]

    def _weighted_hessian(self, x: Any, v: Any) -> Array:
        if self._weighted is None or v is None or self._interface.batched:
            raise UnsupportedError(
                f"{self.name}: hess of an array function needs weights v and second derivatives, "
                "which its module does not have: make the objective of the declared function, not "
                "of its module, without batch; or leave it to SciPy with hess=BFGS() or '2-point'"
            )
        module = self._weighted()
        point = self._inputs.point(x)
        weights = _split(self._inputs.numbers("v", v), self._inputs.value_shapes(point))
        names = [entry["name"] for entry in module.INPUTS[-len(weights) :]]
        fixed = {**self._inputs.fixed, **dict(zip(names, weights, strict=True))}
        weighted = Objective(module, self._inputs.names, fixed)
        # fixes its sizes, and the centre of orthogonal matrices, so that its vectors are the same
        weighted.pack(self.unpack(np.zeros_like(point.vector)))
        return weighted.hess(point.vector)


def _stacked(rows: list[Array]) -> Array:
    """Stack the rows of all outputs."""
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _split(vector: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Split a vector with a number for each entry of `residual` into arrays of the outputs."""
    vector = vector.reshape(sum(map(prod, shapes)))
    ends = [*accumulate(map(prod, shapes))]
    pairs = zip(np.split(vector, ends[:-1]), shapes, strict=True)
    return [part.reshape(shape) for part, shape in pairs]


def _matrix(point: Point, part: Part, jacobian: Any) -> Array:
    """Convert a Jacobian by an input to a matrix with a column for each number of the vector, block
    diagonal if the input has batch axes."""
    array, free = np.asarray(jacobian), part.of(point.vector)
    rank = array.ndim - len(part.entry.shape)
    outer, core = array.shape[:rank], array.shape[rank:]
    if not part.entry.batched:
        return part.map.pullback(free, array).reshape(prod(outer), prod(part.free))
    axes = len(part.shape) - len(core)
    samples, rows = prod(outer[:axes]), prod(outer[axes:])
    by_sample = array.reshape(samples, rows, *core).swapaxes(0, 1)
    free = free.reshape(samples, *free.shape[axes:])
    blocks = part.map.pullback(free, by_sample).reshape(rows, samples, -1)
    matrix = np.zeros((rows, samples, samples, blocks.shape[-1]))
    matrix[:, np.arange(samples), np.arange(samples)] = blocks
    return matrix.swapaxes(0, 1).reshape(samples * rows, -1)


def _block(vector: Array, row: Part, column: Part, block: Any) -> Array:
    """Pull a block of the Hessian back by both parametrisations, without their curvature."""
    by_column = column.map.pullback(column.of(vector), np.asarray(block))
    by_column = np.moveaxis(by_column.reshape(*row.shape, prod(column.free)), -1, 0)
    by_both = row.map.pullback(row.of(vector), by_column)
    return by_both.reshape(prod(column.free), prod(row.free)).T
