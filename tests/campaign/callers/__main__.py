"""One use of generated modules: `python -m tests.campaign.callers USE SEED PATH...` prints its
outcome as JSON. The program ends as any other does, with what the use left running."""

from __future__ import annotations

import faulthandler
import importlib
import json
import random
import sys
from dataclasses import asdict

from tests.campaign.callers import LONGEST
from tests.campaign.callers.scene import Scene


def main() -> None:
    use, seed, *paths = sys.argv[1:]
    faulthandler.dump_traceback_later(LONGEST - 10, exit=True)
    scene = Scene(tuple(paths), int(seed), random.Random(int(seed)))
    scene.check()
    file, _, name = use.partition(":")
    getattr(importlib.import_module(f"tests.campaign.callers.{file}"), name)(scene)
    print(json.dumps(asdict(scene.outcome)), flush=True)


if __name__ == "__main__":
    main()
