"""The package `_support` of a generated package: the files that its modules import."""

from __future__ import annotations

from collections.abc import Iterable

from derivatrix import __version__
from derivatrix.compiler.emit.imports import support_digest, support_text
from derivatrix.compiler.emit.skeleton import environment
from derivatrix.runtime.support import FOLDER, file_digest


def support_texts(files: Iterable[str]) -> dict[str, str]:
    """Make the text of each support file in `files`, and last that of `__init__.py`."""
    texts = {name: support_text(name) for name in sorted(set(files))}
    digests = {name: file_digest(text.encode()) for name, text in texts.items()}
    init = _init_text(support_digest(), digests)
    return {
        **{f"{FOLDER}/{name}": text for name, text in texts.items()},
        f"{FOLDER}/__init__.py": init,
    }


def unfinished_text(files: Iterable[str]) -> str:
    """Make the text of `__init__.py` while files change: its digest fits no module."""
    return _init_text("unfinished", dict.fromkeys(sorted(files), ""))


def _init_text(digest: str, files: dict[str, str]) -> str:
    template = environment().get_template("support.py.jinja")
    return template.render(version=__version__, digest=digest, files=files.items())
