"""The wheel and the source archive of derivatrix itself."""

import email
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.driver.test_packaging import addresses


def test_the_description_in_a_wheel_has_no_relative_links(wheels):
    (path,) = Path(wheels.split()[-1]).glob("derivatrix-*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    text = metadata.get_payload(decode=True).decode()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.startswith("# derivatrix") and "| Gallery |" in text
    assert [address for address in addresses(text) if "://" not in address] == []


@pytest.mark.parametrize("folder", ["docs", "examples"])
def test_the_source_archive_has_the_documentation_and_the_examples(source_archive, folder):
    checkout, names = source_archive
    paths = [path for path in (checkout / folder).rglob("*") if path.is_file()]
    files = {path.relative_to(checkout).as_posix() for path in paths}
    assert {file for file in files if not file.startswith("docs/gallery/")} <= names
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "compiler/cli.py"} <= names


@pytest.fixture(scope="module")
def source_archive(environment, checkout, tmp_path_factory):
    """The checkout, and the files in the archive that is made of it."""
    folder = tmp_path_factory.mktemp("archive")
    environment.run("-m", "build", "--no-isolation", "--sdist", "--outdir", folder, checkout)
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return checkout, {name.partition("/")[2] for name in archive.getnames()}
