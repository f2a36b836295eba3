"""Derivatives in closed form: differentials (JVP), their transposes (VJP), and what they give.

`derivatives` has all kinds for a function; `derivation` shows how one comes about, line by line.
"""
