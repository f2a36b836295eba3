"""derivatrix inside other programs' runs: builds by setuptools and hatch, tests by pytest.

Each is found by its entry point (`pyproject.toml`), in every run of these programs where derivatrix
is installed, so it imports nothing of derivatrix until it has something to do."""
