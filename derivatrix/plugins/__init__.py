"""Plugins of setuptools, hatch and pytest.

Their entry points (`pyproject.toml`) load them in every run of these programs where derivatrix is
installed, so they import nothing of derivatrix until they have work to do."""
