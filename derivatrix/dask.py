"""Generated modules on dask's arrays: `map_samples`."""

from derivatrix.runtime.adapters.dask import map_samples

__all__ = ["map_samples"]
