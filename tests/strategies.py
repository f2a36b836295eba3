"""Random nodes of the intermediate representation and random expressions, shapes consistent by
construction, for Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import sympy
from hypothesis import strategies as st

import derivatrix.compiler.frontends.arrays as dx
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.nodes import (
    Apply,
    Delta,
    Einsum,
    Leaf,
    Map,
    Node,
    Slice,
    Sum,
    Triangle,
    einsum,
    slot,
)
from derivatrix.compiler.operations import OPERATIONS, Operation
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.pseudoinverse import PINV

SIZE = sympy.Integer(3)
LEAVES = {
    "M": Leaf("M", (SIZE, SIZE)),
    "H": Leaf("H", (SIZE, SIZE), "symmetric"),
    "O": Leaf("O", (SIZE, SIZE), "orthogonal"),
    "L": Leaf("L", (SIZE, SIZE), "lower"),
    "v": Leaf("v", (SIZE,), "positive"),
    "w": Leaf("w", (SIZE,)),
    "s": Leaf("s", ()),
}


def leaf_values(seed: int) -> dict[str, np.ndarray]:
    """An array of its structure for each leaf."""
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(3, 3))
    return {
        "M": matrix + 2 * np.eye(3),
        "H": matrix + matrix.T,
        "O": np.linalg.qr(matrix)[0],
        "L": np.tril(generator.normal(size=(3, 3))) + 2 * np.eye(3),
        "v": np.exp(generator.normal(size=3)),
        "w": generator.normal(size=3),
        "s": np.asarray(generator.normal()),
    }


def _atoms() -> list[Node]:
    vector, matrix = LEAVES["v"], LEAVES["M"]
    return [
        *LEAVES.values(),
        Delta(SIZE),
        Slice(SIZE, SIZE, sympy.S.Zero, 1),
        Slice(sympy.Integer(2), SIZE, sympy.S.One, 1),
        Slice(sympy.Integer(2), SIZE, sympy.S.Zero, 2),
        Slice(SIZE, SIZE, sympy.Integer(2), -1),
        Triangle(SIZE, SIZE),
        Triangle(SIZE, SIZE, 1),
        Map(1 / slot(0), (vector,)),
        Map(sympy.sqrt(slot(0)), (vector,)),
        Map(sympy.exp(slot(0)), (LEAVES["w"],)),
        Apply(INVERSE, ((matrix, ()),)),
        Apply(INVERSE, ((LEAVES["L"], ()),)),
        Apply(INVERSE, ((einsum([(matrix, "ki"), (matrix, "kj")], "ij"), ()),)),
        Apply(PINV, ((matrix, ()),)),
    ]


ATOMS = _atoms()


@st.composite
def products(draw: Any, atoms: tuple[Node, ...] = ()) -> Einsum:
    """A product of up to five factors with randomly shared labels."""
    pool = [*ATOMS, *atoms]
    factors = []
    labels: dict[Any, list[int]] = {}
    count = 0
    for node in draw(st.lists(st.sampled_from(pool), min_size=1, max_size=5)):
        own = []
        for size in node.shape:
            known = labels.setdefault(size, [])
            if known and draw(st.integers(0, 3)):
                own.append(draw(st.sampled_from(known)))
            else:
                known.append(count)
                own.append(count)
                count += 1
        factors.append((node, tuple(own)))
    every = [label for group in labels.values() for label in group]
    output = draw(st.lists(st.sampled_from(every), unique=True, max_size=3)) if every else []
    coefficient = draw(st.sampled_from([sympy.S.One, sympy.Rational(-1, 2), sympy.Float(0.7, 17)]))
    return einsum(factors, output, coefficient)


@st.composite
def nodes(draw: Any) -> Node:
    """A product, a sum of like-shaped products, or a product with a sum among its factors."""
    first = draw(products())
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return first
    second = draw(products().filter(lambda node: node.shape == first.shape))
    total = Sum((first, second, first), first.shape)
    return total if kind == 1 else draw(products(atoms=(total,)))


@st.composite
def expressions(draw: Any, depth: int = 3) -> Array:
    """A random expression of the leaves with derivatrix's own functions; rank 0, 1 or 2, every
    axis of length 3, domains respected."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return Array(draw(st.sampled_from(list(LEAVES.values()))))
    inner = expressions(depth=depth - 1)
    rules = REGISTRY if draw(st.integers(0, 9)) == 0 else RULES
    rule = draw(st.sampled_from(rules))
    operands = [draw(inner) for _ in range(arity(rule))]
    return rule(*operands)


