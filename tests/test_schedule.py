"""Tests that share what takes long to make are run by one process."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from tests import ROOT
from tests.schedule import TOGETHER, Together

APART = "tests/emit/test_modules.py"


class Process:
    """Stands for one of pytest-xdist's, and runs at once what it is sent."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, positions: list[int]) -> None:
        self.sent += positions

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_file_goes_to_one_process() -> None:
    files = (*TOGETHER, *[APART] * len(TOGETHER))
    tests = [f"{path}::test_{row}_{n}[a::b]" for n in range(20) for row, path in enumerate(files)]
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(getvalue=lambda name: ["2*popen"], option=option)
    scheduler = Together(config)
    processes = Process("gw0"), Process("gw1")
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    ran: dict[str, set[str]] = defaultdict(set)
    done = dict.fromkeys(processes, 0)
    while any(done[process] < len(process.sent) for process in processes):
        for process in processes:
            if done[process] < len(process.sent):
                position = process.sent[done[process]]
                ran[tests[position].partition("::")[0]].add(process.gateway.id)
                done[process] += 1
                scheduler.mark_test_complete(process, position)
    assert sum(done.values()) == len(tests)
    assert {path: len(ran[path]) for path in TOGETHER} == dict.fromkeys(TOGETHER, 1)
    assert len(ran[APART]) == 2


@pytest.mark.parametrize("path", TOGETHER)
def test_the_files_are_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_this_run_is_scheduled_so(request: pytest.FixtureRequest) -> None:
    made = request.config.hook.pytest_xdist_make_scheduler
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(getvalue=lambda name: ["2*popen"], option=option)
    assert isinstance(made(config=config, log=None), Together)
