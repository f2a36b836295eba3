"""Texts of kernels in which a group of threads runs one phase after the other for its row."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.block_cooperative import Phase, Softmax
from derivatrix.compiler.emit.cuda.kernel import (
    DeviceStatements,
    KernelText,
    count,
    inner_lines,
    kernel,
    lifted,
    named_factors,
)
from derivatrix.compiler.emit.cuda.launches import Launch, Loops
from derivatrix.compiler.emit.public_functions import indented


def block_cooperative_text(
    name: str, phases: Sequence[Phase], rows: Loops, checks: list[str]
) -> KernelText:
    """Write the kernel of phases over the same rows."""
    statements = DeviceStatements(checks)
    factors, with_factors = named_factors(phases)
    body: list[str] = []
    for phase in with_factors:
        body += ["cuda.syncthreads()"] if body else []
        if isinstance(phase, Softmax):
            body += _softmax(phase, statements)
        elif phase.terms:
            body += _sums(phase, statements)
        else:
            body += _points(phase, phase.points[len(rows) :], statements)
    items = statements.index(count(rows))
    lines = statements.by_groups(items, [*statements.decoded("item", rows), *body])
    lines = [*statements.lines(factors), *lines]
    return kernel(name, phases, [("lanes", "int64")], lines, statements)


def _shared(terms: Loops, body: Sequence[str], statements: DeviceStatements) -> list[str]:
    """Write the loop of a thread over its share of a row."""
    inside = [*statements.decoded("term", terms), *body]
    return statements.strided_loop("term", "lane", statements.index(count(terms)), "lanes", inside)


def _points(launch: Launch, terms: Loops, statements: DeviceStatements) -> list[str]:
    """Write the statements for each point of a row."""
    invariant, varying = lifted((*launch.before, *launch.after), {symbol for symbol, _ in terms})
    inside = [*statements.lines(invariant), *_shared(terms, statements.lines(varying), statements)]
    return ["if active:", *indented(inside)]


def _sums(launch: Launch, statements: DeviceStatements) -> list[str]:
    """Write the sums over the terms of a row, and the statements after them."""
    active = "active"
    if launch.conditions:
        active = f"active and {statements.all_hold(launch.conditions)}"
    terms = _shared(launch.terms, inner_lines(launch, statements), statements)
    after = statements.lines(launch.after)
    return [
        *statements.zeros(launch.sums),
        f"if {active}:",
        *indented([*statements.lines(launch.before), *terms]),
        *map(statements.reduced, launch.sums),
        *([f"if {active} and lane == 0:", *indented(after)] if after else []),
    ]


def _softmax(softmax: Softmax, statements: DeviceStatements) -> list[str]:
    """Write the softmax of a row, or its logsumexp. The largest entry is subtracted before powers
    are taken: otherwise they could overflow."""
    source, target = statements.load(softmax.source), statements.load(softmax.target)
    terms, call = softmax.terms, statements.call
    summed = f"power = {call('math.exp', f'{source} - largest')}"
    stores = [f"{target} = power"] if softmax.normalised else []
    maximum = f"largest = {call('real_maximum', 'largest', source)}"
    if softmax.normalised:
        final = ["if active:", *indented(_shared(terms, [f"{target} /= total"], statements))]
    else:
        final = [
            "if active and lane == 0:",
            f"    {target} = {call('log_of_sum', 'largest', 'total')}",
        ]
    return [
        f"largest = {call('real', '-math.inf')}",
        "if active:",
        *indented(_shared(terms, [maximum], statements)),
        statements.reduced("largest", "MAXIMUM"),
        *statements.zeros(["total"]),
        "if active:",
        *indented(_shared(terms, [summed, *stores, "total += power"], statements)),
        statements.reduced("total"),
        *final,
    ]
