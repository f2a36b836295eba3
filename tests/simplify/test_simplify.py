"""Simplification changes no value: each rule where it applies, and whole passes on random nodes.
A corrupted rule must be caught by the same checks."""

from collections.abc import Callable

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import derivatrix.compiler.frontends.arrays as dx
from derivatrix import pinv, svdvals
from derivatrix.compiler.ir import canonical, dimensions, scalar_functions
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import (
    Delta,
    Einsum,
    Gather,
    Leaf,
    Map,
    Node,
    Reshape,
    Slice,
    Triangle,
    Vech,
    einsum,
    full,
    is_zero,
    slot,
    topological,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.simplify import functions, products, rebuilt, simplify
from tests.strategies import LEAVES, SIZE, leaf_values, nodes

M, H, Q, L, v, w, s = (Array(leaf) for leaf in LEAVES.values())


def change(before: Node, after: Node, seed: int = 0) -> float:
    """The largest relative difference between two nodes at a random point."""
    values = leaf_values(seed)
    expected, actual = (evaluate(node, values, {}) for node in (before, after))
    assert expected.shape == actual.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    return float(np.abs(actual - expected).max(initial=0)) / scale


def select(count: int, start: int, step: int = 1) -> Slice:
    return Slice(sympy.Integer(count), SIZE, sympy.Integer(start), step)


def below(coefficient: int, *factors: tuple[Array, str], power: int = -1) -> Node:
    """A power of a product, entry by entry."""
    product = einsum([(array.node, labels) for array, labels in factors], "i", coefficient)
    return Map(slot(0) ** power, (product,))


def canonical_inverse(matrix: Array) -> Node:
    """An inverse whose argument is a product as the rules meet it."""
    return simplify([dx.inv(matrix).node])[0]


delta = Delta(SIZE)
triangle = Triangle(SIZE, SIZE)
merge, pack, pick = Reshape(SIZE, SIZE), Vech(SIZE), Gather((0, 2, 2), SIZE)
exponential = dx.exp(M).node

thin, vectors = dx.qr(M[:, :2]).Q, dx.eigh(H).eigenvectors
tall, pseudo = M[:, :2], pinv(M[:, :2])
above = Array(Map((1 + sympy.sign(slot(0))) / 2, (w.node,)))
slope_of_tanh = Map(1 - sympy.tanh(slot(0)) ** 2, (v.node,))
inverse_root = Map(1 / sympy.sqrt(1 - slot(0) ** 2), (dx.tanh(v).node,))

PRODUCTS: list[tuple[Callable, Einsum]] = [
    (products.count_free_labels, einsum([(w.node, "i")], "i", sizes={"j": SIZE})),
    (products.drop_single_entry, einsum([(Delta(sympy.S.One), "ij"), (w.node, "k")], "ijk")),
    (
        products.drop_single_entry,
        einsum([(Triangle(sympy.S.One, sympy.S.One), "ij"), (w.node, "k")], "ijk"),
    ),
    (
        products.drop_single_entry,
        einsum([(Triangle(sympy.S.One, sympy.S.One, 1), "ij"), (w.node, "k")], "ijk"),
    ),
    (products.eliminate_delta, einsum([(delta, "ij"), (M.node, "jk")], "ik")),
    (products.eliminate_delta, einsum([(delta, "ii"), (w.node, "i")], "i")),
    (products.eliminate_delta, einsum([(delta, "ij"), (w.node, "j")], "ij")),
    (products.merge_slices, einsum([(select(2, 1), "ij"), (select(2, 1), "kj")], "ik")),
    (products.merge_slices, einsum([(select(2, 1), "ij"), (select(2, 1), "ik")], "jk")),
    (products.merge_slices, einsum([(select(1, 0), "ij"), (select(2, 1), "kj")], "ik")),
    (
        products.merge_slices,
        einsum([(select(3, 2, -1), "ij"), (select(3, 2, -1), "jk"), (w.node, "k")], "i"),
    ),
    (products.drop_slice, einsum([(select(2, 1), "ij"), (w.node, "k")], "ik")),
    (products.drop_slice, einsum([(select(3, 0), "ij"), (w.node, "j")], "i")),
    (products.merge_merges, einsum([(merge, "kij"), (merge, "kab"), (M.node, "ij")], "ab")),
    (products.merge_merges, einsum([(merge, "kij"), (merge, "nij")], "kn")),
    (products.merge_merges, einsum([(pack, "kij"), (pack, "kab"), (M.node, "ij")], "kab")),
    (
        products.merge_merges,
        einsum([(Reshape(SIZE**2, SIZE), "kij"), (merge, "iab"), (v.node, "a")], "kbj"),
    ),
    (products.drop_reshape, einsum([(merge, "kij"), (M.node, "ij")], "")),
    (products.drop_reshape, einsum([(pack, "kij"), (M.node, "ij")], "ij")),
    (products.drop_reshape, einsum([(pack, "kij"), (w.node, "n")], "kn")),
    (products.drop_reshape, einsum([(Reshape(sympy.S.One, SIZE), "kij"), (w.node, "j")], "ki")),
    (products.merge_gathers, einsum([(pick, "ij"), (w.node, "n")], "in")),
    (products.merge_gathers, einsum([(pick, "ij"), (pick, "in"), (M.node, "jn")], "i")),
    (products.merge_powers, einsum([(v.node, "i"), ((v**-1).node, "i"), (w.node, "i")], "i")),
    (products.merge_powers, einsum([(dx.sqrt(v).node, "i")] * 3, "i")),
    (products.merge_powers, einsum([(w.node, "i")] * 5, "i")),
    (
        products.cancel_powers,
        einsum([(slope_of_tanh, "i"), (inverse_root, "i"), (w.node, "i")], "i"),
    ),
    (
        products.cancel_powers,
        einsum([((dx.cosh(w) ** -2).node, "i"), (dx.sinh(w).node, "i"), (v.node, "i")], "i"),
    ),
    (products.cancel_quotients, einsum([(w.node, "i"), (below(3, (v, "i"), (w, "i")), "i")], "i")),
    (products.cancel_quotients, einsum([(M.node, "ii"), (below(1, (M, "ii")), "i")], "i")),
    (
        products.cancel_quotients,
        einsum([(w.node, "i"), (v.node, "i"), (below(2, (v, "i"), (w, "i"), power=-2), "i")], "i"),
    ),
    (products.drop_indicator, einsum([(above.node, "i"), (dx.maximum(0, w).node, "i")], "i")),
    (
        products.drop_indicator,
        einsum(
            [(Map(scalar_functions.step(slot(0)), (w.node,)), "i"), (dx.relu(w).node, "i")], "i"
        ),
    ),
    (products.cancel_inverse, einsum([(dx.inv(M).node, "ij"), (M.node, "jk")], "ik")),
    (products.cancel_inverse, einsum([(M.node, "ij"), (dx.inv(M).node, "jk")], "ik")),
    (products.cancel_inverse, einsum([(dx.inv(H).node, "ji"), (H.node, "jk")], "ik")),
    (
        products.cancel_inverse,
        einsum([(M.node, "li"), (M.node, "lj"), (canonical_inverse(M.T @ M), "jk")], "ik"),
    ),
    (
        products.cancel_inverse,
        einsum([(canonical_inverse(3 * M @ H), "ij"), (M.node, "jl"), (H.node, "kl")], "ik"),
    ),
    *(
        (
            products.absorb_projector,
            einsum([(array.node, labels) for array, labels in factors], "ij"),
        )
        for factors in (
            [(tall, "ik"), (pseudo, "kl"), (tall, "lj")],
            [(tall, "ki"), (tall, "kl"), (pseudo, "lj")],
            [(pseudo, "ki"), (tall, "lk"), (tall, "lj")],
            [(pseudo, "ik"), (tall, "kl"), (pseudo, "lj")],
            [(pseudo, "ik"), (pseudo, "lk"), (tall, "jl")],
            [(tall, "ki"), (pseudo, "lk"), (pseudo, "lj")],
        )
    ),
    (products.cancel_orthogonal, einsum([(Q.node, "ji"), (Q.node, "jk")], "ik")),
    (products.cancel_orthogonal, einsum([(Q.node, "ij"), (Q.node, "kj")], "ik")),
    (products.cancel_orthonormal, einsum([(thin.node, "ji"), (thin.node, "jk")], "ik")),
    (products.cancel_orthonormal, einsum([(vectors.node, "ij"), (vectors.node, "kj")], "ik")),
    (products.sum_spectrum, einsum([(dx.eigvalsh(H).node, "i")], "")),
    (products.sum_spectrum, einsum([(dx.eigvalsh(M).node, "i"), (w.node, "j")], "j")),
    (products.sum_spectrum, einsum([(dx.eigh(M)[0].node, "i")] * 2, "")),
    (products.sum_spectrum, einsum([(dx.svd(M).S.node, "i")] * 2, "")),
    (products.sum_spectrum, einsum([(svdvals(M[:2]).node, "i")], "")),
    (products.drop_triangle, einsum([(L.node, "ij"), (triangle, "ij")], "ij")),
    (products.drop_triangle, einsum([(L.node, "ji"), (triangle, "ji")], "ij")),
    (products.drop_triangle, einsum([(M.node, "ii"), (triangle, "ii")], "i")),
    (
        products.recognise_softmax,
        einsum([(exponential, "ij"), ((dx.sum(dx.exp(M), axis=1) ** -1).node, "i")], "ij"),
    ),
]

KRONECKER = (
    dx.kron(M, H),
    -2 * dx.kron(M @ H, Q),
    dx.kron(dx.eye(2), M),
    dx.kron(dx.diag(v), M.T),
)

NODES: list[tuple[Callable, Node]] = [
    (functions.fold_numbers, Map(sympy.Max(slot(0), slot(1)), (w.node, full(2, (SIZE,))))),
    (functions.extract_coefficient, Map(2 * sympy.exp(slot(0)), (w.node,))),
    (functions.extract_coefficient, Map(slot(0) ** 2 * slot(1), (w.node, v.node))),
    (
        functions.combine_powers,
        Map(
            (2 + 2 * slot(0) ** 2) * slot(1) / sympy.sqrt(1 + slot(0) ** 2),
            (v.node, dx.exp(w).node),
        ),
    ),
    (
        functions.split_sum,
        Map(slot(0) + sympy.exp(slot(1) - slot(0)), (w.node, v.node)),
    ),
    (functions.logarithms_of_positive, dx.xlogy(w, 1 + dx.exp(v)).node),
    (functions.logarithms_of_positive, dx.xlog1py(w, dx.exp(v)).node),
    (functions.of_single_column, dx.tanh(dx.sum(M, axis=1, keepdims=True)).node),
    (functions.compose, dx.log(dx.exp(w)).node),
    (functions.compose, (dx.sqrt(v) ** -1).node),
    (functions.logarithm, dx.log(dx.det(M.T @ M)).node),
    (functions.logarithm, dx.log(abs(dx.det(M))).node),
    (functions.logarithm, dx.log(dx.softmax(M)).node),
    (functions.logarithm, dx.log(dx.sum(dx.exp(M), axis=1)).node),
    (functions.logarithm, dx.log(dx.sum(dx.exp(M))).node),
    (functions.logarithm, dx.log(dx.sigmoid(w)).node),
    (functions.logarithm, dx.log(1 - dx.sigmoid(w)).node),
    (functions.extract_sign, dx.sigmoid(-w).node),
    (functions.logistic, dx.log(1 + dx.exp(w)).node),
    (functions.logistic, ((1 + dx.exp(w)) ** -1).node),
    (functions.linear_in_zero, dx.solve_sylvester(M, M, dx.zeros(3, 3)).node),
    (functions.scaled_linear, dx.solve_sylvester(M, M, 3 * s * M).node),
    (functions.inverse_of_orthogonal, dx.inv(Q).node),
    (functions.of_inverse, dx.inv(dx.inv(M)).node),
    (functions.of_inverse, dx.det(dx.inv(M)).node),
    (functions.of_inverse, dx.logabsdet(dx.inv(M)).node),
    (functions.of_transpose, dx.inv(2 * M.T).node),
    (functions.of_transpose, dx.det(M.T).node),
    (functions.inverse_of_diagonal, dx.inv(dx.diag(v)).node),
    (functions.of_single_entries, dx.inv(M[:1, :1]).node),
    (functions.of_single_entries, dx.eigvalsh(M[:1, :1]).node),
    (functions.of_single_entries, dx.eigh(M[:, None, :1]).eigenvectors.node),
    (functions.of_transpose, dx.inv(dx.eye(3)).node),
    *((functions.inverse_of_kronecker, dx.inv(product).node) for product in KRONECKER),
    *(
        (functions.logarithm_of_determinant_of_kronecker, dx.logabsdet(product).node)
        for product in KRONECKER
    ),
    (
        functions.logarithm_of_determinant_of_kronecker,
        dx.logdet(2 * dx.kron(M @ M.T + dx.eye(3), H @ H + dx.eye(3))).node,
    ),
]


@pytest.mark.parametrize(("rule", "node"), PRODUCTS, ids=lambda part: getattr(part, "__name__", ""))
def test_product_rule(rule: Callable, node: Einsum) -> None:
    after = rule(Product.of(node))
    assert after is not None, "the rule does not apply to its own example"
    assert change(node, after.node) < 1e-12


@pytest.mark.parametrize(("rule", "node"), NODES, ids=lambda part: getattr(part, "__name__", ""))
def test_node_rule(rule: Callable, node: Node) -> None:
    after = rule(node) or rule(simplified_children(node))
    assert after is not None, "the rule does not apply to its own example"
    assert change(node, after) < 1e-12


def test_xlog1py_of_any_sign_stays() -> None:
    node = dx.xlog1py(w, dx.tanh(w)).node
    assert functions.logarithms_of_positive(node) is None


def test_matrices_of_other_samples_do_not_cancel() -> None:
    Q, tall = dx.tensor("Q", 3, 2, 2, "orthogonal"), dx.tensor("A", 3, 4, 2)
    generator = np.random.default_rng(0)
    values = {
        "Q": np.linalg.qr(generator.normal(size=(3, 2, 2)))[0],
        "A": generator.normal(size=(3, 4, 2)),
    }
    for array in (
        dx.einsum("bij,ckj->bcik", Q, Q),
        dx.einsum("bij,bjk,ckl->bcil", tall, pinv(tall), tall),
    ):
        (after,) = simplify([array.node], final=True)
        np.testing.assert_allclose(
            evaluate(after, values, {}), evaluate(array.node, values, {}), atol=1e-14
        )


def simplified_children(node: Node) -> Node:
    """The node on its children in canonical form, as the rules meet it in a pass."""
    return rebuilt(node, dict(zip(node.children, simplify(node.children), strict=True)))


def test_every_rule_has_an_example() -> None:
    tested = {rule for rule, _ in PRODUCTS} | {rule for rule, _ in NODES}
    every = {*products.RULES, *products.FINAL_RULES, *functions.MAP_RULES, *functions.APPLY_RULES}
    every |= {*functions.FINAL_APPLY_RULES}
    assert every == tested


@settings(max_examples=200, deadline=None)
@given(nodes(), st.booleans())
def test_passes_on_random_nodes(node: Node, expand: bool) -> None:
    assert change(node, simplify([node], expand=expand)[0]) < 1e-9


@settings(max_examples=100, deadline=None)
@given(nodes())
def test_simplify_is_idempotent(node: Node) -> None:
    once = simplify([node])
    assert simplify(once) == once


@pytest.mark.parametrize(
    "rule", products.RULES + products.FINAL_RULES, ids=lambda rule: rule.__name__
)
def test_corrupted_rule_is_caught(rule: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupted(product: Product) -> Product | None:
        after = rule(product)
        return after and after.scaled(sympy.Rational(1001, 1000))

    for name in ("RULES", "FINAL_RULES"):
        rules = getattr(products, name)
        changed = tuple(corrupted if own is rule else own for own in rules)
        monkeypatch.setattr(f"derivatrix.compiler.simplify.{name}", changed)
    examples = [node for own, node in PRODUCTS if own is rule]
    assert max(change(node, simplify([node], final=True)[0]) for node in examples) > 1e-4


def test_a_matrix_cancels_its_inverse_through_shared_products() -> None:
    """A filter's gain K = P Hᵀ M⁻¹ is shared by the two K of K M Kᵀ = P Hᵀ M⁻¹ H P."""
    total = H @ H.T + dx.eye(3)
    gain = M @ dx.inv(total)
    nodes = [(gain @ total @ gain.T).node, (gain @ w).node]
    simpler = simplify(nodes)
    matrix = simplify([total.node])[0]
    assert [node.children for node in topological(simpler) if matrix in node.children] == [
        (matrix,)
    ]
    for node, after in zip(nodes, simpler, strict=True):
        assert change(node, after) < 1e-12


@pytest.mark.parametrize(
    "solution", [pseudo @ M, dx.inv(tall.T @ tall) @ tall.T @ M], ids=["pinv", "normal equations"]
)
def test_a_residual_of_least_squares_is_orthogonal_to_the_matrix(solution: Array) -> None:
    residual = tall @ solution - M
    for product in (tall.T @ residual, residual.T @ tall, dx.sum(residual**2) * tall.T @ residual):
        assert is_zero(simplify([product.node])[0])
    for product in (tall.T @ (residual + H), pseudo @ residual.T):
        assert not is_zero(simplify([product.node])[0])


def test_the_determinant_of_a_kronecker_product_may_be_positive_where_both_are_negative() -> None:
    node = dx.logdet(dx.kron(M, M)).node
    assert change(node, simplify([node])[0]) < 1e-12
    assert functions.logarithm_of_determinant_of_kronecker(node) is None


def test_equal_products_are_one_node() -> None:
    a, b = simplify([(w @ M @ v).node, (v @ M.T @ w).node])
    assert a is b
    a, b = simplify([dx.trace(M @ M @ M.T).node, dx.trace(M.T @ M @ M).node])
    assert a is b
    a, b = simplify([dx.trace(M @ M @ M @ H).node, dx.trace(M @ H @ M @ M).node])
    assert a is b
    assert simplify([(M @ H - (H @ M.T).T).node])[0] is dx.zeros(3, 3).node


def test_many_alike_parts_of_a_product_take_few_steps(monkeypatch) -> None:
    """(xᵀ A x)⁹: one search for each part, not one for each order of the parts; and the same
    labels whatever they were before."""
    steps = []
    refine = canonical._Search.refine

    def counted(self, colours):
        steps.append(colours)
        return refine(self, colours)

    monkeypatch.setattr(canonical._Search, "refine", counted)
    n = dimensions.symbol("n")
    vector, matrix = Leaf("x", (n,)), Leaf("A", (n, n))
    factors = []
    for part in range(9):
        i, j = 2 * part, 2 * part + 1
        factors += [(vector, (i,)), (matrix, (i, j)), (vector, (j,))]
    result = canonical.canonical_labels(factors, (), 0, (n,) * 18)
    assert len(steps) < 30
    generator = np.random.default_rng(0)
    for _ in range(5):
        new = [int(label) for label in generator.permutation(18)]
        moved = [(node, tuple(new[label] for label in labels)) for node, labels in factors]
        shuffled = [moved[position] for position in generator.permutation(27)]
        assert canonical.canonical_labels(shuffled, (), 0, (n,) * 18) == result
