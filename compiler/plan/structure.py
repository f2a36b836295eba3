"""Structural factors as index arithmetic: which labels are loops, what the others are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler import ir
from derivatrix.compiler.dimensions import Shape

Constraint = tuple[ir.Structural, ir.Labels]


@dataclass
class Binding:
    """Index expressions of labels.

    loops: the labels that are loop indices themselves.
    conditions: what must hold, beyond the loops' ranges, for the term not to be zero.
    partial: whether an index may lie outside its range where the conditions fail.
    scattered: whether a condition is an equation, true on few of the points.
    """

    indices: dict[int, sympy.Expr]
    loops: list[int] = field(default_factory=list)
    conditions: list[Boolean] = field(default_factory=list)
    partial: bool = False
    scattered: bool = False

    def copy(self) -> Binding:
        return Binding(
            dict(self.indices),
            list(self.loops),
            list(self.conditions),
            self.partial,
            self.scattered,
        )

    @property
    def impossible(self) -> bool:
        return any(condition is sympy.false for condition in self.conditions)


def index_symbol(label: int) -> sympy.Symbol:
    """The loop index that stands for a label until a nest names it."""
    return sympy.Symbol(f"_{label}", integer=True, nonnegative=True)


def bind(
    constraints: Sequence[Constraint],
    sizes: Shape,
    labels: Iterable[int],
    known: dict[int, sympy.Expr],
) -> Binding:
    """Index expressions for all of `labels`, given those in `known`.

    A label that nothing determines becomes a loop; among the labels of linked structural
    factors, the loop is the one that leaves the fewest conditions.
    """
    binding = Binding(dict(known))
    pending = _propagate(binding, list(constraints), sizes)
    labels = list(labels)
    while pending:
        linked = [label for label in labels if any(label in c[1] for c in pending)]
        trials = []
        for label in linked:
            if label not in binding.indices:
                trial = binding.copy()
                trial.indices[label] = index_symbol(label)
                trial.loops.append(label)
                rest = _propagate(trial, pending, sizes)
                trials.append((len(trial.conditions), label, trial, rest))
        _, _, binding, pending = min(trials, key=lambda entry: entry[:2])
    for label in labels:
        if label not in binding.indices:
            binding.indices[label] = index_symbol(label)
            binding.loops.append(label)
    binding.conditions = [c for c in dict.fromkeys(binding.conditions) if c is not sympy.true]
    return binding


def _propagate(binding: Binding, constraints: list[Constraint], sizes: Shape) -> list[Constraint]:
    """Determine what follows from the indices known; the constraints not yet used come back."""
    pending = constraints
    while True:
        rest = [c for c in pending if not _forward(binding, c)]
        if len(rest) == len(pending):
            rest = _backward(binding, pending, sizes)
            if len(rest) == len(pending):
                return pending
        pending = rest


def _forward(binding: Binding, constraint: Constraint) -> bool:
    """Use a constraint that needs no division."""
    node, (first, second) = constraint
    indices = binding.indices
    if isinstance(node, ir.Triangle):
        if first not in indices or second not in indices:
            return False
        binding.conditions.append(sympy.Ge(indices[first] - indices[second], node.offset))
        return True
    if first in indices:
        image = indices[first]
        if isinstance(node, ir.Select):
            image = sympy.expand(node.start + node.step * image)
        if second in indices:
            condition = sympy.Eq(sympy.expand(indices[second] - image), 0)
            binding.conditions.append(condition)
            binding.scattered |= condition is not sympy.true
        indices[second] = indices.get(second, image)
        return True
    if second in indices and isinstance(node, ir.Delta):
        indices[first] = indices[second]
        return True
    return False


def _backward(binding: Binding, pending: list[Constraint], sizes: Shape) -> list[Constraint]:
    """Invert one `Select` whose second index is known."""
    for position, (node, (first, second)) in enumerate(pending):
        if isinstance(node, ir.Select) and second in binding.indices:
            distance = sympy.expand(binding.indices[second] - node.start)
            index = sympy.floor(distance / node.step)
            if abs(node.step) != 1:
                remainder = sympy.Mod(distance, abs(node.step))
                binding.conditions.append(sympy.Eq(remainder, 0))
            binding.conditions += [sympy.Ge(index, 0), sympy.Lt(index, sizes[first])]
            binding.indices[first] = index
            binding.partial = binding.scattered = True
            return pending[:position] + pending[position + 1 :]
    return pending


def split(einsum: ir.Einsum) -> tuple[list[Constraint], list[ir.Factor]]:
    """The structural factors, and the others."""
    structural, dense = [], []
    for node, labels in einsum.factors:
        if isinstance(node, ir.Structural):
            structural.append((node, labels))
        else:
            dense.append((node, labels))
    return structural, dense


def gather(einsum: ir.Einsum) -> Binding:
    """The labels of `einsum` with its output labels as given indices: no loops and not
    `scattered` means that each entry is a plain product of entries."""
    known = {label: index_symbol(label) for label in range(einsum.ndim)}
    constraints, _ = split(einsum)
    return bind(constraints, einsum.sizes, range(len(einsum.sizes)), known)
