"""Builds that are killed, meet each other, find a full disk, something in the
way or a read-only folder, and damage to
packages and caches. Afterwards the package is the old one or the new one, whole, or an error of
derivatrix says what to do; the next build mends all and removes what is left.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from tests.campaign import Outcome
from tests.campaign.builds.accidents import blocked, full, killed, read_only, together
from tests.campaign.builds.damage import caches, support, verified
from tests.campaign.builds.place import Place

KINDS = (killed, full, support, together, blocked, read_only, killed, caches, verified)


def trial(seed: int, number: int) -> Outcome:
    """One accident, in a folder of its own."""
    random = Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory() as folder:
        return Outcome(1, KINDS[number % len(KINDS)](Place(Path(folder)), random))
