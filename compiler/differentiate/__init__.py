"""Derivatives in closed form: differentials (JVP), their transposes (VJP), and what is made of them.

`derivatives` has all kinds for a function; `derivation` shows how one comes about, line by line.
"""
