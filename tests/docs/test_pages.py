"""The code of the site's pages and of the README runs, and prints what the pages say."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import derivatrix as dx
from tests import ROOT
from tests.pages import fences, run

ELSEWHERE = {
    "docs/developers/architecture.md": "tests/emit/test_targets.py",
    "docs/how-to/arrays.md": "tests/adapters/array_api/test_arrays.py",
    "docs/how-to/custom-operations.md": "tests/operations/test_register.py",
    "docs/how-to/dask.md": "tests/adapters/dask/test_cluster.py",
    "docs/how-to/jax.md": "tests/adapters/jax/test_calls.py",
    "docs/how-to/jupyter.md": "tests/adapters/jupyter/test_notebook.py",
    "docs/how-to/pytensor.md": "tests/adapters/pytensor/test_pytensor.py",
    "docs/how-to/scipy.md": "tests/runtime/test_scipy.py",
    "docs/how-to/torch.md": "tests/adapters/torch/test_operator.py",
    "docs/how-to/types.md": "tests/typed.py",
    "docs/reference/vec.md": "tests/formulas/test_vec.py",
}
"""Page -> the file that runs its code, with packages of its own or further checks."""
WITH_CODE = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "gallery" not in page.parts and "```python\n" in page.read_text("utf-8")
)
PAGES = [name for name in WITH_CODE if name not in ELSEWHERE]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_and_prints_what_it_says(name: str) -> None:
    run(ROOT / name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_code_of_each_other_page_is_run_elsewhere(name: str) -> None:
    assert name in WITH_CODE
    assert Path(name).stem in (ROOT / ELSEWHERE[name]).read_text("utf-8")


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
    named = set(re.findall(r"\w+", text))
    assert {name for name in dir(dx) if not name.startswith("__")} - named == set()
    assert "runtime.adapters" not in text


def test_every_page_is_two_clicks_from_the_first() -> None:
    """By links in the text. Those of a sidebar, which depend on the theme, do not count."""
    first = ROOT / "docs/index.md"
    near = _linked(first)
    docs = (*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst"))
    pages = {page for page in docs if "gallery" not in page.parts}
    assert not pages - {first} - near.union(*map(_linked, near))


def test_every_page_is_in_a_table_of_contents() -> None:
    listed: set[Path] = set()
    for index in (ROOT / "docs").rglob("index.md"):
        for language, body in fences(index):
            if language == "{toctree}":
                names = [line for line in body.splitlines() if line and line[0] != ":"]
                listed |= {(index.parent / f"{name}.md").resolve() for name in names}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if "gallery" not in page.parts}
    assert pages - listed == {ROOT / "docs/index.md"}


def test_the_readme_says_first_what_derivatrix_cannot_do() -> None:
    first_screen = (ROOT / "README.md").read_text("utf-8").split("![")[0]
    assert "cannot" in first_screen and "#what-derivatrix-does-not-do" in first_screen
    assert len(first_screen.splitlines()) < 12


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/install.md"])
def test_pages_state_the_version(page: str) -> None:
    assert dx.__version__ in (ROOT / page).read_text("utf-8")


def test_the_page_on_installation_has_all_packages_and_extras() -> None:
    text = (ROOT / "docs/install.md").read_text("utf-8")
    for requirement in SETTINGS["dependencies"]:
        assert "| {} | {} |".format(*requirement.split(">=")) in text
    rows = re.findall(r"^\| (`.*?`) \|", text, re.M)
    for extra in ("torch", "jax", "pytensor", "dask", "html", "playground"):
        (row,) = re.findall(rf"^\| `{extra}` \|.*", text, re.M)
        requirements = SETTINGS["optional-dependencies"][extra]
        assert all(each.split(">=")[1] in row for each in requirements if ">=" in each)
    assert {*re.findall("`(.*?)`", " ".join(rows))} == {*SETTINGS["optional-dependencies"]}


def _linked(page: Path) -> set[Path]:
    """The pages of the site that the text of a page links to."""
    text = page.read_text("utf-8")
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    targets += re.findall(r"^:link: (.*)$", text, re.M)
    places = ((page.parent / target).resolve() for target in targets)
    found = {place if place.suffix else place.with_suffix(".md") for place in places}
    return {place for place in found if place.is_file()}


def _declared() -> dx.Function:
    n = dx.dims("n")
    X = dx.matrix("X", n, n)
    return dx.function("square", [X], X @ X)


def _square_module() -> str:
    with open(dx.compile(_declared()).__file__, encoding="utf-8") as file:
        return file.read()
