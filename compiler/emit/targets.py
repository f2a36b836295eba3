"""All targets, by their names."""

from __future__ import annotations

from derivatrix.compiler.emit import cpu, cuda
from derivatrix.compiler.emit.target import Target
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import UnsupportedError

TARGETS: dict[str, Target] = {target.name: target for target in (cpu.TARGET, cuda.TARGET)}


def find_target(name: object) -> Target:
    """Return the target called `name`. Raises UnsupportedError if there is none."""
    if not isinstance(name, str) or name not in TARGETS:
        raise UnsupportedError(
            f"there is no target {shown(name)}; choose from {', '.join(TARGETS)}"
        )
    return TARGETS[name]
