"""Loops over time: over single steps, and over segments of steps.

Times follow one another also where the step is linear. By products of the steps' matrices two
threads could take half of the times each (parallel prefix), but with (n³ + 2 n²) / 2 operations a
time instead of n² for a state of n numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.differentiate.recurrence import step_text
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import size_symbols
from derivatrix.compiler.ir.operation import Loop as TimeLoop
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.plan.index_arithmetic import index_symbol
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import View, loops_around
from derivatrix.compiler.plan.steps import (
    Buffer,
    Fill,
    Guard,
    Load,
    LoopNest,
    Operand,
    Plan,
    Range,
    Recurrence,
    Segment,
    Store,
)
from derivatrix.compiler.plan.workspace import Setting, Workspace


class LoopSteps(Workspace):
    """The steps of loops over time."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._plan = setting.plan
        self._time = sympy.Symbol(setting.names.lettered("t"), integer=True)
        self._carries_of_segments: dict[tuple[Operation, tuple[ir.Node, ...]], list[Buffer]] = {}

    def _recurrence(self, node: ir.Apply, loop: TimeLoop, target: Buffer) -> None:
        """Run a loop over time, with a kernel of its step, that fills the states of all carries."""
        assert not node.stack, "stacked axes are inside the step"
        inputs = [self._natural(argument) for argument, _ in node.arguments]
        states = self._output_buffers(node, target)
        time = self._time
        before, after = (time + 1, time) if loop.is_reversed else (time, time + 1)
        start_time = loop.length if loop.is_reversed else sympy.S.Zero
        for start, buffer in zip(inputs[: len(states)], states, strict=True):
            self.steps.append(_copied_state(buffer, start_time, start, is_start=True))
        places: list[tuple[sympy.Expr, ...]] = [(before,) for _ in states]
        places += [(time,) for _ in loop.slices]
        places += [() if leaf.ndim else (sympy.S.Zero,) for leaf in loop.parameters]
        buffers = [*states, *inputs[len(states) :]]
        operands = _named_operands(loop.operands, loop.names, loop.following)
        following = substitute(loop.following, operands)
        parameters = [*operands.values()]
        if not self._is_cpu:  # the host would wait for numbers of the device
            entries = {x: ir.Leaf(x.name, (sympy.S.One,)) for x in parameters if not x.ndim}
            numbers = {x: ir.einsum([(entry, ("one",))], ()) for x, entry in entries.items()}
            following = substitute(following, numbers)
            parameters = [entries.get(leaf, leaf) for leaf in parameters]
        results = _named_results(following)
        step = self._plan(f"step_{node.operation.key.replace('.', '_')}", parameters, results)
        mirrors = [
            _mirrored(buffer)
            for (_, buffer), leaf in zip(step.outputs, loop.carries, strict=True)
            if leaf.structure in ("spd", "symmetric")
        ]
        self.steps.append(
            Recurrence(
                step_text(loop),
                replace(_without_structures(step), steps=(*step.steps, *mirrors)),
                time,
                loop.length,
                loop.is_reversed,
                tuple(
                    Operand(buffer, leaf.shape, index)
                    for buffer, leaf, index in zip(buffers, loop.operands, places, strict=True)
                ),
                tuple(
                    Operand(buffer, leaf.shape, (after,))
                    for buffer, leaf in zip(states, loop.carries, strict=True)
                ),
            )
        )

    def _in_segments(self, node: ir.Apply, target: Buffer) -> None:
        """Run a loop over segments, and fill those of its results that the kernel reads."""
        segments = node.operation.segments
        assert segments is not None and not node.stack, "stacked axes are inside the segments"
        nodes = {*self._nodes}
        siblings = {n: node.sibling(n) for n in range(len(segments.results))}
        results = {
            position: target
            if sibling is node
            else self._result_buffer(sibling, range(sibling.ndim))
            for position, sibling in siblings.items()
            if sibling in nodes
        }
        arguments = tuple(argument for argument, _ in node.arguments)
        states = self._run_segments(node.operation, arguments, results)
        for position in results.keys() & range(len(states)):
            end = sympy.S.Zero if segments.is_reversed else states[position].shape[0] - 1
            self.steps.append(_copied_state(states[position], end, results[position]))

    def _run_segments(
        self, operation: Operation, arguments: tuple[ir.Node, ...], results: Mapping[int, Buffer]
    ) -> list[Buffer]:
        """Run a loop over segments with a kernel for one of them, which fills the series and sums
        among `results`, by their positions. Return the carries between segments."""
        segments = operation.segments
        assert segments is not None
        argument_of = dict(zip(segments.operands, arguments, strict=True))
        is_reversed = segments.is_reversed
        index = sympy.Symbol(self._names.lettered("s"), integer=True)
        length = argument_of[segments.series[0]].shape[0]
        count = sympy.floor((length + segments.steps - 1) / segments.steps)
        segment = Segment(index * segments.steps, sympy.Integer(segments.steps))
        before, after = (index + 1, index) if is_reversed else (index, index + 1)
        states = {
            leaf: self._fresh((count + 1, *leaf.shape), range(leaf.ndim + 1), leaf.name).buffer
            for leaf in segments.carries
        }
        operands = {leaf: Operand(buffer, leaf.shape, (before,)) for leaf, buffer in states.items()}
        if segments.forward is not None:
            forward = segments.forward.segments
            assert forward is not None
            key = segments.forward, tuple(argument_of[leaf] for leaf in forward.operands)
            carries = self._carries_of_segments.get(key) or self._run_segments(*key, {})
            place = index + 1 if forward.is_reversed else index
            for leaf, buffer in zip(forward.carries, carries, strict=True):
                operands[leaf] = Operand(buffer, leaf.shape, (place,))
        for leaf in segments.series:
            buffer = self._natural(argument_of[leaf])
            operands[leaf] = Operand(buffer, leaf.shape[1:], (segment,))
        for leaf in segments.parameters:
            index_of_number = () if leaf.ndim else (sympy.S.Zero,)
            operands[leaf] = Operand(self._natural(argument_of[leaf]), leaf.shape, index_of_number)
        start_time = count if is_reversed else sympy.S.Zero
        for leaf, buffer in states.items():
            start = self._natural(argument_of[leaf])
            self.steps.append(_copied_state(buffer, start_time, start, is_start=True))
        targets = [Operand(buffer, leaf.shape, (after,)) for leaf, buffer in states.items()]
        computed = [*range(len(states)), *sorted(n for n in results if n >= len(states))]
        sums = []
        for position in computed[len(states) :]:
            buffer, shape = results[position], segments.results[position].shape
            if position < len(segments.following + segments.outputs):
                targets.append(Operand(buffer, shape[1:], (segment,)))
            else:
                sums.append(f"out_{len(targets)}")
                targets.append(Operand(buffer, shape or (sympy.S.One,)))
                self.steps.append(Fill(buffer))
        parameters = _named_operands(
            segments.operands, [leaf.name for leaf in segments.operands], segments.results
        )
        nodes = substitute([segments.results[position] for position in computed], parameters)
        name = "_".join(["segment", operation.key.replace(".", "_"), *map(str, computed)])
        step = self._plan(name, [*parameters.values()], _named_results(nodes), sums)
        self.steps.append(
            Recurrence(
                f"a segment of {segments.steps} steps",
                _without_structures(step),
                index,
                count,
                is_reversed,
                tuple(operands[leaf] for leaf in segments.operands),
                tuple(targets),
            )
        )
        self._carries_of_segments[operation, arguments] = [*states.values()]
        return self._carries_of_segments[operation, arguments]

    def _range(self, node: ir.Node) -> View:
        """Name a range of the states of a loop."""
        assert isinstance(node, ir.Apply)
        source = self._natural(node.arguments[0][0])
        view = self._fresh(node.shape, range(node.ndim))
        start, _ = node.parameters
        self.steps.append(Range(view.buffer, source, sympy.sympify(start)))
        self._views[node] = view
        return view

    def _natural(self, node: ir.Node) -> Buffer:
        """Return the buffer of a node with its axes in order; a scalar is the entry of a vector.
        Constants are copied, as the module has them as doubles, also for kernels of singles."""
        view = self._place(node, range(node.ndim))
        if not view.is_natural or view.buffer.role == "constant" or not node.ndim:
            view = self._copied(node, range(node.ndim))
        return view.buffer

    def _output_buffers(
        self, node: ir.Apply, target: Buffer, order: Callable[[int], Sequence[int]] = range
    ) -> list[Buffer]:
        """Return the buffers of all outputs of an operation: `target` for `node`, and buffers with
        axes in `order` for the others, where later readers find their entries."""
        cores = tuple(argument.shape[len(labels) :] for argument, labels in node.arguments)
        count = len(node.operation.shapes(cores, node.parameters))
        return [
            target if sibling is node else self._result_buffer(sibling, order(sibling.ndim))
            for sibling in map(node.sibling, range(count))
        ]

    def _result_buffer(self, node: ir.Node, order: Sequence[int]) -> Buffer:
        """Return a place for one of several results of an operation, with axes in `order`, where
        later readers find its entries: an output of the kernel if the result is one, else a work
        array."""
        view = self._output_views.get(node)
        if view is None or not view.has_order(order) or self._view_of(node) is not None:
            view = self._fresh(node.shape, order, self._letter(node, order))
        self._views.setdefault(node, view)
        return view.buffer


