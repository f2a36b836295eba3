"""Plans compute what the graph says: random graphs against the NumPy evaluator."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import random
from pathlib import Path
from types import ModuleType
from unittest import mock

import numba
import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.emit.cpu.module import emit
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import support_digest
from derivatrix.compiler.emit.statements import Printer
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import LENGTH, dims
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.compiler.plan import Plan, plan, sample_sums, threaded_plan
from derivatrix.compiler.plan.steps import Allocate, Call, Gemm, LoopNest, Reuse
from derivatrix.runtime.errors import DeclarationError, UnsupportedError
from derivatrix.runtime.support import package_for
from tests.packages import texts_of, write_files
from tests.plain import run_plain

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


def length(size: sympy.Expr) -> int:
    return int(size.xreplace({n: sympy.Integer(3), m: sympy.Integer(2)}))


class Graphs:
    """Random graphs over a handful of leaves."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.leaves = [ir.Leaf("N", (n, m))]

    def node(self, shape: tuple, depth: int) -> ir.Node:
        kinds = ["leaf"] if depth == 0 else ["sum", "map", "apply", *["einsum"] * 4]
        kind = self.choose.choice(kinds)
        if kind == "sum":
            count = self.choose.randint(1, 3)
            return ir.Sum(tuple(self.node(shape, depth - 1) for _ in range(count)), shape)
        if kind == "map":
            arguments = self.node(shape, depth - 1), self.node(shape, depth - 1)
            return ir.Map(self.choose.choice(MAPS)(ir.slot(0), ir.slot(1)), arguments)
        if kind == "einsum":
            return self.einsum(shape, depth)
        if kind == "apply":
            return self.apply(shape, depth)
        return self.leaf(shape)

    def apply(self, shape: tuple, depth: int) -> ir.Node:
        if len(shape) > 1 and shape[-1] == shape[-2] and shape[-1].is_positive:
            stack = tuple(range(len(shape) - 2))
            labels = (*stack, len(shape) - 2, len(shape) - 1)
            small = ir.einsum([(self.node(shape, depth - 1), labels)], labels, sympy.Rational(1, 9))
            bounded = ir.Map(sympy.tanh(ir.slot(0)), (small,))
            identity = ir.einsum(
                [(ir.Delta(shape[-1]), labels[-2:])], labels, 3, dict(enumerate(shape))
            )
            matrix: ir.Node = ir.Sum((bounded, identity), shape)
            names = self.choose.choice([["inv"], ["half_lower"], ["half_lower", "inv"]])
            for name in names:
                matrix = ir.Apply(OPERATIONS[name], ((matrix, stack),), shape[:-2])
            return matrix
        if not shape or self.choose.random() < 0.5:
            rows = self.node((*shape, sympy.Integer(2)), depth - 1)
            stack = tuple(range(len(shape)))
            return ir.Apply(OPERATIONS["logsumexp"], ((rows, stack),), shape)
        stack = tuple(range(len(shape) - 1))
        rows = self.node(shape, depth - 1)
        return ir.Apply(OPERATIONS["softmax"], ((rows, stack),), shape[:-1])

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
        further = self.choose.randint(0, 2)
        sizes = list(shape) + [self.choose.choice(LENGTHS) for _ in range(further)]
        factors: list[tuple[ir.Node, tuple[int, ...]]] = []
        for _ in range(self.choose.randint(0, 2)):
            structural = self.structural(sizes)
            factors += [structural] if structural else []
        for _ in range(self.choose.randint(1, 3)):
            rank = self.choose.randint(0, min(3, len(sizes)))
            labels = tuple(self.choose.randrange(len(sizes)) for _ in range(rank))
            if self.choose.random() < 0.8:
                labels = tuple(dict.fromkeys(labels))
            factors.append((self.node(tuple(sizes[label] for label in labels), depth - 1), labels))
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
        count, size = (length(sizes[label]) for label in (first, second))
        starts = [
            (start, step)
            for start in range(size)
            for step in (1, 2, -1, -2)
            if 0 <= start + step * (count - 1) < size
        ]
        if kind == "delta" or not starts:
            return None
        start, step = self.choose.choice(starts)
        return ir.Slice(sizes[first], sizes[second], sympy.Integer(start), step), (first, second)


