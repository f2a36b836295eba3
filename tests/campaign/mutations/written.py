"""Faults in the texts of kernels: verification looks at a module that has them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

from derivatrix.compiler.driver.ownership import SUPPORT
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.driver.support_package import support_texts
from derivatrix.runtime.load import load
from derivatrix.runtime.support import FOLDER, file_digest
from derivatrix.runtime.workers import Workers
from tests import marked
from tests.bounds import Task
from tests.campaign.mutations.compiled import Found, function_of
from tests.checked import reached
from tests.identities import IDENTITIES, Identity
from tests.packages import write_files

VERIFIED = "derivatrix.runtime.verify:verify_in_simulator"
NO_NUMBERS = ("check_", "give_back")
"""The starts of the names of calls that are not for numbers."""
SHARING = f"{FOLDER}/cpu/thread_pool.py"
"""The file that assigns work to threads, which the campaign of callers tests."""
MEMORY = ("empty", "zeros", "shaped", "work_arrays", "np.int", "range")
"""Texts of values that are memory, or offsets in memory."""


def kernel(chance: random.Random, folder: Path) -> Found:
    """Change a kernel of a module."""
    identity = chance.choice(IDENTITIES)
    name = f"{generate(function_of(identity)).name}.py"
    texts = package(identity)
    result = [(name, function) for function in functions(texts[name]) if "_kernel" in function.name]
    return verified(chance, folder, texts, result, identity)


def helper(chance: random.Random, folder: Path) -> Found:
    """Change a helper kernel that a module calls."""
    identity = chance.choice(IDENTITIES)
    called = {*reached(vars(Task(f"{identity.text} by {identity.wrt}")))}
    texts = package(identity)
    result = [
        (name, function)
        for name in sorted(texts)
        if name.startswith(f"{FOLDER}/cpu/") and name != SHARING
        for function in functions(texts[name])
        if function.name in called
    ]
    return verified(chance, folder, texts, result, identity)


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
    """Return whether verification passes with a changed statement in one of some functions; None if
    it passes, but no point reaches the statement, which the certificate reports."""
    every = [
        (file, function, line, statement)
        for file, function in choice
        for line, statement in statements(function)
    ]
    if not every:
        return identity.text, None
    file, function, place, statement = chance.choice(every)
    right, (told, replaced) = texts[file], changed(chance, statement)
    texts[file] = spliced(right, statement, replaced)
    before, after = (file_digest(text.encode()) for text in (right, texts[file]))
    texts[SUPPORT] = texts[SUPPORT].replace(before, after)
    name = f"{generate(function_of(identity)).name}.py"
    path = str(write_files(folder, texts) / name)
    with Workers(1) as workers:
        (answer,) = workers.map(VERIFIED, [{"path": path, "options": {}}], lambda *_: None)
    passed = isinstance(answer, dict) and answer["passed"]
    line = f"{function.name} of {file}, line {statement.lineno}: {ast.unparse(statement)!r} {told}"
    actual = f"{line}, in {identity.text} by {identity.wrt}"
    if passed:
        label = function.name if file == name else f"{function.name} ({file})"
        with Workers(1, marked.ENVIRONMENT) as workers:
            (ran,) = workers.map(f"{__name__}:places_reached", [path], lambda *_: None)
        return actual, True if [label, place] in ran else None
    return actual, False


def places_reached(path: str) -> list[tuple[str, int]]:
    """The functions and the lines of their branches that run at the points of verification; in a
    process of its own."""
    module = load(Path(path))
    copy = marked.Copy(module)
    marked.verified(copy, module)
    return sorted({copy.places[number] for number in copy.taken()})


def functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


def statements(function: ast.FunctionDef) -> Iterator[tuple[int, ast.stmt]]:
    """List the statements of a function that compute numbers: stores, sums and calls of helpers,
    each with the line of the mark of its branch or loop."""
    for line, node in _placed(function.body, function.lineno):
        match node:
            case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign():
                made = not any(word in ast.unparse(node.value) for word in MEMORY)
                if made and not isinstance(node.value, ast.Constant):
                    yield line, node
            case ast.Expr(value=ast.Call()):
                if not ast.unparse(node).startswith(NO_NUMBERS):
                    yield line, node


def _placed(body: list[ast.stmt], line: int) -> Iterator[tuple[int, ast.stmt]]:
    """All statements of a block, at any depth, with the lines of their marks
    (`tests.marked`)."""
    for statement in body:
        yield line, statement
        inner = [getattr(statement, "body", []), getattr(statement, "orelse", [])]
        raises = any(branch and isinstance(branch[-1], ast.Raise) for branch in inner)
        for branch in filter(None, inner):
            yield from _placed(branch, line if raises else branch[0].lineno)


def changed(chance: random.Random, statement: ast.stmt) -> tuple[str, str]:
    """Change a statement; return the kind of change, and the new text."""
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
