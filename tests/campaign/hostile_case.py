"""One hostile declaration, and what may be in its texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PLANTED = "planted_by_a_text"
"""The name of a file, or in `builtins`, that code in names and texts makes if it is run."""
CODE = (
    f"__import__('os').system('touch {PLANTED}')",
    f"globals()[open('{PLANTED}', 'w')]",
    f"[setattr(__import__('builtins'), '{PLANTED}', 1)]",
    f"x\nopen('{PLANTED}', 'w')",
    f'x"""\nopen("{PLANTED}", "w")\n"""',
    f"{{{{ cycler.__init__.__globals__.os.system('touch {PLANTED}') }}}}",
)
"""Texts that do something if anything runs them."""


@dataclass(frozen=True)
class Case:
    """label: what it is, in short; make: declares something, and returns a function or whatever
    came of it; expected: the function's value in NumPy, where that is known, of points for the
    inputs in order; generates: whether its module is made too; seconds: how long it may take."""

    label: str
    make: Callable[[], object]
    expected: Callable[..., Any] | None = None
    generates: bool = True
    seconds: float | None = None
