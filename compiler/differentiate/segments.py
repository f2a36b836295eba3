"""Loops over time that keep the carries between segments, and compute others again (checkpoints).

Such a loop is one operation, whose results are expressions for series of any length: the last
carries and the outputs of a plain loop. Its differential, and the transpose of that, are such
operations, too. So a kernel computes them for one segment after the other; the adjoints run from
the last segment to the first, and compute the states of each again from the carries kept at its
start. Formulas and second derivatives are those of the plain loop (`with_whole_loops`), which keep
all states.

Nested loops, over segments and over the steps of each, would not save memory: the differential of
a loop has its injected terms, and its adjoint the cotangents of its parameters, outside of the
loop, for all times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.differentiate.jvp import broadcast_over_stack, core_point, differential
from derivatrix.compiler.differentiate.recurrence import (
    Placeholders,
    distinct,
    known_structure,
    last_state,
    run_loop,
    size_parameters,
    value_by_index,
    variable_name,
)
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text, symbol
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import Apply, Leaf, Node, is_zero, leaves, topological, zeros
from derivatrix.compiler.ir.numpy_text import numpy_tuple, size_readings
from derivatrix.compiler.ir.operation import Operation, Parameters, Point, Segments
from derivatrix.compiler.ir.resize import resize, with_parts
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import ShapeError


def run_segments(
    carries: Placeholders,
    slices: Placeholders,
    parameters: Placeholders,
    following: Sequence[Node],
    outputs: Sequence[Node],
    length: Dimension,
    is_reversed: bool,
    singular: Sequence[Node],
    names: Mapping[Leaf, str],
    steps: int,
) -> tuple[list[Array], list[Array]]:
    """Return the carries after the loop that `run_loop` runs, and its stacked outputs; kernels keep
    the carries after each `steps` steps only."""
    number = _unused_length([*following, *outputs])
    formula_names = iter(
        distinct(
            variable_name(names[leaf], f"a{position}")
            for position, leaf in enumerate((*parameters, *carries, *slices))
        )
    )

    def placeholders(arrays: Placeholders, leading: Shape = ()) -> dict[Leaf, Leaf]:
        return {
            leaf: Leaf(
                *(next(formula_names), leading + leaf.shape, known_structure(array.node, leaf)),
                role="placeholder",
            )
            for leaf, array in arrays.items()
        }

    parameter_leaves, carry_leaves = placeholders(parameters), placeholders(carries)
    series_leaves = placeholders(slices, (number,))
    while True:
        states, stacked = run_loop(
            _arrays(carry_leaves),
            _arrays(series_leaves),
            _arrays(parameter_leaves),
            following,
            outputs,
            number,
            is_reversed,
            singular,
            names,
        )
        # the next segments start with what steps keep of the structure of the first carry
        kept_leaves = {
            leaf: Leaf(start.name, start.shape, _carry_structure(state), start.role)
            for (leaf, start), state in zip(carry_leaves.items(), states, strict=True)
        }
        if kept_leaves == carry_leaves:
            break
        carry_leaves = kept_leaves
    last_carries = [last_state(array, is_reversed) for array in states]
    nodes = simplify([array.node for array in (*last_carries, *stacked)])
    leaves_read = set(leaves(nodes))
    values = {carry_leaves[of]: array for of, array in carries.items()}
    series = {leaf: slices[of] for of, leaf in series_leaves.items() if leaf in leaves_read}
    series = series or {Leaf("clock", (number,), role="placeholder"): Array(zeros((length,)))}
    arguments = {
        leaf: parameters[of] for of, leaf in parameter_leaves.items() if leaf in leaves_read
    }
    arguments |= size_parameters(nodes, [*values, *series, *arguments])
    segments = Segments(
        carries=tuple(values),
        series=tuple(series),
        parameters=tuple(arguments),
        following=tuple(nodes[: len(last_carries)]),
        outputs=tuple(nodes[len(last_carries) :]),
        sums=(),
        length=number,
        steps=steps,
        is_reversed=is_reversed,
    )
    results = _applied(segments, values | series | arguments)
    return results[: len(last_carries)], results[len(last_carries) :]


def _arrays(placeholders: Mapping[Leaf, Leaf]) -> dict[Leaf, Array]:
    return {leaf: Array(placeholder) for leaf, placeholder in placeholders.items()}


def _carry_structure(states: Array) -> str:
    """Return the structure of the carry of a loop, of which an array is the states."""
    node = states.node
    assert isinstance(node, Apply) and node.operation.loop is not None
    return node.operation.loop.carries[node.output].structure


def _applied(segments: Segments, values: Placeholders) -> list[Array]:
    """Return the results of a loop over segments at the values of its placeholders."""
    operation, operands = segmented(segments), [values[leaf] for leaf in segments.operands]
    return [apply(operation, *operands, output=n) for n in range(len(segments.results))]


@cache
def segmented(segments: Segments) -> Operation:
    """Make the operation of a loop over segments."""
    rules = _Segmented(segments)
    operation = Operation(
        name="scan",
        ranks=tuple(leaf.ndim for leaf in segments.operands),
        outputs=tuple(f"result_{position}" for position in range(len(segments.results))),
        shapes=rules.shapes,
        value=rules.value,
        differential=rules.differential,
        adjoint=rules.adjoint if rules.linear else None,
        rules=(_zero_if_linear_in_zeros,) if rules.linear else (),
        facts=rules.facts,
        numpy=rules.numpy,
        segments=segments,
        domain=("",) * len(segments.operands),
    )
    object.__setattr__(operation, "maker", (_remade, segments.fields))
    return operation


def _remade(*fields: Any) -> Operation:
    """Make the operation of a loop over segments with these fields."""
    return segmented(Segments(*fields))


def _zero_if_linear_in_zeros(node: Apply) -> Node | None:
    """Replace a loop by zero if all arguments are zero in which it is linear."""
    segments = node.operation.segments
    assert segments is not None
    linear = [
        argument
        for leaf, (argument, _) in zip(segments.operands, node.arguments, strict=True)
        if leaf.role in LINEAR_ROLES
    ]
    return zeros(node.shape) if all(map(is_zero, linear)) else None


LINEAR_ROLES = ("tangent", "cotangent")
"""Roles of the placeholders in which a loop over segments is linear."""


class _Segmented:
    """The rules of a loop over segments."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.linear = [leaf for leaf in segments.operands if leaf.role in LINEAR_ROLES]

    def shapes(self, cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        operands, results = _of_all_steps(self.segments, cores)
        for leaf, core in zip(operands, cores, strict=True):
            if core != leaf.shape:
                raise ShapeError(
                    f"scan: {leaf.name} has shape {shape_text(core)}, expected "
                    f"{shape_text(leaf.shape)}"
                )
        return tuple(result.shape for result in results)

    def facts(self, arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
        return facts(self.segments.results[output])

    def value(
        self, arguments: Sequence[np.ndarray], parameters: Parameters
    ) -> tuple[np.ndarray, ...]:
        segments = self.segments

        def results(arrays: list[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
            values = {leaf.name: a for leaf, a in zip(segments.operands, arrays, strict=True)}
            return evaluate_all(segments.results, values, sizes)

        return value_by_index(
            *(arguments, [leaf.shape for leaf in segments.operands]),
            *([result.shape for result in segments.results], results),
        )

    def numpy(self, arguments: Sequence[str], parameters: Parameters, output: int) -> str:
        """Write the results for one segment, without stacked axes; texts that are evaluated have
        plain loops (`with_whole_loops`)."""
        operands = self.segments.operands
        results = self.segments.results
        body = numpy_tuple(results, size_readings(operands)) + "[0]" * (len(results) == 1)
        names = ", ".join(leaf.name for leaf in operands)
        return f"(lambda {names}: {body})({', '.join(arguments)})"

    # Derivatives

    def differential(self, at: Point) -> tuple[Array, ...]:
        """The differential of a loop, as a loop over segments; that of a derivative of a loop, as
        plain loops."""
        return self._whole_differential(at) if self.linear else self._segmented_differential(at)

    def _segmented_differential(self, at: Point) -> tuple[Array, ...]:
        segments = self.segments
        tangents = dict(zip(segments.operands, at.tangents, strict=True))
        arguments = frozenset(
            leaf for leaf, tangent in tangents.items() if not is_zero(tangent.node)
        )
        varying, nodes = _differential(segments, arguments)
        carry_count = len(segments.carries)
        carried = [n for n, carry in enumerate(segments.carries) if carry in varying]
        outputs = [n for n in range(carry_count, len(nodes)) if not is_zero(nodes[n])]

        def moving(operands: Sequence[Leaf]) -> tuple[Leaf, ...]:
            return tuple(_tangents(segments)[leaf] for leaf in operands if leaf in varying)

        of_tangents = replace(
            segments,
            carries=moving(segments.carries),
            series=moving(segments.series) + segments.series,
            parameters=moving(segments.parameters) + segments.parameters,
            following=tuple(nodes[n] for n in carried),
            outputs=tuple(nodes[n] for n in outputs),
            forward=segmented(segments),
        )
        values = dict(zip(segments.operands, at.arguments, strict=True))
        values |= {_tangents(segments)[leaf]: tangent for leaf, tangent in tangents.items()}
        results = dict(zip((*carried, *outputs), _applied(of_tangents, values), strict=True))
        return tuple(
            results.get(n, Array(zeros(result.node.shape))) for n, result in enumerate(at.results)
        )

    def _whole_differential(self, at: Point) -> tuple[Array, ...]:
        shapes = [array.node.shape for array in at.arguments]
        operands, results = _of_all_steps(self.segments, shapes)
        values: dict[Node, Node] = {}
        tangents: dict[Node, Node] = {}
        names = _unlike(operands, [f"d{leaf.name}" for leaf in operands])
        for leaf, name, argument, tangent in zip(
            operands, names, at.arguments, at.tangents, strict=True
        ):
            values[leaf] = argument.node
            tangents[leaf] = tangent.node
            if not is_zero(tangent.node):
                tangents[leaf] = Leaf(name, leaf.shape, role="tangent")
                values[tangents[leaf]] = tangent.node
        nodes = simplify(differential(with_whole_loops(results), tangents))
        return tuple(map(Array, substitute(nodes, values)))

    def adjoint(self, at: Point, cotangents: Sequence[Array]) -> dict[int, Array]:
        """The transpose of the differential: adjoints, from the last segment to the first, outputs
        that are cotangents of series, and sums that are those of parameters."""
        segments = self.segments
        assert segments.forward is not None and segments.forward.segments is not None
        forward = segments.forward.segments
        carry_count = len(segments.carries)
        names = ["λ"] if carry_count == 1 else [f"λ_{c.name[1:]}" for c in segments.carries]
        names += [f"c{n}" for n in range(len(segments.outputs))]
        cotangent_leaves = [
            Leaf(name, result.shape, role="cotangent")
            for name, result in zip(_unlike(forward.operands, names), segments.results, strict=True)
        ]
        pulled = [
            (result, leaf, cotangent)
            for n, (result, leaf, cotangent) in enumerate(
                zip(segments.results, cotangent_leaves, cotangents, strict=True)
            )
            if n < carry_count or not is_zero(cotangent.node)
        ]
        shares = transpose([r for r, _, _ in pulled], self.linear, [leaf for _, leaf, _ in pulled])
        share_of = {
            leaf: share
            for leaf, share in zip(self.linear, simplify(shares), strict=True)
            if leaf in segments.carries or not is_zero(share)
        }
        series, parameters = (
            [leaf for leaf in group if leaf in share_of]
            for group in (segments.series, segments.parameters)
        )
        of_cotangents = replace(
            segments,
            carries=tuple(cotangent_leaves[:carry_count]),
            series=(*(leaf for _, leaf, _ in pulled[carry_count:]), *forward.series),
            parameters=forward.parameters,
            following=tuple(share_of[leaf] for leaf in segments.carries),
            outputs=tuple(share_of[leaf] for leaf in series),
            sums=tuple(share_of[leaf] for leaf in parameters),
            is_reversed=not segments.is_reversed,
        )
        values = dict(zip(segments.operands, at.arguments, strict=True))
        values |= {leaf: cotangent for _, leaf, cotangent in pulled}
        results = dict(
            zip(
                (*segments.carries, *series, *parameters),
                _applied(of_cotangents, values),
                strict=True,
            )
        )
        return {
            position: results.get(leaf, Array(zeros(values[leaf].node.shape)))
            for position, leaf in enumerate(segments.operands)
            if leaf in self.linear
        }


@cache
def _tangents(segments: Segments) -> dict[Leaf, Leaf]:
    """Return placeholders for the tangents of all operands."""
    names = _unlike(segments.operands, [f"d{leaf.name}" for leaf in segments.operands])
    return {
        leaf: Leaf(name, leaf.shape, role="tangent")
        for leaf, name in zip(segments.operands, names, strict=True)
    }


@cache
def _differential(
    segments: Segments, arguments: frozenset[Leaf]
) -> tuple[frozenset[Leaf], list[Node]]:
    """Return the operands that vary if `arguments` do, and the tangents of the results."""
    varying = arguments
    while True:
        tangents: dict[Node, Node] = {
            leaf: tangent if leaf in varying else zeros(leaf.shape)
            for leaf, tangent in _tangents(segments).items()
        }
        nodes = simplify(differential(segments.results, tangents))
        carry_tangents = zip(segments.carries, nodes, strict=False)
        further = varying.union(carry for carry, node in carry_tangents if not is_zero(node))
        if further == varying:
            return varying, nodes
        varying = further


def _of_all_steps(segments: Segments, shapes: Sequence[Shape]) -> tuple[list[Leaf], list[Node]]:
    """Return the placeholders and the results for one segment that has all steps. shapes: of the
    arguments."""
    return _with_length(segments, shapes[segments.operands.index(segments.series[0])][0])


@cache
def _with_length(segments: Segments, length: Dimension) -> tuple[list[Leaf], list[Node]]:
    operands, results = (
        [resize(node, {segments.length: length}) for node in nodes]
        for nodes in (segments.operands, segments.results)
    )
    return [leaf for leaf in operands if isinstance(leaf, Leaf)], results


def _unlike(operands: Sequence[Leaf], names: Sequence[str]) -> list[str]:
    """Number names so that they differ from each other and from those of operands."""
    return distinct([*(leaf.name for leaf in operands), *names])[len(operands) :]


# Plain loops


def with_whole_loops(roots: Sequence[Node]) -> list[Node]:
    """Write the loops over segments below `roots`, also in the steps of loops, as plain loops."""
    if not _lengths(roots):
        return [*roots]
    return [with_parts(root, lambda part: part, whole_loop) for root in roots]


def whole_loop(node: Node) -> Node:
    """Write a result of a loop over segments as that of one segment, which has all steps; other
    nodes come back unchanged."""
    if not isinstance(node, Apply) or node.operation.segments is None:
        return node
    point, values = core_point(node)
    shapes = [array.node.shape for array in point.arguments]
    operands, results = _of_all_steps(node.operation.segments, shapes)
    arguments = {leaf: array.node for leaf, array in zip(operands, point.arguments, strict=True)}
    (result,) = substitute([results[node.output]], arguments)
    return broadcast_over_stack(result, values, node)


def _unused_length(nodes: Sequence[Node]) -> sympy.Symbol:
    """Return a size for the number of steps of a segment, which differs from those of the loops
    over segments within."""
    lengths = _lengths(nodes)
    candidates = (symbol(f"_segment_steps{number or ''}") for number in count())
    return next(candidate for candidate in candidates if candidate not in lengths)


def _lengths(nodes: Iterable[Node]) -> frozenset[Dimension]:
    """Return the numbers of steps of all loops over segments below nodes, also in other loops."""
    operations = {node.operation for node in topological(nodes) if isinstance(node, Apply)}
    return frozenset().union(*map(_lengths_within, operations))


@cache
def _lengths_within(operation: Operation) -> frozenset[Dimension]:
    nodes: list[Node] = []
    if operation.segments is not None:
        nodes += operation.segments.results
    if operation.loop is not None:
        nodes += operation.loop.following
    if operation.equation is not None:
        nodes += [operation.equation.residual, operation.equation.jacobian]
    lengths = {operation.segments.length} if operation.segments is not None else set()
    return _lengths(nodes) | lengths