def _copied_state(
    states: Buffer, time: sympy.Expr, array: Buffer, is_start: bool = False
) -> LoopNest:
    """Copy the state at a time to `array`, or the start of a loop from there to the states."""
    indices = tuple(index_symbol(axis) for axis in range(len(states.shape) - 1))
    state = Load(states, (time, *indices))
    entry = Load(array, indices or (sympy.S.Zero,) * len(array.shape))
    names = f"{states.name}[{time}]", array.name
    target, source = (state, entry) if is_start else (entry, state)
    comment = " = ".join(names if is_start else names[::-1])
    store = Store(target, source, accumulate=False)
    return LoopNest(comment, loops_around((store,), [*zip(indices, states.shape[1:], strict=True)]))


def _named_operands(
    operands: Sequence[ir.Leaf], wishes: Sequence[str], results: Sequence[ir.Node]
) -> dict[ir.Leaf, ir.Leaf]:
    """Return the operands of a step with their names in formulas, or similar ones where a kernel
    has these for something else."""
    sizes = sympy.Tuple(*(size for leaf in operands for size in leaf.shape)).free_symbols
    names = Names(symbol.name for symbol in (*sizes, *size_symbols(results)))
    for name, _ in _named_results(results):
        names.exact(name)
    return {
        leaf: ir.Leaf(names.exact(wish), leaf.shape, leaf.structure, leaf.role)
        for leaf, wish in zip(operands, wishes, strict=True)
    }


