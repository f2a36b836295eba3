"""Structural factors as index arithmetic: labels become loops, or expressions of loop indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape

Constraint = tuple[ir.Structural, ir.Labels]
"""A structural factor with its labels."""


@dataclass
class Binding:
    """Index expressions of labels.

    loops: the labels that are loop indices themselves.
    conditions: conditions, besides the loops' ranges, without which the term is zero.
    is_scattered: whether a condition is an equation, which holds at few points of the loops.
    has_division: whether an index needs a division.
    """

    indices: dict[int, sympy.Expr]
    loops: list[int] = field(default_factory=list)
    conditions: list[Boolean] = field(default_factory=list)
    is_scattered: bool = False
    has_division: bool = False

    def with_loop(self, label: int) -> Binding:
        """Return a copy of this binding in which `label` is a further loop index."""
        indices = {**self.indices, label: index_symbol(label)}
        loops, conditions = [*self.loops, label], [*self.conditions]
        return replace(self, indices=indices, loops=loops, conditions=conditions)


def index_symbol(label: int) -> sympy.Symbol:
    """Return the loop index that stands for a label until a nest names it."""
    return sympy.Symbol(f"_{label}", integer=True, nonnegative=True)


def bind(
    constraints: Sequence[Constraint],
    sizes: Shape,
    labels: Iterable[int],
    known_indices: dict[int, sympy.Expr],
) -> Binding:
    """Find index expressions for all of `labels`, given those in `known_indices`.

    A label that no structural factor determines becomes a loop; among the labels of linked
    factors, the loop is the label that leaves the fewest conditions.
    """
    binding = Binding(dict(known_indices))
    pending = _propagate(binding, list(constraints), sizes)
    labels = list(labels)
    while pending:
        linked = [label for label in labels if any(label in c[1] for c in pending)]
        trials = []
        for label in linked:
            if label not in binding.indices:
                trial = binding.with_loop(label)
                still_pending = _propagate(trial, pending, sizes)
                is_image = any(label == _image_label(c) for c in pending)
                trials.append((len(trial.conditions), is_image, label, trial, still_pending))
        # with equally few conditions, the sources become loops: their image needs no division
        *_, binding, pending = min(trials, key=lambda entry: entry[:3])
    for label in labels:
        if label not in binding.indices:
            binding.indices[label] = index_symbol(label)
            binding.loops.append(label)
    binding.conditions = [c for c in dict.fromkeys(binding.conditions) if c is not sympy.true]
    return binding


def _propagate(binding: Binding, constraints: list[Constraint], sizes: Shape) -> list[Constraint]:
    """Bind labels that follow from bound ones; return the constraints that are still unused. Images
    first: an index that is a product and a sum is cheaper than one by division."""
    pending = constraints
    while True:
        unused = [c for c in pending if not _bind_image(binding, c)]
        if len(unused) == len(pending):
            unused = _bind_sources(binding, pending, sizes)
            if len(unused) == len(pending):
                return pending
        pending = unused


def _bind_image(binding: Binding, constraint: Constraint) -> bool:
    """Bind the image of a constraint whose sources are bound, without a division; return whether
    the constraint is used up."""
    node, labels = constraint
    indices = binding.indices
    if isinstance(node, ir.Triangle):
        if any(label not in indices for label in labels):
            return False
        row, column = (indices[label] for label in labels)
        binding.conditions.append(sympy.Ge(row - column, node.offset))
        return True
    target, sources = image_axes(node)
    if isinstance(node, ir.Delta) and labels[0] not in indices:
        target, sources = 0, (1,)
    if any(labels[axis] not in indices for axis in sources):
        return False
    image = _image(node, [indices[labels[axis]] for axis in sources])
    if isinstance(node, ir.Vech):
        row, column = (indices[labels[axis]] for axis in sources)
        binding.conditions.append(sympy.Ge(row - column, 0))
    _bind_label(binding, labels[target], image)
    return True


def image_axes(node: ir.Structural) -> tuple[int, tuple[int, ...]]:
    """Return the axis whose index follows from those of other axes, and these axes."""
    return (0, (1, 2)) if isinstance(node, ir.Reshape | ir.Vech) else (1, (0,))


def _image_label(constraint: Constraint) -> int | None:
    """Return the label that needs no division to be computed from the others; None if there are
    divisions in neither direction."""
    node, labels = constraint
    computed = isinstance(node, ir.Gather | ir.Reshape | ir.Vech)
    return labels[image_axes(node)[0]] if computed else None


def _image(node: ir.Structural, sources: Sequence[sympy.Expr]) -> sympy.Expr:
    """Compute the index that a structural factor determines from the others."""
    match node:
        case ir.Slice():
            return sympy.expand(node.start + node.step * sources[0])
        case ir.Gather():
            return gathered(node)(sources[0])
        case ir.Reshape():
            return sympy.expand(node.shape[2] * sources[0] + sources[1])
        case ir.Vech():
            row, column = sources
            return sympy.expand(row * (row + 1) / 2 + column)
    return sources[0]


def gathered(node: ir.Gather) -> sympy.FunctionClass:
    """Return the table of a `Gather` as a function of an index."""
    return sympy.Function(f"table_{node.key[1:]}", integer=True, nonnegative=True)


def _bind_label(binding: Binding, label: int, image: sympy.Expr) -> None:
    """Bind a label to an index; if it is bound, add the condition that both are equal."""
    if label in binding.indices:
        condition = sympy.Eq(sympy.expand(binding.indices[label] - image), 0)
        binding.conditions.append(condition)
        binding.is_scattered |= condition is not sympy.true
    else:
        binding.indices[label] = image


def _bind_sources(binding: Binding, pending: list[Constraint], sizes: Shape) -> list[Constraint]:
    """Bind the sources of one factor whose image is bound, by division."""
    for position, (node, labels) in enumerate(pending):
        other_constraints = pending[:position] + pending[position + 1 :]
        if isinstance(node, ir.Slice) and labels[1] in binding.indices:
            distance = sympy.expand(binding.indices[labels[1]] - node.start)
            index = sympy.floor(distance / node.step)
            if abs(node.step) != 1:
                remainder = sympy.Mod(distance, abs(node.step))
                binding.conditions.append(sympy.Eq(remainder, 0))
            binding.conditions += [sympy.Ge(index, 0), sympy.Lt(index, sizes[labels[0]])]
            binding.indices[labels[0]] = index
            binding.is_scattered = True
            return other_constraints
        if isinstance(node, ir.Reshape) and labels[0] in binding.indices:
            merged, inner = binding.indices[labels[0]], node.shape[2]
            _bind_label(binding, labels[1], sympy.floor(merged / inner))
            _bind_label(binding, labels[2], sympy.Mod(merged, inner))
            binding.has_division = True
            return other_constraints
        if isinstance(node, ir.Vech) and {labels[0], labels[1]} <= binding.indices.keys():
            row = binding.indices[labels[1]]
            column = sympy.expand(binding.indices[labels[0]] - row * (row + 1) / 2)
            binding.conditions += [sympy.Ge(column, 0), sympy.Ge(row - column, 0)]
            _bind_label(binding, labels[2], column)
            binding.is_scattered = True
            return other_constraints
    return pending


def separate(factors: Sequence[ir.Factor]) -> tuple[list[Constraint], list[ir.Factor]]:
    """Split factors into structural and dense ones."""
    structural = [(node, labels) for node, labels in factors if isinstance(node, ir.Structural)]
    return structural, [factor for factor in factors if not isinstance(factor[0], ir.Structural)]


def loop_indices(einsum: ir.Einsum, known_indices: dict[int, sympy.Expr] | None = None) -> Binding:
    """Bind all labels of `einsum`, including those of the output, to loops or to expressions of
    loops and `known_indices`."""
    constraints, _ = separate(einsum.factors)
    return bind(constraints, einsum.sizes, range(len(einsum.sizes)), known_indices or {})


def entry_indices(einsum: ir.Einsum) -> Binding:
    """Bind the labels of `einsum` for one entry, whose indices are given: without loops, and if not
    `is_scattered`, each entry is a plain product of entries."""
    return loop_indices(einsum, {label: index_symbol(label) for label in range(einsum.ndim)})
