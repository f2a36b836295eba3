"""Tests that need a Jupyter kernel."""
