"""The text of kernels in which groups of threads do one phase after the other for their rows."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.block_cooperative import Phase, Softmax
from derivatrix.compiler.emit.cuda.kernel import (
    DeviceStatements,
    KernelText,
    by_groups,
    count,
    decoded,
    every,
    indented,
    index,
    kernel,
    lifted,
    named_factors,
    strided_loop,
    used,
)
from derivatrix.compiler.emit.cuda.launches import Launch, Loops
from derivatrix.compiler.emit.statements import Statements


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
    lines = by_groups(index(count(rows)), [*decoded("item", rows), *body])
    return kernel(name, phases, [("lanes", "int64")], [*used(factors, lines, statements), *lines])


def _shared(terms: Loops, body: Sequence[str]) -> list[str]:
    """The loop of a thread over its share of a row."""
    inside = [*decoded("term", terms), *body]
    return strided_loop("term", "lane", index(count(terms)), "lanes", inside)


def _points(launch: Launch, terms: Loops, statements: Statements) -> list[str]:
    """What is done at each point of a row."""
    same, each = lifted((*launch.before, *launch.after), {symbol for symbol, _ in terms})
    inside = [*statements.lines(same), *_shared(terms, statements.lines(each))]
    return ["if active:", *indented(inside)]


def _sums(launch: Launch, statements: Statements) -> list[str]:
    """Sums over the terms of a row, and what is made of them."""
    active = every(launch.conditions) if launch.conditions else ""
    active = f"active and {active}" if active else "active"
    body = statements.lines(launch.inner)
    if launch.inner_conditions:
        body = [f"if {every(launch.inner_conditions)}:", *indented(body)]
    after = statements.lines(launch.after)
    return [
        *(f"{total} = real(0)" for total in launch.sums),
        f"if {active}:",
        *indented([*statements.lines(launch.before), *_shared(launch.terms, body)]),
        *(f"{total} = reduced({total}, lanes, shared, SUM)" for total in launch.sums),
        *([f"if {active} and lane == 0:", *indented(after)] if after else []),
    ]


def _softmax(softmax: Softmax, statements: Statements) -> list[str]:
    """Softmax of a row, or its logsumexp."""
    source, target = statements.load(softmax.source), statements.load(softmax.target)
    summed = f"power = math.exp({source} - largest)"
    kept = [f"{target} = power"] if softmax.normalised else []
    largest = _shared(softmax.terms, [f"largest = real_maximum(largest, {source})"])
    total = _shared(softmax.terms, [summed, *kept, "total += power"])
    if softmax.normalised:
        last = ["if active:", *indented(_shared(softmax.terms, [f"{target} /= total"]))]
    else:
        last = ["if active and lane == 0:", f"    {target} = log_of_sum(largest, total)"]
    return [
        "largest = real(-math.inf)",
        "if active:",
        *indented(largest),
        "largest = reduced(largest, lanes, shared, MAXIMUM)",
        "total = real(0)",
        "if active:",
        *indented(total),
        "total = reduced(total, lanes, shared, SUM)",
        *last,
    ]
