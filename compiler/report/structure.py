"""The nonzero entries of a Jacobian or Hessian at a random point, as a picture shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.report.parts import size_names
from derivatrix.compiler.structured import structured
from derivatrix.runtime.domains import draw
from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.sampling import meets

LARGEST = 16
"""The largest size."""
MOST = 160_000
"""The most entries of a block."""


def blocks(function: Function, sizes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The blocks, by input or by pair of inputs: `over` and `under` are the shapes whose entries
    are the rows and the columns; `cells` are numbers from -127 to 127, 0 where an entry is 0 at a
    random point. Raises ShapeError for sizes that are not from 1 to LARGEST, or with too large
    blocks."""
    if not all(isinstance(size, int) and 1 <= size <= LARGEST for size in sizes.values()):
        raise ShapeError(f"sizes are from 1 to {LARGEST}")
    missing = [name for name in size_names(function) if name not in sizes]
    if missing:
        raise ShapeError(f"{function.name}: the size {missing[0]} is missing; give a number for it")
    if not meets(dict(sizes), function.requirements):
        conditions = ", ".join(function.requirements)
        raise ShapeError(f"{function.name}: {shown(dict(sizes))} does not meet {conditions}")
    derivatives = function.derivatives
    found = structured(derivatives)
    results = derivatives.results(found.kind)
    output = _shape(function.expression.shape, sizes)
    for key in results:
        over = (
            output if found.kind == "jacobian" else _shape(derivatives.inputs[key[0]].shape, sizes)
        )
        count = math.prod(over) * math.prod(_shape(derivatives.inputs[key[-1]].shape, sizes))
        if count > MOST:
            raise ShapeError(f"a block would have {count:,} entries; at most {MOST:,} are drawn")
    random = np.random.default_rng(0)
    values = {leaf.name: _point(function, leaf, sizes, random) for leaf in function.inputs}
    with np.errstate(all="ignore"):
        arrays = evaluate_all(list(results.values()), values, sizes)
    operators = {operator.key: operator for operator in found.operators}
    for key, array in zip(results, arrays, strict=True):
        under = _shape(derivatives.inputs[key[-1]].shape, sizes)
        over = array.shape[: array.ndim - len(under)]
        rows, columns = math.prod(over), math.prod(under)
        cells = _cells(np.nan_to_num(array, nan=0.0).reshape(rows, columns))
        yield {
            "title": found.title(operators[key]),
            "descriptor": operators[key].structure,
            "over": over,
            "under": under,
            "rows": rows,
            "columns": columns,
            "nonzero": int(np.count_nonzero(cells)),
            "cells": cells,
        }


def _shape(shape: dimensions.Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(dimensions.evaluate(size, sizes)) for size in shape)


def _point(
    function: Function, leaf: Leaf, sizes: Mapping[str, int], random: np.random.Generator
) -> np.ndarray:
    """A value of an input, of its structure."""
    domain = function.domains.get(leaf.name, leaf.structure)
    if domain == "symmetric":
        domain = "spd"  # it is both
    return draw(domain, _shape(leaf.shape, sizes), random, 1.0)


def _cells(array: np.ndarray) -> np.ndarray:
    """The entries in parts of the largest, up to 127; 0 only for what is 0 but for rounding."""
    largest = np.abs(array).max(initial=0.0)
    if not largest:
        return np.zeros(array.shape, np.int8)
    parts = array / largest
    cells = np.sign(parts) * np.ceil(np.abs(parts) * 127)
    return np.where(np.abs(parts) > 1e-12, cells, 0).astype(np.int8)
