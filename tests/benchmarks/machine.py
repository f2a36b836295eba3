"""The machine: what it is, what it reaches, and whether something else runs on it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tests.benchmarks.timing import block, calibrate

Measured = TypeVar("Measured")
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that keep OpenBLAS from choosing its kernels for this processor."""

POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
WAITING = 0.1
"""Seconds of waiting for a processor in a second above which threads share one."""
QUIET = 2e-4
"""Seconds of work in 2 ms below which a process counts as idle."""


def environment(threads: int, scratch: Path, device: str = "") -> dict[str, str]:
    """The variables that a worker starts with: a number of threads, and caches that are empty."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | {
        **dict.fromkeys(POOLS, str(threads)),
        "JAX_PLATFORMS": device or "cpu",
        "DERIVATRIX_CACHE": str(scratch / "derivatrix"),
        "NUMBA_CACHE_DIR": str(scratch / "numba"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch"),
        "PYTENSOR_FLAGS": f"base_compiledir={scratch / 'pytensor'}",
    }


@contextmanager
def settings(threads: int, scratch: Path, device: str = "") -> Iterator[None]:
    """Set what a process inherits that starts meanwhile: variables, and `threads` processors."""
    variables, processors = dict(os.environ), _processors()
    theirs = environment(threads, scratch, device)
    os.environ.clear()
    os.environ.update(theirs)
    _confine(processors[:threads])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        _confine(processors)


def _processors() -> list[int]:
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def _confine(processors: list[int]) -> None:
    if processors:
        os.sched_setaffinity(0, processors)


def describe() -> dict[str, str]:
    """Processor, system and Python."""
    return {
        "processor": _model(),
        "processors": str(len(_processors()) or os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }


def _model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


class Rates(NamedTuple):
    """The rates of the machine. dgemm, sgemm: floating-point operations a second of matrix
    products; copies: bytes a second, read and written, by the bytes of source and target."""

    dgemm: float
    sgemm: float
    copies: Mapping[int, float]

    def copying(self, nbytes: int) -> float:
        """The rate of the smallest copies measured that are no smaller."""
        return self.copies[min((s for s in self.copies if s >= nbytes), default=max(self.copies))]

    def __str__(self) -> str:
        copies = [
            f"{rate / 1e9:.1f} GB/s of {size / 1e6:g} MB" for size, rate in self.copies.items()
        ]
        return (
            f"dgemm {self.dgemm / 1e9:.1f} GFLOP/s, sgemm {self.sgemm / 1e9:.1f} GFLOP/s, "
            f"copies (read and written) {', '.join(copies)}"
        )


def rates(threads: int) -> Rates:
    """Measured in this process, with its settings."""
    copies = {nbytes: _copies(nbytes, 1) for nbytes in (32_000, 1_000_000)}
    large = 256_000_000
    return Rates(
        dgemm=_products(np.float64),
        sgemm=_products(np.float32),
        copies=copies | {large: _copies(large, threads)},
    )


def _products(dtype: type[np.floating]) -> float:
    size = 1024
    A = np.random.default_rng(0).normal(size=(size, size)).astype(dtype)
    out = np.empty_like(A)
    return 2 * size**3 / _least(lambda: np.dot(A, A, out=out))


def _copies(nbytes: int, threads: int) -> float:
    length = nbytes // 16
    source, target = np.ones(length), np.zeros(length)
    if threads == 1:
        return nbytes / _least(lambda: np.copyto(target, source))
    parts = [slice(k * length // threads, (k + 1) * length // threads) for k in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def call() -> None:
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))

        return nbytes / _least(call)


def _least(call: Callable[[], Any]) -> float:
    loops = calibrate(call)
    return min(block(call, loops) for _ in range(10))


def settle(process: int | None, most: float = 0.3) -> float:
    """Wait until a process computes nothing, its pools' threads neither; the seconds it took."""
    started = time.monotonic()
    before = work(process)
    while time.monotonic() - started < most:
        time.sleep(0.002)
        now = work(process)
        if now - before < QUIET:
            break
        before = now
    return time.monotonic() - started


def undisturbed(measure: Callable[[], Measured], most: float = 0.5) -> Measured:
    """Repeat a measurement until no threads of this process wait for each other's processor: a
    system may put threads that have slept on one processor, and takes a tenth of a second to move
    them."""
    started = now = time.monotonic()
    while True:
        begun, before = now, waited(os.getpid())
        result = measure()
        now = time.monotonic()
        if waited(os.getpid()) - before < WAITING * (now - begun) or now - started > most:
            return result


def work(process: int | None) -> float:
    """Seconds of processor time that the threads of a process have taken; 0 where the system
    does not tell."""
    return _scheduled(process, 0)


def waited(process: int) -> float:
    """Seconds that its threads have waited for a processor, added up; 0 where it does not tell."""
    return _scheduled(process, 1)


def _scheduled(process: int | None, field: int) -> float:
    total = 0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text(encoding="ascii").split()[field])
        except (OSError, IndexError):  # the thread has ended
            continue
    return total / 1e9


def busy() -> float:
    """Seconds of work of all processors since the system started; 0 where it does not tell."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    ticks = [int(text) for text in path.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def blas_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that concern BLAS and threads."""
    return {name: variables.get(name, "unset") for name in (*POOLS, *UNSET)}
