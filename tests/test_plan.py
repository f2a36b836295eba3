"""Plans compute what the graph says: random graphs against the NumPy evaluator."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import sympy
from derivatrix.compiler import ir
from derivatrix.compiler.dimensions import dims
from derivatrix.compiler.evaluate import evaluate_all
from derivatrix.compiler.plan import plan
from derivatrix.compiler.printer import kernel_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

n, m = dims("n m")
SIZES = {"n": 3, "m": 2}
LENGTHS = [n, m, sympy.Integer(2), sympy.Integer(4), n - 1]
MAPS = [
    lambda x, y: sympy.tanh(x) * y,
    lambda x, y: sympy.exp(-(x**2)) - y / 2,
    lambda x, y: sympy.Max(x, y) * sympy.Rational(1, 3),
    lambda x, y: sympy.Piecewise((x * y, x > y), (y**3, True)),
    lambda x, y: x / (2 + y**2),
    lambda x, y: sympy.sqrt(1 + x**2) * sympy.sign(y) - sympy.Abs(x),
]


class Graphs:
    """Random graphs over a handful of leaves."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.leaves = [ir.Leaf("N", (n, m))]

    def node(self, shape: tuple, depth: int) -> ir.Node:
        kinds = ["leaf"] if depth == 0 else ["leaf", "sum", "map", "einsum", "einsum", "einsum"]
        kind = self.choose.choice(kinds)
        if kind == "sum":
            count = self.choose.randint(1, 3)
            return ir.Sum(tuple(self.node(shape, depth - 1) for _ in range(count)), shape)
        if kind == "map":
            arguments = self.node(shape, depth - 1), self.node(shape, depth - 1)
            return ir.Map(self.choose.choice(MAPS)(ir.slot(0), ir.slot(1)), arguments)
        if kind == "einsum":
            return self.einsum(shape, depth)
        return self.leaf(shape)

    def leaf(self, shape: tuple) -> ir.Node:
        fitting = [leaf for leaf in self.leaves if leaf.shape == shape]
        if fitting and self.choose.random() < 0.7:
            return self.choose.choice(fitting)
        if len(shape) <= 1 and self.choose.random() < 0.15 and all(s.is_Integer for s in shape):
            return ir.Constant(np.arange(1.0, 1 + math.prod(map(int, shape))).reshape(shape))
        if self.choose.random() < 0.1:
            return ir.full(self.choose.choice([n, sympy.Rational(1, 3), 2]), shape)
        self.leaves.append(ir.Leaf(f"A{len(self.leaves)}", shape))
        return self.leaves[-1]

    def einsum(self, shape: tuple, depth: int) -> ir.Node:
        sizes = list(shape) + [self.choose.choice(LENGTHS) for _ in range(self.choose.randint(0, 2))]
        factors: list[tuple[ir.Node, tuple[int, ...]]] = []
        for _ in range(self.choose.randint(0, 2)):
            structural = self.structural(sizes)
            factors += [structural] if structural else []
        for _ in range(self.choose.randint(1, 3)):
            rank = self.choose.randint(0, min(3, len(sizes)))
            labels = tuple(self.choose.randrange(len(sizes)) for _ in range(rank))
            if self.choose.random() < 0.8:
                labels = tuple(dict.fromkeys(labels))
            factors.append((self.node(tuple(sizes[l] for l in labels), depth - 1), labels))
        coefficient = self.choose.choice([1, 1, -1, 2, sympy.Rational(-1, 2), 1 / n])
        return ir.Einsum(sympy.sympify(coefficient), tuple(factors), tuple(sizes), len(shape))

    def structural(self, sizes: list) -> tuple[ir.Node, tuple[int, ...]] | None:
        if not sizes:
            return None
        first, second = (self.choose.randrange(len(sizes)) for _ in range(2))
        kind = self.choose.choice(["delta", "select", "select", "triangle"])
        if kind == "triangle":
            offset = self.choose.randint(-1, 1)
            return ir.Triangle(sizes[first], sizes[second], offset), (first, second)
        if kind == "delta" and sizes[first] == sizes[second]:
            return ir.Delta(sizes[first]), (first, second)
        count, size = (int(sizes[l].subs({n: 3, m: 2})) for l in (first, second))
        starts = [
            (start, step)
            for start in range(size)
            for step in (1, 2, -1, -2)
            if 0 <= start + step * (count - 1) < size
        ]
        if kind == "delta" or not starts:
            return None
        start, step = self.choose.choice(starts)
        return ir.Select(sizes[first], sizes[second], sympy.Integer(start), step), (first, second)


def gemm(alpha, a, transpose_a, b, transpose_b, beta, c):
    """What the helper kernel does, in NumPy."""
    product = alpha * (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    c[...] = product + (beta * c if beta else 0)


def run_plain(made, values: dict[str, np.ndarray], outputs: list[np.ndarray]) -> None:
    """Run a kernel's text as plain Python."""
    text = kernel_text(made, "")
    lines = [*text.head, *(line for step in text.steps for line in step.lines), "return"]
    body = "\n".join(f"    {line}" for line in lines)
    scope: dict = {"np": np, "math": math, "gemm": gemm}
    scope.update(dict(made.constants))
    scope.update({kernel.__name__: kernel for kernel in made.kernels})
    exec(f"def kernel({text.parameters}):\n{body}", scope)
    inputs = [values[a.name] if a.shape else values[a.name][()] for a in made.arguments]
    with np.errstate(all="ignore"):
        scope["kernel"](*inputs, *outputs)


def sample(leaves: list[ir.Leaf], seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        leaf.name: generator.normal(size=[int(s.subs({n: 3, m: 2})) for s in leaf.shape])
        for leaf in leaves
    }


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_graphs_as_plain_python(choose: random.Random) -> None:
    graphs = Graphs(choose)
    shapes = [
        tuple(choose.choice(LENGTHS) for _ in range(choose.randint(0, 3)))
        for _ in range(choose.randint(1, 2))
    ]
    nodes = [graphs.node(shape, 3) for shape in shapes]
    values = sample(graphs.leaves)
    expected = evaluate_all(nodes, values, SIZES)
    made = plan("kernel", graphs.leaves, [(f"out_{p}", node) for p, node in enumerate(nodes)])
    outputs = [np.full(array.shape, np.nan) for array in expected]
    run_plain(made, values, outputs)
    for output, array in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, array, rtol=1e-9, atol=1e-9, err_msg=str(made))
