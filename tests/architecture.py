"""Figures of the code's structure, and the limits that keep them from growing.

    python -m tests.architecture

prints a table, and who imports whom as the picture in docs/developers/architecture.md; it fails
where a figure is above its limit, or the picture is not that on the page. A limit is what was
reached so far: who lowers a figure lowers its limit in the same commit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function_file import load_functions
from tests import ROOT

ROOMS = ("compiler", "runtime", "templates", "derivatrix")
INTERNALS = re.compile(
    r"\bnumba\.(core|np)\b|\b(from|import) llvmlite\b|\bkernelapi\b|\bimport .*intrinsic\b"
)
"""Imports of Numba's unstable internals, and functions that write LLVM instructions."""


@dataclass(frozen=True)
class Figure:
    """A figure, the most that it may be, and what it ought to be."""

    name: str
    value: int
    limit: int
    goal: int


def figures() -> list[Figure]:
    """All figures of the checkout."""
    return [
        Figure("modules in import circles", len(circular_modules()), 0, 0),
        Figure("files loose in compiler/", len(list((ROOT / "compiler").glob("*.py"))), 2, 3),
        Figure("files that use Numba's internals", len(internal_files()), 4, 4),
        Figure("lines of a generated square.py", generated_lines("square.py", "square"), 69, 90),
        Figure("lines of a generated energy.py", generated_lines("square.py", "energy"), 159, 200),
        Figure("lines of a generated loss.py", generated_lines("digits.py", "loss"), 200, 200),
        Figure("lines of the product", sum(product_lines().values()), 71365, 50000),
    ]


def picture() -> str:
    """The rooms, with an arrow from each to those that it imports from, but for those that it has
    by way of others, as Mermaid draws it."""
    graph = imports()
    shallow = {".".join(name.split(".")[1:4]) for name in graph.modules}
    rooms = sorted(filter(_is_room, shallow))
    edges = {
        one: {
            other
            for other in rooms
            if other != one
            and graph.direct_import_exists(
                importer=f"derivatrix.{one}", imported=f"derivatrix.{other}", as_packages=True
            )
        }
        for one in rooms
    }

    def below(room: str) -> set[str]:
        return edges[room].union(*map(below, edges[room]))

    shown = {room: others - set().union(*map(below, others)) for room, others in edges.items()}
    names = {room: room.removeprefix("compiler.").replace(".", "/") for room in rooms}
    arrows = [
        f"    {names[room]} --> {names[other]}" for room in rooms for other in sorted(shown[room])
    ]
    return "\n".join(["```mermaid", "graph TD", *arrows, "```"])


def _is_room(name: str) -> bool:
    """Return whether a package or file is a room, and not a part of one."""
    first, *rest = name.split(".")
    return {"compiler": len(rest) == 1, "templates": rest == ["support"], "runtime": not rest}.get(
        first, False
    )


@cache
def imports() -> grimp.ImportGraph:
    """Map modules to the modules that they import, also within functions, but not for type
    checkers."""
    return grimp.build_graph("derivatrix", exclude_type_checking_imports=True, cache_dir=None)


def circular_modules() -> list[str]:
    """The modules that import themselves by way of others."""
    graph = imports()
    modules = sorted(graph.modules)
    place = {name: number for number, name in enumerate(modules)}
    pairs = [
        (place[name], place[other])
        for name in modules
        for other in graph.find_modules_directly_imported_by(name)
    ]
    rows, columns = zip(*pairs, strict=True)
    matrix = csr_array(([1] * len(pairs), (rows, columns)), shape=(len(modules), len(modules)))
    _, component = connected_components(matrix, connection="strong")
    sizes = [list(component).count(number) for number in component]
    return [name for name, size in zip(modules, sizes, strict=True) if size > 1]


def internal_files() -> list[Path]:
    """The files that import what Numba does not promise to keep."""
    return [path for path in product_files() if INTERNALS.search(path.read_text("utf-8"))]


def product_files() -> list[Path]:
    """The Python files and templates of the product."""
    return [
        path
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".jinja")
    ]


def product_lines() -> Mapping[str, int]:
    """The lines of each folder of the product."""
    lines: dict[str, int] = {}
    for path in product_files():
        folder = path.parent.relative_to(ROOT).as_posix()
        lines[folder] = lines.get(folder, 0) + len(path.read_text("utf-8").splitlines())
    return lines


def generated_lines(example: str, name: str) -> int:
    """The lines of the module that is generated for a function of an example."""
    (function,) = load_functions(f"{ROOT}/examples/{example}:{name}")
    return len(generate(function).text.splitlines())


def main() -> int:
    """Print the figures; 1 if one is above its limit."""
    result = figures()
    table = Table("figure", "now", "limit", "goal")
    for figure in result:
        row = (figure.name, *map(str, (figure.value, figure.limit, figure.goal)))
        table.add_row(*row, style="red" if figure.value > figure.limit else "")
    rooms = Table("folder", "lines")
    for folder, lines in product_lines().items():
        rooms.add_row(folder, str(lines))
    console = Console()
    drawn = picture()
    console.print(table, rooms)
    print(drawn)
    is_shown = drawn in (ROOT / "docs/developers/architecture.md").read_text("utf-8")
    if not is_shown:
        print("docs/developers/architecture.md shows another picture")
    return int(not is_shown or any(figure.value > figure.limit for figure in result))


if __name__ == "__main__":
    sys.exit(main())
