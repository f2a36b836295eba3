"""Planning: from the graph of a kernel's outputs to the steps that compute them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import readings, symbol
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.plan.common_factors import pull_out
from derivatrix.compiler.plan.divided_powers import with_divided_powers
from derivatrix.compiler.plan.fuse import fuse
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.matrix_vector import with_matrix_vector_calls
from derivatrix.compiler.plan.memory import allocated
from derivatrix.compiler.plan.recurrences import is_stacked_loop, with_planned_loops
from derivatrix.compiler.plan.row_shares import partition_rows
from derivatrix.compiler.plan.running_sums import has_running_sum
from derivatrix.compiler.plan.sample_parts import partition_samples
from derivatrix.compiler.plan.sample_sums import Part, partition_sums
from derivatrix.compiler.plan.schedule import Scheduler
from derivatrix.compiler.plan.shared_functions import share_functions
from derivatrix.compiler.plan.shared_operations import share_operations
from derivatrix.compiler.plan.simd import simd_blocked
from derivatrix.compiler.plan.solvers import kernel_names
from derivatrix.compiler.plan.stacked_segments import with_segments
from derivatrix.compiler.plan.steps import Argument, Buffer, Choose, Only, Plan, Size, Step
from derivatrix.compiler.plan.unroll import unroll
from derivatrix.compiler.plan.variants import Variant, best_variant, variants
from derivatrix.compiler.plan.visit import renamed, statement_count
from derivatrix.compiler.plan.workspace import Setting
from derivatrix.compiler.simplify.root_lengths import is_long_sum, is_short_sum, with_root_lengths
from derivatrix.runtime.errors import DeclarationError

__all__ = ["Machine", "Plan", "Size", "plan", "threaded_plan"]

MAX_STRAIGHT_STATEMENTS = 400
"""Straight-line code of more statements gives way to loops where these have fewer. Numba takes
10 ms to compile a statement, and so long a kernel is hardly faster: the Hessian of a Gaussian
likelihood of three dimensions, 448 statements, 4.6 s and 3.5 µs; by loops 2.1 s and 3.8 µs."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The processor that runs a kernel, as far as plans depend on it.

    fuse: the pass that merges steps.
    is_cpu: whether kernels can call all helpers of the CPU, straight-line code runs for blocks of
    samples by vector instructions, and long kernels compile slowly; on a device each thread
    computes a sample in straight-line code.
    reserved: names that no local variable has.
    """

    fuse: Callable[[Sequence[Step]], Sequence[Step]]
    is_cpu: bool = False
    reserved: frozenset[str] = frozenset()


CPU = Machine(fuse, is_cpu=True)


def plan(
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    machine: Machine = CPU,
    samples: sympy.Symbol | None = None,
    part: Part | None = None,
) -> Plan:
    """Plan the kernel `name`, which computes `outputs` from `arguments`.

    samples: the size of an axis that comes last in memory; part: settings of a kernel for a part of
    the samples. Raises DeclarationError for a size that follows from no argument's shape, and
    UnsupportedError for a node that no kernel computes.
    """
    candidates = variants(_prepared([*outputs, *(part.first_terms if part else ())], machine))
    return _planned(name, arguments, outputs, candidates, machine, samples, part)


def threaded_plan(
    name: str, arguments: Sequence[ir.Leaf], outputs: Sequence[tuple[str, ir.Node]]
) -> Plan:
    """Plan a kernel as `plan` does, and how threads of the CPU share its work, if they can."""
    candidates = variants(_prepared(outputs, CPU))
    kernel = _planned(name, arguments, outputs, candidates)
    nodes = candidates[0].nodes
    if any(map(is_stacked_loop, ir.topological([node for _, node in outputs]))):
        # `nodes` have loops whose steps have the samples as an axis of matrices
        nodes = best_variant(_prepared(outputs, CPU, with_loops=False)).nodes
    batch_last = partial(_planned, f"{name}_columns", arguments, outputs, candidates, CPU)
    prepared = [(output, node) for (output, _), node in zip(outputs, nodes, strict=True)]
    partitions = (
        partition_samples(kernel, nodes, arguments, batch_last)
        or partition_sums(name, prepared, arguments, plan)
        or partition_rows(kernel)
    )
    kernel = dataclasses.replace(kernel, partitions=partitions)
    is_part = kernel.whole is not kernel
    return dataclasses.replace(kernel, steps=(), constants=()) if is_part else kernel


def _planned(
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    candidates: Sequence[Variant],
    machine: Machine = CPU,
    samples: sympy.Symbol | None = None,
    part: Part | None = None,
) -> Plan:
    """Plan a kernel of one contraction order, or one that chooses among several of them."""
    if len(candidates) == 1:
        return _single(name, arguments, outputs, candidates[0], machine, samples, part)
    names = [f"{name}_{number}" for number in range(len(candidates))]
    frame = _Frame(arguments, outputs, [*machine.reserved, *names], part)
    alternatives = tuple(
        (
            frame.names.numbered("cost"),
            frame.renamed(variant.polynomial),
            _single(variant_name, arguments, outputs, variant, machine, samples, part),
        )
        for variant_name, variant in zip(names, candidates, strict=True)
    )
    return frame.plan(name, [Choose(alternatives)], {})


def _prepared(
    outputs: Sequence[tuple[str, ir.Node]], machine: Machine, with_loops: bool = True
) -> list[ir.Node]:
    """Rewrite the outputs by the passes that precede the choice of contraction orders. with_loops:
    whether loops over time are rewritten, too."""
    nodes = [node for _, node in outputs]
    if with_loops:
        nodes = with_segments(nodes, machine.is_cpu)
    # on a device, kernels along rows are fused instead
    nodes = share_operations(nodes, has_joint_kernels=machine.is_cpu)
    if with_loops:
        nodes = with_planned_loops(nodes)
    if machine.is_cpu:
        nodes = with_root_lengths(nodes, _has_scaled_root, is_long_sum)
    return share_functions(with_divided_powers(pull_out(nodes)))


def _single(
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    variant: Variant,
    machine: Machine,
    samples: sympy.Symbol | None = None,
    part: Part | None = None,
    accumulated: Collection[str] = (),
    is_step: bool = False,
) -> Plan:
    """Plan a kernel of one contraction order: straight-line code, or loops if these are shorter.
    accumulated: the outputs to which results are added. is_step: whether another kernel calls
    it."""
    nodes, terms = variant.nodes[: len(outputs)], variant.nodes[len(outputs) :]
    reserved = [*machine.reserved, *kernel_names(variant.nodes)]
    frame = _Frame(arguments, outputs, reserved, part)
    facts_of = partial(_facts, variant.facts)
    nest = straight = None
    if not terms and not accumulated:  # straight-line code only overwrites outputs
        nest = unroll(frame.places(nodes), frame.views, frame.names, facts_of)
    if nest is not None:
        if machine.is_cpu:
            nest = simd_blocked(nest, frame.names)
        straight = frame.plan(name, [nest], {})
        if not machine.is_cpu or statement_count(straight) <= MAX_STRAIGHT_STATEMENTS:
            return straight
        frame = _Frame(arguments, outputs, reserved, part)
    usual = partial(_usual, machine)
    setting = Setting(
        frame.names, frame.views, variant.nodes, facts_of, usual, samples, machine.is_cpu
    )
    scheduler = Scheduler(setting)
    places = [place for place in frame.places(nodes) if place[0] not in terms]
    scheduler.outputs(places, accumulated)
    if is_step and machine.is_cpu:
        scheduler.steps = with_matrix_vector_calls(scheduler.steps, frame.names)
    steps = [*machine.fuse(scheduler.steps)]
    if part and terms:
        scheduler.steps = []
        buffers = dict(frame.outputs)
        for (output, _), node in zip(part.first_terms, terms, strict=True):
            view = View(buffers[output], tuple(range(node.ndim)))
            scheduler.output(node, view, node not in nodes)
        steps.append(Only("first", tuple(scheduler.steps)))
    loops = frame.plan(name, steps, scheduler.constants)
    if straight is not None and statement_count(straight) <= statement_count(loops):
        return straight
    return loops


def _usual(
    machine: Machine,
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    accumulated: Collection[str] = (),
) -> Plan:
    """Plan a kernel that another one calls, in the contraction order for usual sizes."""
    variant = best_variant(_prepared(outputs, machine))
    return _single(
        name, arguments, outputs, variant, machine, accumulated=accumulated, is_step=True
    )


class _Frame:
    """A kernel without its steps: names, parameters, outputs and sizes."""

    def __init__(
        self,
        arguments: Sequence[ir.Leaf],
        outputs: Sequence[tuple[str, ir.Node]],
        reserved: Iterable[str],
        part: Part | None = None,
    ) -> None:
        self.names = Names(reserved)
        self.parameters = tuple(
            Argument(leaf.name, self.names.exact(leaf.name), leaf.shape, leaf.structure)
            for leaf in arguments
        )
        self.outputs = tuple(
            (output, Buffer(self.names.exact(output), node.shape, "output"))
            for output, node in outputs
        )
        lengths = [part.length] if part else []
        self.part_parameters = tuple(self.names.exact(length.name) for length in lengths)
        nodes = [node for _, node in outputs]
        self.sizes = _sizes(self.parameters, nodes, self.names, lengths)
        self.views: dict[ir.Node, View] = {
            leaf: View(
                Buffer(parameter.local, leaf.shape, "argument"),
                tuple(range(leaf.ndim)),
                not leaf.ndim,
            )
            for leaf, parameter in zip(arguments, self.parameters, strict=True)
        }
        self._renames = {
            symbol(size.name): symbol(size.local) for size in self.sizes if size.name != size.local
        }
        self._renames |= {
            length: symbol(local)
            for length, local in zip(lengths, self.part_parameters, strict=True)
        }

    def places(self, nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, View]]:
        """Pair the nodes of the outputs with the buffers that they are written to."""
        return [
            (node, View(buffer, tuple(range(node.ndim))))
            for node, (_, buffer) in zip(nodes, self.outputs, strict=True)
        ]

    def renamed(self, part: Any) -> Any:
        """Replace the public names of sizes in a part of a plan by local ones."""
        return renamed(part, self._renames) if self._renames else part

    def plan(self, name: str, steps: Sequence[Step], constants: dict[str, np.ndarray]) -> Plan:
        """Return the plan with these steps, and with allocations of their work arrays."""
        return Plan(
            name,
            self.parameters,
            self.outputs,
            self.sizes,
            tuple(sorted(constants.items())),
            self.renamed(tuple(allocated(steps))),
            (*self.part_parameters, "first") if self.part_parameters else (),
        )


def _has_scaled_root(square: ir.Node) -> bool:
    """Return whether the root of a sum of squares is computed from scaled entries, so that it does
    not overflow. Each entry of a running sum would need a loop of its own for that."""
    return not is_short_sum(square) and not has_running_sum(square)


def _facts(structure: Mapping[ir.Node, frozenset[str]], node: ir.Node) -> frozenset[str]:
    """Return the facts of structure of `node`, and those of the product that it was made from."""
    return structure.get(node, frozenset()) | facts(node)


def _sizes(
    arguments: Sequence[Argument],
    nodes: Sequence[ir.Node],
    names: Names,
    given_sizes: Collection[sympy.Symbol],
) -> tuple[Size, ...]:
    """Read every named size off an axis of an argument, except `given_sizes`, which are
    parameters."""
    size_readings = readings([argument.shape for argument in arguments])
    for node in ir.topological(nodes):
        sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
        for size in sorted(sympy.Tuple(*sizes).free_symbols, key=str):
            if size not in size_readings and size not in given_sizes:
                raise DeclarationError(
                    f"the size {size} follows from no input's shape; "
                    f"give some input an axis of length {size}"
                )
    return tuple(
        Size(
            size.name,
            names.exact(size.name),
            arguments[reading.position],
            reading.axis,
            reading.value,
            reading.exact,
        )
        for size, reading in size_readings.items()
    )
