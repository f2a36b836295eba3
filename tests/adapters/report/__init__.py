"""Tests that need latex2mathml and pygments."""
