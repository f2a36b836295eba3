"""Derivatives in closed form: differentials (JVP), their transposes (VJP), and all further kinds.

`linearise` differentiates expressions; `derivatives` has all kinds for a function; `derivation`
derives a gradient or VJP line by line.
"""
