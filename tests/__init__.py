"""Tests, a folder for each room of the code; what several of them use is beside these folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder of the checkout."""
