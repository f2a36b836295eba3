"""Atomic writes of single files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file through a temporary one beside it: it is complete, or left as it was."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # a file of mkstemp is readable by its owner alone
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
