"""Double precision in JAX, for the packages of tests whose conftest imports the fixture. PyTensor
enables it once, when it first compiles with JAX."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
