"""Loops over time as books write them: the equation of a step, and where the states start."""

from __future__ import annotations

import sympy

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Builder
from derivatrix.compiler.formulas.definitions import Definition
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.substitute import substitute

TIMES = "tsrkuvw"
"""Letters for the time."""


def is_written(node: ir.Apply) -> bool:
    """Return whether a node is the states of a loop that is written by equations of a step."""
    return node.operation.loop is not None and not node.stack


def states(builder: Builder, node: ir.Apply) -> Tree:
    """Return the name of the states of a loop, defined by the equations of all of its carries:
    h[t + 1] = tanh(W h[t] + U X[t]) and h[0] = h₀."""
    if node not in builder.named:
        _define(builder, node)
    return builder.named[node]


def _define(builder: Builder, node: ir.Apply) -> None:
    loop = node.operation.loop
    assert loop is not None
    time = _time(builder)
    before, after = (time + 1, time) if loop.is_reversed else (time, time + 1)
    first = loop.length if loop.is_reversed else sympy.S.Zero
    all_states = [node.sibling(position) for position in range(len(loop.carries))]
    for carry_states in all_states:
        builder.named[carry_states] = builder.fresh_name(carry_states)
    arguments = [argument for argument, _ in node.arguments]
    placeholders: dict[ir.Node, ir.Node] = {}
    for leaf, argument in zip(loop.operands, arguments, strict=True):
        placeholder = ir.Leaf(f"{node.key} {leaf.name}", leaf.shape, leaf.structure, leaf.role)
        placeholders[leaf] = placeholder
        axes = (None,) * leaf.ndim
        if leaf in loop.carries:
            name = builder.named[all_states[loop.carries.index(leaf)]]
            builder.bound[placeholder] = kinds.AtTime(name, (before, *axes))
        elif leaf in loop.slices:
            source, start = _range(argument)
            tree = _whole(builder, source)
            builder.bound[placeholder] = kinds.AtTime(tree, (time + start, *axes))
        else:
            placeholders[leaf] = argument
    equations = []
    bodies = substitute(loop.following, placeholders)
    for carry_states, body, start in zip(all_states, bodies, arguments, strict=False):
        name = builder.named[carry_states]
        letter = node.operation.letters[carry_states.output]
        for index, part in ((after, body), (first, start)):
            indices = (index, *(None,) * part.ndim)
            tree = _whole(builder, part)
            equations.append(Definition(name, tree, indices, carry_states.shape, letter))
    builder.definitions += equations


def _whole(builder: Builder, node: ir.Node) -> Tree:
    return builder.tree(node, (None,) * node.ndim, frozenset())


def _time(builder: Builder) -> sympy.Symbol:
    """Choose a letter for the time."""
    letter = next((name for name in TIMES if name not in builder.reserved), "time")
    return sympy.Symbol(letter, integer=True)


def _range(node: ir.Node) -> tuple[ir.Node, sympy.Expr]:
    """Return X and k where a node is X[k:] or X[k:l], maybe with another factor; else the node
    and 0."""
    for position, (part, labels) in enumerate(node.factors if isinstance(node, ir.Einsum) else ()):
        assert isinstance(node, ir.Einsum)
        others = node.factors[:position] + node.factors[position + 1 :]
        is_slice = isinstance(part, ir.Slice) and part.step == 1 and labels[0] == 0
        if is_slice and labels[1] >= node.ndim and 0 not in ir.labels_of(others):
            assert isinstance(part, ir.Slice)
            output = (labels[1], *range(1, node.ndim))
            sizes = {**dict(enumerate(node.shape[1:], 1)), labels[1]: part.shape[1]}
            source = ir.einsum(others, output, node.coefficient, sizes)
            is_whole = source.factors == ((others[0][0], (*range(node.ndim),)),)
            return (others[0][0] if is_whole and source.coefficient == 1 else source), part.start
    return node, sympy.S.Zero
