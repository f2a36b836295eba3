"""The code of the site's pages and of the README runs, and prints what the pages say."""

import importlib.util
import re

import pytest

import derivatrix as dx
from derivatrix.runtime import errors
from tests import ROOT
from tests.pages import fences, run

PAGES = (
    "README.md",
    "docs/index.md",
    *(f"docs/tutorial/{page.name}" for page in sorted((ROOT / "docs/tutorial").glob("*.md"))),
    *(
        f"docs/reference/{name}.md"
        for name in ("declaring", "errors", "modules", "notation", "operators")
    ),
    "docs/explanation/differentials.md",
    "docs/explanation/structures.md",
    "docs/how-to/batch-axes.md",
    "docs/how-to/composing.md",
    "docs/how-to/equations.md",
    "docs/how-to/loops.md",
    "docs/how-to/outputs.md",
    "docs/how-to/packages.md",
    "docs/how-to/wrong-gradients.md",
)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_and_prints_what_it_says(name: str) -> None:
    run(ROOT / name)


def test_a_page_that_says_something_else_fails(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```output\n2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md prints\n1"):
        run(page)


@pytest.mark.parametrize("name", ["docs/index.md", "docs/tutorial/square.md"])
def test_excerpts_are_of_the_generated_module(name: str) -> None:
    text = _square_module()
    shown = [body for language, body in fences(ROOT / name) if language == "{code-block}"]
    assert shown
    for body in shown:
        assert body.removeprefix(":class: excerpt\n").strip() in text


def test_the_formulas_of_the_first_page_are_those_of_the_function() -> None:
    square = _declared()
    shown = re.findall(r"^\$\$(.*)\$\$$", (ROOT / "docs/index.md").read_text("utf-8"), re.M)
    right = [formula.partition(" = ")[2] for formula in shown]
    kinds = ("value", "vjp", "jvp", "jacobian")
    assert right == [square.formula(kind, style="latex") for kind in kinds]


def test_the_readme_has_the_picture_that_its_script_draws(tmp_path) -> None:
    """The texts; the letters' outlines are those of the version of matplotlib."""
    place = ROOT / "docs/pictures/front.py"
    spec = importlib.util.spec_from_file_location("front", place)
    front = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(front)
    front.draw(tmp_path / "front.svg")
    drawn, kept = (
        re.findall("<!-- (.*?) -->", path.read_text("utf-8"), re.DOTALL)
        for path in (tmp_path / "front.svg", front.PAGE)
    )
    assert drawn == kept and any("gemm" in text for text in kept)
    assert f"docs/static/{front.PAGE.name}" in (ROOT / "README.md").read_text("utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(
        (ROOT / f"docs/reference/{page}.rst").read_text("utf-8") for page in ("functions", "api")
    )
    named = set(re.findall(r"\w+", text)) | set(vars(errors))
    assert {name for name in dir(dx) if not name.startswith("__")} - named == set()


def test_every_page_is_found_from_the_first() -> None:
    listed: set[str] = set()
    for index in (ROOT / "docs").rglob("index.md"):
        for language, body in fences(index):
            if language == "{toctree}":
                names = [line for line in body.splitlines() if line and line[0] != ":"]
                for name in names:
                    place = (index.parent / f"{name}.md").resolve()
                    listed |= {*place.parent.glob(place.name)}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if "gallery" not in page.parts}
    assert pages - listed == {ROOT / "docs/index.md"}


def _declared() -> dx.Function:
    n = dx.dims("n")
    X = dx.matrix("X", n, n)
    return dx.function("square", [X], X @ X)


def _square_module() -> str:
    with open(dx.compile(_declared()).__file__, encoding="utf-8") as file:
        return file.read()
