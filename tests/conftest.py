"""Shared by all tests: one cache directory of compiled modules for the whole session."""

import os

import pytest


def pytest_addoption(parser):
    parser.addoption("--examples", default=300, type=int, help="how many random expressions to try")
    parser.addoption("--thorough", action="store_true", help="compile every case and identity too")


def pytest_configure(config):
    config.addinivalue_line("markers", "thorough: takes long; runs with --thorough only")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--thorough"):
        late = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if item not in set(late)]


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """Where `derivatrix.compile` writes, unless DERIVATRIX_CACHE says so already."""
    if "DERIVATRIX_CACHE" in os.environ:
        yield os.environ["DERIVATRIX_CACHE"]
        return
    os.environ["DERIVATRIX_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield os.environ["DERIVATRIX_CACHE"]
    del os.environ["DERIVATRIX_CACHE"]
