"""Threads that parse Python texts at the same time."""

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from derivatrix.runtime.syntax import parse_python

SUM = "+".join(f"f({number}, [x, y])" for number in range(200))


@pytest.fixture
def collections_that_switch_threads():
    """Collect garbage often, and run another thread meanwhile."""

    def callback(phase: str, info: object) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(callback)


@pytest.mark.usefixtures("collections_that_switch_threads")
def test_trees_are_those_of_one_thread() -> None:
    """`ast.parse` raises SystemError here, in CPython 3.11."""
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse_python, [SUM] * 20))
    assert {ast.dump(tree) for tree in trees} == {ast.dump(ast.parse(SUM))}


def test_a_text_that_is_not_python() -> None:
    with pytest.raises(SyntaxError):
        parse_python("1 +", mode="eval")
    assert parse_python("1", mode="eval").body.value == 1
