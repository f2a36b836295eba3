"""Versions of Python and of what derivatrix needs: modules built with some, run with others."""