def sample(leaves: list[ir.Leaf], seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {leaf.name: generator.normal(size=[length(s) for s in leaf.shape]) for leaf in leaves}


def random_case(choose: random.Random) -> tuple[Plan, dict[str, np.ndarray], list[np.ndarray]]:
    """A plan, its arguments, and what it should compute."""
    graphs = Graphs(choose)
    shapes = [
        tuple(choose.choice(LENGTHS) for _ in range(choose.randint(0, 3)))
        for _ in range(choose.randint(1, 2))
    ]
    nodes = [graphs.node(shape, 3) for shape in shapes]
    values = sample(graphs.leaves)
    outputs = [(f"out_p{p}", node) for p, node in enumerate(nodes)]
    reuse = choose.choice([0, sample_sums.MIN_OPS_PER_READ])
    with mock.patch.object(sample_sums, "MIN_OPS_PER_READ", reuse):
        kernel = threaded_plan("kernel", graphs.leaves, outputs)
    return kernel, values, evaluate_all(nodes, values, SIZES)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_graphs_as_plain_python(choose: random.Random) -> None:
    kernel, values, expected = random_case(choose)
    for variant in (kernel, *kernel.variants):
        outputs = [np.full(array.shape, np.nan) for array in expected]
        run_plain(variant, values, outputs)
        for output, array in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(output, array, rtol=1e-9, atol=1e-9, err_msg=str(variant))


def test_a_diagonal_is_no_copy_in_another_order() -> None:
    A, B = dx.tensor("A", n, m, n), dx.matrix("B", m, m)
    function = dx.function("f", [A, B], dx.einsum("iji->ij", A) @ B)
    values = {"A": np.arange(18.0).reshape(3, 2, 3), "B": np.arange(4.0).reshape(2, 2)}
    result = np.full((3, 2), np.nan)
    run_plain(kernel_plan(function.derivatives, "value"), values, [result])
    np.testing.assert_array_equal(result, np.einsum("iji->ij", values["A"]) @ values["B"])


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_compiled(seed: int, tmp_path: Path) -> None:
    kernel, values, expected = random_case(random.Random(seed))
    result = tuple((name.removeprefix("out_"), name) for name, _ in kernel.outputs)
    module = load(tmp_path, f"random{seed}", [FunctionDescription("value", (), kernel, result)])
    for real, tolerance in ((np.float64, 1e-9), (np.float32, 2e-3)):
        arguments = [values[argument.name].astype(real) for argument in kernel.arguments]
        for output, array in zip(module.value(*arguments), expected, strict=True):
            np.testing.assert_allclose(output, array, rtol=tolerance, atol=tolerance)
            assert output.dtype == real


def load(
    folder: Path, name: str, functions: list[FunctionDescription], requirements=()
) -> ModuleType:
    """The module with these functions, written and imported."""
    facts = {"REQUIREMENTS": requirements, "FUNCTIONS": (), "TARGET": "cpu"}
    facts |= {"INPUTS": (), "OUTPUT": {"shape": (), "batched": False}, "DIGEST": ""}
    text, data, _ = emit(ModuleDescription(name, "A test.", facts, functions))
    path = write_files(folder, texts_of(name, text, data)) / f"{name}.py"
    package = package_for(path.resolve(), support_digest())
    specification = importlib.util.spec_from_file_location(f"{package}.{name}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def described(kind: str, arguments: list[ir.Leaf], node: ir.Node) -> FunctionDescription:
    return FunctionDescription(kind, "", plan(f"{kind}_kernel", arguments, [("out", node)]), "out")


def test_powers_of_half_integers_are_products_with_a_root() -> None:
    node = ir.Map(ir.slot(0) ** sympy.Rational(5, 2), (b,))
    assert "mul(pow(a0, 2), sqrt(a0))" in str(plan("kernel", [b], [("out", node)]))


# What plans are made of

X, G = ir.Leaf("X", (n, n)), ir.Leaf("cotangent", (n, n))
A, C = ir.Leaf("A", (n, m)), ir.Leaf("C", (m, m))
S = ir.Leaf("S", (n, n), "spd")
b = ir.Leaf("b", (n,))


def inverse(node: ir.Node) -> ir.Node:
    return ir.Apply(OPERATIONS["inv"], ((node, ()),))


def steps(nodes: dict[str, ir.Node], kind: type) -> list:
    inputs = ir.leaves(nodes.values())
    kernel = plan("kernel", sorted(inputs, key=lambda leaf: leaf.name), list(nodes.items()))
    return [step for step in kernel.steps if isinstance(step, kind)]


def called(nodes: dict[str, ir.Node]) -> list[str]:
    return [kernel_name(call.kernel) for call in steps(nodes, Call)]


def test_a_partial_product_of_two_terms_is_made_once() -> None:
    terms = (
        ir.einsum([(X, "ia"), (X, "ab"), (X, "jb")], "ij", 2),
        ir.einsum([(X, "ai"), (X, "ab"), (X, "bj")], "ij", 2),
    )
    value = ir.einsum([(X, "ia"), (X, "aj"), (X, "ib"), (X, "bj")], "")
    gradient = ir.Sum(terms, (n, n))
    assert len(steps({"out": gradient}, Gemm)) == 3
    assert len(steps({"out_value": value, "out_X": gradient}, Gemm)) <= 4


def test_sums_of_products_accumulate() -> None:
    vjp = ir.Sum(
        (ir.einsum([(G, "ik"), (X, "jk")], "ij"), ir.einsum([(X, "ki"), (G, "kj")], "ij")), (n, n)
    )
    first, second = steps({"out": vjp}, Gemm)
    assert (first.accumulate, second.accumulate) == (False, True)
    assert not steps({"out": vjp}, Allocate)


def test_vectors_are_multiplied_first() -> None:
    product = ir.einsum([(X, "ij"), (G, "jk"), (b, "k")], "i")
    assert not steps({"out": product}, Gemm)


def test_a_batch_axis_joins_the_rows() -> None:
    batch = dims("batch")
    x = ir.Leaf("x", (batch, n))
    (product,) = steps({"out": ir.einsum([(A, "ij"), (x, "bi")], "bj")}, Gemm)
    assert product.batch == ()


def test_a_stack_of_products_lies_as_they_are_written() -> None:
    """First the axis of the stack, whatever the order of the result: it is not copied."""
    left, right = ir.Leaf("left", (m, n, n)), ir.Leaf("right", (m, n, n))
    products = ir.einsum([(left, "kij"), (right, "kjl")], "ikl")
    squares = {"out": ir.einsum([(products, "ikl"), (products, "ikl")], "ik")}
    (product,) = steps(squares, Gemm)
    (place,) = steps(squares, Allocate)
    assert place.buffers == (product.target.buffer,)
    assert place.buffers[0].shape[0] == m


def test_stacks_of_matrices_are_read_as_they_lie() -> None:
    """BLAS reads a matrix transposed as well: what softmax makes is not copied."""
    left, right = ir.Leaf("left", (m, n, n)), ir.Leaf("right", (m, n, n))
    scores = ir.einsum([(left, "kij"), (right, "klj")], "kil")
    weights = ir.Apply(OPERATIONS["softmax"], ((scores, (0, 1)),), scores.shape[:2])
    read = ir.einsum([(weights, "kij"), (left, "kjl")], "kil")
    assert not steps({"out": read}, LoopNest)


def test_jacobians_are_written_where_they_are_not_zero() -> None:
    delta = ir.Delta(n)
    terms = (
        ir.einsum([(delta, "ik"), (X, "lj")], "ijkl"),
        ir.einsum([(X, "ik"), (delta, "jl")], "ijkl"),
    )
    (nest,) = steps({"out": ir.Sum(terms, (n,) * 4)}, LoopNest)
    assert [line.strip() for line in str(nest).splitlines()[1:]] == [
        "for i < n",
        "for j < n",
        "out[i, j] = 0",
        "for l < n",
        "out[i, j, i, l] = X[l, j]",
        "for k < n",
        "out[i, j, k, j] += X[i, k]",
    ]


def test_loops_are_fused_unless_one_reads_what_another_round_writes() -> None:
    rows = ir.einsum([(X, "ij"), (X, "ij")], "i")
    along = ir.einsum([(X, "ij"), (rows, "i")], "ij")
    across = ir.einsum([(X, "ij"), (rows, "j")], "ij")
    assert len(steps({"out": along}, LoopNest)) == 1
    assert len(steps({"out": across}, LoopNest)) == 2


def test_symmetric_products_are_added_to_symmetric_terms_by_half() -> None:
    """Not to others: the half above the diagonal would be lost."""
    square = ir.einsum([(X, "ij"), (X, "kj")], "ik")
    identity, other = ir.Delta(n), ir.Leaf("Y", (n, n))
    for term, half in ((identity, True), (other, False)):
        (product,) = steps({"out": ir.Sum((term, square), (n, n))}, Gemm)
        assert product.accumulate
        assert (product.part == "symmetric") == half


def test_products_of_a_matrix_with_itself_are_told_from_others() -> None:
    """They have their own routine; with weights of rows they are one call, without a weighted
    copy."""
    weights = ir.Leaf("w", (n,))
    weighted = ir.einsum([(X, "ji"), (weights, "j")], "ji")
    squared = ir.einsum([(X, "ji"), (weights, "j"), (weights, "j")], "ji")
    for factors in ([(X, "ji"), (weighted, "jk")], [(squared, "ji"), (X, "jk")]):
        assert not steps({"out": ir.einsum(factors, "ik")}, Gemm)
        (call,) = steps({"out": ir.einsum(factors, "ik")}, Call)
        assert kernel_name(call.kernel) == "weighted_gram"
    along = ir.einsum([(X, "ij"), (weights, "i")], "ij")
    for factors, routine in (
        ([(X, "ji"), (X, "jk")], "gram"),
        ([(X, "ij"), (X, "kj")], "gram"),
        ([(along, "ij"), (X, "kj")], "gemm"),
    ):
        (product,) = steps({"out": ir.einsum(factors, "ik")}, Gemm)
        assert product.routine == routine


def test_sizes_beside_an_empty_one() -> None:
    """k n is 0 for k = 0: n is read as 0, not by a division by 0."""
    k, n = dx.dims("k n")
    A, B = dx.matrix("A", k, k * n), dx.matrix("B", k, 2)
    module = dx.compile(dx.function("f", [A, B], dx.sum(A**2) + dx.sum(B)))
    assert module.value(np.ones((0, 0)), np.ones((0, 2))) == 0
    assert module.gradient(np.ones((0, 0)), np.ones((0, 2))).A.shape == (0, 0)
    assert module.value(np.ones((2, 6)), np.ones((2, 2))) == 16
    with pytest.raises(ValueError, match=r"shape \(0, 3\)"):
        module.value(np.ones((0, 3)), np.ones((0, 2)))


@pytest.mark.parametrize("turned", [False, True])
def test_products_with_triangular_matrices_leave_out_zeros(turned: bool) -> None:
    lower, upper = ir.Leaf("L", (n, n), "lower"), ir.Leaf("U", (n, n), "upper")
    stack = ir.Leaf("T", (m, n, n), "lower")
    out = "ki" if turned else "ik"

    def known(*factors: tuple[ir.Node, str], output: str = out) -> list[tuple[str, ...]]:
        result = steps({"out": ir.einsum(factors, output)}, Gemm)
        return [(*sorted(gemm.triangles), gemm.part) for gemm in result]

    assert known((lower, "ij"), (A, "jk")) == [
        ("lower" if not turned else "upper", "whole", "whole")
    ]
    assert known((lower, "ij"), (lower, "jk")) == [(*2 * ["upper" if turned else "lower"], "whole")]
    assert known((lower, "ij"), (upper, "jk")) == [("lower", "upper", "whole")]
    assert known((lower, "ij"), (lower, "kj")) == [("lower", "upper", "symmetric")]
    assert known((X, "ij"), (A, "jk")) == [("whole", "whole", "whole")]
    three = ir.Leaf("R", (m, n, n))
    assert known((stack, "bij"), (three, "bjk"), output=f"b{out}")[0][1:] == ("whole", "whole")
    assert known((stack, "bij"), (three, "bjk"), output=f"b{out}")[0][0] != "whole"
    assert known((stack, "bij"), (A, "jc"), output="bic") == [("whole", "whole", "whole")]
    assert known((stack, "bij"), (three, "bjk")) == [("whole", "whole", "whole")]


def test_arrays_share_memory_where_they_are_needed_one_after_the_other() -> None:
    """If they are of one shape, but not within a step that reads the one and writes the other."""

    def product(count: int) -> ir.Node:
        node: ir.Node = X
        for _ in range(count):
            node = ir.Map(sympy.tanh(ir.slot(0)), (ir.einsum([(node, "ij"), (X, "jk")], "ik"),))
        return node

    def memory(node: ir.Node) -> tuple[int, int]:
        made = plan("kernel", [X, A], [("out", node)]).steps
        blocks = [step for step in made if isinstance(step, Allocate)]
        reuses = [step for step in made if isinstance(step, Reuse)]
        return sum(len(step.buffers) for step in blocks), len(reuses)

    assert [memory(product(count)) for count in (2, 3, 6)] == [(2, 1), (2, 3), (2, 9)]
    rectangular = ir.einsum([(product(2), "ij"), (A, "jk")], "ik")
    assert memory(ir.Map(sympy.exp(ir.slot(0)), (rectangular,))) == (3, 2)


def test_what_is_read_below_the_diagonal_only_is_computed_there_only() -> None:
    product = ir.einsum([(X, "ij"), (G, "jk")], "ik")
    below = ir.Apply(OPERATIONS["half_lower"], ((product, ()),))
    assert [gemm.part for gemm in steps({"out": below}, Gemm)] == ["lower"]
    assert [gemm.part for gemm in steps({"out": below, "out_p": product}, Gemm)] == ["whole"]


def test_triangular_matrices_are_inverted_for_two_square_products() -> None:
    inv = inverse(ir.Leaf("L", (n, n), "lower"))
    once, wide = (
        ir.einsum([(inv, "ij"), (X, "jk")], "ik"),
        ir.einsum([(inv, "ij"), (A, "jk")], "ik"),
    )
    assert "triangular_inverse" not in called({"out": once, "out_p": wide})
    assert "triangular_inverse" in called({"out": ir.einsum([(once, "ij"), (inv, "kj")], "ik")})


def test_one_operation_on_stored_arrays_is_not_stored() -> None:
    """A product that two sums read, of a result of softmax and another array."""
    weights = ir.Apply(OPERATIONS["softmax"], ((A, (0,)),), A.shape[:1])
    weighed = ir.einsum([(weights, "ij"), (A, "ij")], "ij")
    sums = {"rows": ir.einsum([(weighed, "ij")], "i"), "columns": ir.einsum([(weighed, "ij")], "j")}
    assert len(steps(sums, Allocate)) == 1


def test_products_with_inverses_are_solved() -> None:
    inv = inverse(X)
    nodes = {
        "out_x": ir.einsum([(inv, "ij"), (b, "j")], "i"),
        "out_A": ir.einsum([(inv, "ji"), (A, "jk")], "ik"),
        "out_d": ir.Apply(OPERATIONS["det"], ((X, ()),)),
    }
    names = called(nodes)
    assert names[:2] == ["lu_factor", "lu_invertible"]
    assert sorted(names[2:]) == ["lu_det", "lu_solve_columns", "lu_solve_each_row"]
    assert called({"out": ir.einsum([(inverse(S), "ij"), (b, "j")], "i")}) == [
        "cholesky_factor",
        "cholesky_solve_few_rows",
    ]


def test_entries_of_an_inverse_need_the_inverse() -> None:
    node = ir.Sum((inverse(X), ir.einsum([(inverse(X), "ji")], "ij")), (n, n))
    assert called({"out": node}) == ["lu_factor", "lu_invertible", "lu_inverse"]


def test_sizes_follow_from_the_arguments() -> None:
    padded = ir.Leaf("P", (n + 1, n))
    only = ir.Leaf("Q", (2 * n + 1,))
    assert len(plan("kernel", [padded], [("out", padded)]).sizes) == 1
    (size,) = plan("kernel", [only], [("out", ir.full(n))]).sizes
    assert size.value.subs(LENGTH, 7) == 3
    with pytest.raises(DeclarationError, match="the size m follows from no input"):
        plan("kernel", [X], [("out", ir.full(1, (m,)))])


def test_operations_without_a_kernel_are_refused() -> None:
    bare = dataclasses.replace(OPERATIONS["softmax"], name="bare", kernel=None)
    with pytest.raises(UnsupportedError, match="the operation bare has no kernel"):
        plan("kernel", [b], [("out", ir.Apply(bare, ((b, ()),)))])
    unknown = ir.Map(sympy.airyai(ir.slot(0)), (b,))
    with pytest.raises(UnsupportedError, match="airyai"):
        plan("kernel", [b], [("out", unknown)])


# Generated modules

HARD_NAMES = (
    "k",
    "i",
    "real",
    "gemm",
    "t0",
    "a0",
    "s0",
    "result",
    "memory",
    "step",
    "first",
    "row0",
)
"""Names of a module's own, which declarations accept for inputs."""


def test_inputs_may_have_any_name(tmp_path: Path) -> None:
    leaves = [ir.Leaf(name, (n, n)) for name in HARD_NAMES]
    leaves.append(ir.Leaf("j", ()))
    product = ir.einsum([(leaf, (p, p + 1)) for p, leaf in enumerate(leaves[:3])], (0, 3))
    terms = [ir.Map(sympy.erf(ir.slot(0)), (leaf,)) for leaf in leaves[3:-1]]
    total = ir.einsum([(leaves[0], "pp"), (leaves[-1], "")], "ij", 2 / n, {"i": n, "j": n})
    node = ir.Sum((product, total, *terms), (n, n))
    module = load(tmp_path, "hard", [described("value", leaves, node)])
    values = sample(leaves)
    (expected,) = evaluate_all([node], values, SIZES)
    arguments = [values[leaf.name] for leaf in leaves]
    np.testing.assert_allclose(module.value(*arguments), expected)
    destination = np.empty((3, 3), order="F")
    assert module.value(*arguments, out=destination) is destination
    np.testing.assert_allclose(destination, expected)


def test_names_the_module_needs_are_refused() -> None:
    leaf = ir.Leaf("value_kernel", (n,))
    with pytest.raises(DeclarationError, match="value_kernel"):
        emit(ModuleDescription("f", "", {"DIGEST": ""}, [described("value", [leaf], leaf)]))


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    functions = [
        described("value", [X], ir.einsum([(X, "ij"), (X, "jk")], "ik")),
        described("vjp", [X, G], ir.einsum([(G, "ik"), (X, "jk")], "ij")),
        described("gradient", [X], ir.einsum([(X, "ii")], "")),
    ]
    return load(tmp_path_factory.mktemp("square"), "square", functions, requirements=["n >= 2"])


@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        (np.ones((2, 3)), ValueError, r"X has shape \(2, 3\); expected \(n, n\) with n = 2"),
        (np.ones(3), ValueError, r"argument X has shape \(3,\); expected \(n, n\)"),
        (np.ones((1, 1)), ValueError, "n = 1; it needs n >= 2"),
        (np.ones((2, 2)) * 1j, TypeError, "square: argument X is ndarray of dtype complex128"),
        ("text", TypeError, "X is 'text'"),
        (None, TypeError, "X is None"),
        ([[1, 2], [3]], ValueError, "X is no array"),
        (np.array([["a"]]), TypeError, "expected real numbers"),
    ],
)
def test_bad_arguments(square: ModuleType, argument: object, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        square.value(argument)


def test_dimensions_that_disagree(square: ModuleType) -> None:
    text = r"argument cotangent has shape \(3, 3\); expected \(n, n\) with n = 2"
    with pytest.raises(ValueError, match=text):
        square.vjp(np.eye(2), np.eye(3))


def test_arrays_of_any_layout_and_type(square: ModuleType) -> None:
    x = np.arange(9.0).reshape(3, 3)
    frozen = x.copy()
    frozen.flags.writeable = False
    for same in (frozen, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x.astype(int)):
        np.testing.assert_array_equal(square.value(same), x @ x)
    swapped = x.astype(x.dtype.newbyteorder())
    np.testing.assert_array_equal(square.value(swapped), x @ x)
    assert square.value(x.tolist()).dtype == np.float64
    assert square.value(x.astype(np.float32)).dtype == np.float32
    assert square.vjp(x.astype(np.float32), x).dtype == np.float64
    assert type(square.gradient(x)) is np.float64
    assert square.value(np.ones((2, 2), bool)).tolist() == [[2, 2], [2, 2]]


def test_destinations(square: ModuleType) -> None:
    x = np.arange(9.0).reshape(3, 3)
    expected = x @ x
    for out in (np.empty((3, 3)), np.empty((3, 3), order="F"), np.empty((6, 3))[::2]):
        assert square.value(x, out=out) is out
        np.testing.assert_array_equal(out, expected)
    overlapping = x.copy()
    np.testing.assert_array_equal(square.value(overlapping, out=overlapping), expected)
    single = np.empty((3, 3), np.float32)
    np.testing.assert_array_equal(square.value(x, out=single), expected.astype(np.float32))
    total = np.empty(())
    assert square.gradient(x, out=total) is total and total == 12
    with pytest.raises(ValueError, match=r"out has shape \(2, 2\); expected \(3, 3\)"):
        square.value(x, out=np.empty((2, 2)))
    with pytest.raises(TypeError, match="out is 'text'; expected an array"):
        square.value(x, out="text")
    with pytest.raises(TypeError, match="out has dtype int64; expected float64"):
        square.value(x, out=np.empty((3, 3), int))


def test_several_results(tmp_path: Path) -> None:
    batch = dims("batch")
    x, w = ir.Leaf("x", (batch, n)), ir.Leaf("w", (n,))
    product = ir.einsum([(x, "bi"), (w, "i")], "b")
    nodes = {"out_value": product, "out_x_x": ir.Sum((x, x), x.shape), "out_x_w": w}
    result = (("value", "out_value"), ("x", (("x", "out_x_x"), ("w", "out_x_w"))))
    kernel = plan("jvp_kernel", [x, w], list(nodes.items()))
    module = load(tmp_path, "several", [FunctionDescription("jvp", (), kernel, result)])
    points, weights = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    results = module.jvp(points, weights)
    assert results._fields == ("value", "x")
    np.testing.assert_array_equal(results.value, points @ weights)
    np.testing.assert_array_equal(results.x.x, 2 * points)
    np.testing.assert_array_equal(results.x.w, weights)
    out = (np.empty(2), (np.empty((2, 3)), np.empty(3)))
    filled = module.jvp(points, weights, out=out)
    assert filled.value is out[0] and filled.x.x is out[1][0]
    np.testing.assert_array_equal(out[1][0], 2 * points)
    with pytest.raises(ValueError, match="out has 1 arrays; expected 3"):
        module.jvp(points, weights, out=out[0])
    empty = module.jvp(points[:0], weights)
    assert empty.value.shape == (0,)


def test_kernels_are_callable_from_compiled_code(square: ModuleType) -> None:
    kernel = square.value_kernel

    @numba.njit
    def twice(x: np.ndarray) -> np.ndarray:
        first, second = np.empty_like(x), np.empty_like(x)
        kernel(x, first)
        kernel(first, second)
        return second

    x = np.eye(3) + 1
    np.testing.assert_allclose(twice(x), np.linalg.matrix_power(x, 4))


@pytest.mark.parametrize("power", [-1, -2, -3])
def test_a_number_divided_by_a_power_of_a_size_of_zero_is_infinite(power: int) -> None:
    """Kernels return infinity and do not raise."""
    text = Printer().coefficient(dims("n") ** power + 3 * (dims("n") + 1) ** power)
    compiled = numba.njit(error_model="numpy")(eval(f"lambda n: {text}"))
    assert compiled(0) == np.inf
    assert compiled(2) == 2.0**power + 3 * 3.0**power
