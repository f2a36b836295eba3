"""Shared by all tests: one cache directory of compiled modules for the whole session."""

import os

import pytest


def pytest_addoption(parser):
    parser.addoption("--examples", default=300, type=int, help="how many random expressions to try")


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """Where `derivatrix.compile` writes, unless DERIVATRIX_CACHE says so already."""
    if "DERIVATRIX_CACHE" in os.environ:
        yield os.environ["DERIVATRIX_CACHE"]
        return
    os.environ["DERIVATRIX_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield os.environ["DERIVATRIX_CACHE"]
    del os.environ["DERIVATRIX_CACHE"]
