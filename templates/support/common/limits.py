"""Numbers that the compiler and the modules that it writes have to agree on."""

_LARGE = 16384
"""Entries of all results from which malloc may give their memory back to the system."""
_SHARED = 500_000
"""How much work, in numbers read, written or computed, is worth a thread of its own."""
_WRITERS = 4
"""How many threads write faster than one at most."""
LEADING = 0.99999
"""Entries of a vector whose sizes differ by less, relatively, count as equally large."""
