"""A victim (see `builds.victim`) with a fault: it marks no package as unfinished."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from derivatrix.compiler.cli import main
from tests.campaign.builds.victim import MOVES, suffer

_replace = os.replace


def careless(source: Path, target: Path) -> None:
    if Path(source).name != "unfinished.py":
        _replace(source, target)


if __name__ == "__main__":
    os.replace = careless  # type: ignore[assignment]
    kind, step, _, folder, *command = sys.argv[1:]
    suffer(kind, int(step), MOVES, folder)
    main(command)
