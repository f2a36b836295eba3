"""A server that runs in a thread of this process, so that tests can look at its processes."""

import threading
from contextlib import contextmanager

import pytest
import uvicorn

from derivatrix.compiler.playground.server import application
from derivatrix.compiler.playground.worker import LIMITS, Limits


@contextmanager
def serving(limits=LIMITS):
    app = application(limits=limits)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    app.state.address = "http://127.0.0.1:{}".format(
        *server.servers[0].sockets[0].getsockname()[1:]
    )
    try:
        yield app.state
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def server():
    """One whose requests have their usual limits."""
    with serving() as state:
        yield state


@pytest.fixture(scope="session")
def strict():
    """One that gives a derivation five seconds, and too little memory for a module."""
    limits = {**LIMITS, "derive": Limits(5, 1), "module": Limits(20, 0.05)}
    with serving(limits) as state:
        yield state


def long(powers):
    """A request whose value is shown at once, and whose Hessians take long."""
    text = f"det({' + '.join(f'X^{k}*A' for k in range(1, powers + 1))})"
    text += "*tr(expm(X*A)*inv(X))*logdet(X+A)"
    return {"text": text, "inputs": {"X": "n n", "A": "n n"}, "wrt": []}


SLOW = long(20)
"""A request that takes longer than any limit of a derivation."""
