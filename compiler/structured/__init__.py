"""Jacobians and Hessians as operators: sums of products of small arrays, which are not multiplied
to one dense array.

The labels of the arrays of a product are on the axes of the result, on those of the argument, on
both (diagonal), or summed: the Jacobian of X @ X is V -> X @ V + V @ X, for which X is enough.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from derivatrix.compiler.differentiate.derivatives import Derivatives, Key
from derivatrix.compiler.differentiate.projection import PROJECTED
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import BATCH, Shape
from derivatrix.compiler.plan.recurrences import is_stacked_loop
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.adjugates import with_adjugate_factors
from derivatrix.compiler.structured.descriptor import descriptor
from derivatrix.compiler.structured.operator_terms import SharedParts, Term, merge_terms, terms

__all__ = ["Operator", "Structured", "Term", "structured"]


@dataclass(frozen=True)
class Operator:
    """One block. `batched`: both sides have the batch as axis 0, linked sample by sample.
    `projected`: the structure of an input on which the block is projected, or "". `structure`: the
    descriptor, such as "diagonal + rank 1". `runs_loops`: whether each product is a JVP or VJP,
    which runs the loops over time of the function, instead of products with the terms."""

    key: Key
    output_shape: Shape
    input_shape: Shape
    batched: bool
    projected: str
    structure: str
    terms: tuple[Term, ...]
    runs_loops: bool = False

    @property
    def block(self) -> tuple[str, str]:
        """The names of the row, an output or an input, and of the column, an input."""
        row, *columns = self.key
        return (row, columns[-1]) if columns else ("", row)


@dataclass(frozen=True)
class Structured:
    """The blocks of a Jacobian or Hessian (`kind`), and the arrays of all terms. outputs: the names
    of the function's outputs, which come first in the keys of blocks."""

    kind: str
    parts: tuple[ir.Node, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[str, ...] = ()

    @property
    def computed(self) -> dict[str, ir.Node]:
        """The arrays that are not inputs, by name."""
        return {
            f"part_{number}": node
            for number, node in enumerate(self.parts)
            if not (isinstance(node, ir.Leaf) and node.ndim)
        }

    def lines(self) -> list[str]:
        """List the titles and structures of the blocks."""
        return [f"{self.title(operator)}: {operator.structure}" for operator in self.operators]

    def title(self, operator: Operator) -> str:
        """Return the title of a block, such as "Hessian by A and b"."""
        inputs = operator.key[1:] if self.outputs else operator.key
        output = f" of {operator.key[0]}" if self.outputs else ""
        return f"{self.kind.capitalize()}{output} by {' and '.join(dict.fromkeys(inputs))}"


def structured(derivatives: Derivatives, kinds: Collection[str] = ()) -> Structured:
    """Build the Jacobian of a function, or the Hessian of a scalar one, as operators. Those of
    loops run products of `kinds`, the kinds that the function's module has, if it has them."""
    function = derivatives.function
    kind = "hessian" if function.is_scalar else "jacobian"
    results = derivatives.batched(kind)
    nodes = derivatives.with_lengths(derivatives.with_selections(list(results.values())))
    nodes = with_adjugate_factors(nodes)
    block_terms: dict[Key, list[Term]] = {}
    loops: set[Key] = set()
    has_products = {"hvp"} if function.is_scalar else {"jvp", "vjp"}
    for key, node in zip(results, nodes, strict=True):
        if has_products <= {*kinds} and any(map(is_stacked_loop, ir.topological([node]))):
            loops.add(key)
            block_terms[key] = []
            continue
        rank = node.ndim - derivatives.inputs[key[-1]].ndim
        block_terms[key] = terms(node, rank, key[-1] in function.batch)
    all_terms = [term for block in block_terms.values() for term in block]
    parts = iter(simplify([node for term in all_terms for node, _ in term.parts]))
    shared_parts = SharedParts()
    operators = []
    for key, block in block_terms.items():
        simplified = [term.with_parts(parts) for term in block]
        merged = merge_terms(simplified, shared_parts)
        operators.append(_operator(derivatives, key, merged, key in loops))
    parts_used = tuple(shared_parts.nodes)
    return Structured(kind, parts_used, tuple(operators), function.output_names)


def _operator(
    derivatives: Derivatives, key: Key, block: tuple[Term, ...], runs_loops: bool
) -> Operator:
    """Build the block of a Jacobian by one input, or of a Hessian by two."""
    function = derivatives.function
    column = derivatives.inputs[key[-1]]
    if function.is_scalar:
        row = derivatives.inputs[key[0]].shape
        structures = [derivatives.inputs[name].structure for name in reversed(key)]
    else:
        row = derivatives.output(key[:-1]).shape
        structures = [column.structure]
    # The terms with outputs 2, 3 and 4 are those for singular matrices.
    regular_terms = [term for term in block if not {2, 3, 4} & term.adjugate_factors.keys()]
    batch_axis = (BATCH,) if function.batch else ()
    batched = column.name in function.batch
    return Operator(
        key,
        batch_axis + row,
        (batch_axis if batched else ()) + column.shape,
        batched,
        next((structure for structure in structures if structure in PROJECTED), ""),
        "loop" if runs_loops else descriptor(regular_terms, batched),
        block,
        runs_loops,
    )
