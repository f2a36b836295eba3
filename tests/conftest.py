"""Shared by all tests: one cache directory of compiled modules, whichever process runs a test."""

import gc
import os
import shutil
import sys
from functools import partial

import pytest

from tests import ROOT
from tests.schedule import place

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Two processes with two threads each on two cores wait for each other longer than they work. It
is read where NumPy is first imported; a test that needs threads of OpenBLAS says so itself."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Hundreds of processes are started, each of which would compile all our files again."""

LATE = {
    "peers": "needs JAX and PyTorch",
    "browser": "needs Playwright and Chromium",
}
"""The markers of tests that run only when they are asked for."""


def pytest_addoption(parser):
    parser.addoption("--examples", default=30, type=int, help="how many random expressions to try")
    parser.addoption("--rest", action="store_true", help="run what the default suite leaves out")
    parser.addoption("--peers", action="store_true", help="compare with JAX and PyTorch too")
    parser.addoption("--browser", action="store_true", help="run tests in Chromium too")
    parser.addoption("--adapters", action="store_true", help="run tests/adapters too")


def pytest_configure(config):
    for option, reason in LATE.items():
        config.addinivalue_line("markers", f"{option}: {reason}; runs with --{option} only")
    config.addinivalue_line("markers", "thorough: takes long; runs with --rest or if it is named")
    config.addinivalue_line("markers", "device: needs a CUDA device; runs where there is one")
    config.addinivalue_line("markers", "toolkit: needs CUDA's compilers; runs where they are")


def pytest_ignore_collect(collection_path, config):
    if collection_path == ROOT / "tests" / "adapters" and not config.getoption("--adapters"):
        return True
    return None


def pytest_collection_finish():
    """Keep what tests are made of, which lives until the end, out of garbage collections: each
    would walk through half a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def forgotten(monkeypatch):
    """Nothing that a planted fault has led to is kept, nor what was right before."""
    from tests.caches import derive_always, forget

    derive_always(monkeypatch)
    forget()
    yield
    forget()


def has_device():
    """Return whether there is a CUDA device; asking takes a second, so only tests of devices do."""
    from derivatrix.runtime import simulated

    return simulated.has_device()


def has_toolkit():
    """Return whether kernels for CUDA devices can be compiled, as with the extra `cuda`."""
    from derivatrix.compiler.emit.cuda.resources import Kernel
    from derivatrix.runtime.errors import UnsupportedError

    try:
        Kernel("empty", "", "void()", lambda: None).resources()
    except UnsupportedError:
        return False
    return True


def pytest_collection_modifyitems(config, items):
    from tests.selection import left_out

    late = [option for option in LATE if not config.getoption(f"--{option}")]
    for marker, is_there in (("device", has_device), ("toolkit", has_toolkit)):
        if any(item.get_closest_marker(marker) for item in items) and not is_there():
            late.append(marker)
    without = {item for item in items if any(map(item.get_closest_marker, late))}
    if not any("::" in argument for argument in config.args):
        tests = [item for item in items if item not in without]
        rest = {item.nodeid for item in tests if item.get_closest_marker("thorough")}
        rest |= left_out(item.nodeid for item in tests if item.nodeid not in rest)
        wanted = config.getoption("--rest")
        without |= {item for item in tests if (item.nodeid in rest) != wanted}
    config.hook.pytest_deselected(items=[*without])
    items[:] = sorted(
        (item for item in items if item not in without), key=lambda item: place(item.nodeid)
    )


@pytest.fixture(scope="session", autouse=True)
def cache_directory(request):
    """Set the cache of `derivatrix.compile` to a folder in pytest's cache, unless DERIVATRIX_CACHE
    is set, so that unchanged modules are not compiled again. Modules with another support are
    removed."""
    if "DERIVATRIX_CACHE" in os.environ:
        yield os.environ["DERIVATRIX_CACHE"]
        return
    from derivatrix.compiler.emit.imports import support_digest

    folder = request.config.cache.mkdir("derivatrix")
    for group in folder.iterdir():
        if group.name not in (support_digest(), "machine_code"):
            shutil.rmtree(group, ignore_errors=True)  # the other process may do so, too
    os.environ["DERIVATRIX_CACHE"] = str(folder)
    yield os.environ["DERIVATRIX_CACHE"]
    del os.environ["DERIVATRIX_CACHE"]


@pytest.fixture(scope="session")
def simulator():
    """Runs tests in a process in which Numba simulates a device (`simulation.simulated`)."""
    from derivatrix.runtime.simulated import ENVIRONMENT
    from derivatrix.runtime.workers import Workers
    from tests.simulation import ask

    with Workers(1, ENVIRONMENT) as workers:
        yield partial(ask, workers)
