"""Generated modules for SciPy's optimisers, which know one flat vector of free numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from derivatrix.runtime.adapters.scipy_inputs import Inputs, Part, Point
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

Array = np.ndarray


def objective(module: ModuleType, /, wrt: Sequence[str] | None = None, **fixed: Any) -> Objective:
    """A module's function of some of its inputs, as one of a flat vector for `scipy.optimize`.

    wrt: the names of the free inputs, in the order in which the vector has them; by default those
    that the module differentiates by and that have no value. fixed: the other inputs' values;
    structured ones are replaced by the nearest of their structure.

    Raises DeclarationError for inputs that the module does not have, or that are missing,
    UnsupportedError for those that it does not differentiate by, and ShapeError.
    """
    return Objective(module, wrt, fixed)


class Objective:
    """A generated module's function of a flat vector x, made by `objective`.

    `pack` and `unpack` go from the free inputs to x and back. Inputs with a structure have a free
    parametrisation, so that any x is a point. A scalar function has `fun`, `jac`, `hess`, `hessp`;
    an array function `residual`, `jac` (a matrix), `jac_operator`. All is computed in float64.
    """

    def __init__(
        self,
        module: ModuleType,
        wrt: Sequence[str] | None,
        fixed: Mapping[str, Any],
        weighted: Callable[[], ModuleType] | None = None,
    ) -> None:
        """weighted: makes the module of the sum of an array function's entries times those of one
        more input, its last; for `hess`."""
        self.module = module
        self._interface = ModuleInterface(module)
        self.name = self._interface.name
        self._inputs = Inputs(self._interface, wrt, fixed)
        self._weighted = weighted
        self._seen: tuple[Array, float, dict[str, Array]] | None = None

    def __repr__(self) -> str:
        fixed = f", with {', '.join(self._inputs.fixed)} given" if self._inputs.fixed else ""
        return f"<objective {self.name} of {', '.join(self._inputs.names)}{fixed}>"

    def pack(self, values: Any = None, /, **named: Any) -> Array:
        """The vector of the free inputs' arrays: by name, or a mapping from names, a tuple in their
        order, or, where one input is free, its array. Raises ShapeError, and DeclarationError for
        an array that does not have its input's structure."""
        return self._inputs.pack(values, named)

    def unpack(self, x: Any) -> Any:
        """The free inputs' arrays at a vector, as a named tuple."""
        return self._inputs.unpack(x)

    def fun(self, x: Any) -> float:
        """The value of a scalar function; its gradient is kept for `jac` at the same vector."""
        return self._evaluated(self._scalar("fun", x))[1]

    def residual(self, x: Any) -> Array:
        """The value of an array function, flat."""
        point = self._array("residual", x)
        return np.array(self.module.value(*self._inputs.values(point))).reshape(-1)

    def jac(self, x: Any) -> Array:
        """The gradient of a scalar function; of an array function the matrix of its derivatives,
        with a row for each entry of `residual`."""
        if self._is_scalar:
            point = self._inputs.point(x)
            return point.pullback(self._evaluated(point)[2])
        point = self._array("jac", x)
        found = self._named(self._function("jacobian")(*self._inputs.values(point)))
        columns = [_matrix(point, part, found[part.entry.name]) for part in point.parts]
        return np.concatenate(columns, axis=1)

    def jac_operator(self, x: Any) -> LinearOperator:
        """The same matrix of an array function as an operator, whose products are the module's
        `jvp` and `vjp`."""
        point = self._array("jac_operator", np.array(x))
        values = self._inputs.values(point)
        rows = self._interface.shape("value", "", point.sizes)

        def product(vector: Array) -> Array:
            tangents = self._inputs.tangents(point, vector.reshape(-1))
            return np.asarray(self._function("jvp")(*values, *tangents)).reshape(-1)

        def transposed(vector: Array) -> Array:
            found = self._function("vjp")(*values, vector.reshape(rows))
            return point.pullback(self._named(found))

        shape = prod(rows), len(point.vector)
        return LinearOperator(shape, product, transposed, dtype=np.float64)

    def hess(self, x: Any, v: Any = None) -> Array:
        """The Hessian of a scalar function, times the number v where there is one; of an array
        function that of the sum of its entries times those of v, as constraints need it."""
        if not self._is_scalar:
            return self._weighted_hessian(x, v)
        point = self._inputs.point(x)
        found = self._named(self._function("hessian")(*self._inputs.values(point)))
        blocks = {name: self._named(row) for name, row in found.items()}
        hessian = np.block(
            [
                [
                    _block(point.vector, row, column, blocks[row.entry.name][column.entry.name])
                    for column in point.parts
                ]
                for row in point.parts
            ]
        )
        if point.curved:
            for part, gradient in self._gradients(point):
                basis = np.eye(prod(part.free)).reshape(-1, *part.free)
                turned = part.map.curvature(part.of(point.vector), basis, gradient)
                hessian[part.place, part.place] += turned.reshape(len(basis), -1)
        return hessian if v is None else hessian * np.asarray(v, np.float64).reshape(())

    def hessp(self, x: Any, p: Any) -> Array:
        """The product of the Hessian of a scalar function at x with a vector p."""
        point, direction = self._scalar("hessp", x), self._inputs.point(p).vector
        tangents = self._inputs.tangents(point, direction)
        found = self._function("hvp")(*self._inputs.values(point), *tangents)
        product = point.pullback(self._named(found))
        if point.curved:
            for part, gradient in self._gradients(point):
                turned = part.map.curvature(part.of(point.vector), part.of(direction), gradient)
                product[part.place] += turned.reshape(-1)
        return product

    def _function(self, kind: str) -> Callable[..., Any]:
        """The module's function of a kind. Raises UnsupportedError where it was built without."""
        self._interface.require(kind)
        return getattr(self.module, kind)

    @property
    def _is_scalar(self) -> bool:
        return not self._interface.output and not self._interface.batched

    def _scalar(self, asked: str, x: Any) -> Point:
        if not self._is_scalar:
            each = ", one number a sample" if not self._interface.output else ""
            raise UnsupportedError(
                f"{self.name}: {asked} is of scalar functions, and this one returns an array{each};"
                " use residual, or declare the sum of its entries"
            )
        return self._inputs.point(x)

    def _array(self, asked: str, x: Any) -> Point:
        if self._is_scalar:
            raise UnsupportedError(
                f"{self.name}: {asked} is of functions that return arrays, and this one is scalar; "
                "use fun"
            )
        return self._inputs.point(x)

    def _evaluated(self, point: Point) -> tuple[Array, float, dict[str, Array]]:
        """The vector with the value and the gradients there; the last ones are kept."""
        seen = self._seen
        if seen is None or not np.array_equal(seen[0], point.vector):
            value, gradient = self._function("value_and_gradient")(*self._inputs.values(point))
            seen = self._seen = point.vector.copy(), float(value), self._named(gradient)
        return seen

    def _gradients(self, point: Point) -> list[tuple[Part, Array]]:
        """The parts whose parametrisation has a second derivative, with the gradient by each."""
        _, _, found = self._evaluated(point)
        return [(part, found[part.entry.name]) for part in point.parts if not part.map.linear]

    def _named(self, result: Any) -> dict[str, Any]:
        """Results by the names of the inputs that the module differentiates by."""
        names = [entry.name for entry in self._interface.wrt]
        return dict(zip(names, (result,) if len(names) == 1 else result, strict=True))

    def _weighted_hessian(self, x: Any, v: Any) -> Array:
        if self._weighted is None or v is None or self._interface.batched:
            raise UnsupportedError(
                f"{self.name}: hess of an array function needs weights v and second derivatives, "
                "which its module does not have: make the objective of the declared function, not "
                "of its module, without batch; or leave it to SciPy with hess=BFGS() or '2-point'"
            )
        module = self._weighted()
        point = self._inputs.point(x)
        weights = self._inputs.numbers("v", v)
        shape = self._interface.shape("value", "", point.sizes)
        fixed = {**self._inputs.fixed, module.INPUTS[-1]["name"]: weights.reshape(shape)}
        weighted = Objective(module, self._inputs.names, fixed)
        weighted.pack(self.unpack(np.zeros_like(point.vector)))  # its vectors are then as these
        return weighted.hess(point.vector)


