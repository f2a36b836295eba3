"""Plans as kernels for the CPU, and what lets threads share their work."""
