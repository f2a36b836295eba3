"""Tests that need pyright."""
