"""Pictures of the nonzero entries of a Jacobian or Hessian at a random point."""

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

MAX_SIZE = 16
"""Largest dimension of an array."""
MAX_ENTRIES = 160_000
"""Most entries of a block."""


def blocks(function: Function, sizes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Draw the blocks, by input or by pair of inputs.

    `over` and `under` are the shapes whose entries are the rows and the columns; `cells` are
    numbers from -127 to 127, 0 for an entry that is 0 at a random point. Raises ShapeError for
    sizes that are not from 1 to MAX_SIZE, do not meet the requirements, or make blocks too large.
    """
    if not all(isinstance(size, int) and 1 <= size <= MAX_SIZE for size in sizes.values()):
        raise ShapeError(f"sizes are from 1 to {MAX_SIZE}")
    missing = [name for name in size_names(function) if name not in sizes]
    if missing:
        raise ShapeError(f"{function.name}: the size {missing[0]} is missing; give a number for it")
    if not meets(dict(sizes), function.requirements):
        conditions = ", ".join(function.requirements)
        raise ShapeError(f"{function.name}: {shown(dict(sizes))} does not meet {conditions}")
    derivatives = function.derivatives
    operator_form = structured(derivatives, function.kinds)
    results = derivatives.results(operator_form.kind)
    for node in results.values():
        count = math.prod(_shape(node.shape, sizes))
        if count > MAX_ENTRIES:
            limit = f"at most {MAX_ENTRIES:,} are drawn"
            raise ShapeError(f"a block would have {count:,} entries; {limit}")
    random = np.random.default_rng(0)
    values = {leaf.name: _point(function, leaf, sizes, random) for leaf in function.inputs}
    with np.errstate(all="ignore"):
        arrays = evaluate_all(list(results.values()), values, sizes)
    operators = {operator.key: operator for operator in operator_form.operators}
    for key, array in zip(results, arrays, strict=True):
        under = _shape(derivatives.inputs[key[-1]].shape, sizes)
        over = array.shape[: array.ndim - len(under)]
        rows, columns = math.prod(over), math.prod(under)
        cells = _cells(np.nan_to_num(array, nan=0.0).reshape(rows, columns))
        yield {
            "title": operator_form.title(operators[key]),
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
    """Draw a value of an input, in its domain and of its structure."""
    domain = function.domains.get(leaf.name, leaf.structure)
    if domain == "symmetric":
        domain = "spd"  # such a matrix is symmetric, and no operation refuses it
    return draw(domain, _shape(leaf.shape, sizes), random, 1.0)


def _cells(array: np.ndarray) -> np.ndarray:
    """Scale the entries to at most 127, away from zero; 0 for those that are 0 up to rounding."""
    largest = np.abs(array).max(initial=0.0)
    if not largest:
        return np.zeros(array.shape, np.int8)
    ratios = array / largest
    cells = np.sign(ratios) * np.ceil(np.abs(ratios) * 127)
    return np.where(np.abs(ratios) > 1e-12, cells, 0).astype(np.int8)
