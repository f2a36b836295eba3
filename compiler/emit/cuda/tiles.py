"""Small arrays of many samples through shared memory.

Where each thread computes a sample of its own, neighbouring threads read and write entries that are
a sample apart. A block copies the samples of its threads as they lie in memory, entry beside entry,
to a tile in shared memory and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from derivatrix.compiler.emit.cuda.launches import Launch
from derivatrix.compiler.plan.steps import Buffer, Load, Statement, Store
from derivatrix.compiler.plan.visit import accesses, rebuilt

SHARED = 48 * 1024
"""The shared memory of a block, in bytes."""
BYTES = 8
THREADS = (128, 64, 32)
"""The threads of a block, the most that have room; the first where there are no tiles."""
THREAD = sympy.Symbol("thread", integer=True, nonnegative=True)


@dataclass(frozen=True)
class Tile:
    """The part of a buffer that a block works at: tile[entry, thread]. Rows are one entry longer
    than there are threads, so that neighbouring entries are in different banks of the memory."""

    buffer: Buffer
    name: str
    loaded: bool
    stored: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return tuple(int(size) for size in self.buffer.shape[1:])

    @property
    def entries(self) -> int:
        """Of a sample."""
        return math.prod(self.shape)

    def entry(self, indices: Sequence[sympy.Expr]) -> Load:
        """Where an entry of a thread's sample is."""
        place = sympy.S.Zero
        for size, index in zip(self.shape, indices, strict=True):
            place = place * size + index
        return Load(Buffer(self.name, self.buffer.shape[:2]), (place, THREAD))


@dataclass(frozen=True)
class Tiled:
    """A launch whose statements work at tiles, and the most threads that a block may have."""

    launch: Launch
    tiles: tuple[Tile, ...]
    threads: int


def tiled(launch: Launch) -> Tiled | None:
    """The launch with tiles, if there is something to gain."""
    if launch.terms or len(launch.points) != 1:
        return None
    statements = launch.statements
    ((sample, samples),) = launch.points
    met = list(accesses(statements))
    buffers = list(dict.fromkeys(load.buffer for load, _ in met))
    names = {buffer.name for buffer in buffers}
    found = []
    for buffer in buffers:
        own = [(load, written) for load, written in met if load.buffer == buffer]
        if _by_sample(buffer, [load for load, _ in own], sample, samples):
            read = any(not written for _, written in own)
            stored = any(written for _, written in own)
            name = f"{buffer.name}_tile"
            while name in names:
                name += "_"
            tile = Tile(buffer, name, read, stored)
            if (tile.entries > 1 and not stored) or _complete(tile, statements):
                found.append(tile)
    return _fitting(launch, found)


def _fitting(launch: Launch, found: list[Tile]) -> Tiled | None:
    """As many of the tiles as there is room for, the small ones first."""
    kept: list[Tile] = []
    entries = 0
    for tile in sorted(found, key=lambda tile: tile.entries):
        if _bytes(entries + tile.entries, THREADS[-1]) <= SHARED:
            kept.append(tile)
            entries += tile.entries
    if not kept:
        return None
    threads = next(number for number in THREADS if _bytes(entries, number) <= SHARED)
    places = {tile.buffer: tile for tile in kept}

    def moved(part: Any) -> Load | None:
        if isinstance(part, Load) and part.buffer in places:
            return places[part.buffer].entry(part.indices[1:])
        return None

    return Tiled(rebuilt(launch, moved), tuple(kept), threads)


def _bytes(entries: int, threads: int) -> int:
    """The memory of tiles of so many entries a sample."""
    return entries * (threads + 1) * BYTES


def _by_sample(
    buffer: Buffer, loads: Sequence[Load], sample: sympy.Symbol, samples: sympy.Expr
) -> bool:
    """Whether a thread's accesses are to known entries of its own sample."""
    return (
        len(buffer.shape) > 1
        and buffer.shape[0] == samples
        and all(size.is_Integer for size in buffer.shape[1:])
        and all(load.indices[0] == sample for load in loads)
        and all(index.is_Integer for load in loads for index in load.indices[1:])
    )


def _complete(tile: Tile, statements: Sequence[Statement]) -> bool:
    """Whether every entry of a sample is written, without conditions, and none is added to."""
    stores = [s for s in statements if isinstance(s, Store) and s.target.buffer == tile.buffer]
    everywhere = [load for load, written in accesses(statements) if written]
    if len(stores) != sum(load.buffer == tile.buffer for load in everywhere):
        return False
    places = {store.target.indices for store in stores if not store.accumulate}
    return not any(store.accumulate for store in stores) and len(places) == tile.entries > 1
