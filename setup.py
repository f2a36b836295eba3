"""The description for package indexes: the README without links to paths of this repository."""

import re
from pathlib import Path

from setuptools import setup

FILES = ""
"""Address of this version's files, such as "https://.../blob/v0.1.0/"; "" if they have none."""
RELATIVE = re.compile(r"(!?)\[([^]]*)\]\((?!\w+:|#)([^)]*)\)")


def description(readme: str, files: str = FILES) -> str:
    """Return a README with `files` before its relative links. Without an address, a link becomes
    its text, and a picture is left out."""
    if files:
        return RELATIVE.sub(lambda link: f"{link[1]}[{link[2]}]({files}{link[3]})", readme)
    return RELATIVE.sub(lambda link: "" if link[1] else link[2], readme)


if __name__ == "__main__":
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=description(readme), long_description_content_type="text/markdown")
