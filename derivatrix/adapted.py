"""Generated modules of declared functions, for the adapters in `derivatrix.runtime.adapters`."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def module_of(subject: Any) -> ModuleType:
    """Return a generated module as it is; compile a `dx.Function` for the CPU."""
    if isinstance(subject, ModuleType):
        return subject
    from derivatrix.compiler.driver.build import compile

    return compile(subject)
