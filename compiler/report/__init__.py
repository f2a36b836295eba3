"""All that there is to a function, for reading: as a page of its own, and within others.

Needs latex2mathml and pygments, which the extra `playground` has.
"""
