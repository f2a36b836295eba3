"""Checks of calls, and operators: what modules for all targets have."""
