"""Clearing of the compiler's caches, so that a planted fault neither uses old results nor leaves
its own."""

import sys
from functools import _lru_cache_wrapper

import pytest

from derivatrix.compiler.differentiate import recurrence
from derivatrix.compiler.driver import derivation_cache
from derivatrix.compiler.ir import divided_differences

OF_EXPRESSIONS = (divided_differences, recurrence)


def forget() -> None:
    """Clear all of it, but the classes of divided differences and the operations of loops, which
    expressions are made of."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("derivatrix.compiler.") and module not in OF_EXPRESSIONS:
            for value in [*vars(module).values()]:
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def derive_always(patch: pytest.MonkeyPatch) -> None:
    """Derive every function anew, and keep no text of a module on disk."""
    patch.setattr(derivation_cache, "cached_module", lambda function, target: None)
    patch.setattr(derivation_cache, "keep_module", lambda module: None)
