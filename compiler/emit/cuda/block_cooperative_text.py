"""The text of kernels in which groups of threads do one phase after the other for their rows."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.block_cooperative import Phase, Softmax
from derivatrix.compiler.emit.cuda.kernel import (
    DeviceStatements,
    KernelText,
    count,
    indented,
    inner_lines,
    kernel,
    lifted,
    named_factors,
)
from derivatrix.compiler.emit.cuda.launches import Launch, Loops


def block_cooperative_text(
    name: str, phases: Sequence[Phase], rows: Loops, checks: list[str]
) -> KernelText:
    """The kernel of phases over the same rows."""
    statements = DeviceStatements(checks)
    factors, named = named_factors(phases)
    body: list[str] = []
    for phase in named:
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
    """The loop of a thread over its share of a row."""
    inside = [*statements.decoded("term", terms), *body]
    return statements.strided_loop("term", "lane", statements.index(count(terms)), "lanes", inside)


def _points(launch: Launch, terms: Loops, statements: DeviceStatements) -> list[str]:
    """What is done at each point of a row."""
    same, each = lifted((*launch.before, *launch.after), {symbol for symbol, _ in terms})
    inside = [*statements.lines(same), *_shared(terms, statements.lines(each), statements)]
    return ["if active:", *indented(inside)]


def _sums(launch: Launch, statements: DeviceStatements) -> list[str]:
    """Sums over the terms of a row, and what is made of them."""
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
    """Softmax of a row, or its logsumexp."""
    source, target = statements.load(softmax.source), statements.load(softmax.target)
    terms, call = softmax.terms, statements.call
    summed = f"power = {call('math.exp', f'{source} - largest')}"
    kept = [f"{target} = power"] if softmax.normalised else []
    maximum = f"largest = {call('real_maximum', 'largest', source)}"
    if softmax.normalised:
        last = ["if active:", *indented(_shared(terms, [f"{target} /= total"], statements))]
    else:
        last = [
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
        *indented(_shared(terms, [summed, *kept, "total += power"], statements)),
        statements.reduced("total"),
        *last,
    ]
