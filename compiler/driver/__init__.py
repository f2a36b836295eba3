"""From functions to files: the stages one after the other, builds, processes, output, cache."""