def _without_structures(step: Plan) -> Plan:
    """Drop the declared structures of a step's arguments: the kernel around the step passes arrays
    that have them already, so that no step needs to compare or copy entries."""
    arguments = tuple(replace(argument, structure="general") for argument in step.arguments)
    return replace(step, arguments=arguments)


def _named_results(results: Sequence[ir.Node]) -> list[tuple[str, ir.Node]]:
    """Name the results of a step."""
    return [(f"out_{position}", _vector(result)) for position, result in enumerate(results)]


def _mirrored(matrix: Buffer) -> LoopNest:
    """Copy the lower triangle of a symmetric carry to the upper one. By rounding the triangles
    differ; factorisations read one of them, products both, and the steps would amplify that: in a
    Kalman filter with a large entry of A, by a thousand in five steps."""
    indices = *stack, row, column = [index_symbol(axis) for axis in range(len(matrix.shape))]
    lower, upper = (Load(matrix, (*stack, *pair)) for pair in ((row, column), (column, row)))
    copy = Guard(sympy.Ge(row - column, 1), (Store(upper, lower, accumulate=False),))
    body = loops_around((copy,), [*zip(indices, matrix.shape, strict=True)])
    return LoopNest(f"the upper triangle of {matrix.name} is the lower one", body)


def _vector(node: ir.Node) -> ir.Node:
    """Write a number as a vector of one entry, as a kernel returns it."""
    return node if node.ndim else ir.einsum([(node, ())], ("one",), sizes={"one": sympy.S.One})
