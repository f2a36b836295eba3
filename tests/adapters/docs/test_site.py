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


@pytest.mark.parametrize(
    ("page", "example", "message"),
    [("[nowhere](nowhere.md)", "print(1)", "nowhere"), ("", "assert 1 == 2", "AssertionError")],
    ids=["a wrong link", "a failing example"],
)
def test_a_site_with_an_error_is_not_built(tmp_path, page, example, message) -> None:
    """A site of one page and one example, with the configuration of ours."""
    folder = checkout(tmp_path)
    for other in [*folder.glob("docs/**/*.md"), *folder.glob("examples/gallery/*.py")]:
        other.unlink()
    text = f"# Site\n\n{page}\n\n```{{toctree}}\ngallery/index\n```\n"
    (folder / "docs/index.md").write_text(text)
    text = f'"""\nExample\n=======\n"""\n\n{example}\n'
    (folder / "examples/gallery/example.py").write_text(text)
    process = build(folder)
    assert process.returncode != 0 and message in process.stderr
    assert ("nowhere" in process.stderr) != ("AssertionError" in process.stderr)