def arity(rule: Callable[..., Array]) -> int:
    """Count the arrays that are arguments of a rule."""
    return len(rule.operation.ranks) if isinstance(rule, Recorded) else rule.__code__.co_argcount


def _matrix(array: Array) -> Array:
    return array if array.ndim == 2 else dx.diag(_vector(array))


def _vector(array: Array) -> Array:
    if array.ndim == 2:
        return dx.sum(array, axis=0)
    return array if array.ndim else array * Array(LEAVES["w"])


def _definite(array: Array) -> Array:
    return _matrix(array).T @ _matrix(array) + dx.eye(3)


def _separated(array: Array) -> Array:
    """A positive definite matrix without eigenvalues near each other or near 1, at which every
    operation of the registry is smooth; of a matrix or scalar the diagonal of one for a vector."""
    apart = dx.constant([0.4, 1.2, 2.0])
    bounded = dx.tanh(_matrix(array))
    return dx.diag(apart) + 0.05 * (bounded + bounded.T)


class Recorded(NamedTuple):
    """A rule made of an output of a record of the registry, at arguments where it is smooth."""

    operation: Operation
    output: int

    def __call__(self, *arrays: Array) -> Array:
        arguments = [_separated(array) for array in arrays]
        ranked = [
            matrix if rank == 2 else dx.diagonal(matrix)
            for matrix, rank in zip(arguments, self.operation.ranks, strict=True)
        ]
        result = calling(self.operation)(*ranked)
        result = result[self.output] if self.operation.outputs else result
        return dx.sum(result, axis=(0, 1)) if result.ndim == 4 else result


REGISTRY = [
    Recorded(operation, output)
    for operation in OPERATIONS.values()
    for output in range(max(len(operation.outputs), 1))
]

RULES = (
    lambda a, b: a + 0.5 * b,
    lambda a, b: a - b,
    lambda a, b: 0.3 * a - 0.1 * b,
    lambda a: 0.7 * a,
    lambda a: a / 0.7,
    lambda a: (2 + dx.sin(a)) ** 0.3,
    lambda a, b: a * b,
    lambda a, b: _matrix(a) @ _matrix(b),
    lambda a, b: _matrix(a) @ _vector(b),
    lambda a, b: dx.outer(_vector(a), _vector(b)),
    lambda a, b: _vector(a) @ _vector(b),
    lambda a, b: a / (2 + b**2),
    lambda a: a.T,
    lambda a: dx.tanh(a),
    lambda a: dx.exp(-dx.tanh(a)),
    lambda a: dx.sqrt(1 + a**2),
    lambda a: dx.log(2 + dx.sin(a)),
    lambda a: dx.trace(_matrix(a)),
    lambda a: dx.sum(a),
    lambda a: dx.diagonal(_matrix(a)),
    lambda a: dx.inv(_definite(a)),
    lambda a, b: dx.solve(_definite(a), _vector(b)),
    lambda a: dx.logdet(_definite(a)),
    lambda a: dx.det(dx.eye(3) + 0.1 * _matrix(a)),
    lambda a: dx.softmax(_vector(a)),
    lambda a: dx.softmax(_matrix(a), axis=1),
    lambda a: dx.logsumexp(_matrix(a), axis=1),
    lambda a: _vector(a)[1:] @ _vector(a)[:-1],
    lambda a: _matrix(a)[0, ::-1],
    lambda a: dx.tril(_matrix(a)),
    lambda a: dx.concatenate([_vector(a)[:1], _vector(a)[1:]]),
    lambda a, b: dx.norm(_matrix(a) + 3 * dx.eye(3)) * b,
    lambda a, b: dx.solve_sylvester(_definite(a), _definite(b), _matrix(a)),
)
