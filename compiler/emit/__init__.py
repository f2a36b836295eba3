"""Plans as the text of a module: kernels, public functions, the helpers that they need."""
