"""A NumPy interpreter of the intermediate representation: the reference in tests of every pass."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from derivatrix.compiler.ir import dimensions, scalar_functions
from derivatrix.compiler.ir import nodes as ir


def evaluate(
    node: ir.Node, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray:
    """Evaluate `node` at the leaves' arrays and the dimensions' sizes."""
    return evaluate_all([node], values, sizes)[0]


def evaluate_all(
    nodes: Sequence[ir.Node], values: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> list[np.ndarray]:
    """Evaluate several nodes; shared subexpressions are computed once."""
    arrays: dict[ir.Node, np.ndarray] = {}
    for node in ir.topological(nodes):
        arrays[node] = _evaluate(node, arrays, values, sizes)
    return [arrays[node] for node in nodes]


def _evaluate(
    node: ir.Node,
    arrays: Mapping[ir.Node, np.ndarray],
    values: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> np.ndarray:
    shape = tuple(int(dimensions.evaluate(size, sizes)) for size in node.shape)
    match node:
        case ir.Leaf():
            return np.broadcast_to(np.asarray(values[node.name], dtype=np.float64), shape)
        case ir.Constant():
            return node.array
        case ir.Delta():
            return np.eye(shape[0])
        case ir.Slice():
            start = int(dimensions.evaluate(node.start, sizes))
            rows, columns = np.indices(shape)
            return (columns == start + node.step * rows).astype(np.float64)
        case ir.Triangle():
            rows, columns = np.indices(shape)
            return (rows >= columns + node.offset).astype(np.float64)
        case ir.Gather():
            return np.eye(shape[1])[list(node.table)]
        case ir.Reshape():
            merged, outer, inner = np.indices(shape)
            return (merged == shape[2] * outer + inner).astype(np.float64)
        case ir.Vech():
            packed, rows, columns = np.indices(shape)
            inside = (columns <= rows) & (packed == rows * (rows + 1) // 2 + columns)
            return inside.astype(np.float64)
        case ir.Einsum():
            return _einsum(node, arrays, sizes)
        case ir.Sum():
            return sum((arrays[term] for term in node.terms), np.zeros(shape))
        case ir.Map():
            arguments = [arrays[argument] for argument in node.arguments]
            return np.broadcast_to(scalar_functions.evaluate(node.expression, arguments), shape)
        case ir.Apply():
            arguments = [
                _align(arrays[argument], labels, len(node.stack))
                for argument, labels in node.arguments
            ]
            result = node.operation.value(arguments, node.parameters)[node.output]
            return np.broadcast_to(result, shape)
    raise TypeError(f"no evaluation for {node!r}")


def _einsum(
    node: ir.Einsum, arrays: Mapping[ir.Node, np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray:
    operands: list[Any] = []
    for factor, labels in node.factors:
        operands += [arrays[factor], list(labels)]
    present = {label for _, labels in node.factors for label in labels}
    for label, size in enumerate(node.sizes):
        if label not in present:
            operands += [np.ones(int(dimensions.evaluate(size, sizes))), [label]]
    coefficient = float(dimensions.evaluate(node.coefficient, sizes))
    if not operands:
        return np.asarray(coefficient)
    # in one loop nest, more than three factors would take the product of all sizes
    product = np.einsum(*operands, list(range(node.ndim)), optimize=len(operands) > 6)
    return np.asarray(coefficient * product)


def _align(array: np.ndarray, labels: Sequence[int], stacked: int) -> np.ndarray:
    """Bring the stacked axes into order, with axes of length 1 for missing ones."""
    order = [labels.index(label) for label in sorted(labels)]
    array = array.transpose(*order, *range(len(labels), array.ndim))
    missing = tuple(label for label in range(stacked) if label not in labels)
    return np.expand_dims(array, missing)
