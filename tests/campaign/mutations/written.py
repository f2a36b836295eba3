"""Faults in the texts of kernels: verification looks at a module that has them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

from derivatrix.compiler.driver.ownership import SUPPORT
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.driver.support_package import support_texts
from derivatrix.runtime.support import FOLDER, file_digest
from derivatrix.runtime.workers import Workers
from tests.bounds import Task
from tests.campaign.mutations.compiled import Found, function_of
from tests.checked import reached
from tests.identities import IDENTITIES, Identity
from tests.packages import write_files

VERIFIED = "derivatrix.runtime.verify:verified"
NO_NUMBERS = ("check_", "give_back", "kept_apart")
"""The starts of the names of calls that are not for numbers."""
SHARING = f"{FOLDER}/cpu/shared_work.py"
"""Which thread does what: the campaign of callers is for that."""
MEMORY = ("empty", "zeros", "shaped", "work_arrays", "np.int", "range")
"""What is in the text of values that are memory, or places in it."""


def kernel(chance: random.Random, folder: Path) -> Found:
    """In one of the kernels of a module."""
    identity = chance.choice(IDENTITIES)
    name = f"{generate(function_of(identity)).name}.py"
    texts = package(identity)
    found = [(name, each) for each in functions(texts[name]) if "_kernel" in each.name]
    return verified(chance, folder, texts, found, identity)


def helper(chance: random.Random, folder: Path) -> Found:
    """In one of the helper kernels that a module calls."""
    identity = chance.choice(IDENTITIES)
    called = {*reached(vars(Task(f"{identity.text} by {identity.wrt}")))}
    texts = package(identity)
    found = [
        (name, function)
        for name in sorted(texts)
        if name.startswith(f"{FOLDER}/cpu/") and name != SHARING
        for function in functions(texts[name])
        if function.name in called
    ]
    return verified(chance, folder, texts, found, identity)


def package(identity: Identity) -> dict[str, str]:
    """The files of a package with an identity's module."""
    made = generate(function_of(identity))
    return {**support_texts(made.support), **made.texts}


def verified(
    chance: random.Random,
    folder: Path,
    texts: dict[str, str],
    choice: list[tuple[str, ast.FunctionDef]],
    identity: Identity,
) -> Found:
    """Whether verification passes with a statement changed in one of some functions."""
    every = [(file, function, each) for file, function in choice for each in statements(function)]
    if not every:
        return identity.text, None
    file, function, statement = chance.choice(every)
    right, (told, replaced) = texts[file], changed(chance, statement)
    texts[file] = spliced(right, statement, replaced)
    before, after = (file_digest(text.encode()) for text in (right, texts[file]))
    texts[SUPPORT] = texts[SUPPORT].replace(before, after)
    path = write_files(folder, texts) / f"{generate(function_of(identity)).name}.py"
    with Workers(1) as workers:
        (answer,) = workers.map(VERIFIED, [{"path": str(path), "options": {}}], lambda *_: None)
    passed = isinstance(answer, dict) and answer["passed"]
    line = f"{function.name} of {file}, line {statement.lineno}: {ast.unparse(statement)!r} {told}"
    missed = answer["reach"]["missed"] if passed else {}
    unseen = " (where no point came)" if function.name in missed else ""
    return f"{line}, in {identity.text} by {identity.wrt}{unseen}", passed


def functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


def statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """What of a function makes numbers: stores, sums and calls of helpers."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign():
                made = not any(word in ast.unparse(node.value) for word in MEMORY)
                if made and not isinstance(node.value, ast.Constant):
                    yield node
            case ast.Expr(value=ast.Call()):
                if not ast.unparse(node).startswith(NO_NUMBERS):
                    yield node


def changed(chance: random.Random, statement: ast.stmt) -> tuple[str, str]:
    """How a statement is changed, and its text then."""
    if isinstance(statement, ast.Expr):
        return "left out", "pass"
    assert isinstance(statement, ast.Assign | ast.AugAssign)
    value = ast.unparse(statement.value)
    start = ast.unparse(statement).removesuffix(value)
    told, replaced = chance.choice(
        [
            ("left out", "pass"),
            ("times 1 + 1e-4", f"{start}({value}) * 1.0001"),
            ("negated", f"{start}-({value})"),
        ]
    )
    return told, replaced


def spliced(text: str, statement: ast.stmt, replaced: str) -> str:
    """The text with other text in place of a statement."""
    lines = text.encode().splitlines(keepends=True)
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    start, end = lines[first][: statement.col_offset], lines[last][statement.end_col_offset :]
    return b"".join([*lines[:first], start, replaced.encode(), end, *lines[last + 1 :]]).decode()
