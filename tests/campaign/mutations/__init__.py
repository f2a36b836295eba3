"""Faults put at random into what modules come about by, one at a time, which no build may pass:
into an operation's differential or transpose, into what a rule of the simplifier returns, into what
is known of matrices, into the text of a kernel, and into that of a helper kernel.

A fault that leaves the module's text as it was is not counted, nor is one that passes in a line to
which no point of verification comes: of these lines the certificate tells. One that stops the
compiler, or ends the process of verification, is refused, too.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.campaign import Outcome
from tests.campaign.mutations import compiled, written

KINDS = {
    "differential": compiled.differential,
    "kernel": written.kernel,
    "transpose": compiled.transpose,
    "helper": written.helper,
    "rule": compiled.rule,
    "fact": compiled.fact,
}


def trial(seed: int, number: int) -> Outcome:
    """One fault."""
    kind = [*KINDS][number % len(KINDS)]
    chance = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory() as folder:
        told, passed = KINDS[kind](chance, Path(folder) / "made")
    if passed is None:
        return Outcome()
    return Outcome(1, [f"{kind}: {told}"] if passed else [])
