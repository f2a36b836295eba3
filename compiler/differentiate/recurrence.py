"""Operations that loop over time: all states of a recurrence h[t + 1] = f(h[t], x[t], p).

The differential of a recurrence is a linear recurrence, whose coefficients are the Jacobians of the
step at the states; its injected terms, those by x and p, are stacked over t and lie outside of the
loop. The transpose of a linear recurrence runs backwards, the costate equation of optimal control
(Bryson and Ho, Applied Optimal Control, 1975): λ[t] = A[t]ᵀ λ[t + 1] + h̄[t]. Both are recurrences
again, so that derivatives of every order exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import count
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.formulas import render
from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import (
    LENGTH,
    Dimension,
    Shape,
    evaluate,
    readings,
    shape_text,
)
from derivatrix.compiler.ir.graph import size_symbols, transformed
from derivatrix.compiler.ir.identifiers import is_variable
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.nodes import (
    Apply,
    Leaf,
    Map,
    Node,
    Sum,
    einsum,
    is_zero,
    leaves,
    slot,
    used_slots,
    zeros,
)
from derivatrix.compiler.ir.numpy_text import numpy_tuple, size_readings
from derivatrix.compiler.ir.operation import Loop, Operation, Parameters, Point
from derivatrix.compiler.ir.structure import DECLARED_FACTS, facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.lengths import fused
from derivatrix.runtime.errors import ShapeError

Placeholders = Mapping[Leaf, Array]
"""Placeholders in a step, with the arrays that they stand for."""


def run_recurrence(
    carries: Placeholders,
    slices: Placeholders,
    parameters: Placeholders,
    following: Sequence[Node],
    length: Dimension,
    is_reversed: bool,
    singular: Iterable[Node] = (),
    injections: Mapping[Leaf, Leaf] | None = None,
    names: Mapping[Leaf, str] | None = None,
) -> list[Array]:
    """Return the states of a loop, an array (T + 1, *carry) for each carry.

    carries: placeholders with the arrays at the start; slices: with arrays (T, ...), an entry for
    each step; parameters: with the arrays that all steps read. following: the carries after a step,
    expressions of the placeholders. length: T.
    singular: squares of lengths at whose zeros steps have no finite slope. injections: the slices
    that are added to a carry, if the step is linear in both. names: of placeholders in formulas, if
    other than their own.

    A matrix has the structure that its start has and that each step is known to keep.
    """
    injected_slices, names = [*(injections or {})], names or {}
    leaves_read = {*leaves(following), *injected_slices}
    # NumPy's text reads the number of steps off the first slice, so there has to be one.
    slices = {leaf: array for leaf, array in slices.items() if leaf in leaves_read} or {
        Leaf("clock", (), role="placeholder"): Array(zeros((length,)))
    }
    ordered = {leaf: slices[leaf] for leaf in (*injected_slices, *slices)}
    parameters = {leaf: array for leaf, array in parameters.items() if leaf in leaves_read}
    parameters |= size_parameters(following, [*carries, *ordered, *parameters])
    structures = {
        leaf: known_structure(array.node, leaf)
        for leaf, array in (*carries.items(), *ordered.items(), *parameters.items())
    }
    # A carry that loses its structure may take that of another one away: repeat until none does.
    while True:
        renamed: dict[Node, Leaf] = {
            leaf: Leaf(f"{letter}{position}", leaf.shape, structures[leaf], "placeholder")
            for letter, placeholders in (("c", carries), ("x", ordered), ("p", parameters))
            for position, leaf in enumerate(placeholders)
        }
        nodes = simplify(substitute(following, renamed))
        after_step = {
            carry: _structure_after_step(structures[carry], node)
            for carry, node in zip(carries, nodes, strict=True)
        }
        if structures == structures | after_step:
            break
        structures |= after_step
    formula_names = distinct(
        variable_name(names.get(leaf, leaf.name), str(renamed[leaf].name))
        for leaf in (*parameters, *carries, *ordered)
    )
    loop = Loop(
        carries=tuple(renamed[leaf] for leaf in carries),
        slices=tuple(renamed[leaf] for leaf in ordered),
        parameters=tuple(renamed[leaf] for leaf in parameters),
        following=tuple(nodes),
        length=length,
        injections=None
        if injections is None
        else tuple([*carries].index(carry) for carry in injections.values()),
        is_reversed=is_reversed,
        names=(*formula_names[len(parameters) :], *formula_names[: len(parameters)]),
        # lengths of what the step does not read are no parts of it
        singular=tuple(
            simplify(substitute([s for s in singular if leaves_read >= {*leaves([s])}], renamed))
        ),
    )
    operation = recurrence(loop)
    operands = [*carries.values(), *ordered.values(), *parameters.values()]
    return [apply(operation, *operands, output=output) for output in range(len(carries))]


def run_loop(
    carries: Placeholders,
    slices: Placeholders,
    parameters: Placeholders,
    following: Sequence[Node],
    outputs: Sequence[Node],
    length: Dimension,
    is_reversed: bool,
    singular: Iterable[Node],
    names: Mapping[Leaf, str],
) -> tuple[list[Array], list[Array]]:
    """Return the states of a loop as `run_recurrence` does, and the stacked outputs of its steps,
    expressions of the placeholders in `outputs`."""
    states = []
    if carries:
        states = run_recurrence(
            *(carries, slices, parameters, following, length, is_reversed, singular), names=names
        )
    after = [Leaf(f"{leaf.name} after", leaf.shape, role="placeholder") for leaf in carries]
    values: dict[Node, Node] = {leaf: a.node for leaf, a in (*slices.items(), *parameters.items())}
    for before_leaf, after_leaf, array in zip(carries, after, states, strict=True):
        values[before_leaf] = before_steps(array, is_reversed).node
        values[after_leaf] = after_steps(array, is_reversed).node
    return states, over_time(with_states(outputs, following, after), values, length)


@cache
def recurrence(loop: Loop) -> Operation:
    """Make the operation of a loop."""
    rules = _Recurrence(loop)
    is_linear = loop.injections is not None
    operation = Operation(
        name="scan",
        ranks=tuple(len(shape) for shape in rules.argument_shapes),
        outputs=tuple(f"states_{position}" for position in range(len(loop.carries))),
        shapes=rules.shapes,
        value=rules.value,
        differential=rules.differential,
        adjoint=rules.adjoint if is_linear else None,
        rules=(_zero_if_linear_in_zeros,) if is_linear else (),
        facts=rules.facts,
        numpy=rules.numpy,
        loop=loop,
        letters=loop.names[: len(loop.carries)],
        domain=("",) * len(loop.operands),
    )
    object.__setattr__(operation, "maker", (_remade, loop.fields))
    return operation


def _remade(*fields: Any) -> Operation:
    """Make the operation of a loop with these fields."""
    return recurrence(Loop(*fields))


def before_steps(states: Array, is_reversed: bool) -> Array:
    """Return the states that the steps start from, in the order of the slices."""
    return states[1:] if is_reversed else states[:-1]


def after_steps(states: Array, is_reversed: bool) -> Array:
    """Return the states that the steps end in, in the order of the slices."""
    return states[:-1] if is_reversed else states[1:]


def last_state(states: Array, is_reversed: bool) -> Array:
    """Return the state that the loop ends in."""
    return states[0] if is_reversed else states[-1]


def over_time(
    nodes: Sequence[Node], replacements: Mapping[Node, Node], length: Dimension
) -> list[Array]:
    """Evaluate expressions of one step at all times: arrays (T, ...).

    replacements: placeholder -> array of the same shape, or with a leading axis of length T.
    """
    stacked = substitute(nodes, replacements, (length,))
    results = []
    for node, original in zip(stacked, nodes, strict=True):
        if is_zero(node):
            node = zeros((length, *original.shape))
        elif node.ndim == original.ndim:
            axes = range(node.ndim)
            node = einsum([(node, axes)], ("time", *axes), sizes={"time": length})
        results.append(Array(node))
    return results


def with_states(
    nodes: Sequence[Node], following: Sequence[Node], after: Sequence[Leaf]
) -> list[Node]:
    """Replace `following`, the carries after a step, by the placeholders `after`, and functions of
    their arguments by functions of them: 1 - tanh(z)² by 1 - h² where h = tanh(z)."""
    replacements = {
        node: leaf
        for node, leaf in zip(following, after, strict=True)
        if not isinstance(node, Leaf) and leaves([node])
    }

    def rewritten(node: Node) -> Node:
        if node in replacements:
            return replacements[node]
        if not isinstance(node, Map):
            return node
        for result, leaf in replacements.items():
            if isinstance(result, Map) and result.arguments == node.arguments:
                last = slot(len(node.arguments))
                expression = node.expression.xreplace({result.expression: last})
                if expression.free_symbols == {last}:
                    return Map(*used_slots(expression, (*node.arguments, leaf)))
        return node

    return transformed(nodes, rewritten)


def _zero_if_linear_in_zeros(node: Apply) -> Node | None:
    """Replace a linear loop by zero if its starts and the terms added to its states are zero."""
    loop = node.operation.loop
    assert loop is not None and loop.injections is not None
    terms = node.arguments[: len(loop.carries) + len(loop.injections)]
    return zeros(node.shape) if all(is_zero(term) for term, _ in terms) else None


STRUCTURES = ("spd", "symmetric", "lower", "upper")
"""Structures that steps of loops may keep, the strongest first."""


def known_structure(node: Node, leaf: Leaf) -> str:
    """Return the structure of the matrices that a placeholder stands for."""
    if leaf.ndim < 2 or leaf.structure != "general":
        return leaf.structure
    return next((name for name in STRUCTURES if _has(node, name)), "general")


def _structure_after_step(structure: str, node: Node) -> str:
    """Return the structure that a carry still has after a step, `node`, if it had one before."""
    weaker = STRUCTURES[STRUCTURES.index(structure) :] if structure in STRUCTURES else ()
    names = (name for name in weaker if DECLARED_FACTS[name] <= DECLARED_FACTS[structure])
    return next((name for name in names if _has(node, name)), "general")


def _has(node: Node, structure: str) -> bool:
    """Return whether a matrix is known to have a structure."""
    return (is_zero(node) and structure != "spd") or DECLARED_FACTS[structure] <= facts(node)


def size_parameters(following: Sequence[Node], operands: Sequence[Leaf]) -> dict[Leaf, Array]:
    """Make a parameter, an array of zeros, for each size that a step reads and that no operand's
    shape gives."""
    unread = size_symbols(following) - {*readings([leaf.shape for leaf in operands])}
    return {
        Leaf(f"_size_{size}", (size,), role="placeholder"): Array(zeros((size,)))
        for size in sorted(unread, key=str)
    }


def variable_name(name: str, default: str) -> str:
    """Return a name that may be a variable's: with an underscore for "sum" and "lambda"."""
    return next((wish for wish in (name, f"{name}_") if is_variable(wish)), default)


