"""The visitor and the rebuilder of plans, and those of graphs of nodes."""

from __future__ import annotations

import dataclasses

import sympy

import derivatrix as dx
from derivatrix.compiler.ir.graph import depending, references, transformed
from derivatrix.compiler.ir.nodes import Leaf, Node, Sum, topological
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Clear,
    Fill,
    Let,
    Load,
    Loop,
    LoopNest,
    Name,
    Operate,
    Start,
    Store,
)
from derivatrix.compiler.plan.visit import (
    accesses,
    buffers,
    loops,
    names_added,
    names_defined,
    names_read,
    rebuilt,
    renamed,
    stores,
    targets,
)

i, j, n = sympy.symbols("i j n", integer=True)
x, y = Buffer("x", (n,), "argument"), Buffer("y", (n,), "output")
LET = Let("a0", Operate("mul", (Load(x, (i,)), Load(x, (i,)))))
STORE = Store(Load(y, (i,)), Operate("add", (Name("a0"), Load(x, (i,)))), False)
LOOP = Loop(i, n, False, (LET, STORE))
NEST = LoopNest("y[i] = ...", (Clear(Load(y, ())), LOOP, Start("s0"), Accumulate("s0", Name("a1"))))


def test_what_statements_touch() -> None:
    """Accesses are in order; a store does not read."""
    read = (Load(x, (i,)), False)
    writes = [(Load(y, ()), True), read, read, (Load(y, (i,)), True), read]
    assert list(accesses(NEST)) == writes
    assert [buffer.name for buffer in buffers(NEST)] == ["y", "x", "x", "y", "x"]
    assert targets(NEST) == {y} and targets(Fill(x)) == {x} and targets([LET]) == set()
    assert list(loops(NEST)) == [LOOP] and list(stores(NEST)) == [STORE]


def test_names_of_scalars() -> None:
    assert list(names_defined(NEST)) == ["a0", "s0"]
    assert list(names_read(NEST)) == ["a0", "a1"]
    assert list(names_added(NEST)) == ["s0"]


def test_parts_changed() -> None:
    """The outermost change counts, and all else stays."""
    assert rebuilt(NEST, lambda part: None) == NEST
    other = Store(Load(y, (j,)), Name("a0"), True)
    changed = rebuilt(NEST, lambda part: other if isinstance(part, Store) else None)
    assert changed.body[1] == dataclasses.replace(LOOP, body=(LET, other))
    assert renamed(LET, {i: j}).value.operands[0] == Load(x, (j,))


A, b = dx.matrix("A", n, n), dx.vector("b", n)


def test_graphs_rebuilt() -> None:
    root = dx.exp(A @ b) + A @ b
    order = topological([root.node])
    assert transformed([root.node], lambda node: node) == [root.node]

    def doubled(node: Node) -> Node:
        return Sum((node, node), node.shape) if isinstance(node, Leaf) else node

    (made,) = transformed([root.node], doubled)
    both = [node for node in topological([made]) if isinstance(node, Sum)]
    assert [references(node) for node in both[:2]] == [[A.node] * 2, [b.node] * 2]
    assert depending(order, [b.node]) == {*order} - {A.node}
