"""Jacobians and Hessians as linear maps: sums of terms with small arrays and index patterns.

A term is a product of arrays (parts) whose labels lie on the axes of the result, on those of the
argument, on both (diagonal), or on none (summed): X @ V + V @ X needs X, not the Jacobian of
X @ X.
"""

from __future__ import annotations

from dataclasses import dataclass

from derivatrix.compiler.differentiate.derivatives import PROJECTED, Derivatives, Key
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH, Shape
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.adjugates import with_adjugate_factors
from derivatrix.compiler.structured.descriptor import descriptor
from derivatrix.compiler.structured.operator_terms import Known, Term, shared, terms

__all__ = ["Operator", "Structured", "Term", "structured"]


@dataclass(frozen=True)
class Operator:
    """One block. `batched`: both sides have the batch as axis 0, and are linked sample by
    sample. `projected`: the structure of an input that it is projected on, "" for none.
    `structure`: its descriptor."""

    key: Key
    output_shape: Shape
    input_shape: Shape
    batched: bool
    projected: str
    structure: str
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Structured:
    """The blocks of a Jacobian or Hessian (`kind`), and the arrays that they are made of."""

    kind: str
    parts: tuple[ir.Node, ...]
    operators: tuple[Operator, ...]

    @property
    def computed(self) -> dict[str, ir.Node]:
        """The arrays that are no inputs, by name."""
        return {
            f"part_{number}": node
            for number, node in enumerate(self.parts)
            if not (isinstance(node, ir.Leaf) and node.ndim)
        }

    def lines(self) -> list[str]:
        """What each block is called, and its structure."""
        return [f"{self.title(each)}: {each.structure}" for each in self.operators]

    def title(self, operator: Operator) -> str:
        """What a block is called, such as "Hessian by A and b"."""
        return f"{self.kind.capitalize()} by {' and '.join(dict.fromkeys(operator.key))}"


def structured(derivatives: Derivatives) -> Structured:
    """The Jacobian of a function, or the Hessian where it is a scalar one."""
    function = derivatives.function
    kind = "jacobian" if function.expression.shape else "hessian"
    found = {}
    results = derivatives.batched(kind)
    nodes = derivatives.with_lengths(derivatives.with_selections(list(results.values())))
    nodes = with_adjugate_factors(nodes)
    for key, node in zip(results, nodes, strict=True):
        rank = node.ndim - derivatives.inputs[key[-1]].ndim
        found[key] = terms(node, rank, key[-1] in function.batch)
    found = _simplified(found)
    known = Known()
    operators = tuple(_operator(derivatives, key, shared(own, known)) for key, own in found.items())
    return Structured(kind, tuple(known.nodes), operators)


def _simplified(found: dict[Key, list[Term]]) -> dict[Key, list[Term]]:
    """The terms with simpler nodes as parts."""
    nodes = [node for own in found.values() for term in own for node, _ in term.parts]
    simpler = iter(simplify(nodes))
    return {key: [term.with_parts(simpler) for term in own] for key, own in found.items()}


def _operator(derivatives: Derivatives, key: Key, own: tuple[Term, ...]) -> Operator:
    """The block of a Jacobian or Hessian by one input, or two."""
    function = derivatives.function
    column = derivatives.inputs[key[-1]]
    row = derivatives.inputs[key[0]].shape if len(key) == 2 else function.expression.shape
    structures = [derivatives.inputs[name].structure for name in reversed(key)]
    at_regular = [term for term in own if not {2, 3, 4} & term.adjugate_factors.keys()]
    lead = (BATCH,) if function.batch else ()
    batched = column.name in function.batch
    return Operator(
        key,
        lead + row,
        (lead if batched else ()) + column.shape,
        batched,
        next((each for each in structures if each in PROJECTED), ""),
        descriptor(at_regular, batched),
        own,
    )
