"""Samples that lie on several devices stay there."""

import json
import subprocess
import sys

import pytest

from tests import ROOT

NAMES = [
    "values_and_derivatives",
    "vmap_of_a_batched_module",
    "arguments_of_which_one_is_sharded",
    "several_axes",
    "samples_that_are_not_divided_equally",
    "an_error_of_one_device",
    "shard_map",
]


@pytest.fixture(scope="module")
def errors():
    command = [sys.executable, "-m", "tests.adapters.jax.shards"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert list(result) == NAMES
    return result


@pytest.mark.parametrize("name", NAMES)
def test_four_devices(errors, name):
    assert not errors[name]
