"""Tests that need the programs of the adapters: `.ci/run` runs them in an environment that has
these."""
