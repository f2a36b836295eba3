"""Reports on functions for reading: a page of their own, or part of a notebook.

Needs latex2mathml and pygments, which the extra `html` has.
"""
