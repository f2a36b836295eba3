"""Tiles: small arrays of many samples in shared memory.

If each thread computes one sample, neighbouring threads access entries that are a sample apart. So
a block copies the samples of its threads, in their order in memory, to a tile in shared memory, and
back.
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

SHARED_MEMORY_BYTES = 48 * 1024
"""Shared memory of a block that every device has."""
ENTRY_BYTES = 8
THREADS = (128, 64, 32)
"""Possible numbers of threads of a block: the most whose tiles fit in shared memory."""
THREAD = sympy.Symbol("thread", integer=True, nonnegative=True)


@dataclass(frozen=True)
class Tile:
    """The samples of a buffer that a block computes: tile[entry, thread]. Rows are one entry longer
    than the number of threads, so that neighbouring entries are in different memory banks."""

    buffer: Buffer
    name: str
    loaded: bool
    stored: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return tuple(int(size) for size in self.buffer.shape[1:])

    @property
    def entries(self) -> int:
        """The number of entries of a sample."""
        return math.prod(self.shape)

    def entry(self, indices: Sequence[sympy.Expr]) -> Load:
        """Return the place in the tile of an entry of a thread's sample."""
        place = sympy.S.Zero
        for size, index in zip(self.shape, indices, strict=True):
            place = place * size + index
        return Load(Buffer(self.name, self.buffer.shape[:2]), (place, THREAD))


@dataclass(frozen=True)
class Tiled:
    """A launch whose statements access tiles; threads: the most threads of a block."""

    launch: Launch
    tiles: tuple[Tile, ...]
    threads: int


def tiled(launch: Launch) -> Tiled | None:
    """Move the arrays of a launch to tiles; None if no array gains from it."""
    if launch.terms or len(launch.points) != 1:
        return None
    statements = launch.statements
    ((sample, samples),) = launch.points
    touched = list(accesses(statements))
    tiles = []
    for buffer in dict.fromkeys(load.buffer for load, _ in touched):
        entries = [(load, is_written) for load, is_written in touched if load.buffer == buffer]
        if _by_sample(buffer, [load for load, _ in entries], sample, samples):
            is_loaded = any(not is_written for _, is_written in entries)
            is_stored = any(is_written for _, is_written in entries)
            # no input has a name with an underscore in front
            tile = Tile(buffer, f"_{buffer.name}_tile", is_loaded, is_stored)
            # samples of one entry need none: neighbouring threads access neighbours in memory
            if (tile.entries > 1 and not is_stored) or _complete(tile, statements):
                tiles.append(tile)
    return _fitting(launch, tiles)


def _fitting(launch: Launch, candidates: list[Tile]) -> Tiled | None:
    """Take as many tiles as fit in shared memory, small ones first."""
    tiles: list[Tile] = []
    entries = 0
    for tile in sorted(candidates, key=lambda tile: tile.entries):
        if _bytes(entries + tile.entries, THREADS[-1]) <= SHARED_MEMORY_BYTES:
            tiles.append(tile)
            entries += tile.entries
    if not tiles:
        return None
    threads = next(number for number in THREADS if _bytes(entries, number) <= SHARED_MEMORY_BYTES)
    places = {tile.buffer: tile for tile in tiles}

    def in_tile(part: Any) -> Load | None:
        if isinstance(part, Load) and part.buffer in places:
            return places[part.buffer].entry(part.indices[1:])
        return None

    return Tiled(rebuilt(launch, in_tile), tuple(tiles), threads)


def _bytes(entries: int, threads: int) -> int:
    """Count the bytes of tiles with `entries` entries for each sample."""
    return entries * (threads + 1) * ENTRY_BYTES


def _by_sample(
    buffer: Buffer, loads: Sequence[Load], sample: sympy.Symbol, samples: sympy.Expr
) -> bool:
    """Return whether a thread accesses only constant entries of its own sample."""
    return (
        len(buffer.shape) > 1
        and buffer.shape[0] == samples
        and all(size.is_Integer for size in buffer.shape[1:])
        and all(load.indices[0] == sample for load in loads)
        and all(index.is_Integer for load in loads for index in load.indices[1:])
    )


def _complete(tile: Tile, statements: Sequence[Statement]) -> bool:
    """Return whether every entry of a sample is written, unconditionally, and none is added to:
    the copy back from the tile overwrites all of them."""
    stores = [s for s in statements if isinstance(s, Store) and s.target.buffer == tile.buffer]
    loads = [load for load, is_written in accesses(statements) if is_written]
    if len(stores) != sum(load.buffer == tile.buffer for load in loads):
        return False
    places = {store.target.indices for store in stores if not store.accumulate}
    return not any(store.accumulate for store in stores) and len(places) == tile.entries > 1
