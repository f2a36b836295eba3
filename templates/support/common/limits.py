"""Thresholds that the compiler and generated modules must agree on."""

MAX_HEAP_ENTRIES = 16384
"""Results with at most this many entries in total stay in malloc's heap; malloc may return the
memory of larger ones to the system."""
MAX_SERIAL_BLAS_ENTRIES = 16384
"""Matrices with at most this many entries in total are multiplied by one BLAS thread."""
MAX_SERIAL_STEP_ENTRIES = 65536
"""In a loop over time, BLAS has one thread for steps whose matrices have at most this many entries
in total: threads would wait for each other at each of their products."""
MIN_OPS_PER_THREAD = 500_000
"""Fewest numbers read, written or computed for which a further thread pays."""
MAX_WRITING_THREADS = 4
"""More threads do not write to memory faster."""
LEADING_RATIO = 0.99999
"""Entries of a vector at least this large, relative to its largest, count as largest, too."""