def distinct(names: Iterable[str]) -> list[str]:
    """Number names that occur repeatedly."""
    result: list[str] = []
    for name in names:
        candidates = (f"{name}{number or ''}" for number in count())
        result.append(next(candidate for candidate in candidates if candidate not in result))
    return result


class _Recurrence:
    """The rules of a loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.names = dict(zip(loop.operands, loop.names, strict=True))
        self.argument_shapes = [
            (loop.length, *leaf.shape) if leaf in loop.slices else leaf.shape
            for leaf in loop.operands
        ]

    def shapes(self, cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        for leaf, core, shape in zip(self.loop.operands, cores, self.argument_shapes, strict=True):
            if core != shape:
                raise ShapeError(
                    f"scan: {self.names[leaf]} has shape {shape_text(core)}, expected "
                    f"{shape_text(shape)}"
                )
        return self._result_shapes

    @property
    def _result_shapes(self) -> tuple[Shape, ...]:
        states = sympy.expand(self.loop.length + 1)
        return tuple((states, *leaf.shape) for leaf in self.loop.carries)

    def facts(self, arguments: Sequence[frozenset[str]], output: int) -> frozenset[str]:
        carry = self.loop.carries[output]
        return DECLARED_FACTS.get(carry.structure, frozenset()) if carry.ndim > 1 else frozenset()

    # Derivatives

    @cached_property
    def _tangents(self) -> dict[Leaf, Leaf]:
        return {
            leaf: Leaf(f"d_{leaf.name}", leaf.shape, role="tangent") for leaf in self.loop.operands
        }

    @cached_property
    def _after(self) -> tuple[Leaf, ...]:
        """Placeholders of the carries after a step."""
        return tuple(
            Leaf(f"after_{leaf.name}", leaf.shape, leaf.structure, "placeholder")
            for leaf in self.loop.carries
        )

    @cached_property
    def _following(self) -> list[Node]:
        """The carries after a step, with functions of lengths as functions of their squares."""
        return fused(self.loop.following)

    @cached_property
    def _differential(self) -> list[Node]:
        """The tangents of the carries after a step, where all operands vary."""
        # Derived once for all points: operands that do not vary get the tangent 0 there.
        return simplify(differential(self._following, dict(self._tangents.items())))

    def differential(self, at: Point) -> tuple[Array, ...]:
        """dh[t + 1] = A[t] dh[t] + b[t], where A is the Jacobian of the step by h at the states,
        and b its differential by everything else."""
        loop = self.loop
        tangents = dict(zip(loop.operands, at.tangents, strict=True))
        varying = self._varying_operands(
            leaf for leaf, tangent in tangents.items() if not is_zero(tangent.node)
        )
        carries = [leaf for leaf in loop.carries if leaf in varying]
        inputs = loop.slices + loop.parameters
        constant_tangents: dict[Node, Node] = {
            self._tangents[leaf]: zeros(leaf.shape) for leaf in loop.operands if leaf not in varying
        }
        carry_tangents = [self._tangents[leaf] for leaf in carries]
        nodes = [self._differential[loop.carries.index(leaf)] for leaf in carries]
        nodes = simplify(substitute(nodes, constant_tangents))
        nodes = with_states(nodes, self._following, self._after)
        homogeneous = _without(nodes, [self._tangents[leaf] for leaf in inputs if leaf in varying])
        injected_terms = _without(nodes, carry_tangents)
        arguments = dict(zip(loop.operands, at.arguments, strict=True))
        coefficients: dict[Leaf, Array] = {leaf: arguments[leaf] for leaf in loop.slices}
        for carry, after, result in zip(loop.carries, self._after, at.results, strict=True):
            coefficients[carry] = before_steps(result, loop.is_reversed)
            coefficients[after] = after_steps(result, loop.is_reversed)
        values: dict[Node, Node] = {
            leaf: array.node for leaf, array in (*arguments.items(), *coefficients.items())
        }
        values |= {self._tangents[leaf]: tangents[leaf].node for leaf in inputs}
        stacked_terms = over_time(injected_terms, values, loop.length)
        terms = {
            _injection(carry): (carry, term)
            for carry, term in zip(carries, stacked_terms, strict=True)
            if not is_zero(term.node)
        }
        injected = {self._tangents[carry]: leaf for leaf, (carry, _) in terms.items()}
        steps = [
            Sum((node, injected[tangent]), node.shape) if tangent in injected else node
            for node, tangent in zip(homogeneous, carry_tangents, strict=True)
        ]
        states = run_recurrence(
            {self._tangents[carry]: tangents[carry] for carry in carries},
            {leaf: term for leaf, (_, term) in terms.items()} | coefficients,
            {leaf: arguments[leaf] for leaf in loop.parameters},
            steps,
            loop.length,
            loop.is_reversed,
            [*loop.singular, *with_states(loop.singular, self._following, self._after)],
            {leaf: self._tangents[carry] for leaf, (carry, _) in terms.items()},
            self._names_of_derivatives() | self._names_of_injections,
        )
        results = dict(zip(carries, states, strict=True))
        return tuple(
            results.get(carry, Array(zeros(result.node.shape)))
            for carry, result in zip(loop.carries, at.results, strict=True)
        )

    def _varying_operands(self, moved: Iterable[Leaf]) -> set[Leaf]:
        """Return the operands in `moved`, and the carries that depend on them in some step."""
        varying = set(moved)
        reads = [set(leaves([tangent])) for tangent in self._differential]
        while True:
            tangents = {self._tangents[leaf] for leaf in varying}
            carries = {
                carry
                for carry, tangents_read in zip(self.loop.carries, reads, strict=True)
                if tangents_read & tangents
            }
            if carries <= varying:
                return varying
            varying |= carries

    def _names_of_derivatives(self) -> dict[Leaf, str]:
        names = dict(self.names)
        for leaf, tangent in self._tangents.items():
            names[tangent] = f"d{self.names[leaf]}"
        for carry, after in zip(self.loop.carries, self._after, strict=True):
            names[after] = f"{self.names[carry]}_next"
        return names

    def adjoint(self, at: Point, cotangents: Sequence[Array]) -> dict[int, Array]:
        """λ[t] = A[t]ᵀ λ[t + 1] + h̄[t], which ends in λ[T] = h̄[T], for a linear loop."""
        loop = self.loop
        adjoints = {
            carry: Leaf(f"adjoint_{carry.name}", carry.shape, role="placeholder")
            for carry in loop.carries
        }
        shares = transpose(loop.following, loop.carries, [*adjoints.values()])
        pulled = [[share] for share in shares]
        terms = {
            carry: simplify([before_steps(cotangent, loop.is_reversed).node])[0]
            for carry, cotangent in zip(loop.carries, cotangents, strict=True)
        }
        injected = {_injection(carry): carry for carry, term in terms.items() if not is_zero(term)}
        for leaf, carry in injected.items():
            pulled[loop.carries.index(carry)].append(leaf)
        arguments = dict(zip(loop.operands, at.arguments, strict=True))
        states = run_recurrence(
            {
                adjoints[carry]: last_state(cotangent, loop.is_reversed)
                for carry, cotangent in zip(loop.carries, cotangents, strict=True)
            },
            {leaf: Array(terms[carry]) for leaf, carry in injected.items()}
            | {leaf: arguments[leaf] for leaf in loop.slices},
            {leaf: arguments[leaf] for leaf in loop.parameters},
            [
                Sum(tuple(contributions), carry.shape)
                for contributions, carry in zip(pulled, loop.carries, strict=True)
            ],
            loop.length,
            not loop.is_reversed,
            loop.singular,
            {leaf: adjoints[carry] for leaf, carry in injected.items()},
            self.names | self._names_of_adjoints(adjoints) | self._names_of_injections,
        )
        results = {
            position: last_state(adjoint, not loop.is_reversed)
            for position, adjoint in enumerate(states)
        }
        for position, carry_position in enumerate(loop.injections or (), len(loop.carries)):
            results[position] = before_steps(states[carry_position], not loop.is_reversed)
        return results

    @property
    def _names_of_injections(self) -> dict[Leaf, str]:
        carries = self.loop.carries
        several = len(carries) > 1
        return {_injection(leaf): f"b_{self.names[leaf]}" if several else "b" for leaf in carries}

    def _names_of_adjoints(self, adjoints: Mapping[Leaf, Leaf]) -> dict[Leaf, str]:
        """Call an adjoint λ, with the name of its carry where there are several."""
        if len(adjoints) == 1:
            return dict.fromkeys(adjoints.values(), "λ")
        primal = {carry: self.names[carry].removeprefix("d") for carry in adjoints}
        return {leaf: f"λ_{primal[carry]}" for carry, leaf in adjoints.items()}

    # Values

    def value(
        self, arguments: Sequence[np.ndarray], parameters: Parameters
    ) -> tuple[np.ndarray, ...]:
        """Run the loop for each index of the leading axes."""
        return value_by_index(arguments, self.argument_shapes, self._result_shapes, self._states)

    def _states(
        self, arguments: Sequence[np.ndarray], sizes: Mapping[str, int]
    ) -> list[np.ndarray]:
        loop = self.loop
        values = {leaf.name: a for leaf, a in zip(loop.operands, arguments, strict=True)}
        length = len(values[loop.slices[0].name])
        states = [[np.asarray(values[leaf.name], dtype=np.float64) for leaf in loop.carries]]
        times = range(length)
        for time in reversed(times) if loop.is_reversed else times:
            step = {leaf.name: values[leaf.name][time] for leaf in loop.slices}
            carried = {leaf.name: a for leaf, a in zip(loop.carries, states[-1], strict=True)}
            states.append(evaluate_all(loop.following, {**values, **step, **carried}, sizes))
        if loop.is_reversed:
            states.reverse()
        return [np.stack(carry_states) for carry_states in zip(*states, strict=True)]

    # Text

    def numpy(self, arguments: Sequence[str], parameters: Parameters, output: int) -> str:
        """Call the text of the loop: the states, of several carries a tuple."""
        return f"{self._numpy_function}({', '.join(arguments)})"

    @cached_property
    def _numpy_function(self) -> str:
        """The text of a function that runs the loop for each index of the leading axes."""
        loop = self.loop
        arrays = [
            Leaf(f"{leaf.name}_", shape)
            for leaf, shape in zip(loop.operands, self.argument_shapes, strict=True)
        ]
        sizes = size_readings(arrays)
        names = [leaf.name for leaf in loop.operands]
        stepping = ", ".join([leaf.name for leaf in (*loop.carries, *loop.slices)])
        slices = "".join(f", {leaf.name}_[t]" for leaf in loop.slices)
        bound = {leaf.name: f"{leaf.name}_" for leaf in loop.parameters}
        signature = f"{stepping}{''.join(f', {p}={a}' for p, a in bound.items())}"
        step = f"(lambda {signature}: {numpy_tuple(loop.following, sizes)})"
        times = f"np.arange({loop.slices[0].name}_.shape[0])" + "[::-1]" * loop.is_reversed
        starts = ", ".join(f"{leaf.name}_" for leaf in loop.carries)
        order = "[::-1]" if loop.is_reversed else ""
        first_slice = len(loop.carries)
        stacked = ", ".join(
            f"np.array([state[{position}] for state in states{order}])"
            for position in range(first_slice)
        )
        run = (
            f"[states := [({starts},)], [states.append({step}(*states[-1]{slices})) "
            f"for t in {times}], {f'({stacked})' if first_slice > 1 else stacked}][-1]"
        )
        states = f"np.zeros(np.shape(a[{first_slice}])[{-1 - loop.slices[0].ndim}] + 1)"
        axes_names = (f"a{number}" for number in count())
        shapes = ["s"]
        for leaf in loop.operands:
            axes = ["t"] * (leaf in loop.slices) + [next(axes_names) for _ in leaf.shape]
            shapes.append(",".join(axes))
        results = [",".join(filter(None, ["s", shape])) for shape in shapes[1 : first_slice + 1]]
        inputs, outputs = (",".join(f"({shape})" for shape in side) for side in (shapes, results))
        signature, types = f"{inputs}->{outputs}", "d" * len(results)
        parameters_text = ", ".join(["s_", *(f"{name}_" for name in names)])
        return (
            f"(lambda *a: np.vectorize(lambda {parameters_text}: {run}, otypes='{types}', "
            f"signature='{signature}')({states}, *a))"
        )


def value_by_index(
    arguments: Sequence[np.ndarray],
    argument_shapes: Sequence[Shape],
    result_shapes: Sequence[Shape],
    value: Callable[[list[np.ndarray], Mapping[str, int]], Sequence[np.ndarray]],
) -> tuple[np.ndarray, ...]:
    """Compute the results of an operation for each index of the leading axes.

    argument_shapes, result_shapes: without these axes. value: computes the results for one index,
    and for sizes by their names.
    """
    stacks = [
        array.shape[: array.ndim - len(shape)]
        for array, shape in zip(arguments, argument_shapes, strict=True)
    ]
    stack = np.broadcast_shapes(*stacks)
    arrays = [
        np.broadcast_to(array, stack + array.shape[len(axes) :])
        for array, axes in zip(arguments, stacks, strict=True)
    ]
    sizes: dict[str, int] = {}
    for symbol, reading in readings(argument_shapes).items():
        length = sympy.Integer(arrays[reading.position].shape[len(stack) + reading.axis])
        sizes[symbol.name] = int(evaluate(reading.value.xreplace({LENGTH: length}), sizes))
    by_index = [value([a[at] for a in arrays], sizes) for at in np.ndindex(*stack)]
    if not by_index:
        return tuple(
            np.empty((*stack, *(int(evaluate(size, sizes)) for size in shape)))
            for shape in result_shapes
        )
    # not of `result_shapes`: an axis of length n p says neither n nor p
    return tuple(
        np.reshape(parts, (*stack, *parts[0].shape)) for parts in zip(*by_index, strict=True)
    )


def step_text(loop: Loop) -> str:
    """Write the equations of a step as a formula, as "h = a + W h"."""
    named_operands = {
        leaf: Leaf(name, leaf.shape, leaf.structure)
        for leaf, name in zip(loop.operands, loop.names, strict=True)
    }
    bodies = substitute(loop.following, named_operands)
    return ", ".join(
        f"{render(leaf, 'unicode')} = {render(body, 'unicode')}"
        for leaf, body in zip(named_operands.values(), bodies, strict=False)
    )


def _injection(carry: Leaf) -> Leaf:
    """Return the placeholder of the term that a linear loop adds to a carry."""
    return Leaf(f"b_{carry.name}", carry.shape, role="placeholder")


def _without(nodes: Sequence[Node], tangents: Sequence[Leaf]) -> list[Node]:
    """Set tangents in linear expressions of tangents to zero."""
    return simplify(substitute(nodes, {leaf: zeros(leaf.shape) for leaf in tangents}))
