"""The comparison of adapters' results in the matrix of versions finds wrong ones."""

import jax
import pytest

import derivatrix as dx
from tests.versions import adapted

n = dx.dims("n")
S, x = dx.matrix("S", n, n, "spd"), dx.vector("x", n)


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def test_right_and_wrong_results(monkeypatch):
    module = dx.compile(dx.function("solutions", [S, x], dx.solve(S, x), batch=[S, x]))
    assert adapted.differing(module) == []
    right = adapted.by_dask
    monkeypatch.setattr(adapted, "by_dask", lambda *pair: [1.001 * a for a in right(*pair)])
    assert adapted.differing(module) == ["dask"]
