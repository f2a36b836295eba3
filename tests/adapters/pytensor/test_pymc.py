"""A density by derivatrix in a model of PyMC, and one that PyTensor differentiates."""

import numpy as np
import pytest

from tests.adapters.pytensor.nuts import density, model, sampled

COUNT, DRAWS = 8, 20


@pytest.fixture(scope="module")
def ours():
    return model(COUNT, own=False)


def test_densities_and_gradients_agree(ours):
    """But for the constant that ours leaves out."""
    functions = [density(ours), density(model(COUNT, own=True), mode="FAST_COMPILE")]
    points = np.random.default_rng(0).normal(size=(3, 3)) / 2
    actual, expected = ([function(point) for point in points] for function in functions)
    for (value, gradient), (own, by_pytensor) in zip(actual, expected, strict=True):
        assert np.linalg.norm(by_pytensor) > 1
        np.testing.assert_allclose(gradient, by_pytensor, rtol=1e-8)
        np.testing.assert_allclose(value - own, COUNT * np.log(2 * np.pi) / 2, rtol=1e-8)


def test_nuts_samples_it(ours):
    _, posterior = sampled(ours, DRAWS)
    assert {*posterior.data_vars} == {"scale", "rate", "noise"}
    for name in posterior:
        draws = posterior[name].to_numpy()
        assert draws.shape == (1, DRAWS) and np.isfinite(draws).all() and np.ptp(draws) > 0
