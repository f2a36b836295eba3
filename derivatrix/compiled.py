"""Modules that `derivatrix.compile` made, by the names under which pickles of other processes refer
to them: derivatrix.compiled.square_..., found in the cache directory of this process.

Nobody has to import this: `pickle` does, and joblib and dask with it.
"""

from __future__ import annotations

import sys

from derivatrix.runtime.compiled import Finder

__path__: list[str] = []

if not any(isinstance(each, Finder) for each in sys.meta_path):
    sys.meta_path.append(Finder())
