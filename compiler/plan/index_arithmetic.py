"""Structural factors as index arithmetic: which labels are loops, what the others are."""

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
    conditions: what must hold, beyond the loops' ranges, for the term not to be zero.
    scattered: whether a condition is an equation, true on few of the points.
    divided: whether an index needs a division.
    """

    indices: dict[int, sympy.Expr]
    loops: list[int] = field(default_factory=list)
    conditions: list[Boolean] = field(default_factory=list)
    scattered: bool = False
    divided: bool = False

    def with_loop(self, label: int) -> Binding:
        """Return a copy of this binding in which `label` is a further loop index."""
        indices = {**self.indices, label: index_symbol(label)}
        loops, conditions = [*self.loops, label], [*self.conditions]
        return replace(self, indices=indices, loops=loops, conditions=conditions)

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
                trial = binding.with_loop(label)
                rest = _propagate(trial, pending, sizes)
                image = any(label == _image_label(c) for c in pending)
                trials.append((len(trial.conditions), image, label, trial, rest))
        *_, binding, pending = min(trials, key=lambda entry: entry[:3])
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
    node, labels = constraint
    indices = binding.indices
    if isinstance(node, ir.Triangle):
        if any(label not in indices for label in labels):
            return False
        first, second = (indices[label] for label in labels)
        binding.conditions.append(sympy.Ge(first - second, node.offset))
        return True
    target, sources = image_axes(node)
    if isinstance(node, ir.Delta) and labels[0] not in indices:
        target, sources = 0, (1,)
    if any(labels[axis] not in indices for axis in sources):
        return False
    found = _image(node, [indices[labels[axis]] for axis in sources])
    if isinstance(node, ir.Vech):
        row, column = (indices[labels[axis]] for axis in sources)
        binding.conditions.append(sympy.Ge(row - column, 0))
    _agree(binding, labels[target], found)
    return True


def image_axes(node: ir.Structural) -> tuple[int, tuple[int, ...]]:
    """The axis whose index follows from those of the other axes, and these."""
    return (0, (1, 2)) if isinstance(node, ir.Reshape | ir.Vech) else (1, (0,))


def _image_label(constraint: Constraint) -> int | None:
    """The label that is better computed from the others than these from it."""
    node, labels = constraint
    computed = isinstance(node, ir.Gather | ir.Reshape | ir.Vech)
    return labels[image_axes(node)[0]] if computed else None


def _image(node: ir.Structural, sources: Sequence[sympy.Expr]) -> sympy.Expr:
    """The index that a structural factor determines."""
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
    """The table of a `Gather`, as a function of an index."""
    return sympy.Function(f"table_{node.key[1:]}", integer=True, nonnegative=True)


def _agree(binding: Binding, label: int, image: sympy.Expr) -> None:
    """Give a label its index; where it has one, the two must be equal."""
    if label in binding.indices:
        condition = sympy.Eq(sympy.expand(binding.indices[label] - image), 0)
        binding.conditions.append(condition)
        binding.scattered |= condition is not sympy.true
    else:
        binding.indices[label] = image


def _backward(binding: Binding, pending: list[Constraint], sizes: Shape) -> list[Constraint]:
    """Invert one factor whose image is known."""
    for position, (node, labels) in enumerate(pending):
        rest = pending[:position] + pending[position + 1 :]
        if isinstance(node, ir.Slice) and labels[1] in binding.indices:
            distance = sympy.expand(binding.indices[labels[1]] - node.start)
            index = sympy.floor(distance / node.step)
            if abs(node.step) != 1:
                remainder = sympy.Mod(distance, abs(node.step))
                binding.conditions.append(sympy.Eq(remainder, 0))
            binding.conditions += [sympy.Ge(index, 0), sympy.Lt(index, sizes[labels[0]])]
            binding.indices[labels[0]] = index
            binding.scattered = True
            return rest
        if isinstance(node, ir.Reshape) and labels[0] in binding.indices:
            merged, inner = binding.indices[labels[0]], node.shape[2]
            _agree(binding, labels[1], sympy.floor(merged / inner))
            _agree(binding, labels[2], sympy.Mod(merged, inner))
            binding.divided = True
            return rest
        if isinstance(node, ir.Vech) and {labels[0], labels[1]} <= binding.indices.keys():
            row = binding.indices[labels[1]]
            column = sympy.expand(binding.indices[labels[0]] - row * (row + 1) / 2)
            binding.conditions += [sympy.Ge(column, 0), sympy.Ge(row - column, 0)]
            _agree(binding, labels[2], column)
            binding.scattered = True
            return rest
    return pending


def split(factors: Sequence[ir.Factor]) -> tuple[list[Constraint], list[ir.Factor]]:
    """The structural factors, and the others."""
    structural = [(node, labels) for node, labels in factors if isinstance(node, ir.Structural)]
    return structural, [each for each in factors if not isinstance(each[0], ir.Structural)]


def loop_indices(einsum: ir.Einsum, known: dict[int, sympy.Expr] | None = None) -> Binding:
    """All labels of `einsum`, those of the output too, as loops or what follows from these and from
    the indices that are `known`."""
    constraints, _ = split(einsum.factors)
    return bind(constraints, einsum.sizes, range(len(einsum.sizes)), known or {})


def entry_indices(einsum: ir.Einsum) -> Binding:
    """The labels of `einsum` for one entry, the output's labels being given indices: no loops and
    not `scattered` means that each entry is a plain product of entries."""
    return loop_indices(einsum, {label: index_symbol(label) for label in range(einsum.ndim)})
