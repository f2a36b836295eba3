"""Derivatives of expressions by leaves: JVP, its transpose, and the Jacobian with its diagonal.

The differential of the value is the JVP, its transpose the VJP or gradient, and the JVP at a basis
of tangents the Jacobian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from derivatrix.compiler.differentiate import spectral
from derivatrix.compiler.differentiate.jvp import differential
from derivatrix.compiler.differentiate.projection import PROJECTED, project, tangential_part
from derivatrix.compiler.differentiate.vjp import transpose
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Delta, Leaf, Node, einsum
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.lengths import fused


def tangent_of(leaf: Leaf, name: str = "tangent") -> Leaf:
    """Make the tangent of an input, of its structure if such matrices are a linear space."""
    is_linear_space = leaf.structure in PROJECTED and leaf.structure != "orthogonal"
    structure = leaf.structure if is_linear_space else "general"
    return Leaf(name, leaf.shape, structure, role="tangent")


def differentiable(node: Node) -> Node:
    """Simplify a value, and write functions of lengths as functions of their squares."""
    return fused(simplify([node]))[0]


def differentials(nodes: Sequence[Node], tangents: Mapping[Node, Node]) -> list[Node]:
    """Compute the tangents of nodes without simplifying them. Functions of matrices written with
    eigenvectors are differentiated as such (`spectral`)."""
    return spectral.unpack(differential(spectral.pack(nodes), tangents))


def push_forward(nodes: Sequence[Node], tangents: Mapping[Leaf, Leaf]) -> list[Node]:
    """Derive the JVPs of nodes: their tangents, linear in `tangents`, a tangent for each leaf."""
    return simplify(differentials(nodes, dict(tangents.items())))


def pull_back(
    jvps: Sequence[Node], tangents: Mapping[Leaf, Leaf], cotangents: Sequence[Node]
) -> list[Node]:
    """Derive the VJP by each leaf of `tangents`: transpose `jvps`, which are linear in them."""
    results = simplify(transpose(jvps, [*tangents.values()], cotangents))
    # Simplified before, terms that are symmetric are found, and need no projection.
    return simplify(list(map(project, results, tangents)))


def jacobians(nodes: Sequence[Node], leaf: Leaf, tangent: Leaf) -> list[Node]:
    """Derive d node / d leaf, of shape (*node.shape, *leaf.shape), projected for `leaf`."""
    jvps = push_forward(nodes, {leaf: tangent})
    # Deltas of the basis tangents vanish only in products, so sums that hold them are expanded.
    results = simplify([jacobian_of_linear(jvp, tangent) for jvp in jvps], expand=True)
    return simplify([project(jacobian, leaf) for jacobian in results], expand=True)


def jacobian_diagonal(
    node: Node, leaf: Leaf, is_trace: bool = False, is_gradient: bool = False
) -> Node:
    """Derive the entries d node[i] / d leaf[i], of the shape of both, or (`is_trace`) their sum.

    The Jacobian is contracted before it is simplified, so that its deltas vanish and no array has
    the axes of both. `is_gradient`: `node` is a gradient by `leaf` itself.
    """
    tangent = tangent_of(leaf)
    (jvp,) = push_forward([node], {leaf: tangent})
    jacobian = project(jacobian_of_linear(jvp, tangent), leaf)
    if is_gradient:
        jacobian = project_derivative(jacobian, leaf)
    axes = tuple(range(leaf.ndim))
    entries = einsum([(jacobian, axes + axes)], () if is_trace else axes)
    return simplify([entries], expand=True)[0]


def project_derivative(node: Node, leaf: Leaf, axis: int = 0) -> Node:
    """Project a derivative of the gradient by `leaf` on the tangent space if the input is
    orthogonal: the tangent space changes with it, so a derivative of a gradient, which is
    tangential, need not be. axis: the first of the gradient's axes."""
    if leaf.structure != "orthogonal":
        return node
    return tangential_part(node, leaf, axis + leaf.ndim - 2)


def jacobian_of_linear(jvp: Node, tangent: Leaf) -> Node:
    """Build the array J[out..., in...] of a map that is linear in `tangent`.

    The map is evaluated at all basis tangents, stacked along leading axes, which are moved last.
    """
    basis = basis_tangent(tangent.shape)
    (columns,) = substitute([jvp], {tangent: basis}, tangent.shape)
    output_labels = [*range(jvp.ndim)]
    input_labels = [("in", axis) for axis in range(tangent.ndim)]
    # A JVP that is zero for every tangent does not depend on it, and has no stacked axes.
    is_stacked = columns.ndim > jvp.ndim or not tangent.ndim
    labels = [*input_labels, *output_labels] if is_stacked else output_labels
    sizes = dict(zip(input_labels, tangent.shape, strict=True))
    return einsum([(columns, labels)], [*output_labels, *input_labels], sizes=sizes)


def basis_tangent(shape: Shape) -> Node:
    """Build B[k..., i...] = 1 where each k equals its i, else 0: the basis tangents, stacked."""
    factors = [(Delta(size), (("k", axis), ("i", axis))) for axis, size in enumerate(shape)]
    axes = range(len(shape))
    return einsum(factors, [*(("k", a) for a in axes), *(("i", a) for a in axes)])