def _matrix(point: Point, part: Part, jacobian: Any) -> Array:
    """A Jacobian by an input as a matrix with a column for each number of the vector. By an input
    with the batch axis, the samples are blocks on its diagonal."""
    array, free = np.asarray(jacobian), part.of(point.vector)
    rank = array.ndim - len(part.entry.shape)
    outer, core = array.shape[:rank], array.shape[rank:]
    if not part.entry.batched:
        return part.map.pullback(free, array).reshape(prod(outer), prod(part.free))
    samples, each = outer[0], prod(outer[1:])
    sampled = array.reshape(samples, each, *core).swapaxes(0, 1)
    blocks = part.map.pullback(free, sampled).reshape(each, samples, -1)
    whole = np.zeros((each, samples, samples, blocks.shape[-1]))
    whole[:, np.arange(samples), np.arange(samples)] = blocks
    return whole.swapaxes(0, 1).reshape(samples * each, -1)


def _block(vector: Array, row: Part, column: Part, block: Any) -> Array:
    """A block of the Hessian by two inputs, without what their gradients contribute."""
    half = column.map.pullback(column.of(vector), np.asarray(block))
    half = np.moveaxis(half.reshape(*row.shape, prod(column.free)), -1, 0)
    whole = row.map.pullback(row.of(vector), half)
    return whole.reshape(prod(column.free), prod(row.free)).T
