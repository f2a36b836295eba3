"""The way from functions to files: the stages in order, builds, processes, output, cache."""
