"""Loops over time as books write them: the equation of a step, and where the states start."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import chain, count, islice

import sympy

from derivatrix.compiler.formulas.build import Builder
from derivatrix.compiler.formulas.definitions import Definition
from derivatrix.compiler.formulas.indexing import index_texts
from derivatrix.compiler.formulas.tree import Indices, Running, Tree, index_of
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.substitute import substitute

TIMES = "tsrkuvw"
"""Letters for the time."""
INDICES = "ijklpqabcdefg"
"""Letters for stacked axes and entries."""


def states(builder: Builder, node: ir.Apply) -> Tree:
    """Return the name of the states of a loop, defined by the equations of all of its carries:
    h[t + 1] = tanh(W h[t] + U X[t]) and h[0] = h₀."""
    if node not in builder.named:
        _define(builder, node)
    return builder.named[node]


def _define(builder: Builder, node: ir.Apply) -> None:
    loop = node.operation.loop
    assert loop is not None
    arguments = [argument for argument, _ in node.arguments]
    for inner in ir.topological(arguments):  # so that their letters may be those of this loop
        if isinstance(inner, ir.Apply) and inner.operation.loop is not None:
            states(builder, inner)
    all_states = [node.sibling(position) for position in range(len(loop.carries))]
    for carry_states in all_states:
        builder.named[carry_states] = builder.fresh_name(carry_states)
    outer = builder.running
    time, *stack = _running(builder, node)
    builder.running = outer | {symbol.name for symbol in (time, *stack)}
    before, after = (time + 1, time) if loop.is_reversed else (time, time + 1)
    first_time = loop.length if loop.is_reversed else sympy.S.Zero
    placeholders: dict[ir.Node, ir.Node] = {}
    for position, leaf in enumerate(loop.operands):
        argument, labels = node.arguments[position]
        indices = tuple(stack[label] for label in labels)
        placeholder = ir.Leaf(f"{node.key} {leaf.name}", leaf.shape, leaf.structure, leaf.role)
        placeholders[leaf] = placeholder
        if leaf in loop.carries:
            builder.bound[placeholder] = all_states[position], (*stack, before)
        else:
            times = (time,) if leaf in loop.slices else ()
            builder.bound[placeholder] = argument, (*indices, *times)
    equations = []
    bodies = substitute(loop.following, placeholders)
    builder.count_uses(bodies)
    for position, (carry_states, body) in enumerate(zip(all_states, bodies, strict=True)):
        entry: Indices = (None,) * body.ndim
        if builder.by_index:
            free = _free_letters(INDICES, builder.reserved | builder.running)
            entry = tuple(map(index_of, islice(free, body.ndim)))
        scope = builder.running | index_texts(entry)
        start, labels = node.arguments[position]
        first_indices = tuple(stack[label] for label in labels)
        for index, tree in (
            (after, builder.tree(body, entry, scope)),
            (first_time, builder.tree(start, (*first_indices, *entry), scope)),
        ):
            name, letter = builder.named[carry_states], node.operation.letters[position]
            left_indices: Indices = (*stack, index, *entry)
            equations.append(Definition(name, tree, left_indices, carry_states.shape, letter))
    builder.definitions += equations
    builder.running = outer


def _running(builder: Builder, node: ir.Apply) -> Iterator[Running]:
    """Choose letters for the time and the stacked axes of a loop, other ones than those of the
    loops around it, and than the letters of states."""
    occupied = builder.reserved | builder.running
    for loop_node in (*builder.order, node):
        if isinstance(loop_node, ir.Apply) and loop_node.operation.loop is not None:
            occupied.update(loop_node.operation.letters)
    for letters in (TIMES, *(INDICES for _ in node.stack)):
        letter = next(_free_letters(letters, occupied))
        occupied.add(letter)
        yield Running(letter, integer=True)


def _free_letters(letters: str, occupied: Set[str]) -> Iterator[str]:
    """Yield the letters that are not occupied, then t1, t2, ... if "t" is the first one."""
    numbered = (f"{letters[0]}{number}" for number in count(1))
    return (name for name in chain(letters, numbered) if name not in occupied)
