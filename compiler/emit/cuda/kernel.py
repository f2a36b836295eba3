"""Texts of kernels for a CUDA device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.emit.cuda.block_cooperative import Phase
from derivatrix.compiler.emit.cuda.launches import Launch, Loops
from derivatrix.compiler.emit.cuda.parameters import parameters
from derivatrix.compiler.emit.cuda.tiles import Tile, Tiled
from derivatrix.compiler.emit.public_functions import indented
from derivatrix.compiler.emit.statements import Statements
from derivatrix.compiler.plan import visit
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import Let, Name, Number, Start, Statement
from derivatrix.compiler.plan.visit import accesses, names_defined, names_read, rebuilt, symbols
from derivatrix.compiler.targets import cuda

SUM_PARAMETERS = (("splits", "int64"), ("partial", "real[::1]"), ("lanes", "int64"))
"""Further parameters of a kernel of sums: (name, Numba's type)."""
RESERVED = frozenset(
    [
        *("run", "cuda", "real", "shared", "failures", "THREADS", "KERNELS"),
        *("point", "item", "items", "first", "active", "term", "groups", "thread", "filled"),
        *("entry", "lane", "sample", "place", "group", "turn", "turns", "start", "step"),
        *("largest", "total", "power", "reduced", "SUM", "MAXIMUM", "log_of_sum"),
        *("quotient", "remainder", "natural"),
        *("newton", "sums", "each_row", "row_by_row", "clear"),
        *(name for name, _ in SUM_PARAMETERS),
        *(f"{stem}_{number}" for stem in ("at", "rest", "row", "entry") for number in range(16)),
        *(name.split(".")[0] for name in cuda.SPELLED.values()),
    ]
)
"""Names that no array, size or scalar of a kernel, or of its host function, can have."""

AnyPhase = TypeVar("AnyPhase", bound=Phase)


@dataclass(frozen=True)
class KernelText:
    """A kernel. summary: its docstring; signature: Numba's types of its parameters, where `real` is
    the precision of the run; parameters: their names; names: the names that its lines read."""

    name: str
    summary: str
    signature: str
    parameters: str
    lines: tuple[str, ...]
    names: frozenset[str] = field(compare=False)


class DeviceStatements(Statements):
    """The printer of a kernel for a device. checks: messages of possible failures of a call."""

    functions = cuda.SPELLED
    nothing = "0"
    multiplied = True

    def __init__(self, checks: list[str]) -> None:
        super().__init__()
        self._checks = checks

    def raised(self, failure: str) -> list[str]:
        return [f"failures[{check(self._checks, failure)}] = 1"]

    def call(self, name: str, *arguments: object) -> str:
        """Print a call."""
        return f"{self.named(name)}({', '.join(map(str, arguments))})"

    def zeros(self, totals: Iterable[str]) -> list[str]:
        """Print the starts of sums."""
        return self.lines(map(Start, totals))

    def reduced(self, total: str, by: str = "SUM") -> str:
        """Print the combination of a scalar over the threads of a group."""
        return f"{total} = {self.call('reduced', total, 'lanes', 'shared', self.named(by))}"

    def strided_loop(
        self, name: str, start: str, stop: str, step: str, body: Sequence[str]
    ) -> list[str]:
        """Print a loop over start, start + step, ... below stop. For a range with a step Numba uses
        64-bit division, and the compiler does not see that its numbers are not negative."""
        return [
            f"for turn in range({self.call('turns', start, stop, step)}):",
            f"    {name} = {self.call('natural', f'{start} + turn * {step}')}",
            *indented(body),
        ]

    def by_groups(self, items: str, body: Sequence[str]) -> list[str]:
        """Print the loop over items, each of which a group of threads of one block shares. The
        threads wait for each other in the body, so all of them run it; `active`: whether a group
        has an item."""
        return [
            "lane = cuda.threadIdx.x & (lanes - 1)",
            f"group = {self.call('quotient', 'cuda.threadIdx.x', 'lanes')}",
            f"groups = {self.call('quotient', 'cuda.blockDim.x', 'lanes')}",
            f"for first in range(cuda.blockIdx.x * groups, {items}, cuda.gridDim.x * groups):",
            f"    item = {self.call('natural', 'first + group')}",
            f"    active = item < {items}",
            *indented(body),
        ]

    def decoded(self, number: str, loops: Loops) -> Iterator[str]:
        """Print the indices of nested loops from the number of a round."""
        for position in range(len(loops) - 1, 0, -1):
            symbol, extent = loops[position]
            quotient = f"rest_{position - 1}" if position > 1 else str(loops[0][0])
            yield f"{quotient} = {self.call('quotient', number, self.index(extent))}"
            yield f"{symbol} = {self.call('remainder', number, quotient, self.index(extent))}"
            number = quotient
        if len(loops) == 1:
            yield f"{loops[0][0]} = {number}"

    def all_hold(self, conditions: Iterable[Boolean]) -> str:
        """Print the conjunction of conditions on sizes and indices."""
        return self.index(sympy.And(*conditions))


def check(checks: list[str], failure: str) -> int:
    """Return the number of a message in `checks`; add it if it is new."""
    if failure not in checks:
        checks.append(failure)
    return checks.index(failure)


def kernel_text(name: str, launch: Launch, tiled: Tiled | None, checks: list[str]) -> KernelText:
    """Write the kernel of a launch; with tiles in shared memory unless `tiled` is None."""
    statements = DeviceStatements(checks)
    factors, (with_factors,) = named_factors([launch if tiled is None else tiled.launch])
    if tiled is not None:
        lines = _tiled(dataclasses.replace(tiled, launch=with_factors), statements)
    elif launch.terms:
        lines = _sums(with_factors, statements, _shared_terms(with_factors, statements), True)
    else:
        lines = _points(with_factors, statements)
    extra = SUM_PARAMETERS if launch.terms else ()
    return kernel(name, [launch], extra, [*statements.lines(factors), *lines], statements)


def finish_text(name: str, launch: Launch, checks: list[str]) -> KernelText:
    """Write the kernel that adds the partial sums of several blocks."""
    statements = DeviceStatements(checks)
    factors, (with_factors,) = named_factors([launch])
    additions = [
        f"{total} += partial[{_part(number)}point * splits + term]"
        for number, total in enumerate(launch.sums)
    ]
    terms = statements.strided_loop("term", "lane", "splits", "lanes", additions)
    lines = _sums(with_factors, statements, terms, False)
    scalars_read = set(names_read((with_factors.before, with_factors.after)))
    factors = [factor for factor in factors if factor.name in scalars_read]
    return kernel(name, [launch], SUM_PARAMETERS, [*statements.lines(factors), *lines], statements)


def kernel(
    name: str,
    phases: Sequence[Phase],
    extra: Sequence[tuple[str, str]],
    lines: Sequence[str],
    statements: DeviceStatements,
) -> KernelText:
    """Write a kernel that runs phases in order; extra: further parameters, (name, type)."""
    phase_parameters = parameters(phases)
    typed = [*phase_parameters.typed, *extra]
    real = next(buffer.name for buffer in phase_parameters.buffers if buffer.kind == "real")
    head = [f"real = {real}.dtype.type"] if "real" in statements.names else []
    if extra:
        head.append(f"shared = cuda.shared.array({statements.named('THREADS')}, {real}.dtype)")
    return KernelText(
        name,
        "; ".join(dict.fromkeys(phase.comment for phase in phases)),
        ", ".join(kind for _, kind in typed),
        ", ".join(parameter for parameter, _ in typed),
        (*head, *lines),
        frozenset(statements.names),
    )


def _points(launch: Launch, statements: DeviceStatements) -> list[str]:
    """Write a kernel whose threads compute points."""
    work = (*launch.before, *launch.after)
    if not launch.points:
        return statements.lines(work)
    invariant, varying = lifted(work, {symbol for symbol, _ in launch.points})
    before, body = statements.lines(invariant), statements.lines(varying)
    points = statements.index(count(launch.points))
    decoding = [f"point = {statements.call('natural', 'turn')}"]
    decoding += statements.decoded("point", launch.points)
    loop = f"for turn in range(cuda.grid(1), {points}, cuda.gridsize(1)):"
    return [*before, loop, *indented([*decoding, *body])]


def lifted(
    body: Sequence[Statement], points: set[sympy.Symbol]
) -> tuple[list[Statement], list[Statement]]:
    """Split statements into scalars that are the same for all points, and the others. The compiler
    cannot hoist these scalars: for all it knows, a store may change the arrays that they read."""
    buffers_written = {load.buffer for load, is_written in accesses(body) if is_written}
    invariant: list[Statement] = []
    varying: list[Statement] = []
    varying_names: set[str] = set()
    for statement in body:
        if (
            isinstance(statement, Let)
            and varying_names.isdisjoint(names_read(statement))
            and buffers_written.isdisjoint(load.buffer for load, _ in accesses(statement))
            and points.isdisjoint(symbols(statement.value))
        ):
            invariant.append(statement)
        else:
            varying.append(statement)
            varying_names.update(names_defined([statement]))
    return invariant, varying


def named_factors(phases: Sequence[AnyPhase]) -> tuple[list[Let], list[AnyPhase]]:
    """Move fractions of sizes, which need double-precision division, out of the loops. Return the
    definitions of scalars for them, and the phases that read these scalars."""
    loops = [loop for phase in phases for loop in (*phase.points, *phase.terms)]
    if not loops:
        return [], list(phases)
    statements = [statement for phase in phases for statement in phase.statements]
    inside = {symbol for symbol, _ in loops} | {loop.index for loop in visit.loops(statements)}
    names = Names([*RESERVED, *visit.all_names(phases)])
    scalars: dict[Number, Name] = {}

    def replaced(part: Any) -> Any:
        if not isinstance(part, Number):
            return None
        symbols = part.value.free_symbols
        if part.value.is_integer or not symbols or symbols & inside:
            return None
        if part not in scalars:
            scalars[part] = Name(names.numbered("c"))
        return scalars[part]

    changed = list(rebuilt(tuple(phases), replaced))
    return [Let(name.name, number) for number, name in scalars.items()], changed


def _tiled(tiled: Tiled, statements: DeviceStatements) -> list[str]:
    """Write a kernel whose blocks copy their samples to shared memory and back."""
    launch, tiles = tiled.launch, tiled.tiles
    ((sample, samples),) = launch.points
    arrays = [
        f"{tile.name} = cuda.shared.array({(tile.entries, tiled.threads + 1)}, "
        f"{tile.buffer.name}.dtype)"
        for tile in tiles
    ]
    work = statements.lines((*launch.before, *launch.after))
    stop = statements.index(samples)
    body = [
        f"filled = min(cuda.blockDim.x, {stop} - first)",
        *(line for tile in tiles if tile.loaded for line in _copied(tile, statements)),
        "cuda.syncthreads()",
        "if thread < filled:",
        *indented([f"{sample} = {statements.call('natural', 'first + thread')}", *work]),
        "cuda.syncthreads()",
        *(line for tile in tiles if tile.stored for line in _copied(tile, statements, back=True)),
    ]
    if any(tile.stored for tile in tiles):
        body.append("cuda.syncthreads()")
    step = "cuda.gridDim.x * cuda.blockDim.x"
    return [
        *arrays,
        "thread = cuda.threadIdx.x",
        f"for first in range(cuda.blockIdx.x * cuda.blockDim.x, {stop}, {step}):",
        *indented(body),
    ]


def _copied(tile: Tile, statements: DeviceStatements, back: bool = False) -> list[str]:
    """Write a loop that copies entries to a tile, or back, in their order in the array's memory."""
    axes = [(sympy.Symbol(f"at_{axis}"), sympy.Integer(n)) for axis, n in enumerate(tile.shape)]
    indices = ", ".join(["first + sample", *(str(symbol) for symbol, _ in axes)])
    target, source = f"{tile.name}[place, sample]", f"{tile.buffer.name}[{indices}]"
    return statements.strided_loop(
        *("entry", "thread", f"filled * {tile.entries}", "cuda.blockDim.x"),
        [
            f"sample = {statements.call('quotient', 'entry', tile.entries)}",
            f"place = {statements.call('remainder', 'entry', 'sample', tile.entries)}",
            *statements.decoded("place", tuple(axes)),
            f"{source} = {target}" if back else f"{target} = {source}",
        ],
    )


def _sums(
    launch: Launch, statements: DeviceStatements, terms: Sequence[str], is_partial: bool
) -> list[str]:
    """Write a kernel in which threads share sums. is_partial: an item is a part of a point's terms;
    else it is a point, whose partial sums are added."""
    inside = indented([*statements.lines(launch.before), *terms])
    point = statements.call("quotient", "item", "splits") if is_partial else "item"
    decoding = [f"point = {point}", *statements.decoded("point", launch.points)]
    after = statements.lines(launch.after)
    if launch.conditions:
        decoding.append(f"active = {statements.all_hold(launch.conditions)}")
        inside = [*indented(decoding), "if active:", *inside]
    else:
        inside = [*indented(decoding), *inside]
    if is_partial:
        parts = [
            f"partial[{_part(number)}item] = {total}" for number, total in enumerate(launch.sums)
        ]
        after = ["if splits > 1:", *indented(parts), "else:", *indented(after or ["pass"])]
    points = statements.index(count(launch.points))
    body = [
        *statements.zeros(launch.sums),
        "if active:",
        *inside,
        *map(statements.reduced, launch.sums),
        "if active and lane == 0:",
        *indented(after or ["pass"]),
    ]
    items = f"items = {points} * splits" if points != "1" else "items = splits"
    return [items, *statements.by_groups("items" if is_partial else points, body)]


def _part(number: int) -> str:
    """Write the offset of the partial sums of a sum, as a term of an index."""
    return f"{number} * items + " if number > 1 else "items + " if number else ""


def _shared_terms(launch: Launch, statements: DeviceStatements) -> list[str]:
    """Write the loop of a thread over its share of the terms of a point."""
    terms = statements.index(count(launch.terms))
    body = [*statements.decoded("term", launch.terms), *inner_lines(launch, statements)]
    return [
        f"start = {statements.call('remainder', 'item', 'point', 'splits')} * lanes + lane",
        "step = splits * lanes",
        *statements.strided_loop("term", "start", terms, "step", body),
    ]


def inner_lines(launch: Launch, statements: DeviceStatements) -> list[str]:
    """Write the statements for each term of a sum."""
    body = statements.lines(launch.inner)
    if launch.inner_conditions:
        return [f"if {statements.all_hold(launch.inner_conditions)}:", *indented(body)]
    return body


def count(loops: Loops) -> sympy.Expr:
    """Count the rounds of nested loops."""
    return product(tuple(extent for _, extent in loops))
