"""The names that the support of generated modules takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources

from derivatrix.templates import support

FOLDERS = ("common", "cpu")


def helper_names() -> set[str]:
    """What the helper kernels for the CPU define and import at the top level of their files."""
    files = [
        file
        for folder in FOLDERS
        for file in resources.files(f"{support.__name__}.{folder}").iterdir()
        if file.name.endswith(".py")
    ]
    return {
        name
        for file in files
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        for name in _names(statement)
    }


def _names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in statement.names)
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (
                node.id
                for target in targets
                for node in ast.walk(target)
                if isinstance(node, ast.Name)
            )
