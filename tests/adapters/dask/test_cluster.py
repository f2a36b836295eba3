"""Modules in the processes of a real cluster, of joblib and of scikit-learn."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, as_completed, wait

import derivatrix as dx
from derivatrix.dask import map_samples
from tests import ROOT
from tests.pages import run_page

n, c = dx.dims("n c")
x, W = dx.vector("x", n), dx.matrix("W", c, n)
MODULE = dx.function("clustered", [x, W], dx.logsumexp(W @ x), batch=[x])
ROWS, CHUNK = 400, 10
W_VALUE = np.ones((3, 2))


@pytest.fixture(scope="module")
def module():
    module = dx.compile(MODULE)
    module.vjp(np.ones((1, 2)), np.ones((3, 2)), np.ones(1))  # compiles it for the workers, too
    return module


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(0).normal(size=(ROWS, 2))


def cluster(**environment):
    return LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, env=environment or None
    )


def slowly(block, seconds=0.05):
    threading.Event().wait(seconds)
    return block


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(module, samples):
    W_value, ones = np.random.default_rng(1).normal(size=(3, 2)), np.ones(ROWS)
    with cluster() as processes, Client(processes) as client:
        slow = da.from_array(samples, (CHUNK, -1)).map_blocks(slowly, dtype=float)
        lazy = map_samples(module.vjp, slow, W_value, da.from_array(ones, CHUNK))
        future = client.compute(lazy.W)
        parts = client.compute([lazy.x.blocks[k] for k in range(ROWS // CHUNK)])
        next(iter(as_completed(parts)))
        victim, *_ = client.run(os.getpid).values()
        os.kill(victim, signal.SIGKILL)
        wait([future, *parts], timeout=60)
        actual = future.result(), np.concatenate(client.gather(parts))
        assert victim not in client.run(os.getpid).values()
    expected = module.vjp(samples, W_value, ones)
    np.testing.assert_allclose(actual[0], expected.W)
    np.testing.assert_allclose(actual[1], expected.x)


def test_workers_with_other_caches(module, samples, tmp_path):
    cache = tmp_path / "cache"
    with cluster(DERIVATRIX_CACHE=str(cache)) as processes, Client(processes) as client:
        arguments = samples[:2], np.ones((3, 2))
        future = client.submit(module.value, *arguments)
        with pytest.raises(
            dx.LoadError, match=r"is not in the cache of this process.*send the mod"
        ):
            future.result(timeout=60)
        lazy = map_samples(module.value, da.from_array(samples, (200, -1)), arguments[1])
        np.testing.assert_allclose(lazy.compute(), module.value(samples, arguments[1]))
    assert [*cache.glob("*/*/clustered.py")]


@pytest.fixture(scope="module")
def other_version(tmp_path_factory):
    """A folder with another version of derivatrix."""
    folder = tmp_path_factory.mktemp("other")
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "derivatrix", folder / "derivatrix", ignore=skipped)
    (folder / "derivatrix" / "version.py").write_text('VERSION = "9.9"\n')
    return folder


USES = {
    "function of a module": lambda module, samples: module.value(samples, W_VALUE),
    "declared function": lambda declared, samples: dx.compile(declared).value(samples, W_VALUE),
    "array": lambda array, samples: dx.function("made", [x, W], array),
}


def test_a_worker_with_another_version(module, samples, other_version):
    """It says so, for whatever is sent, to who asked, and goes on."""
    sent = {"function of a module": module, "declared function": MODULE, "array": W @ x}
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard"]
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as processes,
        Client(processes) as client,
    ):
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(other_version), str(ROOT)])}
        command = [*worker, "--nthreads", "1", processes.scheduler_address]
        with subprocess.Popen(command, env=variables, cwd=other_version) as process:
            try:
                client.wait_for_workers(1, timeout=60)
                futures = {
                    name: client.submit(USES[name], each, samples) for name, each in sent.items()
                }
                futures["map_samples"] = client.compute(
                    map_samples(module.value, da.from_array(samples, (200, -1)), W_VALUE)
                )
                for future in futures.values():
                    said = f"derivatrix {dx.__version__}, and this one has 9.9; install the same"
                    with pytest.raises(dx.LoadError, match=said):
                        future.result(timeout=60)
                assert client.submit(os.getpid).result(timeout=60) == process.pid
            finally:
                process.terminate()


def test_the_page():
    """A classifier learns from more samples than workers may hold; joblib, a search for an
    estimator that holds a module, and multiprocessing."""
    result = run_page("dask")
    assert result["accuracy"] > 0.95
