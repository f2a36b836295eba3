"""The documentation site: built with warnings as errors, and read without a network."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

pytest.importorskip("sphinx", reason="pip install -e '.[docs]'")
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "gallery").glob("*.py"))


def checkout(folder):
    """Copy the sources of the site, without the results of earlier builds."""
    built = shutil.ignore_patterns("gallery", "__pycache__")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=built)
    shutil.copytree(ROOT / "examples/gallery", folder / "examples/gallery")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(folder, *options):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", *options, "docs", "site"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = checkout(tmp_path_factory.mktemp("checkout"))
    process = build(folder)
    assert process.returncode == 0, process.stderr
    return folder / "site"


def test_nothing_is_read_from_a_network(site) -> None:
    loaded = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']([^"']+)""")
    for page in site.rglob("*.html"):
        for address in loaded.findall(page.read_text("utf-8")):
            assert not re.match("(https?:)?//", address), f"{page.name}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import)\s*["']?(https?:)?//""", style.read_text("utf-8"))


def test_the_search_finds_functions_and_words(site) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    result = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert "solve_continuous_lyapunov" in json.dumps(result["objects"])
    assert "choleski" in result["terms"] and "aswan" in result["terms"]  # stems of words
    assert not [word for word in result["terms"] if word.startswith("0x")]  # of objects in memory


def test_the_reference_has_public_names_parameters_types_and_sources(site) -> None:
    page = (site / "reference" / "api.html").read_text("utf-8")
    assert {"derivatrix.function", "derivatrix.scipy.objective", "derivatrix.BuildError"} <= {
        *re.findall('<dt class="sig[^>]* id="([^"]*)"', page)
    }
    assert "derivatrix.runtime" not in "".join(re.findall('id="([^"]*)"', page))
    (declare,) = re.findall('id="derivatrix.function".*?</dl>', page, re.DOTALL)
    text = re.sub("<.*?>", "", declare)
    assert re.search(r"\[source\]", text)
    assert re.search(r"wrt \(Sequence\[Any\] \| None\) – the inputs to differentiate by", text)
    assert (site / "_modules/derivatrix/compiler/frontends/function.html").is_file()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_picture(site, name: str) -> None:
    page = (site / "gallery" / f"{name}.html").read_text("utf-8")
    (picture,) = set(re.findall(rf'src="\.\./_images/(sphx_glr_{name}_001\.png)"', page))
    assert (site / "_images" / picture).stat().st_size > 10_000
    assert "Why a closed form helps" in page and "Traceback" not in page


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_checks_its_result(name: str) -> None:
    text = (ROOT / f"examples/gallery/{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 80 and "\nassert " in text


def test_mathematics_needs_no_scripts(site) -> None:
    page = (site / "index.html").read_text("utf-8")
    assert page.count("<math ") == 4 and "MathJax" not in page


def test_a_wrong_link_and_a_failing_example_are_errors(tmp_path) -> None:
    folder = checkout(tmp_path)
    with open(folder / "docs/compare.md", "a", encoding="utf-8") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    process = build(folder, "-D", "plot_gallery=0")
    assert process.returncode != 0 and "nowhere" in process.stderr
    for example in (folder / "examples/gallery").glob("*.py"):
        example.unlink()
    (folder / "examples/gallery/wrong.py").write_text('"""\nWrong\n=====\n"""\n\nassert 1 == 2\n')
    process = build(folder)
    assert process.returncode != 0 and "AssertionError" in process.stderr
