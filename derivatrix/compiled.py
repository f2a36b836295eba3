"""Parent package of the modules that `derivatrix.compile` makes, as pickles from other processes
name them: derivatrix.compiled.square_..., found in the cache directory of this process.

`pickle`, and with it joblib and dask, imports it.
"""

from __future__ import annotations

import sys

from derivatrix.runtime.compiled import Finder

__path__: list[str] = []

if not any(isinstance(finder, Finder) for finder in sys.meta_path):
    sys.meta_path.append(Finder())
